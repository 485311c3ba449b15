"""How far do Theorems 1 and 2, which know a state's own advantages only, survive when states share parameters?

Random bandits of 20 contexts and 10 actions, small steps. What is shared is either a part c of every row, by the kernel
(1−c)·I + c·(one row for all), or F random features for the 200 logits (E ΦΦᵀ = I). Theorem 1 foresees KernelPG, Theorem
2 SharedNaturalPG; Lemma 1, which is given the true δ, stands beside them. To first order ΔH_s = η Σ_t h_s·K_st g_t with
h = ∂H/∂z, g = ∂J/∂z, and Theorem 1 has h_s·g_s of it: what other contexts add acts as noise. The correlation should be
1/√(1 + c²n²) or 1/√(1 + F*/F), where n and F* follow from h and g. Prints a table and a verdict, writes
figures/sharing.json, .png and .svg. Run: python experiments/sharing.py (a minute)
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # on matrices this small, threads wait for each other
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import entropy, entropy_change, plots, remainder, theorem_1, theorem_2  # noqa: E402
from softmaxdyn.policy import centred, softmax  # noqa: E402
from softmaxdyn.updates import KernelPG, SharedNaturalPG, blended_kernel, random_features, tied_features  # noqa: E402

SHAPE = STATES, ACTIONS = 20, 10
DRAWS = 50
SCALES = (0.5, 2.0, 6.0)  # standard deviation of the logits
STEP = 0.01  # η of natural PG and η d(s) of PG; rewards are uniform on [0, 1]
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SPANNING = (0.0, 0.95, 1.0)  # the shares for natural PG, whose step is the same for all c < 1
RANKS = (1, 2, 5, 10, 20, 50, 100, 150, 180, 200)


def drawn(scale):
    """(logits, rewards), DRAWS of each."""
    make, pay = jax.random.split(jax.random.key(0))
    return scale * jax.random.normal(make, (DRAWS, *SHAPE)), jax.random.uniform(pay, (DRAWS, *SHAPE))


def slopes(logits, rewards):
    """(∂H/∂z, d(s) π A), each [S, A]."""
    policy = softmax(logits)
    return -policy.prob * policy.centred_log_prob, policy.prob * centred(policy, rewards) / STATES


@partial(jax.jit, static_argnames="natural")
def compared(table, logits, rewards, natural=False):
    """(exact ΔH, the theorem, the error of Lemma 1, that at half the step), [N, S]; `table` holds K or Φ a draw."""

    def one(case):
        table, logits, rewards = case
        policy, visits = softmax(logits), jnp.full(STATES, 1.0 / STATES)
        step, theorem = STEP * STATES, theorem_1
        update = KernelPG(step, kernel=table) if table.ndim == 4 else KernelPG(step, table)
        if natural:
            update, theorem = SharedNaturalPG(STEP, table), theorem_2
        delta, _ = update(slopes(logits, rewards)[1], policy, visits)
        said = theorem(logits, centred(policy, rewards), STEP)
        return entropy_change(logits, delta), said, remainder(logits, delta), remainder(logits, delta / 2)

    return jax.lax.map(one, (jnp.broadcast_to(table, (DRAWS, *table.shape[1:])), logits, rewards))


def score(exact, said, error, half):
    """How well theorem and lemma do: a context (pooled with the draws), and for the mean over the contexts."""
    exact, said, error, half = map(np.asarray, (exact, said, error, half))
    size, off, second, quarter = (np.sqrt(np.mean(x**2)) for x in (exact, said - exact, error, half))
    found = {
        "correlation": np.corrcoef(exact.ravel(), said.ravel())[0, 1],
        "correlation_of_means": np.corrcoef(exact.mean(1), said.mean(1))[0, 1],
        "relative_error": off / size,
        "right_signs": np.mean(np.sign(exact) == np.sign(said)),
        "lemma_1_correlation": np.corrcoef(exact.ravel(), (exact - error).ravel())[0, 1],
        "lemma_1_relative_error": second / size,
        "lemma_1_order": np.log2(second / quarter),
    }
    return {name: round(float(value), 6) for name, value in found.items()}


def foreseen(logits, rewards):
    """(n², F*) by h and g alone: what others add to ΔH_s at c = 1, and what random features do, over h_s·g_s."""
    h, g = map(np.asarray, jax.vmap(slopes)(logits, rewards))
    own = np.einsum("nsa,nsa->ns", h, g)
    others = np.einsum("nsa,na->ns", h, g.sum(1)) - own
    spread = (h**2).sum(-1) * (g**2).sum((1, 2))[:, None] + own**2
    return float((others**2).mean() / (own**2).mean()), float(spread.mean() / (own**2).mean())


def blended_features(share):
    """Φ [1, S, A, S·A + A] with ΦΦᵀ = `blended_kernel`."""
    identity = np.eye(STATES * ACTIONS).reshape(*SHAPE, -1)
    return np.concatenate([np.sqrt(1 - share) * identity, np.sqrt(share) * tied_features(SHAPE)], -1)[None]


def some_features(rank):
    """Φ [N, S, A, S·A + A]: `rank` random features and columns of 0, so that all ranks share what is compiled."""
    drawn = jax.vmap(lambda key: random_features(key, SHAPE, rank))(jax.random.split(jax.random.key(1), DRAWS))
    return jnp.pad(drawn, [(0, 0)] * 3 + [(0, STATES * ACTIONS + ACTIONS - rank)])


def measured(scale):
    """Everything about policies of that peakedness."""
    case = drawn(scale)
    noise, rank = foreseen(*case)
    found = {"scale": scale, "mean_entropy": float(entropy(case[0]).mean()), "n_squared": noise, "F_star": rank}
    found["share, PG"] = [score(*compared(blended_kernel(SHAPE, c)[None], *case)) for c in SHARES]
    found["share, NPG"] = [score(*compared(blended_features(c), *case, natural=True)) for c in SPANNING]
    found["rank, PG"], found["rank, NPG"] = [], []
    for width in RANKS:
        features = some_features(width)
        for name, natural in (("rank, PG", False), ("rank, NPG", True)):
            found[name].append(score(*compared(features, *case, natural=natural)))
    return found


def draw(results):
    """Correlation per context against c, and against F."""
    with matplotlib.rc_context(plots.STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.0), layout="constrained", sharey=True)
        for style, found in enumerate(results):
            colour, hollow = plots.COLOURS[style], {"marker": "s", "markerfacecolor": "white", "linestyle": "--"}
            laws = (SHARES, np.square(SHARES) * found["n_squared"]), (RANKS, found["F_star"] / np.array(RANKS))
            for ax, (x, law), kind, few in zip(axes, laws, ("share", "rank"), (SPANNING, RANKS), strict=True):
                given, natural = found[f"{kind}, PG"], [row["correlation"] for row in found[f"{kind}, NPG"]]
                ax.plot(x, [row["lemma_1_correlation"] for row in given], color="0.85", linewidth=4, zorder=0)
                ax.plot(x, 1 / np.sqrt(1 + law), color=colour, linewidth=0.9)
                ax.plot(x, [row["correlation"] for row in given], "o", color=colour, markersize=3.5)
                ax.plot(few, natural, color=colour, linewidth=0.9, markersize=5.5 - style, **hollow)
        line = partial(plt.Line2D, [], [])
        kinds = {
            f"mean H = {f['mean_entropy']:.2f} nats": line(color=c)
            for f, c in zip(results, plots.COLOURS, strict=False)
        }
        kinds["PG, Theorem 1 (line: closed form)"] = line(color="k", marker="o", markersize=3.5, linewidth=0.9)
        kinds["natural PG, Theorem 2"] = line(color="k", markersize=4.5, linewidth=0.9, **hollow)
        kinds["PG, Lemma 1, given δ"] = line(color="0.85", linewidth=4)
        figure.legend(kinds.values(), kinds, loc="outside upper center", ncols=2)
        axes[0].set(xlabel="part of each row that all contexts share, c", ylim=(0, 1.05), xlim=(-0.03, 1.03))
        axes[0].set_ylabel("correlation of predicted and exact ΔH")
        axes[1].set(xlabel=f"random features for {STATES * ACTIONS} logits, F", xscale="log")
        axes[1].set_xticks([1, 10, 100, 200], ["1", "10", "100", "200"])
    plots.save_figure(figure, ROOT / "figures" / "sharing")


def table(results):
    """One line a policy and setting."""
    print("mean H   setting        correlation  of means  relative error  right signs")
    for found in results:
        for kind, x in (("share, PG", SHARES), ("share, NPG", SPANNING), ("rank, PG", RANKS), ("rank, NPG", RANKS)):
            for value, row in zip(x, found[kind], strict=True):
                numbers = [row[k] for k in ("correlation", "correlation_of_means", "relative_error", "right_signs")]
                line = "{:12.3f} {:9.3f} {:15.3f} {:12.3f}".format(*numbers)
                print(f"{found['mean_entropy']:6.2f}   {kind:10} {value:4g} {line}")


def main():
    results = [measured(scale) for scale in SCALES]
    table(results)
    config = {"states": STATES, "actions": ACTIONS, "draws": DRAWS, "step": STEP, "shares": SHARES, "ranks": RANKS}
    record = {**config, "spanning": SPANNING, "results": results}
    text = json.dumps(record, default=float)
    (ROOT / "figures" / "sharing.json").write_text(text + "\n", "utf-8")
    draw(results)
    rows = [row for found in results for kind in found if ", " in kind for row in found[kind]]

    def pick(kind, x, value, what="correlation", form=".2f"):
        return " / ".join(format(found[kind][x.index(value)][what], form) for found in results)

    print(
        f"Verdict, for mean entropies of {' / '.join(format(found['mean_entropy'], '.2f') for found in results)} nats: "
        f"Theorem 1 correlates {pick('share, PG', SHARES, 0.1)} with the exact ΔH when contexts share a tenth of each "
        f"row ({pick('share, PG', SHARES, 0.1, 'right_signs', '.0%')} of signs right), "
        f"{pick('share, PG', SHARES, 0.5)} at half, {pick('share, PG', SHARES, 1.0)} at one row for all, and "
        f"{pick('rank, PG', RANKS, 200)} for as many random features as logits, {pick('rank, PG', RANKS, 20)} for a "
        f"tenth of them; Theorem 2 stays exact while the features span every policy, whatever their kernel "
        f"({pick('share, NPG', SPANNING, 0.95)} at c = 0.95, {pick('rank, NPG', RANKS, 180)} at F = 180 = S(K−1)), but "
        f"has {pick('share, NPG', SPANNING, 1.0)} at one row for all and {pick('rank, NPG', RANKS, 20)} at F = 20; "
        f"Lemma 1 never falls below {min(row['lemma_1_correlation'] for row in rows):.4f}, and its error is of order "
        f"{min(row['lemma_1_order'] for row in rows):.3f} to {max(row['lemma_1_order'] for row in rows):.3f}."
    )


if __name__ == "__main__":
    main()
