"""`verify`: the theory against the code and the code against a second road, on random and adversarial policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import jax

from softmaxdyn.errors import check_integer
from softmaxdyn.verification.cases import Block, draw
from softmaxdyn.verification.checks import ONE_STEP
from softmaxdyn.verification.closed_forms import NATURAL
from softmaxdyn.verification.counterexamples import FIXED, FIXED_WIDTH, RANDOM, fixed_evidence
from softmaxdyn.verification.evidence import Evidence, gather
from softmaxdyn.verification.verdicts import Verdict, judge

__all__ = ["FEWEST", "NUM_VERDICTS", "Verdict", "verify"]

FEWEST = 1000
"""Cases below which an order cannot be told from its scatter."""

DTYPES = ("float64", "float32")

NUM_VERDICTS = len(DTYPES) * len(ONE_STEP + NATURAL + FIXED + RANDOM)


def verify(seed: int = 0, cases: int = 20_000, report: Callable[[Verdict], None] | None = None) -> list[Verdict]:
    """One verdict a statement (T1–T11, T13–T15, C1–C5) and dtype, on at least `cases` policies; deterministic.

    `report` is called with each verdict as soon as it is known. Raises InputError for a negative seed or too few cases.
    """
    seed, cases = check_integer("seed", seed, 0), check_integer("cases", cases, FEWEST)
    verdicts = []
    for verdict in _verdicts(seed, cases):
        verdicts.append(verdict)
        if report is not None:
            report(verdict)
    return verdicts


def _verdicts(seed: int, cases: int) -> Iterator[Verdict]:
    with ThreadPoolExecutor(2) as pool:
        for dtype in DTYPES:
            blocks = draw(seed, cases, dtype)
            evidence = list(pool.map(_gather, blocks))
            fixed = _fixed(next(block for block in blocks if block.logits.shape[1] >= FIXED_WIDTH))
            for group, seen in ((ONE_STEP + NATURAL, evidence), (FIXED, [fixed]), (RANDOM, [*evidence, fixed])):
                yield from pool.map(lambda check, seen=seen, dtype=dtype: judge(check, seen, dtype), group)


def _gather(block: Block) -> Evidence:
    with _double_precision():
        return gather(block)


def _fixed(like: Block) -> Evidence:
    with _double_precision():
        return fixed_evidence(like)


def _double_precision() -> AbstractContextManager[None]:
    """float64 for this thread, whatever JAX is set to."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return jax.experimental.enable_x64(True)  # type: ignore[attr-defined] # before JAX 0.8
