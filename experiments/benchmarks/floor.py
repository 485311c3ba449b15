"""What the machine can do: the loop in C (floor.c), compiled on the spot, and the roofs that it stands under."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from timing import ETA, ROWS, Case, Timed, interleaved

TILE = 32  # rows
NUMBERS = 2**25  # of each of the three tables of the triad: more than any cache holds
LOOSE = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")  # no -ffast-math: it would undo the exact parts
OPTIONS = ("-O3", "-march=native", *LOOSE, "-funroll-loops", "-shared", "-fPIC")
WIDE = "-mprefer-vector-width=512"  # a compiler for another processor does not know it
POOL = ThreadPoolExecutor(2)


@cache
def library(arms: int, dtype: type) -> ctypes.CDLL:
    """floor.c for that many arms. Raises ImportError where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise ImportError("no C compiler")
    target = Path(tempfile.mkdtemp()) / "floor.so"
    single = ["-DSINGLE"] * (dtype is np.float32)
    source = str(Path(__file__).with_name("floor.c"))
    for options in ((WIDE, *OPTIONS), OPTIONS):
        command = [compiler, *options, f"-DK={arms}", f"-DW={TILE}", *single, source, "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return ctypes.CDLL(str(target))
    raise ImportError(f"the C compiler says: {done.stderr.strip().splitlines()[0]}")


def in_c(case: Case, name: str, fields: int) -> Callable[[], np.ndarray]:
    """`name` of floor.c: [fields, steps, rows]; threads take their share of the rows."""
    run = getattr(library(case.arms, case.dtype), name)
    real = ctypes.c_float if case.dtype is np.float32 else ctypes.c_double
    run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 4 + [real]
    logits, rewards = case.tables()
    out = np.zeros((fields, case.steps, ROWS), case.dtype)
    share = ROWS // case.cores

    def all_rows() -> np.ndarray:
        z = logits.copy()

        def some(low: int) -> None:
            run(z.ctypes.data, rewards.ctypes.data, out.ctypes.data, ROWS, low, low + share, case.steps, ETA)

        list(POOL.map(some, range(0, ROWS, share))) if case.cores > 1 else some(0)
        return out

    return all_rows


def simple(case: Case) -> Callable[[], np.ndarray]:
    """H and the covariance, as every other road computes them."""
    return in_c(case, "simple", 2)


def accurate(case: Case) -> Callable[[], np.ndarray]:
    """Besides those the exact ΔH and the remainder of Lemma 1, without cancellation."""
    return in_c(case, "accurate", 4)


def roofs(repeats: int) -> dict[str, float]:
    """ns an exponential by type, and the bandwidth of memory in GB/s by cores (a = b + 3c, counted once each)."""
    timed = {}
    for dtype in (np.float64, np.float32):
        code, x = library(10, dtype), -np.random.default_rng(0).random(2**11).astype(dtype)
        y = np.empty_like(x)
        given = [ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(len(x))]
        run = _kept(lambda f=code.exponentials, given=given: f(*given, ctypes.c_long(1000)), x, y)
        timed[f"exp, {np.dtype(dtype).name}"] = Timed(run, 1000 * len(x))
    for cores in (1, 2):
        timed[f"memory, cores: {cores}"] = Timed(_triad(cores), 3 * 8 * NUMBERS, cores)
    for each in timed.values():
        each.run()
    found = interleaved(timed, repeats)
    return {name: 1.0 / value if name.startswith("memory") else value for name, value in found.items()}


def _triad(cores: int) -> Callable[[], Any]:
    tables = np.ones((3, NUMBERS))
    run = library(10, np.float64).triad
    run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
    share = NUMBERS // cores
    places = [tables[number].ctypes.data for number in range(3)]
    return _kept(lambda: list(POOL.map(lambda low: run(*places, low, low + share), range(0, NUMBERS, share))), tables)


def _kept(run: Callable[[], Any], *tables: np.ndarray) -> Callable[[], Any]:
    """`run`, which holds on to the tables that it has the addresses of."""
    run.tables = tables  # type: ignore[attr-defined]
    return run
