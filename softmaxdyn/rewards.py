"""Reward sources: what an episode is paid in training. The trace's expected return stays that of the true reward."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number, concrete
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Episode, Problem
from softmaxdyn.tokens import Tokens


@runtime_checkable
class RewardSource(Protocol):
    """Two faces: the expected reward of each action, and the rewards of a drawn episode."""

    def expected(self, problem: Problem, policy: Policy, actor: Policy | None = None) -> Float[Array, "S A"]:
        """E[return | s, a] of rewards that `policy` earns, while `actor` (default: the same) goes on after (s, a)."""

    def drawn(
        self, key: Key[Array, ""] | None, problem: Problem, policy: Policy, episode: Episode
    ) -> Float[Array, " T"]:
        """The reward of each step of `episode`; without a key, its expectation."""


@config
class TrueReward:
    """The problem's own reward."""

    def expected(self, problem: Problem, policy: Policy, actor: Policy | None = None) -> Float[Array, "S A"]:
        """Q(s, a)."""
        return problem.action_values((actor or policy).prob)

    def drawn(
        self, key: Key[Array, ""] | None, problem: Problem, policy: Policy, episode: Episode
    ) -> Float[Array, " T"]:
        """The rewards that the episode met."""
        return jnp.where(episode.taken, episode.reward, 0.0)


@config
class IncorrectReward:
    """1 − R: the wrong answers are paid.

    source  the incorrect reward of Shao et al. 2025 (arXiv:2506.10947); on a bandit the expected step is reversed
    """

    def expected(self, problem: Problem, policy: Policy, actor: Policy | None = None) -> Float[Array, "S A"]:
        """1 − Q(s, a)."""
        return 1.0 - problem.action_values((actor or policy).prob)

    def drawn(
        self, key: Key[Array, ""] | None, problem: Problem, policy: Policy, episode: Episode
    ) -> Float[Array, " T"]:
        """1 at the last step, less the rewards that the episode met."""
        return jnp.where(at_the_end(episode), 1.0, 0.0) - jnp.where(episode.taken, episode.reward, 0.0)


@config
class RandomReward:
    """1 with a fixed probability, whatever was done. With a centred baseline the expected step is 0.

    source  the random reward of Shao et al. 2025 (arXiv:2506.10947)
    trap    in exact mode the reward is its mean, so a spread such as GRPO's std is 0 there and √(γ(1−γ)) in a sample
    """

    probability: Number = 0.5  # γ

    def __post_init__(self) -> None:
        check_number("probability", self.probability, 0.0, 1.0)

    def expected(self, problem: Problem, policy: Policy, actor: Policy | None = None) -> Float[Array, "S A"]:
        """γ for every action."""
        return jnp.full(problem.shape, self.probability, policy.prob.dtype)

    def drawn(
        self, key: Key[Array, ""] | None, problem: Problem, policy: Policy, episode: Episode
    ) -> Float[Array, " T"]:
        """0 or 1, at the last step."""
        paid = self.probability if key is None else jax.random.bernoulli(key, self.probability)
        return jnp.where(at_the_end(episode), paid, 0.0).astype(policy.prob.dtype)


class ActionReward:
    """A reward that is a table over (state, action), paid for every action of an episode; `table` says which."""

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """The reward of each action in each state; 0 for masked actions."""
        raise NotImplementedError

    def expected(self, problem: Problem, policy: Policy, actor: Policy | None = None) -> Float[Array, "S A"]:
        """The table, and what it will pay later."""
        return problem.action_values((actor or policy).prob, self.table(policy))

    def drawn(
        self, key: Key[Array, ""] | None, problem: Problem, policy: Policy, episode: Episode
    ) -> Float[Array, " T"]:
        """The table's entry for what was done."""
        return jnp.where(episode.taken, self.table(policy)[episode.state, episode.action], 0.0)


@config
class FormatReward(ActionReward):
    """1 for the actions of a set, whatever they are worth; `actions` [A] or [S, A] holds 0 and 1 (or False and True).

    Without `actions` the set is every second action, the first included.

    source  the format reward of Shao et al. 2025 (arXiv:2506.10947); the expected step goes along π∘(1_F − π_F)
    """

    actions: Any = None

    def __post_init__(self) -> None:
        if concrete(self.actions) or isinstance(self.actions, list | tuple):
            try:
                chosen = np.atleast_1d(np.asarray(self.actions, float))
            except (TypeError, ValueError):
                raise InputError("actions are ragged or not numbers; wanted 0 and 1, [A] or [S, A]") from None
            if not np.isin(chosen, (0.0, 1.0)).all():
                raise InputError("actions hold numbers other than 0 and 1; wanted the set as a mask, [A] or [S, A]")
            object.__setattr__(self, "actions", chosen > 0.0)

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """1 in the set, else 0."""
        chosen = jnp.arange(policy.prob.shape[1]) % 2 == 0 if self.actions is None else jnp.asarray(self.actions)
        if chosen.shape not in (policy.prob.shape, policy.prob.shape[1:]):
            raise InputError(
                f"actions have shape {chosen.shape}; wanted {policy.prob.shape} or {policy.prob.shape[1:]}"
            )
        return jnp.broadcast_to(chosen, policy.prob.shape).astype(policy.prob.dtype)


@config
class MajorityReward(ActionReward):
    """1 for the most probable action (the first of equals): the vote of an infinite group. The mode is amplified.

    source  TTRL (arXiv:2504.16084), whose vote is that of the finite group drawn: while no action has a clear lead it
            pays others than the mode now and then, which this does not
    """

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """1 at the mode, else 0."""
        return policy.mode.astype(policy.prob.dtype)


@config
class LogProbReward(ActionReward):
    """log π(a|s): confidence in the action that was drawn, in nats. The mode is amplified."""

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """log π, 0 where masked."""
        return jnp.where(policy.log_prob > -jnp.inf, policy.log_prob, 0.0)


@config
class SelfCertainty(ActionReward):
    """KL(U‖π(·|s)) = −log K − mean log π(·|s) over the K unmasked actions, in nats.

    source  Intuitor (arXiv:2505.19590)
    trap    on a bandit it is the same for every action of a state: any baseline makes it 0
    """

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """One number a state."""
        unmasked = policy.log_prob > -jnp.inf
        count = jnp.sum(unmasked, -1, keepdims=True, dtype=policy.prob.dtype)
        mean = jnp.sum(jnp.where(unmasked, policy.log_prob, 0.0), -1, keepdims=True) / count
        return jnp.where(unmasked, -jnp.log(count) - mean, 0.0)


@config
class EntropyReward(ActionReward):
    """−H(s), in nats: low entropy is paid.

    source  RENT (arXiv:2505.22660)
    trap    on a bandit it is the same for every action of a state: any baseline makes it 0
    """

    def table(self, policy: Policy) -> Float[Array, "S A"]:
        """One number a state."""
        return jnp.where(policy.log_prob > -jnp.inf, -policy.entropy[:, None], 0.0)


@config
class ImplicitReward:
    """The process reward q(s, a) = β (log φ(a|s) − log π_0(a|s)) of a second table φ, which learns to tell right from
    wrong.

    φ starts at π_0, the policy of the start. After each outer step it climbs Σ weight · log-likelihood of the labels
    R in [0, 1] under P(right) = σ(Σ_t q_t): φ's logits move by η β Σ weight (R − σ(Σ q)) (e_a − φ).

    source  Cui et al. 2025 (arXiv:2502.01456); the tokens that were scored teach it afterwards ("update after")
    """

    coefficient: Number = 0.05  # β, units of reward per nat
    step_size: Number = 1.0  # η of φ
    logits: Any = None  # of φ, [S, A]
    reference: Any = None  # logits of π_0, [S, A]

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, low=0.0)
        check_number("step_size", self.step_size, low=0.0)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """φ and π_0 at the start of a run, where they were not given."""
        logits = jnp.asarray(logits)
        given = [logits if x is None else jnp.asarray(x, logits.dtype) for x in (self.logits, self.reference)]
        return dataclasses.replace(self, logits=given[0], reference=given[1])

    def table(self) -> Float[Array, "S A"]:
        """q, 0 for masked actions. Raises InputError before `init`."""
        if self.logits is None or self.reference is None:
            raise InputError("ImplicitReward has no table yet; simulate makes it, or call init(logits)")
        phi, reference = softmax(self.logits).log_prob, softmax(self.reference).log_prob
        unmasked = (phi > -jnp.inf) & (reference > -jnp.inf)
        return jnp.where(unmasked, self.coefficient * (jnp.where(unmasked, phi, 0.0) - reference), 0.0)

    def next(self, tokens: Tokens) -> Self:
        """φ after one step of cross-entropy on the episodes of `tokens`."""
        q, count = self.table()[tokens.state, tokens.action], tokens.state.shape[0]
        logit = jax.ops.segment_sum(jnp.where(tokens.weight > 0.0, q, 0.0), tokens.episode, count)[tokens.episode]
        push = tokens.weight * (tokens.reward - jax.nn.sigmoid(logit))
        rows = jnp.zeros_like(self.logits).at[tokens.state, tokens.action].add(push)
        move = rows - softmax(self.logits).prob * jnp.sum(rows, -1, keepdims=True)
        return dataclasses.replace(self, logits=self.logits + self.step_size * self.coefficient * move)


def at_the_end(episode: Episode) -> Bool[Array, " T"]:
    """True at the last step that was taken."""
    later = jnp.cumsum(episode.taken[::-1])[::-1]
    return episode.taken & (later == 1)
