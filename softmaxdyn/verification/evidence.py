"""What there is to judge by, for a block of cases: the package's numbers and those of the second roads."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from softmaxdyn import theory
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.change import decompose
from softmaxdyn.policy import entropy, probs, softmax
from softmaxdyn.problems import Bandit
from softmaxdyn.simulation import simulate
from softmaxdyn.trace import Trace
from softmaxdyn.updates import NaturalPG
from softmaxdyn.verification import wide
from softmaxdyn.verification.cases import Block

RUN_STEPS = 16
RUN_STEP_SIZE = 0.125
_RUN_NUMBERS = 4000  # states × actions of a simulated run


class Predictions(NamedTuple):
    """The package's numbers, [n] or [n, K] (`proposition_1`, `sample_effect`).

    The first-order formulas are [2, n]: for a small step and for half of it. `theorem_1_raw` is Theorem 1 with A + 1 in
    place of A; `binary_reward_entropy` is that of the policy after natural PG on the reward `correct`.
    """

    entropy: Any
    entropy_change: Any
    remainder: Any
    remainder_bound: Any
    certified_step_size: Any
    lemma_1: Any
    theorem_1: Any
    theorem_1_raw: Any
    theorem_2: Any
    proposition_1: Any
    sample_effect: Any
    single_logit_entropy: Any
    second_order: Any
    natural_entropy_rate: Any
    binary_reward_entropy: Any

    def first(self, count: int) -> Predictions:
        """Those of the first cases."""
        halved = {"lemma_1", "theorem_1", "theorem_1_raw", "theorem_2"}
        fields = self._asdict().items()
        return Predictions(*(x[:, :count] if name in halved else x[:count] for name, x in fields))


class Derivatives(NamedTuple):
    """By automatic differentiation, in float64: ∂J/∂z, ∂H/∂z [n, K]; d²H/dt² along v and dH/dτ along r at τ [n]."""

    return_gradient: Any
    entropy_gradient: Any
    second_order: Any
    natural_entropy_rate: Any


class Evidence(NamedTuple):
    """A block, what the package says about it, and the second roads: autodiff, and arithmetic with more digits.

    The fixed counterexamples have no `run`, `derivatives` and `path`.
    """

    block: Block
    said: Predictions
    run: Any
    derivatives: Any
    policy: wide.Wide
    path: Any


def gather(block: Block) -> Evidence:
    """All there is to know about a block."""
    exact = block.cast(wide.WIDE[block.dtype])
    return Evidence(
        block,
        Predictions(*map(np.asarray, predict(block))),
        natural_run(block),
        Derivatives(*map(np.asarray, differentiate(block.cast(np.float64)))),
        wide.softmax(exact.logits),
        wide.straight_path(exact.logits, exact.delta),
    )


@jax.jit
def predict(block: Block) -> Predictions:
    """The package's numbers for a block, in its dtype."""
    z, r, c = block.logits, block.reward, block.correct.astype(block.logits.dtype)
    after = theory.natural_path(z, c, block.time[:, None])
    success = jnp.minimum(jnp.sum(probs(after) * c, -1), 1.0)
    right, wrong = (entropy(jnp.where(group, z, -jnp.inf)) for group in (block.correct, ~block.correct))
    exact = decompose(softmax(z), block.delta)
    return Predictions(
        entropy=entropy(z),
        entropy_change=exact.entropy_change,
        remainder=exact.remainder,
        remainder_bound=theory.remainder_bound(z, block.delta),
        certified_step_size=theory.certified_step_size(z, block.direction),
        lemma_1=_halved(lambda part: theory.lemma_1(z, part * block.small)),
        theorem_1=_halved(lambda part: theory.theorem_1(z, block.advantage, part * block.pg_step)),
        theorem_1_raw=_halved(lambda part: theory.theorem_1(z, block.advantage + 1.0, part * block.pg_step)),
        theorem_2=_halved(lambda part: theory.theorem_2(z, r, part * block.npg_step)),
        proposition_1=theory.proposition_1(z, r, 1.0),
        sample_effect=theory.sample_effect(z),
        single_logit_entropy=theory.single_logit_entropy(z, block.action, block.shift),
        second_order=theory.second_order(z, block.direction),
        natural_entropy_rate=theory.natural_entropy_rate(z, r, block.time[:, None]),
        binary_reward_entropy=theory.binary_reward_entropy(success, right, wrong),
    )


def _halved(formula: Any) -> Array:
    return jax.vmap(formula)(jnp.array([1.0, 0.5]))


@jax.jit
def differentiate(block: Block) -> Derivatives:
    """Derivatives of the plain formulas of H and J, written relative to the mode so that they keep their digits."""
    z, time = block.logits, block.time
    unmasked = z > -jnp.inf

    def along(direction: Any) -> Any:
        v = jnp.where(unmasked, direction, 0.0)
        return lambda t: plain_entropy(z + t[:, None] * v)

    def rate(direction: Any) -> Any:
        return lambda t: jax.jvp(along(direction), (t,), (jnp.ones_like(t),))[1]

    start = jnp.zeros_like(time)
    return Derivatives(
        return_gradient=jax.grad(lambda z: jnp.sum(plain_return(z, block.reward)))(z),
        entropy_gradient=jax.grad(lambda z: jnp.sum(plain_entropy(z)))(z),
        second_order=jax.jvp(rate(block.direction), (start,), (jnp.ones_like(start),))[1],
        natural_entropy_rate=rate(block.reward)(time),
    )


def plain_entropy(logits: Array) -> Array:
    """log(1 + s) − Σ eˣ x/(1 + s), with no derivative rule of its own."""
    x, e, s = _relative(logits)
    return jnp.log1p(s) - jnp.sum(e * x, -1) / (1.0 + s)


def plain_return(logits: Array, reward: Any) -> Array:
    """Σ π r − (r of the mode)."""
    _, e, s = _relative(logits)
    mode = jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1], dtype=bool)
    return jnp.sum(e * (reward - jnp.sum(jnp.where(mode, reward, 0.0), -1, keepdims=True)), -1) / (1.0 + s)


def _relative(logits: Array) -> tuple[Array, Array, Array]:
    unmasked = logits > -jnp.inf
    finite = jnp.where(unmasked, logits, 0.0)
    mode = jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1], dtype=bool)
    x = jnp.where(unmasked & ~mode, finite - jnp.sum(jnp.where(mode, finite, 0.0), -1, keepdims=True), 0.0)
    e = jnp.where(unmasked, jnp.exp(x), 0.0)
    return x, e, jnp.sum(jnp.where(mode, 0.0, e), -1)


def natural_run(block: Block) -> Trace:
    """A simulated run of natural PG on the first states of a block, each a bandit of its own."""
    states = max(1, _RUN_NUMBERS // block.logits.shape[1])
    problem = Bandit(block.reward[:states], weights=1.0)
    algorithm = Algorithm(NaturalPG(RUN_STEP_SIZE))
    return simulate(problem, algorithm, num_steps=RUN_STEPS, logits=block.logits[:states])
