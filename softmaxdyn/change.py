"""The exact change of entropy of a step, its covariance part and its remainder, each without cancellation.

For a step δ of the logits, with u = log π + H, d = δ − E_π δ, c = log Σ π eᵈ, ψ(x) = eˣ − 1 − x and π' the new policy:

    H(π') − H(π) = −Σ (π' − π) log π − KL(π'‖π)      exactly                                                   (T1)
                 = −Cov_π(log π, δ) + R
    R = −Σ π (ψ(d − c) − c) u − KL(π'‖π)             all of second order in δ                                  (T2)

The values are those of the exact step δ. Where δ is below one ulp of a logit, adding it in floating point is another,
smaller step.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from softmaxdyn.policy import (
    Policy,
    centred,
    exp_minus_linear,
    lost_digits,
    relative_to,
    small_exp_minus_linear,
    softmax,
)


class Change(NamedTuple):
    """ΔH = −covariance + remainder, its two parts, and KL(π'‖π): nats, one number a state."""

    entropy_change: Float[Array, "..."]
    covariance: Float[Array, "..."]
    remainder: Float[Array, "..."]
    kl: Float[Array, "..."]


def entropy_change(
    logits: Float[ArrayLike, "..."], delta: Float[ArrayLike, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """H(softmax(z + δ)) − H(softmax(z)), exact: no subtraction of entropies.

    units   nats, one number a state
    error   see `decompose`
    source  T1; Lemma 1 of Cui et al. 2025 (arXiv:2505.22617) is its linear part
    """
    return decompose(softmax(logits, axis), jnp.asarray(delta), axis).entropy_change


def remainder(logits: Float[ArrayLike, "..."], delta: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """ΔH + Cov_π(log π, δ): what Lemma 1 leaves out, of second order in δ, to full relative accuracy (T2)."""
    return decompose(softmax(logits, axis), jnp.asarray(delta), axis).remainder


@partial(jax.jit, static_argnames="axis", inline=True)  # eagerly, each call would compile its cond anew
def decompose(policy: Policy, delta: Float[Array, "..."], axis: int = -1) -> Change:
    """The exact change of one step δ from `policy` and its parts, each as a sum that does not cancel.

    error   measured against mpmath on 18,864 cases (experiments/accuracy.py: K from 2 to 1000, π down to 1e-290, masks,
            steps 1e-12 … 10): |error| ≤ 5 eps Σ|terms|. So |error|/|value| is at most 7.2e-15 (f64) and 2.1e-6 (f32)
            while Σ|terms| ≤ 10 |value|, and loses digits only close to a zero of the value, where its terms cancel.
    """
    d = centred(policy, delta, axis)
    small = jnp.max(jnp.abs(d), axis) <= 0.5
    near = _small_step(policy, jnp.where(jnp.expand_dims(small, axis), d, 0.0), axis)

    def mixed() -> Change:
        far = _large_step(policy, delta, d, axis)
        return Change(*(jnp.where(small, a, b) for a, b in zip(near, far, strict=True)))

    return jax.lax.cond(jnp.all(small), lambda: near, mixed)


def stepped(policy: Policy, delta: Float[Array, "..."], axis: int = -1) -> Policy:
    """softmax(z + δ): the policy after the step, added relative to the mode, so that a common shift costs no digits."""
    unmasked = policy.log_prob > -jnp.inf
    z, delta = jnp.where(unmasked, policy.logits, 0.0), jnp.where(unmasked, delta, 0.0)
    x, y = relative_to(policy.mode, z, axis), relative_to(policy.mode, delta, axis)
    total = x + y
    kept = total - x
    low = (x - (total - kept)) + (y - kept)
    low += lost_digits(policy.mode, z, x, axis) + lost_digits(policy.mode, delta, y, axis)
    return softmax(jnp.where(unmasked, total, -jnp.inf), axis, low)


def prob_change(policy: Policy, delta: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """π' − π of the step δ: π·expm1(d − c) while d is small, so that a small change keeps its digits."""
    d = centred(policy, delta, axis)
    small = jnp.max(jnp.abs(d), axis, keepdims=True) <= 0.5
    near = jnp.where(small, d, 0.0)
    growth = jnp.sum(policy.prob * small_exp_minus_linear(near), axis, keepdims=True)
    by_parts = policy.prob * jnp.expm1(near - jnp.log1p(growth))
    return jnp.where(small, by_parts, stepped(policy, delta, axis).prob - policy.prob)


def _small_step(policy: Policy, d: Float[Array, "..."], axis: int) -> Change:
    p, u = policy.prob, policy.centred_log_prob
    psi = small_exp_minus_linear(d)
    growth = jnp.sum(p * psi, axis)
    shrink = 1.0 / (1.0 + growth)
    kl = shrink * jnp.sum(p * (d * (d + psi) - psi), axis) + (shrink * growth - jnp.log1p(growth))
    covariance = jnp.sum(p * d * u, axis)
    remainder = growth * shrink * covariance - shrink * jnp.sum(p * psi * u, axis) - kl
    return Change(remainder - covariance, covariance, remainder, kl)


def _large_step(policy: Policy, delta: Float[Array, "..."], d: Float[Array, "..."], axis: int) -> Change:
    """The same for any step, by the road whose terms are the smaller: T1, or H' − H (a jump from peak to peak)."""
    p, u = policy.prob, policy.centred_log_prob
    taken = p > 0.0
    after = stepped(policy, delta, axis)
    c = jnp.expand_dims(_log_mean_exp(policy, d, axis), axis)
    jump = jnp.where(taken, after.log_prob, 0.0) - jnp.where(taken, policy.log_prob, 0.0)
    x = jnp.where(taken, jnp.where(c > 30.0, jump, d - c), 0.0)  # log π'/π; a huge c would swallow it
    psi = exp_minus_linear(x)
    kl = jnp.sum(p * jnp.where(x < -1.0, jnp.exp(x) * (x - 1.0) + 1.0, x * (x + psi) - psi), axis)
    linear, curved = p * d * u, p * jnp.where(jnp.abs(d) < c, jnp.expm1(x) - d, psi - c) * u
    covariance = jnp.sum(linear, axis)
    revived = jnp.sum(jnp.where(taken, 0.0, after.prob), axis) > jnp.finfo(p.dtype).eps

    by_terms = -jnp.sum(p * jnp.expm1(x) * u, axis) - kl
    by_entropies = after.entropy - policy.entropy
    size = jnp.sum(jnp.abs(p * jnp.expm1(x) * u), axis) + kl
    subtract = revived | (after.entropy + policy.entropy < size)
    change = jnp.where(subtract, by_entropies, by_terms)

    size = jnp.sum(jnp.abs(curved), axis) + kl
    add = revived | (jnp.where(subtract, after.entropy + policy.entropy, size) + jnp.sum(jnp.abs(linear), axis) < size)
    return Change(
        change,
        covariance,
        jnp.where(add, change + covariance, -jnp.sum(curved, axis) - kl),
        jnp.where(revived, _kl(after, policy, axis), kl),
    )


def _kl(after: Policy, policy: Policy, axis: int) -> Float[Array, "..."]:
    alive = after.prob > 0.0
    log_ratio = jnp.where(alive, after.log_prob, 0.0) - jnp.where(alive, policy.log_prob, 0.0)
    return jnp.sum(after.prob * log_ratio, axis)


def _log_mean_exp(policy: Policy, d: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """log Σ π eᵈ for centred d, so ≥ 0: log1p Σ π ψ(d), or through the largest term where eᵈ would overflow."""
    safe = 0.4 * jnp.log(jnp.finfo(d.dtype).max)
    largest = jnp.max(jnp.where(policy.prob > 0.0, policy.log_prob + d, -jnp.inf), axis, keepdims=True)
    through = jnp.sum(jnp.where(policy.prob > 0.0, jnp.exp(policy.log_prob + d - largest), 0.0), axis)
    growth = jnp.sum(policy.prob * exp_minus_linear(jnp.minimum(d, safe)), axis)
    overflow = jnp.max(jnp.where(policy.prob > 0.0, d, 0.0), axis) > safe
    return jnp.where(overflow, jnp.squeeze(largest, axis) + jnp.log(through), jnp.log1p(growth))
