"""The engine of a sweep gives what `simulate` gives, and the same bits wherever a run is."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from softmaxdyn import Adam, Algorithm, Bandit, InputError, NaturalPG, VanillaPG, cli, simulate
from softmaxdyn.methods import build
from softmaxdyn.problems.setting import Setting
from softmaxdyn.results import visit_mean
from softmaxdyn.sweeps import native, rows, sweep
from softmaxdyn.sweeps.engine import Engine, families
from softmaxdyn.sweeps.loop import execute
from softmaxdyn.sweeps.plan import Cell, Plan
from softmaxdyn.sweeps.spec import plan_of as plan_from
from softmaxdyn.sweeps.spec import read_spec
from tests.worlds import BEFORE, worlds

STEPS, EVERY = 11, 3
MASKED = np.asarray(BEFORE.logits).copy()
MASKED[0, 1] = -np.inf
SAMPLED = {"groups": 4, "group_size": 4}
BY_STATE = ["entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl"]
BY_RUN = ["expected_return", "trajectory_entropy", "trajectory_change", "local_change", "visitation_change"]
BY_RUN += ["visitation_prediction", "action_covariance", "sequence_covariance", "token_covariance", "selected"]


def plan_of(*cells, dtype="float64", seeds=(0, 1)):
    return Plan(tuple(cells), seeds, STEPS, EVERY, dtype, "")


def cell(algorithm, world="bandit", inner_steps=1, logits=MASKED):
    return Cell({}, Setting(worlds()[world], logits, ""), algorithm, inner_steps)


@cache
def engine_of(name):
    """The engine of a plan; "…, in JAX": without the native kernel."""
    plan = PLANS[name.removesuffix(IN_JAX)]
    with pytest.MonkeyPatch.context() as patch:
        if name.endswith(IN_JAX):
            patch.setenv(native.SWITCH, "0")
        return Engine(plan, range(len(plan.cells)), block=4)


PLANS = {
    "pg": plan_of(cell(Algorithm(VanillaPG(0.5))), cell(Algorithm(VanillaPG(2.0)))),
    "npg": plan_of(cell(Algorithm(NaturalPG(0.1))), cell(Algorithm(NaturalPG(0.3)))),
    "pg in single precision": plan_of(*[cell(Algorithm(VanillaPG(x))) for x in (0.5, 2.0)], dtype="float32"),
    "adam": plan_of(cell(Algorithm(Adam(0.1))), cell(Algorithm(Adam(0.2)))),
    "kl_cov": plan_of(*[cell(build("kl_cov", fraction=f, **SAMPLED), inner_steps=2) for f in (0.1, 0.3)]),
    "target_entropy": plan_of(*[cell(build("target_entropy", step_size=x, **SAMPLED), "tree") for x in (0.5, 1.0)]),
    "grpo on a tree": plan_of(*[cell(build("grpo", mode="exact", step_size=x), "tree") for x in (0.5, 1.0)]),
    "npg in an mdp": plan_of(*[cell(Algorithm(NaturalPG(x)), "discounted", logits=BEFORE.logits) for x in (0.1, 0.5)]),
}
IN_JAX = ", in JAX"
BY_ROWS = ["pg", "npg", "pg in single precision"]
ENGINES = [*PLANS, *(f"{name}{IN_JAX}" for name in BY_ROWS)]


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_is_that_of_simulate(name):
    plan, engine = PLANS[name.removesuffix(IN_JAX)], engine_of(name)
    got = engine(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    tolerance = 1e-13 if plan.dtype == "float64" else 2e-6
    for place, (number, seed) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        here = plan.cells[number]
        trace = simulate(
            here.setting.problem,
            here.algorithm,
            num_steps=STEPS,
            every=EVERY,
            inner_steps=here.inner_steps,
            logits=np.asarray(here.setting.logits, plan.dtype),
            key=jax.random.key(seed),
        )
        for field in BY_STATE:
            same(got[field][place], visit_mean(trace, field), tolerance)
        for field in BY_RUN:
            same(got[field][place], getattr(trace, field), tolerance)
        for field, values in trace.measures.items():
            same(got[field][place], values, tolerance)
        same(got["final_expected_return"][place], trace.final_expected_return, tolerance)
        assert not np.isnan(got["normalised_covariance"]).any() or name == "npg in an mdp"


def same(got, wanted, tolerance):
    """Equal up to rounding, relative to the largest number of the field."""
    assert got.dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-15 + tolerance * np.max(np.abs(wanted), initial=0.0))


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_has_the_same_bits_in_any_place_and_company(name):
    engine = engine_of(name)
    one = engine(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    other = engine(np.array([1, 0, 0, 0]), np.array([1, 1, 0, 0]))
    for field, values in one.items():
        assert values[[3, 2, 0]].tobytes() == other[field][[0, 1, 2]].tobytes(), field


def test_only_plain_policy_gradient_on_bandits_takes_the_fast_path():
    assert [name for name in PLANS if engine_of(name).by_rows] == BY_ROWS
    assert not rows.fits(cell(Algorithm(VanillaPG(1e9))))
    assert not rows.fits(cell(Algorithm(VanillaPG(0.1)), inner_steps=2))


def test_rows_in_several_tiles_are_those_of_one(monkeypatch):
    rng = np.random.default_rng(0)
    many = Setting(Bandit(rng.normal(size=(23, 4)), rng.random(23)), rng.normal(size=(23, 4)), "")
    plan = plan_of(Cell({}, many, Algorithm(VanillaPG(3.0)), 1))
    whole = Engine(plan, [0], block=1)(np.zeros(1, int), np.zeros(1, int))
    monkeypatch.setattr(rows, "TILE", 4 * 5)
    monkeypatch.setenv(native.SWITCH, "0")
    tiled = Engine(plan, [0], block=1)(np.zeros(1, int), np.zeros(1, int))
    for field, values in whole.items():
        same(tiled[field], values, 1e-13)


SOME = ("entropy", "theorem_1", "token_covariance", "trajectory_change", "visitation_change", "expected_return")


@pytest.mark.parametrize("name", ["pg", f"pg{IN_JAX}", "kl_cov"])
def test_chosen_fields_are_those_of_all(name):
    plan = PLANS[name.removesuffix(IN_JAX)]
    every_field, kernel = engine_of(name), engine_of(name).kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernel", lambda: kernel)
        few = Engine(plan._replace(fields=SOME), range(len(plan.cells)), block=4)
    runs = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    got, wanted = few(*runs), every_field(*runs)
    assert set(got) == {*SOME, "final_expected_return", "final_entropy"}
    for field, values in got.items():
        same(values, wanted[field], 1e-14)


def test_a_field_that_needs_no_sum_is_recorded_alone():
    plan = PLANS["pg"]._replace(fields=("selected",))
    got = Engine(plan, [0], block=1)(np.zeros(1, int), np.zeros(1, int))
    assert (set(got), got["selected"].shape) == ({"selected", "final_expected_return", "final_entropy"}, (1, 4, 0))


BANDIT = {"steps": 3, "problem": "mei", "method": "pg"}
WORDS = {**BANDIT, "problem": ["mei", {"name": "parity", "depth": 2}]}


def test_fields_decide_the_hash_and_their_order_does_not():
    plans = [
        plan_from({**BANDIT, **more}) for more in ({}, {"fields": ["kl", "entropy"]}, {"fields": ["entropy", "kl"]})
    ]
    assert [plans[1].hash == plan.hash for plan in plans] == [False, True, True]
    assert (plans[0].fields, plans[1].fields) == (None, ("entropy", "kl"))
    assert plans[1].run_bytes < plans[0].run_bytes / 5


def test_a_measure_of_some_problem_is_a_field():
    assert plan_from({**WORDS, "fields": ["mean_length", "kl"]}).fields == ("kl", "mean_length")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (["entrpy"], r"unknown field 'entrpy'; did you mean 'entropy'\? \(known: expected_return, .*\)"),
        (["visits"], r"unknown field 'visits'.*"),
        (["mean_length"], r"unknown field 'mean_length'.*"),
        (["kl", "kl"], r"fields holds 'kl' twice; wanted every field once"),
        ([], r"fields is \[\]; wanted a list of names: fields = \['entropy', 'theorem_1'\]"),
        (3, r"fields is 3; wanted a list of names: .*"),
        (["kl", 3], r"fields is \['kl', 3\]; wanted a list of names: .*"),
    ],
)
def test_fields_that_nothing_records_are_one_line(fields, line):
    with pytest.raises(InputError, match=f"^{line}$") as fault:
        plan_from({**BANDIT, "fields": fields})
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_table_a_summary_and_the_command_line_hold_the_chosen_fields(tmp_path, stopped):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'steps = 6\nfields = ["kl", "mean_length"]\nproblem = ["mei", {name = "parity", depth = 2}]\nmethod = "pg"'
    )
    if stopped:
        with pytest.raises(Stopped):
            execute(read_spec(spec), tmp_path / "out", progress=stop_after(2))
    done = CliRunner().invoke(cli.main, ["sweep", str(spec), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    with xarray.open_dataset(tmp_path / "out" / "sweep.nc") as table:
        assert set(table.data_vars) == {"kl", "mean_length", "final_expected_return", "final_entropy"}
        assert np.isnan(table.mean_length.values).all(1).tolist() == [True, False]
        assert not np.isnan(table.kl.values).any()
    with xarray.open_dataset(tmp_path / "out" / "sweep_summary.nc") as summary:
        assert {"kl_mean", "mean_length_quantile"} <= set(summary.data_vars)


def test_a_sweep_from_python_holds_the_chosen_fields():
    found = sweep(Bandit([1.0, 0.0]), Algorithm(VanillaPG(0.1)), num_steps=5, fields=["entropy"])
    assert set(found.data_vars) == {"entropy", "final_expected_return", "final_entropy"}
    assert found.entropy[0, 0, 0, 0] == np.log(2)


def stop_after(runs):
    def stop(progress):
        if progress.runs == runs:
            raise Stopped

    return stop


def test_cells_of_one_structure_are_one_family():
    cells = [cell(build("grpo", step_size=0.1)), cell(build("kl_cov")), cell(build("grpo", step_size=0.2))]
    more = [cell(build("grpo", groups=3)), cell(build("grpo"), inner_steps=2), cell(build("grpo"), "tree")]
    assert families(plan_of(*cells, *more)) == [[0, 2], [1], [3], [4], [5]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: engine_of("pg")(np.zeros(3, int), np.zeros(3, int)), "3 cells and 3 seeds came; wanted 4 of each"),
        (lambda: Engine(PLANS["pg"], [0], devices=999), "devices is 999; wanted at most "),
        (lambda: Engine(PLANS["pg"], [0], devices=0), "devices is 0; wanted a whole number ≥ 1"),
        (lambda: Engine(PLANS["pg"], [0], block=-1), "block is -1; wanted a whole number ≥ 1"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(InputError, match=message):
        call()


def digest(name, devices):
    """Of all that four runs give, in two calls of one lane or one call of two."""
    engine = Engine(PLANS[name], [0, 1], block=2, devices=devices)
    calls = [(np.array([0, 1]), np.array([seed, seed])) for seed in (0, 1)]
    if devices == 2:
        calls = [tuple(np.concatenate(pair) for pair in zip(*calls, strict=True))]
    found = [engine(*call) for call in calls]
    whole = {field: np.concatenate([each[field] for each in found]) for field in found[0]}
    return hashlib.sha256(b"".join(whole[field].tobytes() for field in sorted(whole))).hexdigest()


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core")
def test_two_lanes_on_one_device_give_the_bits_of_one():
    assert digest("pg", 2) == digest("pg", 1)
    assert digest("kl_cov", 2) == digest("kl_cov", 1) != digest("pg", 1)


def test_two_devices_give_the_bits_of_one():
    code = "import jax; jax.config.update('jax_enable_x64', True)\n"
    code += "from tests.test_engine import digest; print(jax.device_count(), digest('kl_cov', 1), digest('kl_cov', 2))"
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    settings = {"env": {**os.environ, "XLA_FLAGS": flags}, "cwd": Path(__file__).parents[1]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **settings)
    devices, one, two = done.stdout.split()
    assert (devices, one) == ("2", two)


class Stopped(Exception):
    """What a person does in the middle of a sweep."""


def test_a_sweep_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    spec = 'steps = 30\nevery = 4\nproblem = ["mei", "mirror"]\n[[method]]\nname = "pg"\nstep_size = [0.1, 0.4]\n'
    (tmp_path / "spec.toml").write_text(spec + '[[method]]\nname = "pg"\nupdate = "npg"\n')
    plan = read_spec(tmp_path / "spec.toml")

    whole = execute(plan, tmp_path / "whole")
    with pytest.raises(Stopped):  # the first family is done, and the second has begun
        execute(plan, tmp_path / "stopped", progress=stop_after(6))
    assert len(list((tmp_path / "stopped" / "blocks").iterdir())) == 1
    rest = execute(plan, tmp_path / "stopped")
    assert (rest.kept, rest.computed) == (1, 1)
    assert rest.table.read_bytes() == whole.table.read_bytes()
    assert rest.summary.read_bytes() == whole.summary.read_bytes()
