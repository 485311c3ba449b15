"""Softmax policies: probabilities, entropy, divergence and draws, exact to the last digits of the dtype.

Every quantity is taken relative to the mode (the most probable action), so that nothing cancels: not near the uniform
policy, not near a deterministic one, not at probabilities of 1e-300. A logit of −∞ masks its action.
"""

from __future__ import annotations

from functools import partial
from math import factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key


class Policy(NamedTuple):
    """π = softmax(z) and what the formulas need of it; arrays have the shape of the logits, entropy lacks the axis.

    centred_log_prob is u = log π + H, computed as x − E x: E_π u = 0 and π u = −∂H/∂z. Masked actions hold 0 in it.
    """

    logits: Float[Array, "..."]
    log_prob: Float[Array, "..."]
    prob: Float[Array, "..."]
    centred_log_prob: Float[Array, "..."]
    entropy: Float[Array, "..."]
    mode: Bool[Array, "..."]


def softmax(logits: Float[ArrayLike, "..."], axis: int = -1, low: Float[Array, "..."] | None = None) -> Policy:
    """The policy of `logits`: with i the mode, x = z − z_i, s = Σ_{a≠i} eˣ: π = eˣ/(1+s), H = log1p(s) − E x.

    eˣ is that of the exact difference: rounding x alone would cost π up to |x|/2 ulp. `low` holds digits of the logits
    beyond their last.
    """
    logits = jnp.asarray(logits)
    mode = is_mode(logits, axis)
    unmasked = logits > -jnp.inf
    z = jnp.where(unmasked, logits, 0.0)
    x = jnp.where(unmasked, relative_to(mode, z, axis), 0.0)
    lost = lost_digits(mode, z, x, axis)
    if low is not None:
        lost += relative_to(mode, jnp.where(unmasked, low, 0.0), axis)
    e = jnp.where(unmasked, jnp.exp(x), 0.0)
    e = jnp.where(e > 0.0, e + e * jnp.clip(lost, -0.1, 0.1), 0.0)
    s = jnp.sum(jnp.where(mode, 0.0, e), axis, keepdims=True)
    prob = e / (1.0 + s)
    mean_x = jnp.sum(prob * x, axis, keepdims=True)
    return Policy(
        logits=logits,
        log_prob=jnp.where(unmasked, x - jnp.log1p(s), -jnp.inf),
        prob=prob,
        centred_log_prob=jnp.where(unmasked, x - mean_x, 0.0),
        entropy=jnp.squeeze(jnp.log1p(s) - mean_x, axis),
        mode=mode,
    )


def is_mode(logits: Float[Array, "..."], axis: int = -1) -> Bool[Array, "..."]:
    """True at the most probable action (the first of equals), as an array of the shape of `logits`."""
    index = jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis % logits.ndim)
    largest = logits == jnp.max(logits, axis, keepdims=True)  # two plain reductions are much faster than an argmax
    return index == jnp.min(jnp.where(largest, index, logits.shape[axis]), axis, keepdims=True)


def relative_to(mode: Bool[Array, "..."], values: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """values − (their value at the mode): one correctly rounded subtraction an action."""
    return values - jnp.sum(jnp.where(mode, values, 0.0), axis, keepdims=True)


def lost_digits(
    mode: Bool[Array, "..."], values: Float[Array, "..."], x: Float[Array, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """What rounding took from x = values − (their value at the mode): exact (the two-sum of Møller and Knuth)."""
    top = jnp.sum(jnp.where(mode, values, 0.0), axis, keepdims=True)
    kept = values - x
    return jax.lax.stop_gradient((kept - top) + (values - (x + kept)))


def centred(policy: Policy, values: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """values − E_π values, without loss near a deterministic policy; 0 for masked actions."""
    unmasked = policy.logits > -jnp.inf
    x = relative_to(policy.mode, jnp.where(unmasked, values, 0.0), axis)
    return jnp.where(unmasked, x - jnp.sum(policy.prob * x, axis, keepdims=True), 0.0)


def floored_prob(policy: Policy) -> Float[Array, "..."]:
    """π, but at least about 1e-246 (f64) or 1e-30 (f32) for an unmasked action, so that (d π A)/(d π) never loses A."""
    floor = jnp.finfo(policy.prob.dtype).tiny ** 0.8
    return jnp.where(policy.log_prob > -jnp.inf, jnp.maximum(policy.prob, floor), 0.0)


def log_probs(logits: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """log π = z − logsumexp(z), in nats; −∞ for a masked action. Relative accuracy also for log π → 0."""
    return softmax(logits, axis).log_prob


def probs(logits: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """π = softmax(z); 0 for a masked action."""
    return softmax(logits, axis).prob


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def entropy(logits: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """H = −Σ_a π_a log π_a = log1p(s) − E x, a sum of non-negative terms: never negative, never NaN.

    units     nats, one number a state
    error     ≤ 4 eps of H down to H = 1e-290 (f64)
    gradient  ∂H/∂z_a = −π_a (log π_a + H) = −S_a, finite for masked actions
    """
    return softmax(logits, axis).entropy


@entropy.defjvp
def _entropy_jvp(axis: int, primals: tuple, tangents: tuple) -> tuple:
    policy = softmax(primals[0], axis)
    return policy.entropy, -jnp.sum(policy.prob * policy.centred_log_prob * tangents[0], axis)


def kl_divergence(
    logits: Float[ArrayLike, "..."], other: Float[ArrayLike, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """KL(π‖other) = Σ_a π_a (e^t − 1 − t), t = log other_a − log π_a: a sum of non-negative terms, in nats.

    Infinite where `other` masks an action that π takes. For two policies a small step apart, whose logits differ in
    their last digits only, `change.decompose` takes the step itself and loses nothing.
    """
    p, q = softmax(logits, axis), softmax(other, axis)
    taken = p.prob > 0.0
    t = jnp.where(taken, q.log_prob - jnp.where(taken, p.log_prob, 0.0), 0.0)
    forgone = jnp.sum(jnp.where(taken, 0.0, q.prob), axis)
    return jnp.sum(p.prob * exp_minus_linear(t), axis) + forgone


def exp_minus_linear(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """ψ(x) = eˣ − 1 − x = x²/2 + x³/6 + … ≥ 0, to full relative accuracy for every x (+∞ at ±∞)."""
    small = jnp.abs(x) < 0.5
    series = small_exp_minus_linear(jnp.where(small, x, 0.0))
    return jnp.where(small, series, jnp.expm1(jnp.where(small, 1.0, x)) - x)


def small_exp_minus_linear(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """ψ(x) for |x| ≤ ½, by its series (the next term is below eps/8)."""
    series = jnp.zeros_like(x)
    for n in range(16 if x.dtype == jnp.float64 else 9, 1, -1):
        series = series * x + 1.0 / factorial(n)
    return x * x * series


def sample(key: Key[Array, ""], logits: Float[ArrayLike, "*S A"], shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
    """Actions drawn from softmax(logits) by inverse CDF: an int32 array of shape `shape + S`; never a masked action.

    The resolution is that of the uniform draw: an action below 2⁻²³ (f32) or 2⁻⁵² (f64) may never come up.
    """
    return draw(key, cumulative_probs(logits), shape)


def cumulative_probs(logits: Float[ArrayLike, "*S A"]) -> Float[Array, "*S A"]:
    """Σ_{b ≤ a} π_b: computed once, it serves any number of draws."""
    return jnp.cumsum(probs(logits), -1)


def draw(key: Key[Array, ""], cumulative: Float[Array, "*S A"], shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
    """`sample` from cumulative weights, which need not end at 1: compare and count, or bisection in one long row."""
    total = cumulative[..., -1]
    u = jax.random.uniform(key, shape + total.shape, total.dtype) * total
    if cumulative.ndim == 1 and cumulative.size > 64:
        index = jnp.searchsorted(cumulative, u, side="right").astype(jnp.int32)
    else:
        index = jnp.sum(cumulative <= u[..., None], -1, dtype=jnp.int32)
    last = jnp.sum(cumulative < total[..., None], -1, dtype=jnp.int32)
    return jnp.minimum(index, last)
