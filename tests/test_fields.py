"""Fields and KL penalties: the recorded numbers, the slopes they stand for, and the policies they end at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, simulate
from softmaxdyn.interventions import (
    AbsPenalty,
    AbsPlusPenalty,
    AdaptiveKL,
    EntropyBonus,
    K1Penalty,
    K1PlusPenalty,
    K2Penalty,
    K3Penalty,
    K3PenaltyReleased,
    K3PlusPenalty,
    LogBarrier,
    ReferenceKL,
    RewardKL,
)
from softmaxdyn.policy import entropy, kl_divergence
from softmaxdyn.tokens import gradient, plain_push, state_mass
from tests.faces import BANDIT, NOW, OLD, REFERENCE, direction, population, softmax, standard_errors_apart
from tests.golden import array, cases
from tests.test_reweighting import some_tokens

KINDS = {
    "k1": K1Penalty(),
    "kl": K1Penalty(),
    "abs": AbsPenalty(),
    "k2": K2Penalty(),
    "mse": K2Penalty(),
    "k3": K3PenaltyReleased(),
    "low_var_kl": K3PenaltyReleased(),
    "k1+": K1PlusPenalty(),
    "kl+": K1PlusPenalty(),
    "abs+": AbsPlusPenalty(),
    "k2+": K2Penalty(),
    "mse+": K2Penalty(),
    "k3+": K3PlusPenalty(),
    "low_var_kl+": K3PlusPenalty(),
}
PENALTIES = [
    K1Penalty(0.3, REFERENCE),
    AbsPenalty(0.3, REFERENCE),
    K2Penalty(0.3, REFERENCE),
    K3Penalty(0.3, REFERENCE),
    K3PenaltyReleased(0.3, REFERENCE),
    K3PlusPenalty(0.3, REFERENCE),
    RewardKL(0.3, REFERENCE),
]
FIELDS = [
    EntropyBonus(0.3),
    LogBarrier(0.3),
    ReferenceKL(0.3, REFERENCE),
    AdaptiveKL(0.3, reference=OLD.logits),
]
seeds = st.integers(0, 2**32 - 1)
logit_rows = st.lists(st.floats(-4.0, 4.0), min_size=4, max_size=4)
named = {"ids": lambda part: type(part).__name__}


def only(part, tokens, policy):
    """The direction of `part` alone: that of the tokens with it less that without."""
    return direction(part, tokens._replace(advantage=jnp.zeros_like(tokens.advantage)), policy)


def at_rest(logits, rewards, part):
    """The whole direction of exact policy gradient with `part` at softmax(logits)."""
    policy = softmax(jnp.atleast_2d(logits))
    return direction(part, population(policy, policy, Bandit(rewards)), policy)


@cases("kl_penalty")
def test_kl_penalties_are_those_of_the_release(case):
    part, inputs = KINDS[case["inputs"]["kind"]], case["inputs"]
    x = jnp.asarray(array(inputs["log_prob"]) - array(inputs["ref_log_prob"]))
    np.testing.assert_allclose(part.value(x), array(case["outputs"]["value"]), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(part.slope(x), array(case["outputs"]["grad_log_prob"]), rtol=1e-12, atol=1e-300)


@cases("entropy")
def test_entropies_and_their_bonus_are_those_of_the_release(case):
    """The release subtracts: its entropy may be negative, or NaN where a logit is −inf; ours is right there."""
    logits = np.array([[[float(x) for x in token] for token in row] for row in case["inputs"]["logits"]])
    mask, (rows, columns, actions) = array(case["inputs"]["response_mask"]), logits.shape
    length = mask.sum(-1, keepdims=True)
    share = {
        "token-mean": mask / mask.sum(),
        "seq-mean-token-mean": mask / np.maximum(length, 1.0) / np.sum(length > 0.0),
    }[case["inputs"]["loss_agg_mode"]].ravel()
    policy = softmax(jnp.asarray(logits.reshape(-1, actions)))
    tokens = population(policy, policy, Bandit(np.zeros((rows * columns, actions)), weights=np.maximum(share, 0.0)))
    slope = jax.jit(direction)(EntropyBonus(1.0), tokens, policy).reshape(logits.shape)
    if np.isinf(logits).any():
        np.testing.assert_allclose(policy.entropy, np.log(2.0), rtol=1e-15)
        np.testing.assert_array_equal(slope, 0.0)
        return
    assert (policy.entropy >= 0.0).all()
    np.testing.assert_allclose(policy.entropy, array(case["outputs"]["token_entropy"]).ravel(), rtol=1e-12, atol=5e-13)
    np.testing.assert_allclose(share @ policy.entropy, case["outputs"]["entropy_loss"], rtol=1e-12, atol=5e-13)
    np.testing.assert_allclose(slope, np.array(case["outputs"]["grad_logits"]), rtol=1e-12, atol=5e-13)


def test_every_documented_kind_runs():
    tokens = population()
    for part in KINDS.values():
        assert jnp.isfinite(part.init(OLD.logits)(None, tokens, NOW, plain_push(tokens, (3, 4))).score).all()


def test_the_released_k3_lets_go_where_the_policy_drifted_the_most():
    x = jnp.array([-2.610, -2.611, -2.7, 10.99, 11.0])
    np.testing.assert_array_equal(K3PenaltyReleased().slope(x) == 0.0, [False, True, True, False, True])
    np.testing.assert_allclose(K3Penalty().slope(jnp.array(-2.7)), 1.0 - np.exp(2.7), rtol=1e-15)


@pytest.mark.parametrize("part", [K1Penalty(), AbsPenalty(), K2Penalty(), K3Penalty()], **named)
@given(x=st.floats(-30.0, 30.0, allow_subnormal=False))
def test_the_slope_of_a_penalty_is_that_of_its_value(part, x):
    expected = jax.grad(lambda x: part.value(x))(x) if x else {AbsPenalty: 0.0, K1Penalty: 1.0}.get(type(part), 0.0)
    np.testing.assert_allclose(part.slope(jnp.float64(x)), expected, rtol=1e-12, atol=1e-15)


@given(seed=seeds)
def test_a_penalty_takes_its_slope_from_the_score(seed):
    tokens = population(softmax(jnp.asarray(np.random.default_rng(seed).standard_normal((3, 4)))))
    x = tokens.log_prob - jax.nn.log_softmax(jnp.asarray(REFERENCE)).ravel()
    loss = jax.grad(lambda step: jnp.sum(0.3 * (jnp.exp(-step - x) - 1.0 + step + x)))
    push = K3Penalty(0.3, REFERENCE)(None, tokens, None, plain_push(tokens, (3, 4)))
    np.testing.assert_allclose(push.score - plain_push(tokens, (3, 4)).score, -loss(0.0 * x), rtol=1e-9, atol=1e-12)


def divergence_slope(direction_of_kl):
    """Σ_s d(s) ∂KL/∂z at OLD by autodiff; `direction_of_kl(z, ref)` is the divergence of each state."""
    weights = jnp.asarray(BANDIT.weights)
    return jax.grad(lambda z: jnp.sum(weights * direction_of_kl(z, jnp.asarray(REFERENCE))))(OLD.logits)


@pytest.mark.parametrize(
    ("part", "slope"),
    [
        (K1Penalty(0.3, REFERENCE), lambda: jnp.zeros((3, 4))),
        (K2Penalty(0.3, REFERENCE), lambda: divergence_slope(kl_divergence)),
        (K3Penalty(0.3, REFERENCE), lambda: divergence_slope(lambda z, ref: kl_divergence(ref, z))),
        (RewardKL(0.3, REFERENCE), lambda: divergence_slope(kl_divergence)),
        (ReferenceKL(0.3, REFERENCE), lambda: divergence_slope(kl_divergence)),
    ],
    ids=["k1: nothing", "k2: KL(π‖ref)", "k3: KL(ref‖π)", "in the reward: KL(π‖ref)", "exact: KL(π‖ref)"],
)
def test_the_mean_gradient_over_all_actions_on_policy(part, slope):
    np.testing.assert_allclose(only(part, population(OLD), OLD), -0.3 * slope(), rtol=1e-12, atol=1e-16)


def test_the_mean_gradient_of_k3_is_reference_minus_policy():
    expected = jnp.asarray(BANDIT.weights)[:, None] * 0.3 * (jax.nn.softmax(jnp.asarray(REFERENCE)) - OLD.prob)
    np.testing.assert_allclose(only(K3Penalty(0.3, REFERENCE), population(OLD), OLD), expected, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (EntropyBonus(0.3), lambda z: -entropy(z)),
        (LogBarrier(0.3), lambda z: -jnp.mean(jax.nn.log_softmax(z), -1)),
        (AdaptiveKL(0.3, reference=OLD.logits), lambda z: kl_divergence(OLD.logits, z)),
    ],
    ids=["EntropyBonus", "LogBarrier", "AdaptiveKL"],
)
def test_a_field_is_minus_the_slope_of_what_it_penalises(part, value):
    slope = jax.grad(lambda z: jnp.sum(jnp.asarray(BANDIT.weights) * value(z)))(NOW.logits)
    np.testing.assert_allclose(only(part, population(), NOW), -0.3 * slope, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("part", [*PENALTIES, *FIELDS], **named)
def test_a_large_sample_pushes_like_the_population(part):
    assert np.abs(standard_errors_apart(part)).max() < 4.0


@pytest.mark.parametrize("part", [type(part)(0.0) for part in [*PENALTIES, *FIELDS]], **named)
def test_no_strength_changes_nothing_to_the_bit(part):
    tokens = population()
    before = plain_push(tokens, (3, 4))
    after = part.init(OLD.logits)(None, tokens, NOW, before)
    np.testing.assert_array_equal(after.score, before.score)
    np.testing.assert_array_equal(after.field, before.field)


@pytest.mark.parametrize(
    "part", [ReferenceKL(0.3), AdaptiveKL(0.3), K2Penalty(0.3), K3Penalty(0.3), RewardKL(0.3)], **named
)
def test_nothing_pulls_at_the_reference_itself(part):
    tokens = population(OLD)
    before = plain_push(tokens, (3, 4))
    after = part.init(OLD.logits)(None, tokens, OLD, before)
    np.testing.assert_array_equal(after.field, 0.0)
    np.testing.assert_allclose(after.score, before.score, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("part", [*PENALTIES, *FIELDS], **named)
def test_a_constant_shift_of_the_logits_changes_nothing(part):
    shifted = softmax(NOW.logits + jnp.array([[3.0], [-7.0], [40.0]]))
    np.testing.assert_allclose(
        only(part, population(shifted), shifted), only(part, population(), NOW), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("part", [type(part)(0.3) for part in [*PENALTIES, *FIELDS]], **named)
def test_pushes_stay_finite_at_log_ratios_of_800_and_probability_0(part):
    policy = softmax(jnp.array([[0.0, -800.0, 1.0, -jnp.inf]]))
    before = softmax(jnp.array([[-800.0, 0.0, -1.0, -jnp.inf]]))
    pushed = direction(part.init(before.logits), population(policy, before, Bandit([1.0, 0.0, 0.5, 0.2])), policy)
    assert jnp.isfinite(pushed).all()
    assert pushed[0, 3] == 0.0


@pytest.mark.parametrize(
    "part", [ReferenceKL(0.5, REFERENCE), K2Penalty(0.5, REFERENCE), K3Penalty(0.5, REFERENCE)], **named
)
def test_a_positive_coefficient_lowers_the_divergence(part):
    """Even where all rewards are equal, and then it is all that moves."""
    bandit = Bandit(np.full((3, 4), 0.7))
    step = 0.1 * direction(part, population(OLD, OLD, bandit), OLD)
    assert (
        kl_divergence(OLD.logits + step, jnp.asarray(REFERENCE)) < kl_divergence(OLD.logits, jnp.asarray(REFERENCE))
    ).all()


@given(rewards=logit_rows, alpha=st.floats(0.05, 2.0))
def test_policy_gradient_with_an_entropy_bonus_rests_at_the_boltzmann_policy(rewards, alpha):
    """T17: π ∝ e^{r/α}."""
    r = jnp.array(rewards)
    np.testing.assert_allclose(at_rest(r / alpha, r, EntropyBonus(alpha)), 0.0, atol=1e-14)


@given(rewards=logit_rows, reference=logit_rows, beta=st.floats(0.05, 2.0))
def test_policy_gradient_with_a_reference_kl_rests_at_the_tilted_reference(rewards, reference, beta):
    """T17: π ∝ π_ref e^{r/β}."""
    r, z = jnp.array(rewards), jnp.array(reference)
    np.testing.assert_allclose(at_rest(z + r / beta, r, ReferenceKL(beta, z)), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("part", "tilt"),
    [(EntropyBonus(0.5), lambda z: 0.0 * z), (ReferenceKL(0.5), lambda z: z)],
    ids=["entropy bonus", "reference KL"],
)
def test_policy_gradient_goes_to_where_it_rests(part, tilt):
    rewards, start = np.array([1.0, 0.0, 0.4]), np.array([[0.2, 0.9, -0.5]])
    trace = simulate(Bandit(rewards), Algorithm(VanillaPG(2.0), interventions=(part,)), num_steps=400, logits=start)
    expected = jax.nn.softmax(tilt(start) + rewards / 0.5)
    np.testing.assert_allclose(jax.nn.softmax(trace.logits), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("part", "tilt"),
    [(EntropyBonus(0.5), lambda z: 0.0 * z), (ReferenceKL(0.5), lambda z: z)],
    ids=["entropy bonus", "reference KL"],
)
def test_one_natural_step_of_one_over_the_coefficient_goes_there_at_once(part, tilt):
    rewards, start = np.array([1.0, 0.0, 0.4]), np.array([[0.2, 0.9, -0.5]])
    trace = simulate(Bandit(rewards), Algorithm(NaturalPG(2.0), interventions=(part,)), num_steps=1, logits=start)
    np.testing.assert_allclose(jax.nn.softmax(trace.logits), jax.nn.softmax(tilt(start) + rewards / 0.5), rtol=1e-13)


def test_policy_gradient_with_a_log_barrier_rests_where_its_closed_form_says():
    """π_a = (λ/K)/(λ + J − r_a), J by bisection of Σ π = 1."""
    rewards, weight = np.array([1.0, 0.0, 0.4]), 0.05
    low, high = rewards.max() - weight * (1.0 - 1.0 / 3.0), rewards.max()
    for _ in range(200):
        value = 0.5 * (low + high)
        low, high = (value, high) if np.sum(weight / 3.0 / (weight + value - rewards)) > 1.0 else (low, value)
    policy = weight / 3.0 / (weight + value - rewards)
    np.testing.assert_allclose(policy @ rewards, value, rtol=1e-12)
    np.testing.assert_allclose(at_rest(np.log(policy), rewards, LogBarrier(weight)), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.1, 2.0), (0.0151, 2.0), (0.0149, 1.0), (0.0068, 1.0), (0.0065, 0.5), (0.0, 0.5)]
)
def test_the_adaptive_coefficient_doubles_and_halves_outside_its_band(kl, factor):
    """Two actions, π_old even: KL(π_old‖π) = log cosh(x/2) for a logit gap of x."""
    gap = 2.0 * np.arccosh(np.exp(kl))
    policy, old = softmax(jnp.array([[gap, 0.0]])), softmax(jnp.zeros((1, 2)))
    tokens = population(policy, old, Bandit([1.0, 0.0]))
    after = AdaptiveKL(3.0, target=0.01).init(old.logits).next(tokens, policy)
    np.testing.assert_allclose(after.coefficient, 3.0 * factor, rtol=1e-15)
    np.testing.assert_array_equal(after.reference, policy.logits)


def test_the_adaptive_penalty_is_a_no_op_to_the_bit_on_the_first_inner_step_of_every_step():
    plain = simulate(BANDIT, Algorithm(VanillaPG(0.5)), num_steps=5, logits=OLD.logits)
    with_it = simulate(
        BANDIT, Algorithm(VanillaPG(0.5), interventions=(AdaptiveKL(50.0),)), num_steps=5, logits=OLD.logits
    )
    np.testing.assert_array_equal(with_it.logits, plain.logits)


def test_the_adaptive_penalty_holds_the_step_near_its_target():
    algorithm = Algorithm(VanillaPG(0.5), interventions=(AdaptiveKL(1.0, target=1e-3),))
    trace = simulate(Bandit([1.0, 0.0, 0.4]), algorithm, num_steps=40, inner_steps=16)
    kl = np.asarray(trace.kl)[10:, 0]
    assert np.median(kl) < 3e-3
    assert np.median(kl) > 3e-4


def test_an_adaptive_coefficient_of_zero_stays_zero():
    part = AdaptiveKL(0.0).init(OLD.logits)
    assert part.next(population(), NOW).coefficient == 0.0


@pytest.mark.parametrize("part", [ReferenceKL(), K2Penalty(), RewardKL(), AdaptiveKL()], **named)
def test_a_reference_is_needed(part):
    tokens = population()
    with pytest.raises(InputError, match="has no reference; pass reference=logits or call init"):
        part(None, tokens, NOW, plain_push(tokens, (3, 4)))


@pytest.mark.parametrize("part", FIELDS, **named)
def test_a_field_takes_a_whole_policy(part):
    tokens = population()
    with pytest.raises(InputError, match="adds to all actions of a state; a log holds one a token"):
        part(None, tokens, None, plain_push(tokens, (3, 4)))


def test_a_reference_of_one_row_serves_a_bandit_of_one_context():
    start = jnp.array([[0.2, 0.9, -0.5]])
    assert ReferenceKL(reference=[1.0, 2.0, 3.0]).init(start).reference.shape == (1, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ReferenceKL(reference=jnp.zeros(3)).init(OLD.logits),
            "reference has shape .*; wanted logits of shape",
        ),
        (
            lambda: ReferenceKL(reference=jnp.zeros((2, 4))).init(OLD.logits),
            r"reference has shape \(2, 4\); wanted logits of shape \(3, 4\)",
        ),
        (
            lambda: K2Penalty(reference=OLD.logits.at[0, 0].set(-jnp.inf)).init(OLD.logits),
            "reference masks an action that the policy can take, so the KL is infinite; unmask it",
        ),
        (lambda: EntropyBonus(float("nan")), "coefficient is nan; wanted a finite number"),
        (lambda: LogBarrier(-1.0), "coefficient is -1.0; wanted a finite number ≥ 0"),
        (lambda: AdaptiveKL(target=0.0), "target is 0.0; wanted a finite number > 0"),
        (lambda: AdaptiveKL(-1.0), "coefficient is -1.0; wanted a finite number ≥ 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_field_weighs_each_row_by_its_states_tokens():
    tokens = some_tokens(np.random.default_rng(0))
    push = EntropyBonus(1.0)(None, tokens, softmax(jnp.array([[1.0, 0.0]])), plain_push(tokens, (1, 2)))
    single = softmax(jnp.array([[1.0, 0.0]]))
    expected = -jnp.sum(tokens.weight) * single.prob * single.centred_log_prob
    np.testing.assert_allclose(push.field, expected, rtol=1e-12)
    np.testing.assert_allclose(state_mass(tokens, 1), [jnp.sum(tokens.weight)], rtol=1e-12)
    assert gradient(tokens, push, single).shape == (1, 2)
