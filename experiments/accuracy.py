"""How accurate are ΔH and the remainder of Lemma 1? Against arithmetic of up to 600 digits, on hard cases.

Prints the largest relative errors (in 3 minutes) and writes figures/accuracy.json: a row for each dtype, kind of step,
family of policies, K and quantity. A value that is a small difference of large terms has lost digits that no sum in the
same precision can hold: κ = Σ|terms|/|value| says how many, and `eps_of_terms` is error/(eps Σ|terms|), which needs no
excuse. Run: python experiments/accuracy.py [cases per hundred, 100 by default]
"""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn.change import decompose  # noqa: E402
from softmaxdyn.policy import softmax  # noqa: E402
from tests.oracles import FLOOR, campaign, exact_step, relative_error  # noqa: E402

CASES = {2: 200, 3: 200, 10: 100, 100: 20, 1000: 4}
KINDS = {"small": 1e-13, "large": 1e-12, "uneven": 1e-12}
change = jax.jit(lambda logits, delta: decompose(softmax(logits), delta))


def limit(kind, dtype):
    """The relative error to stay below: 1e-13 for steps up to 1, 1e-12 up to 10; 1e-5 in float32."""
    return KINDS[kind] if dtype == "float64" else 1e-5


def measure(kind, dtype, actions, cases):
    """(family, quantity) → [N, 2]: relative error and κ of each case."""
    logits, delta, families = campaign(kind, dtype, actions, cases, seed=1)
    value, found = change(logits, delta), {}
    for i, family in enumerate(families):
        exact = exact_step(logits[i], delta[i])
        for name, terms in (("entropy_change", exact.change_terms), ("remainder", exact.remainder_terms)):
            truth = getattr(exact, name)
            error = relative_error(getattr(value, name)[i], truth, FLOOR[dtype])
            condition = float(terms / abs(truth)) if truth else 1.0
            found.setdefault((family, name), []).append((error, condition))
    return {key: np.array(rows) for key, rows in found.items()}


def row(kind, dtype, actions, family, quantity, cases):
    """What is written down of one cell of the table."""
    error, condition = cases.T
    worst = int(error.argmax())
    return {
        "dtype": dtype,
        "step": kind,
        "family": family,
        "actions": actions,
        "quantity": quantity,
        "cases": len(cases),
        "largest_relative_error": float(error[worst]),
        "condition_there": float(condition[worst]),
        "over_the_limit": int((error > limit(kind, dtype)).sum()),
        "least_condition_over_the_limit": float(condition[error > limit(kind, dtype)].min(initial=np.inf)),
        "eps_of_terms": float((error / condition).max() / np.finfo(dtype).eps),
        "largest_relative_error_well_conditioned": float(error[condition <= 10.0].max(initial=0.0)),
    }


def table(rows):
    """The rows as text, K by K put together."""
    yield "dtype    step    family        quantity         largest   κ there  if κ ≤ 10        over from κ eps of terms"
    for key in dict.fromkeys((r["dtype"], r["step"], r["family"], r["quantity"]) for r in rows):
        group = [r for r in rows if (r["dtype"], r["step"], r["family"], r["quantity"]) == key]
        worst = max(group, key=lambda r: r["largest_relative_error"])
        well = max(r["largest_relative_error_well_conditioned"] for r in group)
        over = f"{sum(r['over_the_limit'] for r in group)}/{sum(r['cases'] for r in group)}"
        least = min(r["least_condition_over_the_limit"] for r in group)
        line = "{:8} {:7} {:13} {:14}".format(*key)
        line += f" {worst['largest_relative_error']:9.1e} {worst['condition_there']:9.3g} {well:9.1e}"
        yield f"{line} {over:>11} {least:6.3g} {max(r['eps_of_terms'] for r in group):12.1f}"


def main():
    share = float(sys.argv[1]) / 100.0 if len(sys.argv) > 1 else 1.0
    start, rows = time.perf_counter(), []
    for dtype in ("float64", "float32"):
        for kind in KINDS:
            for actions, cases in CASES.items():
                for (family, quantity), found in measure(kind, dtype, actions, max(1, round(cases * share))).items():
                    rows.append(row(kind, dtype, actions, family, quantity, found))
    (ROOT / "figures").mkdir(exist_ok=True)
    text = json.dumps({"rows": rows, "jax": jax.__version__}, indent=1).replace("Infinity", "null")
    (ROOT / "figures" / "accuracy.json").write_text(text + "\n", "utf-8")
    print(*table(rows), sep="\n")
    print(f"{sum(r['cases'] for r in rows) // 2} cases in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
