"""What an intervention is."""

from __future__ import annotations

from typing import ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, mix


class Intervention:
    """A frozen config that maps a push to a push; its leaves are its strength and, for a controller, its state.

    `init` fills in what depends on the starting policy (a reference), `next` returns the intervention for the next
    outer step (a controller moves its own strength). `key` is None when the tokens are the whole population: then a
    randomised selection acts by its expectation. `policy` is None when the tokens come from a recorded log: selections,
    clips and reweightings then work from the tokens alone, fields cannot.

    scope   what a token's new score depends on: "token" (itself), "state", "group", "episode" or "batch" (statistics of
            the whole batch: a split into micro-batches changes the method)
    kind    "reward-only" (one expected on-policy direction, T16), "probability-dependent", "off-policy-only" (a no-op
            to the bit while the policy is the one that acted) or "field" (adds a table)
    """

    scope: ClassVar[str] = "token"
    kind: ClassVar[str] = "probability-dependent"

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """The intervention at the start of a run from `logits`."""
        return self

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy, push: Push) -> Push:
        """The push after this intervention."""
        raise NotImplementedError

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """The intervention for the next outer step, seen from the policy that this one ended with."""
        return self


class Selection(Intervention):
    """An intervention in two parts: `choose` some tokens, then `act` on them (by default their scores become 0).

    A choice is the share of each token that is chosen: 0 or 1 in a sample, also in part in the population.
    """

    scope: ClassVar[str] = "batch"

    def choose(self, key: Key[Array, ""] | None, tokens: Tokens) -> Float[Array, " N"]:
        """The share in [0, 1] of each token that is chosen."""
        raise NotImplementedError

    def act(self, chosen: Float[Array, " N"], tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        """The push after acting on the chosen tokens."""
        return push._replace(score=mix(chosen, jnp.zeros_like(push.score), push.score))

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        chosen = self.choose(key, tokens)
        return self.act(chosen, tokens, policy, push)._replace(selected=chosen)
