"""Surrogates and clips: how far a token may move once the policy has left the one that drew it.

Each is a no-op to the bit on the first inner step, where every ratio is 1. A ratio exactly on a bound is inside it: it
keeps its whole score (`jnp.clip` under `jax.grad` would halve it).
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, ratio


def outside(tokens: Tokens, r: Float[Array, " N"], low: Number, high: Number) -> Bool[Array, " N"]:
    """Whether PPO clips the token: A > 0 and r > 1 + high, or A < 0 and r < 1 − low (strict)."""
    a = tokens.advantage
    return ((a > 0.0) & (r > 1.0 + high)) | ((a < 0.0) & (r < 1.0 - low))


def episode_mean(tokens: Tokens, values: Float[Array, " N"]) -> Float[Array, " N"]:
    """The mean of `values` over the tokens of each token's episode, padding left out; exact where all are equal."""
    valid, count = tokens.weight > 0.0, values.shape[0]
    origin = jax.ops.segment_max(jnp.where(valid, values, -jnp.inf), tokens.episode, count)
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)
    shift = jnp.where(valid, values - origin[tokens.episode], 0.0)
    total = jax.ops.segment_sum(shift, tokens.episode, count)
    length = jax.ops.segment_sum(valid.astype(values.dtype), tokens.episode, count)
    return (origin + total / jnp.maximum(length, 1.0))[tokens.episode]


def in_place_of_ratio(tokens: Tokens, log_s: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """(s, s/r): another ratio, cut like r itself, and the factor that puts it in r's place; finite, 1 where s = r."""
    s = ratio(tokens._replace(log_prob=log_s, old_log_prob=jnp.zeros_like(log_s)))
    return s, jnp.minimum(s / ratio(tokens), jnp.finfo(s.dtype).max)


class Clip(Intervention):
    """An intervention that acts on a token once its ratio has left 1; bounds are distances from 1, low in [0, 1]."""

    kind: ClassVar[str] = "off-policy-only"


@config
class PPOClip(Clip):
    """w = r A where the ratio is inside [1 − low, 1 + high] on the side where A pushes it out, else 0.

    source  Schulman et al. 2017 (arXiv:1707.06347)
    trap    acts from the second inner step on; verl also has LogRatioLimit(20) before and DualClip(3) after it
    """

    low: Number = 0.2
    high: Number = 0.2

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        cut = outside(tokens, ratio(tokens), self.low, self.high)
        return push._replace(score=jnp.where(cut, 0.0, push.score), selected=cut.astype(push.score.dtype))


@config
class ClipHigher(PPOClip):
    """PPOClip with the wider upper bound of DAPO (arXiv:2503.14476): rare actions of A > 0 may grow further."""

    high: Number = 0.28


@config
class DualClip(Clip):
    """w = 0 where A < 0 and r > c, half at r = c exactly (the tie of a minimum); to be put after PPOClip.

    source  Ye et al. 2019 (arXiv:1912.09729); c = 3 in verl, where it cannot be switched off
    """

    c: Number = 3.0

    def __post_init__(self) -> None:
        check_number("c", self.c, low=1.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        r, bad = ratio(tokens), tokens.advantage < 0.0
        kept = jnp.where(bad & (r > self.c), 0.0, jnp.where(bad & (r == self.c), 0.5, 1.0))
        return push._replace(score=kept * push.score, selected=(kept == 0.0).astype(kept.dtype))


@config
class LogRatioLimit(Clip):
    """w = 0 where |log r| > limit: the guard against overflow that verl's PPO, not its KL-Cov or Clip-Cov, contains."""

    limit: Number = 20.0  # nats

    def __post_init__(self) -> None:
        check_number("limit", self.limit, low=0.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        cut = jnp.abs(tokens.log_prob - tokens.old_log_prob) > self.limit
        return push._replace(score=jnp.where(cut, 0.0, push.score), selected=cut.astype(push.score.dtype))


@config
class NoRatio(Clip):
    """w = A: the plain score without importance ratio (REINFORCE, GPG: arXiv:2504.02546), whatever the inner step."""

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push._replace(score=push.score / ratio(tokens))


@config
class CISPO(Clip):
    """w = clip(r, 1 − low, 1 + high) A: the ratio is bounded on both sides, a token never loses its gradient.

    source  MiniMax 2025 (arXiv:2506.13585), which bounds it from above only (low = 1; from memory); .2/.2 in verl
    """

    low: Number = 0.2
    high: Number = 0.2

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        r = ratio(tokens)
        bounded = jnp.clip(r, 1.0 - self.low, 1.0 + self.high)
        return push._replace(score=push.score * (bounded / r), selected=(bounded != r).astype(r.dtype))


@config
class CEGPPO(Clip):
    """PPOClip that keeps a bounded gradient: w = β₁(1 − low) A below, β₂(1 + high) A above the bounds, else r A.

    source  Su et al. 2025 (arXiv:2509.20712): β₁ = 0.5 or 0.75, β₂ = 1; the release adds DualClip(3)
    """

    low: Number = 0.2
    high: Number = 0.2
    beta_1: Number = 0.75  # kept of the tokens of A < 0
    beta_2: Number = 1.0  # kept of the tokens of A > 0

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        check_number("beta_1", self.beta_1, low=0.0)
        check_number("beta_2", self.beta_2, low=0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        r = ratio(tokens)
        cut = outside(tokens, r, self.low, self.high)
        below, above = self.beta_1 * (1.0 - self.low), self.beta_2 * (1.0 + self.high)
        kept = jnp.where(tokens.advantage < 0.0, below, above) / r
        return push._replace(score=jnp.where(cut, kept * push.score, push.score), selected=cut.astype(r.dtype))


@config
class SAPO(Clip):
    """w = r A · 4 q (1 − q), q = σ(τ (r − 1)), τ by the sign of A: a soft gate, 1 at r = 1, falling on both sides.

    source  Gao et al. 2025 (arXiv:2511.20347); τ₊ = 1, τ₋ = 1.05 in verl, with a mean per sequence
    """

    tau_positive: Number = 1.0
    tau_negative: Number = 1.05

    def __post_init__(self) -> None:
        check_number("tau_positive", self.tau_positive, low=0.0)
        check_number("tau_negative", self.tau_negative, low=0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        r = ratio(tokens)
        x = jnp.where(tokens.advantage > 0.0, self.tau_positive, self.tau_negative) * (r - 1.0)
        return push._replace(score=push.score * (4.0 * jax.nn.sigmoid(x) * jax.nn.sigmoid(-x)))


@config
class GSPO(Clip):
    """w = s A inside PPO's bounds of s, else 0; s = (Π r)^{1/L} is shared by the L tokens of an episode.

    source  Zheng et al. 2025 (arXiv:2507.18071), bounds 3e-4/4e-4; verl cuts log s at 10 and takes means per sequence
    """

    low: Number = 3e-4
    high: Number = 4e-4
    limit: Number = 10.0  # of log s, nats: score 0 above

    scope: ClassVar[str] = "episode"

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        check_number("limit", self.limit, low=0.0, open_low=True)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        log_s = episode_mean(tokens, tokens.log_prob - tokens.old_log_prob)
        s, factor = in_place_of_ratio(tokens, log_s)
        cut = outside(tokens, s, self.low, self.high)
        kept = jnp.where(cut | (log_s > self.limit), 0.0, push.score * factor)
        return push._replace(score=kept, selected=cut.astype(s.dtype))


@config
class GMPO(Clip):
    """w = s Ā, s = exp(mean of log r, each cut at −low or +high on the side of A); 0 for the tokens that were cut.

    Ā is the mean advantage of the episode; tokens are to weigh the same within it (SequenceMeanTokenMean).

    source  Zhao et al. 2025 (arXiv:2507.20673), log r within ±0.4; "geo_mean" in verl; log r = 0 where A = 0
    """

    low: Number = 0.4  # nats
    high: Number = 0.4  # nats

    scope: ClassVar[str] = "episode"

    def __post_init__(self) -> None:
        check_number("low", self.low, low=0.0)
        check_number("high", self.high, low=0.0)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        a, log_ratio = tokens.advantage, tokens.log_prob - tokens.old_log_prob
        bounded = jnp.where(a > 0.0, jnp.minimum(log_ratio, self.high), jnp.maximum(log_ratio, -self.low))
        _, factor = in_place_of_ratio(tokens, episode_mean(tokens, jnp.where(a == 0.0, 0.0, bounded)))
        mean = episode_mean(tokens, a) / jnp.where(a == 0.0, 1.0, a)
        cut = (a != 0.0) & (bounded != log_ratio)
        kept = jnp.where(cut | (a == 0.0), 0.0, push.score * factor * mean)
        return push._replace(score=kept, selected=cut.astype(a.dtype))


def check_bounds(low: Number, high: Number) -> None:
    """Raises InputError unless a ratio may fall by `low` in [0, 1] and rise by `high` ≥ 0."""
    check_number("low", low, low=0.0, high=1.0)
    check_number("high", high, low=0.0)
