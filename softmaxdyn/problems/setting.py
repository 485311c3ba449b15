"""A setting: what a run starts from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from softmaxdyn.errors import check_integer
from softmaxdyn.problems.protocol import Problem


class Setting(NamedTuple):
    """What a run starts from: the problem, the logits [S, A] (−inf masks an action) and one line about both."""

    problem: Problem
    logits: Float[np.ndarray, "S A"]
    note: str


def setting(problem: Problem, logits: Float[np.ndarray, "S A"], *remarks: str) -> Setting:
    """A setting with its note: the remarks, and a warning where A = 1."""
    alone = ["one arm: the entropy is 0 and nothing moves"] if problem.shape[1] == 1 else []
    return Setting(problem, logits, "; ".join([*remarks, *alone]))


def generator_of(seed: int) -> np.random.Generator:
    """NumPy's generator of a seed ≥ 0. Raises InputError for another."""
    return np.random.default_rng(check_integer("seed", seed, 0))
