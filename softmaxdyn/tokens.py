"""Tokens: the visited pairs (s, a). Each pushes its state's logits by weight · score · (e_a − π_s)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from softmaxdyn.policy import Policy


class Tokens(NamedTuple):
    """N tokens, every field [N]: all pairs with their probabilities (exact), or the pairs that were drawn (sampled).

    weight        share of the token in an episode: d(s) π(a|s) (exact), 1/episodes (sampled), 0 for padding
    advantage     A of the token under the policy that acted
    log_prob      log π(a|s) of the current policy (changes with every inner step)
    old_log_prob  log π(a|s) of the policy that acted
    entropy       H(s) of the current policy
    reward        return of the token's episode from its first step (sampled), Q(s, a) (exact)
    episode       number of the token's episode (exact: every token is one)
    group         number g ≥ 0 of the token's group: the episodes from one start (exact: its state); −1 − g for a token
                  that the current policy did not draw (foreign ones of OffPolicy, tempered ones of AEPO)
    position      step of the token in its episode (exact: 0)
    """

    state: Int[Array, " N"]
    action: Int[Array, " N"]
    weight: Float[Array, " N"]
    advantage: Float[Array, " N"]
    log_prob: Float[Array, " N"]
    old_log_prob: Float[Array, " N"]
    entropy: Float[Array, " N"]
    reward: Float[Array, " N"]
    episode: Int[Array, " N"]
    group: Int[Array, " N"]
    position: Int[Array, " N"]


class Push(NamedTuple):
    """What the tokens ask for: score [N] (multiplies e_a − π_s), field [S, A] (added as it is), selected [N].

    `selected` is the share in [0, 1] of each token that an intervention touched; one that leaves it alone is taken to
    have touched the tokens whose score it changed.
    """

    score: Float[Array, " N"]
    field: Float[Array, "S A"]
    selected: Float[Array, " N"]


def under(tokens: Tokens, policy: Policy) -> Tokens:
    """The same tokens with the log-probabilities and entropies of `policy`; 0 in place of log 0 (masked actions)."""
    log_prob = policy.log_prob[tokens.state, tokens.action]
    log_prob = jnp.where(jnp.isfinite(log_prob), log_prob, 0.0)
    return tokens._replace(log_prob=log_prob, entropy=policy.entropy[tokens.state])


def ratio(tokens: Tokens) -> Float[Array, " N"]:
    """π(a|s)/π_old(a|s), 1 where the policies are equal; log-ratios are cut at ±log √max, so it stays finite."""
    limit = 0.5 * jnp.log(jnp.finfo(tokens.log_prob.dtype).max)
    return jnp.exp(jnp.clip(tokens.log_prob - tokens.old_log_prob, -limit, limit))


def plain_push(tokens: Tokens, shape: tuple[int, ...]) -> Push:
    """The push before any intervention: score = ratio × advantage, no field."""
    score = ratio(tokens) * tokens.advantage
    return Push(score, jnp.zeros(shape, score.dtype), jnp.zeros_like(score))


def scatter(tokens: Tokens, values: Float[Array, " N"], shape: tuple[int, ...]) -> Float[Array, "S A"]:
    """Σ over the tokens of each pair (s, a) of `values`, as a table."""
    return jnp.zeros(shape, values.dtype).at[tokens.state, tokens.action].add(values)


def gradient(tokens: Tokens, push: Push, policy: Policy) -> Float[Array, "S A"]:
    """Σ_i weight_i score_i (e_{a_i} − π_{s_i}) + field: the direction in which the logits are pushed."""
    table = scatter(tokens, tokens.weight * push.score, policy.prob.shape)
    return table - policy.prob * jnp.sum(table, -1, keepdims=True) + push.field


def state_mass(tokens: Tokens, states: int) -> Float[Array, " S"]:
    """Σ of the weights of the tokens in each state: d(s) (exact) or its estimate; the weight of a field's row."""
    return jnp.zeros(states, tokens.weight.dtype).at[tokens.state].add(tokens.weight)


def token_mean(tokens: Tokens, values: Float[Array, " N"]) -> Float[Array, ""]:
    """The weighted mean of `values` over the batch."""
    return jnp.sum(tokens.weight * values) / jnp.sum(tokens.weight)


def covariance_score(tokens: Tokens) -> Float[Array, " N"]:
    """C_i = (log π_i − mean log π)(A_i − mean A), means over the batch: equation 10 of Cui et al. 2025."""
    surprise = tokens.log_prob - token_mean(tokens, tokens.log_prob)
    return surprise * (tokens.advantage - token_mean(tokens, tokens.advantage))


def top_share(values: Float[Array, " N"], tokens: Tokens, fraction: Any, population: bool) -> Float[Array, " N"]:
    """How much of each token belongs to the largest `fraction` of the batch by `values`, in [0, 1].

    A sample: exactly max(1, ⌊fraction · n⌋) of its n tokens of positive weight, 1 each, the first of equals first.
    The population: tokens until their weights reach the fraction; the last one in part, equals in equal parts (as a
    sample does on average).
    """
    valid = tokens.weight > 0.0
    if not population:
        count = jnp.sum(valid, dtype=tokens.weight.dtype)
        return largest(values, valid, jnp.maximum(jnp.floor(fraction * count), 1.0)).astype(tokens.weight.dtype)
    order = jnp.argsort(jnp.where(valid, -values, jnp.inf), stable=True)
    weight = tokens.weight[order]
    before = jnp.cumsum(weight) - weight
    share = jnp.clip((fraction * jnp.sum(weight) - before) / jnp.where(weight > 0.0, weight, 1.0), 0.0, 1.0)
    return _even_among_equals(jnp.zeros_like(share).at[order].set(share * (weight > 0.0)), values, tokens)


def largest(values: Float[Array, " N"], among: Bool[Array, " N"], count: Any) -> Bool[Array, " N"]:
    """True for the `count` largest values of those `among`, the first of equals first; for all where they are fewer.

    Without sorting: a bisection over the bits of a float, whose order is that of an integer, finds the last value.
    """
    width = values.dtype.itemsize * 8
    kind = jnp.uint64 if width == 64 else jnp.uint32
    bits = jax.lax.bitcast_convert_type(jnp.where(values == 0.0, 0.0, values), kind)
    top = jnp.asarray(1, kind) << (width - 1)
    rank = jnp.where(among, jnp.where(bits >= top, ~bits, bits | top), 0)

    def set_bit(number: Any, last: Array) -> Array:
        higher = last | (top >> jnp.asarray(number, kind))
        return jnp.where(jnp.sum(rank >= higher, dtype=values.dtype) >= count, higher, last)

    last = jax.lax.fori_loop(0, width, set_bit, jnp.zeros((), kind))
    beyond, equal = rank > last, (rank == last) & among
    places = count - jnp.sum(beyond, dtype=values.dtype)
    return beyond | (equal & (jnp.cumsum(equal, dtype=values.dtype) <= places))


def _even_among_equals(share: Float[Array, " N"], values: Float[Array, " N"], tokens: Tokens) -> Float[Array, " N"]:
    ties = jnp.unique(values, return_inverse=True, size=values.shape[0])[1]
    mass = jax.ops.segment_sum(tokens.weight, ties, values.shape[0])[ties]
    taken = jax.ops.segment_sum(tokens.weight * share, ties, values.shape[0])[ties]
    return jnp.where(tokens.weight > 0.0, taken / jnp.where(mass > 0.0, mass, 1.0), 0.0)


def mix(share: Float[Array, " N"], chosen: Float[Array, " N"], other: Float[Array, " N"]) -> Float[Array, " N"]:
    """other + share (chosen − other): a token of the population may be chosen in part."""
    return jnp.where(share >= 1.0, chosen, other + share * (chosen - other))


def touched(before: Push, after: Push) -> Float[Array, " N"]:
    """The share of each token that an intervention touched: what it says, or else the tokens whose score it changed."""
    if after.selected is not before.selected:
        return after.selected
    return (after.score != before.score).astype(after.score.dtype)
