"""Pass counts: n samples of a prompt, of which some were correct."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmaxdyn.errors import InputError, check_integer, check_number
from softmaxdyn.files.arrays import numbers
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.setting import Setting, setting


def from_counts(n: Any, correct: Any, weights: Any = None, *, options: dict[str, Any], seed: int = 0) -> Setting:
    """A pool of prompts that start with success probability c/n, which is unbiased: E[c/n] = p for every n.

    Each prompt has `actions` (100) arms; the first `correct` (10) of them have reward 1. Inside the correct and the
    wrong arms the start is uniform, or has logits drawn from N(0, spread²), and the success probability stays exact.

    A prompt at c = 0 or c = n has no mass on one side: those arms are masked and the prompt never moves. With
    `smoothing` α the start is (c + α)/(n + 2α), which is biased but never 0 or 1 (½: Jeffreys). Prompts without
    samples or without a count are left out.
    """
    return _pool(*_counted(numbers("n", n), numbers("correct", correct), weights), seed=seed, **options)


def _counted(n: np.ndarray, correct: np.ndarray, weights: Any) -> tuple[np.ndarray, np.ndarray, Any, int]:
    if n.ndim != 1 or n.shape != correct.shape:
        raise InputError(f"n and correct have shapes {n.shape} and {correct.shape}; wanted one of each a prompt")
    counted = (n != 0) & np.isfinite(n) & ~np.isnan(correct) | np.isinf(n)
    for name, values in ("n", n), ("correct", correct):
        _each(counted & ~((values >= 0) & (values == np.floor(values)) & np.isfinite(values)), name, values)
    odd = (n == 0) & (correct > 0) | counted & (correct > n)
    _each(odd, "correct", correct, f"at most n = {n[odd.argmax()]:g}" if odd.any() else "")
    if not counted.any():
        raise InputError("no prompt has a count; wanted n ≥ 1 and 0 ≤ correct ≤ n in at least one row")
    if weights is not None:
        weights = numbers("weights", weights)
        if weights.shape != n.shape:
            raise InputError(f"weights have shape {weights.shape}; wanted one a prompt: {n.shape}")
        weights = weights[counted]
    return n[counted], correct[counted], weights, int((~counted).sum())


def _each(wrong: np.ndarray, name: str, values: np.ndarray, wanted: str = "a whole number ≥ 0") -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{name} is {values[row]:g} in prompt {row} (the first is 0); wanted {wanted}")


def _pool(
    n: np.ndarray,
    passed: np.ndarray,
    weights: Any,
    left_out: int,
    *,
    seed: int,
    actions: int = 100,
    correct: int = 10,
    smoothing: float | int = 0.0,
    spread: float | int = 0.0,
) -> Setting:
    check_integer("actions", actions, 2)
    if check_integer("correct", correct, 1) >= actions:
        raise InputError(f"correct is {correct}; wanted fewer correct arms than actions ({actions})")
    check_number("smoothing", smoothing, 0.0)
    check_number("spread", spread, 0.0)
    inside = spread * np.random.default_rng(check_integer("seed", seed, 0)).standard_normal((len(n), actions))
    right, wrong = passed + smoothing, n - passed + smoothing
    with np.errstate(divide="ignore"):
        share = np.log(np.stack([right, wrong], 1))
    parts = _log_softmax(inside[:, :correct]), _log_softmax(inside[:, correct:])
    logits = np.concatenate([share[:, :1] + parts[0], share[:, 1:] + parts[1]], 1)
    rewards = np.broadcast_to((np.arange(actions) < correct).astype(float), logits.shape)
    return setting(Bandit(rewards, weights), logits, *_remarks(right, wrong, left_out, actions, correct))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def _remarks(right: np.ndarray, wrong: np.ndarray, left_out: int, actions: int, correct: int) -> list[str]:
    mean, zero, one = (right / (right + wrong)).mean(), int((right == 0).sum()), int((wrong == 0).sum())
    remarks = [f"{len(right)} prompts × {actions} actions, {correct} correct; mean success {mean:.4g}"]
    if left_out:
        remarks.append(f"{left_out} prompts without a count left out")
    if zero + one:
        remarks.append(f"{zero} start at success 0 and {one} at 1 and never move (smoothing=0.5 would free them)")
    return remarks
