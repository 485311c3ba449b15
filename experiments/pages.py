"""Do the README and the documentation say what the code does? Writes what the README's examples print, the tables of
both, and the README's picture."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from softmaxdyn.ledger import VERDICTS  # noqa: E402

EXAMPLE = re.compile(r"(```python\n(.*?)```\n+```text\n)(.*?)(```)", re.DOTALL)
TABLE = re.compile(r"(<!-- (accuracy|sharing|performance|ledger) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "experiments" / "docs").glob("*.md"))]
SHARES = (0.0, 0.1, 0.3, 0.5, 1.0)


def printed(code: str) -> str:
    """What `code` prints, in a namespace of its own."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {"__name__": "__readme__"})
    return output.getvalue()


def accuracy() -> str:
    """The table of the largest relative errors, from figures/accuracy.json."""
    rows = json.loads((ROOT / "figures" / "accuracy.json").read_text("utf-8"))["rows"]
    lines = ["| dtype | steps | quantity | cases | largest error where κ ≤ 10 | over all | error/(ε Σ\\|terms\\|) |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    names = {"small": "up to 1", "large": "up to 10", "uneven": "one action far"}
    for dtype in ("float64", "float32"):
        for kind, steps in names.items():
            for quantity in ("entropy_change", "remainder"):
                found = [r for r in rows if (r["dtype"], r["step"], r["quantity"]) == (dtype, kind, quantity)]
                well, worst, terms = (
                    max(r[name] for r in found)
                    for name in ("largest_relative_error_well_conditioned", "largest_relative_error", "eps_of_terms")
                )
                cases = sum(r["cases"] for r in found)
                lines.append(
                    f"| {dtype} | {steps} | `{quantity}` | {cases:,} | {well:.0e} | {worst:.0e} | {terms:.0f} |"
                )
    return "\n".join(lines) + "\n"


def sharing() -> str:
    """How well the theory predicts the ΔH of each state as contexts share their rows, from figures/sharing.json."""
    found = json.loads((ROOT / "figures" / "sharing.json").read_text("utf-8"))
    places = [found["shares"].index(share) for share in SHARES]
    lines = ["| correlation of predicted and exact ΔH | mean H | " + " | ".join(f"c = {c:g}" for c in SHARES) + " |"]
    lines.append("| --- | --- |" + " --- |" * len(SHARES))
    for name, field in (("Lemma 1 (given the step)", "lemma_1_correlation"), ("Theorem 1 (given A)", "correlation")):
        for result in found["results"]:
            cells = [f"{result['share, PG'][place][field]:.2f}" for place in places]
            lines.append(f"| {name} | {result['mean_entropy']:.2f} nats | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def performance() -> str:
    """ns per state · action · step of the engine and of what else one could type, from figures/performance.json."""
    found = json.loads((ROOT / "figures" / "performance.json").read_text("utf-8"))["ns"]
    cases = [found[f"K = 10, {dtype}"][cores] for dtype in ("float64", "float32") for cores in ("1 core", "2 cores")]
    lines = ["| 1024 bandits of 10 arms | float64, 1 core | 2 cores | float32, 1 core | 2 cores |"]
    lines.append("| --- |" + " --- |" * len(cases))
    for road in dict.fromkeys(road for case in cases for road in case):
        values = (f"{case[road]:.3g} ns" if road in case else "–" for case in cases)
        lines.append(f"| {road} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def ledger() -> str:
    """How many claims have each verdict, and the claims themselves under it, from figures/ledger.json."""
    records = json.loads((ROOT / "figures" / "ledger.json").read_text("utf-8"))
    lines = ["| verdict | | claims |", "| --- | --- | --- |"]
    for verdict in VERDICTS:
        found = [record["id"] for record in records if record["verdict"] == verdict]
        if found:
            links = " ".join(f"[{each}](figures/claims/{each}.md)" for each in found)
            lines.append(f"| {verdict} | {len(found)} | {links} |")
    return "\n".join(lines) + "\n"


TABLES = {"ledger": ledger, "accuracy": accuracy, "sharing": sharing, "performance": performance}


def updated(text: str) -> str:
    """A page with what its examples print and its tables as they are now."""
    text = EXAMPLE.sub(lambda found: found[1] + printed(found[2]) + found[4], text)
    return TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[4], text)


def main() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        now = updated(text)
        page.write_text(now, "utf-8")
        print(page.relative_to(ROOT), "is", "as it was" if now == text else "updated")
    figures = ROOT / "figures"
    figures.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "softmaxdyn", "run", "--out", str(figures)], check=True, cwd=ROOT)
    for trace in figures.glob("dynamics_*.nc"):
        trace.unlink()  # `softmaxdyn run` writes them again


if __name__ == "__main__":
    main()
