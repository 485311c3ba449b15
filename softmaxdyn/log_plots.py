"""The figure of a diagnosed log. Every panel takes data and an Axes and returns the Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from softmaxdyn.diagnostics import CANDIDATES, Diagnosis, Log, Profile, Tail
from softmaxdyn.plots import COLOURS, DASHES, labelled, three_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN = 200_000  # tokens of the density
MARKED = 150  # tokens of each method
SHARES = {
    "positive": "A > 0",
    "likely_and_good": "A > 0 and π > ½",
    "mean_probability": "mean π",
    "median_probability": "median π",
}
_MARKERS = "oxs^Dv"


def ranked_covariance(tail: Tail, ax: Axes) -> Axes:
    """C from the highest down, and −C from the lowest up, against the share of tokens that rank at least so.

    Each lies on the range of the permutations. A curve ends where C changes its sign, or falls below the highest over
    the number of tokens: all that is lower weighs less than one token, and may be nothing but rounding.
    """
    share = tail.rank / tail.rank[-1]
    sides = {
        "C, from the highest": (tail.highest, tail.permuted_highest),
        "−C, from the lowest": (-tail.lowest, -tail.permuted_lowest),
    }
    for number, (name, (size, permuted)) in enumerate(sides.items()):
        low, high = _positive(permuted.min(0)), _positive(permuted.max(0))
        shade: dict[str, Any] = {"color": COLOURS[number], "alpha": 0.25, "linewidth": 0}
        ax.fill_between(share, low, high, label="A permuted, range", **shade)
        ax.plot(share, _positive(size), color=COLOURS[number], linestyle=DASHES[number], linewidth=1.2, label=name)
    if tail.highest.any():
        ax.set_yscale("log")
        ax.set_ylim(*_limits([tail.highest, -tail.lowest, tail.permuted_highest, -tail.permuted_lowest], share[0]))
    ax.set_xscale("log")
    ax.set_xlim(0.7 * share[0], 1.4)
    return labelled(ax, "share of tokens, ranked by C", "covariance score (nats × A)", columns=1)


def marked_tokens(log: Log, touched: Mapping[str, np.ndarray], ax: Axes, *, seed: int = 0) -> Axes:
    """The density of the tokens over log π and A, and on top of it some of those that each method selects.

    Of more than `DRAWN` tokens, or more than `MARKED` marks a method, a random choice is drawn.
    """
    from matplotlib.colors import LogNorm

    random = np.random.default_rng(seed)
    at = _some(random, np.arange(len(log.log_prob)), DRAWN)
    cells: dict[str, Any] = {"gridsize": (32, 20), "mincnt": 1, "cmap": "Greys", "linewidths": 0.1}
    ax.hexbin(log.log_prob[at], log.advantage[at], norm=LogNorm(vmin=0.1), **cells)
    selected = {name: share for name, share in _undrawn(touched).items() if share.dtype == bool}
    for number, (name, share) in enumerate(selected.items(), 1):
        at = _some(random, np.flatnonzero(share), MARKED)
        style: dict[str, Any] = {"marker": _MARKERS[number - 1], "color": COLOURS[number], "linestyle": ""}
        ax.plot(log.log_prob[at], log.advantage[at], **style, markersize=4, markerfacecolor="none", label=name)
    return labelled(ax, "log π of the token (nats)", "advantage, A", columns=1)


def profiles(shares: Mapping[str, Profile], ax: Axes) -> Axes:
    """Who the touched tokens are: one row a method, four numbers in [0, 1]; candidates in place of a choice of them."""
    rows = {name: profile for name, profile in _undrawn(shares).items() if profile.tokens}
    for number, (field, label) in enumerate(SHARES.items()):
        values = [getattr(profile, field) for profile in rows.values()]
        mark: dict[str, Any] = {"marker": _MARKERS[number], "color": COLOURS[number], "linestyle": ""}
        ax.plot(values, np.arange(len(rows)), **mark, markersize=4.5, markerfacecolor="none", label=label)
    ax.set_yticks(np.arange(len(rows)), [name.replace(f" {CANDIDATES}", f"\n{CANDIDATES}") for name in rows])
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    return labelled(ax, "share, or probability", "", columns=1)


def diagnosis(log: Log, found: Diagnosis, touched: Mapping[str, np.ndarray]) -> Figure:
    """Three panels, 7 in wide: the ranked covariance and its control, the marked tokens, their profiles."""
    with three_panels(2.9) as (figure, (curve, marks, who)):
        ranked_covariance(found.tail, curve)
        marked_tokens(log, touched, marks)
        profiles(found.profiles, who)
    return figure


def _limits(drawn: Sequence[np.ndarray], share: float) -> tuple[float, float]:
    """Of a log axis, with a margin: what is above `share` (at most 1e-3) of the highest, where `share` is one token."""
    values = np.concatenate([np.ravel(each) for each in drawn])
    top = values.max()
    return float(values[values >= min(share, 1e-3) * top].min()) / 1.5, 1.5 * float(top)


def _undrawn(methods: Mapping[str, Any]) -> dict[str, Any]:
    """Without the random choices among candidates that are listed too."""
    drawn = {name.removesuffix(f" {CANDIDATES}") for name in methods if name.endswith(CANDIDATES)}
    return {name: each for name, each in methods.items() if name not in drawn}


def _some(random: np.random.Generator, tokens: np.ndarray, most: int) -> np.ndarray:
    return tokens if len(tokens) <= most else random.choice(tokens, most, replace=False)


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 1e-290, values, np.nan)
