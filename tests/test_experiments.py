"""The parts of the scripts in experiments/ that compute something."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from softmaxdyn import VanillaPG, simulate
from softmaxdyn.algorithms import Algorithm

FOLDER = Path(__file__).parents[1] / "experiments"


def script(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make, episodes, every_method, worlds = (
    script(name) for name in ("make.py", "episodes.py", "every_method.py", "benchmarks/worlds.py")
)


def test_every_script_that_make_runs_is_there():
    assert [name for name in make.SCRIPTS if not (FOLDER / name).is_file()] == []


def test_the_falls_of_all_steps_add_up_to_that_of_the_run():
    problem, logits = episodes.random_tree(0, 3, 3, True)
    trace = simulate(problem, Algorithm(VanillaPG(4.0)), num_steps=5, logits=logits)
    after = simulate(problem, Algorithm(VanillaPG(4.0)), num_steps=1, logits=trace.logits)
    total = {name: np.sum(fall) for name, fall in episodes.falls(problem, trace).items()}
    ends = trace.trajectory_entropy[0], after.trajectory_entropy[0]
    lengths = trace.measures["mean_length"][0], after.measures["mean_length"][0]
    np.testing.assert_allclose(total["response"], ends[0] - ends[1], rtol=1e-12)
    np.testing.assert_allclose(total["token"], ends[0] / lengths[0] - ends[1] / lengths[1], rtol=1e-12)
    np.testing.assert_allclose(total["response"] - total["frozen"], -np.sum(trace.visitation_change), rtol=1e-12)


def test_under_natural_pg_each_of_three_covariances_is_the_first_order_of_one_entropy():
    for order in episodes.orders_of_npg(*episodes.random_tree(0, 3, 3, True)).values():
        assert order[0] == pytest.approx(2.0, abs=1e-2)  # the third order shifts it by some η = 1/1024


def test_a_run_that_raises_is_a_cell_that_says_so():
    cell = every_method.run("no such method", "exact", every_method.problems()["bandit"])
    assert cell["error"].startswith("InputError: ")
    assert not every_method.is_finite(cell)
    assert every_method.words(cell) == "InputError"


def test_what_is_not_finite_is_said_on_top_of_the_tables():
    good = {"not_finite": [], "dJ": 0.5, "dH": -0.25, "selected": [0.25]}
    cells = {f"{name}, bandit, {mode}": good for name in every_method.METHODS for mode in every_method.MODES}
    cells["kl_cov, bandit, exact"] = {"not_finite": ["kl"], "dJ": 0.0, "dH": None, "selected": []}
    page = every_method.report("", cells, ["bandit"])
    assert "\n- kl_cov, bandit, exact: kl\n" in page
    assert "| `kl_cov` | not finite |" in page
    assert "| `grpo` | +0.500, −0.250 (25%) |" in page


def test_the_slope_of_a_power_law_is_its_power():
    table = [10, 20, 80, 320]
    assert worlds.slope(table, [7.0, *(3.0 * np.array(table[1:]) ** 1.5)]) == pytest.approx(1.5, rel=1e-12)


def test_every_kind_of_problem_of_the_benchmark_can_be_made():
    shapes = {kind: problem_of(next(iter(sizes))).shape for kind, (_, sizes, problem_of) in worlds.KINDS.items()}
    assert shapes["tree"] == (5, 4)
    assert shapes["tree with end"] == (4, 4)
    assert all(actions == worlds.ACTIONS for _, actions in shapes.values())
