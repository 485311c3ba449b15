"""Recorded training logs, one token a row: NPZ, JSONL, CSV or Parquet. Every fault is one line that names the file.

Only the columns that are needed are read, in chunks, as float64: 8 bytes a token and column, and one column more.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softmaxdyn.diagnostics import Log
from softmaxdyn.errors import InputError
from softmaxdyn.logs.columns import LABELS, REQUIRED, assign, labels, numbers
from softmaxdyn.logs.fields import make_log
from softmaxdyn.logs.sources import Source, fault, open_source

__all__ = ["REQUIRED", "make_log", "read_log"]

_DAMAGE = (ValueError, OSError, EOFError, KeyError, RuntimeError, csv.Error, zipfile.BadZipFile, zlib.error)


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
    except (InputError, MemoryError) as error:
        raise InputError(f"{path}: {fault(error)}") from None


def _fields(path: Path, columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    try:
        source = open_source(path)
        return _gather(source, assign(source.names, columns))
    except _DAMAGE as error:
        raise InputError(fault(error)) from None


def _gather(source: Source, roles: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Each role's column as one array: numbers as float64, labels as codes."""
    parts: dict[str, list[np.ndarray]] = {role: [] for role in roles}
    known: dict[str, dict[Any, int]] = {role: {} for role in LABELS}
    row = 0
    for chunk in source.chunks(roles):
        for role, column in roles.items():
            values = chunk[column]
            read = labels(role, values, known[role]) if role in LABELS else numbers(role, values, row)
            parts[role].append(read)
        row += len(parts["log_prob"][-1])
    if not row:
        raise InputError("has no tokens")
    return {role: _joined(parts.pop(role)) for role in roles}


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
