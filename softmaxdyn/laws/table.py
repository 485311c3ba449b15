"""Training curves in a table: which column is what, and the rows of each run in order of training."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.laws.forms import Array
from softmaxdyn.logs.columns import numbers
from softmaxdyn.logs.sources import fault

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
NAMED = 5  # lines of a remark
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
        table = _table(path)
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
    given = [role for role in roles if role != "run"]
    data = {role: numbers(role, table[roles[role]].array) for role in given}
    if "step" not in data:
        data["step"] = np.arange(len(table), dtype=float)
    low, high = (-np.inf if first is None else first), (np.inf if last is None else last)
    within = (data["step"] >= low) & (data["step"] <= high) | (np.isnan(data["step"]) & (first is last is None))
    if not within.any():
        raise InputError(f"has no row with a step in [{low:g}, {high:g}]; its steps are {_span(data['step'])}")
    label = _labels(table, roles["run"]) if "run" in roles else np.full(len(table), stem, object)
    return [_run(name, data, label == name, within, table.index) for name in dict.fromkeys(label[within])]


def _run(name: str, data: dict[str, np.ndarray], rows: np.ndarray, within: np.ndarray, places: Any) -> Run:
    """The run of these `rows`: those `within` the steps, in order, and remarks with the `places` of what they lack."""
    taken = np.flatnonzero(rows & within)
    order = taken[np.argsort(data["step"][taken], kind="stable")]
    step, entropy, reward = (data[role][order] for role in ("step", "entropy", "reward"))
    gaps = places[np.sort(order[np.isnan(entropy) | np.isnan(reward)])]
    stepless = rows & np.isnan(data["step"])
    remarks = (
        _repeated(step),
        f"without entropy or reward: {_listed(gaps)}" if len(gaps) else "",
        _stepless(stepless, within, places),
    )
    return Run(name, step, entropy, reward, tuple(filter(None, remarks)))


def _repeated(step: np.ndarray) -> str:
    again = int(np.sum(np.diff(step) == 0.0))
    remark = f"{again} of {len(step)} rows repeat a step; if the file holds several runs, pass --run COLUMN"
    return remark if again else ""


def _stepless(rows: np.ndarray, within: np.ndarray, places: Any) -> str:
    """What becomes of the rows without a step: in a choice of steps they are left out, else they are the last."""
    count = int(rows.sum())
    end = "taken last" if within[rows].any() else "left out"
    return f"{count} row{'s' * (count > 1)} without a step, {end}: {_listed(places[rows])}" if count else ""


def _listed(places: Any) -> str:
    """`line 3`, or `lines 3, 8`, of many the first few; the index says whether they are lines or rows."""
    few = ", ".join(map(str, places[:NAMED]))
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    return f"{places.name}{'s' * (len(places) > 1)} {few}{more}"


def _labels(table: Any, column: str) -> np.ndarray:
    parts = [table[part] for part in _parts(column, list(table))]
    missing = np.any([part.isna() for part in parts], axis=0)
    if missing.any():
        where = f"{missing.sum()} of {len(table)} rows ({_listed(table.index[missing])})"
        raise InputError(
            f"has no {column!r}, the name of the run, in {where}; fill it in, or pass another: --run COLUMN"
        )
    return np.array(["/".join(cells) for cells in zip(*(part.astype(str) for part in parts), strict=True)], object)


def _span(step: np.ndarray) -> str:
    known = step[~np.isnan(step)]
    return f"{known.min():g} … {known.max():g}" if len(known) else "all missing"


def _table(path: Path) -> Any:
    """The table as a DataFrame with text names and at least one row, indexed by the lines (or rows) of the file."""
    try:
        return _read(path)
    except (*_DAMAGE, MemoryError) as error:
        raise InputError(fault(error)) from None


def _read(path: Path) -> Any:
    if path.is_dir():
        raise InputError(f"is a folder; wanted a {', '.join(_FORMATS)} file")
    if not path.exists():
        raise InputError("no such file")
    if not path.is_file():
        raise InputError("is not a regular file")
    suffix = check_choice("type of file", path.suffix.lower(), _FORMATS)
    if not path.stat().st_size:
        raise InputError("is empty")
    table = _FORMATS[suffix](path)
    if not len(table):
        raise InputError("has no rows")
    return table.rename(columns=str)


def _separated(path: Path) -> Any:
    import pandas

    with open(path, encoding="utf-8-sig") as file:
        first = next((line for line in file if not line.isspace()), "")
    if not first:
        raise InputError("is empty")
    delimiter = max(",;\t", key=first.count)
    names, lines = _layout(path, delimiter)
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}")
    table = pandas.read_csv(path, sep=delimiter, skipinitialspace=True, low_memory=False, encoding="utf-8-sig")
    if not isinstance(table.index, pandas.RangeIndex):
        raise InputError(f"has more cells in a row than names in its header, which has {len(table.columns)}")
    return _numbered(table, lines)


def _layout(path: Path, delimiter: str) -> tuple[list[str], list[int]]:
    """The names in the header, and the line on which each row ends, as far as the file can be read so."""
    found: list[tuple[list[str], int]] = []
    with open(path, encoding="utf-8-sig", newline="") as file, suppress(csv.Error):
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
        found.extend((row, reader.line_num) for row in reader if len(row) > 1 or "".join(row).strip())
    names = [name.strip() for name in found[0][0]] if found else []
    return names, [line for _, line in found[1:]]


def _numbered(table: Any, lines: Sequence[int] = ()) -> Any:
    """The table indexed by the lines of its rows, or by the numbers of the rows from 1 up where these are not known."""
    import pandas

    known = len(lines) == len(table)
    return table.set_index(pandas.Index(lines if known else range(1, len(table) + 1), name="line" if known else "row"))


def _lines(path: Path) -> Any:
    with open(path, encoding="utf-8-sig") as file:
        lines = {number: json.loads(line) for number, line in enumerate(file, 1) if not line.isspace()}
    return _numbered(_objects(list(lines.values())), list(lines))


def _json(path: Path) -> Any:
    content = json.loads(path.read_text("utf-8-sig"))
    return _numbered(_objects(content.get("log_history") if isinstance(content, dict) else content))


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
    return _numbered(pandas.read_parquet(path))


_FORMATS: dict[str, Callable[[Path], Any]] = {
    ".csv": _separated,
    ".tsv": _separated,
    ".jsonl": _lines,
    ".json": _json,
    ".parquet": _parquet,
}
