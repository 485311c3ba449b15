"""Plots of runs of several steps: the lines hold the data, and the figure can be read in print."""

import dataclasses
import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, TokenTree, VanillaPG, simulate
from softmaxdyn.episode_plots import COVARIANCES, covariances, entropies, entropy_split, episodes
from softmaxdyn.plots import save_figure
from softmaxdyn.problems.named.mdps import gridworld
from softmaxdyn.results import visit_mean
from tests.test_plots import LARGE, labelled, overlap, texts  # noqa: F401  (a fixture)

TREE = TokenTree(lambda response: float(sum(response) == 2), vocabulary=3, depth=2, end=True)
LOGITS = 0.5 * np.random.default_rng(0).standard_normal(TREE.shape)


@pytest.fixture(scope="module")
def traces():
    updates = {"PG": VanillaPG(3.0), "entropic_released": NaturalPG(0.05)}
    return {name: simulate(TREE, Algorithm(update), num_steps=30, logits=LOGITS) for name, update in updates.items()}


@pytest.fixture(scope="module")
def grid():
    setting = gridworld(2)
    return simulate(setting.problem, Algorithm(NaturalPG(0.05)), num_steps=30, logits=setting.logits)


@pytest.fixture
def ax():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


@pytest.mark.parametrize("plot", [entropy_split, covariances, entropies])
def test_a_plot_returns_its_axes_with_labels_and_a_legend(traces, ax, plot):
    assert plot(traces["PG"], ax, name="PG") is ax
    assert ax.get_xlabel() == "step"
    assert ax.get_ylabel().startswith("PG\n")
    assert ax.get_legend() is not None


def test_the_two_parts_of_the_change_are_drawn_and_their_sum(traces, ax):
    trace = traces["PG"]
    drawn = labelled(entropy_split(trace, ax))
    np.testing.assert_array_equal(drawn["visits frozen"], trace.local_change)
    np.testing.assert_array_equal(drawn["visits moved"], trace.visitation_change)
    np.testing.assert_array_equal(drawn["visits moved, first order"], trace.visitation_prediction)
    np.testing.assert_allclose(drawn["visits frozen"] + drawn["visits moved"], drawn["sum: ΔH̄, exact"], rtol=1e-12)


def test_the_legend_states_the_correlation_with_the_fall_of_the_entropy(traces, ax):
    trace = traces["PG"]
    drawn = labelled(covariances(trace, ax))
    for field, name in COVARIANCES.items():
        r = np.corrcoef(-trace.trajectory_change, getattr(trace, field))[0, 1]
        label = f"{name}, r = {r:.3f}".replace("-", "−")
        np.testing.assert_allclose(drawn[label] * np.abs(getattr(trace, field)).max(), getattr(trace, field))
    assert all(np.abs(drawn[label]).max() == 1.0 for label in drawn if "r = " in label)


def test_under_natural_pg_the_sequence_covariance_tracks_the_fall_best(traces, ax):
    drawn = labelled(covariances(traces["entropic_released"], ax))
    values = {label.split(", r = ")[0]: float(label.split(", r = ")[1]) for label in drawn if ", r = " in label}
    assert max(values, key=values.get) == "sequence"
    assert values["sequence"] > 0.999


def test_a_covariance_that_is_not_defined_is_left_out(grid, ax):
    assert np.isnan(grid.normalised_covariance).all()
    assert not any("length" in label for label in labelled(covariances(grid, ax)))


def test_a_covariance_that_stays_has_no_correlation(traces, ax):
    flat = dataclasses.replace(traces["PG"], action_covariance=np.full(30, 0.25))
    assert "action" in labelled(covariances(flat, ax))


def test_every_entropy_of_a_tree_is_drawn(traces, ax):
    trace = traces["PG"]
    drawn = labelled(entropies(trace, ax))
    np.testing.assert_array_equal(drawn["whole response"], trace.measures["response_entropy"])
    np.testing.assert_array_equal(drawn["final answer"], trace.measures["answer_entropy"])
    np.testing.assert_array_equal(drawn["mean token"], visit_mean(trace, "entropy"))
    np.testing.assert_array_equal(drawn["by position (light: first)"], trace.measures["position_entropy"][:, -1])
    first, last = ax.lines[-2:]
    assert float(first.get_color()) > float(last.get_color())
    np.testing.assert_array_equal(first.get_ydata(), trace.measures["position_entropy"][:, 0])


def test_only_trees_have_these_entropies(grid, ax):
    with pytest.raises(InputError, match=r"^the trace has no response_entropy; wanted one of a TokenTree$"):
        entropies(grid, ax)


def test_the_figure_has_a_row_a_trace_and_a_third_panel_for_trees(traces, grid):
    assert len(episodes(traces).axes) == 6
    assert len(episodes({"NPG": grid}).axes) == 2


def test_nothing_to_plot_is_refused():
    with pytest.raises(InputError, match=r"^no traces to plot; wanted a mapping such as \{'PG': trace\}$"):
        episodes({})


def test_no_text_overlaps_and_all_of_it_is_on_the_page(traces, texts):  # noqa: F811
    boxes = texts(episodes(traces))
    assert len(boxes) > 40
    assert all(box.x0 >= 0 and box.x1 <= LARGE and box.y0 >= 0 for box in boxes)
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))


def test_no_legend_covers_a_panel_and_all_text_is_of_one_size(traces):
    figure = episodes(traces)
    figure.canvas.draw()
    legends = [ax.get_legend().get_window_extent() for ax in figure.axes]
    assert not any(overlap(legend, ax.get_window_extent()) for legend in legends for ax in figure.axes)
    assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {7.5}


@pytest.mark.parametrize(("step_size", "num_steps"), [(0.05, 1), (0.0, 3)])
def test_extreme_runs_are_drawn_without_a_warning(tmp_path, step_size, num_steps):
    runs = {
        "tree": simulate(TREE, Algorithm(NaturalPG(step_size)), num_steps=num_steps),
        "bandit": simulate(Bandit([1.0, 0.0]), Algorithm(NaturalPG(step_size)), num_steps=num_steps),
    }
    for name, trace in runs.items():
        save_figure(episodes({name: trace}), tmp_path / name)
