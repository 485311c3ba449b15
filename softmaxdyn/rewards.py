"""Reward sources: what an episode is paid in training. The trace's expected return stays that of the true reward."""

from __future__ import annotations

from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import config
from softmaxdyn.policy import Policy
from softmaxdyn.problems import Episode, Problem


class RewardSource(Protocol):
    """Two faces: the expected reward of each action, and the rewards of a drawn episode."""

    def expected(self, problem: Problem, policy: Policy) -> Float[Array, "S A"]:
        """E[return | s, a] under `policy`."""

    def drawn(self, key: Key[Array, ""], problem: Problem, policy: Policy, episode: Episode) -> Float[Array, " T"]:
        """The reward of each step of `episode`."""


@config
class TrueReward:
    """The problem's own reward."""

    def expected(self, problem: Problem, policy: Policy) -> Float[Array, "S A"]:
        """Q(s, a)."""
        return problem.action_values(policy.prob)

    def drawn(self, key: Key[Array, ""], problem: Problem, policy: Policy, episode: Episode) -> Float[Array, " T"]:
        """The rewards that the episode met."""
        return jnp.where(episode.taken, episode.reward, 0.0)
