"""What the theory predicts for one step: first order, second order, and certificates.

Notation: π = softmax(z), ℓ = log π, u = ℓ + H, S_a = π_a u_a, S̄ = E_π S, δ the step of the logits, A an advantage.
All results are in nats, one number a state. The exact change that they predict is `change.entropy_change`.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from softmaxdyn.policy import centred, softmax


def covariance(logits: Float[ArrayLike, "..."], values: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """Cov_{a∼π}(log π(a), values(a)), centred relative to the mode so that nothing cancels."""
    policy = softmax(logits, axis)
    return jnp.sum(policy.prob * policy.centred_log_prob * centred(policy, values, axis), axis)


def lemma_1(logits: Float[ArrayLike, "..."], delta: Float[ArrayLike, "..."], axis: int = -1) -> Float[Array, "..."]:
    """ΔH ≈ −Cov_π(log π, δ) for any step δ of the logits.

    error   |ΔH − value| ≤ `remainder_bound`: second order in δ (measured order 2.000 as δ halves)
    source  T3; Cui et al. 2025 (arXiv:2505.22617), Lemma 1
    """
    return -covariance(logits, delta, axis)


def proposition_1(
    logits: Float[ArrayLike, "..."],
    advantage: Float[ArrayLike, "..."],
    step_size: Float[ArrayLike, "..."] | float,
    axis: int = -1,
) -> Float[Array, "..."]:
    """δ_a = η π_a (A_a − E_π A): the step of vanilla policy gradient on a bandit; `step_size` is η, one a state.

    source  T4; Cui et al. 2025, Proposition 1. In a problem with several states η is multiplied by the visits d(s).
            Their section 3.2 prints a minus sign; ascent needs the plus.
    """
    policy = softmax(logits, axis)
    return _per_state(step_size, axis) * policy.prob * centred(policy, advantage, axis)


def theorem_1(
    logits: Float[ArrayLike, "..."],
    advantage: Float[ArrayLike, "..."],
    step_size: Float[ArrayLike, "..."] | float,
    axis: int = -1,
) -> Float[Array, "..."]:
    """ΔH ≈ −η Cov_π(log π, π∘A): vanilla policy gradient, **for an advantage with E_π A = 0**.

    The formula is kept as printed. With A + b in place of A (raw rewards, say) it is off by −η b S̄, an error of first
    order, although the update itself does not depend on b.
    error   measured order as η halves from 2⁻⁶ to 2⁻¹¹: 2.000; with raw rewards 1.000
    source  T5; Cui et al. 2025, Theorem 1
    """
    return -jnp.asarray(step_size) * covariance(logits, softmax(logits, axis).prob * advantage, axis)


def theorem_2(
    logits: Float[ArrayLike, "..."],
    advantage: Float[ArrayLike, "..."],
    step_size: Float[ArrayLike, "..."] | float,
    axis: int = -1,
) -> Float[Array, "..."]:
    """ΔH ≈ −η Cov_π(log π, A): natural policy gradient, with any baseline in A.

    error   measured order as η halves from 2⁻⁶ to 2⁻¹¹: 2.000
    source  T6; Cui et al. 2025, Theorem 2
    """
    return -jnp.asarray(step_size) * covariance(logits, advantage, axis)


def sample_effect(
    logits: Float[ArrayLike, "..."], weight: Float[ArrayLike, "..."] = 1.0, axis: int = -1
) -> Float[Array, "..."]:
    """−w (S_a − S̄) for every action a: the first-order ΔH when a is drawn and z moves by w (e_a − π).

    shape   that of `logits`; `weight` is η times the score of the sample
    sign    rewarding a lowers the entropy iff S_a > S̄ (roughly π_a > e^{−H}), not iff a is probable
    source  T7; ∂H/∂z_a = −S_a
    """
    policy = softmax(logits, axis)
    contribution = policy.prob * policy.centred_log_prob
    return -jnp.asarray(weight) * (contribution - jnp.sum(policy.prob * contribution, axis, keepdims=True))


def single_logit_entropy(
    logits: Float[ArrayLike, "*S A"], action: Int[ArrayLike, "*S"], shift: Float[ArrayLike, "*S"] | float
) -> Float[Array, "*S"]:
    """H after moving only z_a by x: log m + (H − p(eˣ − 1) log p − p eˣ x)/m, m = 1 + p(eˣ − 1), p = π_a.

    source  T8; loses digits where H' is far below H: an oracle for steps of order one
    """
    policy = softmax(logits)
    index = jnp.broadcast_to(jnp.asarray(action), policy.entropy.shape)[..., None]
    p, log_p = (jnp.take_along_axis(x, index, -1)[..., 0] for x in (policy.prob, policy.log_prob))
    x = jnp.asarray(shift, p.dtype)
    own = jax.lax.broadcasted_iota(index.dtype, policy.prob.shape, policy.prob.ndim - 1) == index
    others = jnp.sum(jnp.where(own, 0.0, policy.prob), -1)  # 1 − p, without loss at p → 1
    growth = p * jnp.expm1(x)
    m = others + p * jnp.exp(x)
    moved = growth * log_p + p * jnp.exp(x) * x
    log_m = jnp.where(jnp.abs(growth) < 0.5, jnp.log1p(growth), jnp.log(m))
    return log_m + (policy.entropy - jnp.where(p > 0.0, moved, 0.0)) / m


def second_order(
    logits: Float[ArrayLike, "..."], direction: Float[ArrayLike, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """d²H/dt² of softmax(z + t v) at t = 0: −Var_π(v) − E_π[u (v − E v)²].

    source  T9; half of it is the leading part of the remainder of Lemma 1
    """
    policy = softmax(logits, axis)
    square = centred(policy, direction, axis) ** 2
    return -jnp.sum(policy.prob * (1.0 + policy.centred_log_prob) * square, axis)


def remainder_bound(
    logits: Float[ArrayLike, "..."], delta: Float[ArrayLike, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """(1/8 + log(K−1)/(12√3)) · osc(δ)² ≥ |ΔH + Cov_π(log π, δ)|: for every policy and every step.

    K counts the unmasked actions of the state and osc is max − min over them. For K = 2 the constant, 1/8, cannot be
    improved; the largest ratio |remainder|/osc² found by search is 0.132 (K=3), 0.168 (10), 0.263 (100), against 0.158,
    0.231 and 0.346 here. (A cruder chain of estimates gives 1/8 + ½ log K.)

    proof   The remainder is ∫₀¹ (1−t) H''(t) dt, so half a bound on |H''|/osc² will do. By T9, H'' = −F(δ) F the
            quadratic form of B(f, g) = E_π[(1 + u)(f − Ef)(g − Eg)]. Scale δ to [0, 1]; then δ = ∫₀¹ 1{δ > t} dt and
            F(δ) = ∬ B(1_S, 1_T) over nested sets S ⊂ T, so |F| ≤ sup |B|. Let s, m, n be the probabilities of S, of T∖S
            and of the complement of T, h the entropies inside the three. Writing E_S log π = log s − h_S, …, one finds
            B = sn [1 + (1−2s)(log s − h_S) − 2m(log m − h_M) + (1−2n)(log n − h_N)], with 0 ≤ h ≤ log(K−1).
            Claim: |B| ≤ ¼ + L/(6√3), L = log(K−1). The factor of L in B, at its largest, is 2msn ≤ 2/27 if s, n ≤ ½,
            and at most n(1−n)(1−2n) ≤ 1/(6√3) if s > ½ (or the same with s and n exchanged); so, B being linear in L,
            it is enough to look at the smallest L: 0 where m = 0 (there what is left is sn + sn(2s−1) log(n/s) ≤ ¼) and
            log 2 where m > 0 (three actions at least). There, upwards: for s, n ≤ ½ concavity of log gives
            4B ≤ (1−m)²(1 + 2m log((1−m)/m)) < 1.18; for s > ½, B ≤ sn(1 + (1−2n) log 2 + 2m log(n/m)) < 0.31;
            both below ¼ + log 2/(6√3) = 0.316. Downwards the terms free of L are at most
            sn(1−2n) log(1/n) + sn(1−2s) log(1/s) < 0.2 (one of them if s > ½), below ¼.
    source  T10, with a constant of our own
    """
    logits = jnp.asarray(logits)
    unmasked = logits > -jnp.inf
    count = jnp.sum(unmasked, axis)
    constant = 0.125 + jnp.log(jnp.maximum(count - 1, 1).astype(logits.dtype)) / (12.0 * math.sqrt(3.0))
    return constant * _oscillation(unmasked, jnp.asarray(delta), axis) ** 2


def certified_step_size(
    logits: Float[ArrayLike, "..."], direction: Float[ArrayLike, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """η* = |Cov_π(log π, v)| / (c osc(v)²): for 0 < η < η*, the sign of ΔH of the step ηv is that of Lemma 1.

    c osc² is `remainder_bound`. 0 where the covariance is 0, +∞ where the direction is constant.
    source  T11
    """
    bound = remainder_bound(logits, direction, axis)
    slope = jnp.abs(covariance(logits, direction, axis))
    return jnp.where(bound > 0.0, slope / jnp.where(bound > 0.0, bound, 1.0), jnp.inf)


def natural_path(
    logits: Float[ArrayLike, "..."], rewards: Float[ArrayLike, "..."], time: Float[ArrayLike, "..."] | float
) -> Float[Array, "..."]:
    """z₀ + τ r: natural policy gradient on a bandit after steps that add up to τ = ηt; π ∝ π₀ e^{τr} (T13)."""
    return jnp.asarray(logits) + jnp.asarray(time) * jnp.asarray(rewards)


def natural_entropy_rate(
    logits: Float[ArrayLike, "..."],
    rewards: Float[ArrayLike, "..."],
    time: Float[ArrayLike, "..."] | float,
    axis: int = -1,
) -> Float[Array, "..."]:
    """dH/dτ on that path: −[Cov_{π_τ}(log π₀, r) + τ Var_{π_τ}(r)]; ≤ 0 from a uniform start (T14)."""
    policy = softmax(natural_path(logits, rewards, time), axis)
    start = softmax(logits, axis).centred_log_prob
    r = centred(policy, rewards, axis)
    return -jnp.sum(policy.prob * r * (centred(policy, start, axis) + jnp.asarray(time) * r), axis)


def binary_reward_entropy(
    success: Float[ArrayLike, "..."],
    entropy_correct: Float[ArrayLike, "..."] | float,
    entropy_wrong: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    """H(p) = h₂(p) + p H₊ + (1−p) H₋ for success probability p and the entropies inside the two answer sets.

    Natural PG with a binary reward freezes H₊ and H₋; H rises until p* = e^{H₊}/(e^{H₊} + e^{H₋}) and ends at H₊ (T15).
    """
    success = jnp.clip(jnp.asarray(success), 0.0, 1.0)
    binary = jax.scipy.special.entr(success) + jax.scipy.special.entr(1.0 - success)
    return binary + success * entropy_correct + (1.0 - success) * entropy_wrong


def _per_state(value: Float[ArrayLike, "..."], axis: int) -> Float[Array, "..."]:
    number = jnp.asarray(value)
    return jnp.expand_dims(number, axis) if number.ndim else number


def _oscillation(unmasked: Array, delta: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    high = jnp.max(jnp.where(unmasked, delta, -jnp.inf), axis)
    low = jnp.min(jnp.where(unmasked, delta, jnp.inf), axis)
    return high - low
