"""Policies: entropy, log-probabilities and divergence to the last digits, their slopes, masks, axes and draws."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given

from softmaxdyn import policy
from tests.compiled import compiled
from tests.oracles import (
    FAMILIES,
    FLOOR,
    digits,
    error,
    exact_entropy,
    exact_kl,
    exactly,
    hard_logits,
    moves,
    policy_of,
    relative_error,
)

EPS = np.finfo(float).eps
MASKED = np.array([0.5, -np.inf, 3.0, -1.0])
entropy, kl_divergence, log_probs, probs, softmax = (
    compiled(getattr(policy, name), static_argnames="axis")
    for name in ("entropy", "kl_divergence", "log_probs", "probs", "softmax")
)
slope_of_entropy = compiled(jax.grad(policy.entropy))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("actions", [2, 10, 100])
def test_entropy_is_right_to_full_relative_accuracy(actions, dtype):
    rng = np.random.default_rng(actions)
    for family in FAMILIES:
        for _ in range(5):
            logits = hard_logits(family, actions, rng, dtype)
            value = softmax(logits).entropy
            assert value.dtype == dtype
            bound = 4.0 * np.finfo(dtype).eps
            assert relative_error(value, exact_entropy(logits), FLOOR[dtype]) <= bound, (family, logits)


@given(moves(sizes=(3,)))
def test_entropy_is_at_least_zero_and_at_most_log_k(move):
    live = np.isfinite(move[0]).sum()
    assert 0.0 <= softmax(move[0]).entropy <= np.log(live) * (1.0 + 4.0 * EPS)


@pytest.mark.parametrize("actions", [1, 2, 1000])
def test_the_entropy_of_the_uniform_policy_is_log_k(actions):
    assert np.isclose(entropy(np.full(actions, 7.0)), np.log(actions), rtol=2 * EPS, atol=0.0)


def test_masked_actions_do_not_count():
    kept = np.array([0.5, 3.0, -1.0])
    assert np.isclose(entropy(MASKED), entropy(kept), rtol=2 * EPS, atol=0.0)
    assert probs(MASKED)[1] == 0.0
    assert log_probs(MASKED)[1] == -np.inf
    assert np.allclose(probs(MASKED)[np.array([0, 2, 3])], probs(kept), rtol=2 * EPS, atol=0.0)


def test_the_slope_of_the_entropy_is_minus_s_also_at_masks():
    p = softmax(MASKED)
    slope = slope_of_entropy(MASKED)
    assert np.array_equal(slope, -p.prob * p.centred_log_prob)
    assert slope[1] == 0.0


def test_the_slope_of_the_entropy_is_that_of_the_textbook_formula():
    logits = np.array([0.5, -2.0, 3.0, -1.0])
    textbook = compiled(jax.grad(lambda z: -jnp.sum(jax.nn.softmax(z) * jax.nn.log_softmax(z))))(logits)
    assert np.allclose(slope_of_entropy(logits), textbook, rtol=1e-13, atol=1e-15)


def test_the_curvature_of_the_entropy_is_right_also_at_masks():
    """−(diag π(1 + u) − π πᵀ ∘ (1 + u_a + u_b)), from ∂u_a/∂z_b = 1{a=b} − π_b − S_b."""
    p = softmax(MASKED)
    u = np.asarray(p.centred_log_prob)
    expected = np.outer(p.prob, p.prob) * (1.0 + u[:, None] + u) - np.diag(p.prob * (1.0 + u))
    assert np.allclose(compiled(jax.hessian(policy.entropy))(MASKED), expected, rtol=1e-13, atol=1e-15)


def test_the_slopes_of_probabilities_are_right_at_masks():
    p = np.asarray(probs(MASKED))
    assert np.allclose(
        compiled(jax.jacobian(policy.probs))(MASKED), np.diag(p) - np.outer(p, p), rtol=1e-13, atol=1e-16
    )
    live = np.array([0, 2, 3])
    assert np.allclose(
        compiled(jax.jacobian(policy.log_probs))(MASKED)[live], (np.eye(4) - p)[live], rtol=1e-13, atol=1e-16
    )


@given(moves(sizes=(3,)))
def test_log_probabilities_are_right_to_full_relative_accuracy_also_near_zero(move):
    logits = move[0][np.isfinite(move[0])]
    assume(logits.size > 1)
    value = softmax(move[0]).log_prob[np.isfinite(move[0])]
    with mp.workdps(digits(logits)):
        _, exact = policy_of(exactly(logits))
    for v, e in zip(value, exact, strict=True):
        assert relative_error(v, e, FLOOR["float64"]) <= 6.0 * EPS


@given(moves(sizes=(3,)))
def test_probabilities_add_up_to_one(move):
    assert abs(softmax(move[0]).prob.sum() - 1.0) <= 4 * EPS


@given(moves(sizes=(3,)))
def test_the_centred_log_probability_has_mean_zero_and_is_log_pi_plus_entropy(move):
    p = softmax(move[0])
    terms = np.asarray(p.prob) * p.centred_log_prob
    assert abs(terms.sum()) <= 16 * EPS * abs(terms).sum()
    live = np.isfinite(move[0])
    expected = np.where(live, np.where(live, p.log_prob, 0.0) + np.asarray(p.entropy), 0.0)
    assert np.allclose(p.centred_log_prob, expected, rtol=8 * EPS, atol=8 * EPS * max(1.0, np.ptp(move[0][live])))


@given(moves(sizes=(3,)))
def test_a_common_shift_of_the_logits_changes_nothing(move):
    shifted = move[0] + 1024.0
    assume(np.array_equal(shifted - 1024.0, move[0]))  # the shift was exact
    for a, b in zip(softmax(move[0])[1:], softmax(shifted)[1:], strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("size", [1e5, 1e300])
def test_huge_gaps_give_the_greedy_policy(size):
    p = softmax(np.array([0.0, size, -size, size]))
    assert np.array_equal(p.prob, np.array([0.0, 0.5, 0.0, 0.5]))
    assert not any(bool(np.isnan(x).any()) for x in p)


@given(moves(sizes=(3,)), moves(sizes=(3,)))
def test_kl_is_right_and_not_negative(move, other):
    p, q = (np.where(np.isfinite(z), z, 0.0) for z in (move[0], other[0]))
    value, (exact, scale) = kl_divergence(p, q), exact_kl(p, q)
    assert value >= 0.0
    assert error(value, exact) <= 16 * EPS * float(scale) + FLOOR["float64"]


def test_kl_at_masks():
    full = np.array([0.5, 1.0, 3.0, -1.0])
    assert kl_divergence(full, MASKED) == np.inf
    kept = np.sum(np.delete(probs(full), 1))
    within = kl_divergence(np.delete(MASKED, 1), np.delete(full, 1))
    assert np.isclose(kl_divergence(MASKED, full), within - np.log(kept), rtol=1e-14, atol=0.0)  # the chain rule
    assert kl_divergence(MASKED, MASKED) == 0.0


def test_kl_where_a_probability_is_not_a_number_of_the_dtype():
    flat, peaked = np.array([0.0, 0.0]), np.array([0.0, -800.0])
    assert np.isclose(kl_divergence(peaked, flat), np.log(2.0), rtol=2 * EPS, atol=0.0)
    assert np.isclose(kl_divergence(flat, peaked), 400.0 - np.log(2.0), rtol=2 * EPS, atol=0.0)


def test_kl_has_a_finite_slope_at_masks():
    for slope in compiled(jax.grad(policy.kl_divergence, argnums=(0, 1)))(
        MASKED, MASKED - np.array([1.0, 0.0, 2.0, 0.0])
    ):
        assert np.isfinite(slope).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("function", [entropy, probs, log_probs, lambda z, axis: kl_divergence(z, -z, axis=axis)])
def test_the_action_axis_can_be_any(function, axis):
    logits = jax.random.normal(jax.random.key(0), (3, 3, 3))
    value, expected = function(logits, axis=axis), function(np.moveaxis(logits, axis, -1), axis=-1)
    expected = np.moveaxis(expected, -1, axis) if value.ndim == 3 else expected
    assert np.allclose(value, expected, rtol=8 * EPS, atol=0.0)


def test_leading_axes_are_independent_states():
    logits = np.random.default_rng(0).standard_normal((2, 3, 4))
    assert entropy(logits).shape == (2, 3)
    assert np.allclose(entropy(logits)[1, 2], entropy(logits[1, 2]), rtol=4 * EPS, atol=0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_result_is_that_of_the_logits(dtype):
    logits = np.asarray(MASKED, dtype)
    for function in (entropy, probs, log_probs, partial(kl_divergence, other=logits), slope_of_entropy):
        assert function(logits).dtype == dtype


def frequencies(key, logits, draws):
    actions = np.asarray(compiled(partial(policy.sample, shape=(draws,)))(key, logits))
    assert actions.shape == (draws, *logits.shape[:-1])
    assert actions.dtype == np.int32
    return actions, np.mean(actions[..., None] == np.arange(logits.shape[-1]), axis=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_have_the_distribution_of_the_policy(dtype):
    logits, draws = np.array([[0.0, 1.0, -2.0, 0.5], [-np.inf, 0.0, 3.0, -np.inf]], dtype), 40_000
    _, seen = frequencies(jax.random.key(1), logits, draws)
    p = np.asarray(probs(logits))
    assert (np.abs(seen - p) <= 4.0 * np.sqrt(p * (1.0 - p) / draws)).all()  # so never a masked action


def test_the_draws_of_two_states_are_independent():
    draws = 40_000
    actions, _ = frequencies(jax.random.key(2), np.zeros((2, 2)), draws)
    together = np.mean(actions[:, 0] == actions[:, 1])
    assert abs(together - 0.5) <= 4.0 * np.sqrt(0.25 / draws)


def test_an_action_beyond_the_last_likely_one_is_never_drawn():
    actions, _ = frequencies(jax.random.key(3), np.array([0.0, -np.inf, 0.0, -1e4, -np.inf]), 10_000)
    assert set(actions.tolist()) == {0, 2}
