"""What the columns of a table mean: a matrix of rewards, one row a pair, or one row a prompt."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.files.arrays import Fields
from softmaxdyn.files.tables import Labels, Table, parse, parts

_PAIR_ROLES = ("action", "context", "reward", "successes", "trials", "logit", "probability", "weight", "mask")
_COUNT_ROLES = ("n", "correct", "weight")
_ROLES = (*_PAIR_ROLES, "n", "correct")
_LARGEST = 2**27  # pairs


def csv_fields(text: str, columns: Mapping[str, str]) -> tuple[Fields, str]:
    """The arrays in a table, and a remark on what they were made of."""
    table = parse(text)
    roles = assign(table.names, columns)
    if "action" in roles:
        _refuse_unused(columns, _PAIR_ROLES, "one row a pair (it has an action)")
        return _pairs(table, roles)
    if {"n", "correct"} <= roles.keys():
        _refuse_unused(columns, _COUNT_ROLES, "one row a prompt (it has n and correct)")
        fields = {role: table.numbers(roles[role], role) for role in _COUNT_ROLES if role in roles}
        return {"weights" if role == "weight" else role: values for role, values in fields.items()}, ""
    if roles:
        raise InputError(
            f"has a column for {', '.join(roles)}, but neither action and reward (one row a pair) "
            "nor n and correct (one row a prompt); name the missing one: "
            "columns={'correct': 'passed'} (--column correct=passed)"
        )
    return _matrix(table)


def assign(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Which column plays which role: what `columns` says, then the columns that are named like a role."""
    if columns and not names:
        raise InputError("has no header, so columns has nothing to name; add a header")
    for role, column in columns.items():
        check_choice("role of a column", role, _ROLES)
        for part in parts(column, names) if role in ("context", "action") else [column]:
            check_choice("column", part, names)
    taken = {part for column in columns.values() for part in parts(column, names)}
    if "reward" in columns:
        taken |= {"successes", "trials"}
    elif columns.keys() & {"successes", "trials"}:
        taken |= {"reward"}
    return {role: role for role in _ROLES if role in names and role not in taken} | dict(columns)


def _refuse_unused(columns: Mapping[str, str], used: Sequence[str], kind: str) -> None:
    for role in columns:
        if role not in used:
            raise InputError(f"columns names {role}, which has no use in a table with {kind}")


def _matrix(table: Table) -> tuple[Fields, str]:
    rewards = table.matrix()
    return {"rewards": rewards, "mask": ~np.isnan(rewards)}, f"arms {_brief(table.names)}" if table.names else ""


def _pairs(table: Table, roles: Mapping[str, str]) -> tuple[Fields, str]:
    contexts = table.labels(roles["context"]) if "context" in roles else Labels(["0"], np.zeros(len(table.rows), int))
    actions = table.labels(roles["action"])
    states, arms = len(contexts.names), len(actions.names)
    if states * arms > _LARGEST:
        raise InputError(f"makes {states} contexts × {arms} actions; wanted at most {_LARGEST} pairs")
    cell = contexts.of_row * arms + actions.of_row

    def context(index: int) -> str:
        return f"context {reprlib.repr(contexts.names[index])}"

    def pair(index: int) -> str:
        return f"{context(index // arms)}, action {reprlib.repr(actions.names[index % arms])}"

    def spread(role: str) -> np.ndarray:
        return _agreed(table.numbers(roles[role], role), cell, states * arms, role, pair)

    rewards = _rewards(table, roles, cell, states * arms, pair)
    known = ~np.isnan(rewards)
    fields = {"rewards": rewards, "mask": known & (spread("mask") != 0) if "mask" in roles else known}
    for role, field in ("logit", "logits"), ("probability", "probabilities"):
        if role in roles:
            start = spread(role)
            fields[field] = np.where(known | ~np.isnan(start), start, 0.0)
    fields = {field: values.reshape(states, arms) for field, values in fields.items()}
    if "weight" in roles:
        fields["weights"] = _agreed(
            table.numbers(roles["weight"], "weight"), contexts.of_row, states, "weight", context
        )
    gap = f"; {(~known).sum()} pairs without a reward" if not known.all() else ""
    return fields, f"contexts {_brief(contexts.names)}; arms {_brief(actions.names)}{gap}"


def _rewards(
    table: Table, roles: Mapping[str, str], cell: np.ndarray, size: int, pair: Callable[[int], str]
) -> np.ndarray:
    """The reward of each pair, as written or pooled: Σ successes / Σ trials; NaN where there is none."""
    pooled = roles.keys() & {"successes", "trials"}
    if ("reward" in roles) == bool(pooled) or len(pooled) == 1:
        raise InputError(
            f"has an action and {' and '.join(sorted(pooled | (roles.keys() & {'reward'}))) or 'no reward'}; wanted "
            "a reward, or successes and trials: columns={'reward': 'score'} (--column reward=score)"
        )
    if pooled:
        return _ratio(
            table, table.numbers(roles["successes"], "successes"), table.numbers(roles["trials"], "trials"), cell, size
        )
    rewards = table.numbers(roles["reward"], "reward")
    times = np.bincount(cell[~np.isnan(rewards)], minlength=size)
    if times.max() > 1:
        raise InputError(
            f"{pair(int(times.argmax()))} has {times.max()} rewards; "
            "wanted one, or successes and trials, which are pooled"
        )
    return _agreed(rewards, cell, size, "reward", pair)


def _ratio(table: Table, successes: np.ndarray, trials: np.ndarray, cell: np.ndarray, size: int) -> np.ndarray:
    known = ~np.isnan(successes + trials)
    wrong = known & ~((successes >= 0) & (successes <= trials))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"line {table.lines[row]}: {successes[row]:g} successes of {trials[row]:g} trials; "
            "wanted 0 ≤ successes ≤ trials"
        )
    total = np.bincount(cell[known], trials[known], size)
    won = np.bincount(cell[known], successes[known], size)
    return np.divide(won, total, out=np.full(size, np.nan), where=total > 0)


def _agreed(values: np.ndarray, index: np.ndarray, size: int, role: str, label: Callable[[int], str]) -> np.ndarray:
    """The value that all rows with an index give to it; NaN where they are blank."""
    known = ~np.isnan(values)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, index[known], values[known])
    np.maximum.at(high, index[known], values[known])
    if (low < high).any():
        odd = int((low < high).argmax())
        raise InputError(f"{label(odd)} has two values of {role}: {low[odd]:g} and {high[odd]:g}; wanted one")
    return np.where(low <= high, low, np.nan)


def _brief(names: Sequence[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:2], "…", names[-1]]
    return ", ".join(reprlib.repr(name).strip("'") for name in shown)
