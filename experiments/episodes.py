"""What do the theorems, which know one state, miss of the entropy of a whole response? Exact runs on token trees.

1. visitation: the step moves the visits too (T19). One tree, two rewards: for long responses and for the last token.
2. covariances: which of four "covariances of log π and the advantage" (T20) tracks the fall of the entropy of a
   response, H̄, its part with the visits frozen, or the mean entropy of a token? PG, NPG and GRPO in their populations,
   on random trees with and without an end token, and on the tree that rewards length.
3. diversity: the entropies of tokens, of responses and of final answers part company.

Prints a sentence a question and writes figures/{visitation,covariances,diversity}.json, .png and .svg.
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

from softmaxdyn import Algorithm, NaturalPG, TokenTree, VanillaPG, build, episode_plots, plots, simulate  # noqa: E402
from softmaxdyn.problems.named.trees import parity  # noqa: E402
from softmaxdyn.results import visit_mean  # noqa: E402

STEPS = 60
LONG = 4  # tokens from which a response counts as long
RETURNS = {
    f"1 for {LONG} tokens or more": lambda y: float(len(y) >= LONG),
    "1 if the last token is 0": lambda y: float(y[-1:] == (0,)),
}
SIZES = 2.0 ** np.arange(-10, 1)  # η of one step, for the orders
MIDDLE = 20  # the step from which they are measured
DRAWS, PROMPTS, RUN = 40, 4, 100  # random trees, prompts of each, steps of a run
KINDS = {"fixed length": (3, 4, False), "end token": (3, 5, True)}  # vocabulary, depth, end
UPDATES = {  # η/PROMPTS is a prompt's own step of PG and GRPO
    "PG": Algorithm(VanillaPG(1.0 * PROMPTS)),
    "NPG": Algorithm(NaturalPG(0.1)),
    "GRPO": build("grpo", mode="exact", step_size=1.0 * PROMPTS),
}
TARGETS = {"−ΔH̄": "response", "−Σ d ΔH": "frozen", "−ΔH̄/E|y|": "token"}
SHORT = {"action": "action", "sequence": "sequence", "normalised": "seq./length", "token": "token"}


def tree(paid):
    """Responses of at most 5 tokens 0 and 1, and an end token."""
    return TokenTree(paid, vocabulary=3, depth=6, end=True)


def random_tree(seed, vocabulary, depth, end):
    """(a tree in which 5 % to 50 % of the responses to each prompt are correct, logits N(0, 1))."""
    generator = np.random.default_rng(seed)

    def lottery(share):
        drawn = {}
        return lambda response: drawn.setdefault(response, float(generator.random() < share))

    paid = [lottery(share) for share in generator.uniform(0.05, 0.5, PROMPTS)]
    problem = TokenTree(paid, vocabulary=vocabulary, depth=depth, end=end)
    return problem, generator.standard_normal(problem.shape)


def falls(trace):
    """What the covariances are compared with: the three entropies of TARGETS, how far each step lowers them."""
    token = np.append(visit_mean(trace, "entropy"), np.nan)  # the last step has no next row
    return {"response": -trace.trajectory_change, "frozen": -trace.local_change, "token": -np.diff(token)}


def compared(trace):
    """{covariance: {target: (Pearson's r, share of the steps whose sign is wrong)}}."""
    found = {}
    for name in SHORT:
        values = getattr(trace, f"{name}_covariance")
        pairs = {target: (values[: -1 if target == "token" else None], fall) for target, fall in falls(trace).items()}
        pairs["token"] = values[:-1], pairs["token"][1][:-1]
        found[name] = {t: (float(np.corrcoef(x, y)[0, 1]), float(np.mean(x * y < 0))) for t, (x, y) in pairs.items()}
    return found


def visitation():
    """Question 1."""
    update = Algorithm(VanillaPG(1.0))
    traces = {name: simulate(tree(paid), update, num_steps=STEPS) for name, paid in RETURNS.items()}
    errors = {name: first_order_errors(tree(paid), update) for name, paid in RETURNS.items()}
    orders = {n: {part: np.diff(np.log2(e)) for part, e in parts.items()} for n, parts in errors.items()}
    with plots.three_panels(2.9) as (figure, axes):
        for ax, (name, trace) in zip(axes, traces.items(), strict=False):
            episode_plots.entropy_split(trace, ax, name=f"reward {name}")
        for style, (name, parts) in enumerate(errors.items()):
            for part, colour in zip(parts, plots.COLOURS, strict=False):
                label = f"visits {part}, reward {name[2:]}"
                line = {"color": colour, "linestyle": plots.DASHES[style], "marker": "os"[style], "markersize": 2.5}
                axes[2].loglog(SIZES, parts[part], label=label, linewidth=1.0, **line)
        axes[2].loglog(SIZES, 0.3 * SIZES**2, color="0.6", linewidth=0.8, label="slope 2")
        plots.labelled(axes[2], f"step size η, of step {MIDDLE}", "error of the first order (nats)", columns=1)
    long, other = traces.values()
    share = [int(np.sum(-np.sign(t.local_change) * t.visitation_change > np.abs(t.local_change))) for t in (long, other)]
    sums = [(t.local_change.sum(), t.visitation_change.sum(), t.trajectory_change.sum()) for t in (long, other)]
    larger = int(np.sum(np.abs(other.local_change) > np.abs(other.visitation_change)))
    small = [float(order[0]) for parts in orders.values() for order in parts.values()]
    print(
        "Visitation: rewarded for length, H̄ moves by {2:+.3f} nats = {0:+.3f} with the visits frozen {1:+.3f} by moved "
        "visits, ".format(*sums[0])
        + f"which have the opposite sign and the larger size in {share[0]} of {STEPS} steps; rewarded for the last token "
        + "{2:+.3f} = {0:+.3f} {1:+.3f}, ".format(*sums[1])
        + f"and the frozen part is the larger in {larger} steps. The first orders err by η^{min(small):.3f} … "
        f"η^{max(small):.3f}."
    )
    fields = ("local_change", "visitation_change", "visitation_prediction", "trajectory_change", "trajectory_entropy")
    runs = {name: {field: getattr(trace, field) for field in fields} for name, trace in traces.items()}
    for name, trace in traces.items():
        runs[name] |= {"first_order_local": (trace.visits * trace.lemma_1).sum(1), **trace.measures}
    return figure, {"step_size": 1.0, "sizes": SIZES, "errors": errors, "orders": orders, "runs": runs}


def first_order_errors(problem, algorithm):
    """|exact − first order| of the frozen and of the moved part, for one step of each of SIZES from step MIDDLE."""
    logits = simulate(problem, algorithm, num_steps=MIDDLE).logits
    steps = [simulate(problem, Algorithm(VanillaPG(size)), num_steps=1, logits=logits) for size in SIZES]
    frozen = [abs(float((s.visits * s.remainder).sum())) for s in steps]
    return {"frozen": frozen, "moved": [abs(float((s.visitation_change - s.visitation_prediction)[0])) for s in steps]}


def covariances():
    """Question 2."""
    found = {kind: {update: [] for update in UPDATES} for kind in KINDS}
    ends, equal = {}, []
    for kind, size in KINDS.items():
        for update, algorithm in UPDATES.items():
            for seed in range(DRAWS):
                problem, logits = random_tree(seed, *size)
                trace = simulate(problem, algorithm, num_steps=RUN, logits=logits)
                found[kind][update].append(compared(trace))
                ends.setdefault(f"{kind}, {update}", []).append(float(trace.final_expected_return))
                if kind == "fixed length":
                    three = trace.sequence_covariance / size[1], trace.normalised_covariance, trace.token_covariance
                    equal.append(max(np.abs(x - three[1]).max() for x in three) / np.abs(three[1]).max())
    problem = tree(next(iter(RETURNS.values())))
    steps = {"PG": Algorithm(VanillaPG(1.0)), "NPG": UPDATES["NPG"], "GRPO": build("grpo", mode="exact", step_size=1.0)}
    long = {name: simulate(problem, algorithm, num_steps=STEPS) for name, algorithm in steps.items()}
    return found, long, {"final_J": {k: [min(v), max(v)] for k, v in ends.items()}, "fixed_length_gap": max(equal)}


