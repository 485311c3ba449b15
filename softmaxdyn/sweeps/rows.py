"""The fast path of the engine: exact vanilla and natural PG on bandits, all states of all runs as rows, actions first.

The formulas are those of the package, along axis 0 of [K, rows]; only the layout differs. A tile of rows stays in the
cache for all its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from softmaxdyn.estimators import Exact
from softmaxdyn.policy import centred, softmax
from softmaxdyn.problems import Bandit
from softmaxdyn.rewards import TrueReward
from softmaxdyn.simulation import by_state
from softmaxdyn.sweeps.plan import RECORDED, Cell
from softmaxdyn.updates import NaturalPG, VanillaPG

TILE = 2**12  # numbers of a table [K, rows] that stay in the cache
_LONGEST = 1e3  # |δ| up to which `simulate` takes a step as it is
_SAME = {"trajectory_entropy": "entropy", "trajectory_change": "entropy_change", "local_change": "entropy_change"}
_COVARIANCES = ("action_covariance", "sequence_covariance", "normalised_covariance", "token_covariance")
_BY_STATE = ("entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl")
SUMS = (*_BY_STATE, "expected_return", "covariance")
"""What is summed over the states of a run at a recorded step, each x as Σ_s w_s x_s."""


def fits(cell: Cell) -> bool:
    """Whether the cell is exact vanilla or natural PG on a bandit, without interventions and with moderate steps."""
    problem, algorithm = cell.setting.problem, cell.algorithm
    plain = type(algorithm.update) in (VanillaPG, NaturalPG) and not algorithm.interventions
    estimator = algorithm.estimator
    if (
        type(problem) is not Bandit
        or not plain
        or type(estimator) is not Exact
        or estimator.advantage is not None
        or cell.inner_steps != 1
    ):
        return False
    longest = np.max(np.asarray(problem.weights)) if type(algorithm.update) is VanillaPG else 1.0
    reach = np.max(np.ptp(np.asarray(problem.rewards), -1)) * float(algorithm.update.step_size)
    return type(estimator.reward) is TrueReward and bool(reach * longest <= _LONGEST)


def needed(fields: Sequence[str]) -> tuple[str, ...]:
    """Those of SUMS that the fields are made of; at least one, which tells how many runs and steps there are."""
    found = {"covariance" if name in _COVARIANCES else _SAME.get(name, name) for name in fields}
    return tuple(name for name in SUMS if name in found) or SUMS[:1]


def run_rows(
    carry: Any, start: Any, stop: Any, every: Any, *, rows: int, sums: Sequence[str]
) -> tuple[Any, dict[str, Float[Array, "B T"]]]:
    """`simulation.advance` for a block of B runs that `fits`: (the carry after the steps, Σ_s w_s x_s for `sums`)."""
    problem, algorithm, logits, key = carry
    runs, states, actions = logits.shape
    natural = type(algorithm.update) is NaturalPG
    width = min(states, max(1, TILE // (runs * actions)))
    count = -(-states // width)

    def tiles(table: Array) -> Array:
        """[B, S, …] as [tiles, …, B·width]: actions before rows."""
        padded = jnp.pad(table, ((0, 0), (0, count * width - states), *((0, 0),) * (table.ndim - 2)))
        return jnp.moveaxis(padded.reshape(runs, count, width, -1), (1, 3), (0, 1)).reshape(count, -1, runs * width)

    weight = jnp.broadcast_to(jnp.asarray(problem.weights), (runs, states))
    step_size = jnp.repeat(jnp.broadcast_to(algorithm.update.step_size, (runs,)), width)
    reward = jnp.broadcast_to(jnp.asarray(problem.rewards), logits.shape)

    def walk(tile: tuple[Array, ...]) -> tuple[Array, dict[str, Array]]:
        logits, reward, weight = tile
        size = step_size if natural else step_size * weight[0]

        def body(t: Any, state: Any) -> Any:
            logits, row, wait, record, buffer = state
            policy = softmax(logits, 0)
            advantage = centred(policy, reward, 0)
            delta = size * advantage if natural else size * policy.prob * advantage
            due = wait == 0
            record = jax.lax.cond(due, lambda: look(policy, delta, reward, weight[0]), lambda: record)
            row, wait = row + due, jnp.where(due, every, wait) - 1
            put = jax.lax.dynamic_update_index_in_dim
            buffer = {name: put(table, record[name], row, 0) for name, table in buffer.items()}
            return logits + delta, row, wait, record, buffer

        def look(policy: Any, delta: Array, reward: Array, weight: Array) -> dict[str, Array]:
            """Σ_s w_s x_s of each field, by run."""
            fields = by_state(policy, delta, weight, reward, step_size, 0)
            fields["expected_return"] = jnp.sum(policy.prob * reward, 0)
            fields["covariance"] = jnp.sum(policy.prob * policy.centred_log_prob * centred(policy, reward, 0), 0)
            parts = {name: jnp.where(weight > 0.0, weight * fields[name], 0.0) for name in sums}
            return {name: jnp.sum(x.reshape(runs, width), 1) for name, x in parts.items()}

        shapes = jax.eval_shape(lambda: look(softmax(logits, 0), logits, reward, weight[0]))
        record = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        buffer = {name: jnp.zeros((rows, *x.shape), x.dtype) for name, x in record.items()}
        state = jax.lax.fori_loop(start, stop, body, (logits, jnp.int32(-1), jnp.int32(0), record, buffer))
        return state[0], state[-1]

    moved, seen = jax.lax.map(walk, (tiles(logits), tiles(reward), tiles(weight[..., None])))
    back = jnp.moveaxis(moved.reshape(count, actions, runs, width), (0, 1), (1, 3)).reshape(runs, -1, actions)
    return (problem, algorithm, back[:, :states], key), {name: jnp.sum(x, 0).T for name, x in seen.items()}


def as_fields(
    sums: dict[str, Float[np.ndarray, "B T"]], weight: Float[np.ndarray, "B S"], fields: Sequence[str]
) -> dict[str, np.ndarray]:
    """The fields of runs seen as one, of the sums that `run_rows` gives; on a bandit the visits do not move.

    By NumPy: XLA may or may not turn a division into a product, and the bits are to be the same on any devices.
    """
    first = next(iter(sums.values()))
    total = np.sum(weight, 1, keepdims=True)

    def mean(name: str) -> np.ndarray:
        return sums[name] if np.all(total == 1.0) else sums[name] / total

    def field(name: str) -> np.ndarray:
        if name.startswith("visitation"):
            return np.zeros_like(first)
        if name == "selected":
            return np.zeros((*first.shape, 0), first.dtype)
        if name in _COVARIANCES:
            return mean("covariance") if name == "token_covariance" else sums["covariance"]
        whole = name in _SAME or name == "expected_return"
        return sums[_SAME.get(name, name)] if whole else mean(name)

    return {name: field(name) for name in fields if name in RECORDED}
