"""Estimators turn (problem, policy) into tokens: the whole population, or a sample of episodes."""

from __future__ import annotations

from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Key

from softmaxdyn.configs import config
from softmaxdyn.policy import Policy, centred, floored_prob
from softmaxdyn.problems import Problem
from softmaxdyn.tokens import Tokens


class Estimator(Protocol):
    """Called once an outer step; `key` is None for an estimator that draws nothing."""

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        """The tokens of this step."""


@config
class Exact:
    """Every pair (s, a) with weight d(s) π(a|s) and its exact advantage Q − V: the expectation over all samples."""

    draws = False

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        states, actions = problem.shape
        value = problem.action_values(policy.prob)
        weight = problem.visits(policy.prob)[:, None] * floored_prob(policy)
        log_prob = jnp.where(jnp.isfinite(policy.log_prob), policy.log_prob, 0.0).ravel()
        state = jnp.repeat(jnp.arange(states, dtype=jnp.int32), actions)
        zero = jnp.zeros_like(state)
        return Tokens(
            state=state,
            action=jnp.tile(jnp.arange(actions, dtype=jnp.int32), states),
            weight=weight.ravel(),
            advantage=centred(policy, value).ravel(),
            log_prob=log_prob,
            old_log_prob=log_prob,
            entropy=policy.entropy[state],
            reward=value.ravel(),
            episode=zero,
            group=state,
            position=zero,
        )
