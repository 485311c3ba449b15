"""What a person may type for an MDP, checked and made into tables."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn.errors import InputError, check_integer, check_number, concrete

LARGEST = 2**28  # numbers in one table
_LARGEST_REWARD = 1e20  # adds up to less than the largest float32
_LARGEST_LENGTH = 2**24


def transition_table(transitions: Any) -> Any:
    """[S, A, S] numbers; their values are not looked at yet."""
    table = _numbers("transitions", transitions, "[S, A, S] numbers")
    if table.ndim != 3 or table.shape[0] != table.shape[2] or 0 in table.shape:
        raise InputError(f"transitions have shape {table.shape}; wanted [S, A, S]: the chance of s' after a in s")
    check_size("transitions", table.shape)
    return table


def terminal_states(terminal: Any, states: int) -> tuple[int, ...]:
    """The numbers of the terminal states, in order; given as numbers or as [S] booleans."""
    try:
        array = np.atleast_1d(np.asarray(terminal))
    except (TypeError, ValueError):
        raise InputError(f"terminal is {terminal!r}; wanted state numbers, or one boolean a state") from None
    if array.dtype.kind == "b" and array.shape == (states,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"terminal is {terminal!r}; wanted state numbers, or one boolean a state ({states})")
    for number in array:
        _check_state("terminal names", number, states)
    if len(set(array.tolist())) == states:
        raise InputError("all states are terminal; wanted one that is not")
    return tuple(sorted(set(array.tolist())))


def stochastic(table: Any, terminal: tuple[int, ...]) -> Any:
    """The table with its values checked. Rows of terminal states may hold anything: the state stays where it is."""
    if terminal:
        states = table.shape[0]
        ended, stay = np.isin(np.arange(states), terminal)[:, None, None], np.eye(states, dtype=table.dtype)[:, None]
        table = (np if concrete(table) else jnp).where(ended, stay, table)
    if not concrete(table):
        return table
    if not (table >= 0.0).all():
        s, a, after = np.argwhere(~(table >= 0.0))[0]
        raise InputError(
            f"the chance of state {after} after action {a} in state {s} is {table[s, a, after]:g}; wanted numbers ≥ 0"
        )
    off = np.abs(table.sum(-1) - 1.0)
    if not (off <= _tolerance(table)).all():
        s, a = np.argwhere(~(off <= _tolerance(table)))[0]
        advice = "type transitions / transitions.sum(-1, keepdims=True)"
        raise InputError(f"the chances after action {a} in state {s} sum to {table[s, a].sum():.10g}, not 1; {advice}")
    return table


def reward_table(rewards: Any, transitions: Any, terminal: tuple[int, ...], horizon: int | None) -> Any:
    """[S, A], or [T·S, A] with a horizon: the expectation over s'; 0 in terminal states."""
    table = _numbers("rewards", rewards, "[S, A] or [S, A, S] numbers")
    states, actions, _ = transitions.shape
    rows = states * (horizon or 1)
    check_size("a policy", (rows, actions))
    if table.shape not in ((states, actions), (states, actions, states), (rows, actions)):
        timed = "" if horizon is None else f" or [T·S, A] = {(rows, actions)}"
        shapes = f"[S, A] = {(states, actions)} or [S, A, S] = {transitions.shape}{timed}"
        raise InputError(f"rewards have shape {table.shape}; wanted {shapes}")
    ended = np.isin(np.arange(table.shape[0]) % states, terminal).reshape(-1, *[1] * (table.ndim - 1))
    table = (np if concrete(table) else jnp).where(ended, 0.0, table)
    if concrete(table):
        _check_rewards(table)
    on = np if concrete(table) and concrete(transitions) else jnp
    expected = table if table.ndim == 2 else on.sum(transitions * table, -1)
    return on.tile(expected, (rows // expected.shape[0], 1))


def start_table(start: Any, states: int, terminal: tuple[int, ...], horizon: int | None, dtype: Any) -> Any:
    """[S], or [T·S] with a horizon: the chance that an episode begins in each state, given so or as one number."""
    rows = states * (horizon or 1)
    table = _numbers(
        "start", 0 if start is None else start, "a state number, or one chance a state", keep_integers=True
    )
    if table.ndim == 0 and jnp.issubdtype(table.dtype, jnp.integer):
        if concrete(table):
            _check_state("start is", table, states)
        table = (np.arange(states) == table) * np.ones((), dtype)
    if table.shape not in ((states,), (rows,)):
        raise InputError(f"start has shape {table.shape}; wanted a state number, or one chance a state: ({states},)")
    if concrete(table):
        _check_start(table, states, terminal)
    on = np if concrete(table) else jnp
    return on.pad(table, (0, rows - table.shape[0])).astype(dtype)


def discount_number(discount: Any, horizon: int | None) -> Any:
    """γ as a Python float (or a tracer as it is): in [0, 1) without a horizon, in [0, 1] with one."""
    if np.ndim(discount):
        raise InputError(f"discount has shape {np.shape(discount)}; wanted one number (jax.vmap runs several)")
    check_number("discount", discount)
    if not concrete(discount):
        return discount
    if horizon is None and not 0.0 <= discount < 1.0:
        raise InputError(f"discount is {discount:g}; wanted one in [0, 1), or an end of time: pass horizon=…")
    check_number("discount", discount, 0.0, 1.0)
    return float(discount)


def episode_length(discount: Any, horizon: int | None, length: int | None) -> int | None:
    """The steps that a discounted episode is played for; None where nobody can know."""
    if length is not None:
        if horizon is not None:
            raise InputError(f"length is {length}, but horizon {horizon} already ends an episode; leave one out")
        return check_integer("length", length, 1)
    if not concrete(discount) or discount == 1.0:
        return None
    return 1 if discount <= 1e-6 else math.ceil(math.log(1e-6) / math.log(discount) * (1.0 - 1e-12))


def check_length(steps: int | None) -> int:
    """`steps`. Raises InputError where they are unknown, or too many to play."""
    if steps is None:
        raise InputError("the length of an episode is unknown, since discount is traced; pass length=… (steps)")
    if steps > _LARGEST_LENGTH:
        raise InputError(f"an episode may last {steps:,} steps; pass length=… (at most {_LARGEST_LENGTH:,})")
    return steps


def check_size(name: str, shape: tuple[int, ...]) -> None:
    """Raises InputError for a table of more than 2²⁸ numbers."""
    count = math.prod(shape)
    if count > LARGEST:
        size = f"{count:,} numbers, {count * 8 / 2**30:.1f} GiB in float64"
        raise InputError(f"{name} of shape {shape} would hold {size}; wanted at most {LARGEST:,}")


def _numbers(name: str, value: Any, wanted: str, keep_integers: bool = False) -> Any:
    if isinstance(value, jax.core.Tracer):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"cannot read {name}: ragged or not numbers; wanted {wanted}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"cannot read {name}: type {array.dtype}; wanted {wanted}")
    if keep_integers and array.dtype.kind in "iu":
        return array
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if single else float, copy=False)


def _check_state(what: str, number: Any, states: int) -> None:
    if not 0 <= number < states:
        raise InputError(f"{what} state {number}; wanted a state number, 0 … {states - 1}")


def _check_rewards(table: np.ndarray) -> None:
    wrong = ~(np.abs(table) <= _LARGEST_REWARD)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise InputError(
            f"the reward of action {place[1]} in state {place[0]} is {table[tuple(place)]:g}; "
            f"wanted finite numbers of size ≤ {_LARGEST_REWARD:g}"
        )


def _check_start(table: np.ndarray, states: int, terminal: tuple[int, ...]) -> None:
    if not (table >= 0.0).all():
        s = int(np.argmin(table >= 0.0))
        raise InputError(f"the chance to start in state {s} is {table[s]:g}; wanted numbers ≥ 0")
    if not abs(table.sum() - 1.0) <= _tolerance(table):
        raise InputError(f"the chances to start sum to {table.sum():.10g}, not 1; type start / start.sum()")
    if table[states:].any():
        raise InputError("an episode would start after time 0; wanted one chance a state, for time 0")
    for s in terminal:
        if table[s] > 0.0:
            raise InputError(f"state {s} is terminal, and an episode would start there; pass another start=…")


def _tolerance(table: np.ndarray) -> float:
    """What rounding can do to a sum of chances."""
    return 16.0 * table.shape[-1] * float(np.finfo(np.float32 if table.dtype == np.float32 else np.float64).eps)
