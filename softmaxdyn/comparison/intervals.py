"""Means over runs, with bootstrap intervals."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

CONFIDENCE = 0.95


def interval(values: Float[np.ndarray, " R"], seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high): the mean over the runs and its 95 % percentile bootstrap interval; NaN runs are left out."""
    from scipy.stats import bootstrap

    kept = values[np.isfinite(values)]
    if kept.size == 0:
        return (np.nan,) * 3
    if kept.size == 1 or np.ptp(kept) == 0.0:
        return (float(kept.mean()),) * 3
    result = bootstrap((kept,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=seed, vectorized=True)
    return float(kept.mean()), float(result.confidence_interval.low), float(result.confidence_interval.high)
