"""The tables of a token tree, from functions of a response or from arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.problems.layout import LARGEST, Layout, check_size


def layout_of(rewards: Any, vocabulary: Any, depth: Any, end: Any) -> Layout:
    """Where the prefixes of a tree with these rewards lie.

    Raises InputError for sizes below 1, a depth above 100, an end that is the only token, rewards of a shape
    that fits no number of prompts, and more than `LARGEST` entries.
    """
    vocabulary, depth = check_integer("vocabulary", vocabulary, 1), check_integer("depth", depth, 1)
    if not isinstance(end, bool):
        raise InputError(f"end is {end!r}; wanted True (the last token ends the response) or False")
    if end and vocabulary == 1:
        raise InputError("vocabulary is 1, and with end=True that token ends; wanted vocabulary ≥ 2, or end=False")
    check_size(1, vocabulary, depth, end)
    layout = Layout(_prompts(rewards, Layout(1, vocabulary, depth, end)), vocabulary, depth, end)
    check_size(*layout)
    return layout


def reward_table(rewards: Any, layout: Layout) -> Any:
    """The rewards as a table [S, A] of floats. Raises InputError for what is not a finite number of size ≤ 1e30."""
    functions = _functions(rewards)
    if functions:
        return _spread(np.stack([_values(function, layout) for function in functions]), layout)
    table = _as_array("rewards", rewards)
    if table.shape != layout.shape:
        xp = jnp if isinstance(table, jax.core.Tracer) else np
        rows = table.reshape(-1, layout.vocabulary)
        table = xp.concatenate([xp.zeros((layout.edges[-1][0], layout.vocabulary), table.dtype), rows])
    if isinstance(table, jax.core.Tracer):
        return table
    table = table.astype(_float_of(table.dtype), copy=False)
    odd = ~(np.abs(table) <= 1e30)
    if odd.any():
        row, token = np.argwhere(odd)[0].tolist()
        raise InputError(
            f"the reward of {layout.name(row, token)} is {table[row, token]}; wanted finite numbers of size ≤ 1e30"
        )
    return table


def prompt_weights(weights: Any, prompts: int, dtype: Any) -> Any:
    """The weights as an array [P], 1/P each by default. Raises InputError for negative, infinite or only zero ones."""
    if weights is None:
        return np.full(prompts, 1.0 / prompts, dtype)
    array = _as_array("weights", weights)
    if array.ndim == 0:
        array = (jnp if isinstance(array, jax.core.Tracer) else np).full(prompts, array)
    if array.shape != (prompts,):
        raise InputError(f"weights have shape {array.shape}; wanted one a prompt: ({prompts},)")
    if isinstance(array, jax.core.Tracer):
        return array
    inside = (array >= 0) & (array <= 1e30)
    if not inside.all():
        odd = int(inside.argmin())
        raise InputError(f"the weight of prompt {odd} is {array[odd]:g}; wanted numbers in [0, 1e30]")
    if not array.any():
        raise InputError("all weights are 0; wanted one above 0")
    return array if hasattr(weights, "dtype") and array.dtype.kind == "f" else array.astype(dtype)


def answer_table(answers: Any, count: int | None, layout: Layout) -> tuple[Any, int]:
    """(label of the answer of each finished response, else −1: int32 [S, A]; number of labels).

    Raises InputError for answers that are not hashable, tables of another shape, and labels outside 0 … count − 1.
    """
    if isinstance(answers, jax.core.Tracer):
        if answers.shape != layout.shape or count is None:
            raise InputError(
                f"answers are traced; wanted a table {layout.shape} and num_answers=, the number of labels"
            )
        return answers, count
    if answers is None:
        table = _last_tokens(layout)
    elif callable(answers):
        table = _spread(np.tile(_labels(answers, layout), (layout.prompts, 1)), layout, -1)
    else:
        table = _label_table(answers, layout)
    labels = int(table.max()) + 1
    if count is None:
        count = layout.vocabulary if answers is None else labels
    if check_integer("num_answers", count, 1) < labels:
        raise InputError(f"num_answers is {count}, and a label is {labels - 1}; wanted at least {labels}")
    if count * layout.prompts > LARGEST:
        raise InputError(f"a label is {labels - 1}, too large to count {count} answers; wanted labels 0, 1, 2, …")
    return table.astype(np.int32), count


def _functions(rewards: Any) -> list[Callable[..., Any]]:
    if callable(rewards):
        return [rewards]
    listed = list(rewards) if isinstance(rewards, list | tuple) else []
    if any(map(callable, listed)) and not all(map(callable, listed)):
        raise InputError("rewards mix functions and numbers; wanted one function a prompt, or a table")
    return listed if any(map(callable, listed)) else []


def _prompts(rewards: Any, one: Layout) -> int:
    """P, from the number of functions or the shape of a table."""
    functions = _functions(rewards)
    return len(functions) if functions else _fitting("rewards", _as_array("rewards", rewards).shape, one)


def _fitting(name: str, shape: tuple[int, ...], one: Layout) -> int:
    """How many prompts a table of this shape is of."""
    box, (rows, tokens) = (one.vocabulary,) * one.depth, one.shape
    if not one.end and shape == box:
        return 1
    if not one.end and shape[1:] == box and shape[0] > 0:
        return shape[0]
    if len(shape) == 2 and shape[1] == tokens and shape[0] > 0 and shape[0] % rows == 0:
        return shape[0] // rows
    full = f"[{rows}·P, {tokens}] for P prompts (one number a prefix and token)"
    boxes = "" if one.end else f", or [{tokens}]*{one.depth} or [P] + [{tokens}]*{one.depth} (one a response)"
    raise InputError(f"{name} have shape {shape}; wanted {full}{boxes}")


def _values(function: Callable[..., Any], layout: Layout) -> Float[np.ndarray, " E"]:
    """The function at each response."""
    values = [function(response) for response in layout.responses()]
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape == (len(values),) and array.dtype.kind in "biuf" and (np.abs(array.astype(float)) <= 1e30).all():
        return array.astype(float)
    for response, value in zip(layout.responses(), values, strict=True):
        if not _is_number(value):
            raise InputError(
                f"the reward of response {response} is {value!r:.50}; wanted a finite number of size ≤ 1e30"
            )
    return np.array([float(value) for value in values])


def _is_number(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return array.shape == () and array.dtype.kind in "biuf" and bool(abs(float(array)) <= 1e30)


def _labels(function: Callable[..., Hashable], layout: Layout) -> Int[np.ndarray, " E"]:
    """The answers, numbered in the order in which they first come up."""
    numbers: dict[Hashable, int] = {}
    labels = np.empty(layout.response_count, np.int32)
    for place, response in enumerate(layout.responses()):
        answer = function(response)
        try:
            labels[place] = numbers.setdefault(answer, len(numbers))
        except TypeError:
            raise InputError(
                f"the answer of response {response} is {answer!r:.50}; wanted a number, a string or a tuple"
            ) from None
    return labels


def _last_tokens(layout: Layout) -> Int[np.ndarray, "S A"]:
    """The last token before the end; A − 1 for the empty response."""
    table = np.full(layout.shape, -1)
    for level, (low, high) in enumerate(layout.edges):
        last = np.arange(high - low) % layout.branching if level else layout.vocabulary - 1
        table[low:high, layout.branching :] = np.reshape(last, (-1, 1))
    table[layout.edges[-1][0] :, : layout.branching] = np.arange(layout.branching)
    return table


def _label_table(answers: Any, layout: Layout) -> Int[np.ndarray, "S A"]:
    try:
        array = np.asarray(answers)
    except ValueError:
        raise InputError("answers are ragged; wanted a table of whole numbers") from None
    if array.dtype.kind not in "biu":
        raise InputError(f"answers are of type {array.dtype}; wanted whole numbers, or a function of a response")
    if _fitting("answers", array.shape, layout._replace(prompts=1)) != layout.prompts:
        raise InputError(f"answers have shape {array.shape}; wanted {layout.shape}, one row a row of the rewards")
    if array.shape != layout.shape:
        rows = array.reshape(-1, layout.vocabulary)
        array = np.concatenate([np.full((layout.edges[-1][0], layout.vocabulary), -1), rows])
    array, finishes = array.astype(np.int64), layout.finishes()
    if array[finishes].min() < 0:
        row, token = np.argwhere(finishes & (array < 0))[0].tolist()
        raise InputError(f"the answer of {layout.name(row, token)} is {array[row, token]}; wanted labels 0, 1, 2, …")
    return np.where(finishes, array, -1)


def _spread(values: np.ndarray, layout: Layout, fill: int = 0) -> np.ndarray:
    """One number a response, [P, E], as a table [S, A] with `fill` elsewhere."""
    one = layout._replace(prompts=1)
    tables = np.full((layout.prompts, *one.shape), fill, values.dtype)
    tables[:, one.finishes()] = values
    return np.concatenate([tables[:, low:high].reshape(-1, layout.vocabulary) for low, high in one.edges])


def _as_array(name: str, values: Any) -> Any:
    """A tracer as it is, else a NumPy array of real numbers."""
    if isinstance(values, jax.core.Tracer):
        return values
    try:
        array = np.asarray(values, None if hasattr(values, "dtype") else float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} are ragged or not numbers; wanted real numbers, rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} are of type {array.dtype}; wanted real numbers")
    return array


def _float_of(dtype: Any) -> Any:
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else float
