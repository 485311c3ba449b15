"""`softmaxdyn sweep`: what it prints and writes, and that stopping it costs one line and nothing else."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from softmaxdyn import InputError, cli, simulate
from softmaxdyn.cli.sweep import STOPPED, speed
from softmaxdyn.comparison import interval
from softmaxdyn.sweeps.loop import Progress
from softmaxdyn.sweeps.spec import read_spec
from tests.sweep_machine import MACHINE

ROOT = Path(__file__).parents[1]
SPEC = """
steps = 20
every = 3
seeds = 4
problem = ["mei", "mirror"]
[[method]]
name = "rloo"
step_size = [0.1, 0.2]
[[method]]
name = "pg"
update = "npg"
"""
NAMES = ["sweep.nc", "sweep_summary.nc"]


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(cli.sweep, "own_machine", lambda: MACHINE)


def invoke(*arguments):
    return CliRunner().invoke(cli.main, ["sweep", *map(str, arguments)])


def run(*arguments):
    done = invoke(*arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


@pytest.fixture
def done(fake, spec):
    """(folder, what was printed) of a sweep."""
    return spec.parent / "out", run(spec, "--out", spec.parent / "out")


def test_it_says_what_will_run_and_what_it_wrote(done):
    folder, printed = done
    assert printed.splitlines()[0] == (
        "6 cells × 4 seeds: 18 runs of 20 steps, 7 of them recorded, float64; 1 program, about 0.0231 MiB"
    )
    assert printed.splitlines()[-1] == f"wrote {folder / 'sweep.nc'}, {folder / 'sweep_summary.nc'}"
    assert set(NAMES) <= {path.name for path in folder.iterdir()}


def test_the_table_has_a_row_a_cell_with_the_mean_over_its_runs_and_its_interval(done):
    folder, printed = done
    rows = [line for line in printed.splitlines() if line.startswith(("mei ", "mirror "))]
    with xarray.open_dataset(folder / "sweep.nc") as table:
        for number, row in enumerate(rows):
            runs = table.sel(run=table.cell == number)
            one = runs.isel(run=0)
            assert row.split()[:3] == [one.problem.item(), one.method.item(), f"{one.step_size.item():g}"]
            mean, low, high = interval(runs.final_expected_return.values)
            shown = f"{mean:.4g} [{low:.4g}, {high:.4g}]" if low < high else f"{mean:.4g}"
            assert f" {runs.sizes['run']} " in row
            assert f" {shown} " in row
    assert len(rows) == 6


def test_a_finished_sweep_is_said_to_be(done, spec, monkeypatch):
    monkeypatch.setattr(MACHINE.make, "__init__", None)
    again = run(spec, "--out", done[0])
    assert again.splitlines()[1] == "nothing to compute: every run of this sweep is there"
    assert again.splitlines()[2:] == done[1].splitlines()[1:]


def test_a_sweep_that_goes_on_says_what_was_there_and_what_was_damaged(fake, spec, monkeypatch):
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", 5 * read_spec(spec).run_bytes)
    folder = spec.parent / "out"
    run(spec, "--out", folder)
    before = [(folder / name).read_bytes() for name in NAMES]
    (folder / "finished.json").unlink()
    (folder / "blocks" / "0-000001.npz").write_bytes(b"")
    (folder / "blocks" / "0-000002.npz").unlink()
    again = run(spec, "--out", folder).splitlines()
    path = folder / "blocks" / "0-000001.npz"
    assert again[1] == f"note: {path} is damaged or no block; it is computed again"
    assert again[2] == "went on: 2 of 4 blocks were there"
    assert [(folder / name).read_bytes() for name in NAMES] == before


def test_a_long_table_is_cut_and_says_where_the_rest_is(fake, spec, monkeypatch):
    monkeypatch.setattr(cli.sweep, "ROWS", 2)
    printed = run(spec, "--out", spec.parent / "out")
    assert "mean over the runs and its 95 % bootstrap interval; 4 more cells in sweep_summary.nc" in printed
    assert sum(line.startswith(("mei ", "mirror ")) for line in printed.splitlines()) == 2


def test_a_run_of_a_sweep_is_a_run_of_simulate(spec):
    text = SPEC.replace('["mei", "mirror"]', '"mei"').replace("[0.1, 0.2]", "0.1").replace("seeds = 4", "seeds = 2")
    spec.write_text(text.partition('[[method]]\nname = "pg"')[0])
    run(spec, "--out", spec.parent / "out")
    (cell,) = read_spec(spec).cells
    with xarray.open_dataset(spec.parent / "out" / "sweep.nc") as table:
        for row, seed in enumerate((0, 1)):
            options = {"num_steps": 20, "every": 3, "logits": cell.setting.logits, "key": jax.random.key(seed)}
            trace = simulate(cell.setting.problem, cell.algorithm, **options)
            one = table.isel(run=row)
            assert one.seed == seed
            for name in ("expected_return", "final_expected_return", "trajectory_entropy"):
                np.testing.assert_allclose(one[name], getattr(trace, name), rtol=1e-12)
            np.testing.assert_allclose(one.entropy_change, trace.entropy_change[:, 0], rtol=1e-10)


FAULTS = [
    ([], r"Missing argument 'SPEC'\."),
    (["spec.toml"], r"Missing option '--out'\."),
    (["none.toml", "--out", "out"], r"none\.toml: no such file; wanted a spec in TOML"),
    (["torn.toml", "--out", "out"], r"torn\.toml: is not valid TOML: .*"),
    (["wrong.toml", "--out", "out"], r"wrong\.toml: unknown method\.name 'klcov'; did you mean 'kl_cov'\? .*"),
    (["spec.toml", "--out", "torn.toml"], r"cannot write to 'torn\.toml' \(File exists\); wanted another folder"),
    (["spec.toml", "--out", "."], r"'\.' holds other files \(spec\.toml\); wanted an empty or a new folder"),
    (["spec.toml", "--out", "out", "--devices", "0"], r"--devices is 0; wanted a whole number ≥ 1"),
    (["spec.toml", "--out", "out", "--devices", "999"], r"--devices is 999; wanted at most \d+, the cores here"),
    (["spec.toml", "--out", "out", "--device", "2"], r".*--device.*"),
]


@pytest.mark.parametrize(("arguments", "line"), FAULTS, ids=[" ".join(arguments) for arguments, _ in FAULTS])
def test_a_fault_is_one_line_with_code_2_and_makes_no_folder(fake, spec, monkeypatch, arguments, line):
    monkeypatch.chdir(spec.parent)
    Path("torn.toml").write_text("steps = ")
    Path("wrong.toml").write_text('steps = 3\nproblem = "mei"\nmethod = "klcov"')
    done = invoke(*arguments)
    assert (done.exit_code, sorted(os.listdir())) == (2, ["spec.toml", "torn.toml", "wrong.toml"])
    assert re.fullmatch(f"softmaxdyn: {line}\n", done.stderr)


@pytest.mark.parametrize("error", [InputError("the plan is too large"), OSError(28, "No space left on device")])
def test_what_stops_a_sweep_is_one_line_with_code_2(fake, spec, monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr("softmaxdyn.sweeps.loop.write_table", fail)
    done = invoke(spec, "--out", spec.parent / "out")
    line = str(error) if isinstance(error, InputError) else "no room left in .* \\(No space left on device\\); .*"
    assert (done.exit_code, bool(re.fullmatch(f"softmaxdyn: {line}\n", done.stderr))) == (2, True)


def test_the_speed_is_that_since_the_first_report():
    before, now = Progress(10, 110, 1000, 11_000), Progress(60, 110, 6000, 11_000)
    assert speed(time.monotonic(), before, before) == "10 of 110 runs, compiling"
    assert re.fullmatch(
        r"60 of 110 runs, (49|50)(\.\d)? runs/s, (4\.9\d|5|5e)e\+03 steps × states × actions/s",
        speed(time.monotonic() - 1.0, before, now),
    )


SLOW = """
import signal, sys, time
from softmaxdyn import cli
from softmaxdyn.sweeps import layout
from softmaxdyn.sweeps.loop import Machine
from tests.sweep_machine import Numbers, families

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
layout.BLOCK_BYTES = 0
pause = float(sys.argv.pop(1))

class Slow(Numbers):
    def __call__(self, cell, seed):
        time.sleep(pause if self.calls > 2 else 0.0)
        return super().__call__(cell, seed)

cli.sweep.own_machine = lambda: Machine(families, lambda plan, cells, block, devices: Slow(plan, cells, 1, devices))
cli.main()
"""


def started(spec, pause, *more, **streams):
    command = [sys.executable, "-c", SLOW, str(pause), "sweep", "spec.toml", "--out", "out", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": "1"}
    return subprocess.Popen(command, cwd=spec.parent, env=environment, text=True, **streams)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_one_line_and_the_same_command_goes_on_to_the_same_bits(fake, spec, monkeypatch, number):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(spec, 60.0, **pipes) as process:
        out = spec.parent / "out"
        while len(list(out.glob("blocks/*.npz"))) < 3:
            time.sleep(0.02)
            assert process.poll() is None, process.stderr.read()
        process.send_signal(number)
        assert process.stderr.read() == f"softmaxdyn: {STOPPED}\n"
    assert process.returncode == 128 + number
    assert [path for path in out.rglob("*") if path.name.endswith(".part")] == []
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", 0)
    assert "went on: 3 of 18 blocks were there" in run(spec, "--out", out)
    run(spec, "--out", spec.parent / "other")
    assert [(out / name).read_bytes() for name in NAMES] == [
        (spec.parent / "other" / name).read_bytes() for name in NAMES
    ]


def test_on_a_terminal_a_bar_shows_runs_a_second_and_devices_share_the_runs(spec):
    ours, theirs = pty.openpty()
    with started(spec, 0.03, "--devices", "2", stdout=subprocess.PIPE, stderr=theirs) as process:
        printed = process.stdout.read()
    os.close(theirs)
    shown = os.read(ours, 10**6).decode()
    os.close(ours)
    assert process.returncode == 0, printed
    assert re.search(r"of 18 runs", shown)
    assert json.loads((spec.parent / "out" / "plan.json").read_text())["runs"] == 18


def test_two_processes_give_the_files_of_one_to_the_bit(spec, tmp_path):
    for folder, processes in (("one", 1), ("two", 2)):
        command = [sys.executable, "-m", "softmaxdyn", "sweep", str(spec), "--out", str(tmp_path / folder)]
        command += ["--processes", str(processes)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "wrote" in done.stdout
        assert "softmaxdyn:" not in done.stderr
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "0"], "--processes is 0; wanted a whole number ≥ 1"),
        (["--process-id", "1"], "--process-id and --coordinator go together"),
        (["--processes", "2", "--process-id", "2", "--coordinator", "a:1"], "--process-id is 2; wanted 0 … 1"),
        (["--processes", "2", "--process-id", "1", "--coordinator", "a"], "--coordinator is 'a'; wanted HOST:PORT"),
    ],
)
def test_a_wrong_team_is_one_line_with_code_2(spec, tmp_path, arguments, message):
    done = invoke(spec, "--out", tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"softmaxdyn: {message}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
