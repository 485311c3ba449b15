"""Recorded logs: four formats say the same, masks and gaps are left out by the rules, each bad file is one line."""

import io
import json
import math
import os
import pickle
import sys

import numpy as np
import pandas
import pytest

from softmaxdyn import InputError
from softmaxdyn.logs import REQUIRED, make_log, read_log, sources
from softmaxdyn.logs.columns import LABELS

SUFFIXES = ("npz", "jsonl", "csv", "parquet")
RANDOM = np.random.default_rng(0)
COLUMNS = {
    "log_prob": np.log(RANDOM.uniform(0.01, 1.0, 24)),
    "old_log_prob": np.log(RANDOM.uniform(0.01, 1.0, 24)),
    "advantage": RANDOM.standard_normal(24),
    "entropy": RANDOM.uniform(0.0, 2.0, 24),
    "position": np.arange(24.0) % 3,
    "reward": np.repeat(RANDOM.integers(0, 2, 8), 3).astype(float),
    "group": np.repeat([7, 3, 7, 5], 6),
    "episode": np.repeat([0, 1, 0, 1, 2, 3, 1, 0], 3),
}


def write(folder, suffix, columns):
    """The columns as a file of that type."""
    path = folder / f"log.{suffix}"
    table = pandas.DataFrame(columns) if suffix != "npz" else None
    match suffix:
        case "npz":
            np.savez(path, **columns)
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_dict("records")))
        case "csv":
            table.to_csv(path, index=False)
        case "parquet":
            table.to_parquet(path)
    return path


def same(one, other):
    """Whether two logs are equal to the bit."""
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    return True


def with_value(name, value, at=5, **more):
    """The columns with one value replaced."""
    column = np.array((COLUMNS | more)[name], dtype=object if isinstance(value, str) else float)
    column[at] = value
    return COLUMNS | more | {name: column}


@pytest.mark.parametrize("chunk", [5, 2**18])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_log_however_it_is_cut_into_chunks(tmp_path, monkeypatch, suffix, chunk):
    monkeypatch.setattr(sources, "_CHUNK", chunk)
    assert same(read_log(write(tmp_path, suffix, COLUMNS)), make_log(COLUMNS))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_of_other_names_are_mapped_and_labels_may_be_text(tmp_path, suffix):
    renamed = {f"my {name}": values for name, values in COLUMNS.items()}
    renamed["my group"] = np.array([f"prompt-{number}" for number in COLUMNS["group"]])
    path = write(tmp_path, suffix, renamed | {"text": np.array(["a,b"] * 24)})
    assert same(read_log(path, columns={name: f"my {name}" for name in COLUMNS}), make_log(COLUMNS))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_three_columns_are_enough(tmp_path, suffix):
    path = write(tmp_path, suffix, {name: COLUMNS[name].astype(np.float32) for name in REQUIRED})
    log = read_log(path)
    np.testing.assert_allclose(log.advantage, COLUMNS["advantage"], rtol=1e-7)
    assert log[3:] == (None,) * 6 + ((),)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", [bool, int, float])
def test_masked_tokens_are_left_out_whatever_they_hold(tmp_path, suffix, kind):
    keep = np.arange(24) % 4 != 1
    damaged = {name: np.where(keep, values, np.nan) for name, values in COLUMNS.items() if name not in LABELS}
    log = read_log(write(tmp_path, suffix, COLUMNS | damaged | {"mask": keep.astype(kind)}))
    assert same(log[:-1], make_log({name: values[keep] for name, values in COLUMNS.items()})[:-1])
    assert log.notes == ("6 tokens left out by the mask",)


@pytest.mark.parametrize("gap", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tokens_with_gaps_are_counted_and_dropped_only_on_request(tmp_path, suffix, gap):
    columns = with_value("advantage", gap, **with_value("log_prob", gap, at=7))
    path = write(tmp_path, suffix, columns)
    what = r"2 of 24 tokens have a value that is missing, NaN or infinite \(log_prob 1, advantage 1\)"
    with pytest.raises(InputError, match=f"{what}; pass --drop-nan to leave them out$"):
        read_log(path)
    keep = ~np.isin(np.arange(24), [5, 7])
    log = read_log(path, drop_nan=True)
    assert same(log[:-1], make_log({name: values[keep] for name, values in COLUMNS.items()})[:-1])
    assert log.notes[0].startswith("2 of 24 tokens")


def test_a_blank_label_is_a_gap_and_a_blank_reward_is_none(tmp_path):
    rewards = np.where(COLUMNS["position"] == 2, COLUMNS["reward"], np.nan)
    path = write(tmp_path, "csv", with_value("group", np.nan, reward=rewards))
    with pytest.raises(InputError, match=r"1 of 24 tokens .* \(group 1\)"):
        read_log(path)


def test_padded_rows_of_an_npz_are_flattened_and_values_of_a_row_repeated(tmp_path):
    mask = np.arange(4) < np.array([4, 2, 3])[:, None]
    wide = {name: RANDOM.uniform(-1.0, 0.0, (3, 4)) for name in REQUIRED}
    rows = {"advantage": np.array([1.0, -1.0, 0.0]), "episode": np.arange(3)}
    log = read_log(write(tmp_path, "npz", wide | rows | {"mask": mask}))
    np.testing.assert_array_equal(log.advantage, [1.0] * 4 + [-1.0] * 2 + [0.0] * 3)
    np.testing.assert_array_equal(log.log_prob, wide["log_prob"][mask])
    np.testing.assert_array_equal(log.episode, [0] * 4 + [1] * 2 + [2] * 3)


def test_episodes_that_count_anew_in_each_group_are_told_apart():
    log = make_log(COLUMNS)
    pairs = list(zip(COLUMNS["group"], COLUMNS["episode"], strict=True))
    assert log.episode.max() + 1 == len(set(pairs))
    assert len(set(zip(pairs, log.episode, strict=True))) == len(set(pairs))


def test_rounding_above_log_one_is_cut_off_and_told():
    log = make_log(with_value("log_prob", 4e-6, entropy=with_value("entropy", -4e-6)["entropy"]))
    assert (log.log_prob.max(), log.entropy.min()) == (0.0, 0.0)
    assert log.notes == ("1 of log_prob are above 0 by rounding; cut", "1 of entropy are below 0 by rounding; cut")


@pytest.mark.parametrize(("delimiter", "start"), [(";", ""), ("\t", "\ufeff"), (", ", "\n")])
def test_tables_with_other_delimiters_a_mark_or_blank_lines_are_read(tmp_path, delimiter, start):
    path = tmp_path / "log.csv"
    rows = [REQUIRED, *np.column_stack([COLUMNS[name] for name in REQUIRED]).tolist()]
    path.write_text(start + "\n".join(delimiter.join(map(str, row)) for row in rows), "utf-8")
    assert same(read_log(path), make_log({name: COLUMNS[name] for name in REQUIRED}))


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def parquet(columns):
    buffer = io.BytesIO()
    pandas.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


NEEDED = {name: COLUMNS[name] for name in REQUIRED}
HEADER = ",".join(REQUIRED) + "\n"
LINE = '{"log_prob": -1, "old_log_prob": -1, "advantage": 1}\n'
BAD = {
    "no file": ("log.csv", None, "no such file"),
    "suffix": ("log.tsv", HEADER, r"unknown type of file '.tsv'.*known: .npz, .jsonl, .csv, .parquet"),
    "suffix near": ("log.json", LINE, "did you mean '.jsonl'"),
    "empty csv": ("log.csv", "", "is empty"),
    "empty npz": ("log.npz", b"", "is empty"),
    "blank": ("log.jsonl", "\n \n", "is empty"),
    "header only": ("log.csv", HEADER, "has no tokens"),
    "no tokens": ("log.npz", npz(**{name: np.zeros(0) for name in REQUIRED}), "has no tokens"),
    "no rows": ("log.parquet", parquet({name: np.zeros(0) for name in REQUIRED}), "has no tokens"),
    "binary csv": ("log.csv", b"\xff\xfe\x00a,b", "is not UTF-8 text"),
    "binary further on": ("log.csv", HEADER.encode() + b"-1,-1,1\n" * 9 + b"\xff,1,1\n", "is not UTF-8 text"),
    "missing": (
        "log.csv",
        "log_probs,old_log_prob,adv\n-1,-1,1\n",
        r"has no column 'log_prob'; did you mean 'log_probs'\? then pass --column log_prob=log_probs "
        r"\(it needs log_prob, old_log_prob, advantage, and has log_probs, old_log_prob, adv\)",
    ),
    "missing, none near": (
        "log.jsonl",
        '{"x": 1}\n',
        r"'log_prob'; name it: --column log_prob=NAME \(it needs .*has x\)",
    ),
    "missing, another near": (
        "log.csv",
        "old_log_prob,advantage\n-1,1\n",
        r"has no column 'log_prob'; name it: --column log_prob=NAME",
    ),
    "missing, another's near": (
        "log.csv",
        "old_log_probs,advantage\n-1,1\n",
        r"has no column 'log_prob'; name it: --column log_prob=NAME",
    ),
    "huge": (
        "log.npz",
        npz(**with_value("advantage", -1e90)),
        r"advantage is beyond 1e\+70 in size in 1 of 24 tokens \(as -1e\+90\); wanted numbers that can be multiplied",
    ),
    "twice": ("log.csv", "advantage," + HEADER, "two columns are named 'advantage'"),
    "text": (
        "log.csv",
        HEADER + "-1,-1,1\n-1,-1,high\n",
        r"advantage is 'high' in row 1 \(the first is 0\); wanted a num",
    ),
    "text in json": ("log.jsonl", LINE + LINE.replace("1}", '"high"}'), "advantage is 'high' in row 1"),
    "list in json": ("log.jsonl", LINE + LINE.replace("1}", "[1, 2]}"), r"advantage is \[1, 2\] in row 1"),
    "list label": ("log.jsonl", LINE.replace("}", ', "group": [1]}'), r"group holds \[1\]; wanted one label a token"),
    "complex": ("log.npz", npz(**NEEDED | {"advantage": np.ones(24, complex)}), r"advantage is .*wanted a number"),
    "long row": ("log.csv", HEADER + "-1,-1,1\n-1,-1,1,1\n", "Expected 3 fields in line 3, saw 4"),
    "all rows long": (
        "log.csv",
        HEADER + "-1,-1,1,1\n" * 2,
        "more cells in a row than names in its header, which has 3",
    ),
    "open quote": ("log.csv", HEADER + '-1,-1,"1\n', "is damaged, cut short"),
    "cut json": ("log.jsonl", LINE + LINE[:20], 'line 2 is not valid JSON, or cut short: \'{"log_prob": -1, '),
    "two in a line": ("log.jsonl", LINE + LINE.strip() + "," + LINE, "line 2 is not valid JSON, or cut short"),
    "a list in two lines": ("log.jsonl", LINE + LINE.replace("1}", "[1\n2]}") + LINE, "line 2 is not valid JSON"),
    "one in two lines": ("log.jsonl", LINE + "\n" + LINE[:14] + "\n" + LINE[14:], "line 3 is not valid JSON"),
    "json array": ("log.jsonl", "[1]\n", r"line 1 holds \[1\]; wanted an object such as"),
    "unequal": (
        "log.npz",
        npz(**NEEDED | {"advantage": np.ones(23)}),
        r"unequal lengths \(log_prob \(24,\), old_log_prob \(24,\), advantage \(23,\)\); wanted one value",
    ),
    "unequal padded": ("log.npz", npz(**NEEDED | {"log_prob": -np.ones((3, 4))}), "unequal lengths"),
    "three axes": ("log.npz", npz(**{name: -np.ones((2, 3, 4)) for name in REQUIRED}), r"arrays of shape \(2, 3, 4\)"),
    "cut npz": ("log.npz", npz(**NEEDED)[:300], "is damaged, cut short"),
    "cut parquet": ("log.parquet", parquet(NEEDED)[:300], "is damaged, cut short"),
    "no parquet": ("log.parquet", HEADER, "is damaged, cut short"),
    "pickled": ("log.npz", pickle.dumps(NEEDED), "is not an NPZ file, or pickled, which is never loaded"),
    "pickled inside": (
        "log.npz",
        npz(**NEEDED | {"advantage": np.array([{}] * 24)}),
        "holds pickled objects, which are nev",
    ),
    "npy": ("log.npz", b"\x93NUMPY\x01\x00", r"holds a single array \(.npy\); wanted an .npz"),
    "above 0": (
        "log.npz",
        npz(**with_value("log_prob", 0.25)),
        r"log_prob is above 0 in 1 of 24 tokens \(as 0.25\); wanted log-probabilities \(of probabilities, take the log",
    ),
    "old above 0": ("log.npz", npz(**with_value("old_log_prob", 1e-3)), "old_log_prob is above 0 in 1 of 24"),
    "entropy": ("log.npz", npz(**with_value("entropy", -0.5)), r"entropy is below 0 in 1 of 24 tokens \(as -0.5\)"),
    "mask": (
        "log.npz",
        npz(**NEEDED, mask=np.full(24, 0.5)),
        r"mask is 0.5 in token 0 \(the first is 0\); wanted 1 \(counts\) or 0",
    ),
    "mask with a gap": ("log.npz", npz(**NEEDED, mask=np.append(np.ones(23), np.nan)), "mask is nan in token 23"),
    "mask of 0": ("log.npz", npz(**NEEDED, mask=np.zeros(24)), "a mask that leaves no token: it is 0 everywhere"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, case):
    name, content, message = BAD[case]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_log(tmp_path):
    with pytest.raises(InputError, match="is a folder; wanted a .npz, .jsonl, .csv or .parquet file"):
        read_log(tmp_path)


def test_a_device_is_no_log():
    if os.path.exists("/dev/null"):
        with pytest.raises(InputError, match="is not a regular file"):
            read_log("/dev/null")


def test_a_log_of_gaps_alone_is_refused():
    with pytest.raises(InputError, match="24 of 24 tokens have .*; none is left$"):
        make_log(NEEDED | {"advantage": np.full(24, np.nan)}, drop_nan=True)


def test_arrays_of_unequal_length_are_refused():
    with pytest.raises(InputError, match=r"unequal lengths \(log_prob 24, old_log_prob 24, advantage 3\)"):
        make_log(NEEDED | {"advantage": np.ones(3)})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"logprob": "x"}, "unknown name in --column 'logprob'; did you mean 'log_prob'"),
        ({"log_prob": "advantag"}, "unknown column 'advantag'; did you mean 'advantage'"),
    ],
)
def test_a_wrong_mapping_suggests_the_nearest_name(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        read_log(write(tmp_path, "csv", NEEDED), columns=columns)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path, "parquet", NEEDED)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"Parquet needs pyarrow: pip install 'softmaxdyn\[parquet\]'"):
        read_log(path)


def test_only_the_needed_arrays_of_an_npz_are_read(tmp_path):
    path = tmp_path / "log.npz"
    path.write_bytes(npz(**NEEDED, note=np.array([{}])))
    assert len(read_log(path).log_prob) == 24


def test_too_large_a_file_is_one_line(tmp_path, monkeypatch):
    def full(path):
        raise MemoryError

    monkeypatch.setitem(sources._FORMATS, ".csv", full)
    with pytest.raises(InputError, match="too large for the memory of this machine"):
        read_log(write(tmp_path, "csv", NEEDED))
