"""Advantages that look at the whole batch: its mean and spread, or the share of it that carries a signal."""

from __future__ import annotations

from typing import Any, ClassVar

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
    lengths,
    per_token,
    rewards_to_go,
    unbiased,
    whiten,
)
from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number


@config
class ReinforcePP(Advantage):
    """A = (G − mean)/√(var + 1e-8) over the tokens of the batch, G the discounted reward-to-go. c = 1/sd of the batch.

    source  REINFORCE++ (arXiv:2501.03262), as in verl since 2026-08: a masked span hands G on
    trap    no group: a state whose returns are all equal is still pushed, by its distance from the batch mean. Only
            the noise of that push is not 0, its mean is
    """

    discount: Number = 1.0  # γ

    scope: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        check_number("discount", self.discount, 0.0, 1.0)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return whiten(outcomes, rewards_to_go(outcomes, outcomes.reward, self.discount))


@config
class ReinforcePPBaseline(Advantage):
    """A = R − mean over the group, whitened over the tokens of the batch. c = 1/sd of the batch.

    source  REINFORCE++-baseline (arXiv:2501.03262), as in verl: long responses weigh more in the whitening
    """

    scope: ClassVar[str] = "batch"
    alone: ClassVar[str] = "keeps the raw return R before the batch is whitened"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        return whiten(outcomes, per_token(outcomes, against_others(outcomes, outcomes.score)))


@config
class GPG(Advantage):
    """A = α (R − mean) over the group, α = episodes/(episodes in groups whose returns are not all equal). c = α.

    source  Chu et al. 2025 (arXiv:2504.02546)
    """

    scope: ClassVar[str] = "batch"
    alone: ClassVar[str] = "keeps the raw return R and, all groups being without signal, α = 1"

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        score = outcomes.score
        signal = group_max(outcomes, score) > -group_max(outcomes, -score)
        total, useful = jnp.sum(outcomes.weight), jnp.sum(jnp.where(signal, outcomes.weight, 0.0))
        alpha = jnp.where(useful > 0.0, divide(total, useful), 1.0)
        return per_token(outcomes, alpha * against_others(outcomes, score))


@config
class GPGReleased(Advantage):
    """A = α (R − mean)/f over the group, α = episodes/max(1, episodes with R ≠ 0): verl's form. c = α/f.

    trap    with rewards in {−1, 1} α is 1; with {0, 1} it is 1/R, whether or not groups carry a signal
    """

    norm: Number = 1.0  # f

    scope: ClassVar[str] = "batch"
    alone: ClassVar[str] = "keeps the raw return R, times α/f"

    def __post_init__(self) -> None:
        check_number("norm", self.norm, 0.0, open_low=True)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        score = outcomes.score
        total, paid = jnp.sum(outcomes.weight), jnp.sum(jnp.where(score != 0.0, outcomes.weight, 0.0))
        alpha = jnp.where(paid > 0.0, divide(total, paid), 1.0)
        return per_token(outcomes, alpha / self.norm * against_others(outcomes, score))


@config
class GAE(Advantage):
    """A_t = δ_t + γλ A_next, δ_t = r_t + γ V_next − V_t over the valid tokens, then whitened over the batch.

    source  Schulman et al. 2015 (arXiv:1506.02438), as in verl; V is exact here: a perfect critic
    """

    discount: Number = 1.0  # γ
    trace: Number = 1.0  # λ

    scope: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        check_number("discount", self.discount, 0.0, 1.0)
        check_number("trace", self.trace, 0.0, 1.0)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        values = outcomes.need("values", self)
        gamma, fade = (jnp.asarray(x, values.dtype) for x in (self.discount, self.discount * self.trace))

        def back(later: Any, token: Any) -> Any:
            (advantage, value), (r, v, valid) = later, token
            now = jnp.where(valid, r + gamma * value - v + fade * advantage, advantage)
            return (now, jnp.where(valid, v, value)), now

        start = jnp.zeros_like(values[:, 0])
        rows = (outcomes.reward.T, values.T, outcomes.mask.T)
        return whiten(outcomes, jax.lax.scan(back, (start, start), rows, reverse=True)[1].T)


@config
class PRIME(Advantage):
    """RLOO of the return plus RLOO of the process rewards q_t, as reward-to-go, whitened over the batch.

        A = whiten Σ_{u ≥ t} [c_R n/(n−1) (R − mean R) at the last token + c_q n/(n−1) (q_u − mean over the group of
            each response's mean q) at every token]

    Its direction mixes R and q; it is not that of π∘(r − p) unless q is a linear function of r.
    source  Cui et al. 2025 (arXiv:2502.01456), released form; q comes from `process=ImplicitReward()` of the estimator
    trap    the baseline of q is subtracted at every token: longer responses pay it more often
    """

    outcome: Number = 5.0  # c_R
    process: Number = 5.0  # c_q

    scope: ClassVar[str] = "batch"
    alone: ClassVar[str] = "keeps the raw return and process reward before the batch is whitened"

    def __post_init__(self) -> None:
        check_number("outcome", self.outcome)
        check_number("process", self.process)

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        mask, scale = outcomes.mask, unbiased(outcomes)[:, None]
        q = jnp.where(mask, outcomes.need("process", self), 0.0)
        left = jnp.cumsum(mask[:, ::-1], -1)[:, ::-1]
        of_return = jnp.where(mask & (left == 1), against_others(outcomes, outcomes.score)[:, None], 0.0)
        mean_q = group_mean(outcomes, divide(jnp.sum(q, -1), lengths(outcomes)))
        of_process = q - jnp.where(outcomes.size > 1.0, mean_q, 0.0)[:, None]
        reward = scale * (self.outcome * of_return + self.process * of_process)
        return whiten(outcomes, rewards_to_go(outcomes, reward))
