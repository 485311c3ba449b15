"""A training curve: entropy and reward, checked; and what is odd about its entropy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.errors import InputError
from softmaxdyn.laws.forms import Array
from softmaxdyn.logs.columns import numbers

FEWEST = 4
HIGHEST = 700.0  # nats: exp(H) is finite


class Curve(NamedTuple):
    """Rows with both numbers, in order of training, and remarks in plain words."""

    entropy: Array
    reward: Array
    remarks: tuple[str, ...]


def check_curve(entropy: Any, reward: Any) -> Curve:
    """The curve that two sequences of numbers make; rows where one is missing (None, NaN) are left out, with a remark.

    Raises InputError for text, infinities, entropies outside [0, 700] nats, unequal lengths, fewer than 4 rows, and
    where one of the two does not change.
    """
    h, r = numbers("entropy", entropy), numbers("reward", reward)
    if len(h) != len(r):
        raise InputError(f"entropy has {len(h)} values and reward has {len(r)}; wanted one of each a row")
    known = ~(np.isnan(h) | np.isnan(r))
    _check_range("entropy", h, 0.0, HIGHEST, "a mean entropy a token in nats, within [0, 700]")
    _check_range("reward", r, -1e150, 1e150, "a finite number")
    if known.sum() < FEWEST:
        raise InputError(f"{known.sum()} of {len(known)} rows have both entropy and reward; wanted at least {FEWEST}")
    curve = Curve(h[known], r[known], _gaps(known))
    for name, values in (("entropy", curve.entropy), ("reward", curve.reward)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            raise InputError(f"{name} is {values[0]:g} in every row; wanted one that changes")
    return curve._replace(remarks=(*curve.remarks, *_odd_entropy(curve.entropy)))


def _check_range(name: str, values: Array, low: float, high: float, wanted: str) -> None:
    wrong = (values < low) | (values > high)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{name} is {values[row]:g} in row {row} (the first is 0); wanted {wanted}")


def _gaps(known: np.ndarray) -> tuple[str, ...]:
    gaps = int((~known).sum())
    return (f"{gaps} of {len(known)} rows lack entropy or reward and are left out",) if gaps else ()


def _odd_entropy(entropy: Array) -> Iterator[str]:
    """Whether entropy rises (Spearman's ρ against the row above ½), has no trend (within ±½), or jumps.

    It jumps if Σ(H_t − H_{t−1})² / 2 Σ(H_t − H̄)² is above ¼: 1 for white noise, towards 0 for a smooth curve.
    """
    from scipy.stats import rankdata

    correlation = float(np.corrcoef(rankdata(entropy), np.arange(len(entropy)))[0, 1])
    rising = f"{np.mean(np.diff(entropy) > 0):.0%} of the steps raise it"
    if correlation > 0.5:
        yield f"entropy rises (Spearman's ρ with the step is {correlation:.2f}); the law is about entropy that falls"
    elif correlation >= -0.5:
        yield f"entropy has no clear trend (Spearman's ρ with the step is {correlation:.2f}, {rising})"
    jumps = float(np.sum(np.diff(entropy) ** 2) / (2.0 * np.sum((entropy - entropy.mean()) ** 2)))
    if jumps > 0.25:
        yield f"entropy jumps from row to row ({min(jumps, 1.0):.0%} of its variance), which can pull a towards 0"
