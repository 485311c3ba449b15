"""Profiles: who the tokens are that a method touches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from softmaxdyn.diagnostics.log import Array, Log


class Profile(NamedTuple):
    """Who the touched tokens are: means over the tokens, weighted with how much of each is touched.

    tokens is the sum of these weights; share their mean; likely_and_good the share with A > 0 and π > ½.
    """

    tokens: float
    share: float
    positive: float | None = None
    negative: float | None = None
    likely_and_good: float | None = None
    mean_probability: float | None = None
    median_probability: float | None = None
    mean_score: float | None = None
    mean_entropy: float | None = None
    mean_position: float | None = None


def profile(log: Log, touched: Array) -> Profile:
    """The profile of the tokens, each weighted with how much of it is touched."""
    at = np.flatnonzero(touched)
    weight = touched[at].astype(float)
    total = float(weight.sum())
    if not total:
        return Profile(0.0, 0.0)
    advantage, probability = log.advantage[at], np.exp(log.log_prob[at])

    def mean(values: Array) -> float:
        return float(weight @ values) / total

    recorded = {"mean_entropy": log.entropy, "mean_position": log.position}
    return Profile(
        tokens=total,
        share=total / len(touched),
        positive=mean(advantage > 0.0),
        negative=mean(advantage < 0.0),
        likely_and_good=mean((advantage > 0.0) & (probability > 0.5)),
        mean_probability=mean(probability),
        median_probability=weighted_median(probability, weight),
        mean_score=mean((log.log_prob[at] - log.log_prob.mean()) * (advantage - log.advantage.mean())),
        **{name: None if values is None else mean(values[at]) for name, values in recorded.items()},
    )


def weighted_median(values: Float[Array, " n"], weight: Float[Array, " n"]) -> float:
    """The smallest value with at least half of the weight on it and below it."""
    ranked = np.argsort(values)
    below = np.cumsum(weight[ranked])
    return float(values[ranked[np.searchsorted(below, 0.5 * below[-1])]])
