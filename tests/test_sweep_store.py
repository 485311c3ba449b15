"""The files of a sweep: whatever stops it, the same call goes on, and the result is the same to the bit."""

import errno
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from softmaxdyn import Algorithm, Bandit, InputError, KernelPG, Momentum, NaturalPG, Sampled, VanillaPG
from softmaxdyn.results import FIELDS
from softmaxdyn.sweeps import execute, loop, plan_of, sweep
from softmaxdyn.sweeps.grid import sized
from softmaxdyn.sweeps.layout import make_layout
from softmaxdyn.sweeps.loop import Machine, Progress
from softmaxdyn.sweeps.manifest import git_commit
from softmaxdyn.sweeps.netcdf import Disk, written
from softmaxdyn.sweeps.store import checksum, opened
from softmaxdyn.sweeps.summary import QUANTILES
from softmaxdyn.sweeps.table import write_table
from softmaxdyn.updates import TRPO, Restarted
from tests.sweep_machine import MACHINE, PLAN, RUNS, SPEC, Numbers, families

ROOT = Path(__file__).parents[1]
NAMES = ["sweep.nc", "sweep_summary.nc"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Three runs a file: 17 files."""
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", 3 * PLAN.run_bytes)


def content(folder):
    return [(folder / name).read_bytes() for name in NAMES]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """(folder, outcome) of a sweep that nothing stopped."""
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", 3 * PLAN.run_bytes)
        return folder, execute(PLAN, folder, machine=MACHINE)


@pytest.fixture
def copied(undisturbed, tmp_path):
    """A copy of its blocks, without the table."""
    folder = tmp_path / "out"
    shutil.copytree(undisturbed[0], folder)
    for name in NAMES:
        (folder / name).unlink()
    return folder


def numbers(cell, seed):
    """The results of one run by a second road."""
    run = np.sin(12.9898 * cell + 78.233 * seed)
    return run, np.sin(1e4 * run + np.arange(0, 20, 3))


def test_every_run_is_a_row_with_its_labels_and_numbers(undisturbed):
    with xarray.open_dataset(undisturbed[1].table) as table:
        assert dict(table.sizes) == {"run": RUNS, "step": 7, "intervention": 2}
        for row in range(RUNS):
            run = table.isel(run=row)
            cell = PLAN.cells[int(run.cell)]
            end, rows = numbers(int(run.cell), int(run.seed))
            np.testing.assert_array_equal(run.entropy, rows)
            np.testing.assert_array_equal([run.final_expected_return, run.final_entropy], [end, end**2])
            labels = {name: run[name].item() for name in ("problem", "method", "step_size", "mode")[:3]}
            assert labels == {name: cell.labels[name] for name in labels}
            three = cell.setting.logits.size == 3
            np.testing.assert_array_equal(run.selected[:, 0], rows)
            np.testing.assert_array_equal(run.selected[:, 1], rows * np.nan if three else -rows)
            np.testing.assert_array_equal(run.mean_length, rows + 1.0 if three else rows * np.nan)


def test_a_variable_says_what_it_is_and_the_file_where_it_comes_from(undisturbed):
    with xarray.open_dataset(undisturbed[1].table) as table:
        assert table.entropy.attrs["formula"] == FIELDS["entropy"].formula
        assert table.entropy.attrs["comment"] == "mean over the states, weighted with their visits"
        assert table.selected.dims == ("run", "step", "intervention")
        units = {name: table[name].attrs["units"] for name in ("entropy", "final_expected_return", "mean_length")}
        assert units == {"entropy": "nats", "final_expected_return": "reward", "mean_length": "tokens"}
        assert (table.attrs["spec"], table.attrs["sweep"]) == (PLAN.text, PLAN.hash)
        assert table.attrs["jax_version"] == jax.__version__
        assert table.attrs["git_commit"] == git_commit()
        assert set(table.coords) == {"cell", "problem", "method", "step_size", "seed", "step"}
        np.testing.assert_array_equal(table.step, PLAN.steps)


def test_the_summary_is_that_of_numpy_over_the_seeds_of_each_cell(undisturbed):
    with xarray.open_dataset(undisturbed[1].summary) as summary:
        np.testing.assert_array_equal(summary["quantile"], QUANTILES)
        for number in range(len(PLAN.cells)):
            cell = summary.sel(cell=number)
            ends, rows = map(np.array, zip(*(numbers(number, seed) for seed in PLAN.seeds_of(number)), strict=True))
            for name, values in {"entropy": rows, "final_expected_return": ends}.items():
                kept = {"rtol": 1e-12, "atol": 1e-14}
                np.testing.assert_allclose(cell[f"{name}_mean"], sum(values) / len(values), **kept)
                square = sum((values - sum(values) / len(values)) ** 2)
                deviation = np.sqrt(square / (len(values) - 1)) if len(values) > 1 else square * np.nan
                np.testing.assert_allclose(cell[f"{name}_std"], deviation, **kept)
                places = np.multiply(QUANTILES, len(values) - 1)
                ordered = np.sort(values, 0)
                low, high = ordered[np.floor(places).astype(int)], ordered[np.ceil(places).astype(int)]
                share = (places % 1.0).reshape(-1, *[1] * (values.ndim - 1))
                np.testing.assert_allclose(cell[f"{name}_quantile"], low + share * (high - low), **kept)
            assert cell.method.item() == PLAN.cells[number].labels["method"]


@pytest.mark.parametrize("held", [10, 40])
def test_a_summary_in_slabs_is_the_same(copied, undisturbed, monkeypatch, held):
    monkeypatch.setattr("softmaxdyn.sweeps.summary.HELD", held)
    outcome = execute(PLAN, copied, machine=IDLE)
    with xarray.open_dataset(outcome.summary) as slabs, xarray.open_dataset(undisturbed[1].summary) as whole:
        assert slabs.identical(whole)


def test_another_number_of_devices_gives_the_same_files(tmp_path, undisturbed):
    execute(PLAN, tmp_path, machine=MACHINE, devices=5)
    assert content(tmp_path) == content(undisturbed[0])


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_call_of_any_size_gives_the_same_blocks_and_no_run_twice(size):
    layout = make_layout(PLAN, families(PLAN))
    blocks = [block for block in layout.blocks if block.family == 0]
    runs, asked = sum(len(block.cell) for block in blocks), []

    class Runner:
        def __init__(self):
            self.size = size

        def __call__(self, cell, seed):
            asked.append(len(cell))
            return {"both": np.stack([cell, seed], 1).astype(float)}

    told = []
    found = list(loop.results(Runner(), blocks, told.append))
    assert [block for block, _ in found] == blocks
    for block, arrays in found:
        np.testing.assert_array_equal(arrays["both"], np.stack([block.cell, block.seed], 1))
    assert asked == [size] * -(-runs // size)
    assert sum(told) == runs


def test_progress_is_told_in_runs_and_numbers_up_to_all_of_them(tmp_path):
    told = []
    execute(PLAN, tmp_path, machine=MACHINE, progress=told.append)
    numbers = 20 * sum(len(PLAN.seeds_of(n)) * cell.setting.logits.size for n, cell in enumerate(PLAN.cells))
    assert told[0] == Progress(0, RUNS, 0, numbers)
    assert told[-1] == Progress(RUNS, RUNS, numbers, numbers)


# What goes wrong with a file: each function spoils the block `path`, `other` is another block.


def truncated(path, other):
    path.write_bytes(path.read_bytes()[:-200])


def emptied(path, other):
    path.write_bytes(b"")


def of_text(path, other):
    path.write_text("step,entropy\n0,1\n")


def swapped(path, other):
    path.write_bytes(other.read_bytes())


def foreign(path, other):
    folder = path.parents[2] / "foreign"
    execute(plan_of({**SPEC, "seeds": [5, 6, 7, 8, 9]}), folder, machine=MACHINE)
    path.write_bytes((folder / "blocks" / path.name).read_bytes())


def edited(path, other):
    """Valid in every way but for one number."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["entropy"][0, 0] += 1e-12
    np.savez(path, **arrays)


def pickled(path, other):
    with open(path, "wb") as file:
        np.savez(file, header=np.array([{}], dtype=object))


SPOILT = {
    truncated: "is damaged or no block",
    emptied: "is damaged or no block",
    of_text: "is damaged or no block",
    pickled: "is damaged or no block",
    swapped: "holds other runs",
    foreign: "is of another sweep",
    edited: "does not match its checksum",
}


def test_every_spoilt_block_is_named_and_computed_again(copied, undisturbed):
    paths = [copied / "blocks" / f"0-{number:06d}.npz" for number in range(len(SPOILT))]
    for spoil, path in zip(SPOILT, paths, strict=True):
        spoil(path, copied / "blocks" / "1-000001.npz")
    told = []
    outcome = execute(PLAN, copied, machine=MACHINE, on_fault=told.append)
    wanted = [f"{path} {fault}; it is computed again" for path, fault in zip(paths, SPOILT.values(), strict=True)]
    assert told == list(outcome.faults) == wanted
    assert (outcome.kept, outcome.computed) == (undisturbed[1].computed - len(SPOILT), len(SPOILT))
    assert content(copied) == content(undisturbed[0])


def test_a_flipped_bit_is_found_wherever_it_is(copied):
    path = copied / "blocks" / "0-000003.npz"
    whole = path.read_bytes()
    block = make_layout(PLAN, families(PLAN)).blocks[3]
    with opened(copied, PLAN) as store:
        right = checksum(store.read(block))
        for place in np.random.default_rng(0).integers(0, 8 * len(whole), 200):
            spoilt = bytearray(whole)
            spoilt[place // 8] ^= 1 << place % 8
            path.write_bytes(spoilt)
            assert store.fault(block) is not None or checksum(store.read(block)) == right


def test_a_checksum_is_of_names_types_shapes_and_bits():
    arrays = [
        {"a": np.zeros(2)},
        {"b": np.zeros(2)},
        {"a": np.zeros(2, np.float32)},
        {"a": np.zeros((2, 1))},
        {"a": np.array([0.0, -0.0])},
        {"a": np.zeros(1), "b": np.zeros(1)},
    ]
    assert len({checksum(each) for each in arrays}) == len(arrays)
    assert checksum({"a": np.zeros(1), "b": np.ones(1)}) == checksum({"b": np.ones(1), "a": np.zeros(1)})


def test_missing_blocks_are_computed_and_only_they(copied, undisturbed):
    for name in ("0-000000.npz", "0-000004.npz", "1-000002.npz"):
        (copied / "blocks" / name).unlink()
    outcome = execute(PLAN, copied, machine=MACHINE)
    assert (outcome.computed, outcome.faults) == (3, ())
    assert content(copied) == content(undisturbed[0])


def refuse(*arguments):
    raise AssertionError("nothing is to be computed")


IDLE = Machine(families, refuse)


def test_a_finished_sweep_is_not_computed_again_even_without_its_blocks(copied, undisturbed):
    outcome = execute(PLAN, undisturbed[0], machine=IDLE)
    assert (outcome.computed, outcome.table) == (0, undisturbed[0] / "sweep.nc")
    execute(PLAN, copied, machine=IDLE)
    shutil.rmtree(copied / "blocks")
    execute(PLAN, copied, machine=IDLE)
    assert content(copied) == content(undisturbed[0])


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("sweep.nc", truncated),
        ("sweep_summary.nc", lambda path, other: path.unlink()),
        ("finished.json", emptied),
        ("finished.json", of_text),
    ],
)
def test_a_damaged_result_is_made_again_from_the_blocks(undisturbed, tmp_path, name, spoil):
    folder = tmp_path / "out"
    shutil.copytree(undisturbed[0], folder)
    spoil(folder / name, None)
    execute(PLAN, folder, machine=IDLE)
    assert content(folder) == content(undisturbed[0])


def test_a_block_that_is_spoilt_under_way_is_one_line(copied, monkeypatch):
    def spoil_first(store, layout):
        (copied / "blocks" / "0-000001.npz").write_bytes(b"")
        write_table(store, layout)

    monkeypatch.setattr(loop, "write_table", spoil_first)
    line = r"^a block is damaged or no block since it was checked; the same command computes it again$"
    with pytest.raises(InputError, match=line):
        execute(PLAN, copied, machine=MACHINE)
    assert parts(copied) == []


def parts(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".part")]


class Stopping(Numbers):
    """Raises at its third call."""

    error: BaseException = KeyboardInterrupt()

    def __call__(self, cell, seed):
        if self.calls == 2:
            raise self.error
        return super().__call__(cell, seed)


def stopping(error):
    kind = type("Stopping", (Stopping,), {"error": error})
    return Machine(families, lambda plan, cells, block, devices: kind(plan, cells, 4, devices))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the device is gone")])
def test_an_error_while_runs_are_computed_keeps_what_is_stored(tmp_path, undisturbed, error):
    with pytest.raises(type(error)):
        execute(PLAN, tmp_path, machine=stopping(error))
    assert sorted(path.name for path in (tmp_path / "blocks").iterdir()) == ["0-000000.npz", "0-000001.npz"]
    assert execute(PLAN, tmp_path, machine=MACHINE).kept == 2
    assert content(tmp_path) == content(undisturbed[0])


KEPT = r"what is stored is kept: make room, and the same command goes on$"
FULL = rf"^no room left in '.*' \(No space left on device\); {KEPT}"


@pytest.mark.parametrize("writes", [0, 5, 20])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, undisturbed, monkeypatch, writes):
    """The disk is full at the n-th synchronisation, of a block, the table or its summary."""
    left = [writes]

    def sync(number):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        with pytest.raises(InputError, match=FULL):
            execute(PLAN, tmp_path, machine=MACHINE)
    assert parts(tmp_path) == []
    execute(PLAN, tmp_path, machine=MACHINE)
    assert content(tmp_path) == content(undisturbed[0])


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path, monkeypatch):
    def fail(number):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        execute(PLAN, tmp_path, machine=MACHINE)


@pytest.mark.parametrize("room", [0, 5_000, 20_000])
def test_hdf5_survives_a_disk_that_is_full(tmp_path, monkeypatch, room):
    real = Disk.put

    def put(disk, data):
        if disk.tell() + len(data) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(disk, data[:1000])

    monkeypatch.setattr(Disk, "put", put)
    values = np.random.default_rng(0).random(10_000)

    def write():
        with written(tmp_path / "x.nc") as output:
            output.file.dimensions["x"] = 10_000
            output.file.create_variable("x", ("x",), float, values, chunks=(1000,))
            output.check()

    with pytest.raises(OSError, match="No space left"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_sweep_larger_than_the_disk_is_refused_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**6, 10**6, 80_000))
    need = rf"{RUNS} runs × 7 recorded steps need about 0\.123 MiB"
    line = rf"^{need}, and '.*' has room for 0\.0763 MiB; wanted every = 5, or another folder$"
    with pytest.raises(InputError, match=line):
        execute(PLAN, tmp_path, machine=IDLE)


def test_a_sweep_larger_than_the_whole_disk_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**4, 0, 10**4))
    with pytest.raises(
        InputError, match=r", and the whole disk holds 0\.00954 MiB; wanted fewer runs, or another folder$"
    ):
        execute(PLAN, tmp_path / "out", machine=IDLE)
    assert os.listdir(tmp_path) == []


def test_one_block_is_in_memory_at_a_time_while_the_table_is_written(tmp_path, monkeypatch):
    long = plan_of({"steps": 2000, "seeds": 16, "problem": "mei", "method": "rloo"})
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", long.run_bytes)
    monkeypatch.setattr("softmaxdyn.sweeps.summary.HELD", 2**15)
    execute(long, tmp_path, machine=MACHINE)
    layout = make_layout(long, families(long))
    block = 3 * 2000 * 8  # bytes: three variables
    with opened(tmp_path, long) as store:
        tracemalloc.start()
        write_table(store, layout)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(layout.blocks) == 16
    assert peak < 8 * block


# Folders


def lines(folder, plan=PLAN):
    with pytest.raises(InputError) as fault:
        execute(plan, folder, machine=IDLE)
    return str(fault.value)


def test_a_folder_of_another_spec_is_refused_with_the_first_difference(copied):
    other = plan_of({**SPEC, "every": 2})
    wanted = f"'{copied}' holds another sweep ('every = 3' there, 'every = 2' here); wanted an empty or a new folder"
    assert lines(copied, other) == wanted


def test_a_folder_of_the_same_spec_about_other_content_is_refused(copied):
    other = PLAN._replace(text=re.sub("content = .*", "content = 0", PLAN.text))
    assert "holds another sweep (the same spec, but a file or a default that it reads has changed)" in lines(
        copied, other
    )


def test_a_folder_of_another_version_is_refused(copied, monkeypatch):
    monkeypatch.setattr(sys.modules["softmaxdyn"], "__version__", "99")
    assert re.search(r"holds softmaxdyn 0\..*, and this is 99; wanted an empty or a new folder$", lines(copied))


def spoil_manifest(folder, change):
    path = folder / "plan.json"
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda text: "", "it is cut short or edited"),
        (lambda text: text[:-30], "it is cut short or edited"),
        (lambda text: "[]", "it is cut short or edited"),
        (lambda text: text.replace('"device"', '"devise"'), "it is cut short or edited"),
        (lambda text: text.replace('"every = 3"', "3"), "it is cut short or edited"),
        (lambda text: text.replace('"every = 3"', '"every = 4"'), "its checksum does not match"),
        (lambda text: text.replace('"sha256": "', '"sha256": "0'), "its checksum does not match"),
    ],
)
def test_a_damaged_manifest_is_one_line(undisturbed, tmp_path, change, how):
    folder = tmp_path / "out"
    folder.mkdir()
    shutil.copy(undisturbed[0] / "plan.json", folder)
    spoil_manifest(folder, change)
    path = folder / "plan.json"
    assert lines(folder) == f"'{path}' is damaged: {how}; remove it, and blocks of the same sweep are kept"


def test_without_its_manifest_a_folder_keeps_its_blocks(copied, undisturbed):
    (copied / "plan.json").unlink()
    assert execute(PLAN, copied, machine=IDLE).computed == 0
    assert content(copied) == content(undisturbed[0])


def test_what_is_left_is_not_computed_with_other_versions(copied, undisturbed):
    spoil_manifest(copied, lambda text: text.replace(f'"jax_version": "{jax.__version__}"', '"jax_version": "0.1"'))
    assert execute(PLAN, copied, machine=IDLE).computed == 0  # nothing is left
    (copied / "blocks" / "0-000003.npz").unlink()
    (copied / "finished.json").unlink()
    assert lines(copied) == (
        f"'{copied}' was begun with jax 0.1, and this is {jax.__version__}: the rest would not be bit-equal; "
        "wanted jax 0.1, or a new folder"
    )
    shutil.rmtree(copied / "blocks")
    execute(PLAN, copied, machine=MACHINE)  # nothing was there
    assert content(copied) == content(undisturbed[0])


def test_a_folder_with_other_files_is_refused_and_stays(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    assert lines(tmp_path) == f"'{tmp_path}' holds other files (thesis.tex); wanted an empty or a new folder"
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_folder_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    assert lines(tmp_path / "file") == f"cannot write to '{tmp_path}/file' (File exists); wanted another folder"
    inside = tmp_path / "file" / "b"
    assert lines(inside) == f"cannot write to '{inside}' (Not a directory); wanted another folder"


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert execute(PLAN, tmp_path / "a" / "b", machine=MACHINE).table.is_file()


def test_two_sweeps_at_once_in_one_folder_are_refused(copied):
    with opened(copied, PLAN):
        assert re.fullmatch(
            rf"'{copied}' is in use by process {os.getpid()} on .+; wait for it, or pass another folder", lines(copied)
        )
    assert execute(PLAN, copied, machine=IDLE).computed == 0


def test_what_a_killed_process_left_is_taken_over(copied, undisturbed):
    (copied / ".lock").write_text("process 1 on elsewhere")
    for name in ("blocks/.0-000001.npz.0123abcd.part", ".sweep.nc.0123abcd.part"):
        (copied / name).write_text("half")
    (copied / "blocks" / "mine.part").write_text("kept")
    execute(PLAN, copied, machine=IDLE)
    assert parts(copied) == ["mine.part"]
    assert content(copied) == content(undisturbed[0])


# Kills: one process loads everything and forks those that are killed.

KILLED = """
import json, os, random, resource, signal, sys, time, warnings
warnings.simplefilter("ignore")
import jax
jax.config.update("jax_enable_x64", True)
import h5netcdf
from softmaxdyn.sweeps import execute, layout, summary, table
from softmaxdyn.sweeps.loop import Machine
from tests.sweep_machine import PLAN, Numbers, families

layout.BLOCK_BYTES = 3 * PLAN.run_bytes
random.seed(0)

class Slow(Numbers):
    def __call__(self, cell, seed):
        time.sleep(0.005)
        return super().__call__(cell, seed)

slow = Machine(families, lambda plan, cells, block, devices: Slow(plan, cells, 2, devices))

def ended(folder, first=lambda: None, stop=None, after=0.0):
    number = os.fork()
    if number == 0:
        try:
            first()
            execute(PLAN, folder, machine=slow)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        os._exit(0)
    if stop is not None:
        time.sleep(after)
        os.kill(number, stop)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

def at_rename(count):
    real = os.replace
    def replace(source, target):
        nonlocal count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)
    def patch():
        os.replace = replace
    return patch

def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

stops = [signal.SIGKILL, signal.SIGTERM] * 4
codes = {
    "random": [ended("random", stop=stop, after=random.uniform(0.0, 0.25)) for stop in stops],
    "rename": [ended("rename", at_rename(count)) for count in (0, 1, 3, 12, 0, 1, 1)],
    "limit": [ended("limit", limited)],
}
print(json.dumps({folder: [*each, ended(folder)] for folder, each in codes.items()}))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """(folder, codes with which the processes ended by name of the sweep, what they said)."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", KILLED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    *said, codes = done.stdout.splitlines()
    return folder, json.loads(codes), said


@pytest.mark.parametrize("how", ["random", "rename", "limit"])
def test_a_killed_sweep_goes_on_to_the_same_bits(killed, undisturbed, how):
    assert killed[1][how][-1] == 0
    assert content(killed[0] / how) == content(undisturbed[0])
    assert parts(killed[0] / how) == []


def test_the_kills_came_at_random_moments_and_at_the_renaming_of_every_file(killed):
    *stopped, _ = killed[1]["random"]
    assert stopped.count(-signal.SIGKILL) + stopped.count(-signal.SIGTERM) >= 3
    # of plan.json, the first blocks, later ones, the table, the summary, finished.json
    assert killed[1]["rename"][:-1] == [-signal.SIGKILL] * 7


def test_a_file_that_may_not_grow_is_one_line(killed):
    assert killed[1]["limit"] == [1, 0]
    assert re.match(rf"^no room left in 'limit' \(File too large\); {KEPT}", killed[2][-1])


# From Python

TWO = Bandit([[1.0, 0.0, 0.5], [0.0, 0.2, 1.0]])
BOTH = {"pg": Algorithm(VanillaPG(0.1)), "npg": Algorithm(NaturalPG(0.1), Sampled(2, 2))}


def grid(**options):
    return sweep(TWO, BOTH, num_steps=20, every=3, machine=MACHINE, **options)


def test_a_sweep_is_a_dataset_over_algorithm_step_size_seed_and_step():
    found = grid(step_sizes=[0.1, 0.3], seeds=[4, 2])
    assert dict(found.sizes) == {"algorithm": 2, "step_size": 2, "seed": 2, "step": 7, "intervention": 2}
    for number, (name, size) in enumerate((name, size) for name in BOTH for size in (0.1, 0.3)):
        for seed in (4, 2):
            end, rows = numbers(number, seed if name == "npg" else -1)
            one = found.sel(algorithm=name, step_size=size, seed=seed)
            np.testing.assert_array_equal(one.entropy, rows)
            assert one.final_expected_return == end
    assert found.entropy.attrs["units"] == "nats"


def test_without_step_sizes_each_algorithm_keeps_its_own():
    assert grid().step_size.values.tolist() == [0.1]
    other = sweep(TWO, [Algorithm(VanillaPG(0.1)), Algorithm(VanillaPG(0.2))], num_steps=1, machine=MACHINE)
    assert np.isnan(other.step_size.values).all()
    assert other.algorithm.values.tolist() == ["algorithm_0", "algorithm_1"]
    assert dict(sweep(TWO, BOTH["pg"], num_steps=1, machine=MACHINE).sizes)["algorithm"] == 1


def test_a_sweep_that_is_kept_goes_on_and_says_what_was_damaged(tmp_path):
    told = []
    first = grid(seeds=9, folder=tmp_path, progress=told.append)
    assert (told[0], told[-1]) == (0, 10)
    assert first.identical(grid(seeds=9, folder=tmp_path, progress=refuse))
    (tmp_path / "finished.json").unlink()
    (tmp_path / "blocks" / "0-000001.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"0-000001\.npz is damaged or no block; it is computed again$"):
        assert first.identical(grid(seeds=9, folder=tmp_path))


@pytest.mark.parametrize("change", [{"seeds": 3}, {"step_sizes": [0.2]}, {"inner_steps": 2}, {"logits": TWO.rewards}])
def test_a_folder_of_another_sweep_from_python_is_refused(tmp_path, change):
    grid(folder=tmp_path)
    with pytest.raises(InputError, match=r"holds another sweep \("):
        grid(folder=tmp_path, **change)


def test_the_dtype_is_that_of_the_logits_or_what_is_asked_for():
    assert grid().entropy.dtype == "float64"
    assert grid(logits=np.zeros((2, 3), np.float32)).entropy.dtype == "float32"
    assert grid(dtype="float32").entropy.dtype == "float32"


def test_a_step_size_reaches_the_update_inside_another():
    inner = sized(Restarted(Momentum(0.1)), 0.5)
    assert (inner.update.step_size, inner.update.decay) == (0.5, 0.9)
    assert sized(KernelPG(0.1, features=np.ones((2, 3, 1)) * np.arange(3.0)[:, None]), 0.5).step_size == 0.5


@pytest.mark.parametrize(
    ("arguments", "options", "line"),
    [
        ((Bandit, BOTH), {}, r"problem is <class .*>; wanted a problem such as Bandit\(\[1\.0, 0\.0\]\)"),
        (
            (TWO, VanillaPG(0.1)),
            {},
            r"algorithms is VanillaPG.*; wanted a mapping from names to Algorithm, or a list of",
        ),
        ((TWO, {}), {}, r"algorithms is empty; wanted at least one: \{'pg': Algorithm\(VanillaPG\(0\.1\)\)\}"),
        ((TWO, [VanillaPG(0.1)]), {}, r"algorithm 'algorithm_0' is VanillaPG.*; wanted Algorithm\(update\): .*"),
        ((TWO, BOTH), {"step_sizes": []}, r"step_sizes is \[\]; wanted at least one number, and none of them twice"),
        (
            (TWO, BOTH),
            {"step_sizes": [0.1, 0.1]},
            r"step_sizes is \[0\.1, 0\.1\]; wanted at least one number, and none",
        ),
        ((TWO, BOTH), {"step_sizes": [-0.1]}, r"a step size is -0\.1; wanted a finite number ≥ 0"),
        ((TWO, BOTH), {"num_steps": 0}, r"steps is 0; wanted a whole number ≥ 1"),
        ((TWO, BOTH), {"inner_steps": 0}, r"inner_steps is 0; wanted a whole number ≥ 1"),
        ((TWO, BOTH), {"seeds": -1}, r"seeds is -1; wanted a whole number ≥ 1"),
        ((TWO, BOTH), {"dtype": "float16"}, r"unknown dtype 'float16'.*"),
        ((TWO, BOTH), {"logits": np.zeros((3, 3))}, r"logits have shape \(3, 3\); wanted \(2, 3\), one row a state"),
        (
            (TWO, [Algorithm(TRPO())]),
            {"step_sizes": [1.0]},
            r"TRPO\(.*\) has no step size to choose; leave step_sizes out",
        ),
    ],
)
def test_a_wrong_call_is_one_line(arguments, options, line):
    with pytest.raises(InputError, match=f"^{line}"):
        inspect.unwrap(sweep)(*arguments, machine=MACHINE, **({"num_steps": 3} | options))
