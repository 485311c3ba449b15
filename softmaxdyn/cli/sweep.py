"""`softmaxdyn sweep`: everything that a TOML file asks for, as one table; stopped, the same command goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import results
from softmaxdyn.cli import group
from softmaxdyn.cli.group import main, print_table
from softmaxdyn.comparison import interval
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.sweeps.engine import check_lanes
from softmaxdyn.sweeps.loop import Outcome, Progress, assist, execute, own_machine
from softmaxdyn.sweeps.plan import Plan, size_text
from softmaxdyn.sweeps.spec import read_spec
from softmaxdyn.sweeps.team import Team, join, leave

STOPPED = "interrupted; what is stored is kept, and the same command goes on"
ROWS = 50  # of the printed table


@main.command()
@click.argument("spec")
@click.option("--out", required=True, metavar="FOLDER", help="The folder of this sweep; it is made if need be.")
@click.option("--devices", type=int, default=1, show_default=True, help="That work at once: cores of a CPU, or GPUs.")
@click.option("--processes", type=int, default=1, show_default=True, help="Processes that share the blocks.")
@click.option("--process-id", type=int, help="Of several hosts: which process this is. Else all start here.")
@click.option("--coordinator", metavar="HOST:PORT", help="Of several hosts: where process 0 is to be met.")
def sweep(spec: str, out: str, devices: int, processes: int, process_id: int | None, coordinator: str | None) -> None:
    """Run all that the TOML file SPEC asks for, and write one table of the runs and one of their summary.

    SPEC has steps, every, seeds, dtype and fields (those to record), and tables [[problem]] and [[method]], in which a
    list is an axis. Stopped at any moment, the same command goes on, and the result is the same to the last bit.
    """
    check_integer("--devices", devices, 1)
    check_integer("--processes", processes, 1)
    if (process_id is None) != (coordinator is None):
        raise InputError(
            "--process-id and --coordinator go together: this process's number, and HOST:PORT of process 0"
        )
    jax.config.update("jax_enable_x64", True)
    plan = read_spec(spec)
    with _others(processes if process_id is None else 1) as (others, port):
        team = _team(processes, process_id or 0, coordinator or f"127.0.0.1:{port}")
        check_lanes("--devices", devices)
        _leave_on_signals()
        _run(plan, out, devices, team, others)


def _run(plan: Plan, out: str, devices: int, team: Team, others: Sequence[subprocess.Popen]) -> None:
    machine = own_machine()
    if team.rank > 0:
        assist(plan, out, team, devices=devices, machine=machine)
        return
    click.echo(_announced(plan, len(machine.families(plan))))
    working = lambda: not others or any(child.poll() is None for child in others)  # noqa: E731
    told: dict[str, Any] = {"on_fault": _note, "team": team, "working": working}
    with _bar() as progress:
        outcome = execute(plan, out, devices=devices, machine=machine, progress=progress, **told)
    if outcome.computed == 0:
        click.echo("nothing to compute: every run of this sweep is there")
    elif outcome.kept:
        click.echo(f"went on: {outcome.kept} of {outcome.kept + outcome.computed} blocks were there")
    _print_cells(plan, outcome)
    click.echo(f"\nwrote {outcome.table}, {outcome.summary}")


def _team(processes: int, rank: int, coordinator: str) -> Team:
    """This process's place; alone it needs no coordinator."""
    if processes == 1 and rank == 0:
        return Team()
    return join(coordinator, processes, rank)


@contextmanager
def _others(processes: int) -> Iterator[tuple[list[subprocess.Popen], int]]:
    """The other processes of a sweep on this host, which end with this one, and the port where all meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    others = []
    try:
        for rank in range(1, processes):
            place = ["--process-id", str(rank), "--coordinator", f"127.0.0.1:{port}"]
            command = [sys.executable, "-m", "softmaxdyn", *sys.argv[1:], *place]
            others.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        yield others, port
        if others:
            leave()
        for child in others:
            child.wait(timeout=60)
    finally:
        for child in others:
            child.kill()


def _announced(plan: Plan, programs: int) -> str:
    """What will run, in one line."""
    cells, seeds = len(plan.cells), len(plan.seeds)
    counted = f"{cells:,} cell{'s' * (cells > 1)} × {seeds:,} seed{'s' * (seeds > 1)}: {plan.num_runs:,} runs"
    length = f"{plan.num_steps:,} steps, {plan.num_recorded:,} of them recorded, {plan.dtype}"
    return f"{counted} of {length}; {programs} program{'s' * (programs > 1)}, about {size_text(plan.num_bytes)}"


def _note(fault: str) -> None:
    click.echo(f"note: {fault}")


def _print_cells(plan: Plan, outcome: Outcome) -> None:
    """J and H at the end of each cell, means over its runs with 95 % bootstrap intervals."""
    import h5netcdf

    shown = range(min(len(plan.cells), ROWS))
    names = list(dict.fromkeys(name for cell in plan.cells for name in cell.labels))
    columns = {name: [_text(plan.cells[cell].labels.get(name, "")) for cell in shown] for name in names}
    with h5netcdf.File(outcome.table, "r") as file:
        cell = np.asarray(file.variables["cell"])
        runs = [np.flatnonzero(cell == number) for number in shown]
        columns["runs"] = [str(len(rows)) for rows in runs]
        for heading, name in (("J", "final_expected_return"), ("H", "final_entropy")):
            source = file.variables[name]
            values = [np.asarray(source[rows[0] : rows[-1] + 1], float) for rows in runs]
            columns[f"{heading}\nat the end"] = [_interval(value) for value in values]
    print_table(columns, left=2)
    rest = len(plan.cells) - len(shown)
    more = f"; {rest:,} more cells in {outcome.summary.name}" if rest else ""
    click.echo(f"\nmean over the runs and its 95 % bootstrap interval{more}")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _interval(values: np.ndarray) -> str:
    mean, low, high = interval(values)
    return f"{mean:.4g}" if low == high else f"{mean:.4g} [{low:.4g}, {high:.4g}]"


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar on stderr with runs and numbers a second and the time left, on a terminal; None otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.BarColumn(), progress.TaskProgressColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("compiling")
        first: list[tuple[float, Progress]] = []

        def tell(state: Progress) -> None:
            if not first:
                first.append((time.monotonic(), state))
            bar.update(task, total=state.all_numbers, completed=state.numbers, description=speed(*first[0], state))

        yield tell


def speed(since: float, before: Progress, now: Progress) -> str:
    """Runs done, and runs and steps × states × actions a second since the first report."""
    passed = time.monotonic() - since
    done = f"{now.runs:,} of {now.all_runs:,} runs"
    if now.runs == before.runs or passed <= 0.0:
        return f"{done}, compiling"
    numbers = (now.numbers - before.numbers) / passed
    return f"{done}, {(now.runs - before.runs) / passed:,.3g} runs/s, {numbers:.3g} steps × states × actions/s"


def _leave_on_signals() -> None:
    """SIGINT and SIGTERM end the process at once, in one line, where the command owns it."""
    if signal.getsignal(signal.SIGINT) is not group._leave:
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    threading.Thread(target=_leave_late, args=(reader,), daemon=True).start()


def _leave_late(reader: socket.socket) -> None:
    number = reader.recv(1)[0]
    time.sleep(0.5)
    _leave(number)


def _leave(number: int, *_: Any) -> None:
    results.remove_unfinished()
    show_cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}softmaxdyn: {STOPPED}\n".encode())
    os._exit(128 + number)
