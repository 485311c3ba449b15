"""The loop of a sweep: the blocks that are not there yet, then the table and its summary."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from softmaxdyn.errors import InputError
from softmaxdyn.sweeps.layout import Block, Layout, call_size, make_layout
from softmaxdyn.sweeps.plan import Plan, refuse_too_large
from softmaxdyn.sweeps.store import Fault, Store, opened
from softmaxdyn.sweeps.summary import write_summary
from softmaxdyn.sweeps.table import write_table

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Runner(Protocol):
    """What runs the cells of a family: `size` runs a call, every value of the result with the runs first."""

    @property
    def size(self) -> int:
        """Runs a call."""

    def __call__(self, cell: Int[np.ndarray, " N"], seed: Int[np.ndarray, " N"]) -> dict[str, np.ndarray]:
        """The results of run n: cell[n] with seed[n]."""


class Machine(NamedTuple):
    """An engine: which cells share a program, and what runs them: `make(plan, cells, block, devices)`."""

    families: Callable[[Plan], Sequence[Sequence[int]]]
    make: Callable[[Plan, Sequence[int], int, int], Runner]


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
) -> Outcome:
    """Runs what `folder` lacks of the plan, block by block, and writes the table and its summary.

    Stopped at any moment, the same call goes on, and the files are those of an undisturbed sweep to the bit. A block
    that is damaged or of another sweep is told to `on_fault` and computed again. Raises InputError for a folder that
    cannot be used (`opened`), too little room on the disk, and a sweep that was begun with other versions.
    """
    machine = own_machine() if machine is None else machine
    layout = make_layout(plan, machine.families(plan))
    with opened(folder, plan) as store, _room(store):
        if store.finished():
            return Outcome(store.table, store.summary, len(layout.blocks), 0, ())
        todo, faults = _missing(store, layout, on_fault)
        kept = len(layout.blocks) - len(todo)
        if todo:
            store.go_on(fresh=kept == 0)
            _refuse_little_room(store, todo)
            _compute(store, layout, todo, machine, devices, progress)
        write_table(store, layout)
        write_summary(store, layout)
        store.finish()
        return Outcome(store.table, store.summary, kept, len(todo), faults)


def own_machine() -> Machine:
    """The engine of the package."""
    from softmaxdyn.sweeps.engine import Engine, families

    return Machine(families, Engine)
