"""An algorithm is an estimator, some interventions and an update."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from softmaxdyn.configs import config, with_dtype
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
        several = isinstance(self.interventions, list | tuple)
        parts = tuple(self.interventions) if several else (self.interventions,)
        object.__setattr__(self, "interventions", parts)
        named = [("update", self.update), ("estimator", self.estimator), *(("an intervention", part) for part in parts)]
        for name, part in named:
            if isinstance(part, type) or not callable(part):
                raise InputError(f"{name} is {part!r}; wanted a config, made by calling its class: VanillaPG(0.1)")

    def start(self, logits: Float[Array | np.ndarray, "S A"]) -> Algorithm:
        """The algorithm at the start of a run from `logits`, its numbers in their dtype."""
        logits = jnp.asarray(logits)
        parts = tuple(part.init(logits) for part in self.interventions)
        return with_dtype(Algorithm(self.update.init(logits), self.estimator.init(logits), parts), logits.dtype)
