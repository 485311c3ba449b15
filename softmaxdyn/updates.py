"""Updates turn the gradient table into a step of the logits. They carry their own state (momentum) as leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.policy import Policy, centred, exp_minus_linear, floored_prob


@runtime_checkable
class Update(Protocol):
    """`init` fills in what depends on the start; a call returns the step and the update for the next call."""

    @property
    def step_size(self) -> Number:
        """η: what the theorems' predictions are multiplied with."""

    def init(self, logits: Float[Array, "S A"]) -> Update:
        """The update with its state at the start of a run."""

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Update]:
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

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = jnp.exp(0.5 * (low + high))
        inside = kl(middle) <= most
        return jnp.where(inside, 0.5 * (low + high), low), jnp.where(inside, high, 0.5 * (low + high))

    low, _ = jax.lax.fori_loop(0, 64, halve, (-limit, jnp.log(limit)))
    return jnp.exp(low)


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
    velocity: Float[Array, "S A"] | None = None

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        check_number("decay", self.decay, 0.0, 1.0)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """At rest."""
        return dataclasses.replace(self, velocity=jnp.zeros_like(logits))

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
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
    first: Float[Array, "S A"] | None = None  # m
    second: Float[Array, "S A"] | None = None  # v
    count: Number = 0.0  # t

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        check_number("epsilon", self.epsilon, low=0.0, open_low=True)
        for name in ("decay", "square_decay"):
            check_number(f"1 - {name}", 1.0 - getattr(self, name), 0.0, 1.0, open_low=True)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        return dataclasses.replace(self, first=jnp.zeros_like(logits), second=jnp.zeros_like(logits), count=0.0)

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
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

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With the update's start kept."""
        start = self.update.init(logits)
        return dataclasses.replace(self, update=start, start=start, count=0.0)

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        delta, moved = self.update(gradient, policy, visits)
        due = self.count + 1.0 >= self.every
        update = jax.tree.map(lambda start, now: jnp.where(due, start, now), self.start, moved)
        return delta, dataclasses.replace(self, update=update, count=jnp.where(due, 0.0, self.count + 1.0))
