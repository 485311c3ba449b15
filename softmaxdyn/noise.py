"""What sampling does to the entropy: the expected ΔH of one sampled step, to second order and by enumeration (T12)."""

from __future__ import annotations

from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln

from softmaxdyn.advantages import Outcomes
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.estimators import Sampled, at_mode, best_baseline, state_value
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Bandit
from softmaxdyn.rewards import RandomReward

_EPISODES = 2_000_000  # that may be enumerated for one state


class ExpectedChange(NamedTuple):
    """E[ΔH] ≈ first + drift + noise of one step δ, nats, one number a state; and E[δ] [S, A].

    first  −Cov_π(log π, E δ), of size η
    drift  ½ E[δ]ᵀ ∇²H E[δ], of size η²: what the step without noise has too
    noise  ½ tr(∇²H Cov δ), of size η²/N
    """

    step: Float[Array, "S A"]
    first: Float[Array, " S"]
    drift: Float[Array, " S"]
    noise: Float[Array, " S"]


def expected_entropy_change(
    problem: Any, estimator: Any, logits: Float[Array | np.ndarray, "S A"], step_size: Any
) -> ExpectedChange:
    """E[ΔH] of one vanilla step on the tokens of `estimator`, up to O(η³), by enumeration.

    A group is n actions of one state. Given how many of them earned each of the L rewards that the state pays, the
    advantages are known and the actions are independent, so E and Cov of the step are sums over the C(n + L − 1, n)
    counts. Any advantage estimator that looks at no more than the group will do, for any rewards.

    source  T12; groups draw their states with probability d(s)/Σ d
    Raises InputError for other problems, estimators of scope "batch", random rewards, and too many counts.
    """
    check_number("step_size", step_size, low=0.0)
    _check(problem, estimator)
    policy = softmax(jnp.asarray(logits))
    value = estimator.reward.expected(problem, policy)
    visits = problem.visits(policy.prob)
    total = jnp.sum(visits)
    draw, scale = visits / total, step_size * total
    moments = [group_moments(estimator, policy, value, s) for s in range(problem.shape[0])]
    mean, second = (jnp.stack([pair[part] for pair in moments]) for part in (0, 1))
    hessian = entropy_hessian(policy)
    drift = jnp.einsum("sa,sab,sb->s", mean, hessian, mean)
    spread = jnp.einsum("sab,sab->s", hessian, second)
    step = (scale * draw)[:, None] * mean
    return ExpectedChange(
        step=step,
        first=-jnp.sum(policy.prob * policy.centred_log_prob * step, -1),
        drift=0.5 * (scale * draw) ** 2 * drift,
        noise=0.5 * scale**2 / estimator.groups * (draw * spread - draw**2 * drift),
    )


def group_moments(
    estimator: Sampled, policy: Policy, value: Float[Array, "S A"], state: int
) -> tuple[Float[Array, " A"], Float[Array, "A A"]]:
    """(E y, E yyᵀ) of y = (1/n) Σ_i A_i (e_{a_i} − π), one group of n actions in `state`."""
    prob, n = np.asarray(policy.prob[state], float), estimator.group_size
    rewards, level = np.unique(np.asarray(value[state])[prob > 0.0], return_inverse=True)
    of_level = np.zeros((len(rewards), len(prob)))
    of_level[level, np.flatnonzero(prob > 0.0)] = prob[prob > 0.0]
    share = of_level.sum(1)
    inside = of_level / share[:, None]  # π given the reward, [L, A]
    _check_size(n, len(rewards))
    counts = compositions(n, len(rewards))
    chance = np.exp(gammaln(n + 1) - gammaln(counts + 1).sum(1) + counts @ np.log(share))
    advantage = _advantages(estimator, policy, value, state, rewards, counts)
    weight = counts * advantage / n  # [C, L]
    between = weight.T @ (chance[:, None] * weight)
    within = chance @ (weight * advantage / n)
    direction = inside - prob
    second = direction.T @ between @ direction
    second += np.einsum("l,la,ab->ab", within, inside, np.eye(len(prob))) - (inside.T * within) @ inside
    kind = policy.prob.dtype
    return jnp.asarray((chance @ weight) @ direction, kind), jnp.asarray(second, kind)


def entropy_hessian(policy: Policy) -> Float[Array, "*S A A"]:
    """∂²H/∂z∂z = π dᵀ + d πᵀ − ππᵀ − diag d, with d = π (1 + log π + H) (T9)."""
    p = policy.prob
    d = p * (1.0 + policy.centred_log_prob)
    outer = p[..., :, None] * d[..., None, :]
    same = jnp.eye(p.shape[-1], dtype=p.dtype) * d[..., None, :]
    return outer + jnp.swapaxes(outer, -1, -2) - p[..., :, None] * p[..., None, :] - same


def compositions(n: int, parts: int) -> Int[np.ndarray, "C L"]:
    """All ways to write n as an ordered sum of `parts` numbers ≥ 0, one a row."""
    if parts == 1:
        return np.full((1, 1), n)
    rows = [np.insert(compositions(n - k, parts - 1), 0, k, axis=1) for k in range(n + 1)]
    return np.concatenate(rows)


def _advantages(
    estimator: Sampled, policy: Policy, value: Any, state: int, rewards: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """The advantage that each level of reward gets in each group of `counts`, [C, L]; 0 where nobody earned it."""
    groups, levels = counts.shape
    n, kind = int(counts[0].sum()), policy.prob.dtype
    level = np.repeat(np.tile(np.arange(levels), groups), counts.ravel()).reshape(groups, n)
    episodes = groups * n
    constant = lambda x: jnp.full(episodes, x, kind)  # noqa: E731
    outcomes = Outcomes(
        reward=jnp.asarray(rewards[level].reshape(-1, 1), kind),
        mask=jnp.ones((episodes, 1), bool),
        group=jnp.repeat(jnp.arange(groups, dtype=jnp.int32), n),
        weight=constant(1.0 / episodes),
        size=constant(n),
        greedy=constant(at_mode(policy, value)[state]),
        best_baseline=constant(best_baseline(Bandit(value), policy, value)[state]),
        values=constant(state_value(policy, value)[state])[:, None],
    )
    advantage = np.asarray(jax.jit(lambda o: estimator.advantage(o))(outcomes), float).reshape(groups, n)
    sums = np.zeros(counts.shape)
    np.add.at(sums, (np.arange(groups)[:, None], level), advantage)
    return sums / np.maximum(counts, 1)


def _check(problem: Any, estimator: Any) -> None:
    if not isinstance(problem, Bandit):
        raise InputError(f"problem is {problem!r}; the noise is enumerated for a Bandit only")
    if not isinstance(estimator, Sampled):
        raise InputError(f"estimator is {estimator!r}; wanted Sampled(…)")
    if getattr(estimator.advantage, "scope", "batch") == "batch":
        raise InputError(f"{type(estimator.advantage).__name__} depends on the whole batch; wanted one of a group")
    if isinstance(estimator.reward, RandomReward):
        raise InputError("RandomReward is not a function of the action; its noise is not enumerated")


def _check_size(n: int, levels: int) -> None:
    episodes = comb(n + levels - 1, n) * n
    if episodes > _EPISODES:
        raise InputError(
            f"{levels} different rewards in groups of {n} are {episodes:.2g} episodes to enumerate; at most 2e6"
        )
