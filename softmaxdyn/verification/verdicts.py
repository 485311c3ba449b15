"""A check turns evidence into numbers that must lie in a range; a verdict says where the worst of them lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from softmaxdyn.verification.evidence import Evidence

Array = np.ndarray

ERROR = "error / tolerance"


class Sample(NamedTuple):
    """Numbers that a statement confines to a range, and the number of cases they come from."""

    values: Array
    cases: int


class Check(NamedTuple):
    """A statement and the range, ends included, to which it confines the `measure` that `sample` takes of a block."""

    label: str
    statement: str
    sample: Callable[[Evidence], Sample]
    measure: str = ERROR
    low: float = -np.inf
    high: float = 1.0


class Verdict(NamedTuple):
    """What a check found: `worst` is the number that lies farthest out of [low, high], or nearest to an end."""

    label: str
    statement: str
    dtype: str
    cases: int
    measure: str
    worst: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether every number is in the range and there is at least one."""
        return self.cases > 0 and self.low <= self.worst <= self.high


def judge(check: Check, samples: Sequence[Sample], dtype: str) -> Verdict:
    """The verdict over the samples of all blocks of one dtype."""
    values = np.concatenate([np.asarray(sample.values, float).ravel() for sample in samples])
    worst = _worst(values, check.low, check.high) if values.size else np.nan
    cases = sum(sample.cases for sample in samples)
    return Verdict(check.label, check.statement, dtype, cases, check.measure, worst, check.low, check.high)


def _worst(values: Array, low: float, high: float) -> float:
    outside = np.maximum(low - values, values - high)
    return float(values[np.argmax(np.where(np.isnan(outside), np.inf, outside))])
