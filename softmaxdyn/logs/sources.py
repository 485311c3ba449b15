"""Files as sources of columns: NPZ, JSONL, CSV and Parquet, read in chunks."""

from __future__ import annotations

import csv
import itertools
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.logs.columns import LABELS

_CHUNK = 2**18  # rows


class Source(NamedTuple):
    """The names of a file's columns, and a function that reads those of some roles in chunks."""

    names: list[str]
    chunks: Callable[[Mapping[str, str]], Iterator[Mapping[str, Any]]]


def open_source(path: Path) -> Source:
    """The columns of the file, read as its suffix says."""
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


def fault(error: Exception) -> str:
    """What is wrong with the file, in one line."""
    match error:
        case InputError():
            return str(error)
        case MemoryError():
            return "too large for the memory of this machine"
        case UnicodeDecodeError():
            return f"is not UTF-8 text ({error.reason})"
        case OSError() if error.strerror:
            return f"cannot be read: {error.strerror}"
    if "allow_pickle" in str(error):
        return "holds pickled objects, which are never loaded; wanted arrays of numbers"
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    return f"is damaged, cut short or not what its name says ({detail})"


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


_FORMATS: dict[str, Callable[[Path], Source]] = {".npz": _npz, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
