"""Arrays of a JSON or NPZ file, and the setting that they make."""

from __future__ import annotations

import io
import json
import reprlib
import zipfile
import zlib
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.setting import Setting, setting

Fields: TypeAlias = dict[str, Any]

_KEYS = ("rewards", "logits", "probabilities", "weights", "mask", "n", "correct")
_LARGEST = 2**31  # bytes, uncompressed


def json_fields(text: str) -> Fields:
    """The object in `text`, with known keys only, none of them twice."""
    try:
        fields = json.loads(text, object_pairs_hook=_once)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON, or cut short: {error}") from None
    if not isinstance(fields, dict):
        raise InputError(f'holds {reprlib.repr(fields)}; wanted an object such as {{"rewards": [1, 0.9, 0.1]}}')
    return _known(fields)


def _once(pairs: list[tuple[str, Any]]) -> Fields:
    fields = dict(pairs)
    for key in fields:
        if sum(key == other for other, _ in pairs) > 1:
            raise InputError(f"has the key {reprlib.repr(key)} twice")
    return fields


def npz_fields(content: bytes) -> Fields:
    """The arrays in an NPZ file, with known names only. Nothing in it is ever unpickled."""
    if content.startswith(b"\x93NUMPY"):
        raise InputError("holds a single array (.npy); wanted an .npz: np.savez(path, rewards=...)")
    if not content.startswith(b"PK"):
        raise InputError("is not an NPZ file; wanted one made by np.savez(path, rewards=...)")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST:
            raise InputError(f"unpacks to {size / 2**30:.1f} GiB; wanted at most {_LARGEST / 2**30:g} GiB")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in _known(dict.fromkeys(arrays))}
    except InputError:
        raise
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise InputError("holds pickled objects, which are never loaded; wanted arrays of numbers") from None
        raise InputError("is damaged or cut short; wanted an NPZ file as np.savez writes it") from None


def _known(fields: Fields) -> Fields:
    for key in fields:
        check_choice("key", key, _KEYS)
    if ("n" in fields) != ("correct" in fields):
        raise InputError("n and correct belong together; one of them is missing")
    if "n" in fields and fields.keys() - {"n", "correct", "weights"}:
        raise InputError("has pass counts (n, correct) and rewards or a start; wanted one of the two")
    if not fields.keys() & {"n", "rewards"}:
        raise InputError("has no rewards; wanted rewards [A] or [S, A], or pass counts: n and correct")
    return fields


def from_arrays(
    rewards: Any, logits: Any = None, probabilities: Any = None, weights: Any = None, mask: Any = None
) -> Setting:
    """The setting that the arrays make; a masked arm, and one of probability 0, starts and stays at logit −∞.

    A row of probabilities may miss 1 by what rounding explains: half of the last printed digit for each of its numbers.
    Probabilities on masked arms are spread over the others in proportion.
    """
    rewards = _table("rewards", rewards)
    allowed = np.ones(rewards.shape, bool) if mask is None else _flags(_table("mask", mask, rewards.shape))
    _no_gap("reward", np.where(allowed, rewards, 0.0), " or a mask that forbids the arm")
    problem = Bandit(np.where(allowed | np.isinf(rewards), rewards, 0.0), _weights(weights))
    if logits is not None and probabilities is not None:
        raise InputError("has logits and probabilities; wanted one of the two")
    if probabilities is not None:
        start = log_probabilities(_table("probabilities", probabilities, rewards.shape))
    else:
        start = np.zeros(rewards.shape) if logits is None else _logits(_table("logits", logits, rewards.shape))
    start = np.where(allowed, start, -np.inf)
    closed = np.isneginf(start).all(1)
    if closed.any():
        raise InputError(f"context {closed.argmax()} has no arm left: each is masked or has probability 0")
    masked = int(np.isneginf(start).sum())
    size = f"{problem.shape[0]} contexts × {problem.shape[1]} arms"
    return setting(problem, start, f"{size}, {masked} pairs masked" if masked else size)


def log_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """log π, once every row is known to be a distribution up to the rounding of its digits."""
    _no_gap("probability", probabilities)
    _check("probability", probabilities, (probabilities >= 0) & (probabilities <= 1 + 1e-6), "a number in [0, 1]")
    total = probabilities.sum(1)
    for row in np.flatnonzero(np.abs(total - 1.0) > 1e-6):
        allowance = rounding(probabilities[row])
        if abs(total[row] - 1.0) > allowance:
            raise InputError(
                f"the probabilities of context {row} sum to {total[row]:.8g}, off by {abs(total[row] - 1):.2g}; "
                f"wanted 1 within {allowance:.1g}"
            )
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def rounding(numbers: np.ndarray) -> float:
    """What rounding can do to a sum: half a unit of the last printed digit for each number, from 1e-6 up to 0.02."""
    digits = max(-int(Decimal(repr(float(number))).as_tuple().exponent) for number in numbers)
    return float(np.clip(0.5 * 10.0**-digits * len(numbers), 1e-6, 0.02)) * (1 + 1e-9)


def numbers(name: str, value: Any) -> np.ndarray:
    """`value` as float64; NaN for None. Raises InputError for text, objects and rows of unequal length."""
    try:
        array = np.asarray(value)
        if array.dtype == object and not any(isinstance(item, str) for item in array.flat):
            array = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} are {_fault(value)}; wanted numbers in rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} are {reprlib.repr(value)}; wanted numbers")
    with np.errstate(over="ignore"):
        return array.astype(float)


def _fault(value: Any) -> str:
    rows = value if isinstance(value, list) else []
    lengths = [len(row) if isinstance(row, list) else 1 for row in rows]
    odd = next((index for index, length in enumerate(lengths) if length != lengths[0]), None)
    return "not numbers" if odd is None else f"ragged: row {odd} has {lengths[odd]}, row 0 has {lengths[0]}"


def _table(name: str, value: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    array = numbers(name, value)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InputError(f"{name} have shape {array.shape}; wanted [A] or [S, A] with at least one arm")
    array = np.atleast_2d(array)
    if shape is not None and array.shape != shape:
        raise InputError(f"{name} have shape {array.shape}; wanted {shape}, as the rewards")
    return array


def _weights(weights: Any) -> Any:
    if weights is None:
        return None
    array = numbers("weights", weights)
    if array.ndim > 1:
        raise InputError(f"weights have shape {array.shape}; wanted one a context")
    return array if array.ndim else float(array)


def _flags(mask: np.ndarray) -> np.ndarray:
    _check("mask", mask, (mask == 0) | (mask == 1), "true or 1 (allowed), false or 0 (masked)")
    return mask == 1


def _logits(logits: np.ndarray) -> np.ndarray:
    _no_gap("logit", logits)
    _check("logit", logits, logits <= 1e30, "at most 1e30")
    _check("logit", logits, (logits >= -1e30) | np.isneginf(logits), "at least -1e30, or a mask that forbids the arm")
    return logits


def _no_gap(name: str, table: np.ndarray, instead: str = "") -> None:
    if np.isnan(table).any():
        context, arm = np.argwhere(np.isnan(table))[0]
        raise InputError(f"the {name} of context {context}, arm {arm} is missing or NaN; wanted a number{instead}")


def _check(name: str, table: np.ndarray, right: np.ndarray, wanted: str) -> None:
    if not right.all():
        context, arm = np.argwhere(~right)[0]
        raise InputError(f"the {name} of context {context}, arm {arm} is {table[context, arm]:g}; wanted {wanted}")
