"""The loop: one outer step, and a run that records the exact change of entropy beside what the theory predicts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.change import Change, decompose
from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_integer, concrete
from softmaxdyn.policy import Policy, centred, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.theory import remainder_bound
from softmaxdyn.tokens import Tokens, gradient, plain_push, token_mean, touched, under
from softmaxdyn.trace import Trace
from softmaxdyn.trajectories import covariances, split

_BUFFER = 2**20  # numbers that one compiled call may record before they are handed over
_SMALL = 4096  # numbers in a table up to which compiling quickly beats compiling well
_HURRY = {  # for XLA on a CPU
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
    "xla_backend_optimization_level": 0,
}


class Record(NamedTuple):
    """One row of a trace, in the order of its fields."""

    expected_return: Float[Array, ""]
    visits: Float[Array, " S"]
    entropy: Float[Array, " S"]
    entropy_change: Float[Array, " S"]
    lemma_1: Float[Array, " S"]
    theorem_1: Float[Array, " S"]
    theorem_2: Float[Array, " S"]
    remainder: Float[Array, " S"]
    bound: Float[Array, " S"]
    kl: Float[Array, " S"]
    selected: Float[Array, " I"]
    trajectory_entropy: Float[Array, ""]
    trajectory_change: Float[Array, ""]
    local_change: Float[Array, ""]
    visitation_change: Float[Array, ""]
    visitation_prediction: Float[Array, ""]
    action_covariance: Float[Array, ""]
    sequence_covariance: Float[Array, ""]
    normalised_covariance: Float[Array, ""]
    token_covariance: Float[Array, ""]
    measures: dict[str, Array]


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    *,
    num_steps: int,
    inner_steps: int = 1,
    logits: Any = None,
    key: Key[Array, ""] | None = None,
    every: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Runs `algorithm` for `num_steps` outer steps from `logits` (default: uniform) and records every `every`-th.

    An outer step asks the estimator for tokens once and applies the interventions and the update `inner_steps` times;
    the recorded change is that of the whole outer step. The dtype of the run is that of `logits`, or else of the
    problem. Numbers (step sizes, rewards, `num_steps`, `every`) can change without a new compilation. `progress` is
    called with the number of steps done after each part of the run.

    Raises InputError for logits of the wrong shape, NaN or +∞ logits, a state without an unmasked action, counts below
    1, and a sampling estimator without `key`.
    """
    num_steps = check_integer("num_steps", num_steps, 1)
    every = check_integer("every", every, 1)
    inner_steps = check_integer("inner_steps", inner_steps, 1)
    if isinstance(problem, type) or not isinstance(problem, Problem):
        raise InputError(f"problem is {problem!r}; wanted a problem such as Bandit([1.0, 0.0])")
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"algorithm is {algorithm!r}; wanted Algorithm(update), e.g. Algorithm(VanillaPG(0.1))")
    if key is None and getattr(algorithm.estimator, "draws", False):
        raise InputError(f"{algorithm.estimator!r} draws episodes; pass key=jax.random.key(seed)")
    start = starting_logits(problem, logits)
    _check_step_size(algorithm.update, start.dtype)
    provenance = (("problem", repr(problem)), ("algorithm", repr(algorithm)), ("inner_steps", str(inner_steps)))
    return _run(problem, algorithm, start, key, num_steps, inner_steps, every, progress, provenance)


def starting_logits(problem: Problem, logits: Any = None) -> Float[Array | np.ndarray, "S A"]:
    """`logits` as a checked [S, A] table (zeros if None; [A] is taken for a problem with one state)."""
    if logits is None:
        return np.zeros(problem.shape, _dtype_of(problem))
    try:
        table = logits if isinstance(logits, jax.Array) else np.asarray(logits, getattr(logits, "dtype", float))
    except (TypeError, ValueError):
        raise InputError(f"logits are ragged or not numbers; wanted shape {problem.shape}") from None
    if table.ndim == 1 and problem.shape[0] == 1:
        table = table[None]
    if table.shape != problem.shape:
        raise InputError(f"logits have shape {table.shape}; wanted {problem.shape}, one row a state")
    if not jnp.issubdtype(table.dtype, jnp.floating):
        table = table.astype(float)
    if concrete(table):
        values = np.asarray(table)
        if np.isnan(values).any() or np.isposinf(values).any():
            raise InputError("logits hold NaN or +inf; wanted finite numbers, or -inf to mask an action")
        if np.isneginf(values).all(-1).any():
            raise InputError(f"all actions of state {int(np.isneginf(values).all(-1).argmax())} are masked; leave one")
        dtype = jax.dtypes.canonicalize_dtype(table.dtype)
        size = np.abs(np.where(np.isneginf(values), 0.0, values)).max()
        if size > _largest(dtype):
            raise InputError(f"a logit of size {size:g} overflows {dtype}; wanted sizes ≤ {_largest(dtype):.0e}")
        table = values.astype(dtype)
    return table


def _largest(dtype: Any) -> float:
    """The size of logits and of steps that leaves room for 10⁸ of them."""
    return float(jnp.finfo(dtype).max) * 1e-8


def _check_step_size(update: Any, dtype: Any) -> None:
    size = getattr(update, "step_size", None)
    if size is None or not hasattr(update, "init"):
        raise InputError(f"update is {update!r}; wanted one with a step_size and init, such as VanillaPG(0.1)")
    if np.ndim(size):
        raise InputError(f"step_size has shape {np.shape(size)}; wanted one number (jax.vmap runs several)")
    if concrete(size) and float(size) > float(jnp.finfo(dtype).max):
        raise InputError(
            f"step_size {float(size):g} overflows {dtype}; wanted at most {float(jnp.finfo(dtype).max):.0e}"
        )


def step(
    problem: Problem,
    algorithm: Algorithm,
    policy: Policy,
    key: Key[Array, ""] | None = None,
    inner_steps: int = 1,
) -> tuple[Float[Array, "S A"], Algorithm, Float[Array, " I"]]:
    """One outer step: (δ, the algorithm for the next step, share of the tokens touched by each intervention)."""
    keys = None if key is None else jax.random.split(key, inner_steps + 1)
    tokens = algorithm.estimator(None if keys is None else keys[0], problem, policy)
    inner_keys = keys[1:] if keys is not None and getattr(algorithm.estimator, "draws", True) else None

    def inner(carry: Any, inner_key: Any, first: Policy | None = None) -> tuple[Any, None]:
        delta, update, selected = carry
        now = softmax(policy.logits + delta) if first is None else first
        push, shares = pushed(algorithm.interventions, inner_key, under(tokens, now), now)
        move, update = update(gradient(tokens, push, now), now, problem.visits(now.prob))
        return (delta + _bounded(move, now), update, selected + shares), None

    untouched = jnp.zeros(len(algorithm.interventions), policy.logits.dtype)
    carry = (jnp.zeros_like(policy.logits), algorithm.update, untouched)
    if inner_steps == 1:
        carry, _ = inner(carry, None if inner_keys is None else inner_keys[0], policy)
    else:
        carry, _ = jax.lax.scan(inner, carry, inner_keys, inner_steps)
    delta, update, selected = carry
    estimator, interventions = algorithm.estimator, algorithm.interventions
    if interventions or jax.tree.leaves(estimator):
        after = softmax(policy.logits + delta)
        estimator = estimator.next(under(tokens, after), after)
        interventions = tuple(part.next(under(tokens, after), after) for part in interventions)
    return delta, Algorithm(update, estimator, interventions), selected / inner_steps


def _bounded(move: Float[Array, "S A"], policy: Policy) -> Float[Array, "S A"]:
    """The step, finite. One so large that it would drown the logits is taken relative to the largest of its state."""
    limit = _largest(move.dtype)
    move = jnp.clip(move, -limit, limit)
    top = jnp.max(jnp.where(policy.log_prob > -jnp.inf, move, -limit), -1, keepdims=True)
    return jnp.where(top > 1e3, move - top, move)


def pushed(interventions: tuple[Any, ...], key: Any, tokens: Tokens, policy: Policy) -> tuple[Any, Float[Array, " I"]]:
    """(the push after all interventions, share of the tokens that each of them touched)."""
    push, shares = plain_push(tokens, policy.prob.shape), []
    for number, intervention in enumerate(interventions):
        before = push._replace(selected=jnp.zeros_like(push.score))
        push = intervention(None if key is None else jax.random.fold_in(key, number), tokens, policy, before)
        shares.append(token_mean(tokens, touched(before, push)))
    return push, jnp.stack(shares) if shares else jnp.zeros(0, policy.prob.dtype)


def observed(problem: Problem, step_size: Any, policy: Policy, delta: Any, selected: Float[Array, " I"]) -> Record:
    """The row of a step δ from `policy`; `step_size` is that of the whole outer step."""
    visits, covariance = problem.visits(policy.prob), covariances(problem, policy)
    states = by_state(policy, delta, visits, problem.action_values(policy.prob), step_size)
    return Record(
        expected_return=problem.expected_return(policy.prob),
        visits=visits,
        **states,
        selected=selected,
        trajectory_entropy=jnp.sum(visits * policy.entropy),
        **split(problem, policy, delta, states["entropy_change"])._asdict(),
        **{f"{name}_covariance": value for name, value in covariance._asdict().items()},
        measures=problem.measures(policy),
    )


def by_state(
    policy: Policy, delta: Array, visits: Array, value: Array, step_size: Any, axis: int = -1
) -> dict[str, Array]:
    """The fields of a `Record` with one number a state; `value` is Q, the actions lie along `axis`."""
    change: Change = decompose(policy, delta, axis)
    advantage = centred(policy, value, axis)
    slope = policy.prob * policy.centred_log_prob
    return {
        "entropy": policy.entropy,
        "entropy_change": change.entropy_change,
        "lemma_1": -change.covariance,
        "theorem_1": -step_size * visits * jnp.sum(slope * centred(policy, policy.prob * advantage, axis), axis),
        "theorem_2": -step_size * (visits > 0.0) * jnp.sum(slope * advantage, axis),
        "remainder": change.remainder,
        "bound": remainder_bound(policy.logits, delta, axis),
        "kl": change.kl,
    }


def advance(
    problem: Problem,
    algorithm: Algorithm,
    logits: Any,
    key: Any,
    start: Any,
    stop: Any,
    every: Any,
    *,
    rows: int,
    inner_steps: int,
    observe: Callable[..., Any] = observed,
) -> tuple[Any, Any, Any]:
    """(logits, algorithm, rows) after the steps start … stop−1 of a run that `Algorithm.start` began.

    What `observe` returns is kept at start, start + every, …: at most `rows` rows, the rest of the buffer is 0.
    """

    def body(t: Any, carry: Any) -> Any:
        logits, algorithm, row, wait, record, buffer = carry
        policy = softmax(logits)
        step_key = None if key is None else jax.random.fold_in(key, t)
        delta, following, selected = step(problem, algorithm, policy, step_key, inner_steps)
        due = wait == 0
        new = partial(observe, problem, following.update.step_size * inner_steps, policy, delta, selected)
        record = jax.lax.cond(due, new, lambda: record)
        row, wait = row + due, jnp.where(due, every, wait) - 1
        buffer = jax.tree.map(
            lambda table, value: jax.lax.dynamic_update_index_in_dim(table, value, row, 0), buffer, record
        )
        return logits + delta, following, row, wait, record, buffer

    untouched = jnp.zeros(len(algorithm.interventions), logits.dtype)
    blank = partial(observe, problem, 0.0, delta=logits, selected=untouched)
    record = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda z: blank(softmax(z)), logits))
    buffer = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), record)
    carry = (logits, algorithm, jnp.int32(-1), jnp.int32(0), record, buffer)
    logits, algorithm, *_, buffer = jax.lax.fori_loop(start, stop, body, carry)
    return logits, algorithm, buffer


def _chunk(problem: Problem, *arguments: Any, **sizes: Any) -> tuple[Any, Any, Record, Any, Any]:
    logits, algorithm, buffer = advance(problem, *arguments, **sizes)
    final = softmax(logits)
    return logits, algorithm, buffer, problem.expected_return(final.prob), final.entropy


def quick_options() -> dict[str, Any] | None:
    """Options for `jax.jit` with which XLA compiles in half the time, to slower code; None where it has none."""
    return _HURRY if jax.default_backend() == "cpu" else None


@cache
def quick_jit(function: Callable[..., Any], *static_names: str) -> Callable[..., Any]:
    """`jax.jit` that tells the compiler to hurry: for a small table its time is most of a short run."""
    return jax.jit(function, static_argnames=static_names, compiler_options=quick_options())


_full_jit = jax.jit(_chunk, static_argnames=("rows", "inner_steps"))


def _run(
    problem: Problem,
    algorithm: Algorithm,
    logits: Any,
    key: Any,
    num_steps: int,
    inner_steps: int,
    every: int,
    progress: Any,
    provenance: Any,
) -> Trace:
    problem, algorithm = with_dtype(problem, logits.dtype), algorithm.start(logits)
    rows = int(np.clip(_BUFFER // (10 * problem.shape[0]), 1, 1024))
    parts = []
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((problem, algorithm, logits, key)))
    chunk = _full_jit if traced or logits.size > _SMALL else quick_jit(_chunk, "rows", "inner_steps")
    for start in range(0, num_steps, rows * every):
        stop = min(start + rows * every, num_steps)
        logits, algorithm, buffer, final_return, final_entropy = chunk(
            problem, algorithm, logits, key, start, stop, every, rows=rows, inner_steps=inner_steps
        )
        parts.append(jax.tree.map(lambda x, n=-(-(stop - start) // every): _hold(x)[:n], buffer))
        if progress is not None:
            progress(stop)
    joined = jax.tree.map(lambda *xs: (np if isinstance(xs[0], np.ndarray) else jnp).concatenate(xs), *parts)
    return Trace(
        step=np.arange(0, num_steps, every),
        **joined._asdict(),
        logits=_hold(logits),
        final_expected_return=_hold(final_return),
        final_entropy=_hold(final_entropy),
        provenance=provenance,
    )


def _hold(x: Any) -> Any:
    return np.asarray(x) if concrete(x) else x


def _dtype_of(problem: Problem) -> Any:
    kinds = [
        leaf.dtype for leaf in jax.tree.leaves(problem) if jnp.issubdtype(getattr(leaf, "dtype", int), jnp.floating)
    ]
    return jax.dtypes.canonicalize_dtype(np.result_type(*kinds) if kinds else float)
