"""The (contextual) bandit: an episode draws one context and takes one action."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from softmaxdyn.configs import config
from softmaxdyn.errors import InputError
from softmaxdyn.policy import Policy, centred, cumulative_probs, draw
from softmaxdyn.problems.protocol import Episode, Listing, Problem


@config
class Bandit(Problem):
    """S contexts, K arms each; `rewards` [K] or [S, K], `weights` the context distribution [S] (default 1/S).

    J = Σ_s w_s Σ_a π(a|s) r(s, a), d(s) = w_s, so a context's own policy-gradient step is η w_s. `weights=1` gives S
    independent bandits that share nothing. Raises InputError for rewards that are ragged, empty or not finite and for
    weights that are negative, all zero, or not one a context.
    """

    rewards: Any
    weights: Any = None

    def __post_init__(self) -> None:
        rewards = _table(self.rewards)
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "weights", _weights(self.weights, rewards))

    def __repr__(self) -> str:
        return f"Bandit(S={self.shape[0]}, K={self.shape[1]})"

    @property
    def start(self) -> Any:
        """The weights of the contexts."""
        return self.weights

    def visits(self, probs: Float[Array, "S A"], start: Float[Array, " S"] | None = None) -> Float[Array, " S"]:
        """d(s) = w_s, whatever the policy."""
        return jnp.asarray(self.weights if start is None else start, probs.dtype)

    def ahead(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """0: nothing comes after the one action."""
        return jnp.zeros(self.shape, values.dtype)

    def to_go(self, probs: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """0: nothing comes after the one action."""
        return jnp.zeros_like(probs)

    def listing(self, probs: Float[Array, "S A"]) -> Listing:
        """Every pair (s, a), once."""
        state, action = (jax.lax.broadcasted_iota(jnp.int32, self.shape, axis).reshape(-1, 1) for axis in (0, 1))
        reward = jnp.asarray(self.rewards, probs.dtype).reshape(-1, 1)
        weight = self.visits(probs)[:, None] * probs
        return Listing(Episode(state, action, reward, jnp.ones(reward.shape, bool)), weight.ravel())

    def normalised_covariance(self, policy: Policy) -> Float[Array, ""]:
        """Σ_s w_s Cov_π(log π, r): an episode has one action."""
        gain = centred(policy, jnp.asarray(self.rewards, policy.prob.dtype))
        return jnp.sum(self.visits(policy.prob) * jnp.sum(policy.prob * policy.centred_log_prob * gain, -1))

    def rollout(self, key: Key[Array, ""], logits: Float[Array, "S A"], start: Int[Array, ""] | None = None) -> Episode:
        """One context, one action, its reward."""
        begin, act = jax.random.split(key)
        state = self.sample_start(begin) if start is None else jnp.asarray(start, jnp.int32)
        action = draw(act, cumulative_probs(logits)[state])
        reward = jnp.asarray(self.rewards, logits.dtype)[state, action]
        return Episode(state[None], action[None], reward[None], jnp.ones(1, bool))


def _table(rewards: Any) -> Any:
    if isinstance(rewards, jax.core.Tracer):
        return rewards if rewards.ndim == 2 else rewards[None]
    try:
        table = np.asarray(rewards, None if hasattr(rewards, "dtype") else float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "rewards are ragged or not numbers; wanted [K] or [S, K] numbers, rows of equal length"
        ) from None
    if table.dtype.kind not in "biuf":
        raise InputError(f"rewards are of type {table.dtype}; wanted real numbers")
    if table.ndim not in (1, 2) or table.size == 0:
        raise InputError(f"rewards have shape {table.shape}; wanted [K] or [S, K] with at least one arm")
    single = table.dtype.kind == "f" and table.dtype.itemsize <= 4
    table = np.atleast_2d(table).astype(np.float32 if single else float, copy=False)
    if not np.isfinite(table).all():
        state, arm = np.argwhere(~np.isfinite(table))[0]
        raise InputError(f"the reward of context {state}, arm {arm} is {table[state, arm]}; wanted finite numbers")
    if np.abs(table).max() > 1e30:
        raise InputError(
            f"a reward of size {np.abs(table).max():g} overflows; wanted sizes ≤ 1e30: rescale the rewards"
        )
    return rewards if isinstance(rewards, jax.Array) and rewards.ndim == 2 else table


def _weights(weights: Any, rewards: Any) -> Any:
    contexts = rewards.shape[0]
    dtype = np.result_type(rewards.dtype, np.float32) if jnp.issubdtype(rewards.dtype, jnp.floating) else float
    if weights is None:
        return np.full(contexts, 1.0 / contexts, dtype)
    if isinstance(weights, jax.core.Tracer):
        return weights
    try:
        array = np.asarray(weights, None if hasattr(weights, "dtype") else float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"weights are not numbers; wanted one a context ({contexts})") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"weights are of type {array.dtype}; wanted real numbers")
    if array.ndim == 0:
        array = np.full(contexts, array, dtype)
    if array.shape != (contexts,):
        raise InputError(f"weights have shape {array.shape}; wanted one a context: ({contexts},)")
    if not ((array >= 0) & (array <= 1e30)).all():
        odd = int(np.argmin((array >= 0) & (array <= 1e30)))
        raise InputError(f"the weight of context {odd} is {array[odd]:g}; wanted numbers in [0, 1e30]")
    if not array.any():
        raise InputError("all weights are 0; wanted one above 0")
    return array if hasattr(weights, "dtype") else array.astype(dtype)
