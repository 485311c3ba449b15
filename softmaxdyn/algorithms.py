"""An algorithm is an estimator, some interventions and an update."""

from __future__ import annotations

from typing import Any

from softmaxdyn.configs import config
from softmaxdyn.errors import InputError
from softmaxdyn.estimators import Estimator, Exact
from softmaxdyn.updates import Update


@config
class Algorithm:
    """`Algorithm(update, estimator=Exact(), interventions=())`: what `simulate` runs."""

    update: Update
    estimator: Estimator = Exact()
    interventions: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        parts = (self.interventions,) if callable(self.interventions) else tuple(self.interventions)
        object.__setattr__(self, "interventions", parts)
        named = [("update", self.update), ("estimator", self.estimator), *(("an intervention", part) for part in parts)]
        for name, part in named:
            if isinstance(part, type) or not callable(part):
                raise InputError(f"{name} is {part!r}; wanted a config, made by calling its class: VanillaPG(0.1)")
