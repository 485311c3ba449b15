"""Controllers: their numbers from step to step by a second road, and where the loop that they close ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, simulate
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.interventions import (
    AdaptiveKL,
    Entrocraft,
    EntroPIC,
    EntroPICReleased,
    EntropyBonus,
    PositiveReweighting,
    ProRL,
    ReferenceKL,
    Scheduled,
    TargetEntropy,
)
from softmaxdyn.tokens import plain_push
from tests.faces import BANDIT, NOW, OLD, REFERENCE, direction, population, softmax, standard_errors_apart
from tests.test_fields import FIELDS, PENALTIES
from tests.test_gates import GATES
from tests.test_reweighting import REWEIGHTINGS, some_tokens

CONTROLLERS = [
    Scheduled(EntropyBonus(0.3), EntropyBonus(0.0), steps=5.0),
    TargetEntropy(2.0, coefficient=0.3),
    EntroPIC(coefficient=-0.4),
    EntroPICReleased(coefficient=-0.4, threshold=0.3),
    ProRL(0.3, stage=2.0),
    AdaptiveKL(0.3, reference=OLD.logits),
]
seeds = st.integers(0, 2**32 - 1)
named = {"ids": lambda part: type(part).__name__}


def with_entropy(value):
    """Tokens of a log whose mean entropy is `value`."""
    return some_tokens(np.random.default_rng(0))._replace(entropy=jnp.full(24, float(value)))


def run(part, entropies):
    """The coefficients of a controller that saw these mean entropies, the first one before it saw any."""
    found = [float(part.coefficient)]
    for value in entropies:
        part = part.next(with_entropy(value), NOW)
        found.append(float(part.coefficient))
    return found


def score_of(part, tokens):
    """The scores after `part`."""
    return part(None, tokens, None, plain_push(tokens, (1, 1))).score


@pytest.mark.parametrize("part", CONTROLLERS, **named)
def test_a_large_sample_pushes_like_the_population(part):
    assert np.abs(standard_errors_apart(part.init(jnp.asarray(REFERENCE)))).max() < 4.0


@pytest.mark.parametrize(
    ("estimator", "dtype"), [(Sampled(4, 4), jnp.float32), (Exact(), jnp.float64)], ids=["sampled f32", "exact f64"]
)
def test_everything_together_keeps_the_dtype_of_the_run(estimator, dtype):
    algorithm = Algorithm(VanillaPG(0.1), estimator, (*REWEIGHTINGS, *PENALTIES, *FIELDS, *CONTROLLERS, *GATES[:3]))
    start = jnp.asarray(OLD.logits, dtype)
    trace = simulate(BANDIT, algorithm, num_steps=3, inner_steps=2, logits=start, key=jax.random.key(0))
    assert trace.logits.dtype == dtype
    assert np.isfinite(trace.logits).all()


def test_a_schedule_goes_in_a_line_and_stays_at_its_end():
    part = Scheduled(EntropyBonus(0.5), EntropyBonus(0.1), steps=4.0).init(OLD.logits)
    found = []
    for _ in range(6):
        found.append(float(part.now().coefficient))
        part = part.next(population(), NOW)
    np.testing.assert_allclose(found, [0.5, 0.4, 0.3, 0.2, 0.1, 0.1], rtol=1e-15)


def test_a_schedule_acts_like_its_intervention():
    tokens = population()
    part = Scheduled(EntropyBonus(0.5), EntropyBonus(0.1), steps=4.0).init(OLD.logits).next(tokens, NOW)
    np.testing.assert_allclose(direction(part, tokens), direction(EntropyBonus(0.4), tokens), rtol=1e-14, atol=1e-16)
    assert (part.scope, part.kind) == (EntropyBonus.scope, EntropyBonus.kind)


def test_a_schedule_moves_every_number_and_keeps_what_is_equal():
    ends = ReferenceKL(0.4, OLD.logits.at[0, 3].set(-jnp.inf)), ReferenceKL(0.0, OLD.logits.at[0, 3].set(-jnp.inf))
    middle = Scheduled(*ends, steps=2.0).next(population(), NOW).now()
    np.testing.assert_allclose(middle.coefficient, 0.2, rtol=1e-15)
    np.testing.assert_array_equal(middle.reference, ends[0].reference)
    band = Scheduled(Entrocraft(0.6, 0.7), Entrocraft(0.4, 0.5), steps=2.0).next(population(), NOW).now()
    np.testing.assert_allclose([band.low, band.high], [0.5, 0.6], rtol=1e-15)


def test_a_schedule_fills_in_the_start_as_reference():
    part = Scheduled(ReferenceKL(0.4), ReferenceKL(0.0), steps=2.0).init(OLD.logits)
    np.testing.assert_array_equal(part.now().reference, OLD.logits)


def test_target_entropy_goes_one_gain_a_step_within_its_bounds():
    """As released: up below the target, else down, clipped."""
    found = run(TargetEntropy(0.2, gain=0.005, most=0.012), [0.1, 0.1, 0.1, 0.2, 0.3, 0.3, 0.3])
    np.testing.assert_allclose(found, [0.0, 0.005, 0.01, 0.012, 0.007, 0.002, 0.0, 0.0], rtol=1e-12, atol=1e-17)


@pytest.mark.parametrize(("entropy_target", "acts"), [(0.5, False), (2.0, True)])
def test_target_entropy_acts_only_below_its_target(entropy_target, acts):
    tokens = population()
    pushed = direction(TargetEntropy(entropy_target, coefficient=0.3), tokens)
    expected = direction(EntropyBonus(0.3 if acts else 0.0), tokens)
    np.testing.assert_allclose(pushed, expected, rtol=1e-14, atol=1e-17)


def test_target_entropy_holds_the_entropy_near_its_target():
    algorithm = Algorithm(VanillaPG(0.5), interventions=(TargetEntropy(0.6, gain=0.005),))
    trace = simulate(Bandit([1.0, 0.0, 0.4]), algorithm, num_steps=1500, every=100)
    plain = simulate(Bandit([1.0, 0.0, 0.4]), Algorithm(VanillaPG(0.5)), num_steps=1500, every=100)
    np.testing.assert_allclose(trace.entropy[5:], 0.6, atol=0.05)
    assert (plain.entropy[5:] < 0.1).all()


@given(entropies=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=6))
def test_entropic_is_a_pi_controller_whose_sum_lags_by_one_step(entropies):
    errors = np.array(entropies) - 0.7
    expected = [np.clip(0.9 * e + 0.2 * errors[:i].sum(), -1.0, 1.0) for i, e in enumerate(errors)]
    found = run(EntroPIC(0.7, proportional=0.9, integral=0.2), entropies)
    np.testing.assert_allclose(found, [0.0, *expected], rtol=1e-12, atol=1e-14)


@given(alpha=st.floats(-1.0, 1.0), seed=seeds)
def test_entropic_weighs_the_signs_one_up_one_down(alpha, seed):
    tokens = some_tokens(np.random.default_rng(seed))
    factor = jnp.where(tokens.advantage > 0.0, 1.0 + alpha, 1.0 - alpha)
    np.testing.assert_allclose(
        score_of(EntroPIC(coefficient=alpha), tokens), factor * plain_push(tokens, (1, 1)).score, rtol=1e-13
    )


@given(alpha=st.floats(-1.0, 1.0))
def test_entropic_moves_along_policy_gradient_at_speed_1_plus_alpha_1_minus_2p(alpha):
    """T16; as |α| ≤ 1 it never turns back: it can hold an entropy only by standing still."""
    reward, policy = jnp.array([[1.0, 0.0, 1.0, 0.0]]), softmax(OLD.logits[:1])
    p = jnp.sum(policy.prob * reward)
    pushed = direction(EntroPIC(coefficient=alpha), population(policy, policy, Bandit(reward)), policy)
    speed = 1.0 + alpha * (1.0 - 2.0 * p)
    assert speed >= 0.0
    np.testing.assert_allclose(pushed, speed * policy.prob * (reward - p), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("seed", range(4))
def test_the_released_entropic_term_is_minus_the_slope_of_its_loss(seed):
    """α times the mean of −r |A| over the tokens with π above the threshold."""
    tokens = some_tokens(np.random.default_rng(seed))
    valid = np.asarray(tokens.weight > 0.0)
    sure = valid & np.asarray(tokens.log_prob > np.log(0.3))

    def loss(log_prob):
        r = jnp.exp(log_prob - tokens.old_log_prob)
        plain = jnp.mean(-r * tokens.advantage, where=valid)
        return plain - 0.4 * jnp.mean(-r * jnp.abs(tokens.advantage), where=sure)

    score = score_of(EntroPICReleased(coefficient=-0.4, threshold=0.3), tokens)
    np.testing.assert_allclose(
        score[valid] / valid.sum(), -jax.grad(loss)(tokens.log_prob)[valid], rtol=1e-12, atol=1e-15
    )


def test_without_sure_tokens_the_released_term_is_nothing():
    tokens = population()
    push = plain_push(tokens, (3, 4))
    np.testing.assert_array_equal(EntroPICReleased(coefficient=0.5)(None, tokens, NOW, push).score, push.score)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_resets_of_the_reference_follow_natural_pg(stages):
    """T17: M converged stages end at π ∝ π_0 e^{Mr/β}. A natural step of 1/β converges at once."""
    rewards, start = np.array([1.0, 0.0, 0.4]), np.array([[0.2, 0.9, -0.5]])
    algorithm = Algorithm(NaturalPG(2.0), interventions=(ProRL(0.5, stage=1.0),))
    trace = simulate(Bandit(rewards), algorithm, num_steps=stages, logits=start)
    expected = jax.nn.softmax(start + stages * rewards / 0.5)
    np.testing.assert_allclose(jax.nn.softmax(trace.logits), expected, rtol=1e-12)


def test_a_stage_of_policy_gradient_converges_before_the_reset():
    rewards, start = np.array([1.0, 0.0, 0.4]), np.array([[0.2, 0.9, -0.5]])
    algorithm = Algorithm(VanillaPG(2.0), interventions=(ProRL(1.0, stage=200.0),))
    trace = simulate(Bandit(rewards), algorithm, num_steps=600, logits=start)
    np.testing.assert_allclose(jax.nn.softmax(trace.logits), jax.nn.softmax(start + 3.0 * rewards), rtol=1e-9)


def test_without_a_reset_prorl_is_the_reference_kl():
    tokens = population()
    part = ProRL(0.3, REFERENCE, stage=3.0)
    for _ in range(2):
        np.testing.assert_array_equal(direction(part, tokens), direction(ReferenceKL(0.3, REFERENCE), tokens))
        part = part.next(tokens, NOW)
    np.testing.assert_array_equal(part.next(tokens, NOW).reference, NOW.logits)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Scheduled(EntropyBonus(), PositiveReweighting()),
            "Scheduled goes from .*; wanted two interventions of one",
        ),
        (lambda: Scheduled(1.0, 2.0), "Scheduled goes from 1.0 to 2.0; wanted two interventions of one class"),
        (lambda: Scheduled(EntroPIC(), EntroPIC()), "Scheduled cannot move EntroPIC, which moves its own numbers"),
        (lambda: Scheduled(EntropyBonus(), EntropyBonus(), 0.0), "steps is 0.0; wanted a finite number > 0"),
        (lambda: TargetEntropy(least=1.0, most=0.0), "least is 1.0 and most is 0.0; wanted least ≤ most"),
        (lambda: TargetEntropy(gain=-1.0), "gain is -1.0; wanted a finite number ≥ 0"),
        (lambda: EntroPIC(coefficient=2.0), r"coefficient is 2.0; wanted a finite number in \[-1, 1\]"),
        (lambda: EntroPICReleased(threshold=95.0), r"threshold is 95.0; wanted a finite number in \[0, 1\]"),
        (lambda: ProRL(stage=0.0), "stage is 0.0; wanted a finite number ≥ 1"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
