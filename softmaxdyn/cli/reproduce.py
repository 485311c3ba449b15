"""`softmaxdyn reproduce`: the claims of the literature, each with its verdict, as a ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from softmaxdyn.cli.group import main
from softmaxdyn.cli.output import output_folder
from softmaxdyn.errors import check_integer


@main.command()
@click.argument("claims", nargs=-1)
@click.option("--quick", is_flag=True, help="All of them in minutes: fewer seeds, steps and prompts.")
@click.option("--out", metavar="FOLDER", help="For the ledger; made if need be. Default: softmaxdyn-out.")
@click.option("--processes", type=int, default=os.cpu_count() or 1, show_default="all cores", help="Claims at a time.")
@click.option("--fresh", is_flag=True, help="Begin anew: forget what the folder holds.")
@click.option("--list", "only_list", is_flag=True, help="Print the claims and try none.")
def reproduce(
    claims: tuple[str, ...], quick: bool, out: str | None, processes: int, fresh: bool, only_list: bool
) -> None:
    """Try CLAIMS (default: all; e.g. C16 C32) and write the ledger: what holds, what fails, and when.

    Stopped at any moment, the same command goes on with the claims that are missing.
    """
    from softmaxdyn.ledger import Size
    from softmaxdyn.ledger.reproduction import reproduce as tried
    from softmaxdyn.ledger.shelf import chosen, load_claims

    check_integer("--processes", processes, 1)
    wanted = chosen(load_claims(), claims)
    if only_list:
        click.echo("\n".join(f"{each.id:4}{each.statement}" for each in wanted))
        return
    folder = output_folder(out)
    with _shown(len(wanted)) as report:
        records = tried(
            [each.id for each in wanted], folder, Size(quick), processes=processes, fresh=fresh, report=report
        )
    _print(records)
    click.echo(f"wrote {folder / 'ledger.md'}, {folder / 'ledger.json'} and a page a claim in {folder / 'claims'}")


@contextmanager
def _shown(total: int) -> Iterator[Callable[[dict[str, Any], bool], None]]:
    """A bar on stderr, above which each verdict is told as it comes; without a terminal the verdicts alone."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, width=None if os.isatty(2) else 200)
    columns = TextColumn("claims"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def report(record: dict[str, Any], kept: bool) -> None:
            console.print(f"{record['id']}: {record['verdict']}{' (kept)' if kept else ''}", markup=False)
            bar.advance(task)

        yield report


def _print(records: list[dict[str, Any]]) -> None:
    """A paragraph a claim: the verdict, the statement, the numbers that decide; then how many of each verdict."""
    from softmaxdyn.ledger.pages import QUICK, condition, counts, is_quick, text

    for record in records:
        click.echo(f"\n{record['id']:4}{record['verdict']}{condition(record)}\n    {record['statement']}")
        deciding = [text(each) for each in record["statistics"] if each["deciding"]]
        click.echo("\n".join(f"      {line}" for line in deciding or [record["cannot"]]))
    click.echo(f"\n{len(records)} claims: {counts(records)}")
    if any(map(is_quick, records)):
        click.echo(f"{QUICK}: leave --quick out for that")
