"""Selections by covariance: Clip-Cov and KL-Cov of Cui et al. 2025 (arXiv:2505.22617), as printed and as released.

The covariance score is C_i = (log π_i − mean log π)(A_i − mean A) under the current policy. Its means, the ranks and
the counts are those of the whole batch; the releases take them per micro-batch (`PerMicroBatch`). All scores are 0 at a
uniform policy, and scale with A: the bounds (1, 5) suit advantages of unit variance, `ClipCovQuantile` any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from softmaxdyn.configs import Number, config, static
from softmaxdyn.errors import InputError, check_fraction, check_integer, check_number, check_ordered
from softmaxdyn.interventions.clips import PPOClip, check_bounds, outside
from softmaxdyn.interventions.protocol import Intervention, Selection
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.tokens import Push, Tokens, covariance_score, largest, mix, ratio, state_mass, top_share, touched


@config
class KLCov(Selection):
    """w = r A − β sign(log r) for the tokens of the highest covariance score, as released: no PPO clip, |log r| for KL.

    A no-op on the first inner step, where the two policies are equal (sign(0) = 0), although tokens are selected. Later
    the pull has the size β whatever the distance. The best-ranked are chosen even if their score is negative.

    defaults  those of the paper's 7B runs (32B: 2e-4); verl ships 2e-4 and β = 0.1, the authors' scripts 0.2 per cent
    """

    fraction: Number = 2e-3  # of the tokens, at least one
    coefficient: Number = 1.0  # β, reward

    kind: ClassVar[str] = "off-policy-only"

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_number("coefficient", self.coefficient, low=0.0)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The tokens of rank ≤ fraction · N by covariance score."""
        return top_share(batch_score(key, tokens), tokens, self.fraction, population=key is None)

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """Pulls the chosen back to their old log-probability."""
        pull = self.coefficient * jnp.sign(tokens.log_prob - tokens.old_log_prob)
        return push._replace(score=mix(chosen, push.score - pull, push.score))


@config
class KLCovTrueKL(KLCov):
    """KL-Cov as printed: a chosen token adds β (π_old − π), minus the gradient of β KL(π_old‖π), to its state's push.

    A no-op on the first inner step, like KLCov; but its pull grows with the distance from the old policy.
    """

    old: Float[Array, "S A"] | None = None  # logits of the policy that acted; filled in by `init` and `next`

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """Keeps the logits that act first."""
        return replace(self, old=jnp.asarray(logits))

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """Adds the rows of the chosen tokens, each with the token's weight."""
        if policy is None or self.old is None:
            raise InputError("KLCovTrueKL needs whole policies, also the old one (`init`); on a recorded log use KLCov")
        moved = jnp.any(self.old != policy.logits, -1, keepdims=True)
        back = jnp.where(moved, softmax(self.old).prob - policy.prob, 0.0)
        mass = state_mass(tokens._replace(weight=tokens.weight * chosen), back.shape[0])
        return push._replace(field=push.field + self.coefficient * mass[:, None] * back)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """Keeps the logits that act next."""
        return replace(self, old=policy.logits)


@config
class ClipCov(Selection):
    """w = 0 for a random choice of ⌊fraction · N⌋ tokens with low ≤ C ≤ high, as printed; the others keep theirs.

    At least one is chosen; all candidates if they are fewer. In the population each candidate goes with probability
    (fraction of the tokens)/(share of the candidates). Scores above `high` stay: there the tail is at its steepest.
    """

    fraction: Number = 2e-4  # of the tokens, at least one
    low: Number = 1.0  # of C, reward · nats
    high: Number = 5.0

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_ordered("low", self.low, "high", self.high)

    def candidates(self, key: Key[Array, ""] | None, tokens: Tokens) -> Bool[Array, " N"]:
        """The tokens whose score is in the closed interval; a score is on a bound if rounding could put it there."""
        score, slack = batch_score(key, tokens), rounding(tokens)
        return (tokens.weight > 0.0) & (score >= self.low - slack) & (score <= self.high + slack)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """A random choice among the candidates."""
        return random_share(key, self.candidates(key, tokens).astype(tokens.weight.dtype), tokens, self.fraction)


@config
class ClipCovReleased(ClipCov):
    """ClipCov as released: low < C < high (open), PPO clip inside, tokens that it clips are no candidates.

    The clip has verl's bounds; the authors' scripts set both to 1 (only r > 2 is cut then). `selected` counts the
    choice alone, like the released "clipfrac".
    """

    clip_low: Number = 0.2
    clip_high: Number = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self.clip_low, self.clip_high)

    def candidates(self, key: Key[Array, ""] | None, tokens: Tokens) -> Bool[Array, " N"]:
        """The tokens inside the open interval that PPO does not clip."""
        score, slack = batch_score(key, tokens), rounding(tokens)
        inside = (score > self.low + slack) & (score < self.high - slack)
        return (tokens.weight > 0.0) & inside & ~outside(tokens, ratio(tokens), self.clip_low, self.clip_high)

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """Clips as PPO does, then removes the chosen."""
        clipped = PPOClip(self.clip_low, self.clip_high)(None, tokens, policy, push)
        return super().act(chosen, tokens, policy, clipped)


@config
class ClipCovTop(ClipCov):
    """ClipCov without chance: the highest scores of the interval go first. A control."""

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The top `fraction` of the tokens among the candidates."""
        inside = self.candidates(key, tokens)
        score = jnp.where(inside, batch_score(key, tokens), -jnp.inf)
        return top_share(score, tokens, self.fraction, population=key is None) * inside


@config
class ClipCovQuantile(Selection):
    """ClipCov with bounds for advantages of any scale: the candidates are the top tokens by C less the topmost."""

    fraction: Number = 2e-3  # of the tokens, at least one
    top: Number = 2e-2  # of the tokens, by score
    topmost: Number = 2e-3  # of the tokens, by score: left alone, like C > 5

    def __post_init__(self) -> None:
        for name in ("fraction", "top", "topmost"):
            check_fraction(name, getattr(self, name))
        check_ordered("topmost", self.topmost, "top", self.top)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """A random choice among the tokens of the band."""
        score, population = batch_score(key, tokens), key is None
        band = top_share(score, tokens, self.top, population) - top_share(score, tokens, self.topmost, population)
        return random_share(key, band, tokens, self.fraction)


@config
class RandomTokens(Selection):
    """w = 0 for a random `fraction` of all tokens: the control of every selection. In expectation a slower step."""

    fraction: Number = 2e-3  # of the tokens, at least one

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """A random choice among all tokens."""
        return random_share(key, (tokens.weight > 0.0).astype(tokens.weight.dtype), tokens, self.fraction)


@config
class AtRandom(Selection):
    """Acts like `selection`, on as many tokens, chosen at random: shows what the choice, not the act, is worth."""

    selection: Selection

    @property
    def kind(self) -> str:  # type: ignore[override]
        """That of the selection, except that nothing depends on the probability any more."""
        return "reward-only" if self.selection.kind == "probability-dependent" else self.selection.kind

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With the selection at its start."""
        return replace(self, selection=self.selection.init(logits))

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """As much as the selection chooses, of all tokens."""
        valid = (tokens.weight > 0.0).astype(tokens.weight.dtype)
        if key is None:
            return valid * jnp.sum(tokens.weight * self.selection.choose(None, tokens)) / jnp.sum(tokens.weight)
        count = jnp.sum(valid * self.selection.choose(jax.random.fold_in(key, 0), tokens))
        return first_of(jax.random.permutation(jax.random.fold_in(key, 1), valid.shape[0]), valid, count)

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """As the selection acts."""
        return self.selection.act(chosen, tokens, policy, push)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With the selection's next."""
        return replace(self, selection=self.selection.next(tokens, policy))


@config
class PerMicroBatch(Intervention):
    """Applies `intervention` to each of `parts` micro-batches of whole episodes, as the releases do.

    Means, ranks and counts (at least one token each) are then those of a micro-batch; weights stay those of the batch.
    """

    intervention: Any
    parts: int = static()

    scope: ClassVar[str] = "batch"

    @property
    def kind(self) -> str:  # type: ignore[override]
        """That of the intervention."""
        return self.intervention.kind

    def __post_init__(self) -> None:
        check_integer("parts", self.parts, 1)

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With the intervention at its start."""
        return replace(self, intervention=self.intervention.init(logits))

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        if key is None:
            raise InputError(
                "PerMicroBatch splits a sample; the population of Exact() has no micro-batches: use Sampled"
            )
        return in_parts(self.intervention, self.parts, key, tokens, policy, push)

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """With the intervention's next."""
        return replace(self, intervention=self.intervention.next(tokens, policy))


def in_parts(
    intervention: Any, parts: int, key: Key[Array, ""], tokens: Tokens, policy: Policy | None, push: Push
) -> Push:
    """The push after an intervention that sees each part of the episodes alone: the rest weigh 0, as padding does."""
    part = tokens.episode // (jnp.max(tokens.episode) // parts + 1)

    def alone(number: Int[Array, ""], key: Key[Array, ""]) -> Push:
        seen = tokens._replace(weight=jnp.where(part == number, tokens.weight, 0.0))
        before = push._replace(field=jnp.zeros_like(push.field))
        after = intervention(key, seen, policy, before)
        return after._replace(selected=touched(before, after))

    each = jax.vmap(alone)(jnp.arange(parts), jax.random.split(key, parts))
    own = (part, jnp.arange(part.shape[0]))
    return Push(each.score[own], push.field + jnp.sum(each.field, 0), each.selected[own])


def batch_score(key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
    """C_i; the means of a sample count each token once, whatever it weighs in the loss."""
    if key is not None:
        tokens = tokens._replace(weight=(tokens.weight > 0.0).astype(tokens.weight.dtype))
    return covariance_score(tokens)


def rounding(tokens: Tokens) -> Float[Array, ""]:
    """How far rounding may move a covariance score: 8 ε max|log π| max|A|."""
    largest = [jnp.max(jnp.where(tokens.weight > 0.0, jnp.abs(x), 0.0)) for x in (tokens.log_prob, tokens.advantage)]
    return 8.0 * jnp.finfo(tokens.log_prob.dtype).eps * largest[0] * largest[1]


def random_share(
    key: Key[Array, ""] | None, candidates: Float[Array, " N"], tokens: Tokens, fraction: Number
) -> Float[Array, " N"]:
    """A uniform choice of max(1, ⌊fraction · n⌋) of n tokens among the candidates; by its expectation without a key."""
    if key is not None:
        count = jnp.maximum(jnp.floor(fraction * jnp.sum(tokens.weight > 0.0, dtype=candidates.dtype)), 1.0)
        lot = jax.random.uniform(key, candidates.shape, candidates.dtype)
        return largest(lot, candidates > 0.0, count).astype(candidates.dtype)
    mass = jnp.sum(tokens.weight * candidates)
    wanted = fraction * jnp.sum(tokens.weight)
    return candidates * jnp.minimum(1.0, wanted / jnp.where(mass > 0.0, mass, 1.0))


def first_of(order: Int[Array, " N"], candidates: Float[Array, " N"], count: Float[Array, ""]) -> Float[Array, " N"]:
    """1 for the first `count` candidates (those above 0) in `order`, a permutation of the tokens; 0 for the rest."""
    inside = candidates[order] > 0.0
    taken = inside & (jnp.cumsum(inside) <= count)
    return jnp.zeros_like(candidates).at[order].set(taken.astype(candidates.dtype))
