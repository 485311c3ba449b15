"""Hypothesis strategies for policies, steps and bandits, so that you can property-test a theorem of your own.

    @given(policies())
    def test_rewarding_an_action_of_above_uniform_probability_lowers_the_entropy(logits):
        above = probs(logits) > 1 / NUM_ACTIONS + 1e-9
        assert (sample_effect(logits)[above] <= 1e-12).all()

fails, as it should, with a small counterexample such as (0, 0, 2, 3). Arrays are JAX arrays of `dtype` ("float32" or
"float64"; by default what JAX makes of a Python float). Sizes are fixed or come from a short list, since each new shape
compiles. Adversarial corners are always included, and failures shrink to zeros, ones and equal entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

try:
    from hypothesis import strategies as st
    from hypothesis.extra.numpy import arrays
except ModuleNotFoundError as error:
    message = "softmaxdyn.strategies needs hypothesis; type pip install 'softmaxdyn[strategies]'"
    raise ModuleNotFoundError(message, name=error.name) from None

from softmaxdyn.errors import InputError, check_choice, check_integer
from softmaxdyn.problems import Bandit

NUM_ACTIONS = 4
"""K where none is given: one number for `policies()` and `steps()`, so that they fit together."""

SIZES = (2, 4, 10)
"""K of `moves()` and `bandits()` where none is given."""

Sizes = Any  # a whole number, or a list or tuple of them to draw from
Masks = Callable[[int], st.SearchStrategy[Any]]

_RAREST = {"float64": 1e-300, "float32": 1e-30}
_GAP = 40.0
_NEAR = 1e-8
_DENSE = 64  # entries up to which each is drawn; beyond, most take one common value


def policies(num_actions: Sizes = NUM_ACTIONS, *, dtype: Any = None, mask: Masks | None = None) -> st.SearchStrategy:
    """Logits [K] of one state: uniform, ties, within 1e-8 of uniform, a gap of 40, probabilities down to 1e-300.

    `@given(policies(), steps())` gives pairs that fit: both have K = NUM_ACTIONS unless `num_actions` says otherwise
    (a whole number, or a list to draw from; for pairs of varying K see `moves`). `mask=masks` masks some actions with
    −∞. In float32 the rarest probability is 1e-30. Raises InputError for sizes below 1 and for other dtypes.
    """
    name = _dtype(dtype)
    return _sizes("num_actions", num_actions).flatmap(lambda k: _policies(k, name, mask))


def logits(
    num_states: Sizes = 2, num_actions: Sizes = NUM_ACTIONS, *, dtype: Any = None, mask: Masks | None = None
) -> st.SearchStrategy:
    """Logits [S, K], each row as in `policies`."""
    name = _dtype(dtype)
    sizes = st.tuples(_sizes("num_states", num_states), _sizes("num_actions", num_actions))
    return sizes.flatmap(lambda size: _stack(_policies(size[1], name, mask), size[0]))


def steps(num_actions: Sizes = NUM_ACTIONS, *, dtype: Any = None) -> st.SearchStrategy:
    """Steps δ [K] of the logits, of size 1e-12 … 10: none, one logit, several, all by the same amount, plus a shift."""
    name = _dtype(dtype)
    return _sizes("num_actions", num_actions).flatmap(lambda k: _steps(k, name))


def moves(num_actions: Sizes = SIZES, *, dtype: Any = None, mask: Masks | None = None) -> st.SearchStrategy:
    """Pairs (logits, δ), as in `policies` and `steps`, of one K drawn from `num_actions`."""
    name = _dtype(dtype)
    return _sizes("num_actions", num_actions).flatmap(lambda k: st.tuples(_policies(k, name, mask), _steps(k, name)))


def masks(num_actions: Sizes = NUM_ACTIONS) -> st.SearchStrategy:
    """Bool [K], True where the action is allowed: at least once, and everywhere in the simplest case."""
    return _sizes("num_actions", num_actions).flatmap(_masks)


def bandits(num_states: Sizes = (1, 2), num_actions: Sizes = SIZES, *, dtype: Any = None) -> st.SearchStrategy:
    """`Bandit`s with rewards [S, K]: right or wrong, ties, real numbers in [−3, 3]; contexts as in its default."""
    name = _dtype(dtype)
    sizes = st.tuples(_sizes("num_states", num_states), _sizes("num_actions", num_actions))
    return sizes.flatmap(lambda size: _rewards(size, name).map(Bandit))


@cache
def _policies(num_actions: int, dtype: str | None, mask: Masks | None) -> st.SearchStrategy:
    deepest = math.log(_RAREST[dtype or _default_dtype()])
    small = _array(num_actions, st.integers(0, 3))
    table = st.one_of(
        st.just(np.zeros(num_actions)),
        _one_hot(num_actions, st.sampled_from([1.0, _GAP, -deepest])),
        small,
        _array(num_actions, _reals(10.0)),
        small.map(lambda z: _NEAR * z),
        _array(num_actions, st.sampled_from([0.0, -_GAP, deepest / 2, deepest])),
    )
    if mask is not None:
        table = st.builds(lambda allowed, z: np.where(allowed, z, -np.inf), mask(num_actions), table)
    return table.map(lambda z: jnp.asarray(z, dtype))


@cache
def _steps(num_actions: int, dtype: str | None) -> st.SearchStrategy:
    size = st.integers(0, 12).map(lambda n: 10.0**-n)
    small = _array(num_actions, st.integers(-10, 10))
    pattern = st.one_of(
        st.just(np.zeros(num_actions)),
        _one_hot(num_actions, _reals(10.0)),
        _reals(10.0).map(lambda c: np.full(num_actions, c)),
        small,
        _array(num_actions, _reals(10.0)),
    )
    shifted = st.builds(np.add, small, st.integers(-10, 10))
    return st.one_of(st.builds(np.multiply, pattern, size), shifted).map(lambda x: jnp.asarray(x, dtype))


@cache
def _rewards(size: tuple[int, int], dtype: str | None) -> st.SearchStrategy:
    table = st.one_of(_array(size, st.integers(0, 1)), _array(size, st.integers(-2, 2)), _array(size, _reals(3.0)))
    return table.map(lambda r: jnp.asarray(r, dtype))


@cache
def _masks(num_actions: int) -> st.SearchStrategy:
    hidden = _array(num_actions, st.booleans()).map(lambda x: x.astype(bool))
    kept = st.integers(0, num_actions - 1)
    return st.builds(lambda hidden, kept: ~hidden | (np.arange(num_actions) == kept), hidden, kept)


def _reals(bound: float) -> st.SearchStrategy:
    return st.floats(-bound, bound).map(lambda x: round(x, 3) + 0.0)


def _array(shape: int | tuple[int, int], elements: st.SearchStrategy) -> st.SearchStrategy:
    values = elements.map(float)
    dense = np.prod(shape) <= _DENSE
    return arrays(float, shape, elements=values, fill=st.nothing() if dense else values)


def _one_hot(num_actions: int, value: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(lambda a, x: x * (np.arange(num_actions) == a), st.integers(0, num_actions - 1), value)


def _stack(row: st.SearchStrategy, count: int) -> st.SearchStrategy:
    return st.lists(row, min_size=count, max_size=count).map(jnp.stack)


def _sizes(name: str, sizes: Sizes) -> st.SearchStrategy[int]:
    if isinstance(sizes, list | tuple) and sizes:
        return st.sampled_from([check_integer(name, size, 1) for size in sizes])
    return st.just(check_integer(name, sizes, 1))


def _default_dtype() -> str:
    return str(jax.dtypes.canonicalize_dtype(float))


def _dtype(dtype: Any) -> str | None:
    if dtype is None:
        return None
    name = check_choice("dtype", dtype if isinstance(dtype, str) else np.dtype(dtype).name, _RAREST)
    if name == "float64" and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise InputError("dtype is 'float64', which is off in JAX; type jax.config.update('jax_enable_x64', True)")
    return name
