"""A log: the tokens that a training run recorded, as NumPy arrays in float64."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

Array: TypeAlias = np.ndarray


class Log(NamedTuple):
    """N recorded tokens, drawn from the policy that acted (`old`); what was not recorded is None.

    log_prob            log π of the token under the current policy
    old_log_prob        log π_old of it under the policy that acted
    advantage           A
    entropy             H of the current policy's whole distribution at the token
    mean_entropy_score  S̄ = Σ_b π_b² (log π_b + H) of the same distribution
    group, episode      numbers from 0 up, no two groups sharing an episode
    position            step of the token in its episode
    notes               what was left out on reading
    """

    log_prob: Float[Array, " N"]
    old_log_prob: Float[Array, " N"]
    advantage: Float[Array, " N"]
    entropy: Float[Array, " N"] | None = None
    mean_entropy_score: Float[Array, " N"] | None = None
    position: Float[Array, " N"] | None = None
    reward: Float[Array, " N"] | None = None
    group: Int[Array, " N"] | None = None
    episode: Int[Array, " N"] | None = None
    notes: tuple[str, ...] = ()


def log_ratio(log: Log) -> Float[Array, " N"]:
    """log π − log π_old, cut at ±log √max like `tokens.ratio`, so that its exponential stays finite."""
    limit = 0.5 * np.log(np.finfo(float).max)
    return np.clip(log.log_prob - log.old_log_prob, -limit, limit)
