"""The fast path of the engine in machine code: native.cpp, built by the system's compiler when it is first needed.

It does what `rows.run_rows` does, with the same formulas, several times as fast. The library lies in the user's cache,
under a name that says what it was built from, by and for. Without a compiler, or where anything goes wrong, `kernel` is
"jax" and nothing else changes; SOFTMAXDYN_NATIVE=0 asks for that.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Array, Float

from softmaxdyn.results import whole_file
from softmaxdyn.sweeps.rows import SUMS
from softmaxdyn.updates import NaturalPG

JAX = "jax"
SWITCH = "SOFTMAXDYN_NATIVE"

_SOURCE = Path(__file__).with_suffix(".cpp")
_COMPILERS = ("c++", "g++", "clang++")
_OPTIONS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-w")
_SECONDS = 120  # that a compiler may take
_TARGET = "softmaxdyn_rows"


def kernel() -> str:
    """What runs the fast path in this process: "native " and what names its bits, or "jax"."""
    if os.environ.get(SWITCH) == "0" or jax.default_backend() != "cpu":
        return JAX
    return _registered()


def run_rows(
    carry: Any, start: Any, stop: Any, every: Any, *, rows: int, sums: Sequence[str]
) -> tuple[Any, dict[str, Float[Array, "B T"]]]:
    """`rows.run_rows`, by the library that `kernel` found."""
    problem, algorithm, logits, key = carry
    runs, states, _ = logits.shape
    reward = jnp.broadcast_to(jnp.asarray(problem.rewards), logits.shape)
    weight = jnp.broadcast_to(jnp.asarray(problem.weights), (runs, states))
    step_size = jnp.broadcast_to(algorithm.update.step_size, (runs,))
    steps = jnp.stack([jnp.asarray(x, jnp.int32) for x in (start, stop, every)])
    ordered = [name for name in SUMS if name in sums]
    shapes = logits, jax.ShapeDtypeStruct((len(ordered), runs, rows), logits.dtype)
    call = jax.ffi.ffi_call(_TARGET, [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in shapes])
    asked = np.int64(sum(1 << SUMS.index(name) for name in ordered))
    natural = np.bool_(type(algorithm.update) is NaturalPG)
    moved, found = call(logits, reward, weight, step_size, steps, natural=natural, fields=asked)
    return (problem, algorithm, moved, key), dict(zip(ordered, found, strict=True))


@cache
def _registered() -> str:
    """`kernel`, once the library is known to JAX; "jax" if there is no way to it."""
    try:
        path = library(_cache())
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(ctypes.CDLL(str(path)).softmaxdyn_rows), platform="cpu")
    except (OSError, RuntimeError, subprocess.SubprocessError, AttributeError):
        return JAX
    return f"native {path.stem}"


def library(folder: Path) -> Path:
    """The library in `folder`, built if it is not there. Raises OSError or SubprocessError where that fails."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise OSError("no compiler")
    path = folder / f"{_name(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    return path


def _build(compiler: str, path: Path) -> None:
    """Builds the library, whole or not at all."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        command = [compiler, *_OPTIONS, f"-I{jax.ffi.include_dir()}", str(_SOURCE), "-o", str(unfinished)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)


def _name(compiler: str) -> str:
    """A digest of all that decides the bits: the source, the compiler and its options, jaxlib and the processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=_SECONDS).stdout
    rest = "\n".join([*_OPTIONS, jaxlib.__version__, _processor()])
    return hashlib.sha256(_SOURCE.read_bytes() + version + rest.encode()).hexdigest()[:16]


def _processor() -> str:
    """The model of the processor and what it can do, where Linux says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    found = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return "\n".join([platform.platform(), platform.processor(), *sorted(found)])


def _cache() -> Path:
    """The user's cache folder of this package."""
    own = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or own) / "softmaxdyn"
