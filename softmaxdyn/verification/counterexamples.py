"""Statements in circulation that are not literally true, each with the policy that refutes it: C1–C5."""

from __future__ import annotations

import numpy as np

from softmaxdyn.verification import wide
from softmaxdyn.verification.cases import Block, block
from softmaxdyn.verification.checks import errors, mean_size
from softmaxdyn.verification.evidence import Evidence
from softmaxdyn.verification.verdicts import Array, Check, Sample

SECOND = ((0.7, 0.2, *8 * (0.0125,)), 10 * (0.0,))
MODE = ((0.42061, 0.42242, 0.15697), (0.0307, 0.8972, 0.8774))
SIGNS = ((0.504, 0.063, 0.063, 0.370), (1.0, 1.0, 1.0, 0.0))
RARE = ((0.97, *30 * (0.001,)), 31 * (0.0,))
SAMPLE, PG, NPG = "a sampled action", "vanilla PG", "natural PG"
ROWS = ((SECOND, SAMPLE), (MODE, PG), (SIGNS, PG), (SIGNS, NPG), (RARE, SAMPLE))
"""(π, r) and what moves the policy; the sampled action is number 1."""


def counterexamples(like: Block) -> Block:
    """ROWS again and again, as a table of the shape of `like`: nothing new compiles."""
    probabilities, rewards, directions = (np.array(x) for x in zip(*(_row(row, like) for row in ROWS), strict=True))
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities)
    tables = (np.resize(x, like.logits.shape) for x in (logits, rewards, directions))
    logits, rewards, directions = tables
    zero = np.zeros(len(logits))
    return block(
        like.dtype,
        logits,
        rewards,
        direction=directions,
        delta=0.01 * directions,
        correct=np.arange(logits.shape[1]) == np.zeros_like(zero)[:, None],
        action=zero.astype(int) + 1,
        shift=zero,
        time=zero,
    )


def _row(row: tuple[tuple[Any, Any], str], like: Block) -> tuple[Array, Array, Array]:
    raise NotImplementedError
