"""What each token of a log scores: its covariance and its first-order effect on the entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from softmaxdyn.diagnostics.log import Array, Log, log_ratio


def covariance_score(log: Log) -> Float[Array, " N"]:
    """C_i = (log π_i − mean log π)(A_i − mean A): equation 10 of Cui et al. 2025 (arXiv:2505.22617)."""
    return centred(log.log_prob) * centred(log.advantage)


def centred(values: Float[Array, " N"]) -> Float[Array, " N"]:
    """Less their mean; 0, not rounding, where all are equal."""
    return np.zeros_like(values) if values.min() == values.max() else values - values.mean()


def entropy_effects(log: Log) -> dict[str, Float[Array, " N"]]:
    """The first-order −ΔH of each token per unit of step size, in the forms that the log allows; w = (π/π_old) A.

    exact        w (S − S̄): the whole push w (e_a − π) of T7; needs mean_entropy_score
    own_logit    w S: exact for the token's own logit moved by w alone, S = π (log π + H) = −∂H/∂z_a; needs entropy
    others_held  w (1 − π) S: the others held although the push moves them (STEER's estimate, arXiv:2510.10150)

    On policy and with E[A|s] = 0 the sum of own_logit has the mean of the exact one; its shares by rank have not.
    """
    if log.entropy is None:
        return {}
    probability = np.exp(log.log_prob)
    weight = np.exp(log_ratio(log)) * log.advantage
    score = probability * (log.log_prob + log.entropy)
    exact = {} if log.mean_entropy_score is None else {"exact": weight * (score - log.mean_entropy_score)}
    return exact | {"own_logit": weight * score, "others_held": weight * -np.expm1(log.log_prob) * score}


def order(score: Float[Array, " N"]) -> Int[Array, " N"]:
    """The tokens from the highest score down, the first of equals first."""
    return np.argsort(-score, kind="stable")


def top_count(fraction: Any, tokens: int) -> int:
    """max(1, ⌊fraction · N⌋)."""
    return max(1, int(np.floor(float(fraction) * tokens)))
