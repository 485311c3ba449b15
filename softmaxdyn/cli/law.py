"""`softmaxdyn law FILE`: the law R = −a exp(H) + b on recorded training curves, beside its rivals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from softmaxdyn.cli.group import main, print_table
from softmaxdyn.cli.output import FOLDER, output_folder, refuse_no_place
from softmaxdyn.diagnostics import plain
from softmaxdyn.errors import InputError, check_choice, check_integer, check_number
from softmaxdyn.law_plots import DRAWN
from softmaxdyn.laws import FORMS, Comparison, Fit, HeldOut, Rival, Run, compare, read_runs
from softmaxdyn.results import whole_file


@main.command()
@click.argument("file")
@click.option(
    "--entropy", metavar="COLUMN", help="Mean entropy of a token, in nats. Default: by the names of trainers."
)
@click.option("--reward", metavar="COLUMN", help="Reward, score or accuracy. Default: by the names of trainers.")
@click.option("--step", metavar="COLUMN", help="Orders the rows. Default: step, global_step, …, or the order of rows.")
@click.option(
    "--run", metavar="COLUMN", help="One fit a run; A+B joins two columns. Default: run, run_id, …, or one run."
)
@click.option("--from", "first", type=float, metavar="STEP", help="The first step to take.")
@click.option("--to", "last", type=float, metavar="STEP", help="The last step to take.")
@click.option("--form", "forms", multiple=True, metavar="FORM", help=f"A rival of the law: {', '.join(FORMS)}; repeat.")
@click.option(
    "--forward", type=float, default=0.15, show_default=True, help="Share of first rows that predict the rest."
)
@click.option(
    "--backward", type=float, default=0.5, show_default=True, help="Share of last rows that predict the start."
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Probability of the intervals.")
@click.option("--replicates", type=int, default=2000, show_default=True, help="Of the bootstrap.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option("--out", metavar="FOLDER", help=f"For the figure; made if need be. Default: {FOLDER}.")
@click.option("--json", "json_file", metavar="FILE", help="Write all numbers to FILE.")
def law(
    file: str,
    entropy: str | None,
    reward: str | None,
    step: str | None,
    run: str | None,
    first: float | None,
    last: float | None,
    forms: tuple[str, ...],
    out: str | None,
    json_file: str | None,
    **options: Any,
) -> None:
    """Fit R = −a exp(H) + b to training curves: intervals, the ceiling R(H = 0), held-out errors, rival forms.

    FILE is .csv, .tsv, .jsonl, .json or .parquet with a row a step: entropy (nats) and reward; optional: step, run.
    """
    _check(forms, options)
    folder = output_folder(out)
    refuse_no_place("--json", json_file, file)
    table = read_runs(file, entropy=entropy, reward=reward, step=step, run=run, first=first, last=last)
    rivals = [FORMS[name] for name in forms or FORMS]
    found, faults = _compare(file, table.runs, {"forms": rivals, **options})
    remarks = {run.name: (*_remarks(run.name, found, faults), *run.remarks) for run in table.runs}
    content = {
        "settings": {"file": Path(file).name, "columns": table.columns, **options},
        "runs": {name: {**_plain(each), "remarks": remarks[name]} for name, each in found.items()},
        "not_fitted": faults,
    }
    written = _write(folder, json_file, found, content)
    roles = ", ".join(f"{role} is {column!r}" for role, column in table.columns.items())
    click.echo(f"{Path(file).name}: {len(table.runs)} run{'s' * (len(table.runs) != 1)}; {roles}")
    _print(found, faults, options["level"])
    _print_forms(found, options["forward"], options["backward"])
    for name, said in remarks.items():
        for remark in said:
            click.echo(f"note: {name}: {remark}")
    some = f" (the figure shows the first {DRAWN} runs)" if len(found) > DRAWN else ""
    click.echo(f"\nwrote {', '.join(map(str, written))}{some}")


def _check(forms: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raises InputError for options out of range, under the names that a person typed."""
    for form in forms:
        check_choice("form", form, FORMS)
    for name in ("forward", "backward", "level"):
        check_number(f"--{name}", options[name], low=0.0, high=1.0, open_low=True)
    check_integer("--replicates", options["replicates"], 100)
    check_integer("--seed", options["seed"], 0)


def _compare(
    file: str, runs: Iterable[Run], settings: Mapping[str, Any]
) -> tuple[dict[str, Comparison], dict[str, str]]:
    """The comparison of each run that can be fitted, and what is wrong with each of the others."""
    found: dict[str, Comparison] = {}
    faults: dict[str, str] = {}
    for run in runs:
        try:
            found[run.name] = compare(run.entropy, run.reward, **settings)
        except InputError as error:
            faults[run.name] = str(error)
    if not found:
        name, fault = next(iter(faults.items()))
        which = "" if len(faults) == 1 else f"none of {len(faults)} runs can be fitted; the first, {name}: "
        raise InputError(f"{file}: {which}{fault}")
    return found, faults


def _remarks(name: str, found: Mapping[str, Comparison], faults: Mapping[str, str]) -> tuple[str, ...]:
    return found[name].remarks if name in found else (f"not fitted: {faults[name]}",)


def _print(found: Mapping[str, Comparison], faults: Mapping[str, str], level: float) -> None:
    laws = {name: each.law for name, each in found.items()}
    names, each = [*laws, *faults], laws.values()
    gaps = ["–"] * len(faults)
    click.echo(f"\nR = −a exp(H) + b, with {100 * level:g} % intervals by a block bootstrap")
    columns = {
        "run": names,
        "rows": [str(fit.rows) for fit in each],
        "independent\nrows": [f"{fit.independent_rows:.0f}" for fit in each],
        "H (nats)": [f"{c.curve.entropy.min():.3g} … {c.curve.entropy.max():.3g}" for c in found.values()],
        "a": [_interval(fit, "a") for fit in each],
        "b": [_interval(fit, "b") for fit in each],
        "ceiling\nb − a": [_interval(fit, "ceiling") for fit in each],
        "R²": [f"{fit.r_squared:.3f}" for fit in each],
        "best\nform": [c.best or "undecided" for c in found.values()],
    }
    print_table({heading: cells if cells is names else [*cells, *gaps] for heading, cells in columns.items()}, left=1)


def _print_forms(found: Mapping[str, Comparison], forward: float, backward: float) -> None:
    forms = list(next(iter(found.values())).rivals)
    click.echo("\nErrors on held-out rows (root mean square, in reward) and AIC of the forms")
    click.echo(f"  {'; '.join(f'{name}: {FORMS[name].formula}' for name in forms)}")
    columns: dict[str, list[str]] = {"run": list(found)}
    for label, number in (
        (f"from first\n{100 * forward:g} %", lambda rival: _error(rival.forward)),
        (f"from last\n{100 * backward:g} %", lambda rival: _error(rival.backward)),
    ):
        for name in forms:
            columns[f"{label}\n{name}"] = [number(each.rivals[name]) for each in found.values()]
    for name in forms:
        columns[f"AIC −\nlowest\n{name}"] = [f"{_behind(each.rivals, name):.1f}" for each in found.values()]
    print_table(columns, left=1)


def _interval(fit: Fit, symbol: str) -> str:
    low, high = fit.intervals[symbol]
    return f"{fit.coefficients[symbol]:.3g} [{low:.3g}, {high:.3g}]"


def _error(held: HeldOut | None) -> str:
    return "–" if held is None else f"{held.error:.3g}"


def _behind(rivals: Mapping[str, Rival], name: str) -> float:
    return rivals[name].aic - min(rival.aic for rival in rivals.values())


def _write(
    folder: Path, json_file: str | None, found: Mapping[str, Comparison], content: Mapping[str, Any]
) -> list[Path]:
    from softmaxdyn import law_plots
    from softmaxdyn.plots import save_figure

    figure = law_plots.law(found)
    with ExitStack() as files:
        if json_file is not None:
            unfinished = files.enter_context(whole_file(json_file))
            unfinished.write_text(
                json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8"
            )
        written = save_figure(figure, folder / "law")
    return written + ([Path(json_file)] if json_file is not None else [])


def _plain(found: Comparison) -> dict[str, Any]:
    """The comparison without its rows and resamples."""
    rivals = {}
    for name, rival in found.rivals.items():
        fit = {k: v for k, v in rival.fit._asdict().items() if k not in ("form", "replicates", "level")}
        rivals[name] = {"formula": rival.fit.form.formula, **fit, **rival._asdict(), "fit": None}
        del rivals[name]["fit"]
    names = ("best", "difference", "curvature")
    return {**{name: getattr(found, name) for name in names}, "forms": rivals}
