"""The second road: entropies and their change along a straight path of logits, in NumPy with more digits.

`WIDE` names the type: 80-bit for float64 (where the platform has it), float64 for float32. Nothing of the package is
used. Arrays are [n, K]; a logit of −∞ masks its action.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

WIDE = {"float64": np.longdouble, "float32": np.float64}

Array = np.ndarray[Any, Any]


class Wide(NamedTuple):
    """π = softmax(z) [n, K] with x = z − z_mode (0 where masked), u = log π + H, s = Σ of eˣ but the mode's; H [n]."""

    mode: Array
    x: Array
    prob: Array
    u: Array
    s: Array
    entropy: Array


class Path(NamedTuple):
    """ΔH and R = ΔH + Cov of a step, and the sums of the sizes of their terms: what a rounding error multiplies."""

    entropy_change: Array
    remainder: Array
    change_size: Array
    remainder_size: Array


def softmax(logits: Array) -> Wide:
    """The policy, relative to its mode: x = z − z_mode."""
    unmasked = logits > -np.inf
    mode = np.argmax(logits, -1)[:, None]
    x = np.where(unmasked, logits - np.take_along_axis(logits, mode, -1), 0)
    e = np.where(unmasked, np.exp(x), 0)
    np.put_along_axis(e, mode, 0, -1)
    s = e.sum(-1, keepdims=True)
    np.put_along_axis(e, mode, 1, -1)
    prob = e / (1 + s)
    mean = (prob * x).sum(-1, keepdims=True)
    u = np.where(unmasked, x - mean, 0)
    return Wide(mode, x, prob, u, s[:, 0], (np.log1p(s) - mean)[:, 0])


def centred(policy: Wide, values: Array) -> Array:
    """values − E_π values."""
    y = relative(policy, values)
    return y - (policy.prob * y).sum(-1, keepdims=True)


def relative(policy: Wide, values: Array) -> Array:
    """values − (value of the mode), 0 where masked (x is 0 there, π too)."""
    y = values - np.take_along_axis(values, policy.mode, -1)
    return np.where(policy.prob > 0, y, 0)


def spread(policy: Wide, values: Array) -> Array:
    """|y| + E|y| of y = values relative to the mode: the size of the terms in a centred value."""
    size = np.abs(relative(policy, values))
    return size + (policy.prob * size).sum(-1, keepdims=True)


def moved(policy: Wide, delta: Array) -> Wide:
    """The policy after a step."""
    return softmax(np.where(policy.prob > 0, policy.x + relative(policy, delta), -np.inf))


def entropy_size(policy: Wide) -> Array:
    """What a rounding error of the logits and of π multiplies in H [n]: log1p s + Σ π (1 + |x|) (|x| + E|x|)."""
    return np.log1p(policy.s) + (policy.prob * (1 + np.abs(policy.x)) * spread(policy, policy.x)).sum(-1)


def oscillation(policy: Wide, values: Array) -> Array:
    """max − min over the unmasked actions [n]."""
    y = relative(policy, values)
    return y.max(-1) - y.min(-1)


def straight_path(logits: Array, delta: Array) -> Path:
    """ΔH = ∫₀¹ −Cov_{π_t}(log π_t, δ) dt and R = ∫₀¹ (1 − t) H''(t) dt over π_t = softmax(z + tδ), by Gauss's rule.

    Z(t) = Σ π e^{tδ} has no zero within π/osc(δ) of the real line, so n nodes leave an error of (h + √(h² + 1))⁻²ⁿ with
    h = 2π/osc; n is taken for the precision of the dtype.
    """
    start = softmax(logits)
    osc, delta = oscillation(start, delta), relative(start, delta)
    logits = np.where(start.prob > 0, start.x, -np.inf)  # so that adding tδ costs |x| ulp, not |z| ulp
    result = Path(*(np.zeros(len(logits), logits.dtype) for _ in Path._fields))
    for low, high in ((-1.0, 1.0), (1.0, 5.0), (5.0, math.inf)):
        rows = (osc > low) & (osc <= high)
        if rows.any():
            parts = _integrate(logits[rows], delta[rows], max(1.0, float(osc[rows].max())))
            for total, part in zip(result, parts, strict=True):
                total[rows] = part
    return result


def _integrate(logits: Array, delta: Array, osc: float) -> Path:
    h = 0.8 * 2 * math.pi / osc
    eps = float(np.finfo(logits.dtype).eps)
    count = math.ceil(-math.log(eps) / (2 * math.log(h + math.hypot(h, 1)))) + 2
    totals = [np.zeros(len(logits), logits.dtype) for _ in Path._fields]
    for t, weight in zip(*gauss_legendre(count, logits.dtype), strict=True):
        factors = (weight, weight * (1 - t), weight, weight * (1 - t))
        for total, factor, part in zip(totals, factors, _rates(logits + t * delta, delta), strict=True):
            total += factor * part
    return Path(*totals)


def _rates(logits: Array, delta: Array) -> Path:
    policy = softmax(logits)
    p, u, d = policy.prob, policy.u, centred(policy, delta)
    y = spread(policy, delta)
    size = p * (1 + np.abs(policy.x) + y) * y
    x = spread(policy, policy.x) + y
    slope, curvature = -(p * u * d).sum(-1), -(p * (1 + u) * d * d).sum(-1)
    return Path(slope, curvature, (size * x).sum(-1), (size * (1 + x) * y).sum(-1))


def gauss_legendre(count: int, dtype: Any) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule on [0, 1], to the last digits of `dtype` (Newton on Legendre's P_n)."""
    x = np.cos(np.pi * (np.arange(count, dtype=dtype) + 0.75) / (count + 0.5))
    for _ in range(6):
        low, high = np.ones_like(x), x
        for n in range(2, count + 1):
            low, high = high, ((2 * n - 1) * x * high - (n - 1) * low) / n
        slope = count * (x * high - low) / (x * x - 1)
        x = x - high / slope
    return (1 + x) / 2, 1 / ((1 - x * x) * slope**2)
