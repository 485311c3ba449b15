"""Training curves in a table: which column is what, and the rows of each run in order of training."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.laws.forms import Array
from softmaxdyn.logs.columns import numbers

KNOWN = {  # exact names in order of preference, then what a name may hold
    "entropy": (
        ("entropy", "actor/entropy", "actor/entropy_loss", "train/entropy", "policy/entropy", "objective/entropy"),
        ("entropy",),
    ),
    "reward": (
        (
            *("reward", "critic/score/mean", "critic/rewards/mean", "train/reward", "rewards/mean", "reward_mean"),
            *("mean_reward", "score", "score_mean", "objective/scores", "expected_return", "return", "accuracy", "acc"),
        ),
        ("val-core/", "reward", "score", "accuracy"),
    ),
    "step": (("step", "global_step", "training/global_step", "train/global_step", "_step", "iteration", "update"), ()),
    "run": (("run", "run_id", "run_name", "experiment_name", "experiment", "seed"), ()),
}
_DAMAGE = (ValueError, OSError, EOFError, KeyError, TypeError, RuntimeError, ImportError, csv.Error)


class Run(NamedTuple):
    """A run of the table in order of its steps (of its rows, if there are none); NaN where a number is missing."""

    name: str
    step: Array
    entropy: Array
    reward: Array
    remarks: tuple[str, ...]


class Runs(NamedTuple):
    """The runs in a file, and the columns that played the roles entropy, reward, step and run."""

    runs: tuple[Run, ...]
    columns: dict[str, str]


def read_runs(
    path: str | Path,
    *,
    entropy: str | None = None,
    reward: str | None = None,
    step: str | None = None,
    run: str | None = None,
    first: float | int | None = None,
    last: float | int | None = None,
) -> Runs:
    """The training curves in a .csv, .tsv, .jsonl, .json (a list of rows, or log_history) or .parquet file.

    entropy … run   names of columns; those not named are guessed by the names that trainers give them. Several columns
                    joined by + make one name of a run: "task+run"
    first, last     the first and the last step to take, both included

    Raises InputError for whatever cannot be read so.
    """
    path = Path(path)
    try:
        table = _read(path)
        named = {"entropy": entropy, "reward": reward, "step": step, "run": run}
        columns = {role: assign(role, column, list(table)) for role, column in named.items()}
        roles = {role: column for role, column in columns.items() if column is not None}
        return Runs(tuple(_runs(table, roles, path.stem, first, last)), roles)
    except InputError as error:
        raise InputError(" ".join(f"{path}: {error}".split())) from None


def assign(role: str, column: str | None, names: Sequence[str]) -> str | None:
    """The column of a role: the one that is named, or one by a known name; None where there is no step or no run."""
    if column is not None:
        for part in _parts(column, names) if role == "run" else [column]:
            check_choice("column", part, names)
        return column
    exact, inside = KNOWN[role]
    lower = {name.lower(): name for name in reversed(names)}
    found = next((lower[name] for name in exact if name in lower), None)
    if found is not None or role in ("step", "run"):
        return found
    for part in inside:
        holding = [name for name in names if part in name.lower()]
        if len(holding) == 1:
            return holding[0]
        if holding:
            raise InputError(f"has several columns for the {role}: {_brief(holding)}; name one: --{role} COLUMN")
    near = get_close_matches(role, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? then pass --{role} {near[0]}" if near else f"name it: --{role} COLUMN"
    raise InputError(f"has no column that looks like {role}; {hint} (it has {_brief(names)})")


def _brief(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= 12 else [*names[:12], "…"])


def _parts(column: str, names: Sequence[str]) -> list[str]:
    return [column] if column in names else column.split("+")


def _runs(
    table: Any, roles: dict[str, str], stem: str, first: float | int | None, last: float | int | None
) -> list[Run]:
    data = {role: numbers(role, table[roles[role]].array) for role in ("entropy", "reward", "step") if role in roles}
    if "step" not in data:
        data["step"] = np.arange(len(table), dtype=float)
    low, high = (-np.inf if first is None else first), (np.inf if last is None else last)
    within = (data["step"] >= low) & (data["step"] <= high) | (np.isnan(data["step"]) & (first is last is None))
    if not within.any():
        raise InputError(f"has no row with a step in [{low:g}, {high:g}]; its steps are {_span(data['step'])}")
    label = _labels(table, roles["run"]) if "run" in roles else np.full(len(table), stem, object)
    names = list(dict.fromkeys(label[within]))
    return [_run(name, {role: values[within & (label == name)] for role, values in data.items()}) for name in names]


def _run(name: str, data: dict[str, np.ndarray]) -> Run:
    order = np.argsort(data["step"], kind="stable")
    step = data["step"][order]
    again = int(np.sum(np.diff(step) == 0.0))
    remark = f"{again} of {len(step)} rows repeat a step; if the file holds several runs, pass --run COLUMN"
    return Run(name, step, data["entropy"][order], data["reward"][order], (remark,) if again else ())


def _labels(table: Any, column: str) -> np.ndarray:
    parts = [table[part].astype(str) for part in _parts(column, list(table))]
    return np.array(["/".join(cells) for cells in zip(*parts, strict=True)], object)


def _span(step: np.ndarray) -> str:
    known = step[~np.isnan(step)]
    return f"{known.min():g} … {known.max():g}" if len(known) else "all missing"


def _read(path: Path) -> Any:
    """The table as a DataFrame, with text names and at least one row."""
    if path.is_dir():
        raise InputError(f"is a folder; wanted a {', '.join(_FORMATS)} file")
    if not path.exists():
        raise InputError("no such file")
    suffix = check_choice("type of file", path.suffix.lower(), _FORMATS)
    if path.is_file() and not path.stat().st_size:
        raise InputError("is empty")
    try:
        table = _FORMATS[suffix](path)
    except InputError:
        raise
    except _DAMAGE as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"is damaged, cut short or not what its name says ({detail})") from None
    if not len(table):
        raise InputError("has no rows")
    return table.rename(columns=str)


def _separated(path: Path) -> Any:
    import pandas

    with open(path, encoding="utf-8-sig") as file:
        delimiter = max(",;\t", key=next((line for line in file if not line.isspace()), "").count)
    table = pandas.read_csv(path, sep=delimiter, skipinitialspace=True, low_memory=False, encoding="utf-8-sig")
    if not isinstance(table.index, pandas.RangeIndex):
        raise InputError(f"has more cells in a row than names in its header, which has {len(table.columns)}")
    return table


def _lines(path: Path) -> Any:
    with open(path, encoding="utf-8-sig") as file:
        return _objects([json.loads(line) for line in file if not line.isspace()])


def _json(path: Path) -> Any:
    content = json.loads(path.read_text("utf-8-sig"))
    return _objects(content.get("log_history") if isinstance(content, dict) else content)


def _objects(rows: Any) -> Any:
    import pandas

    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError('wanted rows that are objects such as {"step": 1, "entropy": 0.5, "reward": 0.3}')
    return pandas.DataFrame.from_records(rows)


def _parquet(path: Path) -> Any:
    import pandas

    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'softmaxdyn[parquet]'") from None
    return pandas.read_parquet(path).reset_index(drop=True)


_FORMATS: dict[str, Callable[[Path], Any]] = {
    ".csv": _separated,
    ".tsv": _separated,
    ".jsonl": _lines,
    ".json": _json,
    ".parquet": _parquet,
}
