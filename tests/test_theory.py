"""What theory predicts, against autodiff, arithmetic of many digits, and the counterexamples to what is often said."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import policy
from softmaxdyn import theory as formulas
from softmaxdyn.change import decompose
from softmaxdyn.policy import log_probs, softmax
from tests.compiled import compiled
from tests.oracles import moves

EPS = np.finfo(float).eps
PI = jnp.array([0.5, 0.2, 0.2, 0.1])
LOGITS = jnp.log(PI)
REWARDS = jnp.array([0.3, 1.0, -0.5, 0.2])
NAMES = [
    "certified_step_size",
    "lemma_1",
    "natural_entropy_rate",
    "proposition_1",
    "remainder_bound",
    "sample_effect",
    "second_order",
    "theorem_1",
    "theorem_2",
]
theory = SimpleNamespace(
    single_logit_entropy=compiled(formulas.single_logit_entropy),
    **{name: compiled(getattr(formulas, name), static_argnames="axis") for name in NAMES},
)
change = compiled(lambda logits, delta: decompose(softmax(logits), delta))
entropy, probs = (compiled(f, static_argnames="axis") for f in (policy.entropy, policy.probs))


def entropy_change(logits, delta):
    return change(logits, delta).entropy_change


def remainder(logits, delta):
    return change(logits, delta).remainder


def order(step_sizes, errors):
    """The measured order of an error: the slope of log |error| against log η between neighbours, the last one."""
    return np.diff(np.log(np.abs(errors)))[-1] / np.diff(np.log(step_sizes))[-1]


ETA = 2.0 ** -np.arange(6.0, 12.0)


def first_order_errors(update, prediction):
    """ΔH of the step `update(η)` less its prediction, for halving η."""
    return [float(entropy_change(LOGITS, update(eta)) - prediction(eta)) for eta in ETA]


def test_halving_the_step_quarters_the_error_of_theorem_1():
    errors = first_order_errors(
        lambda eta: theory.proposition_1(LOGITS, REWARDS, eta),
        lambda eta: theory.theorem_1(LOGITS, REWARDS - PI @ REWARDS, eta),
    )
    assert abs(order(ETA, errors) - 2.0) <= 0.02


def test_halving_the_step_quarters_the_error_of_theorem_2():
    errors = first_order_errors(lambda eta: eta * REWARDS, lambda eta: theory.theorem_2(LOGITS, REWARDS, eta))
    assert abs(order(ETA, errors) - 2.0) <= 0.02


def test_halving_the_step_quarters_the_error():
    direction = jnp.array([1.0, -3.0, 0.2, 5.0])
    errors = first_order_errors(lambda eta: eta * direction, lambda eta: theory.lemma_1(LOGITS, eta * direction))
    assert abs(order(ETA, errors) - 2.0) <= 0.02


@pytest.mark.parametrize("baseline", [-1.0, 2.0])
def test_theorem_1_with_uncentred_rewards_is_wrong_at_first_order_by_the_baseline_times_mean_s(baseline):
    raw = REWARDS - PI @ REWARDS + baseline
    errors = first_order_errors(
        lambda eta: theory.proposition_1(LOGITS, raw, eta), lambda eta: theory.theorem_1(LOGITS, raw, eta)
    )
    mean_s = jnp.sum(PI**2 * (log_probs(LOGITS) + entropy(LOGITS)))
    assert abs(order(ETA, errors) - 1.0) <= 0.02
    assert errors[-1] / ETA[-1] == pytest.approx(
        float(baseline * mean_s), rel=0.01
    )  # the next order is η = 2⁻¹¹ smaller


def test_lemma_1_is_the_slope_of_the_entropy():
    direction = jnp.array([1.0, -3.0, 0.2, 5.0])
    _, slope = jax.jvp(policy.entropy, (LOGITS,), (direction,))
    assert jnp.isclose(theory.lemma_1(LOGITS, direction), slope, rtol=8 * EPS, atol=0.0)


def test_theorem_1_is_lemma_1_of_the_step_of_proposition_1():
    advantage = REWARDS - PI @ REWARDS
    step = theory.proposition_1(LOGITS, advantage, 0.7)
    assert jnp.isclose(theory.theorem_1(LOGITS, advantage, 0.7), theory.lemma_1(LOGITS, step), rtol=8 * EPS, atol=0.0)


def test_theorem_2_is_lemma_1_of_the_advantage_whatever_the_baseline():
    for baseline in (0.0, 5.0):
        value = theory.theorem_2(LOGITS, REWARDS + baseline, 0.7)
        assert jnp.isclose(value, theory.lemma_1(LOGITS, 0.7 * REWARDS), rtol=32 * EPS, atol=0.0)


def test_proposition_1_is_the_slope_of_the_expected_reward():
    slope = jax.grad(lambda z: jax.nn.softmax(z) @ REWARDS)(LOGITS)
    assert jnp.allclose(theory.proposition_1(LOGITS, REWARDS, 0.7), 0.7 * slope, rtol=1e-14, atol=1e-16)


def test_a_step_size_for_each_state():
    logits, rewards, eta = jnp.stack([LOGITS, -LOGITS]), jnp.stack([REWARDS, PI]), jnp.array([0.1, 3.0])
    for formula in (theory.proposition_1, theory.theorem_1, theory.theorem_2):
        each = [formula(z, r, e) for z, r, e in zip(logits, rewards, eta, strict=True)]
        assert jnp.allclose(formula(logits, rewards, eta), jnp.stack(each), rtol=8 * EPS, atol=0.0)


def test_the_action_axis_can_be_any():
    logits, values = jax.random.normal(jax.random.key(0), (2, 3, 3))
    for formula in (
        theory.lemma_1,
        theory.remainder_bound,
        theory.certified_step_size,
        theory.second_order,
        lambda z, v, axis=-1: theory.theorem_1(z, v, jnp.arange(3.0), axis=axis),
        lambda z, v, axis=-1: (
            theory.proposition_1(z, v, jnp.arange(3.0), axis=axis).T
            if axis
            else theory.proposition_1(z, v, jnp.arange(3.0), axis)
        ),
        lambda z, v, axis=-1: theory.sample_effect(z, 2.0, axis=axis).T if axis else theory.sample_effect(z, 2.0, axis),
    ):
        assert jnp.allclose(formula(logits, values, axis=0), formula(logits.T, values.T), rtol=32 * EPS, atol=1e-18)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_a_prediction_is_that_of_its_input(dtype):
    z, r = LOGITS.astype(dtype), REWARDS.astype(dtype)
    values = [
        theory.lemma_1(z, r),
        theory.theorem_1(z, r, 0.5),
        theory.theorem_2(z, r, 0.5),
        theory.proposition_1(z, r, 0.5),
        theory.sample_effect(z),
        theory.second_order(z, r),
        theory.remainder_bound(z, r),
        theory.certified_step_size(z, r),
        theory.natural_entropy_rate(z, r, 0.5),
        theory.single_logit_entropy(z, 1, 0.5),
    ]
    assert {str(value.dtype) for value in values} == {dtype}


def test_the_effect_of_a_sample_is_the_slope_of_the_entropy_along_its_push():
    weight = jnp.array([1.0, -2.0, 0.5, 3.0])
    slope = compiled(lambda push: jax.jvp(policy.entropy, (LOGITS,), (push,))[1])
    slopes = [slope(w * (e - PI)) for w, e in zip(weight, jnp.eye(4), strict=True)]
    assert jnp.allclose(theory.sample_effect(LOGITS, weight), jnp.stack(slopes), rtol=1e-13, atol=1e-16)


def test_the_mean_effect_of_a_sample_weighted_by_its_advantage_is_theorem_1():
    advantage = REWARDS - PI @ REWARDS
    mean = PI @ theory.sample_effect(LOGITS, 0.3 * advantage)
    assert jnp.isclose(mean, theory.theorem_1(LOGITS, advantage, 0.3), rtol=1e-14, atol=0.0)


@given(moves(sizes=(3,)), st.integers(0, 2), st.floats(-10.0, 10.0, width=32))
def test_moving_one_logit_gives_the_entropy_of_the_closed_form(move, action, shift):
    logits = jnp.where(jnp.isfinite(move[0]), move[0], -50.0)
    found = theory.single_logit_entropy(logits, action, shift)
    expected = entropy(logits.at[action].add(shift))
    # its terms are H, π log π, π eˣ x and log m: of the size of the entropies and of |x|
    assert abs(found - expected) <= 16 * EPS * (1.0 + abs(shift)) * (1.0 + jnp.ptp(logits))


def test_moving_one_logit_in_each_state():
    logits, action, shift = jnp.stack([LOGITS, -LOGITS]), jnp.array([0, 3]), jnp.array([1.5, -2.0])
    expected = entropy(logits.at[jnp.arange(2), action].add(shift))
    assert jnp.allclose(theory.single_logit_entropy(logits, action, shift), expected, rtol=1e-14, atol=0.0)


def test_second_order_is_the_second_derivative_of_the_entropy():
    along = lambda t: policy.entropy(LOGITS + t * REWARDS)  # noqa: E731
    second = compiled(jax.grad(jax.grad(along)))(0.0)
    assert jnp.isclose(theory.second_order(LOGITS, REWARDS), second, rtol=1e-13, atol=0.0)


def test_half_the_second_order_is_what_the_remainder_tends_to():
    for size in (1e-5, 1e-7):
        ratio = remainder(LOGITS, size * REWARDS) / (0.5 * size**2 * theory.second_order(LOGITS, REWARDS))
        assert abs(ratio - 1.0) <= 10.0 * size


@given(moves())
def test_the_remainder_never_exceeds_its_bound(move):
    logits, delta = move
    assert abs(change(logits, delta).remainder) <= theory.remainder_bound(logits, delta) * (1 + 1e-12) + 1e-300


def test_the_bound_is_below_one_eighth_plus_half_of_log_k():
    for k in (2, 3, 10, 1000):
        bound = theory.remainder_bound(jnp.zeros(k), jnp.eye(k)[0])
        assert bound <= 0.125 + 0.5 * np.log(k)
        assert bound == pytest.approx(0.125 + np.log(max(k - 1, 1)) / (12.0 * np.sqrt(3.0)), rel=1e-14)


def test_the_constant_for_two_actions_cannot_be_improved():
    delta = jnp.array([1e-4, 0.0])
    ratio = -remainder(jnp.zeros(2), delta) / theory.remainder_bound(jnp.zeros(2), delta)
    assert ratio == pytest.approx(1.0, abs=1e-8)


def test_the_bound_counts_and_measures_unmasked_actions_only():
    masked = theory.remainder_bound(jnp.array([0.0, -jnp.inf, 1.0]), jnp.array([0.0, 100.0, 1.0]))
    assert masked == theory.remainder_bound(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]))


def quadratic_form(p, first, second):
    """B(f, g) = E[(1 + u)(f − Ef)(g − Eg)]: half of −H'' is that of the step, B(δ, δ) (T9)."""
    u = np.log(p) - p @ np.log(p)
    return np.sum(p * (1.0 + u) * (first - p @ first) * (second - p @ second))


def test_the_form_of_two_nested_sets_is_what_the_proof_of_the_bound_says():
    """B(1_S, 1_T) = sn[1 + (1−2s)(log s − h_S) − 2m(log m − h_M) + (1−2n)(log n − h_N)]."""
    p = np.array([0.1, 0.25, 0.2, 0.3, 0.15])
    groups = [np.array([0, 1]), np.array([2]), np.array([3, 4])]
    mass = [p[g].sum() for g in groups]
    inside = [-(p[g] / m) @ np.log(p[g] / m) for g, m in zip(groups, mass, strict=True)]
    (s, m, n), (hs, hm, hn) = mass, inside
    smaller = np.isin(np.arange(5), groups[0]).astype(float)
    larger = 1.0 - np.isin(np.arange(5), groups[2])
    expected = s * n * (1 + (1 - 2 * s) * (np.log(s) - hs) - 2 * m * (np.log(m) - hm) + (1 - 2 * n) * (np.log(n) - hn))
    assert quadratic_form(p, smaller, larger) == pytest.approx(expected, rel=1e-13)
    assert quadratic_form(p, REWARDS_5, REWARDS_5) == pytest.approx(
        -float(theory.second_order(jnp.log(p), jnp.asarray(REWARDS_5))), rel=1e-13
    )


REWARDS_5 = np.array([0.3, -1.0, 0.5, 2.0, 0.0])


@pytest.mark.parametrize("actions", [2, 3, 10, 1000])
def test_the_form_of_two_nested_sets_stays_below_the_claim_of_the_proof(actions):
    """|B| ≤ ¼ + log(K−1)/(6√3), on a fine grid of (s, m, n) and every corner 0 ≤ h ≤ log(K−1) of the entropies."""
    most, grid = np.log(actions - 1), np.linspace(1e-6, 1.0, 400)
    s, m = np.meshgrid(grid, np.concatenate([[0.0], grid]) if actions > 2 else np.zeros(1))
    n = 1.0 - s - m
    s, m, n = (x[n > 0.0] for x in (s, m, n))
    log_m = np.log(np.where(m > 0.0, m, 1.0))
    for h in [(i * most, j * most, k * most) for i in (0, 1) for j in (0, 1) for k in (0, 1)]:
        inner = (1 - 2 * s) * (np.log(s) - h[0]) - 2 * m * (log_m - h[1]) + (1 - 2 * n) * (np.log(n) - h[2])
        assert np.abs(s * n * (1 + inner)).max() <= 0.25 + most / (6 * np.sqrt(3)) + 1e-12


@given(moves(sizes=(3,)), st.floats(0.001, 0.999))
def test_below_the_certified_step_size_the_sign_is_the_predicted_one(move, share):
    logits, direction = move
    eta = theory.certified_step_size(logits, direction)
    if not 0.0 < eta < jnp.inf or share * eta * abs(theory.lemma_1(logits, direction)) < 1e-290:
        return
    step = share * eta * direction
    assert jnp.sign(change(logits, step).entropy_change) == jnp.sign(theory.lemma_1(logits, direction))


def test_the_certified_step_size_at_its_ends():
    assert theory.certified_step_size(LOGITS, jnp.full(4, 3.0)) == jnp.inf
    assert theory.certified_step_size(jnp.zeros(4), REWARDS) == 0.0
    eta = theory.certified_step_size(LOGITS, REWARDS)
    bound = theory.remainder_bound(LOGITS, eta * REWARDS)
    assert jnp.isclose(abs(theory.lemma_1(LOGITS, eta * REWARDS)), bound, rtol=1e-14, atol=0.0)


def test_the_natural_path_is_the_start_tilted_by_the_reward():
    tilted = PI * jnp.exp(2.5 * REWARDS)
    assert jnp.allclose(probs(formulas.natural_path(LOGITS, REWARDS, 2.5)), tilted / tilted.sum(), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("time", [0.0, 0.7, 5.0])
def test_the_rate_of_entropy_on_the_natural_path_is_its_derivative(time):
    rate = compiled(jax.grad(lambda t: policy.entropy(formulas.natural_path(LOGITS, REWARDS, t))))(time)
    assert jnp.isclose(theory.natural_entropy_rate(LOGITS, REWARDS, time), rate, rtol=1e-12, atol=0.0)


def test_from_the_uniform_policy_entropy_falls_all_along_the_natural_path():
    rates = jnp.stack([theory.natural_entropy_rate(jnp.zeros(4), REWARDS, t) for t in (0.0, 1e-3, 1.0, 50.0)])
    assert rates[0] == 0.0
    assert (rates[1:] < 0.0).all()


def test_from_another_policy_entropy_may_rise_first():
    wrong_peak = jnp.log(jnp.array([0.9, 0.05, 0.05]))
    assert theory.natural_entropy_rate(wrong_peak, jnp.array([0.0, 1.0, 0.0]), 0.0) > 0.0


def test_masked_actions_do_not_disturb_the_natural_path():
    masked = theory.natural_entropy_rate(jnp.append(LOGITS, -jnp.inf), jnp.append(REWARDS, 9.0), 0.5)
    assert jnp.isclose(masked, theory.natural_entropy_rate(LOGITS, REWARDS, 0.5), rtol=8 * EPS, atol=0.0)


BINARY = jnp.array([1.0, 1.0, 0.0, 0.0])


def within(actions):
    inside = PI[actions] / PI[actions].sum()
    return -jnp.sum(inside * jnp.log(inside))


RIGHT, WRONG = within(jnp.array([0, 1])), within(jnp.array([2, 3]))


@pytest.mark.parametrize("time", [-4.0, 0.0, 1.5, 30.0])
def test_with_a_binary_reward_the_entropy_is_a_function_of_the_success_probability(time):
    logits = formulas.natural_path(LOGITS, BINARY, time)
    formula = formulas.binary_reward_entropy(probs(logits) @ BINARY, RIGHT, WRONG)
    assert jnp.isclose(formula, entropy(logits), rtol=1e-14, atol=0.0)


def test_that_entropy_rises_up_to_its_known_peak_and_ends_inside_the_right_answers():
    curve = lambda p: formulas.binary_reward_entropy(p, RIGHT, WRONG)  # noqa: E731
    peak = jnp.exp(RIGHT) / (jnp.exp(RIGHT) + jnp.exp(WRONG))
    assert abs(jax.grad(curve)(peak)) <= 1e-14
    assert jax.grad(curve)(peak - 0.01) > 0.0 > jax.grad(curve)(peak + 0.01)
    assert jnp.array_equal(curve(jnp.array([1.0, 0.0])), jnp.array([RIGHT, WRONG]))


def test_from_the_uniform_policy_plain_and_natural_pg_share_the_binary_curve():
    uniform, step = jnp.zeros(4), theory.proposition_1(jnp.zeros(4), BINARY, 0.5)
    p = probs(uniform + step) @ BINARY
    formula = formulas.binary_reward_entropy(p, jnp.log(2.0), jnp.log(2.0))
    assert jnp.isclose(entropy(uniform + step), formula, rtol=1e-14, atol=0.0)


CURVATURE = compiled(jax.hessian(policy.entropy))(LOGITS)


def test_noise_of_the_sample_costs_half_the_second_order_under_its_covariance():
    """T12: the mean ΔH over one sampled action less ΔH of the mean step is ½ tr(H'' Cov(step)) + O(η³)."""
    advantage = REWARDS - PI @ REWARDS
    for eta in (1e-3, 1e-4):
        steps = eta * advantage[:, None] * (jnp.eye(4) - PI)
        mean = PI @ steps
        seen = PI @ jnp.stack([entropy_change(LOGITS, d) for d in steps]) - entropy_change(LOGITS, mean)
        spread = (steps - mean).T @ (PI[:, None] * (steps - mean))
        assert seen == pytest.approx(float(0.5 * jnp.sum(CURVATURE * spread)), rel=10.0 * eta)


# The five statements in circulation that are not literally true.


def test_rewarding_an_action_of_above_uniform_probability_may_raise_the_entropy():
    logits = jnp.log(jnp.array([0.7, 0.2] + [0.0125] * 8))
    assert probs(logits)[1] > 1 / 10
    assert theory.sample_effect(logits)[1] > 0.0
    assert entropy_change(logits, 1e-3 * (jnp.eye(10)[1] - probs(logits))) > 0.0


def test_pg_may_raise_the_entropy_although_the_mode_has_nearly_the_highest_reward_and_a_positive_advantage():
    pi, rewards = jnp.array([0.42061, 0.42242, 0.15697]), jnp.array([0.0307, 0.8972, 0.8774])
    logits = jnp.log(pi)
    assert jnp.argmax(pi) == jnp.argmax(rewards)
    assert theory.theorem_1(logits, rewards - pi @ rewards, 1.0) > 0.0
    assert entropy_change(logits, theory.proposition_1(logits, rewards, 0.1)) > 0.0


def test_the_covariances_of_pg_and_npg_may_differ_in_sign():
    pi, rewards = jnp.array([0.504, 0.063, 0.063, 0.370]), jnp.array([1.0, 1.0, 1.0, 0.0])
    logits, advantage = jnp.log(pi), rewards - pi @ rewards
    assert theory.theorem_1(logits, advantage, 1.0) * theory.theorem_2(logits, advantage, 1.0) < 0.0


def test_theorem_1_with_raw_rewards_has_the_wrong_sign_for_a_large_baseline():
    advantage = REWARDS - PI @ REWARDS
    truth, printed = theory.theorem_1(LOGITS, advantage, 1.0), theory.theorem_1(LOGITS, advantage - 10.0, 1.0)
    change = entropy_change(LOGITS, theory.proposition_1(LOGITS, advantage - 10.0, 1e-3))
    assert jnp.sign(change) == jnp.sign(truth) != jnp.sign(printed)


@pytest.mark.parametrize(
    ("pi", "action", "factor"), [([0.8, 0.2], 0, 2.0), ([0.8, 0.2], 1, 2.0), ([0.97] + [0.001] * 30, 1, 30.0)]
)
def test_freezing_the_other_logits_misses_the_effect_of_a_sample_at_first_order(pi, action, factor):
    logits = jnp.log(jnp.array(pi))
    p = softmax(logits)
    frozen = -(1.0 - p.prob[action]) * p.prob[action] * p.centred_log_prob[action]
    assert theory.sample_effect(logits)[action] / frozen == pytest.approx(factor, rel=0.05)
    errors = [entropy_change(logits, eta * (jnp.eye(len(pi))[action] - p.prob)) - eta * frozen for eta in ETA]
    assert abs(order(ETA, errors) - 1.0) <= 0.05


def test_the_two_printed_forms_of_the_law_contradict_each_other():
    """R = −a exp(H) + b is b − a at H = 0; exp(H + b) in its place would leave no b to be added."""
    a, b, h = 0.3, 1.2, 0.8
    assert -a * np.exp(0.0) + b == b - a
    assert -a * np.exp(h + b) != pytest.approx(-a * np.exp(h) + b, rel=0.1)
