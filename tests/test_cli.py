"""The command line: what `run` prints and writes, and that every fault is one line and leaves nothing half-written."""

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from softmaxdyn import InputError, Trace, cli, plots, results
from softmaxdyn.cli.output import WRITTEN
from softmaxdyn.problems.named import named_options
from softmaxdyn.results import visit_mean

ROOT = Path(__file__).parents[1]
HEADINGS = ["expected_return", "entropy", "entropy_change", "lemma_1", None, "remainder", "bound"]


def invoke(*arguments):
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def run(*arguments):
    done = invoke("run", *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


@pytest.fixture
def no_figure(monkeypatch):
    """Drawing takes a second and has tests of its own."""
    monkeypatch.setattr(plots, "dynamics", lambda traces: None)
    monkeypatch.setattr(plots, "save_figure", lambda figure, stem: [])


@pytest.fixture
def traced(no_figure, tmp_path):
    """A function that runs one update and gives its trace."""

    def trace(*arguments, update="npg"):
        run("--update", update, "--steps", 3, "--out", tmp_path, *arguments)
        return Trace.load(tmp_path / f"dynamics_{update}.nc")

    return trace


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """(folder, what was printed) of `softmaxdyn run` without arguments."""
    folder = tmp_path_factory.mktemp("default")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder / "softmaxdyn-out", run()


def test_run_needs_no_arguments_and_writes_traces_and_a_figure(default):
    folder, _ = default
    assert sorted(os.listdir(folder)) == ["dynamics.png", "dynamics.svg", "dynamics_npg.nc", "dynamics_pg.nc"]


@pytest.mark.parametrize("update", ["PG", "NPG"])
def test_the_printed_numbers_are_those_of_the_file(default, update):
    folder, printed = default
    trace = Trace.load(folder / f"dynamics_{update.lower()}.nc")
    table = re.search(rf"\n{update}: .*?\n(.*?)\n{update} ends", printed, re.DOTALL).group(1)
    rows = [line.split() for line in table.splitlines()[2:]]
    names = ["step", *(name or plots.THEOREMS[update] for name in HEADINGS)]
    assert len(rows) == 12
    for row in rows:
        at = int(row[0])
        for name, text in zip(names[1:], row[1:], strict=True):
            value = trace.expected_return[at] if name == "expected_return" else visit_mean(trace, name)[at]
            digits = 5e-6 if name in ("expected_return", "entropy") else 0.0
            assert float(text) == pytest.approx(value, rel=5e-4, abs=digits)


def test_the_first_and_the_last_step_are_printed(default):
    steps = re.findall(r"^ *(\d+) ", default[1], re.MULTILINE)
    assert [steps[i] for i in (0, 11, 12, 23)] == ["0", "399", "0", "399"]


@pytest.mark.parametrize("update", ["PG", "NPG"])
def test_the_closing_line_states_the_end(default, update):
    folder, printed = default
    trace = Trace.load(folder / f"dynamics_{update.lower()}.nc")
    ending = f"{update} ends at J = {trace.final_expected_return:.6g} with H = {trace.final_entropy[0]:.6g} nats"
    assert ending in printed.splitlines()


def test_every_file_of_a_run_is_one_that_a_folder_may_not_stand_for(default):
    assert all(any(fnmatch(name, known) for known in WRITTEN["run"]) for name in os.listdir(default[0]))


def test_run_says_what_it_wrote(default):
    names = ["dynamics_pg.nc", "dynamics_npg.nc", "dynamics.png", "dynamics.svg"]
    assert default[1].splitlines()[-1] == "wrote " + ", ".join(os.path.join("softmaxdyn-out", name) for name in names)


def test_the_default_problem_shows_entropy_that_rises_and_falls(default):
    for update in "pg", "npg":
        change = Trace.load(default[0] / f"dynamics_{update}.nc").entropy_change
        assert change.max() > 1e-3
        assert change.min() < -1e-3


def test_a_file_says_how_it_was_made(no_figure, tmp_path):
    import xarray

    run("--problem", "testbed", "--seed", 7, "--update", "pg", "--steps", 2, "--out", tmp_path)
    with xarray.open_dataset(tmp_path / "dynamics_pg.nc") as dataset:
        assert dataset.attrs["seed"] == 7
        assert dataset.attrs["command"].startswith("softmaxdyn run --problem testbed --seed 7")
        assert dataset.attrs["setting"].startswith("testbed, seed 7")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_a_run_is_that_of_its_file(traced, dtype):
    assert traced("--dtype", dtype).entropy.dtype == dtype


def test_the_command_line_runs_in_float64_and_leaves_room_for_float32(traced):
    single, double = traced("--dtype", "float32"), traced()
    np.testing.assert_allclose(single.entropy_change, double.entropy_change, rtol=1e-5)
    assert jax.config.jax_enable_x64


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(traced):
    first, again, other = (traced("--problem", "testbed", "--seed", seed) for seed in (1, 1, 2))
    assert first.expected_return.tobytes() == again.expected_return.tobytes()
    assert first.expected_return[0] != other.expected_return[0]


def test_every_thins_the_rows_and_not_the_steps(traced):
    full, thin = traced("--steps", 7), traced("--steps", 7, "--every", 3)
    assert thin.step.tolist() == [0, 3, 6]
    assert thin.final_entropy == full.final_entropy


def test_the_default_step_of_pg_is_that_of_each_prompt(traced):
    algorithm = dict(traced("--problem", "pool", "--prompts", 8, "--actions", 4, update="pg").provenance)["algorithm"]
    assert "VanillaPG(step_size=3.2)" in algorithm  # 0.4 × 8: a prompt's own step is η/8


def test_options_reach_the_problem(traced):
    pool = traced("--problem", "pool", "--prompts", 3, "--actions", 5, "--correct", 0.4, "--spread", 0)
    assert pool.logits.shape == (3, 5)
    assert pool.expected_return[0] == pytest.approx(0.4, rel=1e-14)
    assert traced("--problem", "testbed", "--arms", 4, "--runs", 2).logits.shape == (2, 4)


def test_a_file_is_a_problem(traced, tmp_path):
    (tmp_path / "three.json").write_text(json.dumps({"rewards": [1, 0, 0], "probabilities": [0.5, 0.25, 0.25]}))
    assert traced("--problem", tmp_path / "three.json").expected_return[0] == pytest.approx(0.5, rel=1e-14)


def test_columns_of_a_file_are_named(traced, tmp_path):
    (tmp_path / "shop.csv").write_text("item,clicks\n0,1\n1,0\n2,0.5\n")
    columns = ["--column", "action=item", "--column", "reward=clicks"]
    assert traced("--problem", tmp_path / "shop.csv", *columns).expected_return[0] == pytest.approx(0.5, rel=1e-14)


def test_pass_counts_are_a_pool_of_prompts(traced, tmp_path):
    (tmp_path / "counts.csv").write_text("n,correct\n4,1\n4,3\n4,0\n")
    counts = traced("--problem", tmp_path / "counts.csv", "--actions", 6, "--correct", 2)
    assert counts.logits.shape == (3, 6)
    assert counts.expected_return[0] == pytest.approx((0.25 + 0.75 + 0.0) / 3, rel=1e-14)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ({"rewards": [1.0]}, "nothing moves"),
        ({"rewards": [[1, 0], [2, 2]]}, "note: nothing moves in 1 of 2 states: their actions all earn the same"),
        ({"rewards": [[1, 0], [0, 1]]}, "note: the table and the figure show means over the 2 states, weighted with"),
    ],
)
def test_what_a_reader_must_know_is_noted(no_figure, tmp_path, content, note):
    (tmp_path / "file.json").write_text(json.dumps(content))
    assert note in run("--problem", tmp_path / "file.json", "--steps", 2, "--update", "pg", "--out", tmp_path)


def test_a_step_below_one_ulp_is_noted(no_figure, tmp_path):
    printed = run("--step-size", 1e-30, "--steps", 2, "--update", "pg", "--out", tmp_path)
    assert "note: every step of PG is below one ulp of the logits, so its policy stays" in printed


def test_numbers_are_whole_in_a_narrow_window(no_figure, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    printed = run("--steps", 3, "--update", "pg", "--out", tmp_path)
    assert "…" not in printed
    assert len(re.findall(r"-?\d\.\d{3}e[+-]\d\d", printed)) == 3 * 5


def test_help_and_version():
    assert "run" in invoke().stdout
    assert "--step-size" in invoke("run", "--help").stdout
    assert invoke("--version").stdout == f"softmaxdyn, version {sys.modules['softmaxdyn'].__version__}\n"


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_option_of_a_named_setting_is_one_of_the_command_and_none_hides_another(command):
    names = [parameter.name for parameter in cli.main.commands[command].params]
    assert named_options().keys() <= set(names)
    assert len(names) == len(set(names))


def test_an_option_has_the_type_that_settings_take_and_says_which_do():
    options = {parameter.name: parameter for parameter in cli.main.commands["run"].params}
    kinds = {name: options[name].type.name for name in ("depth", "actions", "correct", "discount", "smoothing")}
    assert kinds == {"depth": "integer", "actions": "integer"} | dict.fromkeys(
        ("correct", "discount", "smoothing"), "float"
    )
    assert "parity (4)" in options["depth"].help


def test_the_help_of_correct_says_where_it_is_a_share_and_where_a_number():
    (text,) = (parameter.help for parameter in cli.main.commands["run"].params if parameter.name == "correct")
    assert text == (
        "pool (0.1): the share of the actions that are correct, in (0, 1); "
        "pass counts: how many of the actions are correct, a whole number."
    )


FAULTS = [
    (["rum"], r"unknown command 'rum'; did you mean 'run'\? \(known: .*run.*\)"),
    (["run", "--stepz", "3"], r"unknown option '--stepz'; did you mean '--steps'\? \(known: .*\)"),
    (["run", "--steps", "0"], r"--steps is 0; wanted a whole number ≥ 1"),
    (["run", "--steps", "ten"], r"Invalid value for '--steps': 'ten' is not a valid integer\."),
    (["run", "--every", "0"], r"--every is 0; wanted a whole number ≥ 1"),
    (["run", "--seed", "-1"], r"--seed is -1; wanted a whole number ≥ 0"),
    (["run", "--step-size", "nan"], r"--step-size is nan; wanted a finite number ≥ 0"),
    (["run", "--step-size", "-1"], r"--step-size is -1\.0; wanted a finite number ≥ 0"),
    (["run", "--update", "ngp"], r"unknown update 'ngp'; did you mean 'npg'\? \(known: pg, npg\)"),
    (["run", "--dtype", "float46"], r"unknown dtype 'float46'; did you mean 'float64'\? \(known: float32, float64\)"),
    (["run", "--problem", "wrong_peek"], r"unknown problem 'wrong_peek'; did you mean 'wrong_peak'\? \(known: .*\)"),
    (["run", "--problem", "none.csv"], r"none\.csv: no such file"),
    (["run", "--problem", "torn.json"], r"torn\.json: .*"),
    (
        ["run", "--problem", "torn.json", "--prompts", "3"],
        r"--prompts is for a named problem; 'torn\.json' is a file and says itself what the problem is",
    ),
    (["run", "--problem", "pool", "--arms", "3"], r"unknown option of pool 'arms'.*"),
    (["run", "--problem", "parity", "--arms", "3"], r"unknown option of parity 'arms' \(known: depth, vocabulary\)"),
    (["run", "--problem", "parity", "--depth", "0"], r"depth is 0; wanted a whole number ≥ 1"),
    (["run", "--problem", "parity", "--depth", "2.5"], r"Invalid value for '--depth': '2\.5' is not a valid integer\."),
    (
        ["run", "--problem", "gridworld", "--depth", "3"],
        r"unknown option of gridworld 'depth' \(known: size, discount\)",
    ),
    (["compare", "kl_cov", "--problem", "cliff", "--size", "3"], r"unknown option of cliff 'size' \(known: discount\)"),
    (["run", "--column", "reward=clicks"], r"--column is for files; 'mirror' is a named problem"),
    (
        ["run", "--problem", "torn.json", "--column", "clicks"],
        r"--column is 'clicks'; wanted NAME=COLUMN, e\.g\. --column reward=clicks",
    ),
    (["run", "--out", ""], r"--out is ''; wanted a folder, which is made if need be"),
    (
        ["run", "--out", "torn.json"],
        r"cannot write to 'torn\.json' \('torn\.json' is no folder\); pass another --out .*",
    ),
    (["run", "--out", "torn.json/new/a"], r"cannot write to 'torn\.json/new/a' \('torn\.json' is no folder\); pass .*"),
    (
        ["run", "--out", f"new/{'x' * 300}"],
        r"cannot write to 'new/x+' \(File name too long\); pass another --out FOLDER",
    ),
    (["run", "--out", "/proc/self"], r"cannot write to '/proc/self' \(.*\); pass another --out FOLDER"),
    (["run", "--method", "klcov"], r"unknown method 'klcov'; did you mean 'kl_cov'\? .*"),
    (["run", "--method", "kl_cov", "--fractoin", "0.1"], r"unknown option '--fractoin'; did you mean '--fraction'\?.*"),
    (["run", "--method", "kl_cov", "--fraction"], r"--fraction wants a number, e\.g\. --fraction 0\.02"),
    (["run", "--method", "kl_cov", "--fraction", "a"], r"--fraction wants a number, e\.g\. --fraction 0\.02"),
    (["run", "--method", "kl_cov", "--fraction", "20"], r"fraction is 20\.0; wanted a fraction in \(0, 0\.5\].*"),
    (["run", "--seeds", "0"], r"--seeds is 0; wanted a whole number ≥ 1"),
    (["run", "extra"], r"unexpected argument 'extra'; wanted options \(--help lists them\)"),
]


@pytest.mark.parametrize(("arguments", "line"), FAULTS, ids=[" ".join(arguments) for arguments, _ in FAULTS])
def test_a_fault_is_one_line_with_code_2_and_writes_nothing(arguments, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("torn.json").write_text('{"rewards": [1, 0')
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout, os.listdir()) == (2, "", ["torn.json"])
    assert re.fullmatch(f"softmaxdyn: {line}\n", done.stderr)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError("8 EiB"), InputError("too big")])
def test_output_that_fails_is_one_line_with_code_2(no_figure, tmp_path, monkeypatch, error):
    def fail(trace, path, attributes):
        with results.whole_file(path) as unfinished:
            unfinished.write_text("half")
            raise error

    monkeypatch.setattr(results, "save", fail)
    done = invoke("run", "--update", "pg", "--steps", 2, "--out", tmp_path)
    assert (done.exit_code, done.stdout, os.listdir(tmp_path)) == (2, "", [])
    assert done.stderr == f"softmaxdyn: {error}\n"


def test_a_folder_is_made_with_its_parents_and_stays_for_what_is_in_it(no_figure, tmp_path):
    run("--update", "pg", "--steps", 2, "--out", tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a" / "b") == ["dynamics_pg.nc"]


@pytest.mark.parametrize("out", [[], ["--out", "a/b"], ["--out", "here/b"]])
def test_a_folder_that_stays_empty_is_removed_and_no_other(no_figure, tmp_path, monkeypatch, out):
    def fail(trace, path, attributes):
        assert os.path.isdir(path.parent)
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "save", fail)
    os.mkdir("here")
    assert invoke("run", "--update", "pg", "--steps", 2, *out).exit_code == 2
    assert [str(path) for path in Path().rglob("*")] == ["here"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["run", "--method", "grpo"], "dynamics.png"),
        (["run"], "dynamics_pg.nc"),
        (["compare", "grpo"], "comparison.svg"),
        (["diagnose", "none.csv"], "diagnose.png"),
        (["law", "none.csv"], "law.png"),
        (["reproduce", "C16"], "ledger.md"),
        (["reproduce", "C16"], "claims/C16.png"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_found_before_anything_is_computed(tmp_path, monkeypatch, arguments, name):
    monkeypatch.chdir(tmp_path)
    os.makedirs(Path("out", name))
    done = invoke(*arguments, "--out", "out")
    assert (done.exit_code, done.stdout, [path for path in Path().rglob("*") if path.is_file()]) == (2, "", [])
    said = f"{str(Path('out', name))!r} is a folder, where a file is to go; rename it or pass another --out FOLDER"
    assert done.stderr == f"softmaxdyn: {said}\n"


JSON_FAULTS = [
    ("", r"--json is ''; wanted a file in a folder that exists"),
    (".", r"--json is '\.'; wanted a file in a folder that exists"),
    ("none/x.json", r"--json is 'none/x\.json'; wanted a file in a folder that exists"),
    ("loop", r"cannot write to 'loop' \(Too many levels of symbolic links\); pass another --json FILE"),
    ("x" * 300, r"cannot write to 'x+' \(File name too long\); pass another --json FILE"),
]


@pytest.mark.parametrize(("file", "line"), JSON_FAULTS)
def test_a_json_file_that_cannot_be_is_refused_before_anything_is_computed(tmp_path, monkeypatch, file, line):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    done = invoke("verify", "--json", file)
    assert (done.exit_code, done.stdout, os.listdir()) == (2, "", ["loop"])
    assert re.fullmatch(f"softmaxdyn: {line}\n", done.stderr)


def python(*arguments, cwd, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False)


def test_verify_holds_as_the_compiler_comes(tmp_path):
    """Without the flags that make the compiler of the other tests hurry: what users get. One width compiles faster."""
    code = """
from softmaxdyn import cli
from softmaxdyn.verification import cases
cases.SHARES, cases.SIZES = {100: 1.0}, {100: (2, 3, 30, 100)}
cli.main()
"""
    done = python("-c", code, "verify", "--cases", "1000", cwd=tmp_path, XLA_FLAGS="")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith("statements on 1,000 policies a dtype (seed 0): none is violated\n")


def test_python_m_is_the_command_and_its_faults_have_no_traceback(tmp_path):
    done = python("-m", "softmaxdyn", "run", "--update", "ngp", cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (2, "", [])
    assert done.stderr == "softmaxdyn: unknown update 'ngp'; did you mean 'npg'? (known: pg, npg)\n"


def test_a_run_needs_no_pyplot_no_display_and_no_greek(tmp_path):
    code = """
import atexit, sys
atexit.register(lambda: print(sorted({"matplotlib.pyplot", "tkinter"} & sys.modules.keys())))
from softmaxdyn.cli import main
main()
"""
    done = python("-c", code, "run", "--steps", "2", "--update", "pg", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "[]")


@pytest.mark.parametrize(
    "moment",
    [
        "results.save = half_way",  # while a file is written
        "threading.Timer(2.0, press).start()",  # while JAX compiles or computes: one call of years
    ],
)
def test_ctrl_c_is_one_line_with_code_130_and_leaves_nothing(tmp_path, moment):
    code = f"""
import os, signal, threading, time
from softmaxdyn import cli, results

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

def press():
    os.kill(os.getpid(), signal.SIGINT)

def half_way(trace, path, attributes):
    with results.whole_file(path) as unfinished:
        unfinished.write_text("half")
        press()
        time.sleep(60)

{moment}
cli.main()
"""
    steps = ["--steps", "2"] if "save" in moment else ["--steps", 10**15, "--every", 10**14]
    done = python("-c", code, "run", "--update", "pg", *map(str, steps), "--out", "a/b", cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (130, "", [])
    assert done.stderr == "softmaxdyn: interrupted; no file was left half-written\n"
