"""`softmaxdyn run --method`: a named method from the command line, over several seeds."""

import jax
import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from softmaxdyn import Algorithm, Exact, VanillaPG, build, cli, episode_plots, plots, simulate
from softmaxdyn.advantages import GRPO
from softmaxdyn.interventions import PositiveReweighting
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


OWN = """
import jax.numpy as jnp
import softmaxdyn as sd
from softmaxdyn.estimators import Sampled

@sd.config
class Weaker(sd.Intervention):
    "Positive scores times a factor, which may be whole."
    factor: float = 1

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.where(push.score > 0, self.factor * push.score, push.score))

MINE = sd.Algorithm(sd.VanillaPG(0.25), Sampled(3, 5), (Weaker(0.5),))
EXACT = sd.Algorithm(sd.VanillaPG(0.25), interventions=(Weaker(0.5),))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The folder of a file with methods of one's own, entered."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def refused(*arguments):
    done = CliRunner().invoke(cli.main, ["run", *SIZES, *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr.removeprefix("softmaxdyn: ")


def test_a_method_of_ones_own_runs_with_its_numbers_as_options(own):
    printed = run(own, "--method", "own.py:Weaker", "--factor", "0.5", "--mode", "exact")
    trace = xarray.load_dataset(own / "dynamics_weaker.nc")
    problem, logits, _ = pool(0, 3, 4, 0.25)
    twin = Algorithm(VanillaPG(3.0), Exact(GRPO()), (PositiveReweighting(0.5),))
    expected = simulate(problem, twin, num_steps=6, inner_steps=2, every=2, logits=logits)
    np.testing.assert_allclose(trace.entropy_change, expected.entropy_change, rtol=1e-9)
    assert "\nWeaker: Algorithm(update=VanillaPG(step_size=3.0)" in printed


def test_a_method_of_ones_own_draws_the_seeds_that_are_asked_for(own):
    printed = run(own, "--method", "own.py:Weaker", "--seeds", "2")
    assert xarray.load_dataset(own / "dynamics_weaker.nc").sizes["seed"] == 2
    assert "Sampled(groups=2, group_size=4" in printed
    assert "Weaker(factor=1)" in printed


def test_an_algorithm_of_ones_own_keeps_its_numbers_and_takes_those_that_are_typed(own):
    done = CliRunner().invoke(cli.main, ["run", *SIZES, "--method", "own.py:MINE"])
    assert "MINE: Algorithm(update=VanillaPG(step_size=0.25), estimator=Sampled(groups=3, group_size=5" in done.stdout
    printed = run(own, "--method", "own.py:MINE", "--update", "npg")
    assert "MINE: Algorithm(update=NaturalPG(step_size=3.0), estimator=Sampled(groups=2, group_size=4" in printed


def test_what_a_method_of_ones_own_cannot_take_is_one_line(own):
    assert refused("--method", "own.py:MINE", "--factor", "0.5") == (
        "unknown option '--factor'; the numbers of MINE, an Algorithm, are set in own.py\n"
    )
    assert refused("--method", "own.py:Weaker", "--facto", "0.5").startswith(
        "unknown option '--facto'; did you mean '--factor'?"
    )
    assert refused("--method", "own.py:EXACT", "--mode", "sampled") == (
        "--mode sampled cannot be given to EXACT: its estimator Exact draws nothing; leave it out, or change own.py\n"
    )
    assert refused("--method", "own.py:EXACT", "--groups", "4").startswith("--groups cannot be given to EXACT: ")


def test_a_fault_of_ones_own_method_names_its_line(own):
    (own / "own.py").write_text(OWN.replace("jnp.where", "jnp.were"))
    line = refused("--method", "own.py:Weaker")
    assert line == "own.py:12, in __call__: AttributeError: module 'jax.numpy' has no attribute 'were'\n"


@pytest.mark.parametrize("arguments", [["--fraction", "0.1"], ["--fraction=0.1"]])
def test_a_number_of_a_method_without_a_method_asks_for_one(arguments):
    line = "--fraction is a number of a method; add --method NAME (`softmaxdyn methods` lists them)\n"
    assert refused("--update", "npg", *arguments) == line
