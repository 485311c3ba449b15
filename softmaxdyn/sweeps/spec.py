"""A sweep as a TOML file: tables of problems and of methods, in which a list is an axis.

    steps = 1000               # outer steps of a run
    every = 10                 # record every so many of them (default: 1)
    seeds = 20                 # a count, or a list (default: 1)
    dtype = "float64"          # or "float32"
    fields = ["entropy", "kl"] # what is recorded and computed (default: everything)

    [[problem]]                # or problem = "mei"; several tables are a list of problems
    name = "pool"              # a named problem, or a file (its path starts at the folder of the spec)
    prompts = 50               # its options; seed is that of the problem
    correct = [0.05, 0.2]      # a list is an axis; the axes of a table form their product
    start = "uniform"          # initial policy: "own" (default), "uniform", or a file with logits or probabilities
    temperature = [1, 2]       # the initial logits are divided by it (default: 1)

    [[method]]                 # or method = "rloo"
    name = "kl_cov"            # `softmaxdyn methods` lists them; "pg" is the exact gradient without an estimator
    mode = "sampled"           # or "exact" (all actions, no seed); groups, group_size and inner_steps as in `run`
    update = "pg"              # or "npg"; default: that of the method
    step_size = [0.1, 0.3]     # default: 1
    fraction = [0.002, 0.02]   # the method's own numbers

Every problem is run with every method and every seed. Cells are in the order of the tables, and within a table by the
names of its axes.
"""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from softmaxdyn.errors import InputError, check_choice, check_integer
from softmaxdyn.sweeps.choices import Choice, label_names, labels_of, method_choice, problem_choice
from softmaxdyn.sweeps.plan import Cell, Plan, check_dtype, check_seeds, make_plan, size_text

LARGEST = 100_000
"""Cells that a plan may have."""
MEMORY = 2**32
"""Bytes that the tables of all its problems may take."""

_WANTED = {
    "steps": "steps = 1000",
    "problem": 'problem = "pool" or a table [[problem]] with a name',
    "method": 'method = "rloo" or a table [[method]] with a name',
}
_KEYS = ("steps", "every", "seeds", "dtype", "fields", "problem", "method")


class Table(NamedTuple):
    """A table of the spec: where it is, and the values of each of its keys."""

    path: str
    axes: dict[str, tuple[Any, ...]]

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The product of the axes, the name first, then by the names of the keys."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def __str__(self) -> str:
        keys = (f"{key} = {json.dumps(_plain(values), default=str)}" for key, values in self.axes.items())
        return f"{self.path}: {'; '.join(keys)}"


def read_spec(path: str | Path) -> Plan:
    """The plan of a TOML file. Raises InputError for whatever is wrong: one line that names the file and the key."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; wanted a spec in TOML")
    try:
        spec = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None
    try:
        return plan_of(spec, path.parent)
    except InputError as error:
        raise InputError(" ".join(f"{path}: {error}".splitlines())) from None


def plan_of(spec: Mapping[str, Any], folder: str | Path = ".") -> Plan:
    """The plan of a spec that is read already; files in it are looked up from `folder`."""
    for key in spec:
        check_choice("key", key, _KEYS)
    for key, example in _WANTED.items():
        if key not in spec:
            raise InputError(f"{key} is missing; wanted {example}")
    steps, every = (check_integer(key, spec.get(key, 1), 1) for key in ("steps", "every"))
    seeds = check_seeds(spec.get("seeds", 1))
    dtype = check_dtype(spec.get("dtype", "float64"))
    tables = {kind: list(_tables(kind, spec[kind])) for kind in ("problem", "method")}
    _refuse_too_many(tables, len(seeds))
    problems = list(_problems(tables["problem"], Path(folder), dtype))
    methods = [method_choice(table.path, given, dtype) for table in tables["method"] for given in table.combinations()]
    lines = [str(table) for kind in tables.values() for table in kind]
    rest: dict[str, Any] = {"dtype": dtype, "lines": lines, "fields": spec.get("fields")}
    return make_plan(_cells(problems, methods), seeds=seeds, num_steps=steps, every=every, **rest)


def _problems(tables: Sequence[Table], folder: Path, dtype: str) -> Iterator[Choice]:
    size = 0
    for table in tables:
        for given in table.combinations():
            choice = problem_choice(table.path, given, folder, dtype)
            size += sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(choice.made[:2]))
            if size > MEMORY:
                raise InputError(
                    f"{table.path}: the tables of all problems are too large; wanted at most {size_text(MEMORY)}"
                )
            yield choice


def _cells(problems: list[Choice], methods: list[Choice]) -> Iterator[Cell]:
    names = label_names(problems, methods)
    for problem, method in itertools.product(problems, methods):
        yield Cell(labels_of(problem, method, names), problem.made, *method.made)


def _tables(kind: str, value: Any) -> Iterator[Table]:
    """The tables of a kind: a name, a table, or a list of names and tables."""
    several = value if isinstance(value, list) else [value]
    if not several:
        raise InputError(f"{kind} is []; wanted {_WANTED[kind]}")
    for number, each in enumerate(several, 1):
        path = kind if len(several) == 1 else f"{kind}[{number}]"
        table = {"name": each} if isinstance(each, str) else each
        if not isinstance(table, dict):
            raise InputError(f"{path} is {each!r}; wanted {_WANTED[kind]}")
        if "name" not in table:
            raise InputError(f"{path}.name is missing; wanted {_WANTED[kind]}")
        keys = ["name", *sorted(table.keys() - {"name"})]
        yield Table(path, {key: _axis(f"{path}.{key}", table[key]) for key in keys})


def _plain(values: Sequence[Any]) -> list[Any]:
    """The values with 1.0 as 1, so that both give one text."""
    return [int(each) if isinstance(each, float) and each.is_integer() else each for each in values]


def _axis(path: str, value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise InputError(f"{path} is []; wanted a value, or a list of at least one")
    if any(isinstance(each, list) for each in values):
        raise InputError(f"{path} holds a list in a list; wanted one list of values")
    counts = Counter(repr(each) if isinstance(each, dict) else each for each in values)
    for each, count in counts.items():
        if count > 1:
            raise InputError(f"{path} holds {each!r} twice; wanted every value once")
    return values


def _refuse_too_many(tables: Mapping[str, list[Table]], seeds: int) -> None:
    problems, methods = (
        sum(math.prod(len(values) for values in table.axes.values()) for table in kind) for kind in tables.values()
    )
    if problems * methods > LARGEST:
        runs = f"{problems * methods:,} cells × {seeds:,} seeds are {problems * methods * seeds:,} runs"
        raise InputError(f"{problems:,} problems × {methods:,} methods = {runs}; wanted at most {LARGEST:,} cells")
