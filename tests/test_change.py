"""The exact change of entropy: its accuracy against arithmetic of hundreds of digits, and the laws it obeys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from softmaxdyn.change import decompose, entropy_change, remainder
from softmaxdyn.policy import entropy, kl_divergence, softmax
from softmaxdyn.theory import lemma_1
from tests.compiled import compiled
from tests.oracles import FLOOR, campaign, error, exact_step, moves, relative_error, rounding_error

change = compiled(lambda logits, delta: decompose(softmax(logits), delta))
fully_compiled_change = jax.jit(lambda logits, delta: decompose(softmax(logits), delta))  # what large tables run
EPS = np.finfo(float).eps
CASES = {2: 30, 3: 30, 10: 20, 100: 4, 1000: 1}
LIMIT = {("small", "float64"): 1e-13, ("large", "float64"): 1e-12, ("uneven", "float64"): 1e-12} | {
    (kind, "float32"): 1e-5 for kind in ("small", "large", "uneven")
}
# Where a value is a difference of terms κ times its size, so many of its digits are beyond any sum in this precision.
ALLOWED_CANCELLATION = {"float64": 50, "float32": 15}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("actions", CASES)
@pytest.mark.parametrize("kind", ["small", "large", "uneven"])
def test_the_change_and_its_remainder_are_right_to_full_relative_accuracy(kind, actions, dtype):
    logits, delta, families = campaign(kind, dtype, actions, CASES[actions])
    value = (fully_compiled_change if (actions, dtype) == (10, "float64") else change)(logits, delta)
    assert value.entropy_change.dtype == dtype
    for i, family in enumerate(families):
        exact = exact_step(logits[i], delta[i])
        for name, terms in [("entropy_change", exact.change_terms), ("remainder", exact.remainder_terms)]:
            truth = getattr(exact, name)
            condition = max(1.0, float(terms / abs(truth)) / ALLOWED_CANCELLATION[dtype])
            found = relative_error(getattr(value, name)[i], truth, FLOOR[dtype])
            assert found <= LIMIT[kind, dtype] * condition, (family, name, logits[i], delta[i])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@given(move=moves())
def test_the_error_is_that_of_rounding_each_term_once(dtype, move):
    logits, delta = (np.asarray(x, dtype) for x in move)
    logits = np.where(logits < -100.0, logits / 10.0, logits) if dtype == "float32" else logits
    value, exact = change(logits, delta), exact_step(logits, delta)
    unit = rounding_error(logits, delta, dtype)
    assert error(value.entropy_change, exact.entropy_change) <= unit * exact.change_scale + FLOOR[dtype]
    assert error(value.remainder, exact.remainder) <= unit * exact.remainder_scale + FLOOR[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("small", [1e-2, 1e-3, 1e-4])
def test_a_far_action_does_not_cost_the_digits_of_the_likely_ones(small, dtype):
    logits, delta = np.array([0.0, 0.1, -60.0], dtype), np.array([small, 2.7 * small, 3.0], dtype)
    value, exact = change(logits, delta), exact_step(logits, delta)
    assert relative_error(value.remainder, exact.remainder) <= rounding_error(logits, delta, dtype)


@given(moves(sizes=(3,)))
def test_the_parts_add_up(move):
    value = change(*move)
    sizes = abs(value.covariance) + abs(value.remainder)
    assert abs(value.remainder - value.covariance - value.entropy_change) <= 2 * EPS * sizes
    assert value.kl >= 0.0


@pytest.mark.parametrize("size", [0.1, 10.0])
def test_the_public_functions_are_the_parts(size):
    logits, delta = jnp.array([0.3, -jnp.inf, 2.0]), size * jnp.array([1.0, -2.0, 0.5])
    value = change(logits, delta)
    found = compiled(lambda z, d: (entropy_change(z, d), remainder(z, d), -lemma_1(z, d)))(logits, delta)
    assert np.allclose(found, (value.entropy_change, value.remainder, value.covariance), rtol=4 * EPS, atol=0.0)


def test_no_step_is_no_change_to_the_last_bit():
    logits = np.array([0.3, -np.inf, 700.0, 2.0])
    for delta in (np.zeros(4), np.full(4, 7.25)):
        assert [float(part) for part in change(logits, delta)] == [0.0] * 4


@given(moves(sizes=(3,)))
def test_a_positive_covariance_with_the_ratio_means_that_the_entropy_falls(move):
    logits, delta = move
    exact = exact_step(logits, delta)  # T1: ΔH = −Cov(log π, π'/π) − KL
    covariance_with_ratio = -exact.entropy_change - exact.kl
    value = change(logits, delta)
    if covariance_with_ratio > 0.0 and -exact.entropy_change > FLOOR["float64"]:
        assert value.entropy_change < 0.0


@pytest.mark.parametrize("size", [1e-9, 0.3, 30.0, 1e5, 1e300])
def test_a_common_shift_of_the_step_changes_nothing(size):
    logits, delta = np.array([0.0, 1.0, -2.0]), size * np.array([1.0, -0.5, 0.25])
    shifted = change(logits, delta + 2.0 ** np.round(np.log2(size)))  # a power of two near the step rounds least
    for a, b in zip(change(logits, delta), shifted, strict=True):
        assert jnp.allclose(a, b, rtol=64 * EPS, atol=0.0)


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)])
def test_leading_axes_are_independent_states_whatever_their_step(shape):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(shape)
    delta = rng.standard_normal(shape) * 10.0 ** rng.uniform(-6.0, 1.5, (*shape[:-1], 1))
    alone = [change(z, d) for z, d in zip(logits.reshape(-1, 4), delta.reshape(-1, 4), strict=True)]
    for together, apart in zip(change(logits, delta), zip(*alone, strict=True), strict=True):
        assert together.shape == shape[:-1]
        assert jnp.allclose(together.ravel(), jnp.asarray(apart), rtol=32 * EPS, atol=0.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_action_axis_can_be_any(axis):
    logits, delta = jax.random.normal(jax.random.key(1), (2, 3, 3, 3))
    expected = change(jnp.moveaxis(logits, axis, -1), jnp.moveaxis(delta, axis, -1))
    found = compiled(lambda z, d: decompose(softmax(z, axis), d, axis))(logits, delta)
    assert np.allclose(found, expected, rtol=32 * EPS, atol=0.0)


slope_of_change = compiled(jax.grad(entropy_change, argnums=1))


@pytest.mark.parametrize("size", [1e-3, 3.0])
def test_the_slope_of_the_change_is_the_slope_of_the_entropy_after_it(size):
    logits, delta = jnp.array([0.3, -jnp.inf, 2.0, -1.0]), size * jnp.array([1.0, 5.0, -1.0, 0.5])
    after = jax.grad(entropy)(logits + delta)
    assert jnp.allclose(slope_of_change(logits, delta), after, rtol=1e-12, atol=1e-15)


@given(moves(sizes=(3,)))
def test_kl_is_that_of_the_new_policy_from_the_old(move):
    logits, delta = move
    value, exact = change(logits, delta).kl, exact_step(logits, delta)
    assert error(value, exact.kl) <= rounding_error(logits, delta, "float64") * exact.change_scale + FLOOR["float64"]


def test_kl_agrees_with_the_divergence_of_two_policies():
    logits, delta = jnp.array([0.3, 1.0, 2.0, -1.0]), jnp.array([1.0, 2.0, -1.0, 0.5])
    assert jnp.allclose(change(logits, delta).kl, kl_divergence(logits + delta, logits), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    ("logits", "delta", "before", "after"),
    [
        ([0.0, 0.0, 0.0], [1e300, 0.0, 0.0], np.log(3.0), 0.0),
        ([0.0, 0.0, 0.0], [1e300, 1e300, 0.0], np.log(3.0), np.log(2.0)),
        ([0.0, -800.0, -800.0], [-1e5, 0.0, 0.0], 0.0, np.log(2.0)),
        ([0.0, -1e5, -np.inf], [0.0, 1e5, 1e300], 0.0, np.log(2.0)),
        ([1e300, -1e300, 0.0], [-1e300, 1e300, 0.0], 0.0, np.log(3.0)),
    ],
)
def test_a_jump_from_peak_to_peak_changes_the_entropy_by_what_it_is(logits, delta, before, after):
    value = change(np.array(logits), np.array(delta))
    assert jnp.isclose(value.entropy_change, after - before, rtol=1e-15, atol=1e-300)
    assert not any(bool(jnp.isnan(part)) for part in value)
