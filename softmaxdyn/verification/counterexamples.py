"""Statements in circulation that are not literally true, each with policies that refute it: C1–C5."""

from __future__ import annotations

import numpy as np

from softmaxdyn.verification import wide
from softmaxdyn.verification.cases import Block, block
from softmaxdyn.verification.checks import errors, mean_size
from softmaxdyn.verification.evidence import Evidence, Predictions, predict
from softmaxdyn.verification.verdicts import Array, Check, Sample

STEP = 0.01
CLEAR = 1e-3  # a change of entropy per step that no rounding makes

SECOND = ((0.7, 0.2, *8 * (0.0125,)), (0.0, 1.0, *8 * (0.0,)))
MODE = ((0.42061, 0.42242, 0.15697), (0.0307, 0.8972, 0.8774))
SIGNS = ((0.504, 0.063, 0.063, 0.370), (1.0, 1.0, 1.0, 0.0))
RARE = ((0.97, *30 * (0.001,)), (0.0, 1.0, *29 * (0.0,)))

FIXED_CASES = (SECOND, MODE, SIGNS, SIGNS, RARE)
"""(π, r). Rows 0 and 4 take the step of a sampled action 1, rows 1 and 2 that of PG, row 3 that of natural PG."""

FIXED_WIDTH = max(len(pi) for pi, _ in FIXED_CASES)
"""The least width of a table that holds them."""


def fixed_evidence(rows: int, width: int, dtype: str) -> Evidence:
    """The fixed cases, one a row (with no second roads); they travel in a table of a shape that is compiled anyway."""
    pairs = [np.array(case) for case in FIXED_CASES]
    padded = [np.pad(pair, ((0, 0), (0, width - pair.shape[1]))) for pair in pairs]
    p, r = np.stack(padded).swapaxes(0, 1)
    advantage = r - (p * r).sum(-1, keepdims=True)
    sampled = np.eye(width)[1] - p
    direction = np.stack([sampled[0], *(p * advantage)[1:3], advantage[3], sampled[4]])
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    rest = {"correct": p > 1, "action": np.ones(len(p), int), "shift": np.zeros(len(p)), "time": np.zeros(len(p))}
    fixed = block(dtype, logits, r, direction, delta=STEP * direction, **rest)
    filled = Block(*(np.resize(x, (rows, *x.shape[1:])) for x in fixed))
    said = Predictions(*(np.asarray(x) for x in predict(filled)))
    policy = wide.softmax(fixed.logits.astype(wide.WIDE[dtype]))
    return Evidence(fixed, said.first(len(p)), None, None, policy, None)


def _high_and_good(e: Evidence) -> Sample:
    """ΔH per step, to first order and exactly: action .2 rewarded; a mode that has the highest advantage."""
    sampled = [e.said.sample_effect[0, 1], e.said.entropy_change[0] / STEP]
    pushed = [e.said.theorem_1[0, 1] / e.block.pg_step[1], e.said.entropy_change[1] / STEP]
    return Sample(np.array([*sampled, *pushed]), 2)


def _opposite_signs(e: Evidence) -> Sample:
    """−ΔH per step of PG and ΔH per step of natural PG, to first order and exactly."""
    pg = [e.said.theorem_1[0, 2] / e.block.pg_step[2], e.said.entropy_change[2] / STEP]
    npg = [e.said.theorem_2[0, 3] / e.block.npg_step[3], e.said.entropy_change[3] / STEP]
    return Sample(np.array([-pg[0], -pg[1], *npg]), 1)


def _raw_rewards(e: Evidence) -> Sample:
    """Theorem 1 of A + 1 less that of A, against −η S̄."""
    policy, prob = e.policy, e.policy.prob
    got = (e.said.theorem_1_raw[0].astype(prob.dtype) - e.said.theorem_1[0]) / e.block.pg_step
    wanted = -(prob * prob * policy.u).sum(-1)
    pushed = prob * (1 + 2 * np.abs(e.block.advantage))
    pushed = wide.spread(policy, pushed) + 2 * np.take_along_axis(pushed, policy.mode, -1)
    return errors(e, got, wanted, mean_size(policy, wide.spread(policy, policy.x) * pushed), 0.0)


def _other_logits_frozen(e: Evidence) -> Sample:
    """The exact effect of an action of probability q, one of n equals beside one other, against factor × estimate."""
    policy, rows = e.policy, np.arange(len(e.block.action))
    unmasked, x = policy.prob > 0, policy.x
    equal = unmasked & (x == x[rows, e.block.action][:, None])
    n, q = equal.sum(-1), policy.prob[rows, e.block.action]
    p = (policy.prob * ~equal).sum(-1)
    chosen = n == unmasked.sum(-1) - 1
    estimate = -(1 - q) * q * policy.u[rows, e.block.action]
    factor = (1 + n * (p - q)) / np.where(q < 1, p + (n - 1) * q, 1)
    size = policy.prob * (1 + np.abs(x)) * wide.spread(policy, x)
    size = size[rows, e.block.action] + (policy.prob * size).sum(-1)
    sample = errors(e, e.said.sample_effect[rows, e.block.action], factor * estimate, size, 0.0)
    return Sample(sample.values[chosen], int(chosen.sum()))


def _exponent_of_sum(e: Evidence) -> Sample:
    """What −a exp(H + b) lacks of R = −a exp(H) + b, over b, for policies without entropy, where R = b − a."""
    spent = e.said.entropy < 1e-6
    entropy, a, b = e.said.entropy[spent], 1 + e.block.time[spent], 0.1 + np.abs(e.block.shift[spent])
    right = np.abs(return_law(entropy, a, b) - (b - a)) <= 1e-5 * (a + b)
    gap = return_law(entropy, a, b) - printed_law(entropy, a, b)
    return Sample(np.where(right, gap / b, 0), int(spent.sum()))


def return_law(entropy: Array, a: Array, b: Array) -> Array:
    """R = −a exp(H) + b."""
    return -a * np.exp(entropy) + b


def printed_law(entropy: Array, a: Array, b: Array) -> Array:
    """The misprint: −a exp(H + b)."""
    return -a * np.exp(entropy + b)


FIXED = (
    Check("C1", "high probability and high advantage need not lower H", _high_and_good, "ΔH per step", CLEAR, np.inf),
    Check("C2", "PG and natural PG can move H in opposite directions", _opposite_signs, "±ΔH per step", CLEAR, np.inf),
)
"""Judged on `fixed_evidence`."""

RANDOM = (
    Check("C3", "Theorem 1 with A + b in place of A is off by −η b S̄, at first order", _raw_rewards),
    Check(
        "C4", "−w (1 − π_a) S_a (other logits frozen) is off by 2 at K = 2, by 30 for 30 × .001", _other_logits_frozen
    ),
    Check(
        "C5",
        "the law is R = −a exp(H) + b; −a exp(H + b) misses R(0) = b − a",
        _exponent_of_sum,
        "gap / b",
        1.0,
        np.inf,
    ),
)
"""Judged on all cases, random and fixed."""
