"""Compatible function approximation: the fit of the advantage by features, exact however peaked the policy is.

Least squares with weights d(s) π(a|s) that span hundreds of orders of magnitude: an SVD of the weighted rows loses
every action below about eps² of the most probable one. Here rows enter in the order of their weights, and whether one
adds a direction is asked of the row alone, not of its weight.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from softmaxdyn.policy import Policy, centred, floored_prob

_dot = partial(jnp.matmul, precision="highest")


class RowSpace(NamedTuple):
    """rows = lower @ basis, `lower` in echelon form: row first[j] is the first with a part along basis[j].

    There are R = min(M, F) places for directions; those beyond the rank hold zeros and first = M.
    """

    basis: Float[Array, "R F"]
    lower: Float[Array, "M R"]
    first: Int[Array, " R"]


def fit(
    features: Float[Array, "S A F"], advantage: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
) -> Float[Array, " F"]:
    """The shortest θ of least Σ d(s) π(a|s) (A − θ·φ̃)², φ̃ = φ − E_π φ: F_θ⁺ Φᵀ ∂J/∂z (Kakade 2002).

    cutoff  a row of features that is within eps^⅔ of its length (4e-11, f32 2e-5) of the span of those that weigh more
            counts as lying in it; the weights have no part in this
    error   measured against arithmetic of 900 digits: 1e-14 of the largest |θ| for logits up to ±300
    """
    table = jnp.moveaxis(_folded(policy, jnp.moveaxis(features, -1, 0)), 0, -1).reshape(policy.prob.size, -1)
    length = jnp.linalg.norm(table, axis=-1)
    mass = jnp.where(policy.mode, 0.0, visits[:, None] * floored_prob(policy))
    weight = jnp.sqrt(mass).ravel() * length
    unit = 1.0 / jnp.where(weight > 0.0, length, jnp.inf)
    table, target = table * unit[:, None], _folded(policy, advantage).ravel() * unit
    order = jnp.argsort(-weight)
    return _heaviest_first(table[order], target[order], weight[order])


def _folded(policy: Policy, values: Float[Array, "*F S A"]) -> Float[Array, "*F S A"]:
    """x̃_a − x̃_m √π_m/(1 + √π_m), x̃ = x − E_π x, m the mode.

    √π x̃ is orthogonal to √π; the reflection that takes √π to the mode leaves K − 1 rows of the same geometry.
    """
    x = centred(policy, values)
    top = jnp.sqrt(jnp.sum(jnp.where(policy.mode, policy.prob, 0.0), -1, keepdims=True))
    return x - top / (1.0 + top) * jnp.sum(jnp.where(policy.mode, x, 0.0), -1, keepdims=True)


def _heaviest_first(
    rows: Float[Array, "M F"], target: Float[Array, " M"], weight: Float[Array, " M"]
) -> Float[Array, " F"]:
    """The shortest θ of least Σ weight² (target − rows θ)², rows of length 1 in falling order of their weights.

    In the coordinates of the row space, and with each scaled by the weight of its first row, the weighted rows are
    graded downwards and to the right and bounded by 1, so that Householder's QR without pivots keeps all digits, as
    long as the first rows come first.
    """
    space = row_space(rows)
    count, width = space.lower.shape
    found = space.first < count
    scale = jnp.where(found, weight[jnp.minimum(space.first, count - 1)], 1.0)
    graded = jnp.column_stack([weight[:, None] * space.lower / scale, weight * target])
    is_first = jnp.zeros(count, bool).at[space.first].set(True, mode="drop")
    triangle = jnp.linalg.qr(graded[jnp.argsort(~is_first, stable=True)], mode="r")[:width]
    square = jnp.where(found[:, None] & found, triangle[:, :width], jnp.diag(jnp.where(found, 0.0, 1.0)))
    solved = jax.scipy.linalg.solve_triangular(square, jnp.where(found, triangle[:, width], 0.0))
    return _dot(solved / scale, space.basis)


def row_space(rows: Float[Array, "M F"]) -> RowSpace:
    """The span of the rows, one row after the other (Gram and Schmidt, twice: enough, says Kahan)."""
    count, width = rows.shape[0], min(rows.shape)
    cutoff = float(jnp.finfo(rows.dtype).eps) ** (2 / 3)

    def add(i: Array, carry: tuple[RowSpace, Array]) -> tuple[RowSpace, Array]:
        (basis, lower, first), rank = carry
        part = _dot(basis, rows[i])
        rest = rows[i] - _dot(part, basis)
        again = _dot(basis, rest)
        rest = rest - _dot(again, basis)
        size = jnp.linalg.norm(rest)
        new = size > cutoff * jnp.linalg.norm(rows[i])
        place = jnp.where(new, rank, width)
        basis = basis.at[place].set(rest / jnp.where(new, size, 1.0), mode="drop")
        lower = lower.at[i].set((part + again).at[place].set(size, mode="drop"))
        return RowSpace(basis, lower, first.at[place].set(i, mode="drop")), rank + new

    kind = rows.dtype
    empty = RowSpace(jnp.zeros((width, rows.shape[1]), kind), jnp.zeros((count, width), kind), jnp.full(width, count))
    return jax.lax.fori_loop(0, count, add, (empty, jnp.int32(0)))[0]
