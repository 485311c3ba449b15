"""Policies along runs, seen at a fixed number of points."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import quick_jit, starting_logits, step

POINTS = 60  # policies kept along a path
NOT_FINITE = (
    "its scores or its field hold NaN or ∞: check jnp.isfinite(push.score).all(), and guard 0/0, log 0 and overflow"
)


class Paths(NamedTuple):
    """Policies along R runs, P points each: numbers by run and point, nats and returns.

    inner_entropy is the entropy of the policy given success (binary rewards), its visit-weighted mean: on a bandit the
    entropy inside the correct set of each state.
    """

    step: Float[np.ndarray, " P"]
    expected_return: Float[np.ndarray, "R P"]
    entropy: Float[np.ndarray, "R P"]
    inner_entropy: Float[np.ndarray, "R P"]
    selected: Float[np.ndarray, "R I"]


def paths(
    problem: Problem,
    algorithm: Algorithm,
    *,
    num_steps: int,
    keys: Key[Array, " R"] | None = None,
    logits: Any = None,
    inner_steps: int = 1,
) -> Paths:
    """R runs of `algorithm`, one a key (one run without keys if it draws nothing), seen at `POINTS` + 1 points.

    The points are whole steps, evenly spaced but for rounding; the first is the start, the last is `num_steps`.
    Raises InputError where a run ends with NaN.
    """
    start = starting_logits(problem, logits)
    points = min(POINTS, check_integer("num_steps", num_steps, 1))
    seen_at = np.linspace(0, num_steps, points + 1).round().astype(int)
    each = num_steps // points
    shift = seen_at - each * np.arange(points + 1) if num_steps % points else None
    sizes = {"points": points, "inner_steps": check_integer("inner_steps", inner_steps, 1)}
    keys = jnp.stack([jax.random.key(0)]) if keys is None else keys
    problem, ready = with_dtype(problem, start.dtype), algorithm.start(start)
    seen, selected, ends = quick_jit(_paths, *sizes)(problem, ready, start, keys, each, shift, **sizes)
    _refuse_nan(algorithm, np.isnan(ends).any((1, 2)), num_steps)
    value, entropy, inside = (np.asarray(x) for x in seen)
    return Paths(seen_at.astype(float), value, entropy, inside, np.asarray(selected))


def _refuse_nan(algorithm: Algorithm, lost: Any, num_steps: int) -> None:
    """Raises InputError if one of the runs is `lost`."""
    if lost.any():
        parts = ", ".join(map(repr, algorithm.interventions or (algorithm.update,)))
        runs = f"{int(lost.sum())} of {len(lost)} runs"
        raise InputError(f"with {parts} the policy is NaN after {num_steps} steps in {runs}; {NOT_FINITE}")


def _paths(
    problem: Problem, algorithm: Algorithm, logits: Any, keys: Any, each: Any, shift: Any, **sizes: int
) -> tuple[Any, Any, Any]:
    return jax.vmap(lambda key: _path(problem, algorithm, logits, key, each, shift, **sizes))(keys)


def _path(
    problem: Problem,
    algorithm: Algorithm,
    logits: Any,
    key: Any,
    each: Any,
    shift: Any,
    *,
    points: int,
    inner_steps: int,
) -> tuple[Any, Any, Any]:
    """The path of one run. Point i is at step i · each + shift[i]; `shift` is None where every segment is as long."""

    def advance(t: Any, carry: Any) -> Any:
        logits, algorithm, selected = carry
        delta, algorithm, touched = step(problem, algorithm, softmax(logits), jax.random.fold_in(key, t), inner_steps)
        return logits + delta, algorithm, selected + touched

    def place(number: Any) -> Any:
        return number * each if shift is None else number * each + shift[number]

    def segment(carry: Any, number: Any) -> tuple[Any, Any]:
        carry = jax.lax.fori_loop(place(number), place(number + 1), advance, carry)
        return carry, _seen(problem, carry[0])

    carry = (logits, algorithm, jnp.zeros(len(algorithm.interventions), logits.dtype))
    (end, _, selected), seen = jax.lax.scan(segment, carry, jnp.arange(points))
    first = _seen(problem, logits)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, seen), selected / place(points), end


def _seen(problem: Problem, logits: Any) -> tuple[Any, Any, Any]:
    """(J, mean entropy, mean entropy of the policy given success) of a policy."""
    policy = softmax(logits)
    visits = problem.visits(policy.prob)
    mean = jnp.sum(visits * policy.entropy) / jnp.sum(visits)
    return problem.expected_return(policy.prob), mean, _inner_entropy(problem, policy)


def _inner_entropy(problem: Problem, policy: Policy) -> Float[Array, ""]:
    """The visit-weighted mean entropy of π₊(a|s) ∝ π(a|s) Q₊(s, a); 0 where no success follows, NaN if none exists.

    Q₊ is the expected number of rewards above ½: where one reward of 0 or 1 ends an episode it is the probability of
    success, and where actions decide everything π₊ is the policy given success.
    """
    won = jnp.where(jnp.asarray(problem.rewards) > 0.5, 1.0, 0.0).astype(policy.prob.dtype)
    success = jnp.maximum(problem.action_values(policy.prob, won), 0.0)
    possible = jnp.any((success > 0.0) & (policy.log_prob > -jnp.inf), -1)
    given = softmax(policy.logits + jnp.where(possible[:, None], jnp.log(success), 0.0))
    visits = problem.visits(given.prob)
    mean = jnp.sum(visits * jnp.where(possible, given.entropy, 0.0)) / jnp.sum(visits)
    return jnp.where(jnp.any(possible), mean, jnp.nan)


def crossing(
    along: Float[np.ndarray, "R P"], level: float, values: Float[np.ndarray, "R P"]
) -> Float[np.ndarray, " R"]:
    """`values` where `along` first crosses `level`, linear between points; NaN for a run that never does."""
    result = np.full(len(along), np.nan)
    for run, (x, y) in enumerate(zip(along - level, values, strict=True)):
        hits = np.flatnonzero((x[:-1] * x[1:] <= 0.0) & (x[:-1] != x[1:]))
        if hits.size:
            i = hits[0]
            result[run] = y[i] + (y[i + 1] - y[i]) * x[i] / (x[i] - x[i + 1])
    return result
