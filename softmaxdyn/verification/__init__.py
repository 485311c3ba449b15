"""`verify`: the theory against the code and the code against a second road, on random and adversarial policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import count

import jax

from softmaxdyn.errors import check_integer
from softmaxdyn.verification.cases import draw, plan
from softmaxdyn.verification.checks import ONE_STEP
from softmaxdyn.verification.closed_forms import NATURAL
from softmaxdyn.verification.counterexamples import FIXED, FIXED_WIDTH, RANDOM, fixed_evidence
from softmaxdyn.verification.evidence import gather
from softmaxdyn.verification.verdicts import Check, Sample, Verdict, judge

__all__ = ["DTYPES", "FEWEST", "Verdict", "verify"]

FEWEST = 1000
"""Cases below which an order cannot be told from its scatter."""

DTYPES = ("float64", "float32")

Samples = dict[Check, Sample]


def verify(
    seed: int = 0,
    cases: int = 20_000,
    report: Callable[[Verdict], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """One verdict a dtype and statement (T1–T11, T13–T15, C1–C5), on at least `cases` policies; the seed decides all.

    `report` is called with each verdict as soon as it is known, `progress` with the number of tables looked at so far,
    out of 2 × len(plan(cases)). Raises InputError for a negative seed or too few cases.
    """
    seed, cases = check_integer("seed", seed, 0), check_integer("cases", cases, FEWEST)
    verdicts = []
    for verdict in _verdicts(seed, cases, progress or (lambda done: None)):
        verdicts.append(verdict)
        if report is not None:
            report(verdict)
    return verdicts


def _verdicts(seed: int, cases: int, progress: Callable[[int], None]) -> Iterator[Verdict]:
    tables, done = plan(cases), count(1)
    shape = next((rows, width) for _, rows, width in tables if width >= FIXED_WIDTH)
    with ThreadPoolExecutor(2) as pool:
        for dtype in DTYPES:
            found = []
            for samples in pool.map(partial(_random_samples, seed, dtype), tables):
                found.append(samples)
                progress(next(done))
            found.append(_fixed_samples(*shape, dtype))
            for check in ONE_STEP + NATURAL + FIXED + RANDOM:
                yield judge(check, [samples[check] for samples in found if check in samples], dtype)


def _random_samples(seed: int, dtype: str, table: tuple[int, int, int]) -> Samples:
    with _double_precision():
        evidence = gather(draw(seed, *table, dtype))
    return {check: check.sample(evidence) for check in ONE_STEP + NATURAL + RANDOM}


def _fixed_samples(rows: int, width: int, dtype: str) -> Samples:
    with _double_precision():
        evidence = fixed_evidence(rows, width, dtype)
    return {check: check.sample(evidence) for check in FIXED + RANDOM}


def _double_precision() -> AbstractContextManager[None]:
    """float64 for this thread, whatever JAX is set to."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return jax.experimental.enable_x64(True)  # type: ignore[attr-defined] # before JAX 0.8
