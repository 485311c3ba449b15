"""How far the policy is from the one that acted: divergences, and the ratios that a clip sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softmaxdyn.diagnostics.estimates import Estimate, estimate
from softmaxdyn.diagnostics.log import Log, log_ratio

QUANTILES = (0.001, 0.01, 0.5, 0.99, 0.999)


class Ratios(NamedTuple):
    """π/π_old over the tokens: extremes, quantiles, and the share outside [1 − low, 1 + high].

    on_policy           every token has the same probability under both policies, to the bit
    largest_log_ratio   max |log r|
    harmful             outside on the side where A pushes further out (above: A > 0, below: A < 0): what PPO clips
    """

    on_policy: bool
    largest_log_ratio: float
    smallest: float
    largest: float
    mean: float
    quantiles: dict[str, float]
    outside: float
    harmful: float
    harmful_above: float
    harmful_below: float


def divergences(log: Log) -> dict[str, Estimate]:
    """KL(π_old‖π) by k1 = −log r, k2 = (log r)²/2, k3 = r − 1 − log r, and χ²(π‖π_old) by (r − 1)², r = π/π_old.

    All but k2 are unbiased when the tokens were drawn from π_old. k3 ≥ 0 always; k1 may be negative.
    """
    d, excess = log.log_prob - log.old_log_prob, np.expm1(log_ratio(log))
    with np.errstate(over="ignore"):
        squared = np.minimum(excess * excess, np.finfo(float).max)
    forms = {"k1": -d, "k2": 0.5 * d * d, "k3": np.maximum(excess - d, 0.0), "chi2": squared}
    return {name: estimate(values, log.episode) for name, values in forms.items()}


def ratios(log: Log, low: float = 0.2, high: float = 0.2) -> Ratios:
    """The ratio and clip statistics."""
    r, a = np.exp(log_ratio(log)), log.advantage
    above, below = r > 1.0 + high, r < 1.0 - low
    return Ratios(
        on_policy=bool(np.array_equal(log.log_prob, log.old_log_prob)),
        largest_log_ratio=float(np.abs(log_ratio(log)).max()),
        smallest=float(r.min()),
        largest=float(r.max()),
        mean=float(r.mean()),
        quantiles={f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(r, QUANTILES), strict=True)},
        outside=float(np.mean(above | below)),
        harmful=float(np.mean((above & (a > 0.0)) | (below & (a < 0.0)))),
        harmful_above=float(np.mean(above & (a > 0.0))),
        harmful_below=float(np.mean(below & (a < 0.0))),
    )
