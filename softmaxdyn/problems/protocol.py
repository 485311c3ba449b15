"""What a problem is: the questions that the rest of the package asks."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key


class Episode(NamedTuple):
    """One played episode of at most T steps; `taken` is False after its end."""

    state: Int[Array, " T"]
    action: Int[Array, " T"]
    reward: Float[Array, " T"]
    taken: Bool[Array, " T"]


@runtime_checkable
class Problem(Protocol):
    """A tabular problem with S states and A actions. Probabilities are [S, A], one policy row a state."""

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""

    @property
    def episodes_at_once(self) -> Float[Array, ""] | float:
        """How many episodes make one unit of J: 1, but for independent bandits the sum of their weights."""

    def visits(self, probs: Float[Array, "S A"]) -> Float[Array, " S"]:
        """d(s): the expected (discounted) number of visits to s in an episode under `probs`."""

    def action_values(self, probs: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """Q(s, a): the expected return from s after a, under `probs`."""

    def expected_return(self, probs: Float[Array, "S A"]) -> Float[Array, ""]:
        """J: the expected return of an episode."""

    def sample_start(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """The state in which an episode begins."""

    def rollout(self, key: Key[Array, ""], logits: Float[Array, "S A"], start: Int[Array, ""] | None = None) -> Episode:
        """One episode under softmax(logits), from `start` or from a drawn state."""
