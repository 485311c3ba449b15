"""How tight is |ΔH + Cov_π(log π, δ)| ≤ (1/8 + log(K−1)/(12√3)) osc(δ)²? Gradient ascent tries to break it.

Ascends ±remainder/osc² from random policies and directions, for steps of osc 1e-6 (where it is ½ H''), 0.1, 1 and 10;
puts the claim inside the proof, |B(1_S, 1_T)| ≤ ¼ + log(K−1)/(6√3), on a grid for K = 2 … 1000. Prints a line a K and
writes figures/bound.json, .png and .svg. Run: python experiments/bound.py (a minute)
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import plots, remainder, remainder_bound  # noqa: E402

STARTS = {2: 100, 3: 100, 4: 100, 5: 100, 10: 100, 30: 60, 100: 40}  # K: ascents
OSCILLATIONS = (1e-6, 0.1, 1.0, 10.0)  # of δ; the first gives H''/2
STEPS, LONGEST = 1000, 0.1
GRID = np.arange(2, 1001)


def ratio(x, size):
    """Remainder/osc² of logits x[0] and a step along x[1] with osc = size."""
    unit = (x[1] - x[1].min(-1, keepdims=True)) / jnp.ptp(x[1], -1, keepdims=True)
    return remainder(x[0], size * unit) / size**2


@jax.jit
def ascend(x, sign, size):
    """The largest sign·ratio on the way, by steps with the signs of the gradient, ever shorter."""

    def step(i, carry):
        x, best = carry
        value, back = jax.vjp(lambda x: sign * ratio(x, size), x)
        slope = jnp.nan_to_num(back(jnp.ones_like(value))[0])
        return x + LONGEST * (1 - i / STEPS) ** 2 * jnp.sign(slope), jnp.fmax(best, value)

    return jax.lax.fori_loop(0, STEPS, step, (x, jnp.zeros_like(sign)))[1].max()


def search(actions, starts):
    """The largest |ratio| found for each oscillation."""
    x = np.random.default_rng(actions).standard_normal((2, starts, actions)) * [[[1.0]], [[3.0]]]
    return [float(ascend(x, (-1.0) ** jnp.arange(starts), size)) for size in OSCILLATIONS]


def constants():
    """Of the certified bound, for each K of GRID: K unmasked actions and a step with osc = 1."""
    logits = jnp.where(jnp.arange(GRID[-1]) < GRID[:, None], 0.0, -jnp.inf)
    return np.asarray(remainder_bound(logits, jnp.zeros_like(logits).at[:, 0].set(1.0)))


def one_against_all(s=np.linspace(0.5, 0.999, 999)[:, None]):
    """|H''|/2 that one action of probability 1 − s against K − 1 equal ones attains, at the best s, for each K."""
    return (s * (1 - s) * (1 + (2 * s - 1) * np.log((GRID - 1) * (1 - s) / s)) / 2).max(0)


def claim(actions):
    """½ sup |B| on a grid of (s, m, n), over both ends, 0 and log(K−1), of the entropies h, in which B is linear."""
    m = np.r_[0, np.geomspace(1e-9, 0.01, 60), 0.01:0.99:197j][: None if actions > 2 else 1, None]
    share = np.r_[np.geomspace(1e-9, 0.01, 60), 0.01:0.99:491j, 1 - np.geomspace(1e-9, 0.01, 60)]
    s, n, log = (1 - m) * share, (1 - m) * (1 - share), np.log(actions - 1)
    base = s * n * (1 + (1 - 2 * s) * np.log(s) - 2 * m * np.log(np.maximum(m, 1e-300)) + (1 - 2 * n) * np.log(n))
    up = base + s * n * (2 * m + np.maximum(2 * s - 1, 0) + np.maximum(2 * n - 1, 0)) * log
    down = s * n * (np.maximum(1 - 2 * s, 0) + np.maximum(1 - 2 * n, 0)) * log - base
    return max(up.max(), down.max()) / 2


def main():
    certified, attained, on_grid = constants(), one_against_all(), np.array([claim(int(k)) for k in GRID])
    print(f"sup|B| on the grid, K = 2 … 1000: at most {(on_grid / certified).max():.10f} of what the proof claims")
    print(f"one action against the others attains {attained[-1] / certified[-1]:.1%} at K = 1000 (→ 100 % as K grows)")
    found = {k: search(k, starts) for k, starts in STARTS.items()}
    for (k, best), bound in zip(found.items(), certified[np.array(list(found)) - 2], strict=True):
        print(f"K = {k:3}: {max(best):.4f} found, {max(best) / bound:.1%} of the bound, {bound:.4f}")
    table = {"K": GRID, "constant": certified, "claim_on_grid": on_grid, "one_against_all": attained}
    record = {"oscillations": OSCILLATIONS, "found": found, **{k: x.round(6).tolist() for k, x in table.items()}}
    (ROOT / "figures" / "bound.json").write_text(json.dumps(record) + "\n", "utf-8")
    figure, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    ax.plot(GRID, 0.125 + 0.5 * np.log(GRID), color=plots.COLOURS[1], linestyle="--", label="1/8 + ½ log K")
    ax.plot(GRID, certified, color=plots.COLOURS[0], label="1/8 + log(K−1)/(12√3): the bound")
    ax.plot(GRID, attained, color=plots.COLOURS[2], linestyle=":", label="one action against the others")
    ax.plot(list(found), list(map(max, found.values())), "ko", markersize=3, label="largest found by ascent")
    ax.set(xscale="log", yscale="log", xlabel="actions, K", ylabel="|remainder| / osc(δ)² (nats)")
    ax.set_xticks([2, 10, 100, 1000], ["2", "10", "100", "1000"])
    ax.set_yticks([0.125, 0.25, 0.5, 1, 2, 4], ["1/8", "1/4", "1/2", "1", "2", "4"])
    ax.minorticks_off()
    ax.legend(fontsize=6, frameon=False, handlelength=1.6, loc="center right", bbox_to_anchor=(1, 0.54))
    plots.save_figure(figure, ROOT / "figures" / "bound")


if __name__ == "__main__":
    main()
