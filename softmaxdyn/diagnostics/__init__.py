"""What a log of tokens says about entropy: covariance tail, selected tokens, divergences, groups without signal.

Everything is NumPy in float64, and works on 10⁷ tokens: a few sorts, no table over actions. Natural logarithms, nats.
"""

from softmaxdyn.diagnostics.diagnosis import Diagnosis, diagnose, plain
from softmaxdyn.diagnostics.divergence import Ratios, divergences, ratios
from softmaxdyn.diagnostics.estimates import Estimate, estimate
from softmaxdyn.diagnostics.groups import Groups, groups_without_signal
from softmaxdyn.diagnostics.log import Log, log_ratio
from softmaxdyn.diagnostics.profiles import Profile, profile, weighted_median
from softmaxdyn.diagnostics.scores import covariance_score, entropy_effects, order
from softmaxdyn.diagnostics.selection import CANDIDATES, tokens_of, touch, touches
from softmaxdyn.diagnostics.tail import TAILS, Tail, covariance_tail, top_shares

__all__ = [
    "CANDIDATES",
    "TAILS",
    "Diagnosis",
    "Estimate",
    "Groups",
    "Log",
    "Profile",
    "Ratios",
    "Tail",
    "covariance_score",
    "covariance_tail",
    "diagnose",
    "divergences",
    "entropy_effects",
    "estimate",
    "groups_without_signal",
    "log_ratio",
    "order",
    "plain",
    "profile",
    "ratios",
    "tokens_of",
    "top_shares",
    "touch",
    "touches",
    "weighted_median",
]
