"""Gates: tokens, groups or signs of the advantage that are left out of the update.

A gate multiplies scores by 0 and keeps the denominators, unless it says otherwise.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_fraction, check_number, check_ordered
from softmaxdyn.interventions.protocol import Selection
from softmaxdyn.policy import Policy, centred
from softmaxdyn.tokens import Push, Tokens, state_mass, token_mean, top_share


def entropy_score(tokens: Tokens) -> Float[Array, " N"]:
    """S = π (log π + H) of each token's action: −∂H/∂z. One token moves the entropy by −η w (S − E_π S) (T7).

    0 where log π + H is no more than rounding: the largest S of a batch may be the unit that others are measured in.
    """
    u, size = tokens.log_prob + tokens.entropy, jnp.abs(tokens.log_prob) + jnp.abs(tokens.entropy)
    return jnp.exp(tokens.log_prob) * jnp.where(jnp.abs(u) > 4.0 * jnp.finfo(u.dtype).eps * size, u, 0.0)


def centred_entropy_score(tokens: Tokens, policy: Policy | None, name: str) -> Float[Array, " N"]:
    """S − E_π S, the exact discriminator of T7. Raises InputError without a policy: E_π takes all actions."""
    if policy is None:
        raise InputError(f"{name} needs the probabilities of all actions; a log holds one a token: use Steer or ClipB")
    return centred(policy, policy.prob * policy.centred_log_prob)[tokens.state, tokens.action]


def spread(tokens: Tokens, values: Float[Array, " N"]) -> Float[Array, ""]:
    """The weighted standard deviation of `values` over the batch, with 1/n."""
    return jnp.sqrt(token_mean(tokens, (values - token_mean(tokens, values)) ** 2))


@config
class ForkTokens(Selection):
    """Keeps the tokens of the highest state entropy, `fraction` of the batch; the mean still counts all.

    source  2506.01939 ("80/20")
    """

    fraction: Number = 0.2  # of the tokens, kept

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_number("fraction of the tokens to keep (20 % is 0.2)", self.fraction, 0.0, 1.0, open_low=True)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """All but the top `fraction` by entropy."""
        return 1.0 - top_share(tokens.entropy, tokens, self.fraction, population=key is None)


def beyond(tokens: Tokens, distance: Float[Array, " N"], low: Number, high: Number) -> Float[Array, " N"]:
    """1 for a token whose `distance` is outside −low … high times its standard deviation over the batch, else 0."""
    deviation = spread(tokens, distance)
    outside = (distance < -low * deviation) | (distance > high * deviation)
    return (outside & (deviation >= 1e-12)).astype(distance.dtype)


class ScoreGate(Selection):
    """Drops tokens by how far their S is from a mean, in standard deviations of the batch."""

    low: Number
    high: Number

    def __post_init__(self) -> None:
        check_number("low", self.low, 0.0)
        check_number("high", self.high, 0.0)


@config
class ClipB(ScoreGate):
    """Drops the tokens whose S is more than `low` deviations below the mean of the batch, or `high` above it.

    source  2602.03392 (Clip_B), the two-sided form from memory; the released code is `ClipBReleased`
    """

    low: Number = 2.5  # standard deviations of S
    high: Number = 2.5

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The tokens of extreme S."""
        s = entropy_score(tokens)
        return beyond(tokens, s - token_mean(tokens, s), self.low, self.high)


@config
class ClipBReleased(Selection):
    """Drops the tokens with A < 0 whose S is more than `low` deviations below the mean of the batch.

    Punishing those lowers the entropy the most. Tokens with A > 0 all stay.

    source  Trinity-RFT, its advantage function for Clip_B (arXiv:2602.03392), μ = 2.5
    trap    there S is of the policy that acted and the mask is made once a batch; here S is the current one
    """

    low: Number = 2.5  # standard deviations of S

    def __post_init__(self) -> None:
        check_number("low", self.low, 0.0)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The negative tokens of very low S."""
        s = entropy_score(tokens)
        return jnp.where(tokens.advantage < 0.0, beyond(tokens, s - token_mean(tokens, s), self.low, jnp.inf), 0.0)


@config
class ClipV(ScoreGate):
    """Drops the tokens whose S − E_π S is outside [−low σ, high σ], σ its standard deviation over the batch.

    source  2602.03392 (Clip_V), the two-sided form from memory; the released code is `ClipVReleased`
    """

    low: Number = 2.0  # standard deviations of S − E_π S
    high: Number = 2.0

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        chosen = beyond(tokens, centred_entropy_score(tokens, policy, "ClipV"), self.low, self.high)
        return self.act(chosen, tokens, policy, push)._replace(selected=chosen)


@config
class ClipVReleased(Selection):
    """Drops the tokens with A < 0 and S − E_π S < −low σ, the lowest first, at most `fraction` of the batch.

    source  Trinity-RFT, its advantage function for Clip_V (arXiv:2602.03392); it has two defaults of μ, 2 and 8.5
    trap    the cap is at least one token, so in a batch of fewer than 1/fraction it is one
    """

    low: Number = 8.5  # standard deviations of S − E_π S
    fraction: Number = 1e-4  # of the tokens

    def __post_init__(self) -> None:
        check_number("low", self.low, 0.0)
        check_fraction("fraction", self.fraction)

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        distance = centred_entropy_score(tokens, policy, "ClipVReleased")
        candidate = (tokens.advantage < 0.0) & (beyond(tokens, distance, self.low, jnp.inf) > 0.0)
        worst = top_share(jnp.where(candidate, -distance, -jnp.inf), tokens, self.fraction, population=key is None)
        chosen = jnp.where(candidate, worst, 0.0)
        return self.act(chosen, tokens, policy, push)._replace(selected=chosen)


def has_signal(tokens: Tokens) -> Bool[Array, " N"]:
    """Whether the token's group has two episodes of different reward, or one episode only.

    The test is largest ≠ smallest: a standard deviation of equal rewards may round to more than 0.
    """
    valid, group = tokens.weight > 0.0, jnp.where(tokens.group < 0, -1 - tokens.group, tokens.group)

    def differs(values: Array) -> Bool[Array, " N"]:
        known = jnp.where(valid, values, 0)
        most = jax.ops.segment_max(jnp.where(valid, known, known.min()), group, group.shape[0])
        least = jax.ops.segment_min(jnp.where(valid, known, known.max()), group, group.shape[0])
        return (most > least)[group]

    return differs(tokens.reward) | ~differs(tokens.episode)


@config
class DynamicSampling(Selection):
    """Drops the groups whose episodes all have the same reward, and their share of the fields that come before it.

    The denominators still count them: c(s) = 0 where nothing is to be learnt, unchanged elsewhere (a batch that is
    filtered and not refilled). The population: the states where all actions are worth the same.

    source  DAPO (arXiv:2503.14476), without the refill; with it: `DynamicResampling`
    """

    scope: ClassVar[str] = "group"
    kind: ClassVar[str] = "reward-only"

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The tokens of groups without signal."""
        return 1.0 - has_signal(tokens).astype(tokens.weight.dtype)

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """Drops them, and from each row of the field the share that they have in its state."""
        states = push.field.shape[0]
        mass = state_mass(tokens, states)
        gone = state_mass(tokens._replace(weight=tokens.weight * chosen), states)
        kept = 1.0 - gone / jnp.where(mass > 0.0, mass, 1.0)
        return super().act(chosen, tokens, policy, push._replace(field=push.field * kept[:, None]))


@config
class DynamicResampling(DynamicSampling):
    """DynamicSampling, scaled to a full batch: what is kept is divided by the kept share of the tokens.

    DAPO draws prompts until the batch is full of groups with signal; its mean over many draws is this one.

    source  DAPO (arXiv:2503.14476)
    """

    scope: ClassVar[str] = "batch"

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """Drops them and scales the rest up."""
        push, kept = super().act(chosen, tokens, policy, push), 1.0 - token_mean(tokens, chosen)
        scale = 1.0 / jnp.where(kept > 0.0, kept, 1.0)
        return push._replace(score=scale * push.score, field=scale * push.field)


@config
class Entrocraft(Selection):
    """Drops the tokens with A ≥ 0 while the mean entropy is below `low`, those with A ≤ 0 while it is above `high`.

    source  2604.26326; its band falls in a line: `Scheduled(Entrocraft(0.6, 0.7), Entrocraft(0.4, 0.5), steps=100)`
    """

    low: Number = 0.6  # nats
    high: Number = 0.7

    kind: ClassVar[str] = "reward-only"

    def __post_init__(self) -> None:
        check_ordered("low", self.low, "high", self.high)

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The tokens that would move the entropy further out of the band."""
        entropy, a = token_mean(tokens, tokens.entropy), tokens.advantage
        dropped = ((entropy < self.low) & (a >= 0.0)) | ((entropy > self.high) & (a <= 0.0))
        return dropped.astype(tokens.weight.dtype)
