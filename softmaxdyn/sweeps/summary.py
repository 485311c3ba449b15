"""A table of runs, summed up over the seeds of each cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.sweeps.layout import Layout
from softmaxdyn.sweeps.netcdf import written
from softmaxdyn.sweeps.store import Store
from softmaxdyn.sweeps.table import Variable, begin, create, write_labels

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
HELD = 2**23  # numbers in memory

_WORDS = {"mean": "mean", "std": "standard deviation (of a sample, n − 1)", "quantile": "quantile"}


class Group(NamedTuple):
    """Consecutive cells of the summary, from `first`, and their consecutive runs in the table: `seeds` each."""

    first: int
    cells: int
    run: int
    seeds: int


def write_summary(store: Store, layout: Layout) -> None:
    """Writes mean, standard deviation (NaN for a single run) and quantiles over the seeds, by cell and step.

    The quantiles are linear between the sorted runs. At most about HELD numbers are in memory at a time. Raises OSError
    where the file cannot be written.
    """
    import h5netcdf

    cells = layout.cell[np.flatnonzero(np.diff(layout.cell, prepend=-1))]
    with h5netcdf.File(store.table, "r") as table, written(store.summary) as output:
        file = output.file
        labels = table.attrs["coordinates"].split()
        names = [name for name, each in table.variables.items() if "run" in each.dimensions and name not in labels]
        variables = {f"{name}_{word}": _statistic(table.variables[name], word) for name in names for word in _WORDS}
        begin(file, store, {"cell": len(cells)}, variables)
        write_labels(file, store.plan, "cell", cells)
        file.create_variable("quantile", ("quantile",), float, np.array(QUANTILES))
        for name, variable in variables.items():
            create(file, name, "cell", variable, store.plan.dtype)
        for name in names:
            for group in groups(layout, int(np.prod(table.variables[name].shape[1:]))):
                _sum_up(table.variables[name], file, name, group)
                output.check()


def groups(layout: Layout, inner: int) -> Iterator[Group]:
    """The cells in the order of the table, cut where the number of seeds changes or HELD numbers are full."""
    starts = np.flatnonzero(np.diff(layout.cell, prepend=-1))
    counts = np.diff(starts, append=len(layout.cell))
    first = 0
    while first < len(counts):
        most = max(1, HELD // int(counts[first] * inner))
        same = counts[first : first + most] == counts[first]
        cells = int(len(same) if same.all() else same.argmin())
        yield Group(first, cells, int(starts[first]), int(counts[first]))
        first += cells


def _sum_up(source: Any, file: Any, name: str, group: Group) -> None:
    """One variable of a group of cells, a slab of steps at a time where the seeds alone are too many to hold."""
    runs = slice(group.run, group.run + group.cells * group.seeds)
    cells = slice(group.first, group.first + group.cells)
    per_step = group.cells * group.seeds * int(np.prod(source.shape[2:]))
    width = max(1, HELD // per_step)
    slabs = [(slice(at, at + width),) for at in range(0, source.shape[1], width)] if source.ndim > 1 else [()]
    for slab in slabs:
        values = np.asarray(source[(runs, *slab)])
        values = values.reshape(group.cells, group.seeds, *values.shape[1:])
        with np.errstate(invalid="ignore"):
            file.variables[f"{name}_mean"][(cells, *slab)] = values.mean(1)
            deviation = values.std(1, ddof=1) if group.seeds > 1 else np.full_like(values[:, 0], np.nan)
            file.variables[f"{name}_std"][(cells, *slab)] = deviation
            quantiles = np.moveaxis(np.quantile(values, QUANTILES, 1), 0, 1)
            file.variables[f"{name}_quantile"][(cells, slice(None), *slab)] = quantiles


def _statistic(source: Any, word: str) -> Variable:
    """The variable of a statistic of a variable of the table."""
    dims, sizes = tuple(source.dimensions[1:]), tuple(source.shape[1:])
    attributes = {key: str(source.attrs[key]) for key in ("units", "comment") if key in source.attrs}
    attributes["long_name"] = f"{_WORDS[word]} over the seeds: {source.attrs['long_name']}"
    if word == "quantile":
        return Variable(("quantile", *dims), (len(QUANTILES), *sizes), attributes)
    return Variable(dims, sizes, attributes)
