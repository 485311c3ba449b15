"""Plots: every function takes data and an Axes and returns the Axes. No global state, no display.

Several states are shown as one: the mean over the states, weighted with their visits d(s).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softmaxdyn.comparison import Card
from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.results import visit_mean, whole_file
from softmaxdyn.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREDICTIONS = {"lemma_1": "Lemma 1", "theorem_1": "Theorem 1", "theorem_2": "Theorem 2"}
THEOREMS = {"PG": "theorem_1", "NPG": "theorem_2"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
STYLE: dict[Any, Any] = {
    "font.size": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
_FILE: dict[Any, Any] = {"svg.hashsalt": "softmaxdyn", "svg.fonttype": "path"}


def entropy_change(trace: Trace, ax: Axes, *, prediction: str = "lemma_1", name: str = "", style: int = 0) -> Axes:
    """Exact ΔH of every recorded step (thin line) on top of its `prediction` (broad pale line), in nats.

    `name` opens the labels in the legend; `style` numbers the colour and the dashes.
    """
    check_choice("prediction", prediction, PREDICTIONS)
    ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
    ax.plot(
        trace.step, visit_mean(trace, prediction), label=_join(name, PREDICTIONS[prediction]), **_broad(style, trace)
    )
    ax.plot(trace.step, visit_mean(trace, "entropy_change"), label=_join(name, "exact"), **_thin(style, trace))
    return labelled(ax, "step", "change of entropy, ΔH (nats)")


def remainder(trace: Trace, ax: Axes, *, name: str = "", style: int = 0) -> Axes:
    """|ΔH + Cov_π(log π, δ)| of every recorded step under its certified bound (shaded), in nats, on a log scale.

    What no log axis can show (a remainder of 0, an infinite bound) leaves a gap.
    """
    size, bound = (_positive(visit_mean(trace, field)) for field in ("remainder", "bound"))
    thin = _thin(style, trace)
    shade = {"color": thin["color"], "alpha": 0.15, "linewidth": 0}
    ax.fill_between(np.asarray(trace.step), size, bound, label=_join(name, "certified bound"), **shade)
    ax.plot(trace.step, bound, **{**thin, "linewidth": 0.6, "marker": thin["marker"] and "_"})
    ax.plot(trace.step, size, label=_join(name, "remainder"), **thin)
    if np.isfinite([size, bound]).any():
        ax.set_yscale("log")
    return labelled(ax, "step", "error of Lemma 1, |R| (nats)")


def return_against_entropy(traces: Trace | Mapping[str, Trace], ax: Axes) -> Axes:
    """The path (H, J) of each trace, from the open circle to the filled one.

    The last point has the visits of the last recorded step.
    """
    named = {"": traces} if isinstance(traces, Trace) else traces
    for style, (name, trace) in enumerate(named.items()):
        entropy, value = _path(trace)
        line = {**_thin(style, trace), "marker": "", "zorder": 2}
        ax.plot(entropy, value, label=_join(name, "path"), **line)
        size = 2.5 * (len(named) - style) + 2.0  # so that all of several marks at one place are seen
        mark = {"color": line["color"], "markersize": size, "linestyle": "", "zorder": 3, "clip_on": False}
        ax.plot(entropy[:1], value[:1], marker="o", **mark, markerfacecolor="white")
        ax.plot(entropy[-1:], value[-1:], marker="o", **mark)
    return labelled(ax, "entropy, H (nats)", "expected return, J")


def dynamics(traces: Mapping[str, Trace], predictions: Mapping[str, str] = THEOREMS) -> Figure:
    """Three panels, 7 in wide: exact ΔH on its prediction, the remainder under its bound, the H–J path.

    `predictions` says what to draw under the exact ΔH of a name; Lemma 1 for names that it lacks.
    """
    if not traces:
        raise InputError("no traces to plot; wanted a mapping such as {'PG': trace}")
    with three_panels(2.2 + 0.2 * len(traces)) as (figure, (change, error, path)):
        for style, (name, trace) in enumerate(traces.items()):
            entropy_change(trace, change, prediction=predictions.get(name, "lemma_1"), name=name, style=style)
            remainder(trace, error, name=name, style=style)
        return_against_entropy(traces, path)
        _one_legend(figure, change, error, path)
    return figure


def comparison(card: Card) -> Figure:
    """Three panels, 7 in wide: J and H over the steps, and the H–J path; means over the runs.

    The method is a broad pale line under the others, each of which is thinner than the one below it.
    """
    widths = np.linspace(3.0, 0.8, max(1, len(card.paths) - 1))
    dashes = DASHES[1:]
    broad: dict[str, Any] = {"linestyle": "-", "linewidth": 5, "alpha": 0.3, "solid_capstyle": "butt"}
    with three_panels(2.5 + 0.12 * len(card.paths)) as (figure, panels):
        for style, (name, run) in enumerate(card.paths.items()):
            thin = {"linestyle": dashes[style % len(dashes)], "linewidth": widths[style - 1]}
            line = {"color": COLOURS[style % len(COLOURS)], "zorder": 2 + style, **(thin if style else broad)}
            value, entropy = run.expected_return.mean(0), run.entropy.mean(0)
            panels[0].plot(run.step, value, label=name, **line)
            panels[1].plot(run.step, entropy, **line)
            panels[2].plot(entropy, value, **line)
        labels = [
            ("step", "expected return, J"),
            ("step", "entropy, H (nats)"),
            ("entropy, H (nats)", "expected return, J"),
        ]
        for ax, (x, y) in zip(panels, labels, strict=True):
            ax.set_xlabel(x)
            ax.set_ylabel(y)
        figure.legend(loc="outside upper center", ncols=4)
    return figure


@contextmanager
def three_panels(height: float) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """A figure 7 in wide and `height` in high, and its three panels; what is drawn inside has the `STYLE`."""
    with panels(1, 3, height) as (figure, (row,)):
        yield figure, row


@contextmanager
def panels(rows: int, columns: int, height: float) -> Iterator[tuple[Figure, Sequence[Sequence[Axes]]]]:
    """A figure 7 in wide and `height` in high, and its panels row by row; what is drawn inside has the `STYLE`."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, height), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False)
        for ax in grid.flat:
            ax.tick_params(which="both", labelsize=STYLE["font.size"])  # ticks are made later, when drawn
        yield figure, grid.tolist()


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Writes `stem`.png (300 dpi) and `stem`.svg, each whole or not at all; the same figure gives the same bytes."""
    import matplotlib

    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        path = Path(f"{stem}.{kind}")
        with matplotlib.rc_context(_FILE), whole_file(path) as unfinished:
            figure.savefig(unfinished, format=kind, dpi=300, metadata=metadata)
        written.append(path)
    return written


def _path(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    entropy = np.append(visit_mean(trace, "entropy"), visit_mean(trace, "final_entropy"))
    return entropy, np.append(np.asarray(trace.expected_return), np.asarray(trace.final_expected_return))


def _positive(values: np.ndarray) -> np.ndarray:
    size = np.abs(np.asarray(values, float))
    return np.where((size > 1e-290) & (size < 1e200), size, np.nan)


def _thin(style: int, trace: Trace) -> dict[str, Any]:
    colour, dashes = COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)]
    return {"color": colour, "linestyle": dashes, "linewidth": 1.2, "marker": "." if len(trace.step) == 1 else ""}


def _broad(style: int, trace: Trace) -> dict[str, Any]:
    return {**_thin(style, trace), "linestyle": "-", "linewidth": 5, "alpha": 0.3, "solid_capstyle": "butt"}


def _join(name: str, what: str) -> str:
    return f"{name}, {what}" if name else what


def _one_legend(figure: Figure, change: Axes, error: Axes, path: Axes) -> None:
    """The legends of the three panels as one, above them: a row a trace, a column a meaning."""
    handles = [ax.get_legend_handles_labels()[0] for ax in (change, error)]
    for legend in filter(None, [ax.get_legend() for ax in (change, error, path)]):
        legend.remove()
    meanings = [*handles[0][1::2], *handles[0][::2], *handles[1][::2]]
    figure.legend(handles=meanings, loc="outside upper center", ncols=3)


def labelled(ax: Axes, x: str, y: str, *, columns: int = 2) -> Axes:
    """The Axes with labels and, above it, a legend of that many columns."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False, borderaxespad=0.0)
    return ax
