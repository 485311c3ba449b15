"""Labelled results: what a dataset says about itself, and that a file is whole, bit-equal, or refused."""

import contextlib
import dataclasses
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, Trace, VanillaPG, simulate
from softmaxdyn.results import FIELDS, load, remarks, remove_unfinished, save, to_xarray, visit_mean, whole_file

ROOT = Path(__file__).parents[1]
MASKED = np.array([[0.0, 1.0, -np.inf], [0.5, 0.0, 0.0]])
REWARDS = np.array([[1.0, 0.0, 0.5], [0.0, 0.2, 1.0]])


@pytest.fixture(scope="module")
def trace():
    """Two states, one masked action, 8 rows."""
    return simulate(Bandit(REWARDS), Algorithm(VanillaPG(0.3)), num_steps=16, every=2, logits=MASKED)


@pytest.fixture
def saved(trace, tmp_path):
    return save(trace, tmp_path / "trace.nc")


@st.composite
def fields_of_a_trace(draw):
    """Any bits at all in every field: NaN, ±inf, −0, subnormal numbers."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shapes = {"step": draw(st.sampled_from([1, 5])), "state": draw(st.sampled_from([1, 3])), "action": 2}
    shapes["intervention"] = draw(st.sampled_from([0, 2]))
    fields = {
        name: draw(arrays(np.int64 if name == "step" else dtype, tuple(shapes[dim] for dim in field.dims)))
        for name, field in FIELDS.items()
    }
    rows = (shapes["step"],)
    measures = {name: draw(arrays(dtype, rows + more)) for name, more in [("mean_length", ()), ("my_own", (2, 1))]}
    words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
    return {**fields, "measures": measures, "provenance": (("problem", draw(words)), ("algorithm", draw(words)))}


def assert_bit_equal(one, other):
    assert list(one.measures) == list(other.measures)
    ours, theirs = ([*(getattr(trace, name) for name in FIELDS), *trace.measures.values()] for trace in (one, other))
    for a, b in zip(map(np.asarray, ours), map(np.asarray, theirs), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    assert one.provenance == other.provenance


def test_every_field_of_a_trace_has_a_label():
    names = [field.name for field in dataclasses.fields(Trace)]
    assert [*FIELDS, "measures", "provenance"] == names


@settings(max_examples=12)
@given(fields_of_a_trace())
def test_a_saved_trace_comes_back_bit_for_bit(tmp_path_factory, fields):
    trace = Trace(**fields)
    assert_bit_equal(load(save(trace, tmp_path_factory.mktemp("bits") / "trace.nc")), trace)


def test_the_methods_of_a_trace_save_and_load_it(trace, tmp_path):
    path = trace.save(tmp_path / "trace.nc")
    assert_bit_equal(Trace.load(path), trace)
    assert np.isneginf(Trace.load(str(path)).logits[0, 2])


def test_xarray_opens_the_file_as_the_dataset_that_was_saved(trace, saved):
    with xarray.open_dataset(saved) as dataset:
        assert dataset.identical(to_xarray(trace))


def test_dimensions_have_names_and_coordinates(trace):
    dataset = trace.to_xarray()
    assert dict(dataset.sizes) == {"step": 8, "state": 2, "action": 3, "intervention": 0}
    assert dataset.sel(step=14, state=1).entropy.item() == trace.entropy[-1, 1]


def test_every_variable_says_what_it_is_and_in_what_units(trace):
    dataset = to_xarray(trace)
    assert all({"long_name", "units"} <= set(dataset[name].attrs) for name in FIELDS)
    nats = {name for name in FIELDS if dataset[name].attrs["units"] == "nats"}
    predicted = {"lemma_1", "theorem_1", "theorem_2", "remainder", "bound"}
    whole = {"trajectory_entropy", "trajectory_change", "local_change", "visitation_change", "visitation_prediction"}
    assert nats == {"entropy", "entropy_change", "kl", "logits", "final_entropy"} | predicted | whole


def test_a_file_says_where_it_comes_from(trace, tmp_path):
    path = save(trace, tmp_path / "trace.nc", {"seed": 3, "command": "softmaxdyn run"})
    with xarray.open_dataset(path) as dataset:
        assert dataset.attrs["problem"] == "Bandit(S=2, K=3)"
        assert dataset.attrs["algorithm"] == repr(Algorithm(VanillaPG(0.3)))
        assert dataset.attrs["inner_steps"] == "1"
        assert dataset.attrs["dtype"] == "float64"
        assert dataset.attrs["softmaxdyn_version"] == sys.modules["softmaxdyn"].__version__
        assert dataset.attrs["jax_version"] == jax.__version__
        assert (dataset.attrs["seed"], dataset.attrs["command"]) == (3, "softmaxdyn run")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"^no file '.*none.nc'; wanted one that Trace.save wrote$"):
        load(tmp_path / "none.nc")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"trace.nc' is damaged or no netCDF-4 file \(.*\)$"):
        load(saved)


def test_a_flipped_bit_in_a_table_is_found(saved):
    with h5py.File(saved) as file:
        place = file["entropy"].id.get_chunk_info(0).byte_offset
    content = bytearray(saved.read_bytes())
    content[place + 9] ^= 1
    saved.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        load(saved)


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "trace.nc"
    path.write_text("step,entropy\n0,1\n")
    with pytest.raises(InputError, match="is damaged or no netCDF-4 file"):
        load(path)


@pytest.mark.parametrize("dims", ["step", ("state", "step")])
def test_a_netcdf_file_of_something_else_is_refused(tmp_path, dims):
    path = tmp_path / "other.nc"
    values = np.zeros((2,) if dims == "step" else (2, 2))
    xarray.Dataset({"step": ("step", [0, 1]), "expected_return": (dims, values)}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(InputError, match=r"other.nc' holds no \w+ over \(.*\); wanted a file that Trace.save wrote"):
        load(path)


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with whole_file(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["file"])


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with whole_file(path) as unfinished:
            unfinished.write_text("ne")
            raise error

    with pytest.raises(error):
        fail()
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["file"])


def test_a_process_that_ends_at_once_can_remove_what_it_began(tmp_path):
    with contextlib.suppress(FileNotFoundError), whole_file(tmp_path / "file") as unfinished:
        unfinished.write_text("ne")
        remove_unfinished()
    assert os.listdir(tmp_path) == []


def test_a_file_behind_a_link_is_written_and_the_link_stays(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with whole_file(tmp_path / "link") as unfinished:
        unfinished.write_text("new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "file").read_text()) == (True, "new")


def test_a_pipe_is_written_into_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        with whole_file(pipe) as unfinished:
            unfinished.write_text("new")
        assert read.result(60) == "new"
    assert (pipe.is_fifo(), os.listdir(tmp_path)) == (True, ["pipe"])


def test_a_device_is_written_into_and_stays_and_its_error_is_one_line(tmp_path):
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # a node of our own of what /dev/full is
        device.open("wb").close()
    except OSError:
        pytest.skip("no device can be made here")
    with (
        pytest.raises(OSError, match=r"^cannot write to '.*full' \(No space left on device\)$"),
        whole_file(device) as unfinished,
    ):
        unfinished.write_text("new")
    assert (device.is_char_device(), os.listdir(tmp_path)) == (True, ["full"])


@pytest.mark.parametrize("kind", ["file", "pipe"])
@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/stderr"])
def test_what_goes_to_the_standard_output_lies_between_what_is_printed(tmp_path, kind, place):
    if not os.path.exists(place):
        pytest.skip(f"no {place} here")
    code = f"""
from softmaxdyn.results import whole_file
print("before")
with whole_file({place!r}) as unfinished:
    unfinished.write_text("new\\n")
print("after")
"""
    with open(tmp_path / "out", "wb") as out:
        into = {"stdout": out if kind == "file" else subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run([sys.executable, "-c", code], **into, cwd=ROOT, timeout=120, check=True)
    printed = (tmp_path / "out").read_bytes() if kind == "file" else done.stdout
    assert (printed, os.listdir(tmp_path)) == (b"before\nnew\nafter\n", ["out"])


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "file").mkdir()
    with (
        pytest.raises(IsADirectoryError, match="^'.*file' is a folder; rename it, or write to another place$"),
        whole_file(tmp_path / "file") as unfinished,
    ):
        unfinished.write_text("new")
    assert os.listdir(tmp_path / "file") == []


def test_a_file_of_the_longest_name_is_written(tmp_path):
    with whole_file(tmp_path / ("é" * 127)) as unfinished:
        unfinished.write_text("new")
    assert os.listdir(tmp_path) == ["é" * 127]


def test_a_saved_file_has_the_rights_of_any_new_file(saved):
    plain = saved.with_name("plain")
    plain.touch()
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_saving_where_no_folder_is_raises_oserror(trace, tmp_path):
    with pytest.raises(OSError, match="none"):
        save(trace, tmp_path / "none" / "trace.nc")


def test_the_visit_mean_weights_the_states_with_their_visits(trace):
    mean = dataclasses.replace(trace, visits=np.tile([3.0, 1.0], (8, 1)))
    expected = [(3 * a + b) / 4 for a, b in np.asarray(trace.entropy).tolist()]
    np.testing.assert_allclose(visit_mean(mean, "entropy"), expected, rtol=4 * np.finfo(float).eps)
    assert visit_mean(mean, "final_entropy") == pytest.approx(np.dot([0.75, 0.25], trace.final_entropy), rel=1e-15)


def test_a_state_that_is_never_visited_does_not_count(trace):
    never = dataclasses.replace(trace, visits=np.tile([1.0, 0.0], (8, 1)), bound=np.tile([2.0, np.inf], (8, 1)))
    assert visit_mean(never, "bound").tolist() == [2.0] * 8


def test_a_still_state_is_remarked():
    rewards, logits = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], np.array([[0.0, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    said = list(remarks(Bandit(rewards), logits, {}))
    assert said[0] == "nothing moves in 1 of 2 states: their actions all earn the same"
    assert said[1] == "the table and the figure show means over the 2 states, weighted with their visits"


@pytest.mark.parametrize(("step_size", "stays"), [(1e-20, True), (1e-10, False)])
def test_a_step_below_one_ulp_is_remarked(step_size, stays):
    logits = np.array([[0.0, 1.0, 2.0]])
    run = simulate(Bandit([1.0, 0.0, 0.5]), Algorithm(NaturalPG(step_size)), num_steps=2, logits=logits)
    said = list(remarks(Bandit([1.0, 0.0, 0.5]), logits, {"NPG": run}))
    assert [line.startswith("every step of NPG is below one ulp of the logits") for line in said] == [True] * stays
