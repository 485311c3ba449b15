"""The report card of a method: what kind it is, where it pushes, and what it costs beside others and controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison.controls import Shuffled
from softmaxdyn.comparison.intervals import interval
from softmaxdyn.comparison.kinds import cosines, measured
from softmaxdyn.comparison.paths import NOT_FINITE, Paths, crossing, paths
from softmaxdyn.configs import with_dtype
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.policy import softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import quick_jit, starting_logits, step
from softmaxdyn.updates import with_step_size


class Row(NamedTuple):
    """One algorithm of a report card; each number is (mean, low, high) over the runs, NaN where never reached."""

    name: str
    expected_return: tuple[float, float, float]  # J at the end
    entropy: tuple[float, float, float]  # H at the end
    entropy_at_return: tuple[float, float, float]  # H where J first crosses the matched return
    return_at_entropy: tuple[float, float, float]  # J where H first crosses the matched entropy
    inner_entropy: tuple[float, float, float]  # entropy given success where J first crosses 0.9
    selected: float  # share of the tokens touched, all interventions together


class Card(NamedTuple):
    """The report card of `rows[0]`.

    kind         measured: "reward-only", "probability-dependent", "off-policy-only", "field", "no effect here"
    acts_at      number of plain steps from the start to the policy at which the kind was measured (see `classify`)
    cosine       least and mean cosine over the states of the expected first step with π∘(Q − V)
    no_op        whether the first inner step is plain policy gradient to the bit
    speed        norm of the expected first outer step over that of the plain one
    sensitivity  (number, factor, change of J at the end, change of H at the end), the last two with intervals
    """

    kind: str
    acts_at: int
    cosine: tuple[float, float]
    no_op: bool
    speed: float
    matched_return: float
    matched_entropy: float
    rows: tuple[Row, ...]
    sensitivity: tuple[tuple[str, float, tuple[float, float, float], tuple[float, float, float]], ...]
    paths: dict[str, Paths]


def report_card(
    problem: Problem,
    own: tuple[str, Algorithm],
    against: Mapping[str, Algorithm],
    *,
    logits: Any = None,
    num_steps: int = 300,
    inner_steps: int = 4,
    seeds: int = 20,
    seed: int = 0,
) -> Card:
    """Runs `own` beside `against` and two controls, `seeds` runs each, and measures what kind of method it is.

    Controls: plain policy gradient with the step size scaled to the norm of the method's expected first step
    ("speed-matched"), and the method's changes of score given to randomly chosen tokens ("shuffled"). Raises InputError
    where `own` becomes NaN, and where plain policy gradient does not move.
    """
    name, algorithm = own
    start = starting_logits(problem, logits)
    plain = dataclasses.replace(algorithm, interventions=())
    mine, base = (expected_step(problem, part, start, inner_steps) for part in (algorithm, plain))
    speed = _speed(name, mine, base)
    faster = with_step_size(plain.update, plain.update.step_size * speed)
    runs = {name: algorithm, "speed-matched": dataclasses.replace(plain, update=faster)}
    if algorithm.interventions and algorithm.estimator.draws:
        runs["shuffled"] = dataclasses.replace(algorithm, interventions=(Shuffled(algorithm.interventions),))
    runs |= {other: part for other, part in against.items() if other not in runs}

    keys = jax.random.split(jax.random.key(seed), check_integer("seeds", seeds, 1))
    follow = partial(paths, problem, num_steps=num_steps, keys=keys, logits=start, inner_steps=inner_steps)
    followed = {other: follow(part) for other, part in runs.items()}
    ends = [p.expected_return.mean(0).max() for p in followed.values()]
    matched_return = float(min(ends))
    reached = [p.entropy.mean(0) for p in followed.values()]
    matched_entropy = float(0.5 * (max(h.min() for h in reached) + min(h.max() for h in reached)))
    kind, no_op, acts_at = measured(problem, algorithm, start)
    return Card(
        kind=kind,
        acts_at=acts_at,
        cosine=cosines(problem, start, expected_step(problem, algorithm, start)),
        no_op=no_op,
        speed=speed,
        matched_return=matched_return,
        matched_entropy=matched_entropy,
        rows=tuple(_row(other, p, matched_return, matched_entropy) for other, p in followed.items()),
        sensitivity=tuple(_sensitivity(algorithm, followed[name], follow)),
        paths=followed,
    )


def _speed(name: str, mine: Any, base: Any) -> float:
    """The norm of the step `mine` over that of the plain one."""
    size, plain = (float(jnp.linalg.norm(delta)) for delta in (mine, base))
    if not np.isfinite(size):
        raise InputError(f"the first step of {name} is not finite; {NOT_FINITE}")
    if plain == 0.0:
        raise InputError("plain policy gradient does not move here; wanted rewards that differ and a step size > 0")
    return size / plain


def expected_step(problem: Problem, algorithm: Algorithm, logits: Any, inner_steps: int = 1) -> Float[Array, "S A"]:
    """The first outer step in exact mode: the expectation over all samples (the large-group limit)."""
    start = starting_logits(problem, logits)
    exact = algorithm.estimator.population()
    ready = Algorithm(algorithm.update, exact, algorithm.interventions).start(start)
    return quick_jit(step, "inner_steps")(with_dtype(problem, start.dtype), ready, softmax(start), None, inner_steps)[0]


def _row(name: str, run: Paths, matched_return: float, matched_entropy: float) -> Row:
    return Row(
        name=name,
        expected_return=interval(run.expected_return[:, -1]),
        entropy=interval(run.entropy[:, -1]),
        entropy_at_return=interval(crossing(run.expected_return, matched_return, run.entropy)),
        return_at_entropy=interval(crossing(run.entropy, matched_entropy, run.expected_return)),
        inner_entropy=interval(crossing(run.expected_return, 0.9, run.inner_entropy)),
        selected=float(run.selected.mean(0).sum()),
    )


def _sensitivity(algorithm: Algorithm, before: Paths, follow: Any) -> Any:
    leaves, structure = jax.tree_util.tree_flatten_with_path(algorithm.interventions)
    for place, (path, leaf) in enumerate(leaves):
        if np.ndim(leaf) == 0 and isinstance(leaf, float) and leaf > 0.0:
            for factor in (0.5, 2.0):
                values = [value * factor if i == place else value for i, (_, value) in enumerate(leaves)]
                varied = dataclasses.replace(algorithm, interventions=jax.tree_util.tree_unflatten(structure, values))
                after = follow(varied)
                change = (interval((b - a)[:, -1]) for a, b in zip(before[1:3], after[1:3], strict=True))
                yield (jax.tree_util.keystr(path[1:]).lstrip("."), factor, *change)
