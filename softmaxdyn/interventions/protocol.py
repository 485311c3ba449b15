"""What an intervention is."""

from __future__ import annotations

from typing import Self

from jaxtyping import Array, Float, Key

from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens


class Intervention:
    """A frozen config that maps a push to a push; its leaves are its strength and, for a controller, its state.

    `init` fills in what depends on the starting policy (a reference), `next` returns the intervention for the next
    outer step (a controller moves its own strength). `key` is None when the tokens are the whole population: then a
    randomised selection acts by its expectation.
    """

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """The intervention at the start of a run from `logits`."""
        return self

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy, push: Push) -> Push:
        """The push after this intervention."""
        raise NotImplementedError

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """The intervention for the next outer step, seen from the policy that this one ended with."""
        return self
