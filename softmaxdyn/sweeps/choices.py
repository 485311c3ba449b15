"""One point of a table of the spec: a problem with its start, or a method, made from the values of its keys."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.errors import InputError, check_choice, check_integer, check_number
from softmaxdyn.files import read_setting
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems.named import NAMED, named
from softmaxdyn.problems.setting import Setting
from softmaxdyn.results import FIELDS, MEASURES
from softmaxdyn.simulation import starting_logits
from softmaxdyn.updates import TRPO, NaturalPG, VanillaPG

PLAIN = "pg"  # the exact gradient, without an estimator of advantages
UPDATES = {"pg": VanillaPG, "npg": NaturalPG}

_START: dict[str, Any] = {"start": "own", "temperature": 1.0}
_COUNTS = ("actions", "correct", "smoothing", "spread", "seed", "columns")  # what a file may be told
_BATCH: dict[str, Any] = {"mode": "sampled", "groups": 16, "inner_steps": 1, "step_size": 1.0, "update": "own"}
_RESERVED = {*FIELDS, *MEASURES, "problem", "method", "step_size", "seed", "run", "cell", "quantile", "runs"}


class Choice(NamedTuple):
    """Where it stands in the spec, what was given, what else it could be given, and what it makes."""

    path: str
    given: dict[str, Any]
    defaults: dict[str, Any]
    made: Any  # a Setting, or (Algorithm, inner steps)

    @property
    def values(self) -> dict[str, Any]:
        """Every key that it has, and its value."""
        return self.defaults | self.given


def problem_choice(path: str, given: Mapping[str, Any], folder: Path, dtype: str) -> Choice:
    """The setting of a named problem or of a file in `folder`, from the start that is asked for."""
    name = _text(f"{path}.name", given["name"])
    known = name.replace("-", "_") in NAMED
    if not known and not (Path(name).suffix or (folder / name).exists()):
        check_choice(f"{path}.name", name, NAMED)
    parameters = inspect.signature(NAMED[name.replace("-", "_")]).parameters if known else {}
    defaults = {**({key: each.default for key, each in parameters.items()} if known else {"seed": 0}), **_START}
    options = {key: value for key, value in given.items() if key not in ("name", *_START)}
    for key, value in options.items():
        check_choice(f"key of {path} ({name})", key, [*(parameters if known else _COUNTS), *_START])
        if key != "columns":
            _number(f"{path}.{key}", value)
        elif not isinstance(value, dict):
            raise InputError(f'{path}.columns is {value!r}; wanted a table: columns = {{reward = "clicks"}}')
    try:
        setting = named(name, **options) if known else read_setting(folder / name, **options)
        made = _started(path, setting, defaults | dict(given), folder, dtype)
    except InputError as error:
        raise _at(path, error, given) from None
    return Choice(path, dict(given), defaults, made)


def _started(path: str, setting: Setting, values: Mapping[str, Any], folder: Path, dtype: str) -> Setting:
    """The setting from another start; masked actions stay masked."""
    start, temperature = _text(f"{path}.start", values["start"]), values["temperature"]
    check_number("temperature", temperature, 1e-6, 1e6)
    own, masked = np.asarray(setting.logits), np.isneginf(setting.logits)
    if start in ("own", "uniform"):
        logits = own if start == "own" else np.zeros(own.shape)
    elif Path(start).suffix:
        logits = np.asarray(read_setting(folder / start).logits)
    else:
        raise InputError(f"start is {start!r}; wanted 'own', 'uniform' or a file with logits or probabilities")
    if logits.shape != own.shape:
        raise InputError(f"start is {start!r}, of shape {logits.shape}; wanted {own.shape}, one row a state")
    table = np.where(masked, -np.inf, logits / temperature).astype(dtype)
    remarks = [f"start: {start}"] * (start != "own") + [f"temperature {temperature:g}"] * (temperature != 1.0)
    checked = np.asarray(starting_logits(setting.problem, table))
    return Setting(setting.problem, checked, "; ".join([setting.note, *remarks]))


def method_choice(path: str, given: Mapping[str, Any], dtype: str) -> Choice:
    """(the algorithm of a method, its inner steps)."""
    name = check_choice(f"{path}.name", _text(f"{path}.name", given["name"]), [PLAIN, *METHODS])
    numbers = {} if name == PLAIN else METHODS[name].numbers
    plain = {"mode": "exact", "update": PLAIN}
    defaults = _BATCH | (plain if name == PLAIN else {"group_size": METHODS[name].group_size}) | numbers
    for key in given.keys() - {"name"}:
        check_choice(f"key of {path} ({name})", key, defaults)
    if _sizes_itself(name, given):
        defaults["step_size"] = np.nan
    values = defaults | dict(given)
    mode = check_choice(f"{path}.mode", _text(f"{path}.mode", values["mode"]), ("exact", "sampled"))
    _refuse_unused(path, name, mode, given)
    if "step_size" in given:
        check_number(f"{path}.step_size", _number(f"{path}.step_size", given["step_size"]), 0.0, _largest(dtype))
    inner_steps = check_integer(f"{path}.inner_steps", values["inner_steps"], 1)
    try:
        algorithm = _algorithm(path, name, values, {key: given[key] for key in numbers if key in given})
    except InputError as error:
        raise _at(path, error, given) from None
    return Choice(path, dict(given), defaults, (algorithm, inner_steps))


def _algorithm(path: str, name: str, values: Mapping[str, Any], numbers: Mapping[str, Any]) -> Algorithm:
    step_size = 0.0 if np.isnan(values["step_size"]) else float(values["step_size"])
    chosen = _text(f"{path}.update", values["update"])
    update: Any = None
    if name == PLAIN or chosen != "own":
        update = UPDATES[check_choice(f"{path}.update", chosen, UPDATES)](step_size)
    if name == PLAIN:
        return Algorithm(update)
    sizes: dict[str, Any] = {key: check_integer(key, values[key], 1) for key in ("groups", "group_size")}
    own: dict[str, Any] = {key: float(_number(f"{path}.{key}", value)) for key, value in numbers.items()}
    for key, value in own.items():
        check_number(f"{path}.{key}", value)
    return build(name, step_size=step_size, mode=values["mode"], update=update, **sizes, **own)


def _refuse_unused(path: str, name: str, mode: str, given: Mapping[str, Any]) -> None:
    """Raises InputError for keys that would be accepted and do nothing."""
    if name == PLAIN and mode != "exact":
        raise InputError(f"{path}.mode is 'sampled', and {PLAIN} is exact; wanted a method that draws: reinforce, rloo")
    if _sizes_itself(name, given) and "step_size" in given:
        raise InputError(f'{path}.step_size is given, and {name} finds its own; wanted max_kl, or an update: "npg"')
    for key in ("groups", "group_size"):
        if mode == "exact" and key in given:
            raise InputError(f"{path}.{key} is given, and mode 'exact' has no groups; wanted mode = 'sampled'")


def _sizes_itself(name: str, values: Mapping[str, Any]) -> bool:
    return name != PLAIN and isinstance(METHODS[name].update, TRPO) and values.get("update", "own") == "own"


def label_names(problems: Sequence[Choice], methods: Sequence[Choice]) -> tuple[dict[str, str], dict[str, str]]:
    """({key: label} of the problems, of the methods), for every given key that takes more than one value."""
    theirs, ours = _varying(problems), _varying(methods)
    clash = _RESERVED | (theirs & ours)
    return (
        {key: f"problem_{key}" if key in clash else key for key in sorted(theirs)},
        {key: f"method_{key}" if key in clash else key for key in sorted(ours)},
    )


def labels_of(
    problem: Choice, method: Choice, names: tuple[Mapping[str, str], Mapping[str, str]]
) -> dict[str, str | float]:
    """What a cell is called: problem, method, step size, and its values of the keys in `names`."""
    labels = {"problem": problem.given["name"], "method": method.given["name"]}
    labels["step_size"] = float(method.values["step_size"])
    for choice, labelled in zip((problem, method), names, strict=True):
        labels |= {label: _label(choice.values[key]) for key, label in labelled.items() if key in choice.values}
    return labels


def _varying(choices: Iterable[Choice]) -> set[str]:
    values: dict[str, set[Any]] = {}
    given = {key for choice in choices for key in choice.given} - {"name", "step_size"}
    for choice in choices:
        for key in given & choice.values.keys():
            values.setdefault(key, set()).add(_label(choice.values[key]))
    return {key for key, taken in values.items() if len(taken) > 1}


def _label(value: Any) -> str | float:
    if isinstance(value, str):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value, sort_keys=True)


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{path} is {value!r}; wanted text in quotes")
    return value


def _number(path: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path} is {value!r}; wanted a number, or a list of numbers")
    return value


def _largest(dtype: str) -> float:
    return float(np.finfo(dtype).max)


def _at(path: str, error: InputError, keys: Iterable[str]) -> InputError:
    """The error with the path of the table, or of the key that it begins with."""
    message = str(error)
    if f"{path}." in message:
        return error
    return InputError(f"{path}.{message}" if message.split(" ")[0] in keys else f"{path}: {message}")
