"""The second road: entropies and their change along a straight path of logits, in NumPy with more digits.

`WIDE` names the type: 80-bit for float64 (where the platform has it), float64 for float32. Nothing of the package is
used. Arrays are [n, K]; a logit of −∞ masks its action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

WIDE = {"float64": np.longdouble, "float32": np.float64}

Array = np.ndarray


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
    """ΔH = ∫₀¹ −Cov_{π_t}(log π_t, δ) dt and R = ∫₀¹ (1 − t) H''(t) dt over π_t = softmax(z + tδ), with their sizes."""

    def rates(t: Any, logits: Array, delta: Array) -> Array:
        policy = softmax(logits)
        y = spread(policy, delta)
        x, size = spread(policy, policy.x) + y, policy.prob * (1 + np.abs(policy.x) + y) * y
        slope, curvature = _slope_and_curvature(policy, delta)
        parts = slope, (1 - t) * curvature, (size * x).sum(-1), (1 - t) * (size * (1 + x) * y).sum(-1)
        return np.stack(parts)

    return Path(*_integral(rates, logits, delta))


def entropy_change(logits: Array, delta: Array) -> Array:
    """ΔH alone, by the same integral."""
    return _integral(lambda t, z, d: _slope_and_curvature(softmax(z), d)[0][None], logits, delta)[0]


def _slope_and_curvature(policy: Wide, delta: Array) -> tuple[Array, Array]:
    d = centred(policy, delta)
    pd = policy.prob * d
    return -(pd * policy.u).sum(-1), -(pd * d * (1 + policy.u)).sum(-1)


def _integral(rates: Callable[[Any, Array, Array], Array], logits: Array, delta: Array) -> Array:
    """∫₀¹ rates(t, z + tδ, δ) dt [parts, n] by Gauss's rule.

    Z(t) = Σ π e^{tδ} has no zero within π/osc(δ) of the real line, so that m nodes leave an error of
    (h + √(h² + 1))⁻²ᵐ with h = 2π/osc; m is taken for the precision of the dtype, with a node to spare.
    """
    start = softmax(logits)
    delta = relative(start, delta)
    logits = np.where(start.prob > 0, start.x, -np.inf)  # so that adding tδ costs |x| ulp, not |z| ulp
    osc, parts = delta.max(-1) - delta.min(-1), []
    for low, high in pairwise((-1.0, 1 / 16, 1.0, 5.0, math.inf)):
        rows = np.flatnonzero((osc > low) & (osc <= high))
        z, d = logits[rows], delta[rows]
        nodes = gauss_legendre(_node_count(max(1 / 16, float(osc[rows].max(initial=0))), logits.dtype), logits.dtype)
        parts.append((rows, sum(weight * rates(t, z + t * d, d) for t, weight in zip(*nodes, strict=True))))
    result = np.zeros((len(parts[0][1]), len(logits)), logits.dtype)
    for rows, part in parts:
        result[:, rows] = part
    return result


def _node_count(osc: float, dtype: Any) -> int:
    h = 0.8 * 2 * math.pi / osc
    return 1 + math.ceil(-math.log(np.finfo(dtype).eps) / (2 * math.asinh(h)))


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
