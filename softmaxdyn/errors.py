"""What a user sees when the input is wrong: one line that says what came, what was wanted, what to type."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import jax
import numpy as np


class InputError(ValueError):
    """Input that cannot be used. The message is one line and complete; the command line exits with 2."""


def concrete(value: Any) -> bool:
    """Whether `value` holds numbers that can be looked at now (not a tracer, not a placeholder of JAX)."""
    return isinstance(value, bool | int | float | np.generic | np.ndarray) or (
        isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    )


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf, open_low: bool = False) -> None:
    """Raises InputError unless `value` is finite and within [low, high] (or (low, high]); tracers pass."""
    if isinstance(value, str | list | tuple | dict) or value is None:
        raise InputError(f"{name} is {value!r}; wanted a number")
    if not concrete(value):
        return
    number = np.asarray(value)
    if number.dtype.kind not in "biuf":
        raise InputError(f"{name} is {value!r}; wanted a number")
    inside = (number > low if open_low else number >= low) & (number <= high) & np.isfinite(number)
    if not inside.all():
        raise InputError(f"{name} is {_brief(number)}; wanted a finite number {_interval(low, high, open_low)}")


def check_fraction(name: str, value: Any) -> None:
    """Raises InputError unless `value` is in (0, 1], or if it is typed and above 0.5: then it was meant in per cent.

    An array is taken at its word: `jax.numpy.asarray(0.9)` is nine tenths.
    """
    if isinstance(value, int | float) and value > 0.5:
        raise InputError(f"{name} is {value}; wanted a fraction in (0, 0.5]: {value} per cent is {value / 100:g}")
    check_number(name, value, low=0.0, high=1.0, open_low=True)


def check_ordered(low_name: str, low: Any, high_name: str, high: Any) -> None:
    """Raises InputError unless both are finite numbers and low ≤ high; tracers pass."""
    check_number(low_name, low)
    check_number(high_name, high)
    if concrete(low) and concrete(high) and np.any(np.asarray(low) > np.asarray(high)):
        raise InputError(f"{low_name} is {low} and {high_name} is {high}; wanted {low_name} ≤ {high_name}")


def check_integer(name: str, value: Any, low: int) -> int:
    """`value` as an int ≥ low; raises InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InputError(f"{name} is {value!r}; wanted a whole number ≥ {low}")
    return int(value)


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` if it is one of `choices`; raises InputError that suggests the nearest otherwise."""
    known = list(choices)
    if value in known:
        return value
    near = get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"unknown {name} {value!r}{hint} (known: {', '.join(known)})")


def _brief(number: np.ndarray) -> str:
    return str(number) if number.ndim == 0 else f"an array with {number.min()} … {number.max()}"


def _interval(low: float, high: float, open_low: bool) -> str:
    if np.isinf(high):
        return "" if np.isinf(low) else f"{'>' if open_low else '≥'} {low:g}"
    return f"in {'(' if open_low else '['}{low:g}, {high:g}]"
