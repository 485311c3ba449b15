"""What do the theorems, which know one state, miss of the entropy of a whole response? Exact runs on token trees.

1. visitation: a step moves the visits too (T19). One tree, rewarded for length, and for the last token.
2. covariances: which of four "covariances of log π and the advantage" (T20) tracks the fall of which entropy, that of a
   response (H̄), the same with the visits frozen, or that of a mean token (H̄/E|y|)? Populations of PG, NPG and GRPO on
   random trees of fixed length and with an end token, and on the tree that rewards length.
3. diversity: do the entropies of a token, of a response and of its final answer move together?

Prints an answer a question and writes figures/{visitation,covariances,diversity}.json, .png and .svg.
Run: python experiments/episodes.py (a minute)
"""

import json
import os
import sys
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).parents[1]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import Algorithm, NaturalPG, TokenTree, VanillaPG, build, episode_plots, plots, probs, simulate  # noqa: E402
from softmaxdyn.problems.named.trees import parity  # noqa: E402
from softmaxdyn.results import visit_mean  # noqa: E402

STEPS, WHOLE = 60, 151  # of the runs that are rewarded for length, and of those of question 3
LONG = 4  # tokens, the end not counted, from which a response is long
REWARDS = {"length": lambda y: float(len(y) >= LONG), "last token": lambda y: float(y[-1:] == (0,))}
PG, NPG = Algorithm(VanillaPG(1.0)), Algorithm(NaturalPG(0.1))
SIZES = 2.0 ** np.arange(-10, 1)  # step sizes of one step, for the orders,
MIDDLE = 20  # and the step of a run that is made so small
KINDS = {"fixed length": (3, 4, False), "end token": (3, 5, True)}  # vocabulary, depth, end
DRAWS, PROMPTS, RUN = 40, 4, 100  # random trees, prompts of each, steps of a run
GRPO = build("grpo", mode="exact")
UPDATES = {"PG": Algorithm(VanillaPG(1.0 * PROMPTS)), "NPG": NPG, "GRPO": build("grpo", mode="exact", step_size=4.0)}
OWN = {"frozen": "action", "response": "sequence", "token": "token"}  # the covariance of each entropy under natural PG
COVARIANCES = ("action", "sequence", "normalised", "token")
WORDS = {"frozen": "Σ d H, d frozen", "response": "H̄ of a response", "token": "H̄/E|y| of a mean token"}


def tree(paid):
    """Responses of at most 6 tokens out of two, and an end token."""
    return TokenTree(paid, vocabulary=3, depth=6, end=True)


def random_tree(seed, vocabulary, depth, end):
    """(a tree in which 5 % to 50 % of the responses to a prompt are correct, logits N(0, 1))."""
    generator = np.random.default_rng(seed)

    def lottery(share):
        drawn = {}
        return lambda response: drawn.setdefault(response, float(generator.random() < share))

    paid = [lottery(share) for share in generator.uniform(0.05, 0.5, PROMPTS)]
    problem = TokenTree(paid, vocabulary=vocabulary, depth=depth, end=end)
    return problem, generator.standard_normal(problem.shape)


def falls(problem, trace):
    """By how much each step lowers the three entropies."""
    visits = problem.visits(probs(trace.logits))
    last = np.sum(visits * trace.final_entropy) / np.sum(visits)
    mean_token = np.append(visit_mean(trace, "entropy"), last)
    return {"frozen": -trace.local_change, "response": -trace.trajectory_change, "token": -np.diff(mean_token)}


def compared(problem, trace):
    """{covariance: {entropy: (Pearson's r with its fall, share of the steps of another sign)}}."""
    table = {name: getattr(trace, f"{name}_covariance") for name in COVARIANCES}
    return {
        name: {key: (np.corrcoef(x, fall)[0, 1], np.mean(x * fall < 0)) for key, fall in falls(problem, trace).items()}
        for name, x in table.items()
    }


def visitation():
    """Question 1."""
    traces = {name: simulate(tree(paid), PG, num_steps=STEPS) for name, paid in REWARDS.items()}
    errors = {name: errors_of_first_order(tree(paid)) for name, paid in REWARDS.items()}
    orders = {name: {part: np.diff(np.log2(e)) for part, e in parts.items()} for name, parts in errors.items()}
    smallest = [order[0] for parts in orders.values() for order in parts.values()]
    for name, trace in traces.items():
        local, moved = trace.local_change, trace.visitation_change
        print(
            f"Visitation: rewarded for {name}, {STEPS} steps of PG change H̄ by {np.sum(local + moved):+.3f} nats = "
            f"{np.sum(local):+.3f} with the visits frozen {np.sum(moved):+.3f} by moved visits, which are against the "
            f"other part and larger in {np.sum((local * moved < 0) & (np.abs(moved) > np.abs(local)))} steps, smaller "
            f"in {np.sum(np.abs(moved) < np.abs(local))}."
        )
    print(f"  The errors of their first orders have order {min(smallest):.4f} to {max(smallest):.4f} in the step size.")
    draw_visitation(traces, errors)
    fields = ("local_change", "visitation_change", "visitation_prediction", "trajectory_change", "trajectory_entropy")
    runs = {name: {f: getattr(trace, f) for f in fields} | trace.measures for name, trace in traces.items()}
    for name, trace in traces.items():
        runs[name]["local_prediction"] = np.sum(trace.visits * trace.lemma_1, 1)
    record = {"steps": STEPS, "long": LONG, "sizes": SIZES, "errors": errors, "orders": orders, "runs": runs}
    write("visitation", record)


def errors_of_first_order(problem):
    """|exact − first order| of both parts of ΔH̄, for one step of each size from the middle of a run of PG."""
    logits = simulate(problem, PG, num_steps=MIDDLE).logits
    steps = [simulate(problem, Algorithm(VanillaPG(size)), num_steps=1, logits=logits) for size in SIZES]
    moved = [(step.visitation_change - step.visitation_prediction)[0] for step in steps]
    return {"frozen": np.abs([np.sum(step.visits * step.remainder) for step in steps]), "moved": np.abs(moved)}


def draw_visitation(traces, errors):
    """The two parts of ΔH̄ in both runs, and the error of the first orders against the step size."""
    with plots.three_panels(2.7) as (figure, axes):
        for ax, (name, trace) in zip(axes, traces.items(), strict=False):
            handles, names = bare(episode_plots.entropy_split(trace, ax), f"rewarded: {name}")
        for style, (name, parts) in enumerate(errors.items()):
            mark = {"marker": "os"[style], "markersize": 3, "linewidth": 1, "linestyle": plots.DASHES[style]}
            for part, colour in zip(parts.values(), plots.COLOURS, strict=False):
                axes[2].loglog(SIZES, part, color=colour, markerfacecolor=["white", colour][style], **mark)
            handles += axes[2].plot([], [], color="0.3", markerfacecolor=["white", "0.3"][style], **mark)
            names.append(f"error, rewarded: {name}")
        handles += axes[2].plot(SIZES, 0.01 * SIZES**2, color="0.7", linewidth=0.8)
        axes[2].set(xlabel=f"step size η of step {MIDDLE}", ylabel="|exact − first order| (nats)")
        axes[1].set_ylabel("")
        figure.legend(handles, [*names, "slope 2"], loc="outside upper center", ncols=4)
    plots.save_figure(figure, ROOT / "figures" / "visitation")


def covariances():
    """Question 2."""
    found, returns, gap = {}, {}, 0.0
    for kind, size in KINDS.items():
        for update, algorithm in UPDATES.items():
            drawn = [random_tree(seed, *size) for seed in range(DRAWS)]
            traces = [simulate(problem, algorithm, num_steps=RUN, logits=logits) for problem, logits in drawn]
            rows = [compared(problem, trace) for (problem, _), trace in zip(drawn, traces, strict=True)]
            found[f"{kind}, {update}"] = jax.tree.map(lambda *x: np.array(x), *rows)
            returns[f"{kind}, {update}"] = [trace.final_expected_return for trace in traces]
            if kind == "fixed length":
                gap = max(gap, *(gap_of_length(trace, size[1]) for trace in traces))
    steps = {"PG": PG, "NPG": NPG, "GRPO": GRPO}
    problem = tree(REWARDS["length"])
    long = {name: simulate(problem, how, num_steps=STEPS) for name, how in steps.items()}
    against = {name: compared(problem, trace) for name, trace in long.items()}
    orders = orders_of_npg(*random_tree(0, *KINDS["end token"]))
    say_covariances(found, against, orders, gap)
    draw_covariances(found, long)
    config = {"draws": DRAWS, "prompts": PROMPTS, "run": RUN, "kinds": KINDS, "steps": STEPS}
    record = {**config, "columns": ["r", "share of wrong signs"], "random trees": found, "rewarded for length": against}
    write("covariances", record | {"final return": returns, "orders under NPG": orders, "gap of fixed length": gap})


def gap_of_length(trace, length):
    """The difference of the sequence covariance over the length to the two others, relative to the largest."""
    one = trace.sequence_covariance / length
    return max(np.abs(x - one).max() / np.abs(one).max() for x in (trace.normalised_covariance, trace.token_covariance))


def orders_of_npg(problem, logits):
    """In what power of η does the fall of each entropy, less η times its covariance, vanish under natural PG?

    π'(y) ∝ π(y) exp(η R(y)) for a prompt, so that to first order H̄ falls by η Cov(log π(y), R), the length E|y| grows
    by η Cov(|y|, R), and H̄/E|y| falls by η times the mean of (log π − mean log π)(R − V) over tokens.
    """
    errors = {key: [] for key in OWN}
    for size in SIZES:
        trace = simulate(problem, Algorithm(NaturalPG(size)), num_steps=1, logits=logits)
        for key, fall in falls(problem, trace).items():
            errors[key].append(abs(fall - size * getattr(trace, f"{OWN[key]}_covariance"))[0])
    return {key: np.diff(np.log2(error)) for key, error in errors.items()}


def say_covariances(found, against, orders, gap):
    """The answer to question 2."""

    def r(update, name, key):
        values = found[f"end token, {update}"][name][key][0]
        return f"{np.median(values):.3f} ({values.min():.3f})"

    own = "; ".join(f"{name} × η to the fall of {WORDS[key]}, r = {r('NPG', name, key)}" for key, name in OWN.items())
    first = [order[0] for order in orders.values()]
    print(
        "Covariances; r is the median (lowest) correlation over runs on trees with an end token. Under NPG three of "
        f"them are exact to first order (the error has order {min(first):.3f} to {max(first):.3f}): {own}. The length-"
        f"normalised one belongs to none: {', '.join(r('NPG', 'normalised', key) for key in OWN)} with the three. At "
        f"fixed length it, the token proxy and the sequence one over the length are the same number (to {gap:.0e})."
    )
    for update in ("PG", "GRPO"):
        listed = ", ".join(f"{name} {r(update, name, 'response')}" for name in COVARIANCES)
        print(f"  Under {update} none is exact; r with the fall of H̄: {listed}.")
    for update, table in against.items():
        listed = ", ".join(f"{name} {x['response'][1]:.0%} ({x['response'][0]:.3f})" for name, x in table.items())
        print(f"  Rewarded for length, {update}: steps in which −ΔH̄ has the other sign (and r): {listed}.")


def draw_covariances(found, long):
    """Median and lowest r over the random trees, and below them the runs that are rewarded for length."""
    with plots.panels(3, 3, 6.4) as (figure, rows):
        for ax, (case, table) in zip([*rows[0], *rows[1]], found.items(), strict=True):
            values = np.array([[table[name][key][0] for key in WORDS] for name in COVARIANCES])
            matrix(ax, np.median(values, -1), values.min(-1))
            ax.set_title(case, fontsize="medium")
        for row in rows[:2]:
            row[0].set_ylabel(f"r, median of {DRAWS} trees (lowest)")
        for ax, (name, trace) in zip(rows[2], long.items(), strict=True):
            handles, names = bare(episode_plots.covariances(trace, ax), f"rewarded for length, {name}")
            ax.set_ylabel(ax.get_ylabel() if ax is rows[2][0] else "")
        figure.legend(handles, [name.split(", r")[0] for name in names], loc="outside lower center", ncols=5)
    plots.save_figure(figure, ROOT / "figures" / "covariances")


def matrix(ax, shown, lowest):
    """Numbers on a coloured grid, a row a covariance and a column an entropy."""
    ax.imshow(shown, cmap="cividis", vmin=0.4, vmax=1.0, aspect="auto")
    for (row, column), median in np.ndenumerate(shown):
        text = f"{median:.3f}\n({lowest[row, column]:.2f})".replace("-", "−").replace("−0.00", "0.00")
        ink = "black" if median > 0.7 else "white"
        ax.text(column, row, text, ha="center", va="center", color=ink, fontsize="small")
    ax.set_xticks(range(len(WORDS)), ["Σ d H\nd frozen", "response\nH̄", "token\nH̄/E|y|"])
    first = ax.get_subplotspec().is_first_col()
    ax.set_yticks(range(len(COVARIANCES)), ["action", "sequence", "seq./length", "token"] if first else [""] * 4)
    ax.tick_params(length=0)


def diversity():
    """Question 3."""
    problems = {
        "sum divisible by 3": parity(depth=4, vocabulary=3).problem,
        "all tokens equal": TokenTree(lambda response: float(len(set(response)) == 1), vocabulary=3, depth=4),
        "length": tree(REWARDS["length"]),
    }
    traces = {name: simulate(problem, NPG, num_steps=WHOLE) for name, problem in problems.items()}
    runs = {n: trace.measures | {"token_entropy": visit_mean(trace, "entropy")} for n, trace in traces.items()}
    for name, run in runs.items():
        kept = {key: run[f"{key}_entropy"][[0, -1]] for key in ("token", "response", "answer")}
        listed = ", ".join(f"{key} {x[0]:.4f} → {x[1]:.4f} ({x[1] / x[0]:.1%})" for key, x in kept.items())
        print(f"Diversity: rewarded for {name}, {WHOLE - 1} steps of NPG take the entropies in nats: {listed}.")
    with plots.three_panels(2.6) as (figure, axes):
        for ax, (name, trace) in zip(axes, traces.items(), strict=True):
            handles, names = bare(episode_plots.entropies(trace, ax), f"rewarded: {name}")
            ax.set(ylim=(0, None), ylabel=ax.get_ylabel() if ax is axes[0] else "")
        figure.legend(handles, names, loc="outside upper center", ncols=4)
    plots.save_figure(figure, ROOT / "figures" / "diversity")
    returns = {name: trace.expected_return for name, trace in traces.items()}
    write("diversity", {"steps": WHOLE, "step_size": 0.1, "runs": runs, "expected return": returns})


def bare(ax, title):
    """(handles, names) of the legend, which goes, and gives way to a title."""
    ax.get_legend().remove()
    ax.set_title(title, fontsize="medium")
    return ax.get_legend_handles_labels()


def write(name, record):
    """figures/name.json, floats with 6 digits."""

    def shorten(x):
        if isinstance(x, dict):
            return {key: shorten(value) for key, value in x.items()}
        if isinstance(x, list | tuple):
            return [shorten(value) for value in x]
        if hasattr(x, "tolist"):
            return shorten(x.tolist())
        return float(f"{x:.6g}") if isinstance(x, float) else x

    (ROOT / "figures" / f"{name}.json").write_text(json.dumps(shorten(record)) + "\n", "utf-8")


def main():
    visitation()
    covariances()
    diversity()


if __name__ == "__main__":
    main()
