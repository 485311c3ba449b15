"""The table in a CSV file: its header, rows and cells, each fault named by its line."""

from __future__ import annotations

import csv
import io
import reprlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from softmaxdyn.errors import InputError

_BLANK = frozenset({"", "NA", "N/A", "null", "None"})
_FLAGS = {"true": 1.0, "false": 0.0}


class Labels(NamedTuple):
    """The different labels in a column, and which of them each row has."""

    names: list[str]
    of_row: np.ndarray


class Table(NamedTuple):
    """The cells of a CSV file by rows, with the line of each row; a matrix without a header has no names."""

    names: list[str]
    rows: list[list[str]]
    lines: list[int]

    def numbers(self, column: str, role: str) -> np.ndarray:
        """The column as float64, NaN where it is blank. A mask is 0 or 1; only a logit may be −inf."""
        at = self.names.index(column)
        return np.array([_number(row[at], role, line) for row, line in zip(self.rows, self.lines, strict=True)])

    def labels(self, column: str) -> Labels:
        """The labels in the column (or in several, joined by +): in numerical order, or else as they first appear."""
        at = [self.names.index(part) for part in parts(column, self.names)]
        for row, line in zip(self.rows, self.lines, strict=True):
            if not all(row[index] for index in at):
                raise InputError(f"line {line}: {column} is blank; wanted a label")
        labels = ["/".join(row[index] for index in at) for row in self.rows]
        names = _ordered(list(dict.fromkeys(labels)))
        place = {name: index for index, name in enumerate(names)}
        return Labels(names, np.array([place[label] for label in labels]))

    def matrix(self) -> np.ndarray:
        """All cells as float64, NaN where they are blank."""
        rows = zip(self.rows, self.lines, strict=True)
        return np.array([[_number(cell, "a reward", line) for cell in row] for row, line in rows])


def parse(text: str) -> Table:
    """The rows of comma-, semicolon- or tab-separated text; a first row that is not all numbers is the header."""
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        numbered = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}") from None
    numbered = [(line, row) for line, row in numbered if any(row)]
    if not numbered:
        raise InputError("is empty")
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    for line, row in numbered:
        if len(row) != len(rows[0]):
            raise InputError(f"line {line} has {len(row)} cells; wanted {len(rows[0])}, as in line {lines[0]}")
    if all(cell in _BLANK or _value(cell) is not None for cell in rows[0]):
        _refuse_column_numbers(rows)
        return Table([], rows, lines)
    if len(rows) == 1:
        raise InputError("has a header and no rows")
    return Table(_header(rows[0]), rows[1:], lines[1:])


def parts(column: str, names: Sequence[str]) -> list[str]:
    """The columns that `column` stands for: itself, or those joined by +."""
    return [column] if column in names else column.split("+")


def _header(names: list[str]) -> list[str]:
    for index, name in enumerate(names):
        if not name:
            raise InputError(f"column {index + 1} has no name; name it, or drop it if it only counts the rows")
        if names.index(name) != index:
            raise InputError(f"two columns are named {reprlib.repr(name)}")
    return names


def _refuse_column_numbers(rows: list[list[str]]) -> None:
    cells = [cell for cell in rows[0] if cell]
    if len(rows) > 1 and len(rows[0]) > 2 and cells == [str(number) for number in range(len(cells))]:
        raise InputError("line 1 counts 0, 1, …: rewards or column numbers? write 0.0, 1.0, … or name the columns")


def _ordered(names: list[str]) -> list[str]:
    values = [_value(name) for name in names]
    return names if None in values else [name for _, name in sorted(zip(values, names, strict=True))]


def _value(cell: str) -> float | None:
    try:
        return _FLAGS[cell.lower()] if cell.lower() in _FLAGS else float(cell)
    except ValueError:
        return None


def _number(cell: str, role: str, line: int) -> float:
    if cell in _BLANK:
        return np.nan
    value = _value(cell)
    if value is None or not _admits(role, value):
        wanted = "1 (allowed) or 0 (masked)" if role == "mask" else "a finite number (blank: not known)"
        raise InputError(f"line {line}: {role} is {reprlib.repr(cell)}; wanted {wanted}")
    return value


def _admits(role: str, value: float) -> bool:
    if role == "mask":
        return value in (0.0, 1.0)
    return value < np.inf if role == "logit" else bool(np.isfinite(value))
