"""Compatible function approximation: the fit of the advantage by features, exact however peaked the policy is.

Least squares with weights d(s) π(a|s) that span hundreds of orders of magnitude: an SVD of the weighted rows loses
every action below about eps² of the most probable one. Here rows are taken in the order of what they weigh, and whether
one adds a direction is asked of its own digits, not of its weight.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from softmaxdyn.policy import Policy, centred, floored_prob

_dot = partial(jnp.matmul, precision="highest")


class RowSpace(NamedTuple):
    """rows = lower @ basis. Row pivot[j] brings in direction j, row pivot[i] has no part along a later one.

    There are R = min(M, F) places for directions; those beyond the rank hold zeros and pivot = M.
    """

    basis: Float[Array, "R F"]
    lower: Float[Array, "M R"]
    pivot: Int[Array, " R"]


def fit(
    features: Float[ArrayLike, "S A F"], advantage: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
) -> Float[Array, " F"]:
    """The shortest θ of least Σ d(s) π(a|s) (A − θ·φ̃)², φ̃ = φ − E_π φ: F_θ⁺ Φᵀ ∂J/∂z.

    cutoff  a row of features, scaled to length 1, lies in the span of others where what is left of it is below its
            running rounding error: 32 eps at first, more where the others are nearly dependent. Its weight d π has no
            part in this, so an action of probability 1e-200 still finds its advantage.
    source  Kakade 2002 (compatible features); Cox & Higham 1998 (why heavy rows first)
    """
    table = jnp.moveaxis(_folded(policy, jnp.moveaxis(features, -1, 0)), 0, -1).reshape(policy.prob.size, -1)
    length = jnp.linalg.norm(table, axis=-1)
    mass = jnp.where(policy.mode, 0.0, visits[:, None] * floored_prob(policy))
    weight = jnp.sqrt(mass).ravel() * length
    unit = jnp.where(weight > 0.0, 1.0 / jnp.where(weight > 0.0, length, 1.0), 0.0)
    return _solve(table * unit[:, None], _folded(policy, advantage).ravel() * unit, weight)


def _folded(policy: Policy, values: Float[Array, "*F S A"]) -> Float[Array, "*F S A"]:
    """x̃_a − x̃_m √π_m/(1 + √π_m), x̃ = x − E_π x, m the mode.

    √π x̃ is orthogonal to √π; the reflection that takes √π to the mode leaves K − 1 rows of the same geometry.
    """
    x = centred(policy, values)
    top = jnp.sqrt(jnp.sum(jnp.where(policy.mode, policy.prob, 0.0), -1, keepdims=True))
    return x - top / (1.0 + top) * jnp.sum(jnp.where(policy.mode, x, 0.0), -1, keepdims=True)


def _solve(rows: Float[Array, "M F"], target: Float[Array, " M"], weight: Float[Array, " M"]) -> Float[Array, " F"]:
    """The shortest θ of least Σ weight² (target − rows θ)², rows of length 1.

    In the coordinates of the row space, each in units of what its pivot weighs, the weighted rows are bounded by 1 and
    graded, so that a QR without further pivots keeps all digits, as long as the pivots come first.
    """
    space = row_space(rows, weight)
    count, width = space.lower.shape
    found = space.pivot < count
    at = jnp.minimum(space.pivot, count - 1)
    scale = jnp.where(found, weight[at] * space.lower[at, jnp.arange(width)], 1.0)
    graded = jnp.column_stack([weight[:, None] * space.lower / scale, weight * target])
    order = jnp.argsort(jnp.full(count, width).at[space.pivot].set(jnp.arange(width), mode="drop"))
    triangle = jnp.linalg.qr(graded[order], mode="r")[:width]
    square = jnp.where(found[:, None] & found, triangle[:, :width], jnp.diag(jnp.where(found, 0.0, 1.0)))
    solved = jax.scipy.linalg.solve_triangular(square, jnp.where(found, triangle[:, width], 0.0))
    return _dot(solved / scale, space.basis)


def row_space(rows: Float[Array, "M F"], weight: Float[Array, " M"]) -> RowSpace:
    """Gram and Schmidt on rows of length 1 (or 0), that of the largest weight × what is left of it next.

    `noise` follows the rounding error of what is left of each row; a row that falls below it is done.
    """
    count, width = rows.shape[0], min(rows.shape)

    def add(j: Array, carry: tuple[RowSpace, Array, Array, Array]) -> tuple[RowSpace, Array, Array, Array]:
        (basis, lower, pivot), rest, size, noise = carry
        i = jnp.argmax(weight * size)
        new = weight[i] * size[i] > 0.0
        unit = rest[i] / jnp.where(new, size[i], 1.0)
        unit = unit - _dot(_dot(basis, unit), basis)
        unit = unit / jnp.where(new, jnp.linalg.norm(unit), 1.0)
        part = _dot(rest, unit)
        rest = (rest - part[:, None] * unit).at[i].set(0.0)
        noise = jnp.hypot(noise, part * noise[i] / jnp.where(new, size[i], 1.0))
        size = jnp.linalg.norm(rest, axis=-1)
        alive = size > noise
        rest, size = jnp.where(alive[:, None], rest, 0.0), jnp.where(alive, size, 0.0)
        space = RowSpace(basis.at[j].set(unit), lower.at[:, j].set(part), pivot.at[j].set(jnp.where(new, i, count)))
        return space, rest, size, noise

    kind = rows.dtype
    empty = RowSpace(jnp.zeros((width, rows.shape[1]), kind), jnp.zeros((count, width), kind), jnp.full(width, count))
    start = (empty, rows, jnp.linalg.norm(rows, axis=-1), jnp.full(count, 32 * jnp.finfo(kind).eps, kind))
    return jax.lax.fori_loop(0, width, add, start)[0]
