"""Plots: the lines hold the data, the figure can be read in print, the files are reproducible."""

import dataclasses
import itertools
import re
import struct

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, plots, simulate
from softmaxdyn.plots import PREDICTIONS, dynamics, save_figure
from softmaxdyn.results import visit_mean

REWARDS = np.array([1.0, 0.5, 0.0])
LARGE = 7.0 * 300  # pixels: 7 in at 300 dpi


def run(update, num_steps=40, rewards=REWARDS):
    logits = np.broadcast_to(-4.0 * REWARDS, np.atleast_2d(rewards).shape)
    return simulate(Bandit(rewards), Algorithm(update), num_steps=num_steps, logits=logits)


@pytest.fixture(scope="module")
def traces():
    return {"PG": run(VanillaPG(4.0)), "NPG": run(NaturalPG(0.25))}


@pytest.fixture
def ax():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


def with_remainder(trace, remainder, bound):
    fill = np.full_like(trace.remainder, 1.0)
    return dataclasses.replace(trace, remainder=remainder * fill, bound=bound * fill)


def labelled(ax):
    return {line.get_label(): np.asarray(line.get_ydata()) for line in ax.lines}


@pytest.mark.parametrize("plot", [plots.entropy_change, plots.remainder, plots.return_against_entropy])
def test_a_plot_returns_its_axes_with_labels_and_a_legend(traces, ax, plot):
    assert plot(traces["PG"], ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_legend() is not None


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_exact_change_lies_on_top_of_its_prediction(traces, ax, prediction):
    plots.entropy_change(traces["PG"], ax, prediction=prediction, name="PG")
    drawn = labelled(ax)
    np.testing.assert_array_equal(drawn["PG, exact"], traces["PG"].entropy_change[:, 0])
    np.testing.assert_array_equal(drawn[f"PG, {PREDICTIONS[prediction]}"], getattr(traces["PG"], prediction)[:, 0])
    assert list(drawn)[-1] == "PG, exact"  # equal zorder: what comes last is on top


def test_the_remainder_is_drawn_inside_its_bound(traces, ax):
    plots.remainder(traces["NPG"], ax)
    bound, size = (np.asarray(line.get_ydata()) for line in ax.lines)
    np.testing.assert_array_equal(size, np.abs(traces["NPG"].remainder[:, 0]))
    assert (size <= bound).all()
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize(("remainder", "bound"), [(0.0, 1.0), (1.0, np.inf), (1e-320, 1e300), (0.0, 0.0)])
def test_what_a_log_axis_cannot_show_leaves_a_gap(traces, ax, remainder, bound):
    plots.remainder(with_remainder(traces["PG"], remainder, bound), ax)
    shown = [np.isfinite(line.get_ydata()).all() for line in ax.lines]
    assert shown == [1e-290 < value < 1e200 for value in (bound, remainder)]
    ax.figure.canvas.draw()


def test_float32_is_drawn_without_a_warning(traces, ax):
    single = {name: getattr(traces["PG"], name).astype(np.float32) for name in ("remainder", "bound")}
    plots.remainder(dataclasses.replace(traces["PG"], **single), ax)
    assert np.isfinite(ax.lines[0].get_ydata()).all()


def test_the_path_runs_from_the_start_to_the_end(traces, ax):
    plots.return_against_entropy(traces["PG"], ax)
    path, start, end = ax.lines
    H, J = path.get_data()
    assert len(H) == 41
    assert (H[0], J[0]) == (traces["PG"].entropy[0, 0], traces["PG"].expected_return[0])
    assert (H[-1], J[-1]) == (traces["PG"].final_entropy[0], traces["PG"].final_expected_return)
    assert [mark.get_xydata().tolist() for mark in (start, end)] == [[[H[0], J[0]]], [[H[-1], J[-1]]]]
    assert [mark.get_markerfacecolor() for mark in (start, end)] == ["white", path.get_color()]


def test_several_states_are_drawn_as_their_visit_mean(ax):
    trace = run(VanillaPG(4.0), rewards=np.stack([REWARDS, REWARDS[::-1]]))
    plots.entropy_change(trace, ax)
    np.testing.assert_array_equal(labelled(ax)["exact"], visit_mean(trace, "entropy_change"))


def test_each_trace_has_a_colour_and_dashes_of_its_own(traces, ax):
    plots.return_against_entropy({str(n): traces["PG"] for n in range(4)}, ax)
    paths = [line for line in ax.lines if "path" in line.get_label()]
    assert len({line.get_color() for line in paths}) == 4
    assert len({str(plots.DASHES[n]) for n in range(4)}) == 4


def test_an_unknown_prediction_is_refused(traces, ax):
    with pytest.raises(InputError, match=r"unknown prediction 'theorem_3'; did you mean 'theorem_.'\?"):
        plots.entropy_change(traces["PG"], ax, prediction="theorem_3")


def test_nothing_to_plot_is_refused():
    with pytest.raises(InputError, match=r"^no traces to plot; wanted a mapping such as \{'PG': trace\}$"):
        dynamics({})


def test_the_figure_puts_each_theorem_under_its_own_update(traces):
    labels = set(labelled(dynamics(traces).axes[0]))
    assert {"PG, Theorem 1", "NPG, Theorem 2", "PG, exact", "NPG, exact"} <= labels
    assert "other, Lemma 1" in labelled(dynamics({"other": traces["PG"]}).axes[0])


@pytest.fixture
def texts(monkeypatch):
    """A function that draws a figure and gives the boxes, in pixels, of the text that was really drawn."""
    drawn, draw = [], Text.draw

    def record(text, renderer):
        draw(text, renderer)
        if text.get_visible() and text.get_text():
            drawn.append(text.get_window_extent(renderer))

    def boxes(figure):
        figure.set_dpi(300)
        figure.canvas.draw()
        monkeypatch.setattr(Text, "draw", record)
        figure.canvas.draw()
        return drawn

    return boxes


def overlap(a, b):
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1


@pytest.mark.parametrize("names", [["PG"], ["PG", "NPG"]])
def test_no_text_overlaps_and_all_of_it_is_on_the_page(traces, texts, names):
    boxes = texts(dynamics({name: traces[name] for name in names}))
    assert len(boxes) > 20
    assert all(box.x0 >= 0 and box.x1 <= LARGE and box.y0 >= 0 for box in boxes)
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))


def test_the_legend_covers_no_panel(traces):
    figure = dynamics(traces)
    figure.canvas.draw()
    assert not any(overlap(figure.legends[0].get_window_extent(), ax.get_window_extent()) for ax in figure.axes)


def test_text_is_of_one_size_that_can_be_read_in_print(traces):
    figure = dynamics(traces)
    figure.canvas.draw()
    assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {7.5}


def test_the_same_traces_give_the_same_bytes(traces, tmp_path):
    first, second = (save_figure(dynamics(traces), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_figure_is_a_png_of_300_dpi_and_an_svg_without_a_date(traces, tmp_path):
    png, svg = save_figure(dynamics(traces), tmp_path / "dynamics")
    assert (png.name, svg.name) == ("dynamics.png", "dynamics.svg")
    assert struct.unpack(">I", png.read_bytes()[16:20]) == (LARGE,)
    assert not re.search(r"dc:date|20\d\d-\d\d-\d\d", svg.read_text())


def test_drawing_leaves_the_settings_of_matplotlib_alone(traces, tmp_path):
    before = dict(matplotlib.rcParams)
    save_figure(dynamics(traces), tmp_path / "dynamics")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("step_size", "num_steps", "rewards"),
    [
        (0.25, 1, REWARDS),  # one row
        (0.0, 3, REWARDS),  # every change 0
        (1e308, 3, REWARDS),  # infinite bound
        (0.25, 3, np.stack([REWARDS, REWARDS, 0 * REWARDS])),
    ],
)
def test_extreme_runs_are_drawn_without_a_warning(tmp_path, step_size, num_steps, rewards):
    save_figure(dynamics({"NPG": run(NaturalPG(step_size), num_steps, rewards)}), tmp_path / "dynamics")
