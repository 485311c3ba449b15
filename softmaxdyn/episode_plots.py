"""Plots of runs of several steps. Every panel takes data and an Axes and returns the Axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from softmaxdyn.errors import InputError
from softmaxdyn.plots import COLOURS, DASHES, labelled, panels
from softmaxdyn.results import visit_mean
from softmaxdyn.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COVARIANCES = {
    "sequence_covariance": "sequence",
    "normalised_covariance": "sequence/length",
    "action_covariance": "action",
    "token_covariance": "token",
}
ENTROPIES = {"response_entropy": "whole response", "answer_entropy": "final answer"}


def entropy_split(trace: Trace, ax: Axes, *, name: str = "") -> Axes:
    """ΔH̄ of every recorded step and its two parts (T19), in nats; the broad line is the first order of the second.

    ΔH̄ = Σ_s d(s) ΔH(s) (visits frozen: what the theorems know) + Σ_s Δd(s) H'(s) ≈ … + Σ_s d(s) Cov_s(Q_H, δ).
    """
    ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
    broad: dict[str, Any] = {"color": COLOURS[1], "linewidth": 5, "alpha": 0.3, "solid_capstyle": "butt"}
    ax.plot(trace.step, trace.visitation_prediction, label="visits moved, first order", **broad)
    ax.plot(trace.step, trace.visitation_change, label="visits moved", **_line(1, trace))
    ax.plot(trace.step, trace.local_change, label="visits frozen", **_line(0, trace))
    ax.plot(trace.step, trace.trajectory_change, label="sum: ΔH̄, exact", **{**_line(-1, trace), "linestyle": "-"})
    return labelled(ax, "step", _join(name, "change of H̄ (nats an episode)"), columns=1)


def covariances(trace: Trace, ax: Axes, *, name: str = "") -> Axes:
    """−ΔH̄ (broad line) and the covariances of T20, each over its largest size in the run; r is the correlation.

    One that is not defined for the problem (all NaN) is left out.
    """
    fall = -np.asarray(trace.trajectory_change)
    ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
    broad: dict[str, Any] = {"color": "0.75", "linewidth": 5, "solid_capstyle": "butt"}
    ax.plot(trace.step, _scaled(fall), label="−ΔH̄, exact", **broad)
    for style, (field, label) in enumerate(COVARIANCES.items()):
        values = np.asarray(getattr(trace, field))
        if np.isfinite(values).any():
            ax.plot(
                trace.step,
                _scaled(values),
                label=f"{label}{_correlation(fall, values)}",
                **_line(style, trace, 2.2 - 0.4 * style),
            )
    return labelled(ax, "step", _join(name, "covariance / its largest size"), columns=1)


def entropies(trace: Trace, ax: Axes, *, name: str = "") -> Axes:
    """Entropies of a token tree over the steps, in nats: response, final answer, mean token, and token by position.

    Raises InputError for a trace of another problem.
    """
    if "response_entropy" not in trace.measures:
        raise InputError("the trace has no response_entropy; wanted one of a TokenTree")
    for style, (field, words) in enumerate(ENTROPIES.items()):
        ax.plot(trace.step, trace.measures[field], label=words, **_line(style, trace))
    ax.plot(trace.step, visit_mean(trace, "entropy"), label="mean token", **_line(2, trace))
    by_position = np.asarray(trace.measures["position_entropy"])
    last = by_position.shape[1] - 1
    for place, values in enumerate(by_position.T):
        shade = {"color": str(0.85 - 0.5 * place / max(last, 1)), "linestyle": "-", "zorder": 1.5}
        label = "by position (light: first)" if place == last else None
        ax.plot(trace.step, values, label=label, **{**_line(0, trace), **shade})
    return labelled(ax, "step", _join(name, "entropy (nats)"), columns=1)


def episodes(traces: Mapping[str, Trace]) -> Figure:
    """A row of panels a trace, 7 in wide: the two parts of ΔH̄, what tracks it, and on token trees the entropies."""
    if not traces:
        raise InputError("no traces to plot; wanted a mapping such as {'PG': trace}")
    tree = all("response_entropy" in trace.measures for trace in traces.values())
    with panels(len(traces), 2 + tree, 2.7 * len(traces)) as (figure, rows):
        for axes, (name, trace) in zip(rows, traces.items(), strict=True):
            entropy_split(trace, axes[0], name=name)
            covariances(trace, axes[1])
            if tree:
                entropies(trace, axes[2])
    return figure


def _line(style: int, trace: Trace, width: float = 1.2) -> dict[str, Any]:
    colour, dashes = COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)]
    return {"color": colour, "linestyle": dashes, "linewidth": width, "marker": "." if len(trace.step) == 1 else ""}


def _scaled(values: np.ndarray) -> np.ndarray:
    """`values` over the largest of their sizes; as they are where all are 0."""
    return values / (np.max(np.abs(values)) or 1.0)


def _correlation(one: np.ndarray, other: np.ndarray) -> str:
    """ ", r = …", Pearson's; nothing where one of the two does not vary."""
    one, other = _scaled(one - one.mean()), _scaled(other - other.mean())
    size = np.sqrt(np.sum(one**2) * np.sum(other**2))
    if size == 0.0:
        return ""
    return f", r = {np.sum(one * other) / size:.3f}".replace("-0.000", "0.000").replace("-", "−")


def _join(name: str, what: str) -> str:
    return f"{name}\n{what}" if name else what
