"""Entropy along whole episodes: how the visits move it (T19), and three covariances that are not the same (T20).

H̄ = Σ_s d(s) H(s) is the entropy of the actions of an episode (of the response, on a token tree). A step changes it by

    ΔH̄ = Σ_s d(s) ΔH(s)  +  Σ_s Δd(s) H'(s)         local (visits frozen) + visitation, exactly
        ≈ −Σ_s d(s) Cov_s(log π, δ)  +  Σ_s d(s) Cov_s(Q_H, δ)

with Q_H(s, a) the entropy to go after (s, a). The theorems know the local part only.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from softmaxdyn.change import prob_change, stepped
from softmaxdyn.policy import Policy, centred, relative_to
from softmaxdyn.problems import Problem


class Split(NamedTuple):
    """The change of H̄ by one step δ and what a first-order theory says of its second part; nats an episode.

    local_change           Σ_s d(s) ΔH(s): the visits frozen
    visitation_change      Σ_s Δd(s) H'(s): what the moved visits add
    visitation_prediction  Σ_s d(s) Cov_s(Q_H, δ): the first order of visitation_change
    trajectory_change      ΔH̄, the sum of the first two
    """

    local_change: Float[Array, ""]
    visitation_change: Float[Array, ""]
    visitation_prediction: Float[Array, ""]
    trajectory_change: Float[Array, ""]


class Covariances(NamedTuple):
    """What is called "the covariance of log π and the advantage": reward · nats.

    action      Σ_s d(s) Cov_s(log π, A): under natural PG −η times it is the first order of Σ_s d(s) ΔH(s) (Theorem 2)
    sequence    Σ_s d(s) Cov_s(log π − Q_H, Q): under natural PG −η times it is the first order of ΔH̄. Where actions
                decide everything that happens it is Σ_x w_x Cov(log π(y|x), R(y)), y the episode from x
    normalised  Σ_x w_x Cov(log π(y|x)/|y|, R(y)): the same, normalised by length; NaN where lengths have no end
    token       mean of (log π − mean log π)(A − mean A) over all tokens, A = R − V(x) for every token of y: equation 10
                of Cui et al. 2025 in a batch without end. Under natural PG −η times it is the first order of the change
                of H̄/E|y|, the mean entropy of a token
    """

    action: Float[Array, ""]
    sequence: Float[Array, ""]
    normalised: Float[Array, ""]
    token: Float[Array, ""]


def trajectory_entropy(problem: Problem, policy: Policy) -> Float[Array, ""]:
    """H̄ = Σ_s d(s) H(s): the entropy of all actions of an episode, nats."""
    return jnp.sum(problem.visits(policy.prob) * policy.entropy)


def split(problem: Problem, policy: Policy, delta: Float[Array, "S A"], entropy_change: Float[Array, " S"]) -> Split:
    """ΔH̄ of one step in two parts; `entropy_change` [S] is the exact ΔH of each state.

    The second part is Σ_s d(s) Σ_a (π' − π) Q'_H(s, a), Q'_H of the new policy: no difference of visits is taken.

    source  T19; the second line is the performance difference lemma (Kakade and Langford 2002) for the reward H'(s)
    """
    visits = problem.visits(policy.prob)
    after = stepped(policy, delta)
    gain = relative_to(policy.mode, problem.to_go(after.prob, after.entropy))
    local = jnp.sum(visits * entropy_change)
    visitation = jnp.sum(visits[:, None] * prob_change(policy, delta) * gain)
    to_go = centred(policy, problem.to_go(policy.prob, policy.entropy))
    prediction = jnp.sum(visits[:, None] * policy.prob * to_go * centred(policy, delta))
    return Split(local, visitation, prediction, local + visitation)


def covariances(problem: Problem, policy: Policy) -> Covariances:
    """The three covariances of T20 (the second in two forms) under `policy`, over the population."""
    p, u = policy.prob, policy.centred_log_prob
    visits, value = problem.visits(p), problem.action_values(p)
    advantage = centred(policy, value)
    to_go = centred(policy, problem.to_go(p, policy.entropy))
    action = jnp.sum(visits[:, None] * p * u * advantage)
    state_value = jnp.sum(p * value, -1)
    at_start = problem.visits(p, jnp.asarray(problem.start, p.dtype) * state_value)
    lead = jnp.where(visits > 0.0, state_value - at_start / jnp.where(visits > 0.0, visits, 1.0), 0.0)
    share = visits / jnp.sum(visits)
    mean_entropy = jnp.sum(share * policy.entropy)
    across = jnp.sum(share * (mean_entropy - policy.entropy) * (lead - jnp.sum(share * lead)))
    return Covariances(
        action=action,
        sequence=action - jnp.sum(visits[:, None] * p * to_go * advantage),
        normalised=problem.normalised_covariance(policy),
        token=action / jnp.sum(visits) + across,
    )
