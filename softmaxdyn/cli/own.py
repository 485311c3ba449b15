"""A method of one's own on the command line: FILE.py:NAME, its numbers, and its faults as one line."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.estimators import Sampled
from softmaxdyn.interventions import Intervention
from softmaxdyn.methods import METHODS
from softmaxdyn.policy import softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import starting_logits
from softmaxdyn.tokens import Push, Tokens, gradient, plain_push
from softmaxdyn.updates import Update, VanillaPG, with_step_size

GROUPS, GROUP_SIZE = 16, 8
MODULE = "own_method"


class Own(NamedTuple):
    """What FILE.py:NAME holds: an Intervention or an Algorithm."""

    file: str
    name: str
    part: Any

    @property
    def numbers(self) -> dict[str, int | float]:
        """The fields of an intervention that hold one number; none of an Algorithm."""
        if isinstance(self.part, Algorithm):
            return {}
        values = {field.name: getattr(self.part, field.name) for field in dataclasses.fields(self.part)}
        return {name: x for name, x in values.items() if isinstance(x, int | float) and not isinstance(x, bool)}

    def with_numbers(self, numbers: dict[str, Any]) -> Own:
        """With other numbers; a whole one stays whole where it was."""
        old = self.numbers
        new = {
            name: int(x) if isinstance(old[name], int) and float(x).is_integer() else x for name, x in numbers.items()
        }
        return self._replace(part=dataclasses.replace(self.part, **new)) if new else self


def load(method: str) -> Own | None:
    """What FILE.py:NAME holds; None for a named method. Raises InputError for what is neither."""
    if method in METHODS:
        return None
    file, _, name = (f"{method}:" if method.endswith(".py") else method).rpartition(":")
    if not file.endswith(".py"):
        check_choice("method", method, METHODS)
    if not Path(file).is_file():
        raise InputError(f"no file {file!r}; wanted FILE.py:NAME or a named method (`softmaxdyn methods` lists them)")
    if not name:
        raise InputError(f"{method!r} has no name; wanted {file}:NAME{_names_in(file)}")
    module = _module(file)
    found = getattr(module, check_choice(f"name in {file}", name, [n for n in vars(module) if not n.startswith("_")]))
    if isinstance(found, type):
        found = _made(Own(file, name, found))
    if not isinstance(found, Intervention | Algorithm):
        raise InputError(f"{name} in {file!r} is {found!r}; wanted an Intervention or an Algorithm")
    _check_configs(name, found)
    return Own(file, name, found)


def _made(own: Own) -> Any:
    """What the class of `own` makes without arguments."""
    with one_line(own):
        try:
            return own.part()
        except TypeError as error:
            if _place(own.file, error):
                raise
            raise InputError(
                f"{own.name} cannot be made without arguments ({error}); give its numbers defaults"
            ) from None


def _module(file: str) -> Any:
    """The module of a file, run. Raises InputError where it fails."""
    spec: Any = importlib.util.spec_from_file_location(MODULE, os.path.abspath(file))
    module = sys.modules[MODULE] = importlib.util.module_from_spec(spec)  # where dataclasses looks for annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file!r} does not run: {type(error).__name__}: {error}") from None
    return module


def _names_in(file: str) -> str:
    """What to say of the interventions and algorithms that a file defines; nothing where it does not load."""
    try:
        defined = vars(_module(file)).items()
    except InputError:
        return ", an Intervention or an Algorithm in it"
    names = [name for name, value in defined if _is_method(value)]
    return f" (it holds {', '.join(names)})" if names else "; it holds no Intervention and no Algorithm"


def _is_method(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, Intervention) and value.__module__ == MODULE
    return isinstance(value, Intervention | Algorithm)


def _check_configs(name: str, found: Any) -> None:
    """Raises InputError for a part that JAX cannot take apart, and for an update that is none."""
    whole = isinstance(found, Algorithm)
    for part in (found.update, found.estimator, *found.interventions) if whole else (found,):
        if jax.tree_util.all_leaves([part]) or not dataclasses.is_dataclass(part):
            kind = type(part).__name__
            raise InputError(f"{kind} in {name} is no config; wanted @softmaxdyn.config above `class {kind}`")
    if whole and not isinstance(found.update, Update):
        kind = type(found.update).__name__
        raise InputError(f"{kind} in {name} is no update; wanted a field step_size, init and __call__, as of VanillaPG")


def own_algorithm(
    own: Own,
    *,
    default_step: float,
    step_size: float | None = None,
    groups: int | None = None,
    group_size: int | None = None,
    update: Any = None,
    mode: str | None = None,
) -> Algorithm:
    """The algorithm of `own` with the numbers that were typed; an intervention joins GRPO without a clip.

    Raises InputError for a number that an Algorithm cannot take.
    """
    if isinstance(own.part, Algorithm):
        made = own.part if update is None else dataclasses.replace(own.part, update=update)
        made = _sized(own, _stepped(own, made, step_size), {"groups": groups, "group_size": group_size})
    else:
        size = default_step if step_size is None else step_size
        sampled = Sampled(GROUPS if groups is None else groups, GROUP_SIZE if group_size is None else group_size)
        made = Algorithm(VanillaPG(size) if update is None else update, sampled, (own.part,))
    if mode == "sampled" and not made.estimator.draws:
        raise _not_taken(own, "--mode sampled", f"its estimator {type(made.estimator).__name__} draws nothing")
    return dataclasses.replace(made, estimator=made.estimator.population()) if mode == "exact" else made


def _stepped(own: Own, made: Algorithm, step_size: float | None) -> Algorithm:
    if step_size is None:
        return made
    update = with_step_size(made.update, step_size)
    if update.step_size != step_size:
        raise _not_taken(own, "--step-size", f"its update {type(update).__name__} has no field step_size")
    return dataclasses.replace(made, update=update)


def _sized(own: Own, made: Algorithm, sizes: dict[str, int | None]) -> Algorithm:
    given = {name: size for name, size in sizes.items() if size is not None}
    estimator: Any = made.estimator
    if given and not isinstance(estimator, Sampled):
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise _not_taken(own, option, f"its estimator is {type(estimator).__name__}, not Sampled")
    return dataclasses.replace(made, estimator=dataclasses.replace(estimator, **given)) if given else made


def _not_taken(own: Own, option: str, reason: str) -> InputError:
    return InputError(f"{option} cannot be given to {own.name}: {reason}; leave it out, or change {own.file}")


@contextmanager
def one_line(own: Own | None) -> Iterator[None]:
    """Makes an error that comes from the file of `own` one line that names the place; others stay as they are."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        place = "" if own is None else _place(own.file, error)
        if not place:
            raise
        said = str(error).strip().partition("\n")[0]
        raise InputError(f"{place}: {type(error).__name__}{': ' * bool(said)}{said}") from None


def _place(file: str, error: Exception) -> str:
    """The innermost line of `file` that an error passed through; "" if it passed through none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == os.path.abspath(file)]
    return f"{file}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def check_returns(own: Own, problem: Problem, algorithm: Algorithm, logits: Any) -> None:
    """Raises InputError where a part of `algorithm` returns something else than is wanted; computes nothing."""
    start = jnp.asarray(starting_logits(problem, logits))
    for part in algorithm.interventions:
        _check_state(own, part, "init", part.init(start))
    ready, problem = algorithm.start(start), with_dtype(problem, start.dtype)
    key = jax.random.key(0) if algorithm.estimator.draws else None
    jax.eval_shape(partial(_one_step, own, problem, ready, key), start)


def _one_step(own: Own, problem: Problem, algorithm: Algorithm, key: Any, logits: Any) -> Any:
    policy = softmax(logits)
    tokens = algorithm.estimator(key, problem, policy)
    if not isinstance(tokens, Tokens):
        raise _returned(own, algorithm.estimator, "__call__", tokens, "Tokens")
    push = plain_push(tokens, policy.prob.shape)
    for part in algorithm.interventions:
        push = _checked(own, part, part(key, tokens, policy, push), push)
        after = part.next(tokens, policy)
        _check_state(own, part, "next", after)
        if _shapes(after) != _shapes(part):
            raise _returned(own, part, "next", after, "numbers of the shapes that init gave them")
    move: Any = algorithm.update(gradient(tokens, push, policy), policy, problem.visits(policy.prob))
    if not isinstance(move, tuple) or len(move) != 2 or jnp.shape(move[0]) != policy.prob.shape:
        raise _returned(own, algorithm.update, "__call__", move, "(δ, update): return self.step_size * gradient, self")
    return move[0]


def _checked(own: Own, part: Any, after: Any, before: Push) -> Push:
    """`after` if it is a push of the shapes of `before`."""
    if not isinstance(after, Push):
        raise _returned(own, part, "__call__", after, "a Push: return push._replace(score=...)")
    for name, came, wanted in zip(Push._fields, map(jnp.shape, after), map(jnp.shape, before), strict=True):
        if came != wanted:
            raise _returned(own, part, "__call__", f"a {name} of shape {came}", f"{wanted}: push._replace({name}=...)")
    return after


def _check_state(own: Own, part: Any, method: str, after: Any) -> None:
    if not isinstance(after, type(part)):
        wanted = "the intervention: return self, or dataclasses.replace(self, ...)"
        raise _returned(own, part, method, after, wanted)


def _shapes(part: Any) -> Any:
    return jax.tree.structure(part), [jnp.shape(leaf) for leaf in jax.tree.leaves(part)]


def _returned(own: Own, part: Any, method: str, came: Any, wanted: str) -> InputError:
    if not isinstance(came, str):
        array = isinstance(came, jax.Array)
        came = f"an array of shape {came.shape}" if array else "None" if came is None else f"a {type(came).__name__}"
    return InputError(f"{own.file}: {type(part).__name__}.{method} returned {came}; wanted {wanted}")
