"""`softmaxdyn verify`: the theory on random and adversarial policies, one line a statement and dtype."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from softmaxdyn import verification
from softmaxdyn.cli.group import LONG, main, print_table, progress
from softmaxdyn.cli.output import refuse_no_place
from softmaxdyn.diagnostics import plain
from softmaxdyn.errors import check_integer
from softmaxdyn.results import whole_file
from softmaxdyn.verification import DTYPES, FEWEST, Verdict
from softmaxdyn.verification.cases import plan


@main.command()
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random cases.")
@click.option("--cases", type=int, default=20_000, show_default=True, help=f"Policies a dtype, at least {FEWEST}.")
@click.option("--json", "json_file", metavar="FILE", help="Also write the verdicts as JSON.")
@click.pass_context
def verify(ctx: click.Context, seed: int, cases: int, json_file: str | None) -> None:
    """Check the theory and its counterexamples on random and adversarial policies; exit code 1 if any is violated."""
    check_integer("--seed", seed, 0)
    check_integer("--cases", cases, FEWEST)
    refuse_no_place("--json", json_file)
    with progress("verify", len(DTYPES) * len(plan(cases)), LONG) as advance:
        verdicts = verification.verify(seed, cases, progress=advance)
    _print(verdicts)
    violated = [f"{verdict.label} {verdict.dtype}" for verdict in verdicts if not verdict.holds]
    outcome = f"{len(violated)} VIOLATED: {', '.join(violated)}" if violated else "none is violated"
    click.echo(f"\n{len(verdicts)} statements on {cases:,} policies a dtype (seed {seed}): {outcome}")
    if json_file is not None:
        with whole_file(json_file) as unfinished:
            unfinished.write_text(
                json.dumps(_plain(verdicts, seed, cases), indent=1, ensure_ascii=False) + "\n", "utf-8"
            )
        click.echo(f"wrote {Path(json_file)}")
    ctx.exit(bool(violated))


def _print(verdicts: list[Verdict]) -> None:
    columns = {
        "": [verdict.label for verdict in verdicts],
        "dtype": [verdict.dtype for verdict in verdicts],
        "what was checked": [verdict.statement for verdict in verdicts],
        "cases": [f"{verdict.cases:,}" for verdict in verdicts],
        "measure": [verdict.measure for verdict in verdicts],
        "worst": [f"{verdict.worst:.5g}" for verdict in verdicts],
        "wanted": [_wanted(verdict) for verdict in verdicts],
        "verdict": ["holds" if verdict.holds else "VIOLATED" for verdict in verdicts],
    }
    print_table(columns, left=3)


def _wanted(verdict: Verdict) -> str:
    if math.isinf(verdict.low):
        return f"≤ {verdict.high:g}"
    return f"≥ {verdict.low:g}" if math.isinf(verdict.high) else f"{verdict.low:g} … {verdict.high:g}"


def _plain(verdicts: list[Verdict], seed: int, cases: int) -> dict[str, Any]:
    """The verdicts as JSON takes them: numbers that are not finite become null."""
    rows = [{**verdict._asdict(), "holds": verdict.holds} for verdict in verdicts]
    content = {
        "seed": seed,
        "cases": cases,
        "violated": sum(not verdict.holds for verdict in verdicts),
        "verdicts": rows,
    }
    return dict(plain(content))
