"""Advantages that compare an episode with the others of its group: the episodes from the same start."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.advantages.outcomes import (
    Advantage,
    Outcomes,
    against_others,
    divide,
    group_max,
    group_mean,
    group_quantile,
    group_std,
    lengths,
    per_token,
    unbiased,
)
from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number


@config
class GRPO(Advantage):
    """A = (R − mean)/(std + ε) over the group, std with n − 1; c(s) = 1/(σ + ε), σ² = p(1−p) for a binary reward.

    source  DeepSeekMath (arXiv:2402.03300); ε and n − 1 as released in verl
    trap    a group of one keeps R/(1 + ε): no baseline at all
    """

    epsilon: Number = 1e-6  # in units of reward

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "keeps the raw return R/(1 + ε), without a baseline"

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0.0)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        spread = group_std(outcomes, outcomes.score) + self.epsilon
        return per_token(outcomes, divide(against_others(outcomes, outcomes.score), spread))


@config
class DrGRPO(Advantage):
    """A = R − mean over the group: GRPO without the std. E[A] is (n−1)/n of the truth; c(s) = 1 as n → ∞.

    source  Liu et al. 2025 (arXiv:2503.20783)
    """

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "keeps the raw return R, without a baseline (R − mean would be 0)"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, against_others(outcomes, outcomes.score))


@config
class RLOO(Advantage):
    """A = n/(n−1) (R − mean): the return less the mean of the others of its group. c(s) = 1, without bias.

    source  Kool et al. 2019; Ahmadian et al. 2024 (arXiv:2402.14740)
    """

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "keeps the raw return R: there are no others to compare with"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, unbiased(outcomes) * against_others(outcomes, outcomes.score))


@config
class OPO(Advantage):
    """A = R − Σ l R/Σ l over the group, l the lengths of the responses. DrGRPO where lengths are equal; c(s) = 1.

    source  Hao et al. 2025 (arXiv:2505.23585), as released; OptimalBaseline is what it approximates
    trap    meant for one update a batch: every ratio is 1
    """

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "keeps the raw return R, without a baseline (R − mean would be 0)"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        baseline = group_mean(outcomes, outcomes.score, outcomes.weight * lengths(outcomes))
        return per_token(outcomes, outcomes.score - jnp.where(outcomes.size > 1.0, baseline, 0.0))


@config
class QAE(Advantage):
    """A = R − b, b the K-quantile of the group; for a binary reward 0 if p ≤ 1 − K, else 1. c(s) = 1 as n → ∞.

    Hard groups reinforce their rare successes only, easy ones penalise their rare failures only.

    source  Wu et al. 2025 (arXiv:2509.22611); without the division by std that its experiments keep (from memory)
    """

    level: Number = 0.4  # K, a probability

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "gives 0: a return is its own quantile"

    def __post_init__(self) -> None:
        check_number("level", self.level, 0.0, 1.0, open_low=True)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score - group_quantile(outcomes, outcomes.score, self.level))


@config
class PassKGap(Advantage):
    """A = best − second best for the best of the group, 0 for the others; 0 for all if the best is not the only one.

    source  verl's GRPO pass@k without the std; in an infinite group nobody is the only best: A = 0
    """

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "gives 0: there is no second best (verl raises)"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, lead_of_the_best(outcomes))


@config
class PassK(Advantage):
    """A = (best − second best)/(std + ε) for the best of the group, 0 for the others and where the best is not alone.

    source  verl's GRPO pass@k; in an infinite group nobody is the only best: A = 0
    """

    epsilon: Number = 1e-6  # in units of reward

    scope: ClassVar[str] = "group"
    alone: ClassVar[str] = "gives 0: there is no second best (verl raises)"

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0.0)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        spread = group_std(outcomes, outcomes.score) + self.epsilon
        return per_token(outcomes, divide(lead_of_the_best(outcomes), spread))


def lead_of_the_best(outcomes: Outcomes) -> Float[Array, " E"]:
    """Best − second best return of the group at its best episode (the first of equals), 0 elsewhere."""
    score, count = outcomes.score, outcomes.group.shape[0]
    number = jax.lax.iota(jnp.int32, count)
    best = (score == group_max(outcomes, score)) & (outcomes.weight > 0.0)
    first = jax.ops.segment_min(jnp.where(best, number, count), outcomes.group, count)[outcomes.group]
    second = group_max(outcomes, jnp.where(number == first, -jnp.inf, score))
    several = (outcomes.size > 1.0) & jnp.isfinite(outcomes.size)
    return jnp.where((number == first) & several, score - jnp.where(several, second, score), 0.0)
