"""The report card of a method: what kind it is, where it pushes, and what it costs beside others and controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.configs import config, with_dtype
from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.interventions import Intervention
from softmaxdyn.policy import Policy, centred, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import pushed, quick_jit, starting_logits, step
from softmaxdyn.tokens import Push, Tokens, under
from softmaxdyn.updates import with_step_size

POINTS = 60  # policies kept along a path
PLACES = (0, 10, 100, 1000)  # plain steps from the start to the policies at which `classify` looks
LATER = (1, 4)  # plain inner steps after which it looks at each once more, off-policy
CONFIDENCE = 0.95
NOT_FINITE = (
    "its scores or its field hold NaN or ∞: check jnp.isfinite(push.score).all(), and guard 0/0, log 0 and overflow"
)


class Several(Intervention):
    """An intervention that holds others and moves them along with the run."""

    parts: tuple[Any, ...]

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """Each part from the start."""
        return dataclasses.replace(self, parts=tuple(part.init(logits) for part in self.parts))  # type: ignore[type-var]

    def next(self, tokens: Tokens, policy: Policy) -> Self:
        """Each part's next."""
        parts = tuple(part.next(tokens, policy) for part in self.parts)
        return dataclasses.replace(self, parts=parts)  # type: ignore[type-var]


@config
class Idle(Several):
    """`parts` that see a run and leave it plain."""

    parts: tuple[Any, ...]

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        return push


@config
class Shuffled(Several):
    """The control of a selection: what `parts` do to the scores, done to randomly chosen tokens instead.

    As many tokens are touched, by as much; a field stays as it is. Draws, so it has no exact face.
    """

    parts: tuple[Any, ...]

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        if key is None:
            raise InputError("Shuffled draws; it has no exact face: use Sampled")
        keys = jax.random.split(key, len(self.parts) + 1)
        after = push
        for part, part_key in zip(self.parts, keys[1:], strict=True):
            after = part(part_key, tokens, policy, after)
        valid = tokens.weight > 0.0
        order = jnp.argsort(jnp.where(valid, jax.random.uniform(keys[0], valid.shape), 2.0))
        places = jnp.argsort(~valid, stable=True)
        change = jnp.zeros_like(push.score).at[order].set((after.score - push.score)[places])
        return after._replace(score=push.score + change, selected=(change != 0.0).astype(change.dtype))


class Paths(NamedTuple):
    """Policies along R runs, P points each: numbers by run and point, nats and returns.

    inner_entropy is the entropy of the policy given success (binary rewards), its visit-weighted mean: on a bandit the
    entropy inside the correct set of each state.
    """

    step: Float[np.ndarray, " P"]
    expected_return: Float[np.ndarray, "R P"]
    entropy: Float[np.ndarray, "R P"]
    inner_entropy: Float[np.ndarray, "R P"]
    selected: Float[np.ndarray, "R I"]


def paths(
    problem: Problem,
    algorithm: Algorithm,
    *,
    num_steps: int,
    keys: Key[Array, " R"] | None = None,
    logits: Any = None,
    inner_steps: int = 1,
) -> Paths:
    """R runs of `algorithm`, one a key (one run without keys if it draws nothing), seen at `POINTS` + 1 points.

    The points are whole steps, evenly spaced but for rounding; the first is the start, the last is `num_steps`.
    Raises InputError where a run ends with NaN.
    """
    start = starting_logits(problem, logits)
    points = min(POINTS, check_integer("num_steps", num_steps, 1))
    seen_at = np.linspace(0, num_steps, points + 1).round().astype(int)
    each = num_steps // points
    shift = seen_at - each * np.arange(points + 1) if num_steps % points else None
    sizes = {"points": points, "inner_steps": check_integer("inner_steps", inner_steps, 1)}
    keys = jnp.stack([jax.random.key(0)]) if keys is None else keys
    problem, ready = with_dtype(problem, start.dtype), algorithm.start(start)
    seen, selected, ends = quick_jit(_paths, *sizes)(problem, ready, start, keys, each, shift, **sizes)
    _refuse_nan(algorithm, np.isnan(ends).any((1, 2)), num_steps)
    value, entropy, inside = (np.asarray(x) for x in seen)
    return Paths(seen_at.astype(float), value, entropy, inside, np.asarray(selected))


def _refuse_nan(algorithm: Algorithm, lost: Any, num_steps: int) -> None:
    """Raises InputError if one of the runs is `lost`."""
    if lost.any():
        parts = ", ".join(map(repr, algorithm.interventions or (algorithm.update,)))
        runs = f"{int(lost.sum())} of {len(lost)} runs"
        raise InputError(f"with {parts} the policy is NaN after {num_steps} steps in {runs}; {NOT_FINITE}")


def _paths(
    problem: Problem, algorithm: Algorithm, logits: Any, keys: Any, each: Any, shift: Any, **sizes: int
) -> tuple[Any, Any, Any]:
    return jax.vmap(lambda key: _path(problem, algorithm, logits, key, each, shift, **sizes))(keys)


def _path(
    problem: Problem,
    algorithm: Algorithm,
    logits: Any,
    key: Any,
    each: Any,
    shift: Any,
    *,
    points: int,
    inner_steps: int,
) -> tuple[Any, Any, Any]:
    """The path of one run. Point i is at step i · each + shift[i]; `shift` is None where every segment is as long."""

    def advance(t: Any, carry: Any) -> Any:
        logits, algorithm, selected = carry
        delta, algorithm, touched = step(problem, algorithm, softmax(logits), jax.random.fold_in(key, t), inner_steps)
        return logits + delta, algorithm, selected + touched

    def place(number: Any) -> Any:
        return number * each if shift is None else number * each + shift[number]

    def segment(carry: Any, number: Any) -> tuple[Any, Any]:
        carry = jax.lax.fori_loop(place(number), place(number + 1), advance, carry)
        return carry, _seen(problem, carry[0])

    carry = (logits, algorithm, jnp.zeros(len(algorithm.interventions), logits.dtype))
    (end, _, selected), seen = jax.lax.scan(segment, carry, jnp.arange(points))
    first = _seen(problem, logits)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, seen), selected / place(points), end


def _seen(problem: Problem, logits: Any) -> tuple[Any, Any, Any]:
    """(J, mean entropy, mean entropy of the policy given success) of a policy."""
    policy = softmax(logits)
    visits = problem.visits(policy.prob)
    mean = jnp.sum(visits * policy.entropy) / jnp.sum(visits)
    return problem.expected_return(policy.prob), mean, _inner_entropy(problem, policy)


def _inner_entropy(problem: Problem, policy: Policy) -> Float[Array, ""]:
    """The visit-weighted mean entropy of π₊(a|s) ∝ π(a|s) Q₊(s, a); 0 where no success follows, NaN if none exists.

    Q₊ is the expected number of rewards above ½: where one reward of 0 or 1 ends an episode it is the probability of
    success, and where actions decide everything π₊ is the policy given success.
    """
    won = jnp.where(jnp.asarray(problem.rewards) > 0.5, 1.0, 0.0).astype(policy.prob.dtype)
    success = jnp.maximum(problem.action_values(policy.prob, won), 0.0)
    possible = jnp.any((success > 0.0) & (policy.log_prob > -jnp.inf), -1)
    given = softmax(policy.logits + jnp.where(possible[:, None], jnp.log(success), 0.0))
    visits = problem.visits(given.prob)
    mean = jnp.sum(visits * jnp.where(possible, given.entropy, 0.0)) / jnp.sum(visits)
    return jnp.where(jnp.any(possible), mean, jnp.nan)


def crossing(
    along: Float[np.ndarray, "R P"], level: float, values: Float[np.ndarray, "R P"]
) -> Float[np.ndarray, " R"]:
    """`values` where `along` first crosses `level`, linear between points; NaN for a run that never does."""
    result = np.full(len(along), np.nan)
    for run, (x, y) in enumerate(zip(along - level, values, strict=True)):
        hits = np.flatnonzero((x[:-1] * x[1:] <= 0.0) & (x[:-1] != x[1:]))
        if hits.size:
            i = hits[0]
            result[run] = y[i] + (y[i + 1] - y[i]) * x[i] / (x[i] - x[i + 1])
    return result


def interval(values: Float[np.ndarray, " R"], seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high): the mean over the runs and its 95 % percentile bootstrap interval; NaN runs are left out."""
    from scipy.stats import bootstrap

    kept = values[np.isfinite(values)]
    if kept.size == 0:
        return (np.nan,) * 3
    if kept.size == 1 or np.ptp(kept) == 0.0:
        return (float(kept.mean()),) * 3
    result = bootstrap((kept,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=seed, vectorized=True)
    return float(kept.mean()), float(result.confidence_interval.low), float(result.confidence_interval.high)


def expected_step(problem: Problem, algorithm: Algorithm, logits: Any, inner_steps: int = 1) -> Float[Array, "S A"]:
    """The first outer step in exact mode: the expectation over all samples (the large-group limit)."""
    start = starting_logits(problem, logits)
    exact = algorithm.estimator.population()
    ready = Algorithm(algorithm.update, exact, algorithm.interventions).start(start)
    return quick_jit(step, "inner_steps")(with_dtype(problem, start.dtype), ready, softmax(start), None, inner_steps)[0]


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
    kind, no_op, acts_at = _measured(problem, algorithm, start)
    return Card(
        kind=kind,
        acts_at=acts_at,
        cosine=_cosines(problem, start, expected_step(problem, algorithm, start)),
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


def classify(problem: Problem, algorithm: Algorithm, logits: Any) -> tuple[str, bool]:
    """(kind, whether the first inner step is plain to the bit), measured in exact mode.

    `PLACES` are looked at in turn: the start, and the policies so many plain steps on; each on-policy and, after the
    plain inner steps of `LATER`, off-policy. The kind is that of the first place at which the method changes scores
    on-policy or adds a field; it is off-policy-only if it changes scores nowhere but off-policy.
    """
    kind, no_op, _ = _measured(problem, algorithm, logits)
    return kind, no_op


def _measured(problem: Problem, algorithm: Algorithm, logits: Any) -> tuple[str, bool, int]:
    """(kind, whether the first inner step is plain to the bit, the place at which the method first acts so)."""
    start = starting_logits(problem, logits)
    problem, ready = with_dtype(problem, start.dtype), algorithm.start(start)
    run: Any = Algorithm(ready.update, ready.estimator.population(), (Idle(ready.interventions),))
    now: Any = jnp.asarray(start)
    found = ("no effect here", True, 0)
    for before, place in zip((0, *PLACES), PLACES if algorithm.interventions else (), strict=False):
        if place:
            now, run = quick_jit(_plain_steps)(problem, run, now, before, place)
        there = Algorithm(run.update, run.estimator, run.interventions[0].parts)
        scores, fields = zip(*_acts(problem, there, now), strict=True)
        if any(fields):
            return "field", place > 0 or not (scores[0] or fields[0]), place
        if scores[0]:
            return _turned(problem, there, now), place > 0, place
        if any(scores) and found[0] == "no effect here":
            found = ("off-policy-only", True, place)
    return found


def _plain_steps(problem: Problem, algorithm: Algorithm, logits: Any, first: Any, last: Any) -> tuple[Any, Algorithm]:
    def advance(_: Any, carry: Any) -> Any:
        logits, algorithm = carry
        delta, algorithm, _ = step(problem, algorithm, softmax(logits))
        return logits + delta, algorithm

    return jax.lax.fori_loop(first, last, advance, (logits, algorithm))


def _acts(problem: Problem, algorithm: Algorithm, logits: Any) -> list[tuple[bool, bool]]:
    """(whether a score changes, whether there is a field): on-policy, then after each of the inner steps of `LATER`."""
    policy = softmax(logits)
    tokens = algorithm.estimator(None, problem, policy)
    plain = Algorithm(algorithm.update, algorithm.estimator)

    def differs(policy: Policy) -> tuple[bool, bool]:
        current = under(tokens, policy)
        push, _ = quick_jit(pushed)(algorithm.interventions, None, current, policy)
        bare, _ = quick_jit(pushed)((), None, current, policy)
        return bool(jnp.any(push.score != bare.score)), bool(jnp.any(push.field != 0.0))

    one_step = quick_jit(step, "inner_steps")
    moves = [one_step(problem, plain, policy, None, inner_steps=number)[0] for number in LATER]
    return [differs(policy), *(differs(softmax(logits + move)) for move in moves)]


def _turned(problem: Problem, algorithm: Algorithm, logits: Any) -> str:
    """Whether a method that changes scores turns the expected step: then it is probability-dependent."""
    got = quick_jit(step, "inner_steps")(problem, algorithm, softmax(logits), None, inner_steps=1)[0]
    return "reward-only" if _cosines(problem, logits, got)[0] > 1.0 - 1e-9 else "probability-dependent"


def _cosines(problem: Problem, logits: Any, got: Any) -> tuple[float, float]:
    """Least and mean cosine over the states of the step `got` with π∘(Q − V)."""
    policy = softmax(jnp.asarray(logits))
    wanted = policy.prob * centred(policy, problem.action_values(policy.prob))
    size = jnp.linalg.norm(wanted, axis=-1) * jnp.linalg.norm(got, axis=-1)
    cosine = np.asarray(jnp.sum(wanted * got, -1) / jnp.where(size > 0.0, size, jnp.nan))
    cosine = cosine[np.isfinite(cosine)]
    return (float(cosine.min()), float(cosine.mean())) if cosine.size else (np.nan, np.nan)


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
