"""The engine of a sweep on the case that is timed: every row is a run of its own, as in a sweep over 1024 bandits."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from timing import ETA, ROWS, Case

from softmaxdyn import Algorithm, Bandit, VanillaPG
from softmaxdyn.problems.setting import Setting
from softmaxdyn.sweeps import native
from softmaxdyn.sweeps.engine import Engine
from softmaxdyn.sweeps.layout import call_size, make_layout
from softmaxdyn.sweeps.loop import results
from softmaxdyn.sweeps.plan import Cell, Plan

SIMPLE = ("entropy", "lemma_1")
ACCURATE = ("entropy", "entropy_change", "lemma_1", "remainder")

Fields = tuple[str, ...] | None
Blocks = list[dict[str, np.ndarray]]


def cell(rewards: np.ndarray, logits: np.ndarray) -> Cell:
    """Exact vanilla PG on contexts that share nothing: the tables are [S, K]."""
    return Cell({}, Setting(Bandit(rewards, 1.0), logits, ""), Algorithm(VanillaPG(ETA)), 1)


def runner(plan: Plan, devices: int = 1) -> Callable[[], Blocks]:
    """All runs of a plan of one family, in the calls and blocks that a sweep cuts them into; nothing is written."""
    members = list(range(len(plan.cells)))
    block = call_size(plan, 0, -(-len(members) // devices))
    engine, blocks = Engine(plan, members, block, devices), make_layout(plan, [members]).blocks
    engine.short = False  # compiled as a longer sweep is
    return lambda: [arrays for _, arrays in results(engine, blocks, lambda runs: None)]


def in_engine(case: Case, fields: Fields = SIMPLE, every: int = 1) -> Callable[[], Blocks]:
    """ROWS runs of one bandit each, a device a core; `fields` None records all."""
    logits, rewards = case.transposed()
    cells = tuple(cell(rewards[[row]], logits[[row]]) for row in range(ROWS))
    plan = Plan(cells, (0,), case.steps, every, np.dtype(case.dtype).name, "", fields)
    return runner(plan, case.cores)


def in_pure_jax(case: Case) -> Callable[[], Blocks]:
    """The engine without its native kernel, compiled now; ImportError where it has none anyway."""
    if native.kernel() == native.JAX:
        raise ImportError("no native kernel here")
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        run = in_engine(case)
        run()
    finally:
        del os.environ[native.SWITCH]
        if before is not None:
            os.environ[native.SWITCH] = before
    return run


def contexts(states: int, arms: int, steps: int, dtype: type = np.float64, every: int = 1) -> Callable[[], Blocks]:
    """One run on a bandit of so many contexts, which records the mean over them."""
    rewards, logits = np.random.default_rng(0).standard_normal((2, states, arms)).astype(dtype)
    plan = Plan((cell(rewards, logits),), (0,), steps, every, np.dtype(dtype).name, "", SIMPLE)
    return runner(plan)


def field(blocks: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """A field of all runs, [steps, rows]."""
    return np.concatenate([block[name] for block in blocks]).T


def recorded(blocks: Blocks) -> Any:
    """(H, covariance), each [steps, rows]."""
    return field(blocks, "entropy"), -field(blocks, "lemma_1")
