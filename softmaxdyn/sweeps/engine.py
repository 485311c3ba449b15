"""The engine of a sweep: many runs of one structure as one compiled program, a fixed number of them at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import Record, advance, observed, quick_options
from softmaxdyn.sweeps import native, rows
from softmaxdyn.sweeps.layout import call_size
from softmaxdyn.sweeps.plan import RECORDED, Cell, Plan
from softmaxdyn.sweeps.rows import as_fields, fits, needed

_ROWS = 64  # recorded steps a call
_BUFFER = 2**19  # numbers of a field that a call of the native kernel records, if they are more steps than that
_SHORT = 2 * 10**6  # steps × numbers of the tables up to which compiling quickly beats compiling well
_BY_STATE = ("entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl")


def families(plan: Plan) -> list[list[int]]:
    """The cells that compile to one program: equal types, sizes, names and inner steps; only numbers differ."""
    found: dict[Any, list[int]] = {}
    for number, cell in enumerate(plan.cells):
        leaves, structure = jax.tree.flatten((cell.setting.problem, cell.algorithm))
        shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", float))) for leaf in leaves)
        found.setdefault((structure, shapes, np.shape(cell.setting.logits), cell.inner_steps), []).append(number)
    return list(found.values())


def kernel_of(plan: Plan) -> str:
    """What runs the fast path of the plan in this process (`native.kernel`); "jax" where it has none."""
    return native.kernel() if any(map(fits, plan.cells)) else native.JAX


class Engine:
    """`engine(cell [N], seed [N])` runs that many runs of one family, N = lanes × block, and returns their numbers.

    A run is `simulate(problem, algorithm, key=jax.random.key(seed), …)`, seen as one: fields by state are means over
    the states, weighted with their visits, and only those of the plan. Every array has the runs first: [N, T] for each
    of the T recorded steps, [N] at the end, `selected` [N, T, I]. A block is one program of a fixed shape, so a run has
    the same bits wherever it is: in any block, in any lane. A lane is a thread, with a device of its own where there
    are several; on a processor all lanes use the one device, whose computations overlap if they come from threads.
    """

    def __init__(self, plan: Plan, cells: Sequence[int], block: int | None = None, devices: int = 1) -> None:
        members = [plan.cells[number] for number in cells]
        self.position = {number: place for place, number in enumerate(cells)}
        self.plan, self.inner_steps = plan, members[0].inner_steps
        self.fields = RECORDED if plan.fields is None else plan.fields
        self.by_rows = all(map(fits, members))
        self.kernel = native.kernel() if self.by_rows else native.JAX
        runs = sum(len(plan.seeds_of(number)) for number in cells)
        self.short = max(1, members[0].setting.logits.size) * plan.num_steps * runs < _SHORT
        self.block = check_integer("block", block, 1) if block else call_size(plan, cells[0], runs)
        self.lanes = check_lanes("devices", devices)
        self.varying, self.shared, self.structure = _stacked(members, plan.dtype)
        self._compiled: dict[Any, Any] = {}
        self._compiling = Lock()

    @property
    def size(self) -> int:
        """Runs a call: lanes × block."""
        return self.lanes * self.block

    def __call__(self, cell: Int[np.ndarray, " N"], seed: Int[np.ndarray, " N"]) -> dict[str, np.ndarray]:
        if len(cell) != self.size or len(seed) != self.size:
            raise InputError(f"{len(cell)} cells and {len(seed)} seeds came; wanted {self.size} of each")
        place = np.array([self.position[int(number)] for number in cell])
        parts = np.split(place, self.lanes), np.split(np.asarray(seed, np.int64), self.lanes)
        if self.lanes == 1:
            return self._lane(0, *(part[0] for part in parts))
        with ThreadPoolExecutor(self.lanes) as pool:
            found = list(pool.map(self._lane, range(self.lanes), *parts))
        return {name: np.concatenate([lane[name] for lane in found]) for name in found[0]}

    def _lane(self, lane: int, place: Int[np.ndarray, " B"], seed: Int[np.ndarray, " B"]) -> dict[str, np.ndarray]:
        """The results of one block."""
        device = jax.local_devices()[lane % jax.local_device_count()]
        run = partial(self._run, device)
        with jax.default_device(device):
            carry = run("begin", 0, place, seed)
            every, parts = self.plan.every, []
            most = _ROWS if self.kernel == native.JAX else max(_ROWS, _BUFFER // self.block)
            length = min(most, self.plan.num_recorded)
            for start in range(0, self.plan.num_steps, length * every):
                stop = min(start + length * every, self.plan.num_steps)
                carry, buffer = run("go", length, carry, np.int32(start), np.int32(stop), np.int32(every))
                parts.append({name: np.asarray(x)[:, : -(-(stop - start) // every)] for name, x in buffer.items()})
            ends = {name: np.asarray(x) for name, x in run("end", 0, carry).items()}
        fields = {name: joined([part[name] for part in parts], 1) for name in parts[0]}
        if self.by_rows:
            fields = as_fields(fields, np.asarray(carry[0].weights), self.fields)
        return fields | ends

    def _run(self, device: Any, name: str, length: int, *arguments: Any) -> Any:
        """What a function of one block gives; it is compiled once for a device, by the lane that comes first."""
        key = device, name, length
        own = partial(self._go, length)
        functions: dict[str, Callable[..., Any]] = {"begin": self._begin, "go": own, "end": self._end}
        with self._compiling:
            if key not in self._compiled:
                quick = quick_options() if self.short else None
                lowered = jax.jit(functions[name], compiler_options=quick).lower(*arguments)
                self._compiled[key] = lowered.compile()
        return self._compiled[key](*arguments)

    def _begin(self, place: Int[Array, " B"], seed: Int[Array, " B"]) -> Any:
        taken = [jnp.asarray(table)[place] for table in self.varying]
        return jax.vmap(self._start)(taken, seed)

    def _start(self, taken: list[Array], seed: Int[Array, ""]) -> Any:
        """What a run carries: (problem, algorithm, logits, key)."""
        problem, algorithm, logits = self._put_together(taken)
        key = jax.random.key(seed) if getattr(algorithm.estimator, "draws", False) else None
        return problem, algorithm.start(logits), logits, key

    def _put_together(self, taken: list[Array]) -> Any:
        varying = iter(taken)
        return jax.tree.unflatten(self.structure, [next(varying) if x is None else x for x in self.shared])

    def _go(self, length: int, carry: Any, start: Any, stop: Any, every: Any) -> tuple[Any, dict[str, Array]]:
        if self.by_rows:
            run_rows = rows.run_rows if self.kernel == native.JAX else native.run_rows
            return run_rows(carry, start, stop, every, rows=length, sums=needed(self.fields))

        def one(problem: Problem, algorithm: Any, logits: Any, key: Any) -> tuple[Any, dict[str, Array]]:
            sizes: dict[str, Any] = {"rows": length, "inner_steps": self.inner_steps, "observe": self._seen}
            logits, algorithm, buffer = advance(problem, algorithm, logits, key, start, stop, every, **sizes)
            return (problem, algorithm, logits, key), buffer

        return jax.vmap(one)(*carry)

    def _seen(self, *step: Any, **named: Any) -> dict[str, Array]:
        """What is recorded of a step, as one number a field; XLA leaves out what the others would take."""
        found = as_one(observed(*step, **named))
        return found if self.plan.fields is None else {name: found[name] for name in self.fields if name in found}

    def _end(self, carry: Any) -> dict[str, Array]:
        return jax.vmap(lambda problem, algorithm, logits, key: ended(problem, softmax(logits)))(*carry)


def check_lanes(name: str, lanes: int) -> int:
    """The number of lanes. Raises InputError for more than there are cores of the processor, or devices of another."""
    on_processor = jax.default_backend() == "cpu"
    most = max(jax.local_device_count(), (os.cpu_count() or 1) if on_processor else 1)
    if check_integer(name, lanes, 1) > most:
        raise InputError(f"{name} is {lanes}; wanted at most {most}, the {'cores' if on_processor else 'devices'} here")
    return lanes


def joined(parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """The parts along `axis`; a single one as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)


def as_one(record: Record) -> dict[str, Array]:
    """The fields of a record, those by state as means weighted with the visits; measures have their own names."""
    share = record.visits / jnp.sum(record.visits)
    fields = record._asdict()
    measures, _ = fields.pop("measures"), fields.pop("visits")
    means = {name: jnp.sum(jnp.where(share > 0.0, share * fields.pop(name), 0.0)) for name in _BY_STATE}
    return fields | means | measures


def ended(problem: Problem, policy: Policy) -> dict[str, Array]:
    """J and the mean entropy of the policy at the end."""
    visits = problem.visits(policy.prob)
    mean = jnp.sum(visits * policy.entropy) / jnp.sum(visits)
    return {"final_expected_return": problem.expected_return(policy.prob), "final_entropy": mean}


def _stacked(members: Sequence[Cell], dtype: str) -> tuple[list[np.ndarray], list[Any], Any]:
    """Of (problem, algorithm, logits): the leaves that differ, stacked; all, None where they differ; the tree."""
    trees = []
    for cell in members:
        parts = cell.setting.problem, cell.algorithm, np.asarray(cell.setting.logits, dtype)
        trees.append(jax.tree.flatten(with_dtype(parts, np.dtype(dtype))))
    structure = trees[0][1]
    varying, shared = [], []
    for leaves in zip(*(tree[0] for tree in trees), strict=True):
        same = all(leaf is leaves[0] or np.array_equal(leaf, leaves[0], equal_nan=True) for leaf in leaves)
        shared.append(leaves[0] if same else None)
        if not same:
            varying.append(np.stack([np.asarray(leaf) for leaf in leaves]))
    return varying, shared, structure
