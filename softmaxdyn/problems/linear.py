"""Sums over a Markov chain that stops, (I − M)⁻¹ x, by an elimination in which nothing is subtracted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax.linalg import triangular_solve
from jaxtyping import Array, Float

_BLOCK = 64  # states up to which a loop over them beats the products of matrices


def expected_sum(
    moves: Float[Array, "S S"], stop: Float[Array, " S"], values: Float[Array, " S"]
) -> Float[Array, " S"]:
    """V = (I − M)⁻¹ x: the expected sum of x over the states of a chain, by its first state.

    M(s, s') is the chance to go from s to s', `stop` the chance to end in s, known to its own last digit: the diagonal
    of M is taken for what the others leave of 1.

    error     a few eps of (I − M)⁻¹|x|, however small `stop` is (LU with refinement loses the digits of 1/stop)
    gradient  of (I − M)⁻¹ x with respect to M and x
    source    the elimination of Grassmann, Taksar and Heyman 1985; its error: O'Cinneide 1993
    test      tests/test_mdp.py::test_near_discount_one_no_digit_is_lost
    """
    factors = _factors(moves, stop)
    return jax.lax.custom_linear_solve(
        lambda v: v - _product(moves, v),
        values,
        lambda _, x: _substitute(factors, x),
        lambda _, x: _substitute_transposed(factors, x),
    )


def expected_visits(
    moves: Float[Array, "S S"], stop: Float[Array, " S"], start: Float[Array, " S"]
) -> Float[Array, " S"]:
    """d = (I − Mᵀ)⁻¹ w: the expected number of visits to each state of a chain that starts from w.

    Error, gradient and source as in `expected_sum`; states that are out of reach get 0 exactly.
    """
    factors = _factors(moves, stop)
    return jax.lax.custom_linear_solve(
        lambda d: d - _product(d, moves),
        start,
        lambda _, w: _substitute_transposed(factors, w),
        lambda _, w: _substitute(factors, w),
    )


def without_loops(moves: Float[Array, "S S"], stop: Float[Array, " S"]) -> Float[Array, "S S"]:
    """I − M, the diagonal as the sum of what leaves a state."""
    away = jnp.where(jnp.eye(stop.shape[0], dtype=bool), 0.0, moves)
    return jnp.diag(stop + jnp.sum(away, -1)) - away


def relative_residual(
    matrix: Float[Array, "S S"], solution: Float[Array, " S"], right: Float[Array, " S"]
) -> Float[Array, ""]:
    """max_i |b − A x|_i / (|b| + |A||x|)_i, 0/0 = 0: by how much A and b must change for x to be exact.

    source  Oettli and Prager 1964
    """
    scale = jnp.abs(right) + _product(jnp.abs(matrix), jnp.abs(solution))
    return jnp.max(jnp.abs(right - _product(matrix, solution)) / jnp.where(scale > 0.0, scale, 1.0))


def eliminate(moves: Float[Array, "S S"], stop: Float[Array, " S"]) -> Float[Array, "S S"]:
    """F, with I − M = U L: U is F above the diagonal and 1 on it, L the rest of F. Halves while S > 64."""
    states = stop.shape[0]
    if states <= _BLOCK:
        return _eliminate_by_state(moves, stop)
    h = states // 2
    last = eliminate(moves[h:, h:], stop[h:] + jnp.sum(moves[h:, :h], -1))
    leaving = jnp.concatenate([moves[h:, :h], stop[h:, None]], 1)
    leaving = triangular_solve(last, leaving, left_side=True, unit_diagonal=True)
    entering = triangular_solve(last, moves[:h, h:], left_side=False, lower=True)
    detour = _product(entering, leaving)
    first = eliminate(moves[:h, :h] + detour[:, :h], stop[:h] + detour[:, h])
    return jnp.block([[first, -entering], [-leaving[:, :h], last]])


def _eliminate_by_state(moves: Float[Array, "S S"], stop: Float[Array, " S"]) -> Float[Array, "S S"]:
    """The last state first: what went through it goes on to the earlier ones, or stops."""
    states = stop.shape[0]
    index = jnp.arange(states)

    def skip(count: int | Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        flow, stop = carry
        k = states - 1 - count
        leaving = jnp.where(index < k, flow[k], 0.0)
        pivot = stop[k] + jnp.sum(leaving)
        entering = jnp.where(index < k, flow[:, k], 0.0) / pivot
        column = jnp.where(index < k, entering, jnp.where(index == k, -pivot, flow[:, k]))
        return (flow + entering[:, None] * leaving).at[:, k].set(column), stop + entering * stop[k]

    return -jax.lax.fori_loop(0, states, skip, (moves, stop))[0]


def _factors(moves: Float[Array, "S S"], stop: Float[Array, " S"]) -> Float[Array, "S S"]:
    return eliminate(jax.lax.stop_gradient(moves), jax.lax.stop_gradient(stop))


def _substitute(factors: Float[Array, "S S"], right: Float[Array, " S"]) -> Float[Array, " S"]:
    half = triangular_solve(factors, right[:, None], left_side=True, unit_diagonal=True)
    return triangular_solve(factors, half, left_side=True, lower=True)[:, 0]


def _substitute_transposed(factors: Float[Array, "S S"], right: Float[Array, " S"]) -> Float[Array, " S"]:
    half = triangular_solve(factors, right[:, None], left_side=True, lower=True, transpose_a=True)
    return triangular_solve(factors, half, left_side=True, unit_diagonal=True, transpose_a=True)[:, 0]


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
