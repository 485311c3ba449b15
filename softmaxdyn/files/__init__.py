"""Settings from files: arrays (JSON, NPZ) and tables (CSV); every fault is one line that names the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.files.arrays import Fields, from_arrays, json_fields, npz_fields
from softmaxdyn.files.columns import csv_fields
from softmaxdyn.files.counts import from_counts
from softmaxdyn.problems.setting import Setting

__all__ = ["read_setting"]

_LARGEST = 2**30  # bytes


def read_setting(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    actions: int | None = None,
    correct: int | None = None,
    smoothing: float | int | None = None,
    spread: float | int | None = None,
    seed: int = 0,
    dtype: Any = np.float64,
) -> Setting:
    """The bandit in a .json, .npz or .csv file, the logits (of `dtype`) that it starts from, and one line about both.

    JSON, NPZ  `rewards` [A] or [S, A]; optional `logits` or `probabilities` (default: uniform), `weights` [S] (default:
               1/S), `mask` [S, A] (true or 1: allowed). The reward of a masked arm may be null or NaN.
    CSV        numbers only, one row a context, with or without a header; a blank cell masks its arm. Or one row a pair:
               columns action, reward [context, logit | probability, weight, mask]. `successes` and `trials` may stand
               for the reward; repeated pairs are then pooled. Pairs that do not occur, or have no reward, are masked.
    counts     columns (or keys) n, correct [weight]: one row a prompt, a pool of prompts as `from_counts` makes it.
               `actions`, `correct`, `smoothing`, `spread` and `seed` are its options.

    `columns` says which column of the CSV plays a role: {"reward": "clicks", "context": "campaign+position"}; several
    columns joined by + make one label. Raises InputError for whatever cannot be read so.
    """
    path = Path(path)
    options = {"actions": actions, "correct": correct, "smoothing": smoothing, "spread": spread}
    options = {name: value for name, value in options.items() if value is not None}
    try:
        fields, remark = _fields(path, columns)
        setting = _setting(fields, options, seed)
    except MemoryError:
        raise InputError(_one_line(f"{path}: too large for the memory of this machine")) from None
    except InputError as error:
        raise InputError(_one_line(f"{path}: {error}")) from None
    note = "; ".join([f"{path.name}: {setting.note}", *filter(None, [remark])])
    return Setting(setting.problem, setting.logits.astype(dtype), _one_line(note))


def _one_line(text: str) -> str:
    """`text` on one line, whatever a label or the name of the file holds."""
    return " ".join(text.splitlines())


def _fields(path: Path, columns: Mapping[str, str] | None) -> tuple[Fields, str]:
    content = _content(path)
    suffix = check_choice("type of file", path.suffix.lower(), [".json", ".csv", ".npz"])
    if suffix == ".csv":
        return csv_fields(_text(content), columns or {})
    if columns:
        raise InputError(f"columns are named in a CSV only; rename the keys of the {suffix} file instead")
    return (json_fields(_text(content)) if suffix == ".json" else npz_fields(content)), ""


def _setting(fields: Fields, options: dict[str, Any], seed: int) -> Setting:
    if "n" in fields:
        return from_counts(**fields, options=options, seed=seed)
    if options:
        raise InputError(f"{', '.join(options)}: for pass counts (n and correct) only; this file has rewards")
    return from_arrays(**fields)


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError("is a folder; wanted a .json, .csv or .npz file")
        if not path.exists():
            raise InputError("no such file")
        if not path.is_file():
            raise InputError("is not a regular file")
        if path.stat().st_size > _LARGEST:
            raise InputError(f"has {path.stat().st_size / 2**30:.1f} GiB; wanted at most 1 GiB")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    if not content.strip():
        raise InputError("is empty")
    return content


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start} is 0x{content[error.start]:02x})") from None
