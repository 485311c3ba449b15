"""Updates with memory: their state is a leaf, made by `init` and carried from call to call.

The table that they move may have any shape: logits [S, A], or the parameters of `Shared` [F].
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.policy import Policy


class Stateful:
    """What the updates with memory share: their state is None until `init`."""

    def remembered(self, state: Array | None) -> Array:
        """`state`. Raises InputError before `init`."""
        if state is None:
            raise InputError(f"{type(self).__name__} has no state yet; wanted update = update.init(logits) first")
        return state


@config
class Momentum(Stateful):
    """v ← μ v + ∂J/∂z, δ = η v (heavy ball; the steady step is η/(1 − μ) times the plain one).

    source  Polyak 1964
    """

    step_size: Number = 1.0
    decay: Number = 0.9  # μ
    velocity: Float[Array, "*P"] | None = None

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        check_number("decay", self.decay, 0.0, 1.0)

    def init(self, logits: Float[Array, "*P"]) -> Self:
        """At rest."""
        return dataclasses.replace(self, velocity=jnp.zeros_like(logits))

    def __call__(
        self, gradient: Float[Array, "*P"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "*P"], Self]:
        velocity = self.decay * self.remembered(self.velocity) + gradient
        return self.step_size * velocity, dataclasses.replace(self, velocity=velocity)


@config
class Adam(Stateful):
    """m ← β₁ m + (1−β₁) g, v ← β₂ v + (1−β₂) g², δ = η m̂/(√v̂ + ε), m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ), g = ∂J/∂z.

    source  Kingma & Ba 2015 (arXiv:1412.6980); Theorems 1 and 2 do not foresee such a step, Lemma 1 does
    """

    step_size: Number = 1e-3
    decay: Number = 0.9  # β₁
    square_decay: Number = 0.999  # β₂
    epsilon: Number = 1e-8
    first: Float[Array, "*P"] | None = None  # m
    second: Float[Array, "*P"] | None = None  # v
    count: Number = 0.0  # t

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        check_number("epsilon", self.epsilon, low=0.0, open_low=True)
        for name in ("decay", "square_decay"):
            check_number(f"1 - {name}", 1.0 - getattr(self, name), 0.0, 1.0, open_low=True)

    def init(self, logits: Float[Array, "*P"]) -> Self:
        return dataclasses.replace(self, first=jnp.zeros_like(logits), second=jnp.zeros_like(logits), count=0.0)

    def __call__(
        self, gradient: Float[Array, "*P"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "*P"], Self]:
        first = self.decay * self.remembered(self.first) + (1.0 - self.decay) * gradient
        second = self.square_decay * self.remembered(self.second) + (1.0 - self.square_decay) * gradient**2
        count = self.count + 1.0
        scale = jnp.sqrt(second / (1.0 - self.square_decay**count)) + self.epsilon
        delta = self.step_size * first / (1.0 - self.decay**count) / scale
        return delta, dataclasses.replace(self, first=first, second=second, count=count)


@config
class Restarted:
    """An update that forgets: after `every` calls (outer steps × inner steps) its state is that of the start again."""

    update: Any
    every: Number = 100.0  # calls
    start: Any = None
    count: Number = 0.0  # calls since the last restart

    def __post_init__(self) -> None:
        check_number("every", self.every, 1.0)

    @property
    def step_size(self) -> Number:
        """That of the update."""
        return self.update.step_size

    def init(self, logits: Float[Array, "*P"]) -> Self:
        """With the update's start kept."""
        start = self.update.init(logits)
        return dataclasses.replace(self, update=start, start=start, count=0.0)

    def __call__(
        self, gradient: Float[Array, "*P"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "*P"], Self]:
        delta, moved = self.update(gradient, policy, visits)
        due = self.count + 1.0 >= self.every
        update = jax.tree.map(lambda start, now: jnp.where(due, start, now), self.start, moved)
        return delta, dataclasses.replace(self, update=update, count=jnp.where(due, 0.0, self.count + 1.0))
