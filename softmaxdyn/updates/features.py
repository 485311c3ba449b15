"""Features tie the logits of a policy together: z = z₀ + Φθ, Φ [S, A, F]; what moves them moves through K = ΦΦᵀ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import Number
from softmaxdyn.errors import InputError, check_integer, check_number
from softmaxdyn.policy import Policy


def random_features(key: Key[Array, ""], shape: tuple[int, ...], rank: int) -> Float[Array, "S A F"]:
    """Φ [S, A, F] of F = `rank` independent normal numbers of variance 1/F: E ΦΦᵀ = I.

    Each entry of ΦΦᵀ is off by about 1/√F, so that it takes F far above S·A for ΦΦᵀ itself to be near I.
    """
    return jax.random.normal(key, (*_checked(shape), check_integer("rank", rank, 1))) / np.sqrt(rank)


def tied_features(shape: tuple[int, ...]) -> np.ndarray:
    """Φ [S, A, A], one-hot of the action: all states share one row of logits."""
    states, actions = _checked(shape)
    return np.tile(np.eye(actions), (states, 1, 1))


def tied_over_time(horizon: int, states: int, actions: int) -> np.ndarray:
    """Φ [T·S, A, S·A], one-hot of (s, a): rows t·S + s of a problem of T = `horizon` steps share theirs for all t."""
    each = np.eye(states * actions).reshape(states, actions, -1)
    return np.tile(each, (check_integer("horizon", horizon, 1), 1, 1))


def blended_kernel(shape: tuple[int, ...], share: Number) -> Float[Array | np.ndarray, "S A S A"]:
    """K[s, a, t, b] = 1{a = b} ((1 − c) 1{s = t} + c): tabular at c = `share` = 0, one row for all states at c = 1."""
    check_number("share", share, 0.0, 1.0)
    states, actions = _checked(shape)
    rows = (1.0 - share) * np.eye(states) + share
    return rows[:, None, :, None] * np.eye(actions)[None, :, None, :]


def to_parameters(features: Float[ArrayLike, "S A F"], gradient: Float[Array, "S A"]) -> Float[Array, " F"]:
    """∂J/∂θ = Φᵀ ∂J/∂z."""
    return jnp.einsum("saf,sa->f", features, gradient, precision="highest")


def to_logits(features: Float[ArrayLike, "S A F"], move: Float[Array, " F"], policy: Policy) -> Float[Array, "S A"]:
    """δ = Φ Δθ; 0 for masked actions."""
    delta = jnp.einsum("saf,f->sa", features, move, precision="highest")
    return jnp.where(policy.log_prob > -jnp.inf, delta, 0.0)


def check_features(value: Any) -> Any:
    """`value` as Φ [S, A, F].

    Raises InputError unless it is a table of finite numbers in which the actions of some state differ.
    """
    table = _numbers("features", value, "[S, A, F]", 3)
    if not isinstance(table, jax.core.Tracer):
        _check_moves("features", np.asarray(table))
    return table


def check_kernel(value: Any) -> Any:
    """`value` as K [S, A, S, A].

    Raises InputError unless it is symmetric, positive semi-definite and finite and moves the actions of a state apart.
    """
    table = _numbers("kernel", value, "[S, A, S, A]", 4)
    if table.shape[:2] != table.shape[2:]:
        raise InputError(f"kernel has shape {table.shape}; wanted [S, A, S, A], the two halves alike")
    if isinstance(table, jax.core.Tracer):
        return table
    _check_moves("kernel", np.asarray(table))
    matrix = np.asarray(table, float).reshape(table.shape[0] * table.shape[1], -1)
    rounding = len(matrix) * float(jnp.finfo(table.dtype).eps) * abs(matrix).max()
    skew = abs(matrix - matrix.T).max()
    if skew > rounding:
        raise InputError(f"kernel is not symmetric (off by {skew:.3g}); wanted K[s, a, t, b] = K[t, b, s, a]")
    lowest = np.linalg.eigvalsh(matrix)[0]
    if lowest < -rounding:
        raise InputError(f"kernel has the eigenvalue {lowest:.3g}; wanted none below 0, as of ΦΦᵀ")
    return table


def check_fit(name: str, table: Any, logits: Float[Array, "S A"]) -> None:
    """Raises InputError unless the first two axes of `table` are those of the logits."""
    if table.shape[:2] != logits.shape:
        size = ", ".join(map(str, logits.shape))
        wanted = f"[{size}, F]" if name == "features" else f"[{size}, {size}]"
        raise InputError(f"{name} {_have(name)} shape {table.shape}; wanted {wanted}: logits are {logits.shape}")


def _numbers(name: str, value: Any, wanted: str, axes: int) -> Any:
    """`value` as an array of real finite numbers with that many axes; an array of JAX stays one."""
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value, None if hasattr(value, "dtype") else float)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{name} {_have(name)} ragged rows or no numbers; wanted {wanted}") from None
    if not any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise InputError(f"{name} {_have(name)} type {value.dtype}; wanted real numbers")
    if value.ndim != axes or 0 in value.shape:
        raise InputError(f"{name} {_have(name)} shape {value.shape}; wanted {wanted}")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        value = value.astype(float)
    if not isinstance(value, jax.core.Tracer) and not np.isfinite(np.asarray(value)).all():
        raise InputError(f"{name} {_have(name)} NaN or inf; wanted finite numbers")
    return value


def _check_moves(name: str, table: np.ndarray) -> None:
    largest = abs(table).max()
    if np.ptp(table, axis=1).max() <= 4.0 * float(jnp.finfo(table.dtype).eps) * largest:
        what = "only zeros" if largest == 0.0 else "no difference between the actions of a state"
        raise InputError(f"{name} {_have(name)} {what}: the policy cannot move; wanted actions that differ")


def _have(name: str) -> str:
    return "have" if name == "features" else "has"


def _checked(shape: tuple[int, ...]) -> tuple[int, int]:
    """Raises InputError unless `shape` is (S, A)."""
    if np.shape(shape) != (2,):
        raise InputError(f"shape is {shape!r}; wanted (S, A), as problem.shape")
    return check_integer("S", shape[0], 1), check_integer("A", shape[1], 1)
