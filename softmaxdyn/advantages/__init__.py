"""Advantage estimators: from the rewards of grouped episodes to one advantage a token. One class, one formula."""

from softmaxdyn.advantages.batched import GAE, GPG, PRIME, GPGReleased, ReinforcePP, ReinforcePPBaseline
from softmaxdyn.advantages.grouped import GRPO, OPO, QAE, RLOO, DrGRPO, PassK, PassKGap
from softmaxdyn.advantages.outcomes import Advantage, Outcomes, recorded
from softmaxdyn.advantages.single import (
    NSR,
    PSR,
    REINFORCE,
    Baseline,
    NSRReleased,
    OptimalBaseline,
    PSRReleased,
    ReMax,
    ValueBaseline,
    WReinforce,
)

__all__ = [
    "GAE",
    "GPG",
    "GRPO",
    "NSR",
    "OPO",
    "PRIME",
    "PSR",
    "QAE",
    "REINFORCE",
    "RLOO",
    "Advantage",
    "Baseline",
    "DrGRPO",
    "GPGReleased",
    "NSRReleased",
    "OptimalBaseline",
    "Outcomes",
    "PSRReleased",
    "PassK",
    "PassKGap",
    "ReMax",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "ValueBaseline",
    "WReinforce",
    "recorded",
]
