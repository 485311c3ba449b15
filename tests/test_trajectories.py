"""T19 and T20 by a second road: every response of a small tree, one by one, in plain Python and in 40 digits."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Algorithm, NaturalPG, Sampled, TokenTree, VanillaPG, simulate
from softmaxdyn.advantages import ValueBaseline
from softmaxdyn.change import decompose
from softmaxdyn.policy import centred, softmax
from softmaxdyn.tokens import covariance_score, token_mean
from softmaxdyn.trajectories import covariances, split, trajectory_entropy
from tests.compiled import compiled
from tests.two_steps import TwoSteps

A, DEPTH = 3, 3
ENDS = pytest.mark.parametrize("end", [False, True])


def paths(end):
    """(tokens, states of the prefixes) of every response."""
    grow = A - 1 if end else A
    prefixes = [p for n in range(DEPTH) for p in itertools.product(range(grow), repeat=n)]
    row = {prefix: number for number, prefix in enumerate(prefixes)}
    for prefix in prefixes:
        for token in range(A):
            if len(prefix) == DEPTH - 1 or (end and token == A - 1):
                response = (*prefix, token)
                yield response, [row[response[:n]] for n in range(len(response))]


def reward_of(response):
    return sum((i + 1) * t * t for i, t in enumerate(response)) % 5 / 4.0


@cache
def tree(end):
    return TokenTree(reward_of, vocabulary=A, depth=DEPTH, end=end)


def drawn(seed, end, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal(tree(end).shape), rng.standard_normal(tree(end).shape)


def by_hand(logits, end):
    """(probability, log-probability, states, tokens, reward) of every response, by mpmath."""
    with mp.workdps(40):
        rows = [[mp.mpf(float(x)) for x in row] for row in logits]
        log_prob = [[x - mp.log(mp.fsum(mp.exp(y) for y in row)) for x in row] for row in rows]
        found = []
        for response, states in paths(end):
            total = mp.fsum(log_prob[s][t] for s, t in zip(states, response, strict=True))
            paid = reward_of(response[:-1] if end and response[-1] == A - 1 else response)
            found.append((mp.exp(total), total, states, response, mp.mpf(paid)))
        return found, log_prob


def entropy_by_hand(logits, end):
    return -mp.fsum(p * log_p for p, log_p, *_ in by_hand(logits, end)[0])


def moment(found, f):
    return mp.fsum(row[0] * f(*row[1:]) for row in found)


def covariance(found, f, g):
    mf, mg = moment(found, f), moment(found, g)
    return moment(found, lambda *row: (f(*row) - mf) * (g(*row) - mg))


@compiled
def parts(problem, logits, delta):
    policy = softmax(logits)
    return split(problem, policy, delta, decompose(policy, delta).entropy_change), trajectory_entropy(problem, policy)


@compiled
def covariances_of(problem, logits):
    return covariances(problem, softmax(logits))


@ENDS
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([3.0, 0.3, 1e-3, 1e-6]))
def test_the_split_is_exact_at_every_step_size(end, seed, size):
    logits, direction = drawn(seed, end)
    delta = size * direction
    now, entropy = parts(tree(end), logits, delta)
    with mp.workdps(40):
        rows = [
            [mp.mpf(float(x)) + mp.mpf(float(d)) for x, d in zip(*pair, strict=True)]
            for pair in zip(logits, delta, strict=True)
        ]
        log_after = [[x - mp.log(mp.fsum(mp.exp(y) for y in row)) for x in row] for row in rows]
        found, log_prob = by_hand(logits, end)
        after = -mp.fsum(
            mp.exp(total) * total
            for total in (mp.fsum(log_after[s][t] for s, t in zip(row[2], row[3], strict=True)) for row in found)
        )
        before = entropy_by_hand(logits, end)
        visits = [mp.fsum(row[0] for row in found if s in row[2]) for s in range(len(logits))]
        H = lambda table: [-mp.fsum(mp.exp(x) * x for x in row) for row in table]  # noqa: E731
        local = mp.fsum(d * (b - a) for d, a, b in zip(visits, H(log_prob), H(log_after), strict=True))
        terms = float(mp.fsum(d * abs(b - a) for d, a, b in zip(visits, H(log_prob), H(log_after), strict=True)))
        wanted = [float(before), float(after - before), float(local), float(after - before - local)]
    got = [entropy, now.trajectory_change, now.local_change, now.visitation_change]
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-14)
    # sums of S terms of either sign: 1e-12 of the size of the terms, which shrink with the step
    np.testing.assert_allclose(got[1:], wanted[1:], rtol=1e-12, atol=1e-12 * (terms + size))


@ENDS
@pytest.mark.parametrize("seed", [0, 1])
def test_the_prediction_of_the_visitation_part_is_its_first_order(end, seed):
    logits, direction = drawn(seed, end)
    errors = []
    for size in (1e-2, 5e-3):
        now, _ = parts(tree(end), logits, size * direction)
        errors.append(abs(float(now.visitation_change - now.visitation_prediction)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


@ENDS
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_the_covariances_are_those_of_all_responses(end, seed):
    logits, _ = drawn(seed, end)
    found, log_prob = by_hand(logits, end)
    with mp.workdps(40):
        value = {}  # Q(s, a) by conditioning on the prefix
        for s in range(len(logits)):
            for a in range(A):
                through = [row for row in found if s in row[2] and row[3][row[2].index(s)] == a]
                value[s, a] = mp.fsum(r[0] * r[4] for r in through) / mp.fsum(r[0] for r in through)
        mean = [mp.fsum(mp.exp(log_prob[s][a]) * value[s, a] for a in range(A)) for s in range(len(logits))]
        tokens = [
            (p, log_prob[s][t], r - mean[0], value[s, t] - mean[s])
            for p, _, ss, ts, r in found
            for s, t in zip(ss, ts, strict=True)
        ]
        count = mp.fsum(t[0] for t in tokens)
        token_moment = lambda f: mp.fsum(t[0] * f(t) for t in tokens) / count  # noqa: E731
        ml, ma = token_moment(lambda t: t[1]), token_moment(lambda t: t[2])
        wanted = [
            mp.fsum(p * log_p * gain for p, log_p, _, gain in tokens),
            covariance(found, lambda total, *_: total, lambda *row: row[3]),
            covariance(found, lambda total, s, *_: total / len(s), lambda *row: row[3]),
            token_moment(lambda t: (t[1] - ml) * (t[2] - ma)),
        ]
    np.testing.assert_allclose(covariances_of(tree(end), logits), np.array(wanted, float), rtol=1e-12, atol=1e-13)


@ENDS
def test_natural_pg_moves_the_trajectory_entropy_by_the_sequence_covariance(end):
    logits, _ = drawn(3, end)
    gain = centred(softmax(jnp.asarray(logits)), tree(end).action_values(softmax(jnp.asarray(logits)).prob))
    ratios = []
    for size in (1e-4, 1e-5):
        now, _ = parts(tree(end), logits, size * gain)
        ratios.append(float(now.trajectory_change / -size / covariances_of(tree(end), logits).sequence - 1.0))
    assert abs(ratios[1]) < 1e-4
    assert ratios[0] / ratios[1] == pytest.approx(10.0, rel=0.05)


@ENDS
def test_natural_pg_moves_the_mean_token_entropy_by_the_token_covariance(end):
    logits, _ = drawn(3, end)

    @compiled
    def token_entropy(z):
        policy = softmax(z)
        return trajectory_entropy(tree(end), policy) / jnp.sum(tree(end).visits(policy.prob))

    policy = softmax(jnp.asarray(logits))
    gain = centred(policy, tree(end).action_values(policy.prob))
    _, slope = jax.jvp(token_entropy, (jnp.asarray(logits),), (gain,))
    np.testing.assert_allclose(-slope, covariances_of(tree(end), logits).token, rtol=1e-12, atol=1e-14)


@ENDS
def test_a_sampled_batch_has_the_token_covariance(end):
    logits, _ = drawn(5, end)
    policy = softmax(jnp.asarray(logits))

    @jax.jit
    def batch(key):
        tokens = Sampled(1, 4096, ValueBaseline())(key, tree(end), policy)
        start = jnp.sum(policy.prob[0] * tree(end).action_values(policy.prob)[0])
        return token_mean(tokens, covariance_score(tokens._replace(advantage=tokens.reward - start)))

    got = np.array([batch(key) for key in jax.random.split(jax.random.key(0), 40)])
    error = got.std(ddof=1) / np.sqrt(40)
    wanted = float(covariances_of(tree(end), logits).token)
    assert abs(got.mean() - wanted) < 4.0 * error + abs(wanted) * 2e-3  # a batch of N is short by a factor of 1 − 1/N


def test_the_trace_holds_the_split_and_the_covariances_of_every_step():
    problem = tree(True)
    logits, _ = drawn(2, True)
    trace = simulate(problem, Algorithm(VanillaPG(0.5)), num_steps=6, logits=logits)
    change = np.diff(trace.trajectory_entropy)
    np.testing.assert_allclose(trace.trajectory_change[:-1], change, rtol=0, atol=1e-14)
    np.testing.assert_allclose(trace.local_change, np.sum(trace.visits * trace.entropy_change, -1), rtol=1e-13)
    np.testing.assert_allclose(trace.trajectory_change, trace.local_change + trace.visitation_change, rtol=1e-13)
    np.testing.assert_allclose(trace.measures["response_entropy"], trace.trajectory_entropy, rtol=1e-13)
    row = covariances_of(problem, logits)
    first = [trace.action_covariance, trace.sequence_covariance, trace.normalised_covariance, trace.token_covariance]
    np.testing.assert_allclose([x[0] for x in first], row, rtol=1e-12)


def test_the_visitation_part_can_be_larger_than_the_local_one_and_of_the_other_sign():
    """Rewarded: not to end at once. The choice at the first token narrows, but it opens the wide rest of the tree."""
    problem = TokenTree(lambda response: float(len(response) > 0), vocabulary=5, depth=3, end=True)
    logits = np.zeros(problem.shape)
    trace = simulate(problem, Algorithm(NaturalPG(0.5)), num_steps=1, logits=logits)
    assert trace.local_change[0] < 0.0 < trace.visitation_change[0]
    assert trace.visitation_change[0] > 2.0 * abs(trace.local_change[0])
    assert trace.trajectory_change[0] > 0.0


def test_a_bandit_has_no_visitation_part_and_one_covariance():
    from softmaxdyn import Bandit

    problem = Bandit([[1.0, 0.0, 0.3], [0.2, 0.9, 0.0]], [0.25, 0.75])
    trace = simulate(problem, Algorithm(NaturalPG(0.5)), num_steps=3, logits=np.array([[1.0, 0, 0], [0, 2.0, 1.0]]))
    assert not trace.visitation_change.any()
    assert not trace.visitation_prediction.any()
    np.testing.assert_allclose(trace.local_change, trace.trajectory_change, rtol=1e-15)
    np.testing.assert_allclose(trace.sequence_covariance, trace.action_covariance, rtol=1e-14)
    np.testing.assert_allclose(trace.normalised_covariance, trace.action_covariance, rtol=1e-14)
    np.testing.assert_allclose(trace.token_covariance, trace.action_covariance, rtol=1e-14)


def test_where_nothing_is_known_of_lengths_the_normalised_covariance_is_nan():
    trace = simulate(TwoSteps(), Algorithm(VanillaPG(0.1)), num_steps=1)
    assert np.isnan(trace.normalised_covariance).all()
    assert np.isfinite(trace.sequence_covariance).all()
