"""Random and adversarial cases: policies of 2 to 1000 actions, steps of 1e-12 to 10, rewards."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.verification import wide

Array = np.ndarray

SHARES = {10: 0.75, 100: 0.225, 1000: 0.025}
"""Width of a table, and its share of the cases."""

SIZES = {10: (2, 3, 5, 10), 100: (30, 100), 1000: (300, 1000)}
"""K of the policies in a table of that width; the places left over are masked, anywhere in the row."""

CHUNK = 20_000
"""Cases that are looked at together; more are taken one chunk after the other."""

RAREST = {"float64": 1e-300, "float32": 1e-30}

SMALL = {"float64": 2.0**-10, "float32": 2.0**-6}
"""osc(δ) of the larger of two steps whose errors give an order: well above rounding, well below one."""


class Block(NamedTuple):
    """n cases in one table, each field [n, K] or [n] and (but for indices and bools) of one dtype.

    logits                −∞ where masked
    direction             of size 1
    delta, small          multiples of it: of size 1e-12 … 10, and with osc(δ) = SMALL
    reward, advantage     real rewards r; A = r − E_π r
    pg_step, npg_step     η for which osc(η π∘A) and osc(η A) are SMALL
    correct               which actions are right: at least one, not all
    action, shift, time   an unmasked action; −10 … 10; 0 … 10
    """

    logits: Array
    direction: Array
    delta: Array
    small: Array
    reward: Array
    advantage: Array
    pg_step: Array
    npg_step: Array
    correct: Array
    action: Array
    shift: Array
    time: Array

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return str(self.logits.dtype)

    def cast(self, dtype: Any) -> Block:
        """The same values in another dtype."""
        return Block(*(x.astype(dtype) if x.dtype.kind == "f" else x for x in self))


def plan(cases: int) -> list[tuple[int, int, int]]:
    """(number, rows, width) of the tables that hold at least `cases` cases; tables of one width have one shape."""
    chunks = -(-cases // CHUNK)
    return [(i, -(-int(cases * share) // chunks) + 1, width) for i in range(chunks) for width, share in SHARES.items()]


def draw(seed: int, number: int, rows: int, width: int, dtype: str) -> Block:
    """Table `number` of that width; the same for the same seed."""
    return random_block(np.random.default_rng([seed, number, width]), rows, width, dtype)


def random_block(rng: np.random.Generator, count: int, width: int, dtype: str) -> Block:
    """`count` cases whose policies, steps and rewards come from the families below."""
    sizes = rng.choice(SIZES[width], (count, 1))
    order = rng.random((count, width)).argsort(-1)
    first, second = (order == 0), (order == 1)
    logits = np.where(order < sizes, _policies(rng, first, sizes, np.log(RAREST[dtype])), -np.inf)
    reward = rng.standard_normal((count, width)) * 10.0 ** rng.integers(-1, 2, (count, 1))
    direction = _directions(rng, logits, first, reward)
    return block(
        dtype,
        logits,
        reward,
        direction=direction,
        delta=direction * 10.0 ** rng.uniform(-12, 1, (count, 1)),
        correct=((rng.random((count, width)) < rng.random((count, 1))) | first) & ~second,
        action=np.where(rng.random(count) < 0.5, first.argmax(-1), second.argmax(-1)),
        shift=rng.uniform(-10, 10, count),
        time=10 * rng.random(count) ** 2,
    )


def block(dtype: str, logits: Array, reward: Array, direction: Array, **rest: Array) -> Block:
    """A block in `dtype`, with what follows from the logits, the rewards and the direction."""
    logits, reward, direction = (x.astype(dtype).astype(np.float64) for x in (logits, reward, direction))
    policy = wide.softmax(logits)
    advantage = wide.centred(policy, reward)
    steps = [
        SMALL[dtype] / np.maximum(wide.oscillation(policy, values), np.finfo(dtype).tiny)
        for values in (direction, policy.prob * advantage, advantage)
    ]
    return Block(
        logits=logits,
        direction=direction,
        small=direction * np.minimum(steps[0], 1.0)[:, None],
        reward=reward,
        advantage=advantage,
        pg_step=steps[1],
        npg_step=steps[2],
        **rest,
    ).cast(dtype)


def _policies(rng: np.random.Generator, first: Array, sizes: Array, deepest: float) -> Array:
    """One family a row: normal logits, nearly uniform, uniform, a gap of 40, down to the rarest, ties, one against all.

    The last is where the remainder comes nearest to its bound: one action of probability p, the others equal.
    """
    normal = rng.standard_normal(first.shape)
    p = rng.uniform(0.2, 0.5, (len(first), 1))
    return _mixed(
        rng,
        normal * rng.choice([0.1, 1.0, 3.0], (len(first), 1)),
        normal * 1e-8,
        np.zeros(first.shape),
        normal + 40 * first,
        np.where(first, 0, rng.uniform(deepest, 0, first.shape)),
        rng.integers(0, 3, first.shape).astype(float),
        np.where(first, np.log(p * (sizes - 1) / (1 - p)), 0),
    )


def _directions(rng: np.random.Generator, logits: Array, first: Array, reward: Array) -> Array:
    """One family a row, scaled to size 1: normal, one logit up, one logit down, π∘A, A, all alike."""
    policy = wide.softmax(logits)
    normal, pushed = rng.standard_normal(first.shape), policy.prob * wide.centred(policy, reward)
    direction = _mixed(
        rng, normal, normal, np.where(first, 1.0, 0.0), np.where(first, -1.0, 0.0), pushed, reward, np.ones(first.shape)
    )
    direction = np.where(policy.prob > 0, direction, 0)
    return direction / np.abs(direction).max(-1, keepdims=True)


def _mixed(rng: np.random.Generator, *families: Array) -> Array:
    choice = rng.integers(0, len(families), len(families[0]))
    return np.stack(families)[choice, np.arange(len(choice))]
