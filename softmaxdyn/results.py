"""Labelled results: a trace as an xarray.Dataset, saved as netCDF-4 whole or not at all, read back bit for bit."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from softmaxdyn.errors import InputError
from softmaxdyn.problems import Bandit, Problem
from softmaxdyn.trace import Trace

if TYPE_CHECKING:
    import xarray


class Field(NamedTuple):
    """The label of one variable of a dataset."""

    dims: tuple[str, ...]
    long_name: str
    units: str
    formula: str


_KEPT = 40  # characters of a file's name that its unfinished form keeps: with all of them it may be too long
_UNFINISHED: set[Path] = set()
_ROW = ("step", "state")
FIELDS = {
    "step": Field(("step",), "number of the step", "1", "t"),
    "expected_return": Field(("step",), "expected return before the step", "reward", "J = Σ_s d(s) E_π r"),
    "visits": Field(_ROW, "expected visits to the state in an episode", "1", "d(s)"),
    "entropy": Field(_ROW, "entropy before the step", "nats", "H = −Σ_a π log π"),
    "entropy_change": Field(_ROW, "exact change of entropy", "nats", "ΔH = H(z + δ) − H(z)"),
    "lemma_1": Field(_ROW, "change of entropy by Lemma 1", "nats", "−Cov_π(log π, δ)"),
    "theorem_1": Field(_ROW, "change of entropy by Theorem 1 (vanilla PG)", "nats", "−η d(s) Cov_π(log π, π∘A)"),
    "theorem_2": Field(_ROW, "change of entropy by Theorem 2 (natural PG)", "nats", "−η Cov_π(log π, A)"),
    "remainder": Field(_ROW, "what Lemma 1 leaves out", "nats", "R = ΔH + Cov_π(log π, δ)"),
    "bound": Field(_ROW, "certified bound on |remainder|", "nats", "(1/8 + log(K−1)/(12√3)) osc(δ)²"),
    "kl": Field(_ROW, "divergence of the new policy from the old", "nats", "KL(π'‖π)"),
    "selected": Field(("step", "intervention"), "share of the tokens that the intervention touched", "1", ""),
    "trajectory_entropy": Field(("step",), "entropy of an episode before the step", "nats", "H̄ = Σ_s d(s) H(s)"),
    "trajectory_change": Field(("step",), "exact change of the entropy of an episode", "nats", "ΔH̄"),
    "local_change": Field(("step",), "its part with the visits frozen", "nats", "Σ_s d(s) ΔH(s)"),
    "visitation_change": Field(("step",), "its part by moved visits", "nats", "Σ_s Δd(s) H'(s)"),
    "visitation_prediction": Field(("step",), "first order of that part", "nats", "Σ_s d(s) Cov_s(Q_H, δ)"),
    "action_covariance": Field(("step",), "covariance by action", "reward nats", "Σ_s d(s) Cov_s(log π, A)"),
    "sequence_covariance": Field(("step",), "covariance by sequence", "reward nats", "Σ_s d(s) Cov_s(log π − Q_H, Q)"),
    "normalised_covariance": Field(
        ("step",), "covariance by sequence, per length", "reward nats", "Σ_x w_x Cov(log π(y|x)/|y|, R(y))"
    ),
    "token_covariance": Field(("step",), "covariance over all tokens", "reward nats", "Cov_tokens(log π, R − V(x))"),
    "logits": Field(("state", "action"), "logits at the end", "nats", "z; −∞ masks an action"),
    "final_expected_return": Field((), "expected return at the end", "reward", "J"),
    "final_entropy": Field(("state",), "entropy at the end", "nats", "H"),
}
MEASURES = {
    "position_entropy": Field(("step", "position"), "mean entropy of the token at a position", "nats", ""),
    "response_entropy": Field(("step",), "entropy of the response to a prompt", "nats", "E_x H(y|x)"),
    "answer_entropy": Field(("step",), "entropy of the final answer to a prompt", "nats", "E_x H(answer|x)"),
    "mean_length": Field(("step",), "mean length of a response", "tokens", "E|y|"),
    "solve_residual": Field(("step",), "largest relative residual of the linear solves", "1", ""),
}


def to_xarray(trace: Trace, attributes: Mapping[str, Any] | None = None) -> xarray.Dataset:
    """The trace with named dimensions; units, formulas, versions, provenance and `attributes` ride along as attrs."""
    import xarray

    variables = {name: (f.dims, np.asarray(getattr(trace, name)), _label(f)) for name, f in FIELDS.items()}
    variables |= {name: _measure(name, values) for name, values in trace.measures.items()}
    states, actions = variables["logits"][1].shape
    coordinates = {
        "step": variables.pop("step"),
        "state": ("state", np.arange(states), {"long_name": "state (context)"}),
        "action": ("action", np.arange(actions), {"long_name": "action (arm)"}),
    }
    return xarray.Dataset(variables, coordinates, {**(attributes or {}), **_provenance(trace)})


def save(trace: Trace, path: str | Path, attributes: Mapping[str, Any] | None = None) -> Path:
    """Writes `to_xarray(trace, attributes)` to `path` as netCDF-4 (HDF5), with a checksum in every block.

    The file appears whole or not at all; an older one of that name is replaced at the end. Raises OSError where `path`
    cannot be written.
    """
    return _write(to_xarray(trace, attributes), path)


def save_runs(traces: Sequence[Trace], path: str | Path, attributes: Mapping[str, Any] | None = None) -> Path:
    """Writes runs that differ in their seed as one file, like `save`, with a dimension `seed` before the others."""
    import xarray

    runs = [to_xarray(trace, attributes) for trace in traces]
    return _write(xarray.concat(runs, "seed", combine_attrs="override"), path)


def _write(dataset: xarray.Dataset, path: str | Path) -> Path:
    path = Path(path)
    encoding = {name: _encoding(variable) for name, variable in dataset.variables.items()}
    with whole_file(path) as unfinished:
        dataset.to_netcdf(unfinished, engine="h5netcdf", format="NETCDF4", encoding=encoding)
    return path


def load(path: str | Path) -> Trace:
    """The trace that `save` wrote, bit for bit, as NumPy arrays; raises InputError for any other file."""
    import xarray

    if not Path(path).is_file():
        raise InputError(f"no file {str(path)!r}; wanted one that Trace.save wrote")
    try:
        dataset = xarray.load_dataset(path, engine="h5netcdf", decode_cf=False)
    except Exception as error:  # HDF5 says that a file is damaged in a dozen ways
        raise InputError(f"{str(path)!r} is damaged or no netCDF-4 file ({_first_line(error)})") from None
    for name, field in FIELDS.items():
        if name not in dataset or dataset[name].dims != field.dims:
            raise InputError(f"{str(path)!r} holds no {name} over {field.dims}; wanted a file that Trace.save wrote")
    names = json.loads(dataset.attrs.get("provenance", "[]"))
    provenance = tuple((name, dataset.attrs[name]) for name in names)
    measures = {name: dataset[name].values for name in json.loads(dataset.attrs.get("measures", "[]"))}
    return Trace(**{name: dataset[name].values for name in FIELDS}, measures=measures, provenance=provenance)


def visit_mean(trace: Trace, name: str) -> np.ndarray:
    """Σ_s d(s) x(s) / Σ_s d(s) of a field x: [T] for a field [T, S]; for [S] (at the end), with the last recorded d.

    In a problem of several steps it is a mean over all tokens: long episodes and often visited states count more.
    """
    visits, values = np.asarray(trace.visits), np.asarray(getattr(trace, name))
    weights = visits if values.ndim == 2 else visits[-1]
    return np.asarray(np.sum(weights * np.where(weights > 0, values, 0), -1) / np.sum(weights, -1))


def remarks(problem: Problem, logits: Float[np.ndarray, "S A"], traces: Mapping[str, Trace]) -> Iterator[str]:
    """What a reader of these traces, which start from `logits`, must know: where nothing can move, what is a mean."""
    states, actions = logits.shape
    if isinstance(problem, Bandit) and actions > 1:
        rewards, taken = np.asarray(problem.rewards), ~np.isneginf(logits)
        high, low = rewards.max(-1, where=taken, initial=-np.inf), rewards.min(-1, where=taken, initial=np.inf)
        if (high == low).any():
            yield f"nothing moves in {np.sum(high == low)} of {states} states: their actions all earn the same"
    if states > 1:
        yield f"the table and the figure show means over the {states} states, weighted with their visits"
    if any("answer_entropy" in trace.measures for trace in traces.values()):
        yield "token entropy is not diversity: the entropy of the final answer can move the other way"
    for name, trace in traces.items():
        stays = np.array_equal(_relative(trace.logits), _relative(logits))
        if stays and np.any(trace.entropy_change):
            yield f"every step of {name} is below one ulp of the logits, so its policy stays; try a larger step size"


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A name to write to; the file moves to `path` at the end, or is removed if anything goes wrong.

    What was written is copied into `path` where that is a stream (`is_stream`), which cannot be replaced. Raises
    OSError where neither is possible.
    """
    target, stream = Path(os.path.realpath(path)), is_stream(path)
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; rename it, or write to another place")
    folder = Path(tempfile.gettempdir()) if stream else target.parent
    unfinished = folder / f".{target.name[:_KEPT]}.{secrets.token_hex(4)}.part"
    _UNFINISHED.add(unfinished)
    try:
        yield unfinished
        if stream:
            _pour(unfinished, path)
        else:
            _move(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
        _UNFINISHED.discard(unfinished)


def is_stream(path: str | Path) -> bool:
    """Whether `path` is a device, a pipe or a socket, or what this program prints to (/dev/stdout, even in a file)."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)) or _printed(found) is not None


def _printed(found: os.stat_result) -> int | None:
    """The number of this program's own output that goes to the file `found`; None if neither does."""
    for number in (1, 2):
        with suppress(OSError):  # it may be closed
            if os.path.samestat(found, os.fstat(number)):
                return number
    return None


def _move(unfinished: Path, target: Path) -> None:
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, target)


def _pour(unfinished: Path, path: str | Path) -> None:
    """Copies a file into a stream. A file that is also printed to goes on where the print is: no second start."""
    try:
        number = _printed(os.stat(path))
        sys.stdout.flush()
        place = os.open(path, os.O_WRONLY) if number is None else number
        with open(unfinished, "rb") as file, open(place, "wb", closefd=number is None) as stream:
            shutil.copyfileobj(file, stream)
    except OSError as error:
        raise OSError(f"cannot write to {str(path)!r} ({error.strerror or error})") from None


def remove_unfinished() -> None:
    """Removes what `whole_file` has begun in this process, for a program that is about to end without unwinding."""
    for path in list(_UNFINISHED):
        path.unlink(missing_ok=True)


def _relative(logits: Any) -> np.ndarray:
    return np.asarray(logits) - np.max(logits, -1, keepdims=True)


def _label(field: Field) -> dict[str, str]:
    return {key: text for key, text in field._asdict().items() if key != "dims" and text}


def _measure(name: str, values: Any) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
    """The variable of a measure; one that a problem of the user's own records has dimensions named after it."""
    values = np.asarray(values)
    plain = Field(("step", *(f"{name}_{axis}" for axis in range(1, values.ndim))), name, "", "")
    field = MEASURES.get(name, plain)
    return field.dims, values, _label(field)


def _provenance(trace: Trace) -> dict[str, str]:
    return {
        **dict(trace.provenance),
        "provenance": json.dumps([name for name, _ in trace.provenance]),
        "measures": json.dumps(list(trace.measures)),
        "dtype": str(np.asarray(trace.logits).dtype),
        "softmaxdyn_version": sys.modules["softmaxdyn"].__version__,
        "jax_version": jax.__version__,
    }


def _encoding(variable: Any) -> dict[str, Any]:
    packed = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
    return {"_FillValue": None, **(packed if variable.ndim and variable.size else {})}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
