"""TRPO, momentum, Adam and restarts: each against a second road."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, simulate
from softmaxdyn.policy import kl_divergence
from softmaxdyn.updates import TRPO, Adam, Momentum, Restarted
from tests.faces import BANDIT, OLD, REWARDS, softmax

WEIGHTS = jnp.asarray(BANDIT.weights)
rows = st.lists(st.floats(-5.0, 5.0), min_size=4, max_size=4)
tables = st.lists(rows, min_size=3, max_size=3)
ABOUT = jnp.asarray(np.random.default_rng(0).standard_normal((20, 3, 4)))  # gradients


def exact_gradient(policy):
    """d(s) π A of the shared bandit."""
    reward = jnp.asarray(REWARDS)
    return WEIGHTS[:, None] * policy.prob * (reward - jnp.sum(policy.prob * reward, -1, keepdims=True))


@jax.jit
def trpo_step(logits, max_kl):
    """(δ, the step size used, δ of natural PG) at `logits`."""
    policy = softmax(logits)
    delta, after = TRPO(max_kl)(exact_gradient(policy), policy, WEIGHTS)
    return delta, after.step_size, NaturalPG(1.0)(exact_gradient(policy), policy, WEIGHTS)[0]


def steps(update, gradients=ABOUT):
    """The steps of `update` for these gradients, one after the other."""
    update, found = update.init(OLD.logits), []
    for gradient in gradients:
        delta, update = update(gradient, OLD, WEIGHTS)
        found.append(np.asarray(delta))
    return np.array(found)


def expected_return(logits):
    """J of the shared bandit."""
    return float(jnp.sum(WEIGHTS[:, None] * jax.nn.softmax(logits) * REWARDS))


@given(logits=tables, max_kl=st.floats(1e-6, 0.3))
def test_trpo_takes_the_whole_trust_region_along_natural_pg(logits, max_kl):
    logits = jnp.array(logits)
    delta, size, natural = trpo_step(logits, max_kl)
    np.testing.assert_allclose(delta, size * natural, rtol=1e-12, atol=1e-300)
    kl = float(jnp.sum(WEIGHTS * kl_divergence(logits, logits + delta)))
    np.testing.assert_allclose(kl, max_kl, rtol=1e-9)


@given(logits=tables, max_kl=st.floats(1e-6, 0.3))
def test_trpo_never_loses_return_on_a_bandit(logits, max_kl):
    logits = jnp.array(logits)
    gained = expected_return(logits + trpo_step(logits, max_kl)[0]) - expected_return(logits)
    assert gained >= -1e-15


def test_trpo_stands_still_where_all_advantages_vanish():
    delta, after = TRPO()(jnp.zeros((3, 4)), OLD, WEIGHTS)
    np.testing.assert_array_equal(delta, 0.0)
    assert after.step_size == 0.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_trpo_ends_its_step_at_the_range_of_the_dtype_where_no_step_reaches_the_kl(dtype):
    """π = (1 − e⁻⁶⁰, e⁻⁶⁰): the divergence to the best policy itself is below max_kl."""
    policy = softmax(jnp.array([[60.0, 0.0]], dtype))
    gradient = policy.prob * (jnp.array([[1.0, 0.0]], dtype) - policy.prob[:, :1])
    delta, _ = TRPO(0.01)(gradient, policy, jnp.ones(1, dtype))
    assert delta.dtype == dtype
    np.testing.assert_allclose(delta[0, 0] - delta[0, 1], -np.log(np.finfo(dtype).tiny), rtol=1e-5)


def test_trpo_solves_a_bandit():
    trace = simulate(BANDIT, Algorithm(TRPO(0.01)), num_steps=200, logits=OLD.logits)
    assert (np.diff(trace.expected_return) >= -1e-15).all()
    np.testing.assert_allclose(trace.final_expected_return, np.asarray(WEIGHTS) @ REWARDS.max(-1), rtol=1e-6)


def test_momentum_is_the_geometric_sum_of_the_gradients():
    """δ_t = η Σ_k μ^{t−k} g_k."""
    found = steps(Momentum(0.3, decay=0.8))
    weights = np.tril(0.8 ** np.subtract.outer(np.arange(20), np.arange(20)).clip(0))
    np.testing.assert_allclose(found, 0.3 * np.einsum("tk,ksa->tsa", weights, ABOUT), rtol=1e-12, atol=1e-14)


def test_momentum_without_memory_is_policy_gradient_to_the_bit():
    np.testing.assert_array_equal(steps(Momentum(0.3, decay=0.0)), steps(VanillaPG(0.3)))


def adam_by_hand(gradients, step_size, b1, b2, epsilon):
    """Algorithm 1 of Kingma & Ba, in NumPy."""
    m = v = np.zeros((3, 4))
    for t, g in enumerate(np.asarray(gradients), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        yield step_size * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)


@pytest.mark.parametrize(("b1", "b2", "epsilon"), [(0.9, 0.999, 1e-8), (0.0, 0.5, 1e-3), (0.5, 0.0, 1e-8)])
def test_adam_is_the_printed_algorithm(b1, b2, epsilon):
    expected = list(adam_by_hand(ABOUT, 0.05, b1, b2, epsilon))
    np.testing.assert_allclose(steps(Adam(0.05, b1, b2, epsilon)), expected, rtol=1e-12)


def test_the_first_step_of_adam_is_the_sign_of_the_gradient():
    np.testing.assert_allclose(steps(Adam(0.05))[0], 0.05 * np.sign(ABOUT[0]), rtol=1e-5)


def test_adam_in_a_run_is_adam_by_hand():
    trace = simulate(BANDIT, Algorithm(Adam(0.1)), num_steps=6, logits=OLD.logits)
    logits, m, v = np.asarray(OLD.logits), 0.0, 0.0
    for t in range(1, 7):
        g = np.asarray(exact_gradient(softmax(jnp.asarray(logits))))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        logits = logits + 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(jax.nn.softmax(trace.logits), jax.nn.softmax(logits), rtol=1e-9)


@pytest.mark.parametrize("update", [Momentum(0.3), Adam(0.05)], ids=["Momentum", "Adam"])
def test_a_restarted_update_begins_anew_every_so_many_calls(update):
    found = steps(Restarted(update, every=7.0))
    expected = np.concatenate([steps(update, ABOUT[start : start + 7]) for start in (0, 7, 14)])
    np.testing.assert_array_equal(found, expected)
    assert Restarted(update).step_size == update.step_size


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("update", [TRPO(), Momentum(0.3), Adam(0.05), Restarted(Adam(0.05), every=3.0)], ids=str)
def test_updates_keep_the_dtype_of_the_run(update, dtype):
    start = jnp.asarray(OLD.logits, dtype)
    trace = simulate(BANDIT, Algorithm(update), num_steps=4, inner_steps=2, logits=start)
    assert trace.logits.dtype == dtype
    assert np.isfinite(trace.logits).all()


@pytest.mark.parametrize("update", [Momentum(), Adam()], ids=["Momentum", "Adam"])
def test_an_update_with_memory_needs_its_start(update):
    with pytest.raises(InputError, match=r"has no state yet; wanted update = update.init\(logits\) first"):
        update(ABOUT[0], OLD, WEIGHTS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TRPO(0.0), "max_kl is 0.0; wanted a finite number > 0"),
        (lambda: Momentum(-0.1), "step_size is -0.1; wanted a finite number ≥ 0"),
        (lambda: Momentum(decay=1.5), r"decay is 1.5; wanted a finite number in \[0, 1\]"),
        (lambda: Adam(float("nan")), "step_size is nan; wanted a finite number ≥ 0"),
        (lambda: Adam(epsilon=0.0), "epsilon is 0.0; wanted a finite number > 0"),
        (lambda: Adam(decay=1.0), r"1 - decay is 0.0; wanted a finite number in \(0, 1\]"),
        (lambda: Adam(square_decay=1.5), r"1 - square_decay is -0.5; wanted a finite number in \(0, 1\]"),
        (lambda: Restarted(Adam(), every=0.0), "every is 0.0; wanted a finite number ≥ 1"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_step_size_that_trpo_reports_makes_natural_pg_take_the_same_step():
    policy = softmax(OLD.logits)
    delta, after = TRPO(0.02)(exact_gradient(policy), policy, WEIGHTS)
    again, _ = NaturalPG(after.step_size)(exact_gradient(policy), policy, WEIGHTS)
    np.testing.assert_allclose(again, delta, rtol=1e-13, atol=1e-300)


def test_the_shared_bandit_is_what_these_tests_take_it_for():
    trace = simulate(Bandit(REWARDS, BANDIT.weights), Algorithm(VanillaPG(1.0)), num_steps=1, logits=OLD.logits)
    np.testing.assert_allclose(trace.logits - OLD.logits, exact_gradient(OLD), rtol=1e-9, atol=1e-15)
