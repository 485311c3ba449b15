"""What a sweep runs: every configuration, every seed, and one text that names all of it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_choice, check_integer
from softmaxdyn.policy import softmax
from softmaxdyn.problems.setting import Setting
from softmaxdyn.simulation import Record

NO_SEED = -1  # of a method that draws nothing: it runs once
VARIABLES = 24  # about how many numbers a recorded step has
DTYPES = ("float32", "float64")
RECORDED = tuple(name for name in Record._fields if name not in ("visits", "measures"))
"""What every family records, unless fields are chosen; its problem's measures come besides."""

_LARGEST_RUN = 2**30  # bytes
_LARGEST_SEED = 2**31 - 1
_MOST_RUNS = 10**7


class Cell(NamedTuple):
    """A configuration without its seed.

    labels       what it is called: problem, method, step_size, and whatever else differs between cells
    setting      the problem, the logits [S, A] that a run starts from (of the sweep's dtype), a note
    algorithm    not started
    inner_steps  updates a batch
    """

    labels: dict[str, str | float]
    setting: Setting
    algorithm: Algorithm
    inner_steps: int


class Plan(NamedTuple):
    """Cells × seeds, each `num_steps` steps long and recorded at every `every`-th.

    A method that draws nothing runs once, as seed −1 (NO_SEED). `text` says in lines all that decides the numbers.
    `fields` are those that are recorded (None: all); what a run ends with is always kept.
    """

    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    num_steps: int
    every: int
    dtype: str
    text: str
    fields: tuple[str, ...] | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of the package's version and the text, in hex digits."""
        version = sys.modules["softmaxdyn"].__version__
        return hashlib.sha256(f"softmaxdyn {version}\n{self.text}".encode()).hexdigest()

    @property
    def steps(self) -> Int[np.ndarray, " T"]:
        """The steps that are recorded: 0, every, 2·every, …"""
        return np.arange(0, self.num_steps, self.every)

    @property
    def num_recorded(self) -> int:
        """T: how many steps are recorded."""
        return -(-self.num_steps // self.every)

    @property
    def num_runs(self) -> int:
        """How many runs all cells and their seeds make."""
        return sum(len(self.seeds_of(cell)) for cell in range(len(self.cells)))

    @property
    def num_bytes(self) -> int:
        """About how large the table is."""
        return self.num_runs * self.run_bytes

    @property
    def run_bytes(self) -> int:
        """About how large the results of one run are."""
        variables = VARIABLES if self.fields is None else len(self.fields)
        return self.num_recorded * variables * np.dtype(self.dtype).itemsize

    def seeds_of(self, cell: int) -> tuple[int, ...]:
        """The seeds that a cell is run with."""
        draws = getattr(self.cells[cell].algorithm.estimator, "draws", False)
        return self.seeds if draws else (NO_SEED,)


def make_plan(
    cells: Iterable[Cell],
    *,
    seeds: Any,
    num_steps: Any,
    every: Any,
    dtype: str,
    lines: Sequence[str],
    fields: Any = None,
) -> Plan:
    """A plan whose text is the numbers of the runs, `lines`, and a digest of what the cells hold.

    `seeds` is a count or the seeds themselves. Raises InputError for cells that share their labels, counts below 1,
    seeds that are negative or come twice, a dtype that is unknown or that JAX is not set up for, fields that no cell
    records, and runs too many or too long to hold.
    """
    cells = tuple(cells)
    _refuse_twins(cells)
    num_steps, every = check_integer("steps", num_steps, 1), check_integer("every", every, 1)
    seeds = check_seeds(seeds)
    dtype, fields = check_dtype(dtype), check_fields(fields, cells)
    counted = seeds == tuple(range(len(seeds)))
    head = [f"steps = {num_steps}", f"every = {every}", f"seeds = {len(seeds) if counted else list(seeds)}"]
    head += [f"dtype = {dtype}"] if fields is None else [f"dtype = {dtype}", f"fields = {', '.join(fields)}"]
    text = "\n".join([*head, *lines, f"content = {_content(cells, dtype)}", ""])
    plan = Plan(cells, seeds, num_steps, every, dtype, text, fields)
    if plan.num_runs > _MOST_RUNS:
        raise InputError(f"the sweep has {plan.num_runs:,} runs; wanted at most {_MOST_RUNS:,}: fewer seeds or values")
    if plan.run_bytes > _LARGEST_RUN:
        least = -(-every * plan.run_bytes // _LARGEST_RUN)
        raise InputError(
            f"one run records {plan.num_recorded:,} steps, about {size_text(plan.run_bytes)}; wanted at most 1 GiB: "
            f"every = {_rounded_up(least)}"
        )
    return plan


def check_seeds(seeds: Any) -> tuple[int, ...]:
    """The seeds: 0 … n−1 for a count n, or the whole numbers ≥ 0 of a list. Raises InputError for anything else."""
    if isinstance(seeds, list | tuple | range | np.ndarray):
        plain = all(type(seed) is int and seed >= 0 for seed in seeds)
        found = tuple(seeds if plain else (check_integer("a seed", seed, 0) for seed in seeds))
    else:
        found = tuple(range(check_integer("seeds", seeds, 1)))
    if not found:
        raise InputError("seeds is []; wanted a count or a list of seeds: seeds = 20 or seeds = [0, 1]")
    if max(found) > _LARGEST_SEED:
        raise InputError(f"a seed is {max(found)}; wanted at most {_LARGEST_SEED}")
    if len(set(found)) < len(found):
        twice = next(seed for seed in found if found.count(seed) > 1)
        raise InputError(f"seeds holds {twice} twice; wanted every seed once")
    return found


def check_dtype(dtype: str) -> str:
    """`dtype` if it is known and JAX can use it now; raises InputError otherwise."""
    check_choice("dtype", str(dtype), DTYPES)
    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise InputError(f"dtype is {dtype}, but JAX is set to 32 bits; jax.config.update('jax_enable_x64', True)")
    return str(dtype)


def check_fields(fields: Any, cells: Sequence[Cell]) -> tuple[str, ...] | None:
    """The names of the fields to record, in one order; None for all. Raises InputError for any that no cell has."""
    if fields is None:
        return None
    names = [fields] if isinstance(fields, str) else fields
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"fields is {fields!r}; wanted a list of names: fields = ['entropy', 'theorem_1']")
    known = [*RECORDED, *(() if set(names) <= set(RECORDED) else _measures(cells))]
    for name in names:
        check_choice("field", name, known)
        if names.count(name) > 1:
            raise InputError(f"fields holds {name!r} twice; wanted every field once")
    return tuple(name for name in known if name in names)


def _measures(cells: Sequence[Cell]) -> list[str]:
    """What the problems of the cells record besides, by name."""
    settings = {id(cell.setting): cell.setting for cell in cells}.values()
    found: dict[str, None] = {}
    for setting in settings:
        found |= dict.fromkeys(jax.eval_shape(lambda z, s=setting: s.problem.measures(softmax(z)), setting.logits))
    return sorted(found)


def refuse_too_large(plan: Plan, need: int, room: int, where: str) -> None:
    """Raises InputError where the results of a plan, `need` bytes in all, are more than `room`; says what would fit."""
    if need <= room:
        return
    enough = _rounded_up(-(-plan.every * need // max(room, 1)))
    instead = f"every = {enough}" if enough < plan.num_steps else "fewer runs"
    raise InputError(
        f"{plan.num_runs:,} runs × {plan.num_recorded:,} recorded steps need about {size_text(need)}, and {where} "
        f"{size_text(room)}; wanted {instead}, or another folder"
    )


def fingerprint(tree: Any, dtype: str) -> str:
    """SHA-256 of the structure, the static fields and every number of a pytree of configs, its numbers in `dtype`."""
    leaves, structure = jax.tree.flatten(with_dtype(tree, dtype))
    digest = hashlib.sha256(_without_addresses(str(structure)).encode())
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        content = array.tobytes() if array.dtype != object else _without_addresses(repr(leaf)).encode()
        digest.update(f"{array.dtype}{array.shape}".encode() + content)
    return digest.hexdigest()


def _content(cells: Sequence[Cell], dtype: str) -> str:
    """A digest of every cell; what many cells share is read once."""
    prints: dict[int, str] = {}
    digest = hashlib.sha256()
    for labels, setting, algorithm, inner_steps in cells:
        if id(setting) not in prints:
            prints[id(setting)] = fingerprint((setting.problem, np.asarray(setting.logits)), dtype)
        if id(algorithm) not in prints:
            prints[id(algorithm)] = _without_addresses(repr(algorithm)) + fingerprint(algorithm, dtype)
        digest.update(f"{labels} {prints[id(setting)]} {prints[id(algorithm)]} {inner_steps}\n".encode())
    return digest.hexdigest()


def _refuse_twins(cells: Sequence[Cell]) -> None:
    if not cells:
        raise InputError("the sweep has no cell; wanted at least one problem and one method")
    seen: set[frozenset[tuple[str, str | float]]] = set()
    for cell in cells:
        labels = frozenset(cell.labels.items())
        if labels in seen:
            raise InputError(f"two cells are the same ({name_of(cell)}); wanted every configuration once")
        seen.add(labels)


def name_of(cell: Cell) -> str:
    """The labels of a cell in one line."""
    return ", ".join(f"{key} {value:g}" if isinstance(value, float) else value for key, value in cell.labels.items())


def _without_addresses(text: str) -> str:
    """`text` without what differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / 2**30:,.3g} GiB" if size >= 2**30 else f"{size / 2**20:,.3g} MiB"


def _rounded_up(number: int) -> int:
    """The next number with one digit that is not 0."""
    unit = 10 ** (len(str(number)) - 1)
    return -(-number // unit) * unit
