"""What a sweep runs: products and lists, one hash for what decides the numbers, and every wrong line of a spec."""

import copy
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, simulation
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems.named import NAMED, named
from softmaxdyn.problems.setting import setting
from softmaxdyn.results import FIELDS, MEASURES
from softmaxdyn.sweeps import plan_of, read_spec
from softmaxdyn.sweeps.layout import block_size, call_size, make_layout
from softmaxdyn.sweeps.plan import NO_SEED, Cell, check_seeds, fingerprint, make_plan, refuse_too_large
from softmaxdyn.updates import TRPO
from tests.sweep_machine import PLAN, RUNS, SPEC, families

ROOT = Path(__file__).parents[1]
POOL = """
steps = 100        # outer steps
every = 10
seeds = 3
[[problem]]
name = "pool"
prompts = 4
actions = 5
correct = [0.2, 0.4]
seed = [0, 1]
[[problem]]
name = "mei"
start = ["own", "uniform"]
temperature = 2
[[method]]
name = "kl_cov"
step_size = [0.1, 0.3]
fraction = [0.01, 0.02]
inner_steps = 2
[[method]]
name = "pg"
update = "npg"
"""


def changed(**keys):
    return {**copy.deepcopy(SPEC), **keys}


def written(folder, text, name="sweep.toml"):
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def pool(tmp_path):
    return read_spec(written(tmp_path, POOL))


def test_the_axes_of_a_table_form_their_product_and_tables_are_a_list(pool):
    assert len(pool.cells) == (2 * 2 + 2) * (2 * 2 + 1)
    labels = [cell.labels for cell in pool.cells]
    some = [each for each in labels if each["problem"] == "pool" and each["method"] == "kl_cov"]
    keys = ("correct", "problem_seed", "fraction", "step_size")
    assert {tuple(each[key] for key in keys) for each in some} == set(
        itertools.product([0.2, 0.4], [0.0, 1.0], [0.01, 0.02], [0.1, 0.3])
    )


def test_a_label_is_a_number_that_varies_among_those_that_have_it(pool):
    assert pool.cells[0].labels == {
        "problem": "pool",
        "method": "kl_cov",
        "step_size": 0.1,
        "correct": 0.2,
        "problem_seed": 0.0,
        "start": "own",
        "temperature": 1.0,
        "fraction": 0.01,
        "inner_steps": 2.0,
        "update": "own",
    }
    assert pool.cells[-1].labels == {
        "problem": "mei",
        "method": "pg",
        "step_size": 1.0,
        "start": "uniform",
        "temperature": 2.0,
        "inner_steps": 1.0,
        "update": "npg",
    }


def test_a_cell_holds_what_the_names_stand_for(pool):
    cell = pool.cells[3]
    labels = [cell.labels[key] for key in ("correct", "problem_seed", "fraction", "step_size")]
    problem, logits, _ = NAMED["pool"](seed=0, prompts=4, actions=5, correct=0.2)
    assert labels == [0.2, 0.0, 0.02, 0.3]
    np.testing.assert_array_equal(cell.setting.problem.rewards, problem.rewards)
    np.testing.assert_array_equal(cell.setting.logits, logits)
    assert repr(cell.algorithm) == repr(build("kl_cov", step_size=0.3, fraction=0.02))
    assert cell.inner_steps == 2
    assert repr(pool.cells[-1].algorithm) == repr(Algorithm(NaturalPG(1.0)))


def test_a_start_is_the_own_one_or_the_uniform_one_by_a_temperature(pool):
    own, uniform = (
        cell.setting for cell in pool.cells if cell.labels["method"] == "pg" and len(cell.setting.logits) == 1
    )
    np.testing.assert_allclose(own.logits, np.log([[0.05, 0.01, 0.94]]) / 2, rtol=1e-15)
    np.testing.assert_array_equal(uniform.logits, np.zeros((1, 3)))
    assert uniform.note.endswith("; start: uniform; temperature 2")


def test_a_start_can_be_that_of_a_file_and_masked_actions_stay_masked(tmp_path):
    start = {"rewards": [1, 0, 0], "probabilities": [0.5, 0.25, 0.25]}
    (tmp_path / "start.json").write_text(json.dumps(start))
    (tmp_path / "masked.json").write_text(json.dumps({"rewards": [1, 0, 0], "mask": [1, 1, 0]}))
    problems = [{"name": name, "start": "start.json"} for name in ("mei", "masked.json")]
    mei, masked = plan_of(changed(problem=problems, method="pg"), tmp_path).cells
    np.testing.assert_array_equal(mei.setting.logits, np.log([[0.5, 0.25, 0.25]]))
    np.testing.assert_array_equal(
        masked.setting.logits, np.log([[0.5, 0.25, 0.0]], where=[[1, 1, 0]], out=np.full((1, 3), -np.inf))
    )


def test_a_file_is_a_problem_and_lies_beside_its_spec(tmp_path):
    written(tmp_path, "n,correct\n4,1\n4,3\n", "counts.csv")
    written(tmp_path, "item,clicks\n0,1\n1,0\n2,0.5\n", "shop.csv")
    text = """
steps = 5
method = "pg"
[[problem]]
name = "counts.csv"
actions = 6
correct = [1, 2]
[[problem]]
name = "shop.csv"
columns = {action = "item", reward = "clicks"}
"""
    cells = read_spec(written(tmp_path, text)).cells
    assert [cell.setting.problem.shape for cell in cells] == [(2, 6), (2, 6), (1, 3)]
    assert [cell.labels.get("correct") for cell in cells] == [1.0, 2.0, None]


def test_a_method_that_draws_nothing_runs_once():
    assert PLAN.num_runs == RUNS
    assert {PLAN.seeds_of(number) for number, cell in enumerate(PLAN.cells) if cell.labels["method"] == "pg"} == {
        (NO_SEED,)
    }
    assert PLAN.seeds_of(0) == (0, 1, 2, 3, 4)


def test_the_recorded_steps_are_those_of_a_run():
    trace = simulation.simulate(Bandit([1.0, 0.0]), Algorithm(VanillaPG(0.1)), num_steps=20, every=3)
    np.testing.assert_array_equal(PLAN.steps, trace.step)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_start_has_the_dtype_of_the_sweep(dtype):
    plan = plan_of(changed(dtype=dtype))
    assert {cell.setting.logits.dtype for cell in plan.cells} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (changed(seeds=3), changed(seeds=[0, 1, 2])),
        (changed(problem="mei"), changed(problem=[{"name": ["mei"]}])),
        (changed(method={"name": "rloo", "step_size": 1}), changed(method={"name": "rloo", "step_size": [1.0]})),
        (
            changed(problem={"name": "pool", "actions": 4, "prompts": 2}),
            changed(problem={"prompts": 2, "name": "pool", "actions": [4]}),
        ),
        (changed(), changed(dtype="float64")),
    ],
)
def test_two_ways_to_write_one_sweep_have_one_hash(left, right):
    assert plan_of(left).hash == plan_of(right).hash


DIFFERENT = {
    "steps": changed(steps=21),
    "every": changed(every=2),
    "seeds": changed(seeds=4),
    "listed seeds": changed(seeds=[0, 1, 2, 3, 5]),
    "dtype": changed(dtype="float32"),
    "problem": changed(problem=["mei", "mirror"]),
    "order": changed(problem=["mirror", "mei", "sign_flip"]),
    "start": changed(problem=[{"name": "mei", "temperature": 2.0}, "mirror", "sign_flip"]),
    "method": changed(method=["rloo"]),
    "number": changed(method=[{"name": "rloo", "step_size": [0.1, 0.2]}, {"name": "kl_cov", "fraction": 0.2}, "pg"]),
}


def test_what_decides_the_numbers_decides_the_hash():
    hashes = {name: plan_of(spec).hash for name, spec in DIFFERENT.items()} | {"itself": PLAN.hash}
    assert len(set(hashes.values())) == len(hashes)


def test_the_hash_is_that_of_the_content_of_a_file_and_of_the_version(tmp_path, monkeypatch):
    spec = changed(problem="own.json", method="pg")
    hashes = []
    for rewards in ([1, 0], [1, 0.5], [1, 0.5]):
        (tmp_path / "own.json").write_text(json.dumps({"rewards": rewards}))
        hashes.append(plan_of(spec, tmp_path).hash)
    monkeypatch.setattr(sys.modules["softmaxdyn"], "__version__", "99")
    hashes.append(plan_of(spec, tmp_path).hash)
    assert [hashes.index(each) for each in hashes] == [0, 1, 1, 3]


def test_a_default_that_moves_moves_the_hash(monkeypatch):
    spec = changed(method="kl_cov")
    before = plan_of(spec).hash
    moved = METHODS["kl_cov"].replace_numbers({"fraction": 3e-3})
    monkeypatch.setitem(METHODS, "kl_cov", moved)
    assert plan_of(spec).hash != before


FINGERPRINTS = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems.named import NAMED, named
from softmaxdyn.sweeps.plan import fingerprint
methods = [fingerprint(build(name), "float64") for name in METHODS]
print(json.dumps(methods + [fingerprint(named(name)[:2], "float64") for name in NAMED]))
"""


def test_a_fingerprint_is_the_same_in_every_process_and_differs_between_named_parts():
    done = subprocess.run([sys.executable, "-c", FINGERPRINTS], capture_output=True, text=True, check=True, cwd=ROOT)
    methods = [fingerprint(build(name), "float64") for name in METHODS]
    problems = [fingerprint(named(name)[:2], "float64") for name in NAMED]
    assert json.loads(done.stdout) == methods + problems
    assert len(set(problems)) == len(problems)


def test_a_fingerprint_sees_every_bit_and_no_way_of_writing():
    table = np.array([[0.25, 0.5]])
    nearly = np.nextafter(table, 1.0)
    prints = [
        fingerprint(tree, "float64")
        for tree in [
            Bandit(table),
            Bandit(jnp.asarray(table)),
            Bandit(nearly),
            Bandit(table, weights=0.5),
            (Bandit(table), 1),
            (Bandit(table), 1.0),
        ]
    ]
    assert [prints.index(each) for each in prints] == [0, 0, 2, 3, 4, 4]


FAULTS = [
    (changed(stepz=3), r"unknown key 'stepz'; did you mean 'steps'\? \(known: steps, .*\)"),
    (
        {"steps": 3, "problem": "mei"},
        r'method is missing; wanted method = "rloo" or a table \[\[method\]\] with a name',
    ),
    ({"problem": "mei", "method": "pg"}, r"steps is missing; wanted steps = 1000"),
    (changed(steps=0), r"steps is 0; wanted a whole number ≥ 1"),
    (changed(steps="ten"), r"steps is 'ten'; wanted a whole number ≥ 1"),
    (changed(every=2.5), r"every is 2\.5; wanted a whole number ≥ 1"),
    (changed(seeds=0), r"seeds is 0; wanted a whole number ≥ 1"),
    (changed(seeds=[]), r"seeds is \[\]; wanted a count or a list of seeds: seeds = 20 or seeds = \[0, 1\]"),
    (changed(seeds=[0, -1]), r"a seed is -1; wanted a whole number ≥ 0"),
    (changed(seeds=[0, 1, 0]), r"seeds holds 0 twice; wanted every seed once"),
    (changed(seeds=[2**31]), r"a seed is 2147483648; wanted at most 2147483647"),
    (changed(dtype="float46"), r"unknown dtype 'float46'; did you mean 'float64'\? \(known: float32, float64\)"),
    (changed(problem=[]), r'problem is \[\]; wanted problem = "pool" or a table .*'),
    (changed(problem=3), r'problem is 3; wanted problem = "pool" or a table .*'),
    (changed(problem=["mei", 3]), r"problem\[2\] is 3; wanted .*"),
    (changed(problem={"prompts": 3}), r"problem\.name is missing; wanted .*"),
    (changed(problem={"name": 3}), r"problem\.name is 3; wanted text in quotes"),
    (changed(problem="pol"), r"unknown problem\.name 'pol'; did you mean 'pool'\? \(known: .*\)"),
    (changed(problem=["mei", {"name": ["mirror", "pol"]}]), r"unknown problem\[2\]\.name 'pol'; did you mean 'pool'.*"),
    (changed(problem="none.csv"), r"problem: .*none\.csv: no such file"),
    (
        changed(problem={"name": "pool", "promts": 3}),
        r"unknown key of problem \(pool\) 'promts'; did you mean 'prompts'.*",
    ),
    (
        changed(problem={"name": "mei", "seed": 3}),
        r"unknown key of problem \(mei\) 'seed' \(known: start, temperature\)",
    ),
    (
        changed(problem={"name": "pool", "prompts": "a"}),
        r"problem\.prompts is 'a'; wanted a number, or a list of numbers",
    ),
    (changed(problem={"name": "pool", "prompts": True}), r"problem\.prompts is True; wanted a number, or a list .*"),
    (changed(problem={"name": "pool", "prompts": 0}), r"problem\.prompts is 0; wanted a whole number ≥ 1"),
    (changed(problem={"name": "pool", "prompts": []}), r"problem\.prompts is \[\]; wanted a value, or a list of .*"),
    (
        changed(problem={"name": "pool", "prompts": [[1]]}),
        r"problem\.prompts holds a list in a list; wanted one list .*",
    ),
    (changed(problem={"name": "pool", "prompts": [1, 1]}), r"problem\.prompts holds 1 twice; wanted every value once"),
    (changed(problem={"name": "own.json", "size": 3}), r"unknown key of problem \(own\.json\) 'size'.*"),
    (changed(problem={"name": "own.json", "columns": 3}), r"problem\.columns is 3; wanted a table: columns = \{.*\}"),
    (
        changed(problem={"name": "mei", "start": "unifrom"}),
        r"problem\.start is 'unifrom'; wanted 'own', 'uniform' or a .*",
    ),
    (changed(problem={"name": "mei", "start": 3}), r"problem\.start is 3; wanted text in quotes"),
    (
        changed(problem={"name": "mei", "start": "own.json"}),
        r"problem\.start is 'own\.json', of shape \(1, 2\); wanted .*",
    ),
    (changed(problem={"name": "mei", "temperature": 0}), r"problem\.temperature is 0; wanted a finite number in .*"),
    (changed(problem={"name": "mei", "temperature": "hot"}), r"problem\.temperature is 'hot'; wanted a number"),
    (
        changed(problem="mei", method={"name": "pg", "update": "own"}),
        r"unknown method\.update 'own' \(known: pg, npg\)",
    ),
    (changed(problem=["mei", "mei"]), r"two cells are the same \(mei, rloo, step_size 0\.1\); wanted every .* once"),
    (changed(method="klcov"), r"unknown method\.name 'klcov'; did you mean 'kl_cov'\? \(known: .*\)"),
    (
        changed(method={"name": "rloo", "fraction": 0.1}),
        r"unknown key of method \(rloo\) 'fraction' \(known: mode, .*\)",
    ),
    (
        changed(method=["pg", {"name": "kl_cov", "fraction": 20}]),
        r"method\[2\]\.fraction is 20\.0; wanted a fraction .*",
    ),
    (changed(method={"name": "kl_cov", "fraction": "a"}), r"method\.fraction is 'a'; wanted a number, or a list of .*"),
    (changed(method={"name": "kl_cov", "coefficient": np.nan}), r"method\.coefficient is nan; wanted a finite number "),
    (changed(method={"name": "rloo", "step_size": -1}), r"method\.step_size is -1; wanted a finite number in .*"),
    (changed(method={"name": "rloo", "step_size": "a"}), r"method\.step_size is 'a'; wanted a number, or a list .*"),
    (changed(method={"name": "rloo", "step_size": []}), r"method\.step_size is \[\]; wanted a value, or a list of .*"),
    (changed(method={"name": "rloo", "mode": "exat"}), r"unknown method\.mode 'exat'; did you mean 'exact'\? .*"),
    (changed(method={"name": "rloo", "update": "ngp"}), r"unknown method\.update 'ngp'; did you mean 'npg'\? .*"),
    (changed(method={"name": "rloo", "inner_steps": 0}), r"method\.inner_steps is 0; wanted a whole number ≥ 1"),
    (changed(method={"name": "rloo", "groups": 0}), r"method\.groups is 0; wanted a whole number ≥ 1"),
    (changed(method={"name": "rloo", "groups": 1.5}), r"method\.groups is 1\.5; wanted a whole number ≥ 1"),
    (
        changed(method={"name": "rloo", "mode": "exact", "groups": 4}),
        r"method\.groups is given, and mode 'exact' has no groups; wanted mode = 'sampled'",
    ),
    (
        changed(method={"name": "pg", "mode": "sampled"}),
        r"method\.mode is 'sampled', and pg is exact; wanted a method that draws: reinforce, rloo",
    ),
    (
        changed(method={"name": "trpo", "step_size": 0.1}),
        r'method\.step_size is given, and trpo finds its own; wanted max_kl, or an update: "npg"',
    ),
    (
        changed(steps=10**9, every=1),
        r"one run records 1,000,000,000 steps, about 179 GiB; wanted at most 1 GiB: every = 200",
    ),
    (
        changed(problem={"name": "pool", "seed": list(range(2000)), "correct": [i / 1000 for i in range(1, 101)]}),
        r"200,000 problems × 4 methods = 800,000 cells × 5 seeds are 4,000,000 runs; wanted at most 100,000 cells",
    ),
]


@pytest.mark.parametrize(("spec", "line"), FAULTS, ids=[line[:60] for _, line in FAULTS])
def test_a_wrong_spec_is_one_line(spec, line, tmp_path):
    (tmp_path / "own.json").write_text(json.dumps({"rewards": [1, 0]}))
    with pytest.raises(InputError, match=f"^{line}$") as fault:
        plan_of(spec, tmp_path)
    assert "\n" not in str(fault.value)


def test_more_runs_than_can_be_listed_are_one_line(monkeypatch):
    monkeypatch.setattr("softmaxdyn.sweeps.plan._MOST_RUNS", 40)
    with pytest.raises(InputError, match=r"^the sweep has 48 runs; wanted at most 40: fewer seeds or values$"):
        plan_of(SPEC)


def test_problems_that_memory_cannot_hold_are_one_line(monkeypatch):
    monkeypatch.setattr("softmaxdyn.sweeps.spec.MEMORY", 100)
    with pytest.raises(
        InputError, match=r"^problem\[2\]: the tables of all problems are too large; wanted at most .* MiB$"
    ):
        plan_of(SPEC)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, r"no such file; wanted a spec in TOML"),
        (b"steps = ", r"is not valid TOML: .*"),
        (b"steps = 3\nsteps = 4", r"is not valid TOML: .*"),
        (b"\xff", r"is not UTF-8 text"),
        (b'steps = 3\nproblem = "mei"\nmethod = "klcov"', r"unknown method\.name 'klcov'; did you mean .*"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(content, line, tmp_path):
    path = tmp_path / "sweep.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: {line}$"):
        read_spec(path)
    with pytest.raises(InputError, match="is a folder; wanted a spec in TOML$"):
        read_spec(tmp_path)


def test_float64_needs_a_jax_of_64_bits():
    with jax.enable_x64(False):
        with pytest.raises(
            InputError, match=r"^dtype is float64, but JAX is set to 32 bits; jax\.config\.update\('jax_"
        ):
            plan_of(SPEC)
        assert plan_of(changed(dtype="float32")).cells


def test_a_method_that_finds_its_step_size_has_none():
    (cell,) = plan_of(changed(problem="mei", method="trpo")).cells
    assert np.isnan(cell.labels["step_size"])
    assert isinstance(cell.algorithm.update, TRPO)
    (cell,) = plan_of(changed(problem="mei", method={"name": "trpo", "update": "npg", "step_size": 0.5})).cells
    assert repr(cell.algorithm.update) == repr(NaturalPG(0.5))


def test_no_number_of_a_method_hides_a_result():
    numbers = [name for method in METHODS.values() for name in method.numbers]
    hidden = {*numbers} & {*FIELDS, *MEASURES}
    assert hidden == {"bound"}
    spec = changed(method=[{"name": name, "bound": [2.0, 3.0]} for name in METHODS if "bound" in METHODS[name].numbers])
    assert all("method_bound" in cell.labels for cell in plan_of(spec).cells)


def test_a_number_that_a_problem_and_a_method_share_has_two_labels():
    grid = {"name": "gridworld", "size": 2, "discount": [0.5, 0.9]}
    (cell, *_) = plan_of(changed(problem=grid, method={"name": "reinforce_pp", "discount": [0.7, 1.0]})).cells
    assert [cell.labels[f"{kind}_discount"] for kind in ("problem", "method")] == [0.5, 0.7]


def test_a_sweep_that_the_disk_cannot_hold_says_what_would_fit():
    with pytest.raises(
        InputError,
        match=r"^48 runs × 7 recorded steps need about 3 GiB, and here is 1 GiB; wanted every = 9, or ",
    ):
        refuse_too_large(PLAN, 3 * 2**30, 2**30, "here is")
    with pytest.raises(InputError, match=r"is 0 MiB; wanted fewer runs, or another folder$"):
        refuse_too_large(PLAN, 3 * 2**30, 0, "here is")
    refuse_too_large(PLAN, 2**30, 2**30, "here is")


def test_seeds_are_a_count_or_a_list():
    assert check_seeds(3) == check_seeds(range(3)) == check_seeds(np.arange(3)) == (0, 1, 2)
    assert check_seeds([7, 2]) == (7, 2)


def test_a_plan_needs_a_cell():
    with pytest.raises(InputError, match=r"^the sweep has no cell; wanted at least one problem and one method$"):
        make_plan([], seeds=1, num_steps=1, every=1, dtype="float64", lines=[])


@pytest.mark.parametrize("bytes_of_a_block", [1, 10_000, 10**9])
def test_every_run_is_in_one_block_and_the_runs_of_a_cell_follow_each_other(monkeypatch, bytes_of_a_block):
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", bytes_of_a_block)
    layout = make_layout(PLAN, families(PLAN))
    runs = list(zip(layout.cell.tolist(), layout.seed.tolist(), strict=True))
    wanted = [(cell, seed) for family in families(PLAN) for cell in family for seed in PLAN.seeds_of(cell)]
    assert runs == wanted
    ends = np.cumsum([len(block.cell) for block in layout.blocks]).tolist()
    assert [block.first for block in layout.blocks] == [0, *ends[:-1]]
    assert len({block.name for block in layout.blocks}) == len(layout.blocks)
    assert max(len(block.cell) for block in layout.blocks) == min(max(1, bytes_of_a_block // PLAN.run_bytes), 32)


def long_plan(actions, num_steps, seeds):
    cell = Cell({"problem": "p"}, setting(Bandit(np.arange(float(actions))), np.zeros((1, actions))), build("rloo"), 1)
    return make_plan([cell], seeds=seeds, num_steps=num_steps, every=num_steps, dtype="float64", lines=[])


@pytest.mark.parametrize(
    ("actions", "num_steps", "seeds", "call", "block"),
    [
        (2, 10, 3, 3, 1024),  # no more than there are
        (2, 10, 100_000, 1021, 1024),  # 98 calls alike
        (2, 10, 4096, 1024, 1024),
        (1024, 10, 4096, 16, 1024),  # tables that stay in the cache
        (2**15, 10, 4096, 1, 1024),
        (1024, 2**20, 4096, 16, 64),  # minutes at most between two files
        (1024, 2**27, 4096, 1, 1),
        (1024, 10, 64, 8, 1024),  # devices share a family
    ],
)
def test_a_call_fits_the_cache_and_a_file_comes_often(actions, num_steps, seeds, call, block):
    plan = long_plan(actions, num_steps, seeds)
    assert (call_size(plan, 0, seeds), block_size(plan, 0)) == (call, block)
