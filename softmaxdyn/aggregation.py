"""Aggregations: how much each token weighs in the loss, loss = Σ weight · L; every one is 0 on padding.

`share` [E] counts each episode as that many (default: one), as for the population, where every response is listed once.
A denominator left out is that of the mask; given (of a whole batch or of all devices), the weights of micro-batches add
up to those of the batch. A mask without tokens gives weights of 0, never 0/0. Names and formulas are verl 0.9.1's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import check_number


@runtime_checkable
class Aggregation(Protocol):
    """A config that is called on a mask (1 for a token, 0 for padding) and gives the weights."""

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        """The weight of every token of E episodes."""

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """The weight of one visit where visits are counted, not episodes (of `longest` steps), in units of theirs."""


@config
class TokenMean:
    """1/N, N the number of tokens: "token-mean"; long episodes weigh more. Split in parts, it needs `tokens`."""

    tokens: Number | None = None  # N

    def __post_init__(self) -> None:
        check_denominator("tokens", self.tokens)

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        return _counted(mask, share) / _or(self.tokens, jnp.sum(_counted(mask, share)))

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """1/E|y|."""
        return 1.0 / mean_length


@config
class TokenSum:
    """1: "token-sum"."""

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        return _counted(mask, share)

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """1."""
        return 1.0


@config
class SequenceMeanTokenSum:
    """1/S, S the number of episodes with a token: "seq-mean-token-sum". Its push is an estimate of ∂J/∂z."""

    sequences: Number | None = None  # S

    def __post_init__(self) -> None:
        check_denominator("sequences", self.sequences)

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        return _counted(mask, share) / _or(self.sequences, _episodes(mask, share))

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """1."""
        return 1.0


@config
class SequenceMeanTokenSumNorm:
    """1/(S · F), F a constant length, or else the padded T: "seq-mean-token-sum-norm" (Dr.GRPO).

    trap  verl up to 0.7 did not divide by S
    """

    sequences: Number | None = None  # S
    length: Number | None = None  # F

    def __post_init__(self) -> None:
        check_denominator("sequences", self.sequences)
        check_denominator("length", self.length)

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        length = mask.shape[1] if self.length is None else self.length
        return _counted(mask, share) / _or(self.sequences, _episodes(mask, share)) / length

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """1/F; a given F divides in the call."""
        return 1.0 / longest() if self.length is None else 1.0


@config
class SequenceMeanTokenMean:
    """1/(S · n_i), n_i the tokens of episode i: "seq-mean-token-mean" (GRPO); short episodes weigh as much as long."""

    sequences: Number | None = None  # S

    def __post_init__(self) -> None:
        check_denominator("sequences", self.sequences)

    def __call__(self, mask: Float[Array, "E T"], share: Float[Array, " E"] | None = None) -> Float[Array, "E T"]:
        length = jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1.0)
        return _counted(mask, share) / length / _or(self.sequences, _episodes(mask, share))

    def of_visits(self, mean_length: Array, longest: Callable[[], int]) -> Number:
        """1/E|y|: exact where all episodes are as long."""
        return 1.0 / mean_length


def check_denominator(name: str, value: Number | None) -> None:
    """Raises InputError unless `value` is None or positive."""
    if value is not None:
        check_number(name, value, low=0.0, open_low=True)


def _counted(mask: Float[Array, "E T"], share: Float[Array, " E"] | None) -> Float[Array, "E T"]:
    return mask if share is None else share[:, None] * mask


def _episodes(mask: Float[Array, "E T"], share: Float[Array, " E"] | None) -> Float[Array, ""]:
    return jnp.sum(jnp.max(_counted(mask, share), -1))


def _or(given: Number | None, counted: Float[Array, ""]) -> Number:
    return jnp.where(counted > 0.0, counted, 1.0) if given is None else given
