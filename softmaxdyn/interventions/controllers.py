"""Controllers: interventions that change their own strength from one outer step to the next."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.interventions.fields import EntropyBonus, ReferenceKL
from softmaxdyn.interventions.gates import check_ordered
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, ratio, token_mean


def check_ends(first: Any, last: Any, steps: Number) -> None:
    """Raises InputError unless both are of one class that does not move its own numbers, and `steps` > 0."""
    check_number("steps", steps, 0.0, open_low=True)
    if type(first) is not type(last) or not isinstance(first, Intervention):
        raise InputError(f"Scheduled goes from {first!r} to {last!r}; wanted two interventions of one class")
    if type(first).next is not Intervention.next:
        raise InputError(f"Scheduled cannot move {type(first).__name__}, which moves its own numbers")


@config
class Scheduled(Intervention):
    """One intervention whose numbers move in a line from `first` to `last` over `steps` outer steps, then stay.

    `Scheduled(EntropyBonus(1e-2), EntropyBonus(0.0), steps=100.0)`; both of one class that is no controller itself.
    """

    first: Any
    last: Any
    steps: Number = 100.0
    count: Number = 0.0  # outer steps done

    scope = property(lambda self: self.first.scope)
    kind = property(lambda self: self.first.kind)

    def __post_init__(self) -> None:
        check_ends(self.first, self.last, self.steps)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        return dataclasses.replace(self, first=self.first.init(logits), last=self.last.init(logits))

    def now(self) -> Any:
        """The intervention of the current step."""
        share = jnp.minimum(self.count / self.steps, 1.0)
        return jax.tree.map(lambda a, b: jnp.where(a == b, a, (1.0 - share) * a + share * b), self.first, self.last)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return self.now()(key, tokens, policy, push)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        return dataclasses.replace(self, count=self.count + 1.0)


@config
class TargetEntropy(Intervention):
    """Entropy bonus whose α goes up by `gain` after a step that ends with mean entropy H < `target`, else down by it.
    α stays in [least, most] and acts only while H < target.

    source  Skywork-OR1 (arXiv:2505.22312), gain 0.005 in the report; its scripts: gain=1e-4, least=0, most=0.005
    """

    target: Number = 0.2  # nats
    gain: Number = 0.005  # of α, a step
    least: Number = 0.0
    most: Number = 1.0
    coefficient: Number = 0.0  # α at the start

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "field"

    def __post_init__(self) -> None:
        check_number("target", self.target)
        check_number("gain", self.gain, 0.0)
        check_number("coefficient", self.coefficient)
        check_ordered("least", self.least, "most", self.most)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy, push: Push) -> Push:
        on = token_mean(tokens, tokens.entropy) < self.target
        return EntropyBonus(jnp.where(on, self.coefficient, 0.0))(key, tokens, policy, push)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        below = token_mean(tokens, tokens.entropy) < self.target
        moved = self.coefficient + jnp.where(below, self.gain, -self.gain)
        return dataclasses.replace(self, coefficient=jnp.clip(moved, self.least, self.most))


@config
class EntroPIC(Intervention):
    """w ← (1 + α) w where A > 0, (1 − α) w where A < 0; α = K_p e + K_i Σ e within [−1, 1], e = H − target.

    H is the mean entropy that a step ends with; the sum counts the steps before it. α = 0 in the first step.

    source  2511.15248; K_p = 1, K_i = 0.01 and the limits as released; its released loss is `EntroPICReleased`
    """

    target: Number = 0.1  # nats
    proportional: Number = 1.0  # K_p, nat⁻¹
    integral: Number = 0.01  # K_i, nat⁻¹
    coefficient: Number = 0.0  # α of this step
    error_sum: Number = 0.0  # Σ e, nats

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_number("target", self.target)
        check_number("proportional", self.proportional, 0.0)
        check_number("integral", self.integral, 0.0)
        check_number("coefficient", self.coefficient, -1.0, 1.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push._replace(score=push.score * (1.0 + self.coefficient * jnp.sign(tokens.advantage)))

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With α for the entropy that the step ended with."""
        error = token_mean(tokens, tokens.entropy) - self.target
        wanted = self.proportional * error + self.integral * self.error_sum
        return dataclasses.replace(self, coefficient=jnp.clip(wanted, -1.0, 1.0), error_sum=self.error_sum + error)


@config
class EntroPICReleased(EntroPIC):
    """w ← w + α r |A| for the tokens with π > `threshold`, as a mean over those tokens; α as in EntroPIC.

    source  the authors' repository (arXiv:2511.15248)
    trap    the term knows no clip, so put it after one; and few such tokens weigh as much as many
    """

    threshold: Number = 0.95  # of π

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        EntroPIC.__post_init__(self)
        check_number("threshold", self.threshold, 0.0, 1.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        sure = ((jnp.exp(tokens.log_prob) > self.threshold) & (tokens.weight > 0.0)).astype(push.score.dtype)
        share = token_mean(tokens, sure)
        term = self.coefficient * ratio(tokens) * jnp.abs(tokens.advantage) / jnp.where(share > 0.0, share, 1.0)
        return push._replace(score=push.score + sure * term, selected=sure)


@config
class ProRL(ReferenceKL):
    """ReferenceKL whose reference becomes the current policy after every `stage` outer steps.

    On a bandit M converged stages end at π ∝ π_0 e^{Mr/β}: natural PG at time M/β. ProRL also clips with two bounds,
    samples dynamically, and resets the optimiser with the reference: `Restarted(update, every=stage × inner steps)`.

    source  ProRL (arXiv:2505.24864); the length of a stage is ours
    """

    stage: Number = 100.0  # outer steps
    count: Number = 0.0  # outer steps since the last reset

    def __post_init__(self) -> None:
        ReferenceKL.__post_init__(self)
        check_number("stage", self.stage, 1.0)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With a new reference where the stage is over."""
        due = self.count + 1.0 >= self.stage
        reference = jnp.where(due, policy.logits, self.referred())
        return dataclasses.replace(self, reference=reference, count=jnp.where(due, 0.0, self.count + 1.0))
