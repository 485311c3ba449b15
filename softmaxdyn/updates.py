"""Updates turn the gradient table into a step of the logits. They carry their own state (momentum) as leaves."""

from __future__ import annotations

from typing import Protocol, Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number
from softmaxdyn.policy import Policy, centred, floored_prob


class Update(Protocol):
    """`init` fills in what depends on the start; a call returns the step and the update for the next call."""

    step_size: Number

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """The update with its state at the start of a run."""

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        """(δ, update): `gradient` is ∂J/∂z or its estimate, `visits` d(s) under `policy`."""


@config
class VanillaPG:
    """δ = η ∂J/∂z = η d(s) π(a|s) A(s, a): vanilla policy gradient (T4). η ≥ 0."""

    step_size: Number = 1.0

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """No state."""
        return self

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
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
        mass = visits[:, None] * floored_prob(policy)
        advantage = jnp.where(mass > 0.0, gradient / jnp.where(mass > 0.0, mass, 1.0), 0.0)
        return self.step_size * centred(policy, advantage), self
