"""Fields: pushes over the whole table, one row a state, weighted like the tokens of that state; and KL penalties.

`ReferenceKL` is the exact gradient of the divergence; `K1Penalty` … `K3Penalty` are what differentiating an estimator
of it on the drawn tokens gives. On policy, over all actions, K2's is the exact one, K1's is 0, and K3's is that of the
other direction, KL(π_ref‖π).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number, concrete
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy, centred, exp_minus_linear, kl_divergence, log_probs, probs
from softmaxdyn.tokens import Push, Tokens, ratio, state_mass, token_mean


class Field(Intervention):
    """An intervention that adds `coefficient` times a row to the push of every visited state, by the state's mass."""

    scope: ClassVar[str] = "state"
    kind: ClassVar[str] = "field"

    coefficient: Number

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient)

    def rows(self, policy: Policy) -> Float[Array, "S A"]:
        """The row of each state at coefficient 1."""
        raise NotImplementedError

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        if policy is None:
            raise InputError(f"{type(self).__name__} adds to all actions of a state; a log holds one a token")
        added = state_mass(tokens, policy.prob.shape[0])[:, None] * self.rows(policy)
        return push._replace(field=push.field + self.coefficient * added)


@config
class EntropyBonus(Field):
    """Adds α ∂H/∂z = −α π (log π + H) to the push of every visited state; on a bandit PG then tends to π ∝ e^{r/α}.

    source  Williams & Peng 1991; verl's entropy_coeff (0 there by default, 0.001 before 2025-04)
    trap    negative α is allowed: it sharpens the policy
    """

    coefficient: Number = 1e-3  # α, reward per nat

    def rows(self, policy: Policy) -> Float[Array, "S A"]:
        """∂H/∂z."""
        return -policy.prob * policy.centred_log_prob


@config
class LogBarrier(Field):
    """Adds λ (1/K − π) to the push of every visited state, the slope of λ mean_a log π; K counts the unmasked actions.

    On a bandit PG then tends to π_a = (λ/K)/(λ + J − r_a).

    source  Agarwal et al. 2021 (arXiv:1908.00261), who weigh every state by 1/S, visited or not
    """

    coefficient: Number = 1e-3  # λ, reward per nat

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, 0.0)

    def rows(self, policy: Policy) -> Float[Array, "S A"]:
        """1/K − π."""
        unmasked = (policy.log_prob > -jnp.inf).astype(policy.prob.dtype)
        return unmasked / jnp.sum(unmasked, -1, keepdims=True) - policy.prob


def starting_reference(reference: Any, logits: Float[Array, "S A"]) -> Any:
    """`reference` as logits [S, A], those of the start if None. Raises InputError for another shape or mask."""
    if reference is None:
        return jnp.asarray(logits)
    table = jnp.atleast_2d(jnp.asarray(reference, logits.dtype))
    if table.shape != logits.shape:
        raise InputError(f"reference has shape {np.shape(reference)}; wanted logits of shape {tuple(logits.shape)}")
    if concrete(table) and concrete(logits) and np.any(np.isneginf(table) & ~np.isneginf(np.asarray(logits))):
        raise InputError("reference masks an action that the policy can take, so the KL is infinite; unmask it")
    return table


class Referring(Intervention):
    """An intervention with a reference policy (logits [S, A]), by default the one at the start of the run."""

    reference: Any

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """The intervention with its reference filled in."""
        return dataclasses.replace(self, reference=starting_reference(self.reference, logits))  # type: ignore[type-var]

    def referred(self) -> Array:
        """The logits of the reference. Raises InputError before `init`."""
        if self.reference is None:
            raise InputError(f"{type(self).__name__} has no reference; pass reference=logits or call init(logits)")
        return jnp.asarray(self.reference)


@config
class ReferenceKL(Field, Referring):
    """Adds −β ∂KL(π‖π_ref)/∂z = −β π (L − E L), L = log π/π_ref; on a bandit PG then tends to π ∝ π_ref e^{r/β}.

    It acts where the advantages vanish, too: states of equal rewards go back to the reference.

    source  the divergence that k2 estimates; Cui et al. 2025 (arXiv:2505.22617) tried β = 0.001 … 0.1
    """

    coefficient: Number = 1e-3  # β, reward per nat
    reference: Any = None  # logits

    def rows(self, policy: Policy) -> Float[Array, "S A"]:
        """−∂KL/∂z."""
        return -policy.prob * centred(policy, policy.logits - self.referred())


@config
class ReferencePenalty(Referring):
    """Base of the sampled penalties: w ← w − β ∂k/∂log π, k an estimate of log π/π_ref's mean on the drawn token.

    No importance ratio: on later inner steps the tokens stay those of the policy that acted, as in verl.
    """

    coefficient: Number = 1e-3  # β, reward per nat
    reference: Any = None  # logits

    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient)

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """k of x = log π − log π_ref."""
        raise NotImplementedError

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """∂k/∂log π."""
        raise NotImplementedError

    def log_ratio(self, tokens: Tokens) -> Float[Array, " N"]:
        """x = log π − log π_ref of each token; 0 for masked actions."""
        reference = log_probs(self.referred())[tokens.state, tokens.action]
        return jnp.where(jnp.isfinite(reference), tokens.log_prob - reference, 0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push._replace(score=push.score - self.coefficient * self.slope(self.log_ratio(tokens)))


@config
class K1Penalty(ReferencePenalty):
    """k1 = x, slope 1 ("kl"): unbiased as a value, but its gradient is noise of mean zero, on policy."""

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return x

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(x)


@config
class AbsPenalty(ReferencePenalty):
    """|x|, slope sign x, 0 at 0 ("abs")."""

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.abs(x)

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.sign(x)


@config
class K2Penalty(ReferencePenalty):
    """k2 = x²/2, slope x ("mse"): on policy the mean gradient is that of KL(π‖π_ref), exactly."""

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return 0.5 * x * x

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return x


@config
class K3Penalty(ReferencePenalty):
    """k3 = e^{−x} − 1 + x, slope 1 − e^{−x}: its mean gradient on policy is that of KL(π_ref‖π), the other way."""

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return exp_minus_linear(-_representable(x))

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return -jnp.expm1(-_representable(x))


@config
class K3PenaltyReleased(ReferencePenalty):
    """k3 with |x| cut at 20 and the value at 10, where the slope is 0 ("low_var_kl"); as written, with its rounding.

    source  verl 0.9.1, kl_penalty
    trap    beyond x = −2.61 (π_ref 13.6 times π) or x = 11 nothing pulls a token back: those that drifted the most
    """

    def value(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        u = jnp.clip(-x, -20.0, 20.0)
        return jnp.minimum(jnp.exp(u) - u - 1.0, 10.0)

    def slope(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        u = jnp.clip(-x, -20.0, 20.0)
        return jnp.where((jnp.abs(x) <= 20.0) & (jnp.exp(u) - u - 1.0 <= 10.0), 1.0 - jnp.exp(u), 0.0)


@config
class K1PlusPenalty(K1Penalty):
    """k1+: the value of k1 with the gradient of k2, straight through."""

    slope = K2Penalty.slope


@config
class AbsPlusPenalty(AbsPenalty):
    """abs+: the value |x| with the gradient of k2, straight through."""

    slope = K2Penalty.slope


@config
class K3PlusPenalty(K3PenaltyReleased):
    """k3+: the value of k3 as released, with the gradient of k2, straight through (k2+ is K2Penalty itself)."""

    slope = K2Penalty.slope


def _representable(x: Float[Array, "..."]) -> Float[Array, "..."]:
    limit = 0.5 * jnp.log(jnp.finfo(x.dtype).max)
    return jnp.clip(x, -limit, limit)


@config
class RewardKL(Referring):
    """R ← R − β log(π_old/π_ref) of the token: w ← w − r β log(π_old/π_ref), with the mean of `K2Penalty` at r = 1.

    The penalty comes after the advantage: no group mean is taken from it and no standard deviation divides it. In a
    longer episode each token pays for itself alone, not for the ones after it; on a bandit the two are the same.

    source  verl's use_kl_in_reward, coefficient 1e-3
    """

    coefficient: Number = 1e-3  # β, reward per nat
    reference: Any = None  # logits

    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        reference = log_probs(self.referred())[tokens.state, tokens.action]
        paid = jnp.where(jnp.isfinite(reference), tokens.old_log_prob - reference, 0.0)
        return push._replace(score=push.score - self.coefficient * ratio(tokens) * paid)


@config
class AdaptiveKL(Field, Referring):
    """Adds β (π_old − π) = −β ∂KL(π_old‖π)/∂z, π_old the policy that acted: PPO's penalty. 0 on the first inner step.

    After an outer step β doubles where the mean KL over the visited states is above 1.5 target, halves where it is
    below target/1.5, and stays within a factor 1e10 of 1.

    source  Schulman et al. 2017 (arXiv:1707.06347), section 4
    trap    a plain gradient step overshoots where η d(s) β π(1−π) > 2, and then the doubling feeds on itself
    """

    coefficient: Number = 1.0  # β, reward per nat
    target: Number = 0.01  # nats
    reference: Any = None  # logits of π_old

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, 0.0)
        check_number("target", self.target, 0.0, open_low=True)

    def rows(self, policy: Policy) -> Float[Array, "S A"]:
        """π_old − π."""
        old = self.referred()
        return jnp.where(jnp.any(old != policy.logits, -1, keepdims=True), probs(old) - policy.prob, 0.0)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        kl = token_mean(tokens, kl_divergence(self.referred(), policy.logits)[tokens.state])
        factor = jnp.where(kl > 1.5 * self.target, 2.0, jnp.where(kl < self.target / 1.5, 0.5, 1.0))
        bounds = jnp.minimum(self.coefficient, 1e-10), jnp.maximum(self.coefficient, 1e10)
        return dataclasses.replace(
            self, coefficient=jnp.clip(self.coefficient * factor, *bounds), reference=policy.logits
        )
