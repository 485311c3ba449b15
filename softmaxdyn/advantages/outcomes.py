"""What a batch of grouped episodes earned, and the means, spreads and returns that advantage estimators are made of.

Every formula serves a sample and the whole population: means are weighted, and n, the number of episodes in a group,
is infinite for the population (so that n/(n−1) = 1).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from softmaxdyn.errors import InputError


class Outcomes(NamedTuple):
    """What E episodes of at most T tokens earned. A weight of 0 leaves an episode out (a mask without tokens does not).

    reward    [E, T]  reward of each token, 0 after the end
    mask      [E, T]  False after the end, and where the policy did not act
    group     [E]     number of the group, 0 … E−1: the episodes from one start
    weight    [E]     share of each episode: 1/E (sampled), d(s) π(a|s) (population), or any multiple of it
    size      [E]     number n of episodes in its group, +∞ for the population
    greedy    [E]     return of the greedy policy from the same start
    best_baseline [E] the baseline with the least variance for the start (exact)
    values    [E, T]  V of the state of each token (exact)
    process   [E, T]  process reward of each token
    """

    reward: Float[Array, "E T"]
    mask: Bool[Array, "E T"]
    group: Int[Array, " E"]
    weight: Float[Array, " E"]
    size: Float[Array, " E"]
    greedy: Float[Array, " E"] | None = None
    best_baseline: Float[Array, " E"] | None = None
    values: Float[Array, "E T"] | None = None
    process: Float[Array, "E T"] | None = None

    @property
    def score(self) -> Float[Array, " E"]:
        """The return of each episode, rewards of masked tokens included (as released)."""
        return jnp.sum(self.reward, -1)

    def need(self, name: str, estimator: object) -> Array:
        """The optional field `name`; raises InputError that says who needs it."""
        value = getattr(self, name)
        if value is None:
            raise InputError(f"{type(estimator).__name__} needs Outcomes.{name}, which is None")
        return value


class Advantage:
    """A frozen config that is called on outcomes and gives the advantage of every token, 0 where it is masked.

    scope   what the advantage of an episode depends on: "episode" (itself), "group" or "batch"
    alone   what happens in a group of one, for an estimator that needs more; `Sampled(group_size=1)` warns of it
    """

    scope: ClassVar[str] = "episode"
    alone: ClassVar[str] = ""

    def __call__(self, outcomes: Outcomes) -> Float[Array, "E T"]:
        """A [E, T]."""
        raise NotImplementedError


def recorded(
    reward: Any, mask: Any = None, group: Any = None, *, weight: Any = None, dtype: Any = float, **fields: Any
) -> Outcomes:
    """Outcomes of a recorded batch: reward [E, T] (or [E]), mask of 0 and 1, any group ids (default: one group).

    `weight` [E] counts an episode (1, the default) or leaves it out (0). `fields` are the optional ones of Outcomes.
    Raises InputError for an empty batch, shapes that differ, masks other than 0 and 1, and NaN under the mask.
    """
    reward = _floats("reward", reward, dtype)
    reward = reward[:, None] if reward.ndim == 1 else reward
    if reward.ndim != 2 or reward.size == 0:
        raise InputError(f"reward has shape {reward.shape}; wanted [episodes, tokens] with at least one of each")
    episodes = reward.shape[0]
    mask = np.ones(reward.shape) if mask is None else _floats("mask", mask, float)
    group = np.zeros(episodes, int) if group is None else np.asarray(group)
    weight = np.ones(episodes) if weight is None else _floats("weight", weight, float)
    fields = {name: _floats(name, value, dtype) for name, value in fields.items()}
    _check_shapes(reward, {"mask": mask, "group": group, "weight": weight, **fields})
    if not np.isin(mask, (0.0, 1.0)).all() or not np.isin(weight, (0.0, 1.0)).all():
        raise InputError("mask and weight must hold nothing but 0 and 1")
    bad = ~np.isfinite(reward[mask > 0.0])
    if bad.any():
        raise InputError(f"{bad.sum()} rewards of valid tokens are NaN or infinite")
    number = np.unique(group, return_inverse=True)[1].reshape(-1)
    return Outcomes(
        reward=jnp.asarray(np.where(np.isfinite(reward), reward, 0.0)),
        mask=jnp.asarray(mask > 0.0),
        group=jnp.asarray(number, jnp.int32),
        weight=jnp.asarray(weight / max(weight.sum(), 1.0), reward.dtype),
        size=jnp.asarray(np.bincount(number, weight)[number], reward.dtype),
        **{name: jnp.asarray(value) for name, value in fields.items()},
    )


def per_token(outcomes: Outcomes, advantage: Float[Array, " E"]) -> Float[Array, "E T"]:
    """The advantage of an episode, given to each of its tokens."""
    return jnp.where(outcomes.mask, advantage[:, None], 0.0)


def lengths(outcomes: Outcomes) -> Float[Array, " E"]:
    """The number of valid tokens of each episode."""
    return jnp.sum(outcomes.mask, -1, dtype=outcomes.reward.dtype)


def divide(numerator: Array, denominator: Array) -> Array:
    """numerator/denominator, 0 where the denominator is not positive."""
    return jnp.where(denominator > 0.0, numerator / jnp.where(denominator > 0.0, denominator, 1.0), 0.0)


def group_sum(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """Σ of `values` over the group of each episode."""
    return jax.ops.segment_sum(values, outcomes.group, values.shape[0])[outcomes.group]


def group_max(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """The largest of `values` in the group of each episode, among those that count."""
    counted = jnp.where(outcomes.weight > 0.0, values, -jnp.inf)
    return jax.ops.segment_max(counted, outcomes.group, values.shape[0])[outcomes.group]


def group_mean(
    outcomes: Outcomes, values: Float[Array, " E"], weight: Float[Array, " E"] | None = None
) -> Float[Array, " E"]:
    """The weighted mean of `values` over the group of each episode; exact where all are equal."""
    weight = outcomes.weight if weight is None else weight
    origin = group_max(outcomes, values)
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)
    return origin + divide(group_sum(outcomes, weight * (values - origin)), group_sum(outcomes, weight))


def against_others(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """values − mean over the group; a group of one keeps its value."""
    return jnp.where(outcomes.size > 1.0, values - group_mean(outcomes, values), values)


def group_std(outcomes: Outcomes, values: Float[Array, " E"]) -> Float[Array, " E"]:
    """The unbiased standard deviation of `values` over the group of each episode; 1 for a group of one."""
    squares = outcomes.weight * (values - group_mean(outcomes, values)) ** 2
    variance = divide(group_sum(outcomes, squares), group_sum(outcomes, outcomes.weight))
    return jnp.where(outcomes.size > 1.0, jnp.sqrt(variance * unbiased(outcomes)), 1.0)


def unbiased(outcomes: Outcomes) -> Float[Array, " E"]:
    """n/(n−1) of each episode's group; 1 for the population and for a group of one."""
    return jnp.where(outcomes.size > 1.0, 1.0 / (1.0 - 1.0 / jnp.maximum(outcomes.size, 2.0)), 1.0)


def group_quantile(outcomes: Outcomes, values: Float[Array, " E"], level: Any) -> Float[Array, " E"]:
    """The smallest value v of each group with P(value ≤ v) ≥ level; 0 for a group of weight 0."""
    count = values.shape[0]
    counted = (outcomes.weight > 0.0).astype(values.dtype)
    weight = jnp.where(jnp.isinf(outcomes.size), outcomes.weight, counted)
    order = jnp.lexsort((values, outcomes.group))
    group, value, weight = outcomes.group[order], values[order], weight[order]
    _, below = jax.lax.associative_scan(_add_within, (group, weight))
    total = jax.ops.segment_sum(weight, group, count)[group]
    reached = (weight > 0.0) & (below >= level * total * (1.0 - 32.0 * jnp.finfo(values.dtype).eps))
    smallest = jax.ops.segment_min(jnp.where(reached, value, jnp.inf), group, count)
    return jnp.where(jnp.isfinite(smallest), smallest, 0.0)[outcomes.group]


def _add_within(left: Any, right: Any) -> Any:
    return right[0], right[1] + jnp.where(left[0] == right[0], left[1], 0.0)


def rewards_to_go(outcomes: Outcomes, reward: Float[Array, "E T"], discount: Any = 1.0) -> Float[Array, "E T"]:
    """G_t = r_t + γ G_next over the valid tokens; a masked token hands G on and its own reward is dropped."""

    gamma = jnp.asarray(discount, reward.dtype)

    def back(later: Array, token: Any) -> Any:
        r, valid = token
        now = jnp.where(valid, r + gamma * later, later)
        return now, now

    start = jnp.zeros_like(reward[:, 0])
    return jax.lax.scan(back, start, (reward.T, outcomes.mask.T), reverse=True)[1].T


def batch_mean(outcomes: Outcomes, values: Float[Array, "E T"], origin: Any = 0.0) -> Float[Array, ""]:
    """The weighted mean over the valid tokens of the batch; the sum is of distances from `origin`."""
    weight = jnp.where(outcomes.mask, outcomes.weight[:, None], 0.0)
    return origin + divide(jnp.sum(jnp.where(outcomes.mask, weight * (values - origin), 0.0)), jnp.sum(weight))


def whiten(outcomes: Outcomes, values: Float[Array, "E T"]) -> Float[Array, "E T"]:
    """(x − mean)/√(var + 1e-8) over the N valid tokens of the batch, var with N − 1; 0 where all x are equal.

    As released (verl, float64 masks), means are divided by N + 1e-8; that is N in float32, and for the population.
    """
    valid = outcomes.mask & (outcomes.weight > 0.0)[:, None]
    count = jnp.sum(valid, dtype=values.dtype)
    sample = ~jnp.any(jnp.isinf(outcomes.size))
    largest = jnp.max(values, where=valid, initial=-jnp.inf)
    mean = batch_mean(outcomes, values, jnp.where(count > 0.0, largest, 0.0))
    shrink = jnp.where(sample, divide(count, count + 1e-8), 1.0)
    spread = batch_mean(outcomes, (values - mean) ** 2)
    off = jnp.where(spread > 0.0, (1.0 - shrink) * mean, 0.0)
    bessel = jnp.where(sample, 1.0 / (1.0 - 1.0 / jnp.maximum(count, 2.0)), 1.0)
    variance = shrink * (spread + off**2) * bessel
    return jnp.where(outcomes.mask, (values - mean + off) / jnp.sqrt(variance + 1e-8), 0.0)


def _check_shapes(reward: np.ndarray, parts: dict[str, Any]) -> None:
    for name, value in parts.items():
        wanted = reward.shape if name in ("mask", "values", "process") else reward.shape[:1]
        if value.shape != wanted:
            raise InputError(f"{name} has shape {value.shape}; wanted {wanted}, to match the rewards")


def _floats(name: str, value: Any, dtype: Any) -> np.ndarray:
    try:
        array = np.asarray(value, None if hasattr(value, "dtype") else dtype)
    except (TypeError, ValueError):
        raise InputError(f"{name} is ragged or not numbers; wanted rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} is of type {array.dtype}; wanted real numbers")
    return array if array.dtype.kind == "f" else array.astype(dtype)
