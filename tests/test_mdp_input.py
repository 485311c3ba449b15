"""Bad input of MDPs: one clear line each; and what is allowed although it looks odd."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import InputError
from softmaxdyn.problems.mdp import MDP

P = np.full((2, 3, 2), 0.5)
R = np.zeros((2, 3))
FIVE = np.full((5, 1, 5), 0.2)
NAN, INF = float("nan"), float("inf")


def with_entry(table, place, value):
    table = np.array(table, float)
    table[place] = value
    return table


def huge(*shape):
    """A table that takes no memory."""
    return np.broadcast_to(0.5, shape)


CASES = {
    "ragged transitions": (lambda: MDP([[[1.0]], [[1.0, 0.0]]], R, 0.9), "cannot read transitions: ragged or not num"),
    "transitions of strings": (
        lambda: MDP("abc", R, 0.9),
        "cannot read transitions: type <U3; wanted [S, A, S] numbers",
    ),
    "complex transitions": (lambda: MDP(P * 1j, R, 0.9), "cannot read transitions: type complex128; wanted [S, A, S]"),
    "no transitions": (lambda: MDP(None, R, 0.9), "cannot read transitions: type object; wanted [S, A, S] numbers"),
    "two axes": (
        lambda: MDP(np.eye(2), R, 0.9),
        "transitions have shape (2, 2); wanted [S, A, S]: the chance of s' after a in s",
    ),
    "[A, S, S]": (lambda: MDP(np.zeros((3, 2, 2)), R, 0.9), "transitions have shape (3, 2, 2); wanted [S, A, S]: "),
    "no action": (lambda: MDP(np.zeros((2, 0, 2)), R, 0.9), "transitions have shape (2, 0, 2); wanted [S, A, S]: "),
    "too many states": (
        lambda: MDP(huge(20_000, 1, 20_000), R, 0.9),
        "transitions of shape (20000, 1, 20000) would hold 400,000,000 numbers, 3.0 GiB in float64; "
        "wanted at most 268,435,456",
    ),
    "too many times": (
        lambda: MDP(P, R, horizon=10**8),
        "a policy of shape (200000000, 3) would hold 600,000,000 numbers, 4.5 GiB in float64; wanted at most ",
    ),
    "negative chance": (
        lambda: MDP(with_entry(P, (1, 2, 0), -0.5), R, 0.9),
        "the chance of state 0 after action 2 in state 1 is -0.5; wanted numbers ≥ 0",
    ),
    "NaN chance": (
        lambda: MDP(with_entry(P, (0, 1, 1), NAN), R, 0.9),
        "the chance of state 1 after action 1 in state 0 is nan; wanted numbers ≥ 0",
    ),
    "a row too small": (
        lambda: MDP(with_entry(P, (1, 0, 1), 0.4), R, 0.9),
        "the chances after action 0 in state 1 sum to 0.9, not 1; "
        "type transitions / transitions.sum(-1, keepdims=True)",
    ),
    "an infinite row": (
        lambda: MDP(with_entry(P, (1, 0, 1), INF), R, 0.9),
        "the chances after action 0 in state 1 sum to inf, not 1; type transitions / ",
    ),
    "an empty row": (lambda: MDP(0.0 * P, R, 0.9), "the chances after action 0 in state 0 sum to 0, not 1; type "),
    "rewards of strings": (
        lambda: MDP(P, [["a"]], 0.9),
        "cannot read rewards: type <U1; wanted [S, A] or [S, A, S] num",
    ),
    "rewards a state": (
        lambda: MDP(P, [0.0, 1.0], 0.9),
        "rewards have shape (2,); wanted [S, A] = (2, 3) or [S, A, S] = (2, 3, 2)",
    ),
    "rewards the other way round": (lambda: MDP(P, R.T, 0.9), "rewards have shape (3, 2); wanted [S, A] = (2, 3) or "),
    "rewards for another horizon": (
        lambda: MDP(P, np.zeros((6, 3)), horizon=2),
        "rewards have shape (6, 3); wanted [S, A] = (2, 3) or [S, A, S] = (2, 3, 2) or [T·S, A] = (4, 3)",
    ),
    "NaN reward": (
        lambda: MDP(P, with_entry(R, (1, 2), NAN), 0.9),
        "the reward of action 2 in state 1 is nan; wanted finite numbers of size ≤ 1e+20",
    ),
    "infinite reward of a next state": (
        lambda: MDP(P, with_entry(np.zeros((2, 3, 2)), (0, 1, 1), -INF), 0.9),
        "the reward of action 1 in state 0 is -inf; wanted finite numbers of size ≤ 1e+20",
    ),
    "enormous reward": (
        lambda: MDP(P, R + 1e21, 0.9),
        "the reward of action 0 in state 0 is 1e+21; wanted finite numbers of size ≤ 1e+20",
    ),
    "no discount": (lambda: MDP(P, R), "discount is 1; wanted one in [0, 1), or an end of time: pass horizon=…"),
    "discount above 1": (
        lambda: MDP(P, R, 1.5),
        "discount is 1.5; wanted one in [0, 1), or an end of time: pass horizon=",
    ),
    "discount below 0": (
        lambda: MDP(P, R, -0.1),
        "discount is -0.1; wanted one in [0, 1), or an end of time: pass hor",
    ),
    "discount above 1, with a horizon": (
        lambda: MDP(P, R, 1.5, horizon=2),
        "discount is 1.5; wanted a finite number in [0, 1]",
    ),
    "discount below 0, with a horizon": (
        lambda: MDP(P, R, -0.1, horizon=2),
        "discount is -0.1; wanted a finite number in [0, 1]",
    ),
    "NaN discount": (lambda: MDP(P, R, NAN), "discount is nan; wanted a finite number"),
    "discount in words": (lambda: MDP(P, R, "0.9"), "discount is '0.9'; wanted a number"),
    "two discounts": (
        lambda: MDP(P, R, np.array([0.9, 0.8])),
        "discount has shape (2,); wanted one number (jax.vmap runs several)",
    ),
    "start in a state that is missing": (
        lambda: MDP(P, R, 0.9, start=2),
        "start is state 2; wanted a state number, 0 … 1",
    ),
    "start before the first state": (
        lambda: MDP(P, R, 0.9, start=-1),
        "start is state -1; wanted a state number, 0 … 1",
    ),
    "start of more states": (
        lambda: MDP(P, R, 0.9, start=[0.5, 0.25, 0.25]),
        "start has shape (3,); wanted a state number, or one chance a state: (2,)",
    ),
    "start in words": (
        lambda: MDP(P, R, 0.9, start="0"),
        "cannot read start: type <U1; wanted a state number, or one ch",
    ),
    "start of a fraction": (
        lambda: MDP(P, R, 0.9, start=0.5),
        "start has shape (); wanted a state number, or one chan",
    ),
    "negative start": (
        lambda: MDP(P, R, 0.9, start=[1.5, -0.5]),
        "the chance to start in state 1 is -0.5; wanted numbers ≥ 0",
    ),
    "NaN start": (
        lambda: MDP(P, R, 0.9, start=[NAN, 1.0]),
        "the chance to start in state 0 is nan; wanted numbers ≥ 0",
    ),
    "start of weights": (
        lambda: MDP(P, R, 0.9, start=[2, 1]),
        "the chances to start sum to 3, not 1; type start / start.sum()",
    ),
    "a late start": (
        lambda: MDP(P, R, start=[0.5, 0.0, 0.5, 0.0], horizon=2),
        "an episode would start after time 0; wanted one chance a state, for time 0",
    ),
    "start where it ends": (
        lambda: MDP(P, R, 0.9, start=[0.5, 0.5], terminal=1),
        "state 1 is terminal, and an episode would start there; pass another start=…",
    ),
    "default start where it ends": (
        lambda: MDP(P, R, 0.9, terminal=0),
        "state 0 is terminal, and an episode would start there; pass another start=…",
    ),
    "all terminal": (lambda: MDP(P, R, 0.9, terminal=(0, 1)), "all states are terminal; wanted one that is not"),
    "all terminal, by booleans": (lambda: MDP(P, R, 0.9, terminal=[True, True]), "all states are terminal; wanted one"),
    "terminal state that is missing": (
        lambda: MDP(P, R, 0.9, terminal=[1, 2]),
        "terminal names state 2; wanted a state number, 0 … 1",
    ),
    "negative terminal state": (
        lambda: MDP(P, R, 0.9, terminal=-1),
        "terminal names state -1; wanted a state number, 0",
    ),
    "terminal fraction": (
        lambda: MDP(P, R, 0.9, terminal=0.5),
        "terminal is 0.5; wanted state numbers, or one boolean a state (2)",
    ),
    "terminal in words": (
        lambda: MDP(P, R, 0.9, terminal="1"),
        "terminal is '1'; wanted state numbers, or one boolean a",
    ),
    "ragged terminal": (
        lambda: MDP(P, R, 0.9, terminal=[[0], [0, 1]]),
        "terminal is [[0], [0, 1]]; wanted state numbers",
    ),
    "booleans for other states": (
        lambda: MDP(P, R, 0.9, terminal=[True, False, False]),
        "terminal is [True, False, False]; wanted state numbers, or one boolean a state (2)",
    ),
    "no time": (lambda: MDP(P, R, horizon=0), "horizon is 0; wanted a whole number ≥ 1"),
    "no length": (lambda: MDP(P, R, 0.9, length=0), "length is 0; wanted a whole number ≥ 1"),
    "two ends": (
        lambda: MDP(P, R, horizon=3, length=5),
        "length is 5, but horizon 3 already ends an episode; leave one out",
    ),
    "an endless episode": (
        lambda: MDP(P, R, 1.0 - 1e-10).rollout(jax.random.key(0), jnp.zeros((2, 3))),
        "an episode may last 138,155,094,142 steps; pass length=… (at most 16,777,216)",
    ),
    "an episode of unknown length": (
        lambda: jax.jit(lambda g: MDP(P, R, g).rollout(jax.random.key(0), jnp.zeros((2, 3))))(0.9),
        "the length of an episode is unknown, since discount is traced; pass length=… (steps)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_clear_line(name):
    make, message = CASES[name]
    with pytest.raises(InputError, match="^" + re.escape(message)) as found:
        make()
    assert len(str(found.value).splitlines()) == 1
    assert len(str(found.value)) < 200


@pytest.mark.parametrize("kind", [float, np.float32, np.int8, bool])
def test_tables_may_be_any_kind_of_real_number(kind):
    problem = MDP(np.eye(2)[[[0, 1], [1, 0]]].astype(kind), np.eye(2).astype(kind), 0.9)
    wanted = np.float32 if kind is np.float32 else np.float64
    assert {x.dtype for x in (problem.transitions, problem.rewards, problem.start)} == {np.dtype(wanted)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_may_miss_one_by_what_rounding_costs(dtype):
    weight = np.random.default_rng(0).random((50, 2, 50)).astype(dtype)
    MDP(weight / weight.sum(-1, keepdims=True), np.zeros((50, 2)), 0.9)
    with pytest.raises(InputError, match="^the chances after action 0 in state 0 sum to 1"):
        MDP(weight / weight.sum(-1, keepdims=True) * dtype(1.0001), np.zeros((50, 2)), 0.9)


@pytest.mark.parametrize("horizon", [None, 2])
def test_traced_tables_are_taken_as_they_are(horizon):
    """All of an MDP under jit, with rewards of all three kinds; shapes are still checked."""
    p = jnp.full((2 * (horizon or 1), 3), 1.0 / 3.0)

    def value(transitions, rewards, discount, start):
        return MDP(transitions, rewards, discount, start, (1,), horizon, None).expected_return(p)

    rng = np.random.default_rng(0)
    transitions = np.eye(2)[rng.integers(0, 2, (2, 3))]
    for rewards, start in ((rng.random((2, 3)), np.array([1.0, 0.0])), (rng.random((2, 3, 2)), 0)):
        typed = value(transitions, rewards, 0.9, start)
        assert jax.jit(value)(transitions, rewards, 0.9, start) == pytest.approx(float(typed), rel=1e-14)
        assert jax.jit(value, static_argnums=3)(transitions, rewards, 0.9, 0) == pytest.approx(float(typed), rel=1e-14)
        partly = jax.jit(lambda discount, r=rewards, s=start: value(transitions, r, discount, s))
        assert partly(0.9) == pytest.approx(float(typed), rel=1e-14)
    with pytest.raises(InputError, match="^rewards have shape \\(3,\\)"):
        jax.jit(value)(transitions, np.zeros(3), 0.9, 0)
