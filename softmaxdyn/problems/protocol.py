"""What a problem is: the questions that the rest of the package asks."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from softmaxdyn.policy import Policy, sample


class Episode(NamedTuple):
    """One played episode of at most T steps; `taken` is False after its end."""

    state: Int[Array, "*E T"]
    action: Int[Array, "*E T"]
    reward: Float[Array, "*E T"]
    taken: Bool[Array, "*E T"]


class Listing(NamedTuple):
    """All E episodes that a problem can play, and how many of each one unit of J holds (w_x · P(episode | x))."""

    episode: Episode
    weight: Float[Array, " E"]


class Problem:
    """A tabular problem with S states and A actions; probabilities are [S, A], one policy row a state.

    A problem is a frozen config with `rewards`, `start`, `visits`, `ahead`, `to_go` and `rollout`; the rest follows. An
    episode starts in a state drawn from `start`, and every reward, visit and value is that of an episode. A discount γ
    is the chance that an episode goes on: sums along a played episode are undiscounted.
    """

    rewards: Any  # [S, A], the expected reward of taking a in s

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return self.rewards.shape

    @property
    def start(self) -> Any:
        """w [S]: how many episodes of one unit of J begin in each state; they add up to 1 but for independent ones."""
        raise NotImplementedError

    def visits(self, probs: Float[Array, "S A"], start: Float[Array, " S"] | None = None) -> Float[Array, " S"]:
        """d(s): the expected number of visits to s under `probs`, from `start` (default: the problem's own)."""
        raise NotImplementedError

    def ahead(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """E[values(s')] of the next state s' after (s, a); 0 where the episode ends."""
        raise NotImplementedError

    def to_go(self, probs: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """E[Σ values(s_t) over all states after (s, a)] under `probs`."""
        raise NotImplementedError

    def rollout(self, key: Key[Array, ""], logits: Float[Array, "S A"], start: Int[Array, ""] | None = None) -> Episode:
        """One episode under softmax(logits), from the state `start` or from a drawn one."""
        raise NotImplementedError

    @property
    def episodes_at_once(self) -> Float[Array, ""]:
        """Σ_s w_s: how many episodes make one unit of J."""
        return jnp.sum(jnp.asarray(self.start))

    def action_values(
        self, probs: Float[Array, "S A"], rewards: Float[Array, "S A"] | None = None
    ) -> Float[Array, "S A"]:
        """Q(s, a) = r(s, a) + E[Σ of later rewards], of the problem's own rewards or of others."""
        table = jnp.asarray(self.rewards if rewards is None else rewards, probs.dtype)
        return table + self.to_go(probs, jnp.sum(probs * table, -1))

    def expected_return(self, probs: Float[Array, "S A"]) -> Float[Array, ""]:
        """J = Σ_s d(s) Σ_a π(a|s) r(s, a)."""
        return jnp.sum(self.visits(probs)[:, None] * probs * jnp.asarray(self.rewards, probs.dtype))

    def sample_start(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """A first state, drawn in proportion to `start`."""
        return sample(key, jnp.log(jnp.asarray(self.start)))

    def listing(self, probs: Float[Array, "S A"]) -> Listing | None:
        """Every episode with its weight under `probs`; None where they are too many to list."""
        return None

    def normalised_covariance(self, policy: Policy) -> Float[Array, ""]:
        """Σ_x w_x Cov(log π(y|x)/|y|, R(y) | x), |y| the length of an episode y; NaN where lengths have no end."""
        return jnp.full((), jnp.nan, policy.prob.dtype)

    def measures(self, policy: Policy) -> dict[str, Any]:
        """What a trace also records of this kind of problem, by name."""
        return {}
