"""Advantage estimators: from the rewards of grouped episodes to one advantage a token.

Every estimator is one formula that serves a sample and the whole population: means are weighted, and n, the number of
episodes in a group, is infinite for the population (so that n/(n−1) = 1).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from softmaxdyn.configs import config


class Outcomes(NamedTuple):
    """What E episodes of at most T tokens earned.

    reward    [E, T]  reward of each token, 0 after the end
    mask      [E, T]  False after the end
    group     [E]     number of the group, 0 … E−1: the episodes from one start
    weight    [E]     share of each episode: 1/E (sampled), d(s) π(a|s) (population)
    size      [E]     number n of episodes in its group, +∞ for the population
    greedy    [E]     return of the greedy policy from the same start
    best_baseline [E] the baseline with the least variance for the start (exact)
    """

    reward: Float[Array, "E T"]
    mask: Bool[Array, "E T"]
    group: Int[Array, " E"]
    weight: Float[Array, " E"]
    size: Float[Array, " E"]
    greedy: Float[Array, " E"]
    best_baseline: Float[Array, " E"]

    @property
    def score(self) -> Float[Array, " E"]:
        """The return of each episode."""
        return jnp.sum(self.reward, -1)


class Advantage(Protocol):
    """A config that is called on outcomes and gives the advantage of every token, 0 after the end."""

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        """A [E, T]."""


def per_token(outcomes: Outcomes, advantage: Float[Array, " E"]) -> Float[Array, "E T"]:
    """The advantage of an episode, given to each of its tokens."""
    return jnp.where(outcomes.mask, advantage[:, None], 0.0)


def group_sum(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """Σ of `values` over the group of each episode."""
    return jax.ops.segment_sum(values, outcomes.group, values.shape[0])[outcomes.group]


def group_mean(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """The weighted mean of `values` over the group of each episode; exact where all are equal."""
    counted = jnp.where(outcomes.weight > 0.0, values, -jnp.inf)
    origin = jax.ops.segment_max(counted, outcomes.group, values.shape[0])[outcomes.group]
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)
    total = group_sum(outcomes, outcomes.weight)
    shift = group_sum(outcomes, outcomes.weight * (values - origin))
    return origin + jnp.where(total > 0.0, shift / jnp.where(total > 0.0, total, 1.0), 0.0)


def group_std(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """The unbiased standard deviation of `values` over the group of each episode; 1 for a group of one."""
    variance = group_mean(outcomes, (values - group_mean(outcomes, values)) ** 2)
    return jnp.where(outcomes.size > 1.0, jnp.sqrt(variance * unbiased(outcomes)), 1.0)


def unbiased(outcomes: Outcomes) -> Float[Array, " E"]:
    """n/(n−1) of each episode's group; 1 for the population and for a group of one."""
    return jnp.where(outcomes.size > 1.0, 1.0 / (1.0 - 1.0 / outcomes.size), 1.0)


@config
class GRPO:
    """A = (R − mean)/(std + ε) over the group, std with n − 1; a group of one keeps R/(1 + ε)."""

    epsilon: float = 1e-6

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        score = outcomes.score
        mean = jnp.where(outcomes.size > 1.0, group_mean(outcomes, score), 0.0)
        return per_token(outcomes, (score - mean) / (group_std(outcomes, score) + self.epsilon))


@config
class RLOO:
    """A = n/(n−1) (R − mean): the reward less the mean of the others of its group; a group of one keeps R."""

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        score = outcomes.score
        mean = jnp.where(outcomes.size > 1.0, group_mean(outcomes, score), 0.0)
        return per_token(outcomes, unbiased(outcomes) * (score - mean))
