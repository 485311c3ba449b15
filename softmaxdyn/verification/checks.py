"""The statements about one step and its predictions: T1–T11. Each is judged by a second road to the same number.

A tolerance is what rounding explains: 32 rounding errors of the dtype in every term of the sum behind a number (16 in
the term, 16 in adding it up), plus the same for the second road in its own precision, plus what may be flushed to zero.
In the sizes of terms, x = z − z_mode: an error of ½ ulp in it is one of |x| ulp/2 in π.
"""

from __future__ import annotations

import numpy as np

from softmaxdyn.verification import wide
from softmaxdyn.verification.cases import Block
from softmaxdyn.verification.evidence import Evidence
from softmaxdyn.verification.verdicts import Array, Check, Sample

ROUNDINGS = 32
DOUBLE = float(np.finfo(np.float64).eps)


def errors(evidence: Evidence, got: Array, wanted: Array, size: Array, other: Array | float) -> Sample:
    """|got − wanted| over its tolerance, the largest over the actions; `other` is the second road's size × eps."""
    info = np.finfo(evidence.block.logits.dtype)
    flushed = 1e3 * evidence.block.logits.shape[-1] * float(info.tiny)
    ratio = np.abs(got - wanted) / (ROUNDINGS * (float(info.eps) * size + other) + flushed)
    ratio = ratio if ratio.ndim == 1 else np.where(evidence.block.logits > -np.inf, ratio, 0).max(-1)
    return Sample(ratio, len(ratio))


def larger(one: Sample, other: Sample) -> Sample:
    """The larger of two numbers about each case."""
    return Sample(np.maximum(one.values, other.values), one.cases)


def mean_size(policy: wide.Wide, size: Array) -> Array:
    """Σ π (1 + |x|) size, over the actions."""
    return (policy.prob * (1 + np.abs(policy.x)) * size).sum(-1)


def through_mode(policy: wide.Wide, size: Array) -> Array:
    """`size`, but for the mode the sum of the others': autodiff gets the mode's derivative from theirs."""
    size, mode = size.copy(), policy.mode
    np.put_along_axis(size, mode, 0, -1)
    np.put_along_axis(size, mode, size.sum(-1, keepdims=True), -1)
    return size


def _exact_change(e: Evidence) -> Sample:
    """Against ∫ −Cov dt along the step, and against H(π') − H(π) subtracted in wider arithmetic."""
    after = wide.moved(e.policy, e.block.delta)
    eps = float(np.finfo(e.policy.x.dtype).eps)
    integral = eps * e.path.change_size
    subtraction = eps * (wide.entropy_size(e.policy) + wide.entropy_size(after))
    return larger(
        errors(e, e.said.entropy_change, e.path.entropy_change, e.path.change_size, integral),
        errors(e, e.said.entropy_change, after.entropy - e.policy.entropy, e.path.change_size, integral + subtraction),
    )


def _exact_remainder(e: Evidence) -> Sample:
    size = e.path.remainder_size
    return errors(e, e.said.remainder, e.path.remainder, size, float(np.finfo(size.dtype).eps) * size)


def _double(block: Block) -> tuple[Array, wide.Wide]:
    logits = block.logits.astype(np.float64)
    return logits, wide.softmax(logits)


def order(e: Evidence, delta: Array, predicted: Array, least: Array | float = 1.0) -> Sample:
    """log₂ of how much the error falls when the step is halved; cases are weighted by 1/Σ π (1 + |u|) d².

    Cases whose numbers (that sum, or `least`) are near the underflow of the dtype are left out.
    """
    logits, policy = _double(e.block)
    weight = (policy.prob * (1 + np.abs(policy.u)) * wide.centred(policy, delta) ** 2).sum(-1)
    info = np.finfo(e.block.logits.dtype)
    rows = np.minimum(weight, least) > float(info.tiny) / float(info.eps)
    exact = [wide.entropy_change(logits[rows], part * delta[rows]) for part in (1.0, 0.5)]
    error = [np.mean(np.abs(a - b[rows]) / weight[rows]) for a, b in zip(exact, predicted, strict=True)]
    return Sample(np.log2(error[:1]) - np.log2(error[1:]), int(rows.sum()))


def _order_of_lemma_1(e: Evidence) -> Sample:
    return order(e, e.block.small.astype(np.float64), e.said.lemma_1)


def _order_of_theorem_1(e: Evidence, predicted: Array) -> Sample:
    _, policy = _double(e.block)
    push = policy.prob * e.block.advantage
    delta = e.block.pg_step.astype(np.float64)[:, None] * push
    return order(e, delta, predicted, (policy.prob * np.abs(policy.u * push)).sum(-1))


def _order_of_theorem_2(e: Evidence) -> Sample:
    advantage = e.block.advantage.astype(np.float64)
    return order(e, e.block.npg_step.astype(np.float64)[:, None] * advantage, e.said.theorem_2)


def _gradient_of_return(e: Evidence) -> Sample:
    """Against autodiff of J; infinite where the step would lower J."""
    policy, gradient = e.policy, e.derivatives.return_gradient
    size = policy.prob * (1 + np.abs(policy.x)) * wide.spread(policy, e.block.reward)
    sample = errors(e, e.said.proposition_1, gradient, size, DOUBLE * through_mode(policy, size))
    rises = (e.said.proposition_1 * gradient).sum(-1) >= 0
    return sample._replace(values=np.where(rises, sample.values, np.inf))


def _effect_of_a_sample(e: Evidence) -> Sample:
    """Against autodiff of H: −(S_a − S̄) = ∂H/∂z_a − Σ π ∂H/∂z."""
    policy, gradient = e.policy, e.derivatives.entropy_gradient
    wanted = gradient - (policy.prob * gradient).sum(-1, keepdims=True)
    base, x = policy.prob * (1 + np.abs(policy.x)), wide.spread(policy, policy.x)
    sizes = base * x, DOUBLE * through_mode(policy, base * (2 + x))
    size, other = (s + (policy.prob * s).sum(-1, keepdims=True) for s in sizes)
    return errors(e, e.said.sample_effect, wanted, size, other)


def _one_logit(e: Evidence) -> Sample:
    """Against the entropy of the shifted logits."""
    policy, rows = e.policy, np.arange(len(e.block.action))
    shift = e.block.shift.astype(policy.x.dtype)
    step = np.zeros_like(policy.x)
    step[rows, e.block.action] = shift
    after = wide.moved(policy, step)
    p, log_p = policy.prob[rows, e.block.action], (policy.u[rows, e.block.action] - policy.entropy)
    growth = p * np.expm1(shift)
    terms = wide.entropy_size(policy) + np.abs(growth * log_p) + p * np.exp(shift) * np.abs(shift)
    amplified = 1 + np.abs(growth) * (1 + np.abs(log_p)) / (1 + growth)
    size = amplified * (terms / (1 + growth) + np.abs(np.log1p(growth)) + np.abs(growth) / (1 + growth))
    other = float(np.finfo(policy.x.dtype).eps) * (wide.entropy_size(after) + size)
    return errors(e, e.said.single_logit_entropy, after.entropy, size, other)


def _curvature(e: Evidence) -> Sample:
    """Against autodiff of H, twice."""
    policy = e.policy
    y, x = wide.spread(policy, e.block.direction) ** 2, wide.spread(policy, policy.x)
    return errors(
        e,
        e.said.second_order,
        e.derivatives.second_order,
        mean_size(policy, (1 + x) * y),
        DOUBLE * through_mode(policy, policy.prob * (1 + np.abs(policy.x)) * (3 + x) * y).sum(-1),
    )


def _certified_remainder(e: Evidence) -> Sample:
    bound = e.said.remainder_bound * (1 + ROUNDINGS * float(np.finfo(e.block.logits.dtype).eps))
    moved = bound > 0
    ratio = np.abs(e.path.remainder) / np.where(moved, bound, 1)
    return Sample(np.where(moved | (e.path.remainder == 0), ratio, np.inf), len(ratio))


def _certified_sign(e: Evidence) -> Sample:
    """|ΔH/(−η Cov) − 1| at 0.9 η*; below 1 the signs agree. Left out: directions whose Cov is lost in rounding."""
    logits, policy = _double(e.block)
    direction = e.block.direction.astype(np.float64)
    slope = (policy.prob * policy.u * wide.centred(policy, direction)).sum(-1)
    size = mean_size(policy, wide.spread(policy, policy.x) * wide.spread(policy, direction))
    eps = float(np.finfo(e.block.logits.dtype).eps)
    rows = (np.abs(slope) > 32 * ROUNDINGS * eps * size) & (slope**2 > np.finfo(np.float64).tiny / DOUBLE)
    step = 0.9 * e.said.certified_step_size[rows].astype(np.float64)
    change = wide.entropy_change(logits[rows], step[:, None] * direction[rows])
    return Sample(np.abs(change / (-step * slope[rows]) - 1), int(rows.sum()))


ONE_STEP = (
    Check("T1", "ΔH = −Cov(log π, π'/π) − KL(π'‖π), exactly, for a step of any size", _exact_change),
    Check("T2", "the remainder ΔH + Cov(log π, δ) keeps its digits, for a step of any size", _exact_remainder),
    Check("T3", "Lemma 1 is right to first order: its error is of second", _order_of_lemma_1, "order", 1.98, 2.02),
    Check("T4", "∂J/∂z = π (r − E r): the step of vanilla PG, which raises J", _gradient_of_return),
    Check(
        "T5",
        "Theorem 1 (vanilla PG) is right to first order for a centred advantage",
        lambda e: _order_of_theorem_1(e, e.said.theorem_1),
        "order",
        1.98,
        2.02,
    ),
    Check(
        "T5",
        "… and wrong at first order for an advantage that is not centred",
        lambda e: _order_of_theorem_1(e, e.said.theorem_1_raw),
        "order",
        0.98,
        1.02,
    ),
    Check(
        "T6", "Theorem 2 (natural PG) is right to first order for any reward", _order_of_theorem_2, "order", 1.98, 2.02
    ),
    Check("T7", "a sampled action a changes H by −w (S_a − S̄), to first order", _effect_of_a_sample),
    Check("T8", "the closed form of H after one logit has moved", _one_logit),
    Check("T9", "d²H/dt² = −Var(v) − E(u (v − E v)²) along v", _curvature),
    Check("T10", "|remainder| ≤ (1/8 + log(K−1)/(12√3)) osc(δ)²", _certified_remainder, "remainder / bound"),
    Check(
        "T11",
        "below the certified step size ΔH has the predicted sign",
        _certified_sign,
        "|ΔH/prediction − 1|",
        -np.inf,
        float(np.nextafter(1, 0)),
    ),
)
"""T1 … T11."""
