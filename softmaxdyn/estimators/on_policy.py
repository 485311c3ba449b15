"""Estimators whose tokens come from the current policy: all pairs (s, a), or episodes that were drawn."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.advantages import GRPO, Advantage, Outcomes
from softmaxdyn.aggregation import Aggregation, SequenceMeanTokenSum
from softmaxdyn.configs import config, static
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.estimators.protocol import Batch, Estimator, as_tokens, changed, split
from softmaxdyn.policy import Policy, centred, floored_prob, softmax
from softmaxdyn.problems import Episode, Problem
from softmaxdyn.rewards import ImplicitReward, RewardSource, TrueReward
from softmaxdyn.tokens import Tokens


class OnPolicy(Estimator):
    """What Exact and Sampled share: episodes are played, paid, and compared by an advantage estimator."""

    advantage: Advantage | None
    reward: RewardSource
    process: ImplicitReward | None
    aggregation: Aggregation

    def parts(self, share: float) -> tuple[Any, Any]:
        """A group in two parts, the second of them `share` of it, in the units that `play` takes."""
        raise NotImplementedError

    def play(self, begin: Any, act: Any, problem: Problem, policy: Policy, actor: Policy, part: Any = None) -> Batch:
        """Episodes of `actor` (all of each group, or a part), from the starts that the key `begin` draws."""
        raise NotImplementedError

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With its process reward at the start of a run."""
        return self if self.process is None else changed(self, process=self.process.init(logits))

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With its process reward one lesson on."""
        return self if self.process is None else changed(self, process=self.process.next(tokens))

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        begin, act = split(key, 2)
        batch = self.play(begin, act, problem, policy, policy)
        return self.tokens(batch, self.advantages(batch, problem, policy), policy)

    def tokens(self, batch: Batch, advantage: Float[Array, "E T"], policy: Policy) -> Tokens:
        """The tokens of a batch, weighed by the aggregation."""
        return as_tokens(batch, advantage, policy, self.aggregation)

    def advantages(self, batch: Batch, problem: Problem, policy: Policy) -> Float[Array, "E T"]:
        """The advantage of each token: the estimator's, or the exact Q − V."""
        value = self.reward.expected(problem, policy)
        if self.advantage is None:
            return centred(policy, value)[batch.state, batch.action]
        start = batch.state[:, 0]
        outcomes = Outcomes(
            reward=batch.reward,
            mask=batch.taken,
            group=batch.group,
            weight=batch.weight,
            size=batch.size,
            greedy=at_mode(policy, self.reward.expected(problem, policy, greedy(policy)))[start],
            best_baseline=best_baseline(problem, policy, value)[start],
            values=state_value(policy, value)[batch.state],
            process=None if self.process is None else self.process.table()[batch.state, batch.action],
        )
        return self.advantage(outcomes)


@config
class Exact(OnPolicy):
    """The whole population, each token with its expected weight: no draws.

    Without an advantage estimator, every pair (s, a) with weight d(s) π(a|s) and the exact A = Q − V. With one, such as
    GRPO(), every episode that the problem can play, with its probability, in a group of infinite size: what the
    estimator tends to. Where episodes cannot be listed (an MDP), each state counts as the start of episodes of one step
    that earn Q(s, a).
    """

    advantage: Advantage | None = None
    reward: RewardSource = TrueReward()
    process: ImplicitReward | None = None
    aggregation: Aggregation = SequenceMeanTokenSum()

    @property
    def draws(self) -> bool:
        """False."""
        return False

    def parts(self, share: float) -> tuple[Any, Any]:
        """Shares of the weight."""
        return 1.0 - share, share

    def play(self, begin: Any, act: Any, problem: Problem, policy: Policy, actor: Policy, part: Any = None) -> Batch:
        """Every episode once, or every pair as an episode of one token whose return is Q(s, a)."""
        listing = None if self.advantage is None else problem.listing(floored_prob(actor))
        if listing is None:
            episode, weight = self.pairs(problem, policy, actor)
        else:
            episode, weight = listing
            pay = partial(self.reward.drawn, None, problem, policy)
            episode = episode._replace(reward=jax.vmap(pay)(episode))
        log_prob = actor.log_prob[episode.state, episode.action]
        return Batch(
            state=episode.state,
            action=episode.action,
            taken=episode.taken & (policy.log_prob[episode.state, episode.action] > -jnp.inf),
            reward=episode.reward,
            log_prob=jnp.where(jnp.isfinite(log_prob), log_prob, 0.0),
            group=episode.state[:, 0],
            weight=weight if part is None else part * weight,
            size=jnp.full(weight.shape, jnp.inf, weight.dtype),
        )

    def pairs(self, problem: Problem, policy: Policy, actor: Policy) -> tuple[Episode, Float[Array, " E"]]:
        """(every pair as an episode of one token, d(s) π(a|s) in the units of the aggregation)."""
        state, action = (jax.lax.broadcasted_iota(jnp.int32, problem.shape, axis).reshape(-1, 1) for axis in (0, 1))
        visits = problem.visits(actor.prob)
        length = jnp.sum(visits) / jnp.asarray(problem.episodes_at_once, visits.dtype)
        longest = lambda: jax.eval_shape(problem.rollout, jax.random.key(0), policy.logits).state.shape[0]  # noqa: E731
        weight = self.aggregation.of_visits(length, longest) * visits[:, None] * floored_prob(actor)
        reward = self.reward.expected(problem, policy).reshape(-1, 1)
        return Episode(state, action, reward, jnp.ones(reward.shape, bool)), weight.ravel()


@config
class Sampled(OnPolicy):
    """`groups` starts, `group_size` episodes from each; by default every token weighs 1/(number of episodes)."""

    groups: int = static(default=16)
    group_size: int = static(default=8)
    advantage: Advantage = GRPO()
    reward: RewardSource = TrueReward()
    process: ImplicitReward | None = None
    aggregation: Aggregation = SequenceMeanTokenSum()

    def __post_init__(self) -> None:
        check_integer("groups", self.groups, 1)
        check_integer("group_size", self.group_size, 1)
        effect = getattr(self.advantage, "alone", "")
        if self.group_size == 1 and effect:
            warnings.warn(f"in a group of 1, {type(self.advantage).__name__} {effect}", stacklevel=3)

    @property
    def draws(self) -> bool:
        """True."""
        return True

    def population(self) -> Exact:
        """Groups of infinite size from every start."""
        return Exact(self.advantage, self.reward, self.process, self.aggregation)

    def parts(self, share: float) -> tuple[Any, Any]:
        """Numbers of episodes, at least one for the second part."""
        second = max(1, round(share * self.group_size))
        if second >= self.group_size:
            raise InputError(f"group_size is {self.group_size}; wanted at least {second + 1}, to share a group")
        return self.group_size - second, second

    def play(self, begin: Any, act: Any, problem: Problem, policy: Policy, actor: Policy, part: Any = None) -> Batch:
        """`part` episodes a group."""
        each = self.group_size if part is None else part
        count, kind = self.groups * each, policy.prob.dtype
        group = jnp.repeat(jnp.arange(self.groups, dtype=jnp.int32), each)
        start = jax.vmap(problem.sample_start)(jax.random.split(begin, self.groups))[group]
        play, pay = (jax.random.split(key, count) for key in jax.random.split(act))
        episodes = jax.vmap(problem.rollout, (0, None, 0))(play, actor.logits, start)
        log_prob = actor.log_prob[episodes.state, episodes.action]
        weight = jnp.asarray(problem.episodes_at_once, kind) / (self.groups * self.group_size)
        return Batch(
            state=episodes.state,
            action=episodes.action,
            taken=episodes.taken,
            reward=jax.vmap(self.reward.drawn, (0, None, None, 0))(pay, problem, policy, episodes),
            log_prob=jnp.where(jnp.isfinite(log_prob), log_prob, 0.0),
            group=group,
            weight=jnp.full(count, 1.0, kind) * weight,
            size=jnp.full(count, self.group_size, kind),
        )


def state_value(policy: Policy, value: Float[Array, "S A"]) -> Float[Array, " S"]:
    """V(s) = Σ_a π(a|s) Q(s, a), taken relative to the mode."""
    top = at_mode(policy, value)
    return top + jnp.sum(jnp.where(policy.prob > 0.0, policy.prob * (value - top[:, None]), 0.0), -1)


def best_baseline(problem: Problem, policy: Policy, value: Float[Array, "S A"]) -> Float[Array, " S"]:
    """b*(s) = E[G R]/E[G] of the episodes from s, G = Σ_t ‖e_a − π‖² along them: the baseline of least variance.

    Exact where no state comes twice in an episode, so that ‖∇ log π(y)‖² = G; ‖e_a − π‖² = 1 − 2π_a + ‖π‖².
    """
    p = policy.prob
    size = 1.0 - 2.0 * p + jnp.sum(p**2, -1, keepdims=True)
    later = problem.to_go(p, jnp.sum(p * size, -1))
    reward = value - problem.ahead(jnp.sum(p * value, -1))
    product = problem.action_values(p, size * value + reward * later)
    total = jnp.sum(p * (size + later), -1)
    return jnp.where(total > 0.0, jnp.sum(p * product, -1) / jnp.where(total > 0.0, total, 1.0), 0.0)


def greedy(policy: Policy) -> Policy:
    """The policy that always takes the most probable action."""
    return softmax(jnp.where(policy.mode, 0.0, -jnp.inf).astype(policy.prob.dtype))


def at_mode(policy: Policy, value: Float[Array, "S A"]) -> Float[Array, " S"]:
    """The value of the most probable action: what the greedy policy earns."""
    return jnp.sum(jnp.where(policy.mode, value, 0.0), -1)
