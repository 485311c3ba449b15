"""The figure of reward against entropy: the rows of each run, the law with its band, its rivals, the ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from softmaxdyn.errors import InputError
from softmaxdyn.laws import Comparison, Fit
from softmaxdyn.plots import COLOURS, DASHES, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN = 6  # runs
ROWS = "rows, darker with the steps"
_LONGEST = 34  # characters of a title


def forms(found: Comparison, ax: Axes) -> Axes:
    """R against H of one run with every form, drawn down to H = 0, and the band and the ceiling of the law.

    Rows are pale at the start of training and dark at the end. The axis of R leaves out forms far from the rows.
    """
    h, r, law = found.curve.entropy, found.curve.reward, found.law
    at = np.linspace(0.0, float(h.max()), 201)
    shades: dict[str, Any] = {"c": np.arange(len(r)), "cmap": "Greys", "vmin": -0.5 * len(r), "vmax": 1.2 * len(r)}
    ax.scatter(h, r, s=5.0, **shades, linewidths=0.0, zorder=2)
    ax.plot([], [], "o", color="0.4", markersize=2.2, label=ROWS)
    ax.fill_between(
        at, *law.band(at), color=COLOURS[0], alpha=0.2, linewidth=0.0, label=f"its {100 * law.level:g} % band"
    )
    for number, (name, rival) in enumerate(found.rivals.items()):
        style: dict[str, Any] = {"color": COLOURS[number], "linestyle": DASHES[number % len(DASHES)]}
        ax.plot(
            at, rival.fit.predict(at), **style, linewidth=1.4 if number == 0 else 1.0, zorder=4 - number / 9, label=name
        )
    low, high = law.intervals["ceiling"]
    reach = [[law.ceiling - low], [high - law.ceiling]]
    mark: dict[str, Any] = {"fmt": "o", "color": COLOURS[0], "markersize": 3.5, "capsize": 2.0}
    ax.errorbar([0.0], [law.ceiling], yerr=np.clip(reach, 0.0, None), **mark, zorder=5, label="its ceiling, R(0)")
    ax.set_xlim(left=-0.04 * at[-1])
    ax.set_ylim(*_limits(r, law))
    ax.set_xlabel("entropy, H (nats)")
    ax.set_ylabel("reward, R")
    return ax


def law(comparisons: Mapping[str, Comparison]) -> Figure:
    """A panel a run, three in a row, for the first six runs; 7 in wide, with one legend above."""
    if not comparisons:
        raise InputError("no runs to plot; wanted a mapping such as {'run': compare(entropy, reward)}")
    shown = dict(list(comparisons.items())[:DRAWN])
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    with panels(rows, columns, 0.5 + (2.6 if columns < 3 else 2.1) * rows) as (figure, grid):
        axes = [ax for row in grid for ax in row]
        for ax, (name, found) in zip(axes, shown.items(), strict=False):
            forms(found, ax).set_title(_short(name), fontsize=7.5)
        for ax in axes[len(shown) :]:
            ax.set_axis_off()
        handles, labels = axes[0].get_legend_handles_labels()
        first = [ROWS, "exponential"]
        order = sorted(range(len(labels)), key=lambda k: (labels[k] not in first, "its" not in labels[k]))
        figure.legend([handles[k] for k in order], [labels[k] for k in order], loc="outside upper center", ncols=4)
    return figure


def _limits(reward: np.ndarray, law: Fit) -> tuple[float, float]:
    """Room for the rows and the ceiling, and for its interval as far as the range of these again."""
    low, high = law.intervals["ceiling"]
    bottom, top = min(float(reward.min()), law.ceiling), max(float(reward.max()), law.ceiling)
    span = top - bottom
    bottom, top = max(min(bottom, low), bottom - span), min(max(top, high), top + span)
    return bottom - 0.04 * (top - bottom), top + 0.04 * (top - bottom)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
