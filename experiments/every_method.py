"""Does every named method run on every kind of problem, on its population and on a sample?

Each method of `softmaxdyn.methods`, on a bandit, a token tree with an end token, a discounted MDP and a time-limited
one, makes 10 steps of `simulate` at one moderate step size. A cell that raises, or leaves a number that is not finite,
is listed. Prints one sentence and writes figures/every_method.json and .md. Run: python experiments/every_method.py
(twenty minutes on one core, nearly all of them compilation; with names of methods, those alone are run anew)
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).parents[1]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import MDP, METHODS, Bandit, TokenTree, build, simulate  # noqa: E402
from softmaxdyn.problems.named.mdps import chain, gridworld  # noqa: E402

STEPS, STEP_SIZE, GROUPS = 10, 0.5, 16  # group_size is the method's own: 8 for all but brorl (512)
SPREAD = 0.5  # of the logits at the start
MODES = ("exact", "sampled")
CHECKED = (  # normalised_covariance is NaN by definition where episodes have no longest length
    *("expected_return", "visits", "entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder"),
    *("bound", "kl", "selected", "trajectory_change", "local_change", "visitation_change", "visitation_prediction"),
    *("action_covariance", "sequence_covariance", "token_covariance", "logits", "final_entropy"),
)


def problems():
    """One problem of each kind, with rewards in [0, 1]."""
    even = [lambda response: float(sum(response) % 2 == 0), lambda response: float(sum(response) % 2 == 1)]
    walk = chain(states=4).problem
    return {
        "bandit": Bandit([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]),
        "token tree": TokenTree(even, vocabulary=3, depth=3, end=True),
        "discounted MDP": dataclasses.replace(gridworld(size=3, discount=0.9).problem, length=60),
        "time-limited MDP": MDP(walk.transitions, walk.rewards, start=0, horizon=5),
    }


def run(name, mode, problem):
    """What became of the method: {finite, dJ, dH, selected} or {error}."""
    logits = SPREAD * np.random.default_rng(0).standard_normal(problem.shape)
    key = jax.random.key(0) if mode == "sampled" else None
    try:
        algorithm = build(name, mode=mode, step_size=STEP_SIZE, groups=GROUPS)
        trace = simulate(problem, algorithm, num_steps=STEPS, logits=logits, key=key)
    except Exception as error:  # a finding, not a reason to stop
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    bad = [field for field in CHECKED if not np.isfinite(getattr(trace, field)).all()]
    numbers = {"dJ": trace.final_expected_return - trace.expected_return[0], "dH": trace.trajectory_change.sum()}
    numbers = {key: float(f"{value:.6g}") if np.isfinite(value) else None for key, value in numbers.items()}
    return {"not_finite": bad, **numbers, "selected": trace.selected.mean(0).round(6).tolist()}


def is_finite(cell):
    return not cell.get("error") and not cell.get("not_finite")


def words(cell):
    """One cell of the table."""
    if not is_finite(cell):
        return cell["error"].split(":")[0] if "error" in cell else "not finite"
    selected = " / ".join(f"{share:.0%}" for share in cell["selected"])
    return f"{cell['dJ']:+.3f}, {cell['dH']:+.3f}" + (f" ({selected})" if selected else "")


def report(sentence, cells, kinds):
    """The page: the sentence, what went wrong, and a table a mode."""
    lines = ["# Every method on every kind of problem", "", sentence, ""]
    lines += [
        f"A cell: ΔJ, ΔH̄ (nats an episode) of {STEPS} steps, η = {STEP_SIZE}, and in brackets the mean share of the"
        " tokens that each intervention touched. On a first and only inner step a ratio clip touches nothing.",
    ]
    wrong = {key: cell.get("error") or ", ".join(cell["not_finite"]) for key, cell in cells.items()}
    wrong = [f"- {key}: {what}" for key, what in wrong.items() if what]
    lines += ["", *wrong] if wrong else []
    for mode in MODES:
        lines += [
            "",
            f"## {mode.capitalize()}",
            "",
            f"| method | {' | '.join(kinds)} |",
            "|" + " --- |" * (1 + len(kinds)),
        ]
        for name in METHODS:
            row = [words(cells[f"{name}, {kind}, {mode}"]) for kind in kinds]
            lines.append(f"| `{name}` | {' | '.join(row)} |".replace("-", "−"))
    return "\n".join(lines) + "\n"


def main(names):
    kinds, cells, start = problems(), {}, time.perf_counter()
    path = ROOT / "figures" / "every_method.json"
    known = json.loads(path.read_text("utf-8"))["cells"] if names else {}
    total = len(METHODS) * len(kinds) * len(MODES)
    for name in METHODS:
        for kind, problem in kinds.items():
            for mode in MODES:
                key = f"{name}, {kind}, {mode}"
                cells[key] = run(name, mode, problem) if not names or name in names else known[key]
        jax.clear_caches()  # a compiled run takes some 20 MB
        print(f"\r{len(cells)} of {total}, {time.perf_counter() - start:.0f} s: {name:28}", end="", file=sys.stderr)
    print(file=sys.stderr)
    finite, raised = sum(map(is_finite, cells.values())), sum("error" in cell for cell in cells.values())
    sentence = (
        f"{finite} of {total} runs are finite ({len(METHODS)} methods × {len(kinds)} kinds of problem × "
        f"{len(MODES)} modes, {STEPS} steps each); {raised} raised, {total - finite - raised} ended in NaN or ±∞."
    )
    print(sentence)
    config = {"steps": STEPS, "step_size": STEP_SIZE, "groups": GROUPS, "spread": SPREAD, "checked": CHECKED}
    config["problems"] = {kind: repr(problem) for kind, problem in kinds.items()}
    path.write_text(json.dumps({**config, "sentence": sentence, "cells": cells}, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(report(sentence, cells, kinds), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
