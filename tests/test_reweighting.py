"""Reweightings: STEER's forms and the exact score, and the weights that know only the reward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, VanillaPG, simulate
from softmaxdyn.estimators import OffPolicy, Sampled
from softmaxdyn.interventions import (
    LUFFY,
    REPO,
    EntropyAwareAdvantage,
    EntropyBonus,
    PositiveReweighting,
    REPORescaled,
    Stare,
    Steer,
    SteerExact,
    SteerReleased,
    SteerReleasedLinear,
)
from softmaxdyn.interventions.gates import centred_entropy_score, entropy_score
from softmaxdyn.interventions.reweighting import damping, unclipped_loss
from softmaxdyn.tokens import Tokens, plain_push
from tests.faces import NOW, OLD, direction, population, softmax, standard_errors_apart

REWEIGHTINGS = [
    Steer(),
    SteerExact(),
    SteerReleased(),
    SteerReleasedLinear(),
    PositiveReweighting(),
    EntropyAwareAdvantage(),
    Stare(target=2.0),
    REPO(0.1),
    REPORescaled(),
    LUFFY(),
]
REWARD_ONLY = [PositiveReweighting(0.3), EntropyAwareAdvantage()]
NO_STRENGTH = [
    Steer(smallest=1.0),
    SteerExact(smallest=1.0),
    SteerReleased(smallest=1.0),
    SteerReleasedLinear(1.0, 1.0),
    PositiveReweighting(1.0),
    EntropyAwareAdvantage(0.0),
    Stare(amplify=1.0, attenuate=1.0, target=9.0),
    Stare(target=0.0),
    REPO(0.0),
    REPORescaled(0.0),
    LUFFY(),
]
seeds = st.integers(0, 2**32 - 1)
named = {"ids": lambda part: type(part).__name__}


def some_tokens(rng, count=24, spread=0.5):
    """Tokens of a log: nobody knows the other actions. A tenth of them are padding, a quarter foreign."""
    log_prob = -rng.exponential(1.5, count)
    weight = np.where(rng.uniform(size=count) < 0.9, 1.0 / count, 0.0)
    group = rng.integers(0, 3, count)
    number = np.arange(count, dtype=np.int32)
    return Tokens(
        state=jnp.zeros(count, jnp.int32),
        action=jnp.zeros(count, jnp.int32),
        weight=jnp.asarray(weight),
        advantage=jnp.asarray(rng.standard_normal(count)),
        log_prob=jnp.asarray(log_prob),
        old_log_prob=jnp.asarray(log_prob + spread * rng.standard_normal(count)),
        entropy=jnp.asarray(rng.uniform(0.0, 2.0, count)),
        reward=jnp.asarray(rng.integers(0, 2, count) * 1.0),
        episode=jnp.asarray(number),
        group=jnp.asarray(np.where(rng.uniform(size=count) < 0.25, -1 - group, group), jnp.int32),
        position=jnp.asarray(number),
    )


@jax.jit
def effects(policy, bandit):
    """(exact, STEER's) first-order effect of each token of the population, per unit of −η w."""
    tokens = population(policy, policy, bandit)
    return centred_entropy_score(tokens, policy, ""), -entropy_score(tokens) * jnp.expm1(tokens.log_prob)


def score_of(part, tokens, key=None, policy=None):
    """The scores after `part`, without a policy unless one is given."""
    return part(key, tokens, policy, plain_push(tokens, (1, 1))).score


def top(values, candidates, count):
    """A mask of the `count` largest of the candidates (NumPy)."""
    order = sorted(np.flatnonzero(candidates), key=lambda i: -values[i])
    return np.isin(np.arange(values.size), order[:count])


def steer_weight(t):
    """The theorem's λ of each token, written out."""
    p, r = np.exp(t.log_prob), np.exp(t.log_prob - t.old_log_prob)
    inside = ~(((t.advantage > 0) & (r > 1.2)) | ((t.advantage < 0) & (r < 0.8)))
    omega = np.abs(inside * r * t.advantage * p * (1 - p) * (t.log_prob + t.entropy))
    return np.exp(np.log(0.7) * omega / omega[t.weight > 0].max())


def released_metric_of(t):
    """The released metric, written out for probabilities above 1e-8."""
    p, old = np.exp(t.log_prob), np.exp(t.old_log_prob)
    return np.abs(t.advantage / old * p * (1 - p) * (np.log(p) + t.entropy))


def steer_released_weight(t):
    """The released λ, exponential mode."""
    m = released_metric_of(t)
    return np.clip(np.exp(np.log(0.8) / max(m[t.weight > 0].max(), 0.02) * m), 0.8, 1.0)


def steer_linear_weight(t):
    """The released λ, linear mode."""
    m = released_metric_of(t)
    low, high = m[t.weight > 0].min(), m[t.weight > 0].max()
    return np.clip(1.2 - (m - low) * 0.4 / (high - low), 0.8, 1.2)


def stare_weight(t):
    """×1.1 for the rarest tenth of the good, ×0.9 for the rarest tenth of the bad."""
    rare = [top(-t.log_prob, (t.weight > 0) & (sign * t.advantage > 0), 1) for sign in (1, -1)]
    return 1.0 + 0.1 * rare[0] - 0.1 * rare[1]


LOSSES = {  # name: loss(log π, weights made beforehand from the numbers, tokens)
    "Steer": (Steer(), steer_weight, lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob) * t.advantage),
    "SteerReleased": (
        SteerReleased(),
        steer_released_weight,
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob) * t.advantage,
    ),
    "SteerReleasedLinear": (
        SteerReleasedLinear(),
        steer_linear_weight,
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob) * t.advantage,
    ),
    "PositiveReweighting": (
        PositiveReweighting(0.3),
        lambda t: np.where(t.advantage > 0, 0.3, 1.0),
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob) * t.advantage,
    ),
    "EntropyAwareAdvantage": (
        EntropyAwareAdvantage(),
        lambda t: t.advantage + np.minimum(0.4 * t.entropy, np.abs(t.advantage) / 2.0),
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob),
    ),
    "Stare": (Stare(target=9.0), stare_weight, lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob) * t.advantage),
    "REPO": (
        REPO(0.05),
        lambda t: t.advantage - 0.05 * (t.log_prob + t.entropy),
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob),
    ),
    "REPORescaled": (
        REPORescaled(0.2),
        lambda t: t.advantage * (1.0 - 0.2 * np.sign(t.advantage) * t.log_prob),
        lambda lp, c, t: -c * jnp.exp(lp - t.old_log_prob),
    ),
    "LUFFY": (
        LUFFY(0.1),
        lambda t: t.group < 0,
        lambda lp, c, t: -t.advantage * jnp.where(c, jnp.exp(lp) / (jnp.exp(lp) + 0.1), jnp.exp(lp - t.old_log_prob)),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_the_score_is_minus_the_slope_of_the_loss(name, seed):
    part, weigh, loss = LOSSES[name]
    tokens = some_tokens(np.random.default_rng(seed))
    constant = jnp.asarray(weigh(jax.tree.map(np.asarray, tokens)))
    slope = jax.grad(lambda lp: jnp.sum(loss(lp, constant, tokens)))(tokens.log_prob)
    valid = tokens.weight > 0.0
    score = score_of(part, tokens, key=jax.random.key(0))
    np.testing.assert_allclose(score[valid], -slope[valid], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("part", NO_STRENGTH, **named)
def test_no_strength_changes_nothing_to_the_bit(part):
    tokens = population()
    np.testing.assert_array_equal(score_of(part, tokens, policy=NOW), plain_push(tokens, (3, 4)).score)


@pytest.mark.parametrize("part", REWEIGHTINGS, **named)
def test_a_large_sample_pushes_like_the_population(part):
    assert np.abs(standard_errors_apart(part)).max() < 4.0


@pytest.mark.parametrize("part", [part for part in REWEIGHTINGS if not isinstance(part, SteerExact)], **named)
@settings(max_examples=10)
@given(seed=seeds)
def test_the_order_of_the_tokens_does_not_matter(part, seed):
    rng = np.random.default_rng(seed)
    tokens, order = some_tokens(rng), rng.permutation(24)
    shuffled = Tokens(*(field[order] for field in tokens))
    key = jax.random.key(0)
    np.testing.assert_allclose(score_of(part, shuffled, key), score_of(part, tokens, key)[order], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("part", REWEIGHTINGS, **named)
def test_scores_stay_finite_at_log_ratios_of_800_and_probability_0(part):
    policy = softmax(jnp.array([[0.0, -800.0, 1.0, -jnp.inf]]))
    before = softmax(jnp.array([[-800.0, 0.0, -1.0, -jnp.inf]]))
    tokens = population(policy, before, Bandit([1.0, 0.0, 0.5, 0.2]))
    assert jnp.isfinite(score_of(part, tokens, policy=policy)).all()
    assert jnp.isfinite(direction(part, tokens, policy)).all()


@pytest.mark.parametrize("part", REWARD_ONLY, **named)
def test_a_weight_that_knows_only_the_reward_keeps_the_direction_of_policy_gradient(part):
    """T16: E δ = c(s) π∘(r − p) for a binary reward on policy."""
    reward = jnp.array([[1.0, 0.0, 1.0, 0.0]])
    policy = softmax(OLD.logits[:1])
    pushed = direction(part, population(policy, policy, Bandit(reward)), policy)
    plain = policy.prob * (reward - jnp.sum(policy.prob * reward))
    cosine = jnp.sum(pushed * plain) / jnp.sqrt(jnp.sum(pushed**2) * jnp.sum(plain**2))
    np.testing.assert_allclose(cosine, 1.0, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    "part", [Steer(), SteerExact(), SteerReleased(), SteerReleasedLinear(), Stare(target=9.0), REPO(0.1)], **named
)
def test_a_weight_that_knows_the_probability_leaves_that_direction(part):
    reward = jnp.array([[1.0, 0.0, 1.0, 0.0]])
    policy = softmax(OLD.logits[:1])
    pushed = direction(part, population(policy, policy, Bandit(reward)), policy)
    plain = policy.prob * (reward - jnp.sum(policy.prob * reward))
    assert jnp.sum(pushed * plain) / jnp.sqrt(jnp.sum(pushed**2) * jnp.sum(plain**2)) < 1.0 - 1e-6


@given(seed=seeds)
def test_positive_reweighting_slows_the_step_by_lambda_times_wrong_plus_right(seed):
    rng = np.random.default_rng(seed)
    policy, reward = softmax(jnp.asarray(rng.standard_normal((1, 4)))), jnp.array([[1.0, 0.0, 1.0, 0.0]])
    p = jnp.sum(policy.prob * reward)
    pushed = direction(PositiveReweighting(0.3), population(policy, policy, Bandit(reward)), policy)
    plain = policy.prob * (reward - p)
    np.testing.assert_allclose(pushed, (0.3 * (1.0 - p) + p) * plain, rtol=1e-12, atol=1e-16)


@given(seed=seeds)
def test_entropy_aware_advantage_never_turns_the_sign_of_a_push(seed):
    tokens = some_tokens(np.random.default_rng(seed))
    score = score_of(EntropyAwareAdvantage(5.0, bound=1.01), tokens)
    np.testing.assert_array_equal(jnp.sign(score), jnp.sign(tokens.advantage))


@given(seed=seeds)
def test_steer_damps_the_largest_effect_by_its_smallest_weight(seed):
    tokens = some_tokens(np.random.default_rng(seed))
    factor = np.asarray(score_of(Steer(smallest=0.6), tokens) / plain_push(tokens, (1, 1)).score)
    size = np.abs(unclipped_loss(tokens, 0.2, 0.2) * entropy_score(tokens) * (1.0 - jnp.exp(tokens.log_prob)))
    valid = np.asarray(tokens.weight > 0.0)
    np.testing.assert_allclose(factor[valid].min(), 0.6, rtol=1e-12)
    assert factor[valid].argmin() == size[valid].argmax()
    assert factor[valid].max() <= 1.0


def test_tokens_that_ppo_clips_keep_their_weight_in_steer():
    tokens = some_tokens(np.random.default_rng(3))
    clipped = np.asarray(unclipped_loss(tokens, 0.2, 0.2) == 0.0)
    assert clipped.any()
    np.testing.assert_array_equal(score_of(Steer(), tokens)[clipped], plain_push(tokens, (1, 1)).score[clipped])


@pytest.mark.parametrize("actions", [3, 10])
def test_steer_knows_no_effect_at_a_uniform_policy(actions):
    """Where every Ω is rounding, none is the largest."""
    policy = softmax(jnp.full((1, actions), 0.7))
    tokens = population(policy, policy, Bandit(np.arange(actions) / actions))
    for part in (Steer(), SteerExact(), SteerReleased()):
        score = jax.jit(score_of)(part, tokens, policy=policy)
        np.testing.assert_allclose(score, tokens.advantage, rtol=1e-13, atol=1e-16)


@given(logits=st.lists(st.floats(-20.0, 20.0), min_size=2, max_size=2))
def test_the_exact_effect_is_twice_steers_at_two_actions(logits):
    exact, held = effects(softmax(jnp.array([logits])), Bandit([1.0, 0.0]))
    np.testing.assert_allclose(exact, 2.0 * held, rtol=1e-9, atol=4e-16)  # log π + H is known to an ulp of log 2


def test_the_exact_effect_of_a_rare_action_is_many_times_steers():
    """π = (.97, 30 × .001): by holding the other logits, STEER misses almost all of a rare action's effect."""
    exact, held = effects(softmax(jnp.log(jnp.array([[0.97] + 30 * [0.001]]))), Bandit(np.eye(31)[0]))
    np.testing.assert_allclose(exact[1] / held[1], 30.0, rtol=0.05)


def test_the_exact_score_is_the_first_order_effect_of_one_token():
    """T7, by autodiff: ∂H along w (e_a − π) is −w (S_a − S̄)."""
    slopes = jax.vmap(jax.grad(lambda z: -jnp.sum(jax.nn.softmax(z) * jax.nn.log_softmax(z))))(NOW.logits)
    tokens = population()
    effect = slopes[tokens.state, tokens.action] - jnp.sum(NOW.prob * slopes, -1)[tokens.state]
    np.testing.assert_allclose(-centred_entropy_score(tokens, NOW, ""), effect, rtol=1e-12, atol=1e-16)


def test_the_released_metric_damps_rare_tokens_where_the_theorem_damps_middling_ones():
    policy = softmax(jnp.log(jnp.array([[0.6, 0.3, 0.0999, 0.0001]])))
    tokens = population(policy, policy, Bandit([0.0, 0.0, 0.0, 0.0]))._replace(advantage=jnp.ones(4))
    weight = {type(part): score_of(part, tokens) for part in (Steer(), SteerReleased())}
    assert weight[SteerReleased].argmin() == 3
    assert weight[Steer].argmax() == 3


@pytest.mark.parametrize("policy", [OLD, NOW], ids=["on policy", "off policy"])
def test_repo_over_all_actions_is_the_entropy_bonus(policy):
    tokens = population(policy)
    np.testing.assert_allclose(
        direction(REPO(0.2), tokens, policy), direction(EntropyBonus(0.2), tokens, policy), rtol=1e-12, atol=1e-16
    )


def test_stare_acts_only_below_its_target():
    tokens = some_tokens(np.random.default_rng(5))._replace(entropy=jnp.full(24, 0.3))
    assert (score_of(Stare(target=0.31), tokens) != plain_push(tokens, (1, 1)).score).any()
    np.testing.assert_array_equal(score_of(Stare(target=0.3), tokens), plain_push(tokens, (1, 1)).score)


def test_stare_touches_a_tenth_of_each_sign():
    tokens = population()
    push = Stare(target=9.0)(None, tokens, NOW, plain_push(tokens, (3, 4)))
    for sign in (tokens.advantage > 0.0, tokens.advantage < 0.0):
        mass = jnp.sum(jnp.where(sign, tokens.weight, 0.0))
        np.testing.assert_allclose(jnp.sum(jnp.where(sign, tokens.weight * push.selected, 0.0)), 0.1 * mass, rtol=1e-12)


def test_equal_tokens_of_the_population_share_the_choice_evenly():
    policy = softmax(jnp.zeros((1, 4)))
    tokens = population(policy, policy, Bandit([1.0, 0.0, 1.0, 0.0]))
    push = Stare(target=9.0)(None, tokens, policy, plain_push(tokens, (1, 4)))
    np.testing.assert_allclose(push.selected, 0.1, rtol=1e-12)


def test_luffy_lifts_a_rare_foreign_action_most_at_probability_gamma():
    x = jnp.tile(jnp.array([1e-6, 0.05, 0.1, 0.2]), 6)
    tokens = some_tokens(np.random.default_rng(0))._replace(
        log_prob=jnp.log(x), old_log_prob=jnp.zeros(24), advantage=jnp.ones(24), group=jnp.full(24, -1)
    )
    score = score_of(LUFFY(0.1), tokens)
    np.testing.assert_allclose(score, 0.1 * x / (x + 0.1) ** 2, rtol=1e-12)
    assert score.argmax() == 2


def test_luffy_meets_the_foreign_tokens_of_off_policy():
    trace = simulate(
        Bandit([1.0, 0.0, 0.0]),
        Algorithm(VanillaPG(0.1), OffPolicy(Sampled(4, 8), share=0.25), (LUFFY(),)),
        num_steps=2,
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(trace.selected, 0.25, rtol=1e-12)


def test_the_largest_size_is_damped_by_lambda_and_an_empty_batch_not_at_all():
    tokens = some_tokens(np.random.default_rng(0))
    np.testing.assert_array_equal(damping(jnp.arange(24.0), tokens._replace(weight=jnp.zeros(24)), 0.5), jnp.ones(24))
    assert damping(jnp.arange(24.0), tokens._replace(weight=jnp.ones(24)), 0.5)[23] == 0.5


@pytest.mark.parametrize("part", [SteerExact()], **named)
def test_the_exact_score_of_a_log_is_refused(part):
    tokens = some_tokens(np.random.default_rng(0))
    with pytest.raises(InputError, match="SteerExact needs the probabilities of all actions; a log holds one a token"):
        score_of(part, tokens)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Steer(smallest=0.0), r"smallest is 0.0; wanted a finite number in \(0, 1\]"),
        (lambda: Steer(low=1.5), r"low is 1.5; wanted a finite number in \[0, 1\]"),
        (lambda: SteerReleased(smallest=1.2), r"smallest is 1.2; wanted a finite number in \(0, 1\]"),
        (lambda: SteerReleasedLinear(1.2, 0.8), "smallest is 1.2 and largest is 0.8; wanted smallest ≤ largest"),
        (lambda: PositiveReweighting(-0.1), "factor is -0.1; wanted a finite number ≥ 0"),
        (lambda: EntropyAwareAdvantage(bound=1.0), "bound is 1.0; wanted a finite number > 1"),
        (lambda: Stare(fraction=10.0), "fraction is 10.0; wanted a fraction in"),
        (lambda: Stare(amplify=0.9), "amplify is 0.9; wanted a finite number ≥ 1"),
        (lambda: Stare(attenuate=1.1), r"attenuate is 1.1; wanted a finite number in \[0, 1\]"),
        (lambda: REPO(float("inf")), "coefficient is inf; wanted a finite number"),
        (lambda: LUFFY(0.0), "shape is 0.0; wanted a finite number > 0"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
