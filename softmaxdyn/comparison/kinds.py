"""What kind of method an algorithm is, measured by what it does to tokens and to the expected step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison.controls import Idle
from softmaxdyn.configs import with_dtype
from softmaxdyn.policy import Policy, centred, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.simulation import pushed, quick_jit, starting_logits, step
from softmaxdyn.tokens import under

PLACES = (0, 10, 100, 1000)  # plain steps from the start to the policies at which `classify` looks
LATER = (1, 4)  # plain inner steps after which it looks at each once more, off-policy


def classify(problem: Problem, algorithm: Algorithm, logits: Any) -> tuple[str, bool]:
    """(kind, whether the first inner step is plain to the bit), measured in exact mode.

    `PLACES` are looked at in turn: the start, and the policies so many plain steps on; each on-policy and, after the
    plain inner steps of `LATER`, off-policy. The kind is that of the first place at which the method changes scores
    on-policy or adds a field; it is off-policy-only if it changes scores nowhere but off-policy.
    """
    kind, no_op, _ = measured(problem, algorithm, logits)
    return kind, no_op


def measured(problem: Problem, algorithm: Algorithm, logits: Any) -> tuple[str, bool, int]:
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
    return "reward-only" if cosines(problem, logits, got)[0] > 1.0 - 1e-9 else "probability-dependent"


def cosines(problem: Problem, logits: Any, got: Any) -> tuple[float, float]:
    """Least and mean cosine over the states of the step `got` with π∘(Q − V)."""
    policy = softmax(jnp.asarray(logits))
    wanted = policy.prob * centred(policy, problem.action_values(policy.prob))
    size = jnp.linalg.norm(wanted, axis=-1) * jnp.linalg.norm(got, axis=-1)
    cosine = np.asarray(jnp.sum(wanted * got, -1) / jnp.where(size > 0.0, size, jnp.nan))
    cosine = cosine[np.isfinite(cosine)]
    return (float(cosine.min()), float(cosine.mean())) if cosine.size else (np.nan, np.nan)
