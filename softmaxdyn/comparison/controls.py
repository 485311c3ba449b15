"""Interventions that hold others: the controls of a comparison."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from softmaxdyn.configs import config
from softmaxdyn.errors import InputError
from softmaxdyn.interventions import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens


class Several(Intervention):
    """An intervention that holds others and moves them along with the run."""

    parts: tuple[Any, ...]

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """Each part from the start."""
        return dataclasses.replace(self, parts=tuple(part.init(logits) for part in self.parts))  # type: ignore[type-var]

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """Each part's next."""
        parts = tuple(part.next(tokens, policy) for part in self.parts)
        return dataclasses.replace(self, parts=parts)  # type: ignore[type-var]


@config
class Idle(Several):
    """`parts` that see a run and leave it plain."""

    parts: tuple[Any, ...]

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push


@config
class Shuffled(Several):
    """The control of a selection: what `parts` do to the scores, done to randomly chosen tokens instead.

    As many tokens are touched, by as much; a field stays as it is. Draws, so it has no exact face.
    """

    parts: tuple[Any, ...]

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        if key is None:
            raise InputError("Shuffled draws; it has no exact face: use Sampled")
        keys = jax.random.split(key, len(self.parts) + 1)
        after = push
        for part, part_key in zip(self.parts, keys[1:], strict=True):
            after = part(part_key, tokens, policy, after)
        valid = tokens.weight > 0.0
        order = jnp.argsort(jnp.where(valid, jax.random.uniform(keys[0], valid.shape), 2.0))
        places = jnp.argsort(~valid, stable=True)
        change = jnp.zeros_like(push.score).at[order].set((after.score - push.score)[places])
        return after._replace(score=push.score + change, selected=(change != 0.0).astype(change.dtype))
