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
from softmaxdyn.errors import InputError, check_integer, check_number
from softmaxdyn.problems import Problem, Setting
from softmaxdyn.simulation import starting_logits
from softmaxdyn.sweeps.loop import Machine, Progress, execute
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
    fields: Sequence[str] | None = None,
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
    a count or a list; an algorithm that draws nothing runs once, and every seed shows that run. Only `fields` are
    computed and recorded (None: all of them), and what a run ends with. `folder` keeps the blocks, so that the same
    call goes on after it was stopped; without one they are removed. `progress` is told the number of runs done. Raises
    InputError for what cannot be run or stored.
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
    cells = _cells(setting, named, sizes, check_integer("inner_steps", inner_steps, 1))
    rest: dict[str, Any] = {"dtype": dtype, "lines": lines, "fields": fields}
    plan = make_plan(cells, seeds=seeds, num_steps=num_steps, every=every, **rest)

    def tell(state: Progress) -> None:
        if progress is not None:
            progress(state.runs)

    with tempfile.TemporaryDirectory(prefix="softmaxdyn-") as scratch:
        done = execute(plan, folder or scratch, devices=devices, machine=machine, progress=tell, on_fault=warnings.warn)
        return as_grid(plan, done.table, list(named))


def as_grid(plan: Plan, table: Path, names: Sequence[str]) -> xarray.Dataset:
    """The table of a plan whose cells are `names` × step sizes, over (algorithm, step_size, seed, step)."""
    import xarray

    sizes = np.array([float(cell.labels["step_size"]) for cell in plan.cells]).reshape(len(names), -1)
    with xarray.open_dataset(table, engine="h5netcdf") as runs:
        place = {pair: run for run, pair in enumerate(zip(runs.cell.values, runs.seed.values, strict=True))}
        alone = {cell for cell, seed in place if seed == NO_SEED}
        rows = [
            [place[cell, NO_SEED if cell in alone else seed] for seed in plan.seeds] for cell in range(len(plan.cells))
        ]
        index = np.reshape(rows, (*sizes.shape, len(plan.seeds)))
        dims = ("algorithm", "step_size", "seed")
        variables = {
            name: ((*dims, *each.dims[1:]), each.values[index], each.attrs) for name, each in runs.data_vars.items()
        }
        coordinates = {
            "algorithm": list(names),
            "step_size": np.where((sizes == sizes[0]).all(0), sizes[0], np.nan),
            "seed": list(plan.seeds),
            "step": runs.step.variable.load(),
        }
        return xarray.Dataset(variables, coordinates, runs.attrs)


def _named(algorithms: Any) -> dict[str, Algorithm]:
    """The algorithms by name."""
    if isinstance(algorithms, Algorithm):
        algorithms = [algorithms]
    if isinstance(algorithms, Mapping):
        named = {str(name): each for name, each in algorithms.items()}
    elif isinstance(algorithms, list | tuple):
        named = {f"algorithm_{number}": each for number, each in enumerate(algorithms)}
    else:
        raise InputError(f"algorithms is {algorithms!r}; wanted a mapping from names to Algorithm, or a list of them")
    if not named:
        raise InputError("algorithms is empty; wanted at least one: {'pg': Algorithm(VanillaPG(0.1))}")
    for name, each in named.items():
        if not isinstance(each, Algorithm):
            raise InputError(f"algorithm {name!r} is {each!r}; wanted Algorithm(update): Algorithm(VanillaPG(0.1))")
    return named


def _sizes(step_sizes: Any) -> list[float] | None:
    """The step sizes as a list; None where every algorithm keeps its own."""
    if step_sizes is None:
        return None
    sizes = list(np.atleast_1d(np.asarray(step_sizes)))
    for size in sizes:
        check_number("a step size", size, 0.0)
    if not sizes or len(set(sizes)) < len(sizes):
        raise InputError(f"step_sizes is {step_sizes!r}; wanted at least one number, and none of them twice")
    return [float(size) for size in sizes]


def _cells(
    setting: Setting, named: Mapping[str, Algorithm], sizes: Sequence[float] | None, inner_steps: int
) -> Iterator[Cell]:
    for name, algorithm in named.items():
        for size in [None] if sizes is None else sizes:
            chosen = algorithm if size is None else dataclasses.replace(algorithm, update=sized(algorithm.update, size))
            labels = {"problem": type(setting.problem).__name__, "method": name}
            yield Cell({**labels, "step_size": float(chosen.update.step_size)}, setting, chosen, inner_steps)


def sized(update: Any, step_size: float) -> Any:
    """The update with another step size. Raises InputError for one that has none to choose."""
    fields = {field.name for field in dataclasses.fields(update)} if dataclasses.is_dataclass(update) else set()
    if isinstance(update, TRPO) or not fields & {"step_size", "update"}:
        raise InputError(f"{update!r} has no step size to choose; leave step_sizes out")
    if "step_size" in fields:
        return dataclasses.replace(update, step_size=step_size)
    return dataclasses.replace(update, update=sized(update.update, step_size))
