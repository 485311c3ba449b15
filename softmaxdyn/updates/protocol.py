"""What an update is: the questions that a run asks of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float

from softmaxdyn.configs import Number
from softmaxdyn.policy import Policy


@runtime_checkable
class Update(Protocol):
    """`init` fills in what depends on the start; a call returns the step and the update for the next call."""

    @property
    def step_size(self) -> Number:
        """η: what the theorems' predictions are multiplied with."""

    def init(self, logits: Float[Array, "S A"]) -> Update:
        """The update with its state at the start of a run."""

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Update]:
        """(δ, update): `gradient` is ∂J/∂z or its estimate, `visits` d(s) under `policy`."""


def with_step_size(update: Any, step_size: Any) -> Any:
    """The update with another η: its own, or that of the update inside it; one that has none stays."""
    names = {field.name: field for field in dataclasses.fields(update)}
    if "update" in names:
        return dataclasses.replace(update, update=with_step_size(update.update, step_size))
    return dataclasses.replace(update, step_size=step_size) if "step_size" in names else update
