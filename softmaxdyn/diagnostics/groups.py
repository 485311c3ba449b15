"""The groups of a log, and those without signal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from softmaxdyn.diagnostics.log import Array, Log


class Groups(NamedTuple):
    """How many groups there are, and in how many nothing is to be learnt.

    equal          all advantages are equal (rounding may leave them equal and not 0)
    zero           all are 0
    equal_reward   all rewards are equal
    one_episode    have one episode only, so their advantages are equal if each episode has one
    """

    groups: int
    equal: int
    zero: int
    equal_reward: int | None
    one_episode: int | None


def groups_without_signal(log: Log) -> Groups | None:
    """How many groups have nothing to learn from; None if the log has no groups."""
    if log.group is None:
        return None
    low, high = _range(log.advantage, log.group)
    reward = None if log.reward is None else _range(log.reward, log.group)
    single = None if log.episode is None else int(np.sum(np.equal(*_range(log.episode, log.group))))
    return Groups(
        groups=len(low),
        equal=int(np.sum(low == high)),
        zero=int(np.sum((low == 0.0) & (high == 0.0))),
        equal_reward=None if reward is None else int(np.sum(np.equal(*reward))),
        one_episode=single,
    )


def _range(values: Array, group: Int[Array, " N"]) -> tuple[Array, Array]:
    """The smallest and the largest of the known values in each group."""
    groups, known = int(group.max()) + 1, ~np.isnan(values)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, group[known], values[known])
    np.maximum.at(high, group[known], values[known])
    return low, high
