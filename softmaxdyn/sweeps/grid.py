"""A sweep from Python: algorithms × step sizes × seeds on one problem, as a labelled array."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.problems import Problem, Setting
from softmaxdyn.simulation import starting_logits
from softmaxdyn.sweeps.loop import Machine, execute
from softmaxdyn.sweeps.plan import NO_SEED, Cell, Plan, check_dtype, make_plan
from softmaxdyn.updates import TRPO

if TYPE_CHECKING:
    import xarray


def sweep(
    problem: Problem,
    algorithms: Mapping[str, Algorithm] | Sequence[Algorithm] | Algorithm,
    *,
    step_sizes: Any = None,
    seeds: Any = 1,
    num_steps: int,
    every: int = 1,
    inner_steps: int = 1,
    logits: Any = None,
    dtype: str | None = None,
    folder: str | Path | None = None,
    devices: int = 1,
    progress: Callable[[int], None] | None = None,
    machine: Machine | None = None,
) -> xarray.Dataset:
    """Every algorithm with every step size and seed, as a dataset over (algorithm, step_size, seed, step).

    A run is `simulate(problem, algorithm, key=jax.random.key(seed), …)` from `logits` (default: uniform), its fields by
    state as means weighted with the visits. `algorithms` go by their names, those of a list by algorithm_0, …;
    `step_sizes` replace the update's own (None: each keeps it, and the coordinate is NaN where they differ). `seeds` is
    a count or a list; an algorithm that draws nothing runs once, and every seed shows that run. `folder` keeps the
    blocks, so that the same call goes on after it was stopped; without one they are removed. `progress` is told the
    number of runs done. Raises InputError for what cannot be run or stored.
    """
    named = _named(algorithms)
    sizes = _sizes(step_sizes)
    if isinstance(problem, type) or not isinstance(problem, Problem):
        raise InputError(f"problem is {problem!r}; wanted a problem such as Bandit([1.0, 0.0])")
    start = np.asarray(starting_logits(problem, logits))
    dtype = check_dtype(start.dtype.name if dtype is None else dtype)
    setting = Setting(problem, np.asarray(starting_logits(problem, start.astype(dtype))), repr(problem))
    lines = [f"problem: {problem!r}", *(f"{name}: {each!r}" for name, each in named.items())]
    lines += [f"step_sizes: {sizes}", f"inner_steps: {inner_steps}"]
    cells = list(_cells(setting, named, sizes, inner_steps))
    plan = make_plan(cells, seeds=seeds, num_steps=num_steps, every=every, dtype=dtype, lines=lines)
    tell = None if progress is None else lambda state: progress(state.runs)
    with tempfile.TemporaryDirectory(prefix="softmaxdyn-") as scratch:
        done = execute(plan, folder or scratch, devices=devices, machine=machine, progress=tell, on_fault=warnings.warn)
        return as_grid(plan, done.table, list(named), [cell.labels["step_size"] for cell in cells])
