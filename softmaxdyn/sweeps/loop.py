"""The loop of a sweep: the blocks that are not there yet, then the table and its summary."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from softmaxdyn.errors import InputError
from softmaxdyn.sweeps.layout import Block, Layout, call_size, make_layout
from softmaxdyn.sweeps.manifest import kept_manifest, manifest, refuse_other_bits
from softmaxdyn.sweeps.native import JAX
from softmaxdyn.sweeps.plan import Plan, refuse_too_large
from softmaxdyn.sweeps.store import Fault, Store, opened
from softmaxdyn.sweeps.summary import write_summary
from softmaxdyn.sweeps.table import write_table
from softmaxdyn.sweeps.team import Team

_OPEN = "the folder of the sweep is open"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@runtime_checkable
class Runner(Protocol):
    """What runs the cells of a family: `size` runs a call, every value of the result with the runs first."""

    @property
    def size(self) -> int:
        """Runs a call."""

    def __call__(self, cell: Int[np.ndarray, " N"], seed: Int[np.ndarray, " N"]) -> dict[str, np.ndarray]:
        """The results of run n: cell[n] with seed[n]."""


class Machine(NamedTuple):
    """An engine: which cells share a program, and what runs them: `make(plan, cells, block, devices)`.

    `kernel(plan)` names what else decides the last bits of its numbers in this process.
    """

    families: Callable[[Plan], Sequence[Sequence[int]]]
    make: Callable[[Plan, Sequence[int], int, int], Runner]
    kernel: Callable[[Plan], str] = lambda plan: JAX


class Progress(NamedTuple):
    """How far a sweep is: runs and numbers (run × steps × states × actions) that are stored, and all of them."""

    runs: int
    all_runs: int
    numbers: int
    all_numbers: int


class Outcome(NamedTuple):
    """The files of a finished sweep, how many blocks were there already, how many were computed, and what was wrong."""

    table: Path
    summary: Path
    kept: int
    computed: int
    faults: tuple[str, ...]


def execute(
    plan: Plan,
    folder: str | Path,
    *,
    devices: int = 1,
    machine: Machine | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_fault: Callable[[str], None] | None = None,
    team: Team = Team(),
    working: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Runs what `folder` lacks of the plan, block by block, and writes the table and its summary.

    Stopped at any moment, the same call goes on, and the files are those of an undisturbed sweep to the bit. A block
    that is damaged or of another sweep is told to `on_fault` and computed again. Raises InputError for a folder that
    cannot be used (`opened`), too little room on the disk, and a sweep that was begun with other versions.
    """
    machine = own_machine() if machine is None else machine
    place = Path(folder).resolve()
    nearest = next(each for each in (place, *place.parents) if each.exists())
    refuse_too_large(plan, 2 * plan.num_bytes, shutil.disk_usage(nearest).total, "the whole disk holds")
    layout = make_layout(plan, machine.families(plan))
    with _room(folder), opened(folder, plan, machine.kernel(plan)) as store:
        finished = store.finished()
        todo, faults = ([], ()) if finished else _missing(store, layout, on_fault)
        kept = len(layout.blocks) - len(todo)
        if todo:
            store.go_on(fresh=kept == 0)
            _refuse_little_room(store, todo)
        team.meet(_OPEN)
        if finished:
            return Outcome(store.table, store.summary, kept, 0, ())
        _compute(store, layout, _own(team, layout, todo), machine, devices, progress)
        if team.size > 1:
            _compute(store, layout, _wait_for(store, todo, working), machine, devices, progress)
        try:
            write_table(store, layout)
        except Fault as fault:
            raise InputError(f"a block {fault} since it was checked; the same command computes it again") from None
        write_summary(store, layout)
        store.finish()
        return Outcome(store.table, store.summary, kept, len(todo), faults)


def assist(plan: Plan, folder: str | Path, team: Team, *, devices: int = 1, machine: Machine | None = None) -> None:
    """Computes this process's share of the blocks that `execute`, in the first process of the team, lacks."""
    machine = own_machine() if machine is None else machine
    layout = make_layout(plan, machine.families(plan))
    team.meet(_OPEN)
    kernel = machine.kernel(plan)
    store = Store(Path(folder), plan, kept_manifest(Path(folder), plan, kernel), kernel)
    with _room(folder):
        if not store.finished():
            refuse_other_bits(store.folder, store.made, manifest(plan, store.kernel))
            _compute(store, layout, _own(team, layout, _missing(store, layout, None)[0]), machine, devices, None)


def _own(team: Team, layout: Layout, todo: Sequence[Block]) -> list[Block]:
    """The blocks of this process; whose one is depends on its place in the layout, not on what is there already."""
    places = {(block.family, block.number): place for place, block in enumerate(layout.blocks)}
    return [block for block in todo if team.owns(places[block.family, block.number])]


def _wait_for(store: Store, todo: Sequence[Block], working: Callable[[], bool]) -> list[Block]:
    """The blocks that are still missing once all are there, or nobody works any more."""
    while any(not store.path(block).exists() for block in todo) and working():
        time.sleep(0.05)
    return [block for block in todo if store.fault(block) is not None]


def own_machine() -> Machine:
    """The engine of the package."""
    from softmaxdyn.sweeps.engine import Engine, families, kernel_of

    return Machine(families, Engine, kernel_of)


def _missing(
    store: Store, layout: Layout, on_fault: Callable[[str], None] | None
) -> tuple[list[Block], tuple[str, ...]]:
    """(the blocks to compute, what is wrong with those of them that have a file)."""
    todo, faults = [], []
    for block in layout.blocks:
        fault = store.fault(block)
        if fault is not None:
            todo.append(block)
            if store.path(block).exists():
                faults.append(f"{store.path(block)} {fault}; it is computed again")
                if on_fault is not None:
                    on_fault(faults[-1])
    return todo, tuple(faults)


def _compute(
    store: Store,
    layout: Layout,
    todo: Sequence[Block],
    machine: Machine,
    devices: int,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Computes and stores the blocks, family after family."""
    plan = store.plan
    sizes = np.array([plan.num_steps * cell.setting.logits.size for cell in plan.cells])[layout.cell]
    left = sum(len(block.cell) for block in todo)
    done = [len(layout.cell) - left, int(sizes.sum() - sum(sizes[_rows(block)].sum() for block in todo))]

    def advance(each: int, runs: int) -> None:
        done[0] += runs
        done[1] += runs * each
        if progress is not None:
            progress(Progress(done[0], len(layout.cell), done[1], int(sizes.sum())))

    advance(0, 0)
    for family, members in itertools.groupby(todo, lambda block: block.family):
        cells = layout.families[family]
        num_runs = sum(len(plan.seeds_of(cell)) for cell in cells)
        runner = machine.make(plan, list(cells), call_size(plan, cells[0], num_runs), devices)
        each = plan.num_steps * plan.cells[cells[0]].setting.logits.size
        for block, arrays in results(runner, list(members), partial(advance, each)):
            store.write(block, {name: array.astype(plan.dtype, copy=False) for name, array in arrays.items()})


def results(
    runner: Runner, blocks: Sequence[Block], advance: Callable[[int], None]
) -> Iterator[tuple[Block, dict[str, np.ndarray]]]:
    """Every block with its arrays, from calls of a fixed number of runs; the last call repeats its last run."""
    cell, seed = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("cell", "seed"))
    waiting, filled, arrays = iter(blocks), 0, {}
    block = next(waiting)
    for start in range(0, len(cell), runner.size):
        count = min(runner.size, len(cell) - start)
        runs = np.minimum(np.arange(start, start + runner.size), len(cell) - 1)
        found = {name: np.asarray(x) for name, x in runner(cell[runs], seed[runs]).items()}
        advance(count)
        taken = 0
        while taken < count:
            part = min(len(block.cell) - filled, count - taken)
            if filled == 0:
                arrays = {name: np.empty((len(block.cell), *x.shape[1:]), x.dtype) for name, x in found.items()}
            for name, x in found.items():
                arrays[name][filled : filled + part] = x[taken : taken + part]
            taken, filled = taken + part, filled + part
            if filled == len(block.cell):
                yield block, arrays
                block, filled = next(waiting, block), 0


def _rows(block: Block) -> slice:
    return slice(block.first, block.first + len(block.cell))


def _refuse_little_room(store: Store, todo: Sequence[Block]) -> None:
    """Raises InputError where the blocks to come and the table are larger than what is free on the disk."""
    plan = store.plan
    need = plan.run_bytes * (sum(len(block.cell) for block in todo) + plan.num_runs)
    refuse_too_large(plan, need, shutil.disk_usage(store.folder).free, f"{str(store.folder)!r} has room for")


@contextmanager
def _room(folder: str | Path) -> Iterator[None]:
    """Says in one line that the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise InputError(
            f"no room left in {str(folder)!r} ({os.strerror(error.errno)}); what is stored is kept: make room, and the "
            "same command goes on"
        ) from None
