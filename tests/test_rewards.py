"""Reward sources: the expected face against the drawn one, the directions they push in, and PRIME's second table."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from softmaxdyn import Algorithm, Bandit, Episode, InputError, VanillaPG, simulate
from softmaxdyn.advantages import GRPO, PRIME, REINFORCE, RLOO
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.policy import softmax
from softmaxdyn.rewards import (
    EntropyReward,
    FormatReward,
    ImplicitReward,
    IncorrectReward,
    LogProbReward,
    MajorityReward,
    RandomReward,
    SelfCertainty,
    TrueReward,
    at_the_end,
)
from softmaxdyn.tokens import gradient, plain_push, under
from tests.two_steps import TwoSteps

PROBLEM = Bandit([[1.0, 0.0, 0.25, 0.0], [0.0, 1.0, 1.0, 0.5]], [0.7, 0.3])
LOGITS = np.array([[0.3, -0.4, 1.1, 0.0], [0.9, 0.2, -0.3, -np.inf]])
SOURCES = [
    TrueReward(),
    IncorrectReward(),
    RandomReward(0.3),
    FormatReward([1, 0, 0, 1]),
    FormatReward([[1, 0, 1, 0], [0, 1, 0, 0]]),
    MajorityReward(),
    LogProbReward(),
    SelfCertainty(),
    EntropyReward(),
]
each = pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)


def draw(source, problem, logits, count=20_000):
    """(episodes, what they were paid) of `count` draws."""

    @jax.jit
    def many(keys):
        policy = softmax(jnp.asarray(logits))

        def one(key):
            play, pay = jax.random.split(key)
            episode = problem.rollout(play, policy.logits)
            return episode, source.drawn(pay, problem, policy, episode)

        return jax.vmap(one)(keys)

    return jax.tree.map(np.asarray, many(jax.random.split(jax.random.key(7), count)))


@each
def test_the_mean_drawn_reward_of_a_pair_is_the_expected_one(source):
    episode, paid = draw(source, PROBLEM, LOGITS)
    wanted = np.asarray(source.expected(PROBLEM, softmax(jnp.asarray(LOGITS))))
    for s, a in np.argwhere(-np.inf < LOGITS):
        here = paid[(episode.state == s) & (episode.action == a)]
        error = np.sqrt(0.3 * 0.7 / len(here)) if isinstance(source, RandomReward) else 0.0
        assert len(here) > 500
        np.testing.assert_allclose(here.mean(), wanted[s, a], rtol=1e-12, atol=4.0 * error)
        assert set(np.unique(here)) <= {0.0, 1.0} if isinstance(source, RandomReward) else np.ptp(here) == 0.0


LONGER = [TrueReward(), IncorrectReward(), RandomReward(0.3), FormatReward([1, 0]), MajorityReward(), EntropyReward()]


@pytest.mark.parametrize("source", LONGER, ids=lambda source: type(source).__name__)
def test_the_mean_drawn_return_of_longer_episodes_is_the_expected_one(source):
    logits = np.array([[0.2, -0.3], [0.5, 0.1]])
    episode, paid = draw(source, TwoSteps(), logits)
    wanted = np.asarray(source.expected(TwoSteps(), softmax(jnp.asarray(logits))))
    for action in (0, 1):
        returns = paid[episode.action[:, 0] == action].sum(1)
        error = returns.std(ddof=1) / np.sqrt(len(returns))
        np.testing.assert_allclose(returns.mean(), wanted[0, action], rtol=1e-12, atol=4.0 * error)
    assert (paid[~episode.taken] == 0.0).all()


@given(hnp.arrays(bool, 5))
def test_the_end_is_the_last_step_taken(taken):
    episode = Episode(jnp.zeros(5, jnp.int32), jnp.zeros(5, jnp.int32), jnp.zeros(5), jnp.asarray(taken))
    wanted = np.zeros(5, bool)
    wanted[np.flatnonzero(taken)[-1:]] = True
    np.testing.assert_array_equal(at_the_end(episode), wanted)


def table(source):
    return np.asarray(source.expected(PROBLEM, softmax(jnp.asarray(LOGITS))))


def test_the_tables_are_what_their_names_say():
    prob = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    entropy = [-(p[p > 0] * np.log(p[p > 0])).sum() for p in prob]
    certainty = [-np.log((p > 0).sum()) - np.log(p[p > 0]).mean() for p in prob]
    unmasked = prob > 0
    np.testing.assert_array_equal(table(MajorityReward()), [[0, 0, 1, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(table(LogProbReward())[unmasked], np.log(prob[unmasked]), rtol=1e-14)
    np.testing.assert_allclose(table(EntropyReward())[unmasked], np.repeat(-np.array(entropy), [4, 3]), rtol=1e-14)
    np.testing.assert_allclose(table(SelfCertainty())[unmasked], np.repeat(certainty, [4, 3]), rtol=1e-13)
    np.testing.assert_array_equal(table(IncorrectReward()), 1.0 - np.asarray(PROBLEM.rewards))
    np.testing.assert_array_equal(table(RandomReward(0.3)), np.full((2, 4), 0.3))
    np.testing.assert_array_equal(table(FormatReward([True, False, False, True])), [[1, 0, 0, 1]] * 2)


@jax.jit
def push(estimator):
    policy = softmax(jnp.asarray(LOGITS))
    tokens = estimator(None, PROBLEM, policy)
    return gradient(tokens, plain_push(tokens, PROBLEM.shape), policy)


def step(source, advantage=None):
    return np.asarray(push(Exact(advantage, source)))


def towards(reward):
    prob = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    return np.array([[0.7], [0.3]]) * prob * (reward - (prob * reward).sum(1, keepdims=True))


def test_a_format_reward_pushes_along_the_set():
    chosen = np.array([1.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(step(FormatReward(chosen)), towards(chosen), rtol=1e-12, atol=1e-16)


def test_an_incorrect_reward_pushes_backwards():
    np.testing.assert_allclose(step(IncorrectReward()), -towards(np.asarray(PROBLEM.rewards)), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(
    "source", [RandomReward(0.3), SelfCertainty(), EntropyReward()], ids=lambda s: type(s).__name__
)
def test_a_reward_that_no_action_changes_pushes_nowhere_under_a_baseline(source):
    assert (step(source) == 0.0).all()
    assert np.abs(step(source, RLOO())).max() < 1e-15


@pytest.mark.parametrize("source", [MajorityReward(), LogProbReward()], ids=lambda s: type(s).__name__)
def test_an_internal_reward_amplifies_the_mode_for_good_or_ill(source):
    bandit = Bandit([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    start = np.array([[0.5, 0.0, -0.5], [0.5, 0.0, -0.5]])
    trace = simulate(bandit, Algorithm(VanillaPG(2.0), Exact(reward=source)), num_steps=3000, logits=start, every=3000)
    prob = np.exp(trace.logits) / np.exp(trace.logits).sum(1, keepdims=True)
    assert (prob[:, 0] > 0.98).all()
    assert trace.final_expected_return == pytest.approx(0.5 * (prob[0, 0] + 1.0 - prob[1, 0]), rel=1e-12)


def test_the_trace_reports_the_true_return_whatever_is_paid():
    algorithm = Algorithm(VanillaPG(0.1), Sampled(4, 4, reward=RandomReward()))
    trace = simulate(PROBLEM, algorithm, num_steps=1, logits=LOGITS, key=jax.random.key(0))
    prob = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    wanted = [0.7, 0.3] @ (prob * np.asarray(PROBLEM.rewards)).sum(1)
    np.testing.assert_allclose(trace.expected_return, wanted, rtol=1e-12)


# PRIME's second table -------------------------------------------------------------------------------------------------


def cross_entropy(phi, reference, tokens, beta):
    """−Σ weight [R log σ(q) + (1 − R) log(1 − σ(q))], q the sum of β (log φ − log π_0) over an episode."""
    gap = jax.nn.log_softmax(phi) - jax.nn.log_softmax(reference)
    q = jax.ops.segment_sum(
        beta * gap[tokens.state, tokens.action] * (tokens.weight > 0), tokens.episode, len(tokens.state)
    )
    first = tokens.position == 0
    r, w = tokens.reward, tokens.weight
    q = q[tokens.episode]
    return -jnp.sum(jnp.where(first, w * (r * jax.nn.log_sigmoid(q) + (1.0 - r) * jax.nn.log_sigmoid(-q)), 0.0))


@pytest.mark.parametrize(
    ("problem", "estimator"),
    [(PROBLEM, Exact()), (PROBLEM, Sampled(8, 4)), (TwoSteps(), Sampled(8, 4))],
    ids=["exact", "sampled", "sampled episodes of two steps"],
)
def test_a_lesson_is_a_gradient_step_on_the_cross_entropy(problem, estimator):
    phi, reference, logits = np.random.default_rng(0).normal(size=(3, *problem.shape))

    @jax.jit
    def lesson(phi, reference, logits):
        tokens = estimator(jax.random.key(1), problem, softmax(logits))
        slope = jax.grad(cross_entropy)(phi, reference, tokens, 0.7)
        return ImplicitReward(0.7, 3.0, phi, reference).next(tokens), slope

    model, slope = lesson(phi, reference, logits)
    np.testing.assert_allclose(model.logits, phi - 3.0 * slope, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(model.reference, reference)


def test_the_second_table_starts_silent_and_learns_to_tell_right_from_wrong():
    bandit, reward = Bandit([1.0, 0.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    model = ImplicitReward(0.5, 10.0).init(jnp.asarray([[0.1, 0.4, -0.2, 0.0, 0.3]]))
    assert (np.asarray(model.table()) == 0.0).all()

    @jax.jit
    def lesson(model):
        policy = softmax(model.reference)
        tokens = under(Exact()(None, bandit, policy), policy)
        return model.next(tokens), cross_entropy(model.logits, model.reference, tokens, 0.5)

    losses = []
    for _ in range(30):
        model, loss = lesson(model)
        losses.append(float(loss))
    assert np.all(np.diff(losses) < 0.0)
    assert ((np.asarray(model.table())[0] > 0.0) == (reward > 0.0)).all()


@pytest.mark.parametrize("estimator", [Exact, Sampled])
def test_prime_runs_with_its_table_trained_online_and_leaves_the_algorithm_of_the_user_alone(estimator):
    model = ImplicitReward(step_size=50.0)
    algorithm = Algorithm(VanillaPG(0.3), estimator(advantage=PRIME(), process=model))
    trace = simulate(PROBLEM, algorithm, num_steps=150, logits=LOGITS, key=jax.random.key(0))
    assert trace.final_expected_return > 0.9
    assert model.logits is None
    again = simulate(PROBLEM, algorithm, num_steps=150, logits=LOGITS, key=jax.random.key(0))
    np.testing.assert_array_equal(again.logits, trace.logits)


def test_the_table_changes_what_prime_does():
    runs = [
        simulate(
            PROBLEM,
            Algorithm(VanillaPG(0.3), Exact(PRIME(), process=ImplicitReward(step_size=rate))),
            num_steps=20,
            logits=LOGITS,
        )
        for rate in (0.0, 500.0)
    ]
    unmasked = np.isfinite(LOGITS)
    assert np.abs(runs[0].logits[unmasked] - runs[1].logits[unmasked]).max() > 1e-3


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomReward(1.5), "probability is 1.5; wanted a finite number in [0, 1]"),
        (lambda: FormatReward([0.5, 1.0]), "actions hold numbers other than 0 and 1"),
        (lambda: FormatReward([[1], [1, 0]]), "actions are ragged or not numbers"),
        (lambda: table(FormatReward([1, 0])), "actions have shape (2,); wanted (2, 4) or (4,)"),
        (lambda: ImplicitReward().table(), "ImplicitReward has no table yet"),
        (lambda: ImplicitReward(coefficient=-1.0), "coefficient is -1.0; wanted a finite number ≥ 0"),
        (lambda: ImplicitReward(step_size=-1.0), "step_size is -1.0; wanted a finite number ≥ 0"),
    ],
)
def test_bad_input_is_one_clear_line(make, message):
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        make()
    assert "\n" not in str(raised.value)


@each
def test_rewards_keep_the_dtype_of_the_policy(source):
    def both(logits):
        policy = softmax(logits)
        episode = PROBLEM.rollout(jax.random.key(0), policy.logits)
        return source.expected(PROBLEM, policy), source.drawn(jax.random.key(1), PROBLEM, policy, episode)

    for dtype in (jnp.float32, jnp.float64):
        assert {x.dtype for x in jax.eval_shape(both, jnp.asarray(LOGITS, dtype))} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("advantage", [REINFORCE(), GRPO()], ids=["REINFORCE", "GRPO"])
def test_a_random_reward_pushes_nowhere_in_expectation(advantage):
    assert np.abs(step(RandomReward(), advantage)).max() < 1e-15
