"""The Markov decision process, discounted or of limited time."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from softmaxdyn.configs import config, static
from softmaxdyn.errors import check_integer, concrete
from softmaxdyn.policy import Policy, cumulative_probs, draw
from softmaxdyn.problems.linear import expected_sum, expected_visits, relative_residual, without_loops
from softmaxdyn.problems.mdp_input import (
    check_length,
    discount_number,
    episode_length,
    reward_table,
    start_table,
    stochastic,
    terminal_states,
    transition_table,
)
from softmaxdyn.problems.protocol import Episode, Problem

_sums = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


@config
class MDP(Problem):
    """S states, A actions: `transitions` [S, A, S], `rewards` [S, A], or [S, A, S] for their expectation over s'.

    An episode begins in `start` (a state number, or a chance a state), ends on entering one of the `terminal` states
    (numbers, or [S] booleans), where nothing is counted, and goes on after each step with chance `discount`: rewards
    along it are undiscounted, and visits, J and Q are those of the discounted problem.

    Without a horizon, γ < 1, a policy is [S, A] and d = (I − γ P_πᵀ)⁻¹ start, V = (I − γ P_π)⁻¹ r_π. A played episode
    is cut after `length` steps, by default the first L with γᴸ ≤ 10⁻⁶: that is its bias. With a length of your own, a
    new discount compiles nothing anew.

    With a `horizon` T, γ ≤ 1, an episode has at most T steps and the policy may depend on the time: a row is a pair
    (t, s), at index t·S + s, and a policy [T·S, A]. Rewards [T·S, A] may depend on the time too. A policy that does not
    is the special case in which the T rows of a state share their parameters.

    Raises InputError for tables of a wrong shape, chances that are negative or do not sum to 1, rewards that are not
    finite, a discount out of range, a start or terminal state that does not exist, and a start in a terminal state.
    """

    transitions: Any
    rewards: Any
    discount: Any = 1.0
    start: Any = None
    terminal: Any = static(default=())
    horizon: int | None = static(default=None)
    length: int | None = static(default=None)
    stop: Any = dataclasses.field(init=False, default=None)  # 1 − γ, which keeps its digits in float32
    steps: int | None = dataclasses.field(init=False, default=None, metadata={"static": True})

    def __post_init__(self) -> None:
        horizon = None if self.horizon is None else check_integer("horizon", self.horizon, 1)
        transitions = transition_table(self.transitions)
        terminal = terminal_states(self.terminal, transitions.shape[0])
        transitions = stochastic(transitions, terminal)
        rewards = reward_table(self.rewards, transitions, terminal, horizon)
        dtype = np.result_type(transitions.dtype, rewards.dtype)
        discount = discount_number(self.discount, horizon)
        for name, value in {
            "transitions": transitions,
            "rewards": rewards,
            "discount": discount,
            "start": start_table(self.start, transitions.shape[0], terminal, horizon, dtype),
            "terminal": terminal,
            "horizon": horizon,
            "stop": 1.0 - discount,
            "steps": episode_length(discount, horizon, self.length),
        }.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        states, actions, _ = self.transitions.shape
        discount = f", discount={float(self.discount)!r}" if concrete(self.discount) else ""
        return f"MDP(S={states}, A={actions}{discount}{'' if self.horizon is None else f', horizon={self.horizon}'})"

    def visits(self, probs: Float[Array, "S A"], start: Float[Array, " S"] | None = None) -> Float[Array, " S"]:
        """d(s), or d(t, s): linear in `start`; 0 in terminal states."""
        start = self._counted(jnp.asarray(self.start if start is None else start, probs.dtype))
        if self.horizon is None:
            return expected_visits(*self._chain(probs), start)

        def walk(arrived: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            here = arrived + now[1]
            return self._onward(here[:, None] * now[0]), here

        return jax.lax.scan(walk, jnp.zeros_like(start, shape=self._live.shape), self._timed(probs, start))[1].ravel()

    def ahead(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """γ P x (of the next time; 0 at T)."""
        values = self._counted(values)
        if self.horizon is None:
            return self._ahead(values)
        (table,) = self._timed(values)
        following = jnp.concatenate([table[1:], jnp.zeros_like(table[:1])])
        return jax.vmap(self._ahead)(following).reshape(self.shape)

    def to_go(self, probs: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """γ P V_x, V_x the expected sum of `values` from a state on (at the next time, 0 from T on)."""
        values = self._counted(jnp.asarray(values, probs.dtype))
        if self.horizon is None:
            return self._ahead(expected_sum(*self._chain(probs), values))

        def look(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            ahead = self._ahead(later)
            return now[1] + jnp.sum(now[0] * ahead, -1), ahead

        zeros = jnp.zeros_like(values, shape=self._live.shape)
        return jax.lax.scan(look, zeros, self._timed(probs, values), reverse=True)[1].reshape(probs.shape)

    def rollout(self, key: Key[Array, ""], logits: Float[Array, "S A"], start: Int[Array, ""] | None = None) -> Episode:
        """One episode, `length` or T steps long with its untaken end; one that starts in a terminal state is empty.

        Raises InputError without a horizon and a length where the discount is traced or so near 1 that 2²⁴ steps are
        not enough.
        """
        first_key, play = jax.random.split(key)
        first = self.sample_start(first_key) if start is None else jnp.asarray(start, jnp.int32)
        begin = first, jnp.asarray(self._live)[first % self._live.shape[0]]
        keys = jax.random.split(play, self.horizon or check_length(self.steps))
        chances = cumulative_probs(logits), jnp.cumsum(self._moves(logits), -1)
        return jax.lax.scan(partial(self._play, chances), begin, keys)[1]

    def normalised_covariance(self, policy: Policy) -> Float[Array, ""]:
        """Σ_x w_x Cov(log π(y|x)/|y|, R(y) | x), exact, by one pass over the time; NaN without a horizon.

        For each state the pass carries the expectations of 1, L, R and L·R over the episodes that are there, L the sum
        of log π so far and R that of the rewards less V(x). A constant a step does not change the covariance of L/|y|,
        so log π is taken relative to its mean.
        """
        if self.horizon is None:
            return Problem.normalised_covariance(self, policy)
        probs, states = policy.prob, self._live.shape[0]
        visits = self.visits(probs)
        log_prob = jnp.where(policy.log_prob > -jnp.inf, policy.log_prob, 0.0)
        log_prob = log_prob + jnp.sum(visits * policy.entropy) / jnp.sum(visits)
        ending = self._ending(self._moves(probs))

        def walk(moments: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            prob, log, reward, count = now
            one, logs, gain, both = moments[:, :, None]
            moved = one, logs + log * one, gain + reward * one, both + log * gain + reward * (logs + log * one)
            here = jnp.stack([prob * moment for moment in moved])
            return self._onward(here), jnp.sum(ending * here[3]) / count

        value = jnp.sum(probs * self.action_values(probs), -1)[:states]
        start = self._counted(jnp.asarray(self.start, probs.dtype))[:states]
        begin = jnp.stack([start, 0.0 * start, -value * start, 0.0 * start])
        tables = self._timed(probs, log_prob, jnp.asarray(self.rewards, probs.dtype))
        count = jnp.arange(1, self.horizon + 1, dtype=probs.dtype)
        last, ended = jax.lax.scan(walk, begin, (*tables, count))
        return jnp.sum(ended) + jnp.sum(last[3]) / self.horizon

    def residual(self, probs: Float[Array, "S A"]) -> Float[Array, ""]:
        """The largest `relative_residual` of the two systems, for d and for V; 0 with a horizon, which solves none."""
        if self.horizon is not None:
            return jnp.zeros((), probs.dtype)
        moves, stop = self._chain(probs)
        matrix = without_loops(moves, stop)
        start = self._counted(jnp.asarray(self.start, probs.dtype))
        reward = jnp.sum(probs * jnp.asarray(self.rewards, probs.dtype), -1)
        return jnp.maximum(
            relative_residual(matrix.T, expected_visits(moves, stop, start), start),
            relative_residual(matrix, expected_sum(moves, stop, reward), reward),
        )

    def measures(self, policy: Policy) -> dict[str, Any]:
        """`residual`, where there is something to solve."""
        return {"solve_residual": self.residual(policy.prob)} if self.horizon is None else {}

    @property
    def _live(self) -> np.ndarray:
        """[S], False in terminal states."""
        return ~np.isin(np.arange(self.transitions.shape[0]), self.terminal)

    def _counted(self, values: Float[Array, "*N"]) -> Float[Array, "*N"]:
        """The values of all rows, 0 in terminal states."""
        return jnp.where(np.tile(self._live, self.horizon or 1), values, 0.0)

    def _timed(self, *tables: Array) -> tuple[Array, ...]:
        """Tables [T·S, …] as [T, S, …]."""
        return tuple(table.reshape(self.horizon, -1, *table.shape[1:]) for table in tables)

    def _moves(self, like: Array) -> Float[Array, "S A S"]:
        return jnp.asarray(self.transitions, like.dtype)

    def _going_on(self, weight: Float[Array, "..."]) -> Float[Array, "..."]:
        """γ times the weight."""
        return jnp.asarray(self.discount, weight.dtype) * weight

    def _ending(self, moves: Float[Array, "*N S"]) -> Float[Array, "*N"]:
        """The chance that the episode ends after a step that leads to each state with chance `moves`."""
        terminal = jnp.sum(jnp.where(self._live, 0.0, moves), -1)
        return jnp.asarray(self.stop, moves.dtype) + self._going_on(terminal)

    def _onward(self, weight: Float[Array, "*N S A"]) -> Float[Array, "*N S"]:
        """The weight of each next state, of the episodes that go on."""
        return self._going_on(jnp.where(self._live, _sums("...sa,sat->...t", weight, self._moves(weight)), 0.0))

    def _ahead(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """γ P x, for x that is 0 in terminal states."""
        return self._going_on(_sums("sat,t->sa", self._moves(values), values))

    def _chain(self, probs: Float[Array, "S A"]) -> tuple[Float[Array, "S S"], Float[Array, " S"]]:
        """(γ P_π between states that are not terminal, the chance to end after a step), by state."""
        moves = _sums("sa,sat->st", probs, self._moves(probs))
        return self._going_on(jnp.where(self._live, moves, 0.0)), self._ending(moves)

    def _play(
        self, chances: tuple[Array, Array], now: tuple[Int[Array, ""], Bool[Array, ""]], key: Key[Array, ""]
    ) -> tuple[tuple[Int[Array, ""], Bool[Array, ""]], Episode]:
        """One step from `now`, a row and whether the episode still goes on; `chances` are cumulative."""
        row, taken = now
        act, move, stay = jax.random.split(key, 3)
        actions, moves = chances
        action = draw(act, actions[row])
        reward = jnp.where(taken, jnp.asarray(self.rewards, actions.dtype)[row, action], 0.0)
        time, state = jnp.divmod(row, self._live.shape[0])
        following = draw(move, moves[state, action])
        on = taken & jnp.asarray(self._live)[following] & (jax.random.uniform(stay, (), actions.dtype) >= self.stop)
        if self.horizon is not None:
            on &= time + 1 < self.horizon
            following += (time + 1) * self._live.shape[0]
        return (jnp.where(on, following, row), on), Episode(row, action, reward, taken)
