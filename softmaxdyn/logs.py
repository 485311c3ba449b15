"""Recorded training logs, one token a row: NPZ, JSONL, CSV or Parquet. Every fault is one line that names the file.

Only the columns that are needed are read, in chunks, as float64: 8 bytes a token and column, and one column more.
"""

from __future__ import annotations

import csv
import itertools
import json
import reprlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.diagnostics import Log
from softmaxdyn.errors import InputError, check_choice

REQUIRED = ("log_prob", "old_log_prob", "advantage")
NUMBERS = (*REQUIRED, "entropy", "mean_entropy_score", "position", "reward", "mask")
LABELS = ("group", "episode")
ROLES = (*NUMBERS, *LABELS)
_CHUNK = 2**18  # rows
_DAMAGE = (ValueError, OSError, EOFError, KeyError, RuntimeError, csv.Error, zipfile.BadZipFile, zlib.error)
_ROUNDING = 1e-4  # nats: what float32 may put above log 1 = 0, or an entropy below 0


class Source(NamedTuple):
    """The names of a file's columns, and a function that reads those of some roles in chunks."""

    names: list[str]
    chunks: Callable[[Mapping[str, str]], Iterator[Mapping[str, Any]]]


def read_log(path: str | Path, *, columns: Mapping[str, str] | None = None, drop_nan: bool = False) -> Log:
    """The tokens in a .npz, .jsonl, .csv or .parquet file.

    columns   log_prob, old_log_prob, advantage; optional: mask (1 counts, 0 does not), entropy of the whole
              distribution, mean_entropy_score (S̄ = Σ_b π_b² (log π_b + H)), position, reward; group and episode may be
              any labels. `columns` maps these names to those of the file: {"log_prob": "logprobs"}
    NPZ       arrays [tokens], or [episodes, length] with a mask; beside those, [episodes] is repeated along the length
    drop_nan  leaves out tokens with NaN, infinite or missing values, which otherwise are an error (a reward may be
              missing)

    Raises InputError for whatever cannot be read so.
    """
    path = Path(path)
    try:
        return make_log(_fields(path, columns or {}), drop_nan=drop_nan)
    except MemoryError:
        raise InputError(f"{path}: too large for the memory of this machine") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _fields(path: Path, columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    try:
        source = _open(path)
        return _gather(source, assign(source.names, columns))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text ({error.reason})") from None
    except _DAMAGE as error:
        raise InputError(_fault(error)) from None


def _fault(error: Exception) -> str:
    """What a library says of a file that it cannot read, as one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if "allow_pickle" in str(error):
        return "holds pickled objects, which are never loaded; wanted arrays of numbers"
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    return f"is damaged, cut short or not what its name says ({detail})"


def assign(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Which column plays which role: what `columns` says, else the column of that name."""
    for role, column in columns.items():
        check_choice("name in --column", role, ROLES)
        check_choice("column", column, names)
    roles = {role: role for role in ROLES if role in names} | dict(columns)
    for role in REQUIRED:
        if role not in roles:
            near = get_close_matches(role, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? then pass" if near else "name it:"
            raise InputError(
                f"has no column {role!r}; {hint} --column {role}={near[0] if near else 'NAME'} (it has {_brief(names)})"
            )
    return roles


def make_log(fields: Mapping[str, Any], *, drop_nan: bool = False) -> Log:
    """The log that arrays of equal length make, checked; the names as in `read_log`."""
    data = {name: fields[name] for name in assign(list(fields), {}) if fields[name] is not None}
    sizes = {name: len(values) for name, values in data.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(f"the columns have unequal lengths ({listing}); wanted one value of each a token")
    if not sizes["log_prob"]:
        raise InputError("has no tokens")
    data = {name: _codes(v) if name in LABELS else _numbers(name, v, 0) for name, v in data.items()}
    data, *notes = _finite(*_unmasked(data), drop_nan)
    for name in ("log_prob", "old_log_prob", "entropy"):
        if name in data:
            data[name], note = _within(name, data[name])
            notes.append(note)
    if "group" in data and "episode" in data:
        data["episode"] = data["group"] * (data["episode"].max() + 1) + data["episode"]
    data |= {name: _codes(data[name]).astype(np.int32) for name in LABELS if name in data}
    return Log(**data, notes=tuple(filter(None, notes)))


def _unmasked(data: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
    mask = data.pop("mask", None)
    if mask is None:
        return data, ""
    wrong = (mask != 0) & (mask != 1)
    if wrong.any():
        first = int(wrong.argmax())
        raise InputError(
            f"mask is {mask[first]:g} in token {first} (the first is 0); wanted 1 (counts) or 0 (does not)"
        )
    if not mask.any():
        raise InputError("has a mask that leaves no token: it is 0 everywhere; wanted 1 where a token counts")
    out = int((mask == 0).sum())
    return _keep(data, mask == 1), f"{out} tokens left out by the mask" if out else ""


def _finite(data: dict[str, np.ndarray], note: str, drop: bool) -> tuple[dict[str, np.ndarray], str, str]:
    unknown = {name: ~np.isfinite(values) for name, values in data.items() if name != "reward"}
    counts = {name: int(bad.sum()) for name, bad in unknown.items() if bad.any()}
    if not counts:
        return data, note, ""
    keep = ~np.any([unknown[name] for name in counts], axis=0)
    which = ", ".join(f"{name} {count}" for name, count in counts.items())
    what = f"{(~keep).sum()} of {len(keep)} tokens have a value that is missing, NaN or infinite ({which})"
    if not drop:
        raise InputError(f"{what}; pass --drop-nan to leave them out")
    if not keep.any():
        raise InputError(f"{what}; none is left")
    return _keep(data, keep), note, f"{what}; they are left out"


def _keep(data: dict[str, np.ndarray], keep: np.ndarray) -> dict[str, np.ndarray]:
    return data if keep.all() else {name: values[keep] for name, values in data.items()}


def _within(name: str, values: np.ndarray) -> tuple[np.ndarray, str]:
    """A log-probability is at most 0, an entropy at least 0; rounding is cut off."""
    entropy = name == "entropy"
    beyond = -values if entropy else values
    wrong, side = beyond > _ROUNDING, "below" if entropy else "above"
    if wrong.any():
        wanted = "an entropy in nats" if entropy else "log-probabilities (of probabilities, take the logarithm)"
        worst = values.min() if entropy else values.max()
        raise InputError(f"{name} is {side} 0 in {wrong.sum()} of {len(wrong)} tokens (as {worst:g}); wanted {wanted}")
    cut = int((beyond > 0.0).sum())
    if not cut:
        return values, ""
    return values.clip(min=0.0) if entropy else values.clip(max=0.0), f"{cut} of {name} are {side} 0 by rounding; cut"


def _codes(labels: Any) -> np.ndarray:
    """A number from 0 up for each label, as it first appears; NaN for a missing one."""
    import pandas

    codes = pandas.factorize(np.asarray(labels))[0]
    return np.where(codes < 0, np.nan, codes)


def _open(path: Path) -> Source:
    if path.is_dir():
        raise InputError("is a folder; wanted a .npz, .jsonl, .csv or .parquet file")
    if not path.exists():
        raise InputError("no such file")
    if not path.is_file():
        raise InputError("is not a regular file")
    suffix = check_choice("type of file", path.suffix.lower(), _FORMATS)
    if not path.stat().st_size:
        raise InputError("is empty")
    return _FORMATS[suffix](path)


def _gather(source: Source, roles: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Each role's column as one array: numbers as float64, labels as codes."""
    parts: dict[str, list[np.ndarray]] = {role: [] for role in roles}
    known: dict[str, dict[Any, int]] = {role: {} for role in LABELS}
    row = 0
    for chunk in source.chunks(roles):
        for role, column in roles.items():
            values = chunk[column]
            read = _labels(role, values, known[role]) if role in LABELS else _numbers(role, values, row)
            parts[role].append(read)
        row += len(parts["log_prob"][-1])
    if not row:
        raise InputError("has no tokens")
    return {role: _joined(parts.pop(role)) for role in roles}


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _numbers(role: str, values: Any, first: int) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.ndim == 1 and array.dtype.kind != "c":
            return array.astype(float, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    row = next((row for row, value in enumerate(values) if not _is_number(value)), 0)
    raise InputError(f"{role} is {reprlib.repr(values[row])} in row {first + row} (the first is 0); wanted a number")


def _is_number(value: Any) -> bool:
    try:
        return value is None or (not np.iscomplexobj(value) and isinstance(float(value), float))
    except (TypeError, ValueError, OverflowError):
        return False


def _labels(role: str, values: Any, known: dict[Any, int]) -> np.ndarray:
    import pandas

    try:
        codes, labels = pandas.factorize(values if isinstance(values, np.ndarray) else pandas.Series(values).array)
        numbers = [known.setdefault(label, len(known)) for label in labels]
    except TypeError:
        raise InputError(f"{role} holds {reprlib.repr(values[0])}; wanted one label a token") from None
    return np.append(np.asarray(numbers, float), np.nan)[codes]


def _npz(path: Path) -> Source:
    def chunks(roles: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield _flat({column: arrays[column] for column in roles.values()})

    with open(path, "rb") as file:
        start = file.peek(6)[:6]
        if start == b"\x93NUMPY":
            raise InputError("holds a single array (.npy); wanted an .npz: np.savez(path, log_prob=...)")
        if not start.startswith(b"PK"):
            raise InputError("is not an NPZ file, or pickled, which is never loaded; wanted one made by np.savez")
        with np.load(file, allow_pickle=False) as arrays:
            return Source(list(arrays.files), chunks)


def _flat(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One value a token of each array; raises InputError unless all shapes fit the largest."""
    shape = max((array.shape for array in arrays.values()), key=len)
    if len(shape) not in (1, 2):
        raise InputError(f"holds arrays of shape {shape}; wanted [tokens], or [episodes, length] with a mask")
    fits = {name: array.shape in (shape, shape[:1]) for name, array in arrays.items()}
    if not all(fits.values()):
        listing = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"the columns have unequal lengths ({listing}); wanted one value of each a token")
    wide = {name: a if a.shape == shape else a[:, None] for name, a in arrays.items()}
    return {name: np.broadcast_to(array, shape).ravel() for name, array in wide.items()}


def _parquet(path: Path) -> Source:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'softmaxdyn[parquet]'") from None

    def chunks(roles: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_CHUNK, columns=sorted(set(roles.values()))):
                yield {column: batch.column(column).to_numpy(zero_copy_only=False) for column in roles.values()}

    with pyarrow.parquet.ParquetFile(path) as file:
        return Source(list(file.schema_arrow.names), chunks)


def _csv(path: Path) -> Source:
    first = _first_line(path)
    delimiter = max(",;\t", key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}")

    def chunks(roles: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        import pandas

        reader = pandas.read_csv(  # all columns: with `usecols` it would pass over rows that are too long
            path,
            sep=delimiter,
            names=names,
            header=0,
            dtype={roles[role]: str for role in LABELS if role in roles},
            chunksize=_CHUNK,
            low_memory=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
        with reader:
            for table in reader:
                if not isinstance(table.index, pandas.RangeIndex):
                    raise InputError(f"has more cells in a row than names in its header, which has {len(names)}")
                yield {column: table[column].array for column in roles.values()}

    return Source(names, chunks)


def _jsonl(path: Path) -> Source:
    first = _object(_first_line(path), 1)

    def chunks(roles: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        with open(path, encoding="utf-8-sig") as file:
            done = 0
            while lines := list(itertools.islice(file, _CHUNK)):
                block = _objects(lines, done)
                yield {column: [row.get(column) for row in block] for column in roles.values()}
                done += len(lines)

    return Source(list(first), chunks)


def _objects(lines: list[str], done: int) -> list[dict[str, Any]]:
    """The objects in the lines: parsed as one array, which takes half the time, or one by one to find the fault."""
    filled = [line for line in lines if not line.isspace()]
    try:
        rows = json.loads(f"[{','.join(filled)}]")
        if len(rows) == len(filled) and all(type(row) is dict for row in rows):
            return rows
    except (ValueError, RecursionError):
        pass
    return [_object(line, number) for number, line in enumerate(lines, done + 1) if not line.isspace()]


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"line {number} is not valid JSON, or cut short: {reprlib.repr(line.strip())}") from None
    if not isinstance(row, dict):
        raise InputError(f'line {number} holds {reprlib.repr(row)}; wanted an object such as {{"log_prob": -0.5, ...}}')
    return row


def _first_line(path: Path) -> str:
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if not line.isspace():
                return line.rstrip("\n")
    raise InputError("is empty")


def _brief(names: Sequence[str]) -> str:
    shown = names if len(names) <= 12 else [*names[:12], "…"]
    return ", ".join(shown)


_FORMATS: dict[str, Callable[[Path], Source]] = {".npz": _npz, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
