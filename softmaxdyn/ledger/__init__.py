"""The ledger: statements of the literature, each tried by a function, with the verdict that its numbers give."""

from softmaxdyn.ledger.findings import VERDICTS, Claim, Finding, Size, Statistic, claim, verdict
from softmaxdyn.ledger.statistics import correlation, correlation_of, exactly, mean, over_seeds, share

__all__ = [
    "VERDICTS",
    "Claim",
    "Finding",
    "Size",
    "Statistic",
    "claim",
    "correlation",
    "correlation_of",
    "exactly",
    "mean",
    "over_seeds",
    "share",
    "verdict",
]
