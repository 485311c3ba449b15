"""`run` on problems of several steps: the split of ΔH̄, the three entropies of a tree, and means over seeds."""

import dataclasses
import os
import re

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from softmaxdyn import Algorithm, Bandit, TokenTree, Trace, VanillaPG, build, cli, episode_plots, plots, simulate
from softmaxdyn.cli.episodes import mean_end_entropy, mean_trace
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named.mdps import gridworld
from softmaxdyn.problems.named.trees import distractor
from softmaxdyn.results import visit_mean

TREE = TokenTree(lambda response: float(len(response) == 1), vocabulary=3, depth=2, end=True)
LOGITS = np.random.default_rng(0).standard_normal(TREE.shape)
NUMBER = r"([-+]?\d\.?\d*(?:e[-+]\d+)?)"


def run(folder, *arguments):
    done = CliRunner().invoke(cli.main, ["run", *map(str, arguments), "--out", str(folder)])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """(folder, what was printed) of a run on a token tree."""
    folder = tmp_path_factory.mktemp("tree")
    return folder, run(folder, "--problem", "distractor", "--depth", 3, "--update", "npg", "--steps", 30)


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """(folder, what was printed) of a run of an MDP without its figures: 4 steps, 2 of them recorded."""
    folder = tmp_path_factory.mktemp("grid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "dynamics", lambda traces: None)
        patch.setattr(episode_plots, "episodes", lambda traces: None)
        patch.setattr(plots, "save_figure", lambda figure, stem: [])
        return folder, run(
            folder, *["--problem", "gridworld", "--size", "2", "--update", "pg", "--steps", "4", "--every", "3"]
        )


@pytest.fixture(scope="module")
def sampled():
    """Two runs of a method that draws, on a tree: their visits differ."""
    algorithm = build("rloo", step_size=3.0, groups=2, group_size=4)
    return [simulate(TREE, algorithm, num_steps=5, logits=LOGITS, key=jax.random.key(seed)) for seed in (0, 1)]


def by_listing(problem, logits):
    """(entropy of the response, mean length, entropy of the answer, its last token) from all responses."""
    episode, weight = problem.listing(softmax(logits).prob)
    chance, taken = np.asarray(weight), np.asarray(episode.taken)
    last = np.take_along_axis(np.asarray(episode.action), taken.sum(-1, keepdims=True) - 1, -1)[:, 0]
    before = np.take_along_axis(np.asarray(episode.action), np.maximum(taken.sum(-1, keepdims=True) - 2, 0), -1)[:, 0]
    answer = np.where((last == 2) & (taken.sum(-1) > 1), before, last)
    shares = np.array([chance[answer == label].sum() for label in range(3)])
    return -chance @ np.log(chance), chance @ taken.sum(-1), -shares @ np.log(shares)


def test_a_run_of_several_steps_draws_a_second_figure(tree):
    folder, printed = tree
    files = ["dynamics_npg.nc", "dynamics.png", "dynamics.svg", "episodes.png", "episodes.svg"]
    assert sorted(os.listdir(folder)) == sorted(files)
    assert printed.splitlines()[-1] == "wrote " + ", ".join(str(folder / name) for name in files)


def test_the_two_parts_add_up_to_the_fall_of_the_entropy_of_an_episode(tree):
    pattern = rf"NPG takes the entropy of an episode from {NUMBER} to {NUMBER} nats in 30 steps: {NUMBER} .*, {NUMBER} "
    start, end, local, moved = map(float, re.search(pattern, tree[1]).groups())
    trace = Trace.load(tree[0] / "dynamics_npg.nc")
    assert start == pytest.approx(trace.trajectory_entropy[0], rel=5e-6)
    assert local == pytest.approx(np.sum(trace.local_change), rel=5e-4)
    assert moved == pytest.approx(np.sum(trace.visitation_change), rel=5e-4)
    assert end - start == pytest.approx(local + moved, abs=5e-6 + 5e-6 + 5e-4 * (abs(local) + abs(moved)))


def test_the_entropies_of_a_tree_are_those_of_its_listed_responses(tree):
    problem, logits, _ = distractor(depth=3)
    ends = {"start": logits, "end": Trace.load(tree[0] / "dynamics_npg.nc").logits}
    for row, z in ends.items():
        cells = [float(cell) for cell in re.search(rf"\n{row} +(.*)", tree[1]).group(1).split()]
        response, length, answer = by_listing(problem, z)
        first = softmax(np.asarray(z)).entropy[0]
        np.testing.assert_allclose(cells[:4], [response, answer, response / length, first], atol=5e-6)
        assert len(cells) == 3 + 3


def test_the_end_has_the_visits_of_the_end(tree):
    trace = Trace.load(tree[0] / "dynamics_npg.nc")
    response, length, _ = by_listing(distractor(depth=3).problem, trace.logits)
    assert f" with H = {response / length:.6g} nats" in tree[1]
    assert mean_end_entropy(distractor(depth=3).problem, trace) == pytest.approx(response / length, rel=1e-13)


def test_a_reader_is_told_that_token_entropy_is_not_diversity(tree):
    assert tree[1].count("note: token entropy is not diversity") == 1


def test_thinned_rows_are_not_taken_for_the_run(grid):
    assert "nats; the 2 recorded steps made " in grid[1]


def test_equal_rewards_of_a_state_do_not_stop_it_when_more_follows(grid):
    assert "nothing moves" not in grid[1]


def test_only_trees_have_responses(grid):
    assert "response" not in grid[1]
    assert "diversity" not in grid[1]


def test_the_default_step_is_scaled_to_the_visits_of_the_start(grid):
    setting = gridworld(2)
    moves = np.einsum("sa,sat->st", np.full((4, 4), 0.25), setting.problem.transitions)[:3, :3]
    visits = np.linalg.inv(np.eye(3) - 0.95 * moves)[0]
    algorithm = dict(Trace.load(grid[0] / "dynamics_pg.nc").provenance)["algorithm"]
    size = float(re.search(r"VanillaPG\(step_size=(.*?)\)", algorithm).group(1))
    assert size == pytest.approx(0.4 / visits.mean(), rel=1e-11)  # 12 digits; the goal is never visited


@pytest.mark.parametrize("name", ["entropy", "entropy_change", "bound"])
def test_the_visit_mean_over_seeds_counts_every_visit_once(sampled, name):
    visits = np.stack([trace.visits for trace in sampled])
    values = np.stack([getattr(trace, name) for trace in sampled])
    expected = (visits * values).sum((0, 2)) / visits.sum((0, 2))
    np.testing.assert_allclose(visit_mean(mean_trace(sampled), name), expected, rtol=1e-13)


def test_the_mean_over_seeds_is_plain_where_all_visit_alike():
    bandit = Bandit([[1.0, 0.0], [0.0, 1.0]])
    runs = [simulate(bandit, Algorithm(VanillaPG(size)), num_steps=3) for size in (0.5, 1.0, 2.0)]
    runs = [dataclasses.replace(trace, provenance=()) for trace in runs]
    mean = mean_trace(runs)
    for name in ("entropy", "bound", "final_entropy", "expected_return"):
        assert np.array_equal(getattr(mean, name), np.mean([getattr(trace, name) for trace in runs], 0))


def test_a_state_that_no_run_visits_has_a_plain_mean(sampled):
    never = [dataclasses.replace(trace, visits=0.0 * trace.visits) for trace in sampled]
    assert np.array_equal(mean_trace(never).entropy, np.mean([trace.entropy for trace in sampled], 0))
