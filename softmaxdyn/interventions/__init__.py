"""Interventions change the scores of tokens or add a field over the whole table. One file a family."""

from softmaxdyn.interventions.protocol import Intervention

__all__ = ["Intervention"]
