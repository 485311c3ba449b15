"""Estimators turn (problem, policy) into tokens: the whole population, or a sample of episodes."""

from __future__ import annotations

from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from softmaxdyn.advantages import GRPO, Advantage, Outcomes
from softmaxdyn.configs import config, static
from softmaxdyn.errors import check_integer
from softmaxdyn.policy import Policy, centred, floored_prob
from softmaxdyn.problems import Problem
from softmaxdyn.rewards import RewardSource, TrueReward
from softmaxdyn.tokens import Tokens


class Estimator(Protocol):
    """Called once an outer step. `draws` says whether it needs a key; without one its tokens are the population."""

    draws: ClassVar[bool]

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        """The tokens of this step."""


@config
class Exact:
    """Every pair (s, a) with weight d(s) π(a|s): the expectation over all samples.

    The advantage is the exact Q − V or, given an estimator such as GRPO(), what that estimator tends to in a group of
    infinite size from state s (for a bandit; in longer problems each state counts as a start).
    """

    advantage: Advantage | None = None
    reward: RewardSource = TrueReward()

    draws: ClassVar[bool] = False

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        states, actions = problem.shape
        value = self.reward.expected(problem, policy)
        weight = (problem.visits(policy.prob)[:, None] * floored_prob(policy)).ravel()
        state = jax.lax.broadcasted_iota(jnp.int32, (states, actions), 0).ravel()
        number = jax.lax.iota(jnp.int32, states * actions)
        advantage = centred(policy, value).ravel()
        if self.advantage is not None:
            outcomes = Outcomes(
                reward=value.reshape(-1, 1),
                mask=(policy.log_prob > -jnp.inf).reshape(-1, 1),
                group=state,
                weight=weight,
                size=jnp.full(weight.shape, jnp.inf, weight.dtype),
                greedy=_at_mode(policy, value)[state],
                best_baseline=best_baseline(policy, value)[state],
            )
            advantage = self.advantage(outcomes)[:, 0]
        log_prob = jnp.where(jnp.isfinite(policy.log_prob), policy.log_prob, 0.0).ravel()
        return Tokens(
            state=state,
            action=jax.lax.broadcasted_iota(jnp.int32, (states, actions), 1).ravel(),
            weight=weight,
            advantage=advantage,
            log_prob=log_prob,
            old_log_prob=log_prob,
            entropy=policy.entropy[state],
            reward=value.ravel(),
            episode=number,
            group=state,
            position=jnp.zeros_like(state),
        )


@config
class Sampled:
    """`groups` starts, `group_size` episodes from each; every token weighs 1/(number of episodes)."""

    groups: int = static(16)
    group_size: int = static(8)
    advantage: Advantage = GRPO()
    reward: RewardSource = TrueReward()

    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer("groups", self.groups, 1)
        check_integer("group_size", self.group_size, 1)

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        begin, play, pay = jax.random.split(key, 3)
        count = self.groups * self.group_size
        start = jax.vmap(problem.sample_start)(jax.random.split(begin, self.groups))
        group = jnp.repeat(jnp.arange(self.groups, dtype=jnp.int32), self.group_size)
        episodes = jax.vmap(problem.rollout, (0, None, 0))(jax.random.split(play, count), policy.logits, start[group])
        paid = jax.vmap(self.reward.drawn, (0, None, None, 0))(jax.random.split(pay, count), problem, policy, episodes)
        length, kind = episodes.state.shape[1], policy.prob.dtype
        weight = jnp.full(count, 1.0 / count, kind)
        value = self.reward.expected(problem, policy)
        outcomes = Outcomes(
            reward=paid,
            mask=episodes.taken,
            group=group,
            weight=weight,
            size=jnp.full(count, self.group_size, kind),
            greedy=_at_mode(policy, value)[start[group]],
            best_baseline=best_baseline(policy, value)[start[group]],
        )
        state, action = episodes.state.ravel(), episodes.action.ravel()
        log_prob = policy.log_prob[state, action]
        log_prob = jnp.where(jnp.isfinite(log_prob), log_prob, 0.0)
        return Tokens(
            state=state,
            action=action,
            weight=jnp.where(episodes.taken, weight[:, None] * problem.episodes_at_once, 0.0).ravel(),
            advantage=self.advantage(outcomes).ravel(),
            log_prob=log_prob,
            old_log_prob=log_prob,
            entropy=policy.entropy[state],
            reward=_spread(outcomes.score, length),
            episode=_spread(jnp.arange(count, dtype=jnp.int32), length),
            group=_spread(group, length),
            position=jnp.tile(jnp.arange(length, dtype=jnp.int32), count),
        )


def best_baseline(policy: Policy, value: Float[Array, "S A"]) -> Float[Array, " S"]:
    """b* = Σ π ‖e_a − π‖² r / Σ π ‖e_a − π‖², ‖e_a − π‖² = 1 − 2π_a + ‖π‖²: the baseline of least variance."""
    squares = jnp.sum(policy.prob**2, -1, keepdims=True)
    weight = policy.prob * (1.0 - 2.0 * policy.prob + squares)
    total = jnp.sum(weight, -1)
    return jnp.where(total > 0.0, jnp.sum(weight * value, -1) / jnp.where(total > 0.0, total, 1.0), 0.0)


def _at_mode(policy: Policy, value: Float[Array, "S A"]) -> Float[Array, " S"]:
    return jnp.sum(jnp.where(policy.mode, value, 0.0), -1)


def _spread(values: Float[Array, " E"] | Int[Array, " E"], length: int) -> Array:
    return jnp.repeat(values, length)
