"""How tight is |ΔH + Cov_π(log π, δ)| ≤ (1/8 + log(K−1)/(12√3)) osc(δ)²? Gradient ascent tries to break it.

Ascends ±H''/2 (steps → 0) and ±remainder (steps of osc 0.1, 1, 10), over osc², from random policies and directions; and
puts the claim inside the proof, |B(1_S, 1_T)| ≤ ¼ + log(K−1)/(6√3), on a grid for K = 2 … 1000. Prints a line per K and
writes figures/bound.json, .png and .svg. Run: python experiments/bound.py (about a minute)
"""

import json
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import plots, remainder, remainder_bound, second_order  # noqa: E402

STARTS = {2: 400, 3: 400, 4: 400, 5: 400, 10: 400, 30: 200, 100: 100}  # K: ascents
OSCILLATIONS = (0.0, 0.1, 1.0, 10.0)  # of δ; 0 stands for H''/2
ASCENT = {"steps": 2000, "rate": 0.1}
GRID = np.arange(2, 1001)


def ratio(logits, raw, size):
    """Remainder (H''/2 for size 0) over osc² of the direction `raw`, stretched to osc = size."""
    unit = (raw - raw.min(-1, keepdims=True)) / jnp.ptp(raw, -1, keepdims=True)
    return 0.5 * second_order(logits, unit) if size == 0 else remainder(logits, size * unit) / size**2


@partial(jax.jit, static_argnames="size")
def ascend(logits, raw, sign, size):
    """The largest sign·ratio that Adam reaches from each start."""
    gain = lambda x: sign * ratio(*x, size)  # noqa: E731

    def step(i, carry):
        x, mean, square, best = carry
        slope = jax.tree.map(jnp.nan_to_num, jax.grad(lambda x: gain(x).sum())(x))
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, slope)
        rate = ASCENT["rate"] * (1 - i / ASCENT["steps"]) * jnp.sqrt(1 - 0.999 ** (i + 1)) / (1 - 0.9 ** (i + 1))
        x = jax.tree.map(lambda x, m, v: x + rate * m / (jnp.sqrt(v) + 1e-12), x, mean, square)
        return x, mean, square, jnp.fmax(best, gain(x))

    zero = jax.tree.map(jnp.zeros_like, (logits, raw))
    return jax.lax.fori_loop(0, ASCENT["steps"], step, ((logits, raw), zero, zero, gain((logits, raw))))[-1]


def search(actions, starts):
    """The largest |ratio| found for each oscillation."""
    rng = np.random.default_rng(actions)
    logits = rng.standard_normal((starts, actions)) * rng.choice([0.3, 1.0, 3.0], (starts, 1))
    raw, sign = 3 * rng.standard_normal((starts, actions)), jnp.resize(jnp.array([1.0, -1.0]), starts)
    return [float(ascend(logits, raw, sign, size).max()) for size in OSCILLATIONS]


def constants():
    """Of the certified bound, for each K of GRID: K unmasked actions and a step with osc = 1."""
    actions = jnp.arange(GRID[-1])
    logits = jnp.where(actions < GRID[:, None], 0.0, -jnp.inf)
    return np.asarray(remainder_bound(logits, jnp.broadcast_to(actions == 0, logits.shape).astype(float)))


def one_against_all(actions):
    """½ H'' that one action of probability 1 − s against K − 1 equal ones attains, at the best s."""
    s = np.linspace(0.5, 0.999, 5000)
    return float((s * (1 - s) * (1 + (2 * s - 1) * np.log((actions - 1) * (1 - s) / s)) / 2).max())


def claim():
    """½ sup |B| on a grid of (s, m, n), for each K of GRID; B is linear in h, so its ends 0 and log(K−1) suffice."""
    m = np.concatenate([[0], np.geomspace(1e-9, 0.01, 80), np.linspace(0.01, 0.99, 197)])[:, None]
    share = np.concatenate(
        [np.geomspace(1e-9, 0.01, 60), np.linspace(0.01, 0.99, 491), 1 - np.geomspace(1e-9, 0.01, 60)]
    )
    s, n = (1 - m) * share, (1 - m) * (1 - share)
    base = s * n * (1 + (1 - 2 * s) * np.log(s) - 2 * m * np.log(np.maximum(m, 1e-300)) + (1 - 2 * n) * np.log(n))
    up = s * n * (2 * m + np.maximum(2 * s - 1, 0) + np.maximum(2 * n - 1, 0))
    down = s * n * (np.maximum(1 - 2 * s, 0) + np.maximum(1 - 2 * n, 0))
    sup = lambda rows, log: max((base + up * log)[rows].max(), (down * log - base)[rows].max()) / 2  # noqa: E731
    return np.array(
        [sup(slice(None) if log else slice(1), log) for log in np.log(GRID - 1)]
    )  # K = 2 leaves nothing for m


def main():
    certified, grid, attained = constants(), claim(), np.array([one_against_all(int(k)) for k in GRID])
    print(f"sup|B| on the grid, K = 2 … 1000: at most {(grid / certified).max():.10f} of what the proof claims")
    print(f"one action against the others attains {attained[-1] / certified[-1]:.1%} at K = 1000 (→ 100 % as K grows)")
    found = {}
    for k, starts in STARTS.items():
        found[k] = search(k, starts)
        bound, best = certified[k - 2], max(found[k])
        print(f"K = {k:3}: constant {bound:.4f}, largest found {best:.4f}, {best / bound:.1%} of it", flush=True)
    table = {"K": GRID, "constant": certified, "claim_on_grid": grid, "one_against_all": attained}
    config = {"oscillations": OSCILLATIONS, "starts": STARTS, **ASCENT}
    record = {"config": config, "search": found, "grid": {name: x.tolist() for name, x in table.items()}}
    (ROOT / "figures" / "bound.json").write_text(json.dumps(record) + "\n", "utf-8")
    figure, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    ax.plot(GRID, 0.125 + 0.5 * np.log(GRID), color=plots.COLOURS[1], linestyle="--", label="1/8 + ½ log K")
    ax.plot(GRID, certified, color=plots.COLOURS[0], label="1/8 + log(K−1)/(12√3), certified")
    ax.plot(GRID, attained, color=plots.COLOURS[2], linestyle=":", label="one action against the others")
    ax.plot(list(found), [max(best) for best in found.values()], "ko", markersize=3, label="largest found by ascent")
    ax.set(xscale="log", yscale="log", xlabel="actions, K", ylabel="|remainder| / osc(δ)² (nats)")
    ax.legend(fontsize=6, frameon=False)
    plots.save_figure(figure, ROOT / "figures" / "bound")


if __name__ == "__main__":
    main()
