"""The bandit and its two gradients: against autodiff, the Fisher matrix, closed forms, flows and proven rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from softmaxdyn import Algorithm, Bandit, Exact, NaturalPG, VanillaPG, simulate
from softmaxdyn.policy import entropy, probs, softmax
from softmaxdyn.simulation import step
from softmaxdyn.theory import natural_path
from softmaxdyn.tokens import gradient, plain_push
from tests.compiled import compiled
from tests.oracles import moves

REWARDS = np.array([[0.3, 1.0, -0.5], [0.0, 0.2, 0.9]])
WEIGHTS = np.array([0.25, 0.75])
LOGITS = np.array([[0.5, -1.0, 0.2], [2.0, 0.0, -0.3]])
BANDIT = Bandit(REWARDS, WEIGHTS)
HARD = np.array([1.0, 0.9, 0.1])
SLOW_START = np.log([0.01, 0.05, 0.94])  # the second best arm takes over first


@compiled
def exact_gradient(problem, logits):
    policy = softmax(logits)
    tokens = Exact()(None, problem, policy)
    return gradient(tokens, plain_push(tokens, problem.shape), policy)


@compiled
def autodiff_gradient(rewards, weights, logits):
    """∂J/∂z with J as in a textbook."""
    return jax.grad(lambda z: weights @ jnp.sum(jax.nn.softmax(z) * rewards, -1))(logits)


def path(problem, update, logits, num_steps):
    """The policies [T + 1, S, A] of a run, step by step."""

    def advance(z, _):
        delta, _, _ = step(problem, Algorithm(update), softmax(z))
        return z + delta, probs(z)

    last, policies = compiled(lambda z: jax.lax.scan(advance, z, None, num_steps))(jnp.atleast_2d(logits))
    return np.concatenate([policies, probs(last)[None]])


def test_the_expected_return_is_the_mean_over_contexts_of_the_mean_reward():
    p = np.asarray(probs(jnp.asarray(LOGITS)))
    by_hand = sum(WEIGHTS[s] * p[s, a] * REWARDS[s, a] for s in range(2) for a in range(3))
    assert BANDIT.expected_return(jnp.asarray(p)) == pytest.approx(by_hand, rel=1e-15)


def test_contexts_are_equally_likely_unless_told():
    p = probs(jnp.asarray(LOGITS))
    assert Bandit(REWARDS).expected_return(p) == pytest.approx(float(jnp.sum(p * REWARDS)) / 2, rel=1e-15)
    assert Bandit(REWARDS, weights=1).expected_return(p) == pytest.approx(float(jnp.sum(p * REWARDS)), rel=1e-15)


def test_visits_and_values_of_a_bandit_do_not_depend_on_the_policy():
    p = probs(jnp.asarray(LOGITS))
    assert jnp.array_equal(BANDIT.visits(p), WEIGHTS)
    assert jnp.array_equal(BANDIT.action_values(p), REWARDS)
    assert BANDIT.shape == (2, 3)


@given(moves(sizes=(3,)), moves(sizes=(3,)))
def test_the_gradient_is_that_of_the_expected_return(first, second):
    logits = jnp.stack([first[0], second[0]])
    expected = autodiff_gradient(REWARDS, WEIGHTS, logits)
    assert jnp.allclose(exact_gradient(BANDIT, logits), expected, rtol=1e-12, atol=1e-15)  # |J| ≤ 1: eps of its terms


def natural_step(logits, slope, visits):
    """pinv(F) ∇J, F = Σ_s d(s) (diag π_s − π_s π_sᵀ)."""
    states, actions = logits.shape
    p = np.asarray(probs(jnp.asarray(logits)))
    fisher = np.zeros((states, actions, states, actions))
    for s in range(states):
        fisher[s, :, s, :] = visits[s] * (np.diag(p[s]) - np.outer(p[s], p[s]))
    flat = np.linalg.pinv(fisher.reshape(states * actions, -1), rcond=1e-12) @ slope.ravel()
    return flat.reshape(states, actions)


@given(st.integers(0, 2**32 - 1))
def test_the_natural_step_is_the_pseudo_inverse_of_fisher_times_the_gradient(seed):
    logits = np.random.default_rng(seed).uniform(-1.5, 1.5, (2, 3))  # π ≥ 1/42: F is far from singular
    slope = np.asarray(autodiff_gradient(REWARDS, WEIGHTS, logits))
    expected = 0.7 * natural_step(logits, slope, WEIGHTS)
    delta = np.asarray(outer_step(NaturalPG(0.7), logits))
    assert np.allclose(delta - delta.mean(-1, keepdims=True), expected, rtol=0.0, atol=1e-12)


outer_step = compiled(lambda update, logits: step(BANDIT, Algorithm(update), softmax(logits))[0])


@pytest.mark.parametrize("eta", [0.05, 2.0])
def test_a_natural_run_is_the_start_tilted_by_the_reward_at_every_step(eta):
    policies = path(BANDIT, NaturalPG(eta), LOGITS, 200)
    for t, p in enumerate(policies):
        tilted = np.exp(LOGITS - LOGITS.max() + eta * t * (REWARDS - REWARDS.max(-1, keepdims=True)))
        assert np.abs(p - tilted / tilted.sum(-1, keepdims=True)).max() <= 1e-12


def test_a_recorded_natural_run_has_the_return_and_entropy_of_that_closed_form():
    trace = simulate(BANDIT, Algorithm(NaturalPG(0.3)), num_steps=100, logits=LOGITS)
    for t, (value, found) in enumerate(zip(trace.expected_return, trace.entropy, strict=True)):
        logits = natural_path(jnp.asarray(LOGITS), jnp.asarray(REWARDS), 0.3 * t)
        assert abs(value - BANDIT.expected_return(probs(logits))) <= 1e-13
        assert np.abs(found - entropy(logits)).max() <= 1e-12


def flow(field, logits, time):
    solution = solve_ivp(lambda _, z: field(z), (0.0, time), logits, method="DOP853", rtol=1e-12, atol=1e-13)
    return np.exp(solution.y[:, -1]) / np.exp(solution.y[:, -1]).sum()


def plain_field(z):
    p = np.exp(z) / np.exp(z).sum()
    return p * (REWARDS[0] - p @ REWARDS[0])


def end_of_run(update, steps):
    trace = simulate(Bandit(REWARDS[0]), Algorithm(update), num_steps=steps, logits=LOGITS[0], every=steps)
    return np.asarray(probs(jnp.asarray(trace.logits[0])))


def test_small_steps_of_pg_follow_its_flow_with_an_error_of_first_order():
    exact = flow(plain_field, LOGITS[0], 4.0)
    coarse, fine = end_of_run(VanillaPG(4.0 / 400), 400), end_of_run(VanillaPG(4.0 / 800), 800)
    assert np.allclose((coarse - exact) / (fine - exact), 2.0, atol=0.02)
    assert np.abs(2.0 * fine - coarse - exact).max() <= 1e-5  # extrapolated: O(η²) = 2.5e-5 times |d²π/dη²| < 1


def test_npg_follows_its_flow_whatever_the_step():
    exact = flow(lambda z: REWARDS[0], LOGITS[0], 4.0)
    assert np.allclose(end_of_run(NaturalPG(1.0), 4), exact, rtol=0.0, atol=1e-11)


def test_npg_follows_the_replicator_equation():
    p = np.asarray(probs(jnp.asarray(LOGITS[0])))
    replicator = solve_ivp(
        lambda _, p: p * (REWARDS[0] - p @ REWARDS[0]), (0.0, 4.0), p, method="DOP853", rtol=1e-12, atol=1e-14
    )
    assert np.allclose(end_of_run(NaturalPG(0.01), 400), replicator.y[:, -1], rtol=0.0, atol=1e-10)


def gaps(policies, rewards):
    return rewards.max() - policies[:, 0] @ rewards


@pytest.fixture(scope="module")
def slow_run():
    return path(Bandit(HARD), VanillaPG(0.4), SLOW_START, 12_000)


def mei_bound(policies, best):
    """5/(c² t) for t = 1, 2, …, c the least probability of the best action so far (the proof looks no further)."""
    least = np.minimum.accumulate(policies[:, 0, best])[1:]
    return 5.0 / (least**2 * np.arange(1, len(policies)))


def test_pg_with_step_two_fifths_closes_the_gap_as_fast_as_mei_et_al_prove(slow_run):
    assert (gaps(slow_run, HARD)[1:] <= mei_bound(slow_run, 0)).all()


@pytest.mark.parametrize("rewards", [[1.0, 0.9, 0.1], [0.2, 0.8, 0.7]])
def test_from_the_uniform_policy_the_constant_of_mei_et_al_is_five_k_squared(rewards):
    rewards = np.array(rewards)
    policies = path(Bandit(rewards), VanillaPG(0.4), np.zeros(3), 2_000)
    assert (gaps(policies, rewards)[1:] <= 5.0 * 3**2 / np.arange(1, 2_001)).all()
    assert (gaps(policies, rewards)[1:] <= mei_bound(policies, rewards.argmax())).all()


def test_the_hard_instance_stays_on_its_plateau_for_thousands_of_steps_and_leaves_it(slow_run):
    gap = gaps(slow_run, HARD)
    assert (np.abs(gap[500:7_000] - 0.1) <= 0.003).all()
    assert gap[-1] < 0.001


@pytest.mark.parametrize("eta", [0.1, 1.0])
@pytest.mark.parametrize("rewards", [[1.0, 0.9, 0.1], [0.2, 0.8, 0.3]])
def test_npg_from_the_uniform_policy_closes_the_gap_as_fast_as_agarwal_et_al_prove(eta, rewards):
    rewards = np.array(rewards)
    gap = gaps(path(Bandit(rewards), NaturalPG(eta), np.zeros(3), 500), rewards)
    assert (gap[1:] <= np.log(3.0) / (eta * np.arange(1, 501))).all()


def test_an_episode_is_one_context_one_action_and_its_reward():
    episodes = jax.vmap(lambda key: BANDIT.rollout(key, jnp.asarray(LOGITS)))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    states, actions = (np.asarray(x)[:, 0] for x in (episodes.state, episodes.action))
    assert episodes.taken.all()
    assert np.array_equal(episodes.reward[:, 0], REWARDS[states, actions])
    joint = WEIGHTS[:, None] * np.asarray(probs(jnp.asarray(LOGITS)))
    seen = np.array([[np.mean((states == s) & (actions == a)) for a in range(3)] for s in range(2)])
    assert (np.abs(seen - joint) <= 4.0 * np.sqrt(joint * (1.0 - joint) / 20_000)).all()


def test_an_episode_can_start_from_a_given_context():
    assert BANDIT.rollout(jax.random.key(0), jnp.asarray(LOGITS), jnp.int32(1)).state.tolist() == [1]


def test_repr_names_the_sizes():
    assert repr(BANDIT) == "Bandit(S=2, K=3)"
