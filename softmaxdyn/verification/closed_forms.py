"""The statements about whole runs of natural PG on a bandit, which has closed forms: T13–T15."""

from __future__ import annotations

import numpy as np

from softmaxdyn.verification import wide
from softmaxdyn.verification.checks import DOUBLE, ROUNDINGS, errors, through_mode
from softmaxdyn.verification.evidence import RUN_STEP_SIZE, Evidence
from softmaxdyn.verification.verdicts import Array, Check, Sample


def _natural_run(e: Evidence) -> Sample:
    """Entropies before every step and the last policy against π₀ exp(ηtr); the errors of t steps add up in z."""
    steps, states = e.run.entropy.shape
    policy = wide.Wide(*(x[:states] for x in e.policy))
    reward = wide.relative(policy, e.block.reward[:states])
    ratios = [_run_errors(e, policy, reward, t, e.run.entropy[t], None) for t in range(steps)]
    final = _run_errors(e, policy, reward, steps, e.run.final_entropy, e.run.logits)
    return Sample(np.max([*ratios, final], axis=0), states)


def _run_errors(e: Evidence, start: wide.Wide, reward: Array, t: int, entropy: Array, logits: Array | None) -> Array:
    time = RUN_STEP_SIZE * t
    exact = wide.moved(start, time * reward)
    eps = float(np.finfo(entropy.dtype).eps)
    size = np.where(exact.prob > 0, np.abs(start.x), 0) + RUN_STEP_SIZE * wide.spread(exact, reward)
    drift = (1 + t) * (size + time * np.abs(reward))
    drift = drift + np.take_along_axis(drift, exact.mode, -1)
    entropy_size = wide.entropy_size(exact) + (exact.prob * wide.spread(exact, exact.x) * drift).sum(-1)
    ratio = np.abs(entropy - exact.entropy) / (ROUNDINGS * eps * entropy_size + _flushed(e))
    if logits is None:
        return ratio
    got = wide.softmax(logits.astype(start.x.dtype)).prob
    of_policy = np.abs(got - exact.prob) / (ROUNDINGS * eps * exact.prob * (1 + drift) + _flushed(e))
    return np.maximum(ratio, of_policy.max(-1))


def _flushed(e: Evidence) -> float:
    return 1e3 * e.block.logits.shape[-1] * float(np.finfo(e.block.logits.dtype).tiny)


def _entropy_rate(e: Evidence) -> Sample:
    """Against autodiff along the path; infinite where the entropy rises from a uniform start."""
    time = e.block.time.astype(e.policy.x.dtype)[:, None]
    after = wide.moved(e.policy, time * e.block.reward)
    y, x = wide.spread(after, e.block.reward), wide.spread(after, e.policy.x)
    z = np.where(after.prob > 0, np.abs(e.block.logits) + time * np.abs(e.block.reward), 0)
    error_in_z = 1 + z + np.take_along_axis(z, after.mode, -1)
    size = after.prob * error_in_z * (x + time * y) * y
    other = through_mode(after, after.prob * error_in_z * (2 + wide.spread(after, after.x)) * y).sum(-1)
    sample = errors(e, e.said.natural_entropy_rate, e.derivatives.natural_entropy_rate, size.sum(-1), DOUBLE * other)
    uniform = (e.policy.x == 0).all(-1)
    return sample._replace(values=np.where(uniform & (e.said.natural_entropy_rate > 0), np.inf, sample.values))


def _binary_reward(e: Evidence) -> Sample:
    """h₂(p) + p H₊ + (1−p) H₋, with H₊ and H₋ from the start, against the entropy of the policy at τ."""
    time, correct = e.block.time.astype(e.policy.x.dtype)[:, None], e.block.correct
    after = wide.moved(e.policy, time * correct)
    logits = np.where(e.policy.prob > 0, e.policy.x, -np.inf)
    right, wrong = (wide.softmax(np.where(group, logits, -np.inf)) for group in (correct, ~correct))
    z = np.where(after.prob > 0, np.abs(e.block.logits) + time, 0)
    weighted = after.prob * (1 + z + np.take_along_axis(z, after.mode, -1))
    p, q = ((after.prob * group).sum(-1) for group in (correct, ~correct))
    log_p, log_q = np.abs(np.log(p)), np.abs(np.log(q))
    size = (weighted * correct).sum(-1) * (2 + log_p + log_q + right.entropy + wrong.entropy) + 1 + log_q
    size = size + p * wide.entropy_size(right) + q * wide.entropy_size(wrong)
    other = float(np.finfo(size.dtype).eps) * wide.entropy_size(after)
    return errors(e, e.said.binary_reward_entropy, after.entropy, size, other)


NATURAL = (
    Check("T13", "natural PG on a bandit is at π₀ exp(ηtr) after every simulated step", _natural_run),
    Check("T14", "natural PG: dH/dτ = −Cov(log π₀, r) − τ Var(r), so ≤ 0 from a uniform start", _entropy_rate),
    Check("T15", "natural PG, binary reward: H = h₂(p) + p H₊ + (1−p) H₋ with H₊, H₋ frozen", _binary_reward),
)
"""T13 … T15."""
