"""Reweightings: a factor on the score of each token (STEER and its kin), or a term beside it (REPO)."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_fraction, check_number, check_ordered
from softmaxdyn.interventions.clips import check_bounds, outside
from softmaxdyn.interventions.gates import centred_entropy_score, entropy_score
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, ratio, token_mean, top_share


def unclipped_loss(tokens: Tokens, low: Number, high: Number) -> Float[Array, " N"]:
    """I r A: the weight of the token under PPO's clip."""
    r = ratio(tokens)
    return jnp.where(outside(tokens, r, low, high), 0.0, r * tokens.advantage)


def damping(size: Float[Array, " N"], tokens: Tokens, smallest: Number, floor: Number = 0.0) -> Float[Array, " N"]:
    """λ = λ_min^(|Ω| / max |Ω|), the maximum over the batch but at least `floor`; 1 where all Ω vanish."""
    largest = jnp.maximum(jnp.max(jnp.where(tokens.weight > 0.0, size, 0.0)), floor)
    share = jnp.where(largest > 0.0, size / jnp.where(largest > 0.0, largest, 1.0), 0.0)
    return jnp.exp(jnp.log(smallest) * jnp.clip(share, 0.0, 1.0))


@config
class Steer(Intervention):
    """w ← λ w, λ = exp(−α |Ω|/max |Ω|), α = −log λ_min, Ω = I r A π(1−π)(log π + H); tokens that PPO clips keep 1.

    Ω is STEER's estimate of a token's effect on the entropy, with the other logits held: at two actions half of the
    exact one, for a rare action far less. It damps tokens that raise the entropy as much as those that lower it.

    source  STEER, theorem 1 (arXiv:2510.10150 v4)
    trap    the maximum is over the batch: a smaller batch is another method
    """

    smallest: Number = 0.7  # λ_min
    low: Number = 0.2  # of the clip in I
    high: Number = 0.2

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("smallest", self.smallest, 0.0, 1.0, open_low=True)
        check_bounds(self.low, self.high)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        loss = unclipped_loss(tokens, self.low, self.high)
        size = jnp.abs(loss * entropy_score(tokens) * -jnp.expm1(tokens.log_prob))
        return push._replace(score=push.score * damping(size, tokens, self.smallest))


@config
class SteerExact(Steer):
    """Steer with the exact first-order effect: Ω = I r A (S_a − S̄). Our control for what its approximation costs.

    source  T7
    """

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        loss = unclipped_loss(tokens, self.low, self.high)
        size = jnp.abs(loss * centred_entropy_score(tokens, policy, "SteerExact"))
        return push._replace(score=push.score * damping(size, tokens, self.smallest))


def released_metric(tokens: Tokens) -> Float[Array, " N"]:
    """|A/π_old · π(1−π)(log π + H)|, with π in [1e-8, 1 − 1e-8] and π_old ≥ 1e-8: one π fewer than Ω, and no I."""
    p = jnp.clip(jnp.exp(tokens.log_prob), 1e-8, 1.0 - 1e-8)
    old = jnp.maximum(jnp.exp(tokens.old_log_prob), 1e-8)
    return jnp.abs(tokens.advantage / old * p * (1.0 - p) * (jnp.log(p) + tokens.entropy))


@config
class SteerReleased(Intervention):
    """w ← λ w, λ = exp(−k m) in [λ_min, 1], k = −log λ_min / max(max m, 0.02), m = |A/π_old · π(1−π)(log π + H)|.

    One factor π fewer than the theorem (`Steer`): m grows like |log π|, so the rare tokens are damped the most.

    source  the authors' repository, exponential mode (arXiv:2510.10150)
    trap    the maximum is that of a micro-batch (8 sequences) there, of the whole batch here
    """

    smallest: Number = 0.8  # λ_min
    floor: Number = 0.02  # of the largest metric

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("smallest", self.smallest, 0.0, 1.0, open_low=True)
        check_number("floor", self.floor, 0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push._replace(score=push.score * damping(released_metric(tokens), tokens, self.smallest, self.floor))


@config
class SteerReleasedLinear(Intervention):
    """w ← λ w, λ falls in a line from `largest` at the smallest m of the batch to `smallest` at its largest.

    Unlike the other modes it amplifies: half of the range is above 1. Where all m are equal, λ is the middle.

    source  the authors' repository, linear mode (arXiv:2510.10150); m as in SteerReleased
    """

    smallest: Number = 0.8
    largest: Number = 1.2

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("smallest", self.smallest, 0.0)
        check_ordered("smallest", self.smallest, "largest", self.largest)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        metric, valid = released_metric(tokens), tokens.weight > 0.0
        least, most = jnp.min(metric, where=valid, initial=jnp.inf), jnp.max(metric, where=valid, initial=0.0)
        share = jnp.where(most > least, (metric - least) / jnp.where(most > least, most - least, 1.0), 0.5)
        factor = self.largest - (self.largest - self.smallest) * jnp.clip(share, 0.0, 1.0)
        return push._replace(score=push.score * factor)


@config
class PositiveReweighting(Intervention):
    """w ← λ w where A > 0. With a binary reward it only slows the step: c(s) = λ(1 − p) + p times the baseline's.

    source  2511.05993 (there λ < 1 follows a schedule; wrap in `Scheduled` for one); the default λ is ours
    """

    factor: Number = 0.5  # λ

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push._replace(score=push.score * jnp.where(tokens.advantage > 0.0, self.factor, 1.0))


@config
class EntropyAwareAdvantage(Intervention):
    """A ← A + min(α H, |A|/κ), H taken as a number: positive tokens push harder, negative ones less, where H is high.

    source  2506.14758: κ = 2, α = 0.4 for GRPO and 0.1 for PPO
    trap    κ ≤ 1 would let the bonus turn the sign of A, so it is refused
    """

    coefficient: Number = 0.4  # α, reward per nat
    bound: Number = 2.0  # κ > 1

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, 0.0)
        check_number("bound", self.bound, 1.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        size = jnp.abs(tokens.advantage)
        share = jnp.minimum(self.coefficient * tokens.entropy / jnp.where(size > 0.0, size, 1.0), 1.0 / self.bound)
        return push._replace(score=push.score * (1.0 + jnp.sign(tokens.advantage) * share))


@config
class Stare(Intervention):
    """While the mean entropy is below `target`: w ← 1.1 w for the most surprising 10 % of the tokens with A > 0, and
    w ← 0.9 w for the most surprising 10 % of those with A < 0; the surprise is −log π.

    source  STARE (arXiv:2606.19236), variant C2; its default O1 is attenuate=1
    """

    fraction: Number = 0.1  # of each sign
    amplify: Number = 1.1
    attenuate: Number = 0.9
    target: Number = 0.3  # nats

    scope: ClassVar[str] = "batch"
    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_number("amplify", self.amplify, 1.0)
        check_number("attenuate", self.attenuate, 0.0, 1.0)
        check_number("target", self.target)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        on = (token_mean(tokens, tokens.entropy) < self.target).astype(push.score.dtype)
        good, bad = (on * self._rare(tokens, side, key is None) for side in (tokens.advantage, -tokens.advantage))
        factor = 1.0 + (self.amplify - 1.0) * good + (self.attenuate - 1.0) * bad
        return push._replace(score=push.score * factor, selected=good + bad)

    def _rare(self, tokens: Tokens, side: Float[Array, " N"], population: bool) -> Float[Array, " N"]:
        those = tokens._replace(weight=jnp.where(side > 0.0, tokens.weight, 0.0))
        return top_share(-tokens.log_prob, those, self.fraction, population)


@config
class REPO(Intervention):
    """A ← A − β (log π + H), so w ← w − r β (log π + H): over all actions exactly the entropy bonus α = β.

    source  2603.11682 as reported by others; there β adapts
    """

    coefficient: Number = 1e-3  # β, reward per nat

    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        bonus = ratio(tokens) * self.coefficient * (tokens.log_prob + tokens.entropy)
        return push._replace(score=push.score - bonus)


@config
class REPORescaled(Intervention):
    """A ← A (1 − ζ log π) where A > 0, A (1 + ζ log π) where A < 0: rare tokens gain when good, are spared when bad.

    source  REPO-R, as reported by others; which sign goes with which is our reading
    trap    a bad token with log π < −1/ζ changes the sign of its push
    """

    coefficient: Number = 0.1  # ζ per nat; ours

    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, 0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        factor = 1.0 - jnp.sign(tokens.advantage) * self.coefficient * tokens.log_prob
        return push._replace(score=push.score * factor)


@config
class LUFFY(Intervention):
    """w = A γ x/(x + γ)² for a foreign token, x = π: the slope of A x/(x + γ), which lifts rare foreign actions.

    The foreign tokens are those of OffPolicy; their importance ratio is taken out. The others keep their w.

    source  2504.14945, as released ("p_div_p_0.1")
    """

    shape: Number = 0.1  # γ, a probability

    kind: ClassVar[str] = "probability-dependent"

    def __post_init__(self) -> None:
        check_number("shape", self.shape, 0.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        x, foreign = jnp.exp(tokens.log_prob), tokens.group < 0
        factor = self.shape * x / (x + self.shape) ** 2 / ratio(tokens)
        score = push.score * jnp.where(foreign, factor, 1.0)
        return push._replace(score=score, selected=foreign.astype(score.dtype))
