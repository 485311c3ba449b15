"""Advantages that look at one episode: its return, and a baseline that no other episode changes."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.advantages.outcomes import Advantage, Outcomes, divide, lengths, per_token, rewards_to_go
from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number


@config
class REINFORCE(Advantage):
    """A = R: the return itself (Williams 1992). c(s) = 1."""

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score)


@config
class Baseline(Advantage):
    """A = R − b with a constant b. c(s) = 1: b changes the noise, not the expected step."""

    value: Number = 0.5  # b, in units of reward

    def __post_init__(self) -> None:
        check_number("value", self.value)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score - self.value)


@config
class ValueBaseline(Advantage):
    """A_t = G_t − V(s_t), G_t the undiscounted reward-to-go and V exact: a perfect critic. c(s) = 1."""

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        to_go = rewards_to_go(outcomes, outcomes.reward)
        return jnp.where(outcomes.mask, to_go - outcomes.need("values", self), 0.0)


@config
class OptimalBaseline(Advantage):
    """A = R − b*, b* = E[‖e_a − π‖² R]/E[‖e_a − π‖²]: the least variance a baseline can give (exact). c(s) = 1.

    OPO (arXiv:2505.23585) approximates b* by weighting with the lengths of the responses.
    """

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score - outcomes.need("best_baseline", self))


@config
class ReMax(Advantage):
    """A_t = G_t − R(greedy): the baseline is the return of the greedy policy. c(s) = 1.

    source  Li et al. 2023 (arXiv:2310.10505); rewards of masked tokens are dropped, as released
    """

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        to_go = rewards_to_go(outcomes, outcomes.reward)
        return jnp.where(outcomes.mask, to_go - outcomes.need("greedy", self)[:, None], 0.0)


@config
class PSR(Advantage):
    """A = R for R in {0, 1}: only correct samples are reinforced; wrong ones stay in the mean. c(s) = 1.

    source  Zhu et al. 2025 (arXiv:2506.01347)
    """

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score)


@config
class NSR(Advantage):
    """A = −(1 − R) for R in {0, 1}: only wrong samples are penalised; correct ones stay in the mean. c(s) = 1.

    source  Zhu et al. 2025 (arXiv:2506.01347)
    """

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, outcomes.score - 1.0)


@config
class WReinforce(Advantage):
    """A = λR − (1 − R) for R in {0, 1}: no baseline, correct samples count λ, wrong ones −1. c(s) = 1 + λ.

    source  W-REINFORCE, Zhu et al. 2025 (arXiv:2506.01347)
    """

    coefficient: Number = 0.1  # λ

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, low=0.0)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return per_token(outcomes, self.coefficient * outcomes.score - (1.0 - outcomes.score))


@config
class PSRReleased(Advantage):
    """PSR with the wrong samples taken out of the batch, so that the mean is over the correct ones.

    c(s) = (valid tokens)/(tokens of correct samples), one number a batch: the step no longer shrinks as R falls.
    """

    scope: ClassVar[str] = "batch"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return among_its_own(outcomes, outcomes.score)


@config
class NSRReleased(Advantage):
    """NSR with the correct samples taken out of the batch, so that the mean is over the wrong ones.

    c(s) = (valid tokens)/(tokens of wrong samples), one number a batch: the step no longer shrinks as R rises.
    """

    scope: ClassVar[str] = "batch"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return among_its_own(outcomes, outcomes.score - 1.0)


def among_its_own(outcomes: Outcomes, advantage: Float[Array, " E"]) -> Float[Array, "E T"]:
    """`advantage`, rescaled as if the episodes in which it is 0 were not in the batch."""
    tokens = outcomes.weight * lengths(outcomes)
    kept = jnp.sum(jnp.where(advantage != 0.0, tokens, 0.0))
    return per_token(outcomes, advantage * divide(jnp.sum(tokens), kept))
