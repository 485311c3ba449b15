"""`softmaxdyn run --method`: a named method from the command line, over several seeds."""

import jax
import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from softmaxdyn import build, cli, episode_plots, plots, simulate
from softmaxdyn.problems.named.bandits import pool

SIZES = ["--problem", "pool", "--prompts", "3", "--actions", "4", "--correct", "0.25", "--steps", "6", "--every", "2"]
BATCH = ["--groups", "2", "--group-size", "4", "--inner-steps", "2", "--step-size", "3"]


@pytest.fixture(autouse=True)
def no_figure(monkeypatch):
    """Drawing takes a second and has tests of its own."""
    monkeypatch.setattr(plots, "dynamics", lambda traces: None)
    monkeypatch.setattr(episode_plots, "episodes", lambda traces: None)
    monkeypatch.setattr(plots, "save_figure", lambda figure, stem: [])


def run(folder, *arguments):
    done = CliRunner().invoke(cli.main, ["run", *SIZES, *BATCH, *arguments, "--out", str(folder)])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


def test_the_file_holds_every_seed_as_simulate_gives_it(tmp_path):
    printed = run(tmp_path, "--method", "kl_cov", "--fraction", "0.25", "--seeds", "3", "--seed", "7")
    runs = xarray.load_dataset(tmp_path / "dynamics_kl_cov.nc")
    assert runs.sizes["seed"] == 3
    problem, logits, _ = pool(7, 3, 4, 0.25)
    algorithm = build("kl_cov", step_size=3.0, groups=2, group_size=4, fraction=0.25)
    for number, key in enumerate(jax.random.split(jax.random.key(7), 3)):
        trace = simulate(problem, algorithm, num_steps=6, inner_steps=2, every=2, logits=logits, key=key)
        np.testing.assert_array_equal(runs.entropy_change[number], trace.entropy_change)
        np.testing.assert_array_equal(runs.selected[number], trace.selected)
    assert "KLCov(fraction=0.25, coefficient=1.0)" in printed
    mean = float(runs.final_expected_return.mean())
    assert f"kl_cov ends at J = {mean:.4g} [" in printed


def test_exact_mode_draws_nothing_and_needs_one_run(tmp_path):
    run(tmp_path, "--method", "entropy_bonus", "--mode", "exact", "--coefficient", "0.1", "--seeds", "5")
    trace = xarray.load_dataset(tmp_path / "dynamics_entropy_bonus.nc")
    assert "seed" not in trace.dims
    assert trace.attrs["algorithm"].count("EntropyBonus(coefficient=0.1)") == 1


def test_an_update_can_be_given_to_a_method(tmp_path):
    printed = run(tmp_path, "--method", "rloo", "--update", "npg")
    assert "update=NaturalPG(step_size=3.0)" in printed


def test_an_option_that_the_problem_lacks_is_the_number_of_the_method(tmp_path):
    assert "discount=0.5" in run(tmp_path, "--method", "reinforce_pp", "--discount", "0.5")


def test_an_option_that_the_problem_has_is_not_the_number_of_the_method(tmp_path):
    grid = ["run", "--problem", "gridworld", "--size", "2", "--steps", "1", "--method", "reinforce_pp", *BATCH]
    done = CliRunner().invoke(cli.main, [*grid, "--discount", "0.5", "--out", str(tmp_path)])
    assert "discount 0.5," in done.stdout
    assert "discount=1.0" in done.stdout


def test_an_option_that_neither_has_is_one_line(tmp_path):
    done = CliRunner().invoke(cli.main, ["run", *SIZES, "--method", "kl_cov", "--discount", "0.5"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("softmaxdyn: unknown option of pool 'discount' (known: prompts, ")
