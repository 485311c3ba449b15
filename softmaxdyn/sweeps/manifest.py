"""plan.json: which sweep a folder belongs to, and what its numbers were made with."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

from softmaxdyn.errors import InputError
from softmaxdyn.results import whole_file
from softmaxdyn.sweeps import native
from softmaxdyn.sweeps.plan import Plan

PLAN = "plan.json"
MADE_WITH = ("jax_version", "jaxlib_version", "numpy_version", "device", "kernel")
"""What else decides the last bits of a number."""


def manifest(plan: Plan, kernel: str = native.JAX) -> dict[str, Any]:
    """What plan.json holds of a plan that is begun now, its fast path run by `kernel`."""
    return {
        "sha256": plan.hash,
        "softmaxdyn_version": _version(),
        "jax_version": jax.__version__,
        "jaxlib_version": jaxlib.__version__,
        "numpy_version": np.__version__,
        "device": jax.devices()[0].device_kind,
        "kernel": kernel,
        "dtype": plan.dtype,
        "git_commit": git_commit(),
        "cells": len(plan.cells),
        "runs": plan.num_runs,
        "spec": plan.text.splitlines(),
    }


def kept_manifest(folder: Path, plan: Plan, kernel: str = native.JAX) -> dict[str, Any]:
    """The plan.json of a folder, written now if it has none.

    Raises InputError for one that is damaged or that belongs to another sweep.
    """
    path = folder / PLAN
    if not path.exists():
        write_json(path, manifest(plan, kernel))
    found = read_json(path)
    text = "\n".join([*found["spec"], ""])
    if found["sha256"] != _hash(text, found["softmaxdyn_version"]):
        raise _damaged(path, "its checksum does not match")
    if found["softmaxdyn_version"] != _version():
        what = f"softmaxdyn {found['softmaxdyn_version']}, and this is {_version()}"
    elif text != plan.text:
        what = f"another sweep ({_difference(text, plan.text)})"
    else:
        return found
    raise InputError(f"{str(folder)!r} holds {what}; wanted an empty or a new folder")


def refuse_other_bits(folder: Path, found: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises InputError where a sweep was begun with versions or on a device that would give other last bits."""
    for name in MADE_WITH:
        if found[name] != now[name]:
            what = name.removesuffix("_version")
            how = f" ({native.SWITCH}=0)" if name == "kernel" and found[name] == native.JAX else ""
            raise InputError(
                f"{str(folder)!r} was begun with {what} {found[name]}, and this is {now[name]}: the rest would not be "
                f"bit-equal; wanted {what} {found[name]}{how}, or a new folder"
            )


def read_json(path: Path) -> dict[str, Any]:
    """The plan.json at `path`. Raises InputError for a damaged one."""
    try:
        found = json.loads(path.read_text("utf-8"))
        spec = found["spec"]
        missing = [name for name in (*MADE_WITH, "sha256", "softmaxdyn_version") if not isinstance(found[name], str)]
        if missing or not all(isinstance(line, str) for line in spec):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path, "it is cut short or edited") from None
    return found


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON, whole or not at all."""
    with whole_file(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


@cache
def git_commit() -> str:
    """The commit of the package's own checkout; empty where it is installed, or git is not there."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _damaged(path: Path, how: str) -> InputError:
    return InputError(f"{str(path)!r} is damaged: {how}; remove it, and blocks of the same sweep are kept")


def _difference(old: str, new: str) -> str:
    """The first line in which two specs differ, one after the other."""
    lines = zip([*old.splitlines(), "nothing"], [*new.splitlines(), "nothing"], strict=False)
    before, after = next((a, b) for a, b in lines if a != b)
    if before.startswith("content = ") and after.startswith("content = "):
        return "the same spec, but a file or a default that it reads has changed"
    return f"{before!r} there, {after!r} here"


def _hash(text: str, version: str) -> str:
    return hashlib.sha256(f"softmaxdyn {version}\n{text}".encode()).hexdigest()


def _version() -> str:
    return sys.modules["softmaxdyn"].__version__
