"""The columns of a log: which plays which role, and its values as numbers."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from softmaxdyn.errors import InputError, check_choice

REQUIRED = ("log_prob", "old_log_prob", "advantage")
LABELS = ("group", "episode")
ROLES = (*REQUIRED, "entropy", "mean_entropy_score", "position", "reward", "mask", *LABELS)


def assign(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Which column plays which role: what `columns` says, else the column of that name."""
    for role, column in columns.items():
        check_choice("name in --column", role, ROLES)
        check_choice("column", column, names)
    roles = {role: role for role in ROLES if role in names} | dict(columns)
    for role in REQUIRED:
        if role not in roles:
            near = _nearest(role, [name for name in names if name not in roles.values()])
            hint = f"did you mean {near!r}? then pass" if near else "name it:"
            needed = f"it needs {', '.join(REQUIRED)}, and has {_brief(names)}"
            raise InputError(f"has no column {role!r}; {hint} --column {role}={near or 'NAME'} ({needed})")
    return roles


def _nearest(role: str, names: Sequence[str]) -> str | None:
    """The name that is nearest to the role, unless it is nearer to another role."""
    near = next(iter(get_close_matches(role, names, n=1, cutoff=0.5)), None)
    return near if near and get_close_matches(near, ROLES, n=1, cutoff=0.0) == [role] else None


def _brief(names: Sequence[str]) -> str:
    shown = names if len(names) <= 12 else [*names[:12], "…"]
    return ", ".join(shown)


def numbers(role: str, values: Any, first: int = 0) -> np.ndarray:
    """The values as float64, NaN where they are missing; `first` is the row of the first one."""
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


def labels(role: str, values: Any, known: dict[Any, int]) -> np.ndarray:
    """A number from 0 up for each label, as it first appears; NaN for a missing one. `known` has those seen before."""
    import pandas

    try:
        codes, names = pandas.factorize(values if isinstance(values, np.ndarray) else pandas.Series(values).array)
        seen = [known.setdefault(label, len(known)) for label in names]
    except TypeError:
        raise InputError(f"{role} holds {reprlib.repr(values[0])}; wanted one label a token") from None
    return np.append(np.asarray(seen, float), np.nan)[codes]
