"""The expected change of entropy of a sampled step: against the enumeration of all samples, and against many."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Bandit, InputError
from softmaxdyn.advantages import (
    GRPO,
    QAE,
    REINFORCE,
    RLOO,
    Baseline,
    DrGRPO,
    OptimalBaseline,
    PassK,
    ReinforcePP,
    ReMax,
    ValueBaseline,
    WReinforce,
    recorded,
)
from softmaxdyn.change import decompose
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.noise import compositions, entropy_hessian, expected_entropy_change
from softmaxdyn.policy import entropy, softmax
from softmaxdyn.rewards import RandomReward
from softmaxdyn.theory import second_order
from tests.two_steps import TwoSteps

ESTIMATORS = [
    REINFORCE(),
    Baseline(0.4),
    ValueBaseline(),
    OptimalBaseline(),
    ReMax(),
    WReinforce(),
    RLOO(),
    GRPO(),
    DrGRPO(),
    QAE(),
    PassK(),
]
name = lambda estimator: type(estimator).__name__  # noqa: E731
compiled = jax.jit(lambda advantage, outcomes: advantage(outcomes))
each = pytest.mark.parametrize("advantage", ESTIMATORS, ids=name)


def all_groups(advantage, problem, logits, n):
    """(probability, state, y [A]) of every group of n actions: y = (1/n) Σ_i A_i (e_{a_i} − π)."""
    prob = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    draw = np.asarray(problem.weights) / np.sum(problem.weights)
    for state, rewards in enumerate(np.asarray(problem.rewards)):
        value = prob[state] @ rewards
        size = 1.0 - 2.0 * prob[state] + prob[state] @ prob[state]
        best = (prob[state] * size) @ rewards / (prob[state] @ size)
        drawn = np.array(list(itertools.product(range(prob.shape[1]), repeat=n)))
        episodes = drawn.size
        fields = {"greedy": np.full(episodes, rewards[prob[state].argmax()]), "best_baseline": np.full(episodes, best)}
        groups = np.repeat(np.arange(len(drawn)), n)
        outcomes = recorded(rewards[drawn].ravel(), group=groups, values=np.full((episodes, 1), value), **fields)
        weight = np.asarray(compiled(advantage, outcomes)).reshape(drawn.shape)
        y = np.einsum("gi,gia->ga", weight, np.eye(prob.shape[1])[drawn] - prob[state]) / n
        yield from zip(draw[state] * prob[state][drawn].prod(1), itertools.repeat(state), y)


@each
@pytest.mark.parametrize(
    "rewards", [[[1.0, 0, 0], [1, 1, 0]], [[1.0, 0.5, 0], [0.2, 0.7, -0.3]]], ids=["binary", "real"]
)
def test_the_moments_are_those_of_all_samples(advantage, rewards):
    logits, eta, n = np.array([[0.3, -0.7, 0.9], [1.0, 0.2, 0.1]]), 0.7, 3
    problem = Bandit(rewards, [0.5, 1.5])
    expected = expected_entropy_change(problem, Sampled(2, n, advantage), logits, eta)
    groups = list(all_groups(advantage, problem, logits, n))
    hessian = np.asarray(entropy_hessian(softmax(jnp.asarray(logits))))
    for state in (0, 1):
        chance = np.array([p for p, s, y in groups])
        moves = np.array([eta * 2.0 / 2 * y * (s == state) for p, s, y in groups])  # Σ w = 2, two groups
        mean = 2 * chance @ moves
        covariance = 2 * ((chance * moves.T) @ moves - np.outer(chance @ moves, chance @ moves))
        np.testing.assert_allclose(expected.step[state], mean, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(expected.drift[state], 0.5 * mean @ hessian[state] @ mean, rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(
            expected.noise[state], 0.5 * np.sum(hessian[state] * covariance), rtol=1e-11, atol=1e-15
        )


@pytest.mark.parametrize("advantage", [Baseline(0.4), RLOO(), GRPO()], ids=name)
def test_the_error_of_the_expected_change_is_of_third_order(advantage):
    logits, problem = np.array([[0.3, -0.7, 0.9]]), Bandit([1.0, 0.0, 0.0])
    chance, _, y = (np.array(x) for x in zip(*all_groups(advantage, problem, logits, 3), strict=True))

    def error(eta):
        expected = expected_entropy_change(problem, Sampled(1, 3, advantage), logits, eta)
        change = decompose(softmax(jnp.asarray(np.broadcast_to(logits, y.shape))), jnp.asarray(eta * y)).entropy_change
        return abs(chance @ np.asarray(change) - float((expected.first + expected.drift + expected.noise)[0]))

    assert np.log2(error(2e-3) / error(1e-3)) == pytest.approx(3.0, abs=0.02)


MANY = {"problem": Bandit([1.0, 0.0, 0.0, 1.0]), "logits": np.array([[0.4, -0.3, 1.0, -1.0]])}
GROUPS, SIZE, STEPS, ETA = 2, 4, 20_000, 0.02


@pytest.fixture(scope="module")
def batch():
    """The episodes of many sampled steps, one after the other."""
    keys = jax.random.split(jax.random.key(11))
    policy = softmax(jnp.asarray(MANY["logits"]))
    return jax.jit(Sampled(GROUPS * STEPS, SIZE).play)(*keys, MANY["problem"], policy, policy)


@jax.jit
def steps_of(advantage, batch):
    """The step δ of every batch, [B, 1, A]."""
    policy = softmax(jnp.asarray(MANY["logits"]))
    weight = Sampled(1, 2, advantage).advantages(batch, MANY["problem"], policy) * batch.weight[:, None] * STEPS
    table = jnp.einsum("bi,bia->ba", weight.reshape(STEPS, -1), jax.nn.one_hot(batch.action, 4).reshape(STEPS, -1, 4))
    return ETA * (table - policy.prob * table.sum(1, keepdims=True))[:, None]


changes = jax.jit(jax.vmap(lambda step: decompose(softmax(jnp.asarray(MANY["logits"])), step)))


@each
def test_many_sampled_steps_change_the_entropy_as_predicted_and_the_noise_is_resolved(advantage, batch):
    change = changes(steps_of(advantage, batch))
    total, remainder = (np.asarray(x)[:, 0] for x in (change.entropy_change, change.remainder))
    expected = expected_entropy_change(MANY["problem"], Sampled(GROUPS, SIZE, advantage), MANY["logits"], ETA)
    second = float((expected.drift + expected.noise)[0])
    errors = [x.std(ddof=1) / np.sqrt(STEPS) for x in (total, remainder)]
    assert abs(total.mean() - float(expected.first[0]) - second) < 4.0 * errors[0]
    assert abs(remainder.mean() - second) < 4.0 * errors[1]
    assert abs(float(expected.noise[0])) > 20.0 * errors[1]


def test_what_separates_reward_only_methods_is_the_noise():
    both = [expected_entropy_change(**MANY, estimator=Sampled(2, 8, a), step_size=0.1) for a in (REINFORCE(), RLOO())]
    np.testing.assert_allclose(both[0].step, both[1].step, rtol=1e-12)
    np.testing.assert_allclose(both[0].drift, both[1].drift, rtol=1e-12)
    assert abs(both[0].noise[0] / both[1].noise[0] - 1.0) > 0.1


def test_the_noise_is_of_size_step_size_squared_over_samples():
    few, more = (
        expected_entropy_change(**MANY, estimator=Sampled(groups, 4), step_size=eta).noise[0]
        for groups, eta in [(1, 0.1), (3, 0.2)]
    )
    assert float(more) == pytest.approx(4.0 / 3.0 * float(few), rel=1e-12)


@pytest.mark.parametrize("advantage", [Baseline(0.4), RLOO(), ReMax()], ids=name)
def test_the_expected_step_of_an_unbiased_estimator_is_the_exact_one(advantage):
    problem, logits = Bandit([[1.0, 0.0, 0.3], [0.0, 0.5, 1.0]]), np.array([[0.4, -0.3, 1.0], [0.1, 0.0, -np.inf]])
    policy = softmax(jnp.asarray(logits))
    tokens = Exact()(None, problem, policy)
    wanted = np.zeros((2, 3))
    np.add.at(
        wanted, (np.asarray(tokens.state), np.asarray(tokens.action)), np.asarray(tokens.weight * tokens.advantage)
    )
    expected = expected_entropy_change(problem, Sampled(2, 4, advantage), logits, 1.0)
    np.testing.assert_allclose(expected.step, wanted, rtol=1e-12, atol=1e-16)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_the_hessian_is_that_of_the_entropy(seed):
    rng = np.random.default_rng(seed)
    logits, v = rng.normal(size=(2, 4))
    hessian = np.asarray(entropy_hessian(softmax(jnp.asarray(logits))))
    np.testing.assert_allclose(hessian, jax.hessian(entropy)(jnp.asarray(logits)), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(
        v @ hessian @ v, second_order(jnp.asarray(logits), jnp.asarray(v)), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize(("n", "parts"), [(4, 1), (1, 3), (5, 3), (3, 4)])
def test_compositions_are_all_and_once(n, parts):
    wanted = {row for row in itertools.product(range(n + 1), repeat=parts) if sum(row) == n}
    found = [tuple(map(int, row)) for row in compositions(n, parts)]
    assert len(found) == len(wanted)
    assert set(found) == wanted


@pytest.mark.parametrize(
    ("problem", "estimator", "message"),
    [
        (TwoSteps(), Sampled(), "the noise is enumerated for a Bandit only"),
        (Bandit([1.0, 0.0]), Exact(), "wanted Sampled(…)"),
        (Bandit([1.0, 0.0]), Sampled(advantage=ReinforcePP()), "ReinforcePP depends on the whole batch"),
        (Bandit([1.0, 0.0]), Sampled(reward=RandomReward()), "RandomReward is not a function of the action"),
        (Bandit(np.arange(20.0)), Sampled(2, 16), "20 different rewards in groups of 16 are 6.5e+10 episodes"),
    ],
)
def test_bad_input_is_one_clear_line(problem, estimator, message):
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        expected_entropy_change(problem, estimator, np.zeros(problem.shape), 0.1)
    assert "\n" not in str(raised.value)
