"""What a sweep runs: every configuration, every seed, and one text that names all of it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.problems.setting import Setting

Label = str | float


class Cell(NamedTuple):
    """A configuration without its seed.

    labels       what it is called: problem, method, step_size, and whatever else differs between cells
    setting      the problem, the logits [S, A] that a run starts from (of the sweep's dtype), a note
    algorithm    not started
    inner_steps  updates a batch
    """

    labels: dict[str, Label]
    setting: Setting
    algorithm: Algorithm
    inner_steps: int


class Plan(NamedTuple):
    """Cells × seeds, each `num_steps` steps long and recorded at every `every`-th.

    `text` says everything that decides the numbers, in lines; `hash` is its SHA-256 together with the package's version.
    """

    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    num_steps: int
    every: int
    dtype: str
    text: str

    @property
    def hash(self) -> str:
        """SHA-256 of the package's version and the text, as hex digits."""
        version = sys.modules["softmaxdyn"].__version__
        return hashlib.sha256(f"softmaxdyn {version}\n{self.text}".encode()).hexdigest()
