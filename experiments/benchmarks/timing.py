"""What the benchmarks share: the case that is timed, interleaved timing, and a process kept to some of the cores."""

import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

ROWS, ETA = 1024, 0.1


class Case(NamedTuple):
    """So many steps of vanilla PG on ROWS independent bandits of `arms` arms, on one core or two."""

    arms: int
    dtype: type
    cores: int = 1
    steps: int = 1000

    @property
    def name(self) -> str:
        return f"K = {self.arms}, {np.dtype(self.dtype).name}"

    @property
    def work(self) -> int:
        """Rows × arms × steps."""
        return ROWS * self.arms * self.steps

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(logits, rewards), each [arms, rows]."""
        rng = np.random.default_rng(0)
        logits, rewards = rng.standard_normal((2, self.arms, ROWS)).astype(self.dtype)
        return logits, rewards

    def transposed(self) -> tuple[np.ndarray, np.ndarray]:
        """(logits, rewards), each [rows, arms]."""
        logits, rewards = self.tables()
        return np.ascontiguousarray(logits.T), np.ascontiguousarray(rewards.T)


class Timed(NamedTuple):
    """A function, the cores that it runs on, and its work: what its time is divided by."""

    run: Callable[[], Any]
    work: float
    cores: int = 1


def keep_to(cores: int) -> None:
    """Lets every thread of this process run on that many cores, where the system can say so (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(_ALL)[:cores]
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # it has ended since
                os.sched_setaffinity(int(thread), allowed)


_ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def interleaved(timed: dict[str, Timed], repeats: int) -> dict[str, float]:
    """The median ns a unit of work of each, taken in turns; each has been called once already."""
    seen: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, (run, work, cores) in timed.items():
            keep_to(cores)
            start = time.perf_counter()
            run()
            seen[name].append((time.perf_counter() - start) / work * 1e9)
    keep_to(len(_ALL))
    return {name: statistics.median(values) for name, values in seen.items()}
