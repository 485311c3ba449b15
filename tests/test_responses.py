"""Estimators on responses of several tokens: what the listing of all responses gives, and what samples tend to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import (
    Exact,
    Sampled,
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    SequenceMeanTokenSumNorm,
    TokenMean,
    TokenTree,
)
from softmaxdyn.advantages import GRPO, OPO, REINFORCE, RLOO, OptimalBaseline, ReMax, ValueBaseline
from softmaxdyn.estimators import best_baseline
from softmaxdyn.policy import softmax
from softmaxdyn.rewards import IncorrectReward, MajorityReward, TrueReward
from softmaxdyn.tokens import gradient, plain_push
from tests.compiled import compiled
from tests.worlds import BEFORE, even, worlds

TREE = TokenTree([even, lambda y: 1.0 - even(y)], vocabulary=3, depth=3, end=True, weights=[0.25, 0.75])
LOGITS = jnp.asarray(np.random.default_rng(4).standard_normal(TREE.shape))
POLICY = jax.jit(softmax)(LOGITS)
SUM = SequenceMeanTokenSum()
BATCHES, GROUPS, SIZE = 32, 64, 64


@compiled
def push_of(estimator, key):
    tokens = estimator(key, TREE, POLICY)
    return gradient(tokens, plain_push(tokens, TREE.shape), POLICY)


def slope(value):
    """The gradient of `value`(probabilities) at LOGITS."""
    return np.asarray(jax.jit(jax.grad(lambda z: value(jax.nn.softmax(z))))(LOGITS))


@pytest.mark.parametrize("advantage", [None, REINFORCE(), RLOO(), ReMax(), ValueBaseline(), OptimalBaseline()], ids=str)
def test_an_unbiased_estimator_over_all_responses_is_the_gradient_of_the_return(advantage):
    np.testing.assert_allclose(push_of(Exact(advantage), None), slope(TREE.expected_return), rtol=0, atol=1e-14)


def test_the_token_mean_is_the_gradient_over_the_mean_length():
    length = float(TREE.measures(POLICY)["mean_length"])
    got = push_of(Exact(RLOO(), aggregation=TokenMean()), None)
    np.testing.assert_allclose(got, slope(TREE.expected_return) / length, rtol=0, atol=1e-14)


def test_the_mean_within_a_response_is_the_gradient_of_a_return_over_its_length():
    """With the lengths held: Σ_y P(y) R(y)/|y| for the score, where R − b would be centred otherwise."""
    listing = TREE.listing(POLICY.prob)
    length = listing.episode.taken.sum(-1)
    share = listing.weight * listing.episode.reward.sum(-1) / length

    def value(probs):
        log_prob = jnp.log(probs)[listing.episode.state, listing.episode.action]
        return jnp.sum(share * jnp.sum(jnp.where(listing.episode.taken, log_prob, 0.0), -1))

    got = push_of(Exact(REINFORCE(), aggregation=SequenceMeanTokenMean()), None)
    np.testing.assert_allclose(got, slope(value), rtol=0, atol=1e-14)
    normed = push_of(Exact(REINFORCE(), aggregation=SequenceMeanTokenSumNorm()), None)
    np.testing.assert_allclose(3.0 * normed, push_of(Exact(REINFORCE()), None), rtol=0, atol=1e-14)


def test_the_optimal_baseline_has_the_least_variance():
    """Of Σ ‖score‖² (R − b)² over the responses to each prompt, minimised by least squares."""
    listing = TREE.listing(POLICY.prob)
    p = np.asarray(POLICY.prob)
    state, action, taken = (
        np.asarray(x) for x in (listing.episode.state, listing.episode.action, listing.episode.taken)
    )
    square = np.where(taken, (1.0 - 2.0 * p + (p**2).sum(-1, keepdims=True))[state, action], 0.0).sum(-1)
    reward, weight = np.asarray(listing.episode.reward).sum(-1), np.asarray(listing.weight)
    best = best_baseline(TREE, POLICY, TREE.action_values(POLICY.prob))
    for prompt in (0, 1):
        mine = state[:, 0] == prompt
        wanted = np.sum((weight * square * reward)[mine]) / np.sum((weight * square)[mine])
        np.testing.assert_allclose(best[prompt], wanted, rtol=1e-12)


def test_the_greedy_baseline_is_the_reward_of_the_greedy_response():
    for prompt in (0, 1):
        state, response = prompt, []
        for _ in range(3):
            token = int(np.argmax(POLICY.prob[state]))
            if token == 2:
                break
            response.append(token)
            state = 2 + 2 * state + token
        wanted = even(response) if prompt == 0 else 1.0 - even(response)
        tokens = jax.jit(Sampled(16, 2, ReMax()).__call__)(jax.random.key(0), TREE, POLICY)
        first = (np.asarray(tokens.state) == prompt) & (np.asarray(tokens.position) == 0)
        assert first.any()
        np.testing.assert_allclose((tokens.reward - tokens.advantage)[first], wanted, rtol=1e-14)


CASES = [
    (GRPO(), SequenceMeanTokenMean(), TrueReward()),
    (GRPO(), TokenMean(), TrueReward()),
    (OPO(), SUM, TrueReward()),
    (OptimalBaseline(), SUM, TrueReward()),
    (RLOO(), SUM, IncorrectReward()),
    (RLOO(), TokenMean(), MajorityReward()),
]


@pytest.mark.parametrize(("advantage", "aggregation", "reward"), CASES, ids=lambda part: type(part).__name__)
def test_many_samples_tend_to_the_push_over_all_responses(advantage, aggregation, reward):
    estimator = Sampled(GROUPS, SIZE, advantage, reward, aggregation=aggregation)
    steps = np.array([push_of(estimator, key) for key in jax.random.split(jax.random.key(1), BATCHES)])
    exact = np.asarray(push_of(estimator.population(), None))
    error = steps.std(0, ddof=1) / np.sqrt(BATCHES)
    bias = np.abs(exact).max() * 4.0 / SIZE  # of a group's own mean and spread in place of the population's
    np.testing.assert_array_less(np.abs(steps.mean(0) - exact), 4.0 * error + bias)


AGGREGATIONS = [
    SUM,
    TokenMean(),
    SequenceMeanTokenMean(),
    SequenceMeanTokenSumNorm(),
    SequenceMeanTokenSumNorm(length=2.0),
]


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=str)
def test_counting_visits_agrees_with_listing_episodes_of_one_length(aggregation):
    """An MDP does not list its episodes; where all last two steps, each aggregation must come to the same."""
    problem = TokenTree(lambda y: y[0] * y[1] / 4.0, vocabulary=3, depth=2)
    policy = softmax(jnp.asarray(np.random.default_rng(6).standard_normal(problem.shape)))
    steps = []
    for advantage in (None, REINFORCE()):
        tokens = Exact(advantage, aggregation=aggregation)(None, problem, policy)
        steps.append(gradient(tokens, plain_push(tokens, problem.shape), policy))
    np.testing.assert_allclose(*steps, rtol=0, atol=1e-15)


@pytest.mark.parametrize("world", ["bandit", "tree", "discounted", "time-limited"])
def test_what_is_to_go_is_what_is_ahead_and_to_go_from_there(world):
    problem, values = worlds()[world], jnp.asarray(np.random.default_rng(5).standard_normal(6))
    to_go = problem.to_go(BEFORE.prob, values)
    wanted = problem.ahead(values + jnp.sum(BEFORE.prob * to_go, -1))
    np.testing.assert_allclose(to_go, wanted, rtol=1e-13, atol=1e-14)
