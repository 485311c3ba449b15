"""The blocks of a sweep as one tall table, a netCDF-4 file with a row a run, written block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.results import FIELDS, MEASURES, Field
from softmaxdyn.sweeps.layout import Layout
from softmaxdyn.sweeps.netcdf import written
from softmaxdyn.sweeps.plan import Plan
from softmaxdyn.sweeps.store import Store

CHUNK = 2**16  # numbers that are compressed together
STEPS = 256  # steps of them
_PACKED = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}


class Variable(NamedTuple):
    """A variable of the results of a run: its own dimensions after that of the runs, their sizes, and its label."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    attributes: dict[str, str]


def write_table(store: Store, layout: Layout) -> None:
    """Writes the table: dims run × step, a coordinate on run for every label, units and formulas as attributes.

    One block is in memory at a time. What a family does not record is NaN in its rows. Raises OSError where the file
    cannot be written, and Fault for a block that is no longer valid.
    """
    plan = store.plan
    with written(store.table) as output:
        file, variables = output.file, _variables(store, layout)
        begin(file, store, {"run": len(layout.cell)}, variables)
        write_labels(file, plan, "run", layout.cell)
        _coordinate(file, "seed", "run", layout.seed, "seed of the run; −1 where the method draws nothing")
        for name, variable in variables.items():
            create(file, name, "run", variable, plan.dtype)
        for block in layout.blocks:
            arrays = store.read(block)
            rows = slice(block.first, block.first + len(block.cell))
            for name, variable in variables.items():
                file.variables[name][rows] = _padded(arrays.get(name), (len(block.cell), *variable.sizes), plan.dtype)
            output.check()


def begin(file: Any, store: Store, rows: Mapping[str, int], variables: Mapping[str, Variable]) -> None:
    """The dimensions, the recorded steps and the provenance of a file."""
    sizes = dict(rows) | {
        dim: size for each in variables.values() for dim, size in zip(each.dims, each.sizes, strict=True)
    }
    sizes["step"] = len(store.plan.steps)
    for dim, size in sizes.items():
        file.dimensions[dim] = size
    field = FIELDS["step"]
    _coordinate(file, "step", "step", store.plan.steps, field.long_name)
    made = {name: value for name, value in store.made.items() if name not in ("spec", "sha256", "cells", "runs")}
    file.attrs.update(made | {"sweep": store.hash, "spec": store.plan.text})


def write_labels(file: Any, plan: Plan, dim: str, cells: np.ndarray) -> None:
    """The number of the cell and its labels, along `dim`; NaN and "" where a cell has no such label."""
    _coordinate(file, "cell", dim, cells, "number of the cell (configuration without its seed)")
    names = dict.fromkeys(name for cell in plan.cells for name in cell.labels)
    for name in names:
        values = [cell.labels.get(name) for cell in plan.cells]
        text = any(isinstance(value, str) for value in values)
        blank: Any = "" if text else np.nan
        column = np.array([blank if v is None else str(v) if text else v for v in values], object if text else float)
        _coordinate(file, name, dim, column[cells], f"{name.replace('_', ' ')} of the run")
    file.attrs["coordinates"] = " ".join(["cell", *names, *(["seed"] if dim == "run" else [])])


def create(file: Any, name: str, dim: str, variable: Variable, dtype: str) -> None:
    """A variable over `dim` and its own dimensions, in compressed chunks of some rows and at most STEPS steps."""
    sizes = [int(min(size, STEPS)) for size in variable.sizes]  # chunks
    rows = int(np.clip(CHUNK // int(np.prod(sizes)), 1, file.dimensions[dim].size))
    made = file.create_variable(name, (dim, *variable.dims), np.dtype(dtype), chunks=(rows, *sizes), **_PACKED)
    made.attrs.update(variable.attributes)


def label(name: str) -> Field:
    """What is known about a field of the results; a measure of the user's own has dimensions named after it."""
    return FIELDS.get(name) or MEASURES.get(name) or Field((), name.replace("_", " "), "", "")


def _variables(store: Store, layout: Layout) -> dict[str, Variable]:
    """Every variable that some family records, with the largest of its sizes; one of size 0 is left out."""
    found: dict[str, Variable] = {}
    for block in layout.blocks:
        if block.number == 0:
            for name, array in store.read(block).items():
                sizes = array.shape[1:]
                old = found[name].sizes if name in found else sizes
                if array.size:
                    found[name] = _variable(name, tuple(map(max, zip(old, sizes, strict=True))), len(store.plan.steps))
    return found


def _variable(name: str, sizes: tuple[int, ...], steps: int) -> Variable:
    """The variable with its dimensions: step first, unless it is about the end of a run."""
    field = label(name)
    over_states = "state" in field.dims
    own = [dim for dim in field.dims if dim not in ("step", "state")]
    first = [] if name.startswith("final_") or not sizes else ["step"]
    rest = len(sizes) - len(first)
    dims = (*first, *(own if len(own) == rest else [f"{name}_{axis}" for axis in range(1, rest + 1)]))
    attributes = {key: text for key, text in field._asdict().items() if key != "dims" and text}
    if over_states:
        attributes["comment"] = "mean over the states, weighted with their visits"
    return Variable(dims, sizes, attributes)


def _padded(array: np.ndarray | None, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The array, with NaN where it is smaller than `shape`."""
    if array is not None and array.shape == shape:
        return array
    full = np.full(shape, np.nan, dtype)
    if array is not None:
        full[tuple(slice(size) for size in array.shape)] = array
    return full


def _coordinate(file: Any, name: str, dim: str, values: np.ndarray, long_name: str) -> None:
    import h5py  # type: ignore[import-untyped]

    dtype = h5py.string_dtype() if values.dtype == object else values.dtype
    made = file.create_variable(name, (dim,), dtype, values)
    made.attrs["long_name"] = long_name
