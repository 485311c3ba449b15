"""What the commands share: the group, one-line errors, problems as options, progress."""

from __future__ import annotations

import inspect
import io
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
import jax.numpy as jnp
import numpy as np

from softmaxdyn import results
from softmaxdyn.cli.output import remove_empty
from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named import NAMED, named, named_options
from softmaxdyn.problems.setting import Setting

INTERRUPTED = "interrupted; no file was left half-written"
COUNTS = {  # options of a file of pass counts
    "actions": (int, "actions a prompt"),
    "correct": (float, "how many of the actions are correct, a whole number"),
    "spread": (float, "standard deviation of the logits"),
    "smoothing": (float, "α of (c + α)/(n + 2α)"),
}
MEANINGS = {"correct": "the share of the actions that are correct, in (0, 1)"}  # where pass counts take something else
LONG = 2_000_000  # steps × states × actions from which a run shows progress


class Commands(click.Group):
    """A group that turns wrong input and failed output into one line and exit code 2, Ctrl-C into 130."""

    def main(self, args: Any = None, prog_name: str | None = None, **settings: Any) -> Any:  # type: ignore[override]
        arguments = _spread(sys.argv[1:] if args is None else args)
        if args is None:
            _own_the_process()
        settings.update(standalone_mode=False, obj=shlex.join(["softmaxdyn", *arguments]))
        try:
            code = super().main(arguments, "softmaxdyn", **settings)
        except click.Abort:
            code = _complain(INTERRUPTED, 130)
        except (click.ClickException, InputError, OSError, MemoryError) as error:
            code = _complain(getattr(error, "format_message", error.__str__)(), 2)
        finally:
            remove_empty()
        sys.exit(code or 0)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        check_choice("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def _spread(args: Iterable[str]) -> list[str]:
    """The arguments with `--against A B C` as `--against A --against B --against C`."""
    spread: list[str] = []
    several = False
    for arg in args:
        if several and not arg.startswith("-") and spread[-1] != "--against":
            spread.append("--against")
        several = arg == "--against" or (several and not arg.startswith("-"))
        spread.append(arg)
    return spread


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
    remove_empty()
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


def print_table(columns: Mapping[str, Iterable[str]], *, left: int = 0) -> None:
    """A plain table by rich: headings and cells, the first `left` columns flush left, wide enough for every number."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for place, heading in enumerate(columns):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(escape, cells))
    Console(width=200).print(table)


def problem_options(default: str, **numbers: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that say which problem: `read_problem` takes what they hold.

    `numbers` are what the command runs the default problem with in place of its own defaults, for the help.
    """
    taken = named_options()
    for name, number in numbers.items():
        taken[name][default] = taken[name][default].replace(default=number)
    options = [
        click.option("--problem", default=default, show_default=True, help=f"A file, or one of: {', '.join(NAMED)}."),
        click.option("--seed", type=int, default=0, show_default=True, help="For problems and methods that draw."),
        click.option(
            "--column", "columns", multiple=True, metavar="NAME=COLUMN", help="A column of a file; repeatable."
        ),
        *(_option_of(name, taken.get(name, {})) for name in {**taken, **COUNTS}),
    ]

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _option_of(name: str, taken: Mapping[str, inspect.Parameter]) -> Callable[..., Any]:
    """The option of that name, of the type in which the named settings `taken` and files take it."""
    kinds = {kind for each in taken.values() for kind in get_args(each.annotation) or (each.annotation,)}
    kinds |= {COUNTS[name][0]} if name in COUNTS else set()
    kind = next(kind for kind in (str, float, bool, int) if kind in kinds)
    defaults = ", ".join(f"{setting} ({each.default})" for setting, each in taken.items())
    uses = (
        ": ".join(filter(None, [defaults, MEANINGS.get(name)])),
        COUNTS.get(name) and f"pass counts: {COUNTS[name][1]}",
    )
    return click.option(f"--{name.replace('_', '-')}", type=kind, help=f"{'; '.join(filter(None, uses))}.")


def read_problem(problem: str, seed: int, columns: Iterable[str], options: Mapping[str, Any]) -> Setting:
    given = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in options.items() if v is not None}
    path = Path(problem)
    if problem.replace("-", "_") in NAMED or not (path.suffix or path.exists()):
        if columns:
            raise InputError(f"--column is for files; {problem!r} is a named problem")
        return named(problem, seed, **given)
    from softmaxdyn.files import read_setting

    for option in given.keys() - COUNTS.keys():
        typed = option.replace("_", "-")
        raise InputError(f"--{typed} is for a named problem; {problem!r} is a file and says itself what the problem is")
    return read_setting(path, columns=dict(map(pair, columns)) or None, seed=seed, **given)


def mean_visits(setting: Setting) -> float:
    """The mean of d(s) over the states that the starting policy visits."""
    visits = np.asarray(setting.problem.visits(softmax(jnp.asarray(setting.logits)).prob))
    return float(visits[visits > 0.0].mean())


def pair(text: str) -> tuple[str, str]:
    name, _, column = text.partition("=")
    if not (name and column):
        raise InputError(f"--column is {text!r}; wanted NAME=COLUMN, e.g. --column reward=clicks")
    return name, column


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
