"""The command line. Heavy libraries load after the arguments are checked; every error is one line on stderr."""

from __future__ import annotations

import io
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import plots, results
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.errors import InputError, check_choice, check_integer, check_number
from softmaxdyn.problems.named import NAMED, Setting, named
from softmaxdyn.simulation import Trace, simulate
from softmaxdyn.updates import NaturalPG, Update, VanillaPG

UPDATES: dict[str, tuple[str, Any, float]] = {  # name, class, default step size
    "pg": ("PG", VanillaPG, 0.4),
    "npg": ("NPG", NaturalPG, 0.025),
}
INTERRUPTED = "interrupted; no file was left half-written"
FOLDER = "softmaxdyn-out"
ROWS = 12  # of a printed table
LONG = 2_000_000  # steps × states × actions from which a run shows progress


class Commands(click.Group):
    """A group that turns wrong input and failed output into one line and exit code 2, Ctrl-C into 130."""

    def main(self, args: Any = None, prog_name: str | None = None, **settings: Any) -> Any:  # type: ignore[override]
        arguments = list(sys.argv[1:] if args is None else args)
        if args is None:
            _own_the_process()
        settings.update(standalone_mode=False, obj=shlex.join(["softmaxdyn", *arguments]))
        try:
            code = super().main(arguments, "softmaxdyn", **settings)
        except click.Abort:
            code = _complain(INTERRUPTED, 130)
        except (click.ClickException, InputError, OSError, MemoryError) as error:
            code = _complain(getattr(error, "format_message", error.__str__)(), 2)
        sys.exit(code or 0)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        check_choice("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def _complain(message: str, code: int) -> int:
    click.echo(f"softmaxdyn: {' '.join(message.split())}", err=True)
    return code


def _own_the_process() -> None:
    """Any encoding can print; Ctrl-C acts at once, or after half a second where the main thread is deep in JAX."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach())
    signal.signal(signal.SIGINT, _leave)
    threading.Thread(target=_leave_late, args=(reader,), daemon=True).start()


def _leave_late(reader: socket.socket) -> None:
    reader.recv(1)
    time.sleep(0.5)
    _leave()


def _leave(*_: Any) -> None:
    """Ends the process: a KeyboardInterrupt would be lost in the callbacks of JAX, or crash its compiler."""
    results.remove_unfinished()
    show_cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}softmaxdyn: {INTERRUPTED}\n".encode())
    os._exit(130)


def one_of(name: str, *choices: str) -> dict[str, Any]:
    """Settings of an option that takes one of `choices`; the error suggests the nearest."""
    check = lambda ctx, parameter, value: value and check_choice(name, value, choices)  # noqa: E731
    return {"metavar": "|".join(choices), "callback": check}


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(sys.modules["softmaxdyn"].__version__, prog_name="softmaxdyn")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Exact entropy dynamics of softmax policies under policy gradient, beside what theory predicts."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command()
@click.option("--problem", default="mirror", show_default=True, help=f"A file, or one of: {', '.join(NAMED)}.")
@click.option("--update", **one_of("update", *UPDATES), help="Default: both.")
@click.option("--step-size", type=float, help="η. Default: 0.4 over the mean weight of a state (pg), 0.025 (npg).")
@click.option("--steps", type=int, default=400, show_default=True)
@click.option("--every", type=int, default=1, show_default=True, help="Record every so many steps.")
@click.option("--dtype", default="float64", show_default=True, **one_of("dtype", "float32", "float64"))
@click.option("--seed", type=int, default=0, show_default=True, help="For problems that are drawn.")
@click.option("--out", metavar="FOLDER", help=f"An existing folder. Default: {FOLDER}, made if need be.")
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN", help="A column of a file; repeatable.")
@click.option("--arms", type=int, help="testbed: arms of a bandit.")
@click.option("--runs", type=int, help="testbed: number of bandits.")
@click.option("--prompts", type=int, help="pool: number of prompts.")
@click.option("--actions", type=int, help="pool, pass counts: actions a prompt.")
@click.option("--correct", type=float, help="pool: share of correct actions; pass counts: their number.")
@click.option("--spread", type=float, help="pool, pass counts: standard deviation of the logits.")
@click.option("--smoothing", type=float, help="pass counts: α of (c + α)/(n + 2α).")
@click.pass_obj
def run(
    command: str,
    update: str | None,
    step_size: float | None,
    steps: int,
    every: int,
    dtype: str,
    seed: int,
    out: str | None,
    problem: str,
    columns: tuple[str, ...],
    **options: int | float | None,
) -> None:
    """Simulate policy gradient: print a table, write the traces (netCDF) and a figure (PNG and SVG)."""
    check_integer("--steps", steps, 1)
    check_integer("--every", every, 1)
    check_integer("--seed", seed, 0)
    check_number("--step-size", 0.0 if step_size is None else step_size, low=0.0)
    setting = _setting(problem, seed, columns, options)
    folder = _folder(out)
    jax.config.update("jax_enable_x64", True)
    logits = np.asarray(setting.logits, dtype)
    updates = {UPDATES[kind][0]: _update(kind, step_size, setting) for kind in ([update] if update else UPDATES)}
    traces = {}
    for name, part in updates.items():
        with progress(name, steps, steps * logits.size) as advance:
            traces[name] = simulate(
                setting.problem, Algorithm(part), num_steps=steps, every=every, logits=logits, progress=advance
            )
    written = _write(folder, traces, {"command": command, "setting": setting.note, "seed": seed})
    click.echo(setting.note)
    for name, trace in traces.items():
        click.echo(f"\n{name}: {updates[name]}, {steps} step{'s' * (steps > 1)}, {dtype}")
        _print_table(name, trace)
    for note in results.remarks(setting.problem, logits, traces):
        click.echo(f"note: {note}")
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _setting(problem: str, seed: int, columns: Iterable[str], options: Mapping[str, int | float | None]) -> Setting:
    given = {k: int(v) if float(v).is_integer() else v for k, v in options.items() if v is not None}
    path = Path(problem)
    if problem.replace("-", "_") in NAMED or not (path.suffix or path.exists()):
        if columns:
            raise InputError(f"--column is for files; {problem!r} is a named problem")
        return named(problem, seed, **given)
    from softmaxdyn.files import read_setting

    for option in {"arms", "runs", "prompts"} & given.keys():
        raise InputError(f"--{option} is for a named problem; {problem!r} is a file and says itself how many there are")
    return read_setting(path, columns=dict(map(_pair, columns)) or None, seed=seed, **given)  # type: ignore[arg-type]


def _pair(text: str) -> tuple[str, str]:
    name, _, column = text.partition("=")
    if not (name and column):
        raise InputError(f"--column is {text!r}; wanted NAME=COLUMN, e.g. --column reward=clicks")
    return name, column


def _update(kind: str, step_size: float | None, setting: Setting) -> Update:
    _, update, default = UPDATES[kind]
    scale = float(np.mean(setting.problem.weights)) if update is VanillaPG else 1.0
    return update(float(f"{default / scale:.12g}") if step_size is None else step_size)


def _folder(out: str | None) -> Path:
    folder = FOLDER if out is None else out
    try:
        if out is None:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.isdir(folder):
            raise InputError(f"--out is {out!r}, which is no folder; wanted one that exists (mkdir makes one)")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"cannot write to {folder!r} ({error.strerror or error}); pass another --out FOLDER") from None
    return Path(folder)


@contextmanager
def progress(name: str, total: int, work: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr that is told the number done so far, for long work on a terminal; None otherwise."""
    if work < LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)


def _write(folder: Path, traces: Mapping[str, Trace], attributes: Mapping[str, Any]) -> list[Path]:
    figure = plots.dynamics(traces)
    files = [results.save(trace, folder / f"dynamics_{name.lower()}.nc", attributes) for name, trace in traces.items()]
    return files + plots.save_figure(figure, folder / "dynamics")


def _print_table(name: str, trace: Trace) -> None:
    from rich.console import Console
    from rich.table import Table

    theorem = plots.THEOREMS[name]
    columns = {
        "step": trace.step,
        "return\nJ": trace.expected_return,
        "entropy\nH": results.visit_mean(trace, "entropy"),
        "exact\nΔH": results.visit_mean(trace, "entropy_change"),
        "Lemma 1": results.visit_mean(trace, "lemma_1"),
        plots.PREDICTIONS[theorem]: results.visit_mean(trace, theorem),
        "remainder": results.visit_mean(trace, "remainder"),
        "certified\nbound": results.visit_mean(trace, "bound"),
    }
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in np.unique(np.linspace(0, len(trace.step) - 1, ROWS).round().astype(int)):
        table.add_row(*(_cell(heading, values[row]) for heading, values in columns.items()))
    Console(width=200).print(table)
    J, H = trace.final_expected_return, results.visit_mean(trace, "final_entropy")
    click.echo(f"{name} ends at J = {J:.6g} with H = {H:.6g} nats")


def _cell(heading: str, value: Any) -> str:
    if heading == "step":
        return str(value)
    plain = heading.startswith(("return", "entropy")) and (value == 0 or 1e-3 <= abs(value) < 1e4)
    return f"{value:.5f}" if plain else f"{value + 0.0:.3e}"
