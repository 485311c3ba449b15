"""What an update is: the questions that a run asks of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

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
