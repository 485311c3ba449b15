"""Estimators that add tokens of another policy to those of the current one."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from softmaxdyn.configs import Number, config, static
from softmaxdyn.errors import check_fraction, check_number
from softmaxdyn.estimators.on_policy import OnPolicy, Sampled
from softmaxdyn.estimators.protocol import Batch, Estimator, changed, split
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.tokens import Tokens, under


class Around(Estimator):
    """An estimator that adds tokens to those of a base."""

    base: OnPolicy

    @property
    def draws(self) -> bool:
        """Whether the base does."""
        return self.base.draws

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With its base at the start of a run."""
        return changed(self, base=self.base.init(logits))

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With its base one step on."""
        return changed(self, base=self.base.next(tokens, policy))

    def population(self) -> Self:
        """The same, around the population of the base."""
        return changed(self, base=self.base.population())


@config
class OffPolicy(Around):
    """A share of each group is played by a fixed foreign policy; the advantage compares all of the group.

    Foreign tokens keep log π_foreign as old_log_prob, so the plain score is importance weighted; an intervention knows
    them by `tokens.group < 0` (−1 − g for group g), and LUFFY gives them its weight.

    source  LUFFY (arXiv:2504.14945): one of eight responses comes from a stronger model
    """

    base: OnPolicy = Sampled()
    share: float = static(default=0.125)  # of the episodes of each group
    logits: Any = None  # of the foreign policy, [A] or [S, A]; by default it is uniform over the best actions

    def __post_init__(self) -> None:
        check_fraction("share", self.share)
        if isinstance(self.base, OnPolicy):
            self.base.parts(self.share)

    def foreign(self, problem: Problem, policy: Policy) -> Policy:
        """The policy of the foreign episodes."""
        if self.logits is not None:
            logits = jnp.broadcast_to(jnp.asarray(self.logits, policy.prob.dtype), problem.shape)
            return softmax(jnp.where(policy.log_prob > -jnp.inf, logits, -jnp.inf))
        value = jnp.where(policy.log_prob > -jnp.inf, problem.action_values(policy.prob), -jnp.inf)
        return softmax(jnp.where(value == jnp.max(value, -1, keepdims=True), 0.0, -jnp.inf).astype(policy.prob.dtype))

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        begin, act, other = split(key, 3)
        part, rest = self.base.parts(self.share)
        own = self.base.play(begin, act, problem, policy, policy, part)
        foreign = self.base.play(begin, other, problem, policy, self.foreign(problem, policy), rest)
        batch = jax.tree.map(lambda *x: jnp.concatenate(x), own, foreign)
        tokens = under(self.base.tokens(batch, self.base.advantages(batch, problem, policy), policy), policy)
        return tokens._replace(group=jnp.where(tokens.episode < own.group.shape[0], tokens.group, ~tokens.group))


@config
class AEPO(Around):
    """Tokens of the base, and beside them those of softmax(z/T) with A = 1 where the answer is right, else 0.

    T is `hot` while the mean entropy is at most `target`, else `cold`; then the policy imitates right answers that are
    more, or less, spread out than its own. The weights of the base sink to 1 − share, the others have share.
    Tempered tokens have group −1 − g and, as they are pushed without importance weight, old_log_prob of π itself.

    source  arXiv:2510.08141, REINFORCE on a temperature-adjusted distribution; temperatures, target and 60 of 512 · 5
            responses are its release's, which is `AEPOReleased`
    """

    base: OnPolicy = Sampled()
    share: Number = 60 / 2560  # of the batch
    target: Number = 0.5  # H*, nats
    hot: Number = 1.2  # T while H ≤ H*
    cold: Number = 0.8  # T while H > H*

    def __post_init__(self) -> None:
        check_fraction("share", self.share)
        check_number("target", self.target, low=0.0)
        check_number("hot", self.hot, 0.0, open_low=True)
        check_number("cold", self.cold, 0.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        begin, act, other = split(key, 3)
        visits = problem.visits(policy.prob)
        cool = jnp.sum(visits * policy.entropy) <= self.target * jnp.sum(visits)
        actor = softmax(policy.logits / jnp.where(cool, self.hot, self.cold).astype(policy.prob.dtype))
        own = self.base.play(begin, act, problem, policy, policy)
        tempered = self.base.play(begin, other, problem, policy, actor)
        share, factor, advantage = self.mixture(tempered, cool, problem, policy)
        ours = self.base.tokens(own, self.base.advantages(own, problem, policy), policy)
        theirs = under(self.base.tokens(tempered, advantage, policy), policy)
        theirs = theirs._replace(
            weight=factor.ravel() * theirs.weight,
            old_log_prob=theirs.log_prob,
            group=~theirs.group,
            episode=theirs.episode + own.group.shape[0],
        )
        return jax.tree.map(lambda *x: jnp.concatenate(x), ours._replace(weight=(1.0 - share) * ours.weight), theirs)

    def mixture(
        self, batch: Batch, cool: Bool[Array, ""], problem: Problem, policy: Policy
    ) -> tuple[Any, Array, Array]:
        """(share of the tempered tokens, factor on the weight of each, advantage of each)."""
        right = jnp.broadcast_to(jnp.sum(batch.reward, -1, keepdims=True) > 0.0, batch.taken.shape)
        return self.share, jnp.full_like(batch.log_prob, self.share), right.astype(batch.log_prob.dtype)


@config
class AEPOReleased(AEPO):
    """AEPO as released: only tempered tokens of advantage > 0.05 under the base's estimator enter, all with A = 1.

    They are `share` of the batch (half of it above the target), or as many as there are; the release takes the first
    ones and lets them replace tokens of the base, this one scales the weights.
    """

    def mixture(
        self, batch: Batch, cool: Bool[Array, ""], problem: Problem, policy: Policy
    ) -> tuple[Any, Array, Array]:
        """(share of the tempered tokens, factor on the weight of each, advantage of each)."""
        weight = jnp.where(batch.taken, batch.weight[:, None], 0.0)
        chosen = self.base.advantages(batch, problem, policy) > 0.05
        found = jnp.sum(jnp.where(chosen, weight, 0.0)) / jnp.sum(weight)
        share = jnp.minimum(jnp.where(cool, 1.0, 0.5) * self.share, found)
        factor = jnp.where(chosen, share / jnp.where(found > 0.0, found, 1.0), 0.0)
        return share, factor.astype(weight.dtype), jnp.ones_like(weight)
