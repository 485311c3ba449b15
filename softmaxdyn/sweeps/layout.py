"""How a sweep is cut: families of cells that share one program, and blocks of runs, one a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from softmaxdyn.sweeps.plan import Plan

BLOCK_BYTES = 2**25  # results that one file holds
CALL_BYTES = 2**26  # results that one call of the engine gives
CALL_NUMBERS = 2**14  # numbers in the tables of all runs of a call: they are to stay in the cache
WORK = 2**36  # numbers that are computed before they are stored: a few minutes
MOST = 1024  # runs


class Block(NamedTuple):
    """Consecutive runs of one family, in the order of the table: `first` is the row of its first run there."""

    family: int
    number: int
    first: int
    cell: Int[np.ndarray, " N"]
    seed: Int[np.ndarray, " N"]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.family}-{self.number:06d}.npz"


class Layout(NamedTuple):
    """The blocks of a sweep. Run r of the table is that of `cell[r]` and `seed[r]`; a cell's runs are consecutive."""

    families: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    cell: Int[np.ndarray, " R"]
    seed: Int[np.ndarray, " R"]


def make_layout(plan: Plan, families: Sequence[Sequence[int]]) -> Layout:
    """Family after family, its cells in order, the seeds of each; cut where a block is full.

    The cut depends on the plan alone, so that the same files come from any machine and any number of devices.
    """
    blocks: list[Block] = []
    first = 0
    for number, family in enumerate(families):
        members = [np.full(len(plan.seeds_of(cell)), cell, np.int64) for cell in family]
        cell = np.concatenate(members)
        seed = np.concatenate([np.asarray(plan.seeds_of(member), np.int64) for member in family])
        size = block_size(plan, family[0])
        for place, start in enumerate(range(0, len(cell), size)):
            part = slice(start, start + size)
            blocks.append(Block(number, place, first + start, cell[part], seed[part]))
        first += len(cell)
    runs = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("cell", "seed"))
    return Layout(tuple(tuple(map(int, family)) for family in families), tuple(blocks), *runs)


def block_size(plan: Plan, cell: int) -> int:
    """Runs that one file holds, in a family with that cell."""
    return int(np.clip(min(BLOCK_BYTES // plan.run_bytes, WORK // _work(plan, cell)), 1, MOST))


def call_size(plan: Plan, cell: int, num_runs: int) -> int:
    """Runs that one call of the engine takes on a device, in a family of `num_runs` with that cell.

    Few enough for the cache, for the memory and to stop often; an eighth of the family unless that is too little to be
    worth a call, so that devices can share it; and all calls alike.
    """
    table = max(1, plan.cells[cell].setting.logits.size)
    most = min(CALL_NUMBERS // table, CALL_BYTES // plan.run_bytes, WORK // _work(plan, cell), MOST)
    size = max(1, min(most, num_runs, max(-(-num_runs // 8), CALL_NUMBERS // 4 // table)))
    return -(-num_runs // -(-num_runs // size))


def _work(plan: Plan, cell: int) -> int:
    """Numbers that one run computes: steps × inner steps × states × actions."""
    return plan.num_steps * plan.cells[cell].inner_steps * max(1, plan.cells[cell].setting.logits.size)
