"""Updates of a table of logits from its gradient alone: vanilla and natural policy gradient, and TRPO."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number
from softmaxdyn.policy import Policy, centred, exp_minus_linear, floored_prob


@config
class VanillaPG:
    """δ = η ∂J/∂z = η d(s) π(a|s) A(s, a): vanilla policy gradient (T4), of a table of any shape. η ≥ 0."""

    step_size: Number = 1.0

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)

    def init(self, logits: Float[Array, "*P"]) -> Self:
        """No state."""
        return self

    def __call__(
        self, gradient: Float[Array, "*P"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "*P"], Self]:
        return self.step_size * gradient, self


@config
class NaturalPG:
    """δ = η F⁺ ∂J/∂z, F the Fisher matrix, block s: d(s)(diag π − ππᵀ); exactly η A on a bandit (T6). η ≥ 0.

    States that are never visited (d(s) = 0) stay where they are.
    """

    step_size: Number = 1.0

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """No state."""
        return self

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        return self.step_size * natural_gradient(gradient, policy, visits), self


def natural_gradient(gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]) -> Float[Array, "S A"]:
    """F⁺ ∂J/∂z: the advantage A(s, a), centred; 0 in states that are never visited."""
    mass = visits[:, None] * floored_prob(policy)
    advantage = jnp.where(mass > 0.0, gradient / jnp.where(mass > 0.0, mass, 1.0), 0.0)
    return centred(policy, advantage)


@config
class TRPO:
    """δ = τ F⁺ ∂J/∂z with the largest τ for which Σ_s d(s) KL(π_old‖π_new) ≤ `max_kl`: equal to it, found by bisection.

    TRPO also asks that the surrogate Σ d(s) E_{π_new} A does not fall. Along the natural gradient it never does, as its
    slope is Σ d(s) Var(A) ≥ 0, so there is nothing to search: on a bandit J itself never falls. Near a deterministic
    optimum no step reaches the KL; τ then ends where two logits of a state move apart by log(1/tiny): 708, 87 in f32.

    source  Schulman et al. 2015 (arXiv:1502.05477), max_kl 0.01
    """

    max_kl: Number = 0.01  # nats
    step_size: Number = 0.0  # τ of the last call

    def __post_init__(self) -> None:
        check_number("max_kl", self.max_kl, low=0.0, open_low=True)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """No step made yet."""
        return self

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        direction = natural_gradient(gradient, policy, visits)
        reach = jnp.max(jnp.max(direction, -1) - jnp.min(direction, -1))
        unit = direction / jnp.where(reach > 0.0, reach, 1.0)
        size = _largest_step(lambda t: jnp.sum(visits * _kl_of_step(policy, t * unit)), self.max_kl, reach)
        used = jnp.where(reach > 0.0, size / jnp.where(reach > 0.0, reach, 1.0), 0.0)
        return size * unit, dataclasses.replace(self, step_size=used)


def _kl_of_step(policy: Policy, step: Float[Array, "S A"]) -> Float[Array, " S"]:
    """KL(π‖softmax(z + δ)) = log E_π e^δ of a centred step, as log1p E ψ(δ): nothing cancels."""
    return jnp.log1p(jnp.sum(policy.prob * exp_minus_linear(step), -1))


def _largest_step(kl: Callable[[Array], Array], most: Number, like: Array) -> Array:
    """The size in [0, log 1/tiny] at which the rising function `kl` reaches `most`, to the last digits."""
    limit = -jnp.log(jnp.finfo(like.dtype).tiny)

    def halve(_: int | Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = jnp.exp(0.5 * (low + high))
        inside = kl(middle) <= most
        return jnp.where(inside, 0.5 * (low + high), low), jnp.where(inside, high, 0.5 * (low + high))

    low, _ = jax.lax.fori_loop(0, 64, halve, (-limit, jnp.log(limit)))
    return jnp.exp(low)
