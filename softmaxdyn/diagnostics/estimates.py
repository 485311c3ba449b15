"""Means over the tokens of a log, and their standard errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from softmaxdyn.diagnostics.log import Array


class Estimate(NamedTuple):
    """A mean over tokens; its standard error if they were independent, and if only their episodes were."""

    mean: float
    error: float | None
    error_by_episode: float | None


def estimate(values: Float[Array, " N"], episode: Int[Array, " N"] | None = None) -> Estimate:
    """The mean of values over the tokens and its standard errors; finite whatever the size of the values.

    By episode: √(E/(E−1) Σ_e (Σ_{i∈e} (x_i − x̄))²)/N, since tokens of an episode are not independent.
    """
    size = float(np.abs(values).max()) or 1.0
    count = len(values)
    x = values / size
    mean = float(x.mean())
    error = float(x.std(ddof=1)) / np.sqrt(count) * size if count > 1 else None
    if episode is None or episode.max() == 0:
        return Estimate(mean * size, error, None)
    of_episode = np.bincount(episode, x - mean)
    inflation = len(of_episode) / (len(of_episode) - 1)
    return Estimate(mean * size, error, float(np.sqrt(inflation * np.sum(of_episode**2))) / count * size)
