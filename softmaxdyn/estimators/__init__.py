"""Estimators turn (problem, policy) into tokens: the whole population, or a sample of episodes."""

from softmaxdyn.estimators.mixed import AEPO, AEPOReleased, OffPolicy
from softmaxdyn.estimators.on_policy import Exact, OnPolicy, Sampled, at_mode, best_baseline, state_value
from softmaxdyn.estimators.protocol import Batch, Estimator

__all__ = [
    "AEPO",
    "AEPOReleased",
    "Batch",
    "Estimator",
    "Exact",
    "OffPolicy",
    "OnPolicy",
    "Sampled",
    "at_mode",
    "best_baseline",
    "state_value",
]
