"""Statistics over seeds, each with its 95 % percentile bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from softmaxdyn.ledger.findings import Statistic

RESAMPLES = 1999


def exactly(name: str, value: Any, **wanted: Any) -> Statistic:
    """A number without chance: of exact dynamics from a fixed start, of a closed form, of a count."""
    number = float(value)
    return Statistic(name, number, number, number, **wanted)


def mean(name: str, values: Any, **wanted: Any) -> Statistic:
    """The mean of one number a seed [N]."""
    return over_seeds(name, np.mean, values, **wanted)


def share(name: str, hits: Any, **wanted: Any) -> Statistic:
    """The share of N seeds that are True, with Wilson's interval (a bootstrap of all-equal values has none)."""
    from scipy.stats import binomtest

    hits = np.asarray(hits, bool)
    interval = binomtest(int(hits.sum()), hits.size).proportion_ci(method="wilson")
    return Statistic(name, float(hits.mean()), float(interval.low), float(interval.high), seeds=hits.size, **wanted)


def over_seeds(name: str, statistic: Callable[..., Any], *samples: Any, **wanted: Any) -> Statistic:
    """`statistic(*samples)` with the seeds along axis 0 of each sample, resampled together; rows with NaN are left out.

    `statistic` gets arrays [n, …] and returns one number.
    """
    from scipy.stats import bootstrap

    arrays = [np.asarray(sample, float) for sample in samples]
    kept = np.all([np.isfinite(x).reshape(len(x), -1).all(1) for x in arrays], 0)
    arrays = [x[kept] for x in arrays]
    count = int(kept.sum())
    value = float(statistic(*arrays)) if count else math.nan
    if count < 2:
        return Statistic(name, value, value, value, seeds=count, **wanted)

    def resampled(rows: np.ndarray) -> float:
        return float(statistic(*(x[rows] for x in arrays)))

    options = {"n_resamples": RESAMPLES, "vectorized": False, "method": "percentile", "rng": 0}
    found = bootstrap((np.arange(count),), resampled, **options).bootstrap_distribution  # NaN: it had no value there
    low, high = np.nanquantile(found, [0.025, 0.975]) if np.isfinite(found).any() else (math.nan, math.nan)
    return Statistic(name, value, float(low), float(high), seeds=count, **wanted)


def correlation(name: str, x: Any, y: Any, *, ranked: bool = False, **wanted: Any) -> Statistic:
    """Pearson's (`ranked`: Spearman's) correlation of x and y [N, …], over all their entries, resampled by seed."""
    return over_seeds(name, partial(correlation_of, ranked=ranked), x, y, **wanted)


def correlation_of(x: Float[np.ndarray, "*N"], y: Float[np.ndarray, "*N"], ranked: bool = False) -> float:
    """Pearson's or Spearman's correlation of all entries; NaN where one of them does not vary."""
    from scipy.stats import rankdata

    pair = [rankdata(each.ravel()) if ranked else each.ravel() for each in (np.asarray(x), np.asarray(y))]
    left, right = (each - each.mean() for each in pair)
    size = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / size if size > 0.0 else math.nan
