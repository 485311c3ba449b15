"""What an estimator is, and the batch of episodes that its tokens come from."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from softmaxdyn.aggregation import Aggregation
from softmaxdyn.policy import Policy
from softmaxdyn.problems import Problem
from softmaxdyn.tokens import Tokens

T = TypeVar("T")


class Estimator:
    """A frozen config that is called once an outer step; one without draws needs no key and gives the population.

    `init` fills in what depends on the starting policy, `next` returns the estimator for the next outer step (a learnt
    reward moves), `population` the estimator of which this one draws a sample.
    """

    @property
    def draws(self) -> bool:
        """Whether it needs a key."""
        raise NotImplementedError

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """The estimator at the start of a run from `logits`."""
        return self

    def __call__(self, key: Key[Array, ""] | None, problem: Problem, policy: Policy) -> Tokens:
        """The tokens of this step."""
        raise NotImplementedError

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """The estimator for the next outer step, seen from the policy that this one ended with."""
        return self

    def population(self) -> Estimator:
        """The estimator whose tokens are the expectation of this one's."""
        return self


class Batch(NamedTuple):
    """E episodes of at most T tokens, as they were played and paid; weight, group and size as in `Outcomes`."""

    state: Int[Array, "E T"]
    action: Int[Array, "E T"]
    taken: Bool[Array, "E T"]
    reward: Float[Array, "E T"]
    log_prob: Float[Array, "E T"]  # of the policy that acted
    group: Int[Array, " E"]
    weight: Float[Array, " E"]
    size: Float[Array, " E"]


def as_tokens(batch: Batch, advantage: Float[Array, "E T"], policy: Policy, aggregation: Aggregation) -> Tokens:
    """The tokens of a batch, row by row; log_prob is that of the policy that acted.

    `aggregation` shares out the weight of the batch; SequenceMeanTokenSum gives every token that of its episode.
    """
    episodes, length = batch.state.shape
    state, log_prob = batch.state.ravel(), batch.log_prob.ravel()
    share = aggregation(batch.taken.astype(batch.weight.dtype), batch.weight)
    return Tokens(
        state=state,
        action=batch.action.ravel(),
        weight=(jnp.sum(batch.weight) * share).ravel(),
        advantage=advantage.ravel(),
        log_prob=log_prob,
        old_log_prob=log_prob,
        entropy=policy.entropy[state],
        reward=jnp.repeat(jnp.sum(batch.reward, -1), length),
        episode=jnp.repeat(jnp.arange(episodes, dtype=jnp.int32), length),
        group=jnp.repeat(batch.group, length),
        position=jnp.tile(jnp.arange(length, dtype=jnp.int32), episodes),
    )


def changed(part: T, **fields: Any) -> T:
    """The config with other fields."""
    return dataclasses.replace(part, **fields)  # type: ignore[type-var]


def split(key: Key[Array, ""] | None, count: int) -> Any:
    """`count` keys, or as many None."""
    return [None] * count if key is None else jax.random.split(key, count)
