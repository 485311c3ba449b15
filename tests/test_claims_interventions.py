"""The claims on interventions: what they compute by a second road, and verdicts that turn in another world."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

from softmaxdyn.interventions.protocol import Selection
from softmaxdyn.ledger import Size, statistics, verdict
from softmaxdyn.ledger.shelf import load_claims
from softmaxdyn.policy import softmax as policy_of
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.setting import setting
from softmaxdyn.simulation import pushed, quick_jit
from softmaxdyn.tokens import Tokens, plain_push

CLAIMS = load_claims()
PACKAGE = CLAIMS["C22"].function.__module__.rpartition(".")[0]
controls, methods, masks, bonuses, interventions = (
    importlib.import_module(f"{PACKAGE}.{name}")
    for name in ("controls", "covariance_methods", "masks", "bonuses", "interventions")
)
KEY = jax.random.key(0)
QUICK = Size(quick=True)


@pytest.fixture(scope="module")
def batch():
    """(tokens, policy): 24 drawn tokens of 4 states, off policy."""
    draw = np.random.default_rng(0)
    logits = draw.standard_normal((4, 5))
    state, action = draw.integers(0, 4, 24), draw.integers(0, 5, 24)
    policy = policy_of(jnp.asarray(logits))
    log_prob = np.log(softmax(logits, 1))[state, action]
    tokens = Tokens(
        *(jnp.asarray(x) for x in (state, action, np.full(24, 1 / 24), draw.standard_normal(24), log_prob)),
        old_log_prob=jnp.asarray(log_prob + 0.3 * draw.standard_normal(24)),
        entropy=policy.entropy[state],
        reward=jnp.zeros(24),
        episode=jnp.arange(24),
        group=jnp.asarray(state),
        position=jnp.zeros(24, int),
    )
    return tokens, policy


def score_of(tokens):
    surprise, advantage = (np.asarray(x) for x in (tokens.log_prob, tokens.advantage))
    return (surprise - surprise.mean()) * (advantage - advantage.mean())


def norms(tokens, policy):
    """Weight |r A| ‖e_a − π‖ of each token."""
    away = np.eye(5)[tokens.action] - np.asarray(policy.prob)[tokens.state]
    size = np.exp(tokens.log_prob - tokens.old_log_prob) * np.abs(tokens.advantage) * tokens.weight
    return np.asarray(size) * np.linalg.norm(away, axis=1)


def test_controls_that_are_off_change_nothing(batch):
    tokens, policy = batch
    plain = plain_push(tokens, (4, 5))
    parts = tuple(part.init(policy.logits + 1.0) for part in controls.Controls().parts())
    push, _ = quick_jit(pushed)(parts, KEY, tokens, policy)
    np.testing.assert_array_equal(push.score, plain.score)
    np.testing.assert_array_equal(push.field, plain.field)


def test_a_mask_takes_the_highest_or_the_lowest_scores(batch):
    tokens, _ = batch
    order = np.argsort(score_of(tokens))
    for tilt, wanted in ((masks.TOP, order[-6:]), (masks.BOTTOM, order[:6])):
        chosen = masks.Mask(0.25, tilt).choose(KEY, tokens)
        assert set(np.flatnonzero(chosen)) == set(wanted)


def test_a_mask_of_equal_norm_takes_as_much_gradient_as_the_top_and_no_token_that_does_not_fit(batch):
    tokens, policy = batch
    norm, plain = norms(tokens, policy), plain_push(tokens, (4, 5))
    top = norm[np.argsort(score_of(tokens))[-6:]].sum()
    chosen = {
        tilt: np.asarray(masks.NormMask(0.25, tilt)(KEY, tokens, policy, plain).selected)
        for tilt in (masks.TOP, masks.RANDOM, masks.BOTTOM)
    }
    assert norm @ chosen[masks.TOP] == pytest.approx(top, rel=1e-12)
    for each in chosen.values():
        assert top - norm.max() < norm @ each <= top * (1.0 + 1e-8)
    masked = masks.NormMask(0.25, masks.RANDOM)(KEY, tokens, policy, plain).score
    np.testing.assert_array_equal(masked, np.where(chosen[masks.RANDOM], 0.0, plain.score))


def test_a_mask_without_tilt_takes_every_token_equally_often(batch):
    tokens, _ = batch
    choose = quick_jit(jax.vmap(lambda key: masks.Mask(0.25, masks.RANDOM).choose(key, tokens)))
    draws = choose(jax.random.split(KEY, 2000))
    assert np.abs(draws.mean(0) - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 2000)


def test_the_admitted_tokens_are_those_between_the_two_clips(batch):
    tokens, policy = batch
    r = np.exp(tokens.log_prob - tokens.old_log_prob)
    inside = (np.asarray(tokens.advantage) > 0) & (r > 1.05) & (r <= 1.6)
    assert inside.any()
    plain = plain_push(tokens, (4, 5))
    found = [
        part(1.05, 1.6)(KEY, tokens, policy, plain) for part in (interventions.Admitted, interventions.AdmittedScore)
    ]
    np.testing.assert_array_equal(found[0].selected, inside)
    np.testing.assert_allclose(found[1].selected, inside * score_of(tokens), rtol=1e-12)
    np.testing.assert_array_equal(found[1].score, plain.score)


def test_a_salt_changes_the_choice_and_only_that(batch):
    tokens, policy = batch
    plain = plain_push(tokens, (4, 5))
    part: Selection = masks.Mask(0.25, 0.0)
    first, again, other = (controls.Salted(part, salt)(KEY, tokens, policy, plain) for salt in (0, 0, 1))
    np.testing.assert_array_equal(first.selected, again.selected)
    assert (first.selected != other.selected).any()


@pytest.mark.parametrize("actions", [3, 10, 1000])
def test_the_fixed_point_of_a_bonus_and_where_it_crosses_a_level(actions):
    def height(alpha):
        return entropy(softmax(np.eye(actions)[0] / alpha)) / np.log(actions)

    alphas = np.logspace(-2, 2, 9)
    expected = [height(alpha) for alpha in alphas]
    np.testing.assert_allclose(bonuses.fixed_point(actions, alphas), expected, rtol=1e-9, atol=1e-12)
    fine = np.logspace(-2, 2, 4001)
    found = bonuses.crossings(fine, bonuses.fixed_point(actions, fine)[None])[0]
    roots = [np.log10(brentq(lambda a, level=level: height(a) - level, 0.01, 100.0)) for level in bonuses.LEVELS]
    np.testing.assert_allclose(found, roots, atol=1e-3)  # the grid has a spacing of 1e-3


def test_a_level_that_is_not_crossed_is_no_number():
    height = np.array([[0.0, 0.5, 1.0], [0.2, 0.5, 1.0], [0.0, 0.5, 0.6]])
    found = bonuses.crossings(np.array([0.1, 1.0, 10.0]), height)
    np.testing.assert_allclose(found, [[-0.8, 0.8], [np.nan, 0.8], [-0.8, np.nan]], atol=1e-12)


def prompts(logits, rewards):
    return setting(Bandit(rewards), logits, "prompts")


def test_the_fixed_points_of_a_reference_kl_and_the_accuracy_up_to_which_entropy_rises():
    draw = np.random.default_rng(1)
    logits, rewards = draw.standard_normal((6, 5)), np.tile([1.0, 1.0, 0.0, 0.0, 0.0], (6, 1))
    value, entropies, accuracy, top = bonuses.tilted(prompts(logits, rewards), bonuses.BETAS)
    for i, beta in enumerate(bonuses.BETAS):
        p = softmax(logits + rewards / beta, 1)
        np.testing.assert_allclose(value[:, i], p[:, :2].sum(1), rtol=1e-12)
        np.testing.assert_allclose(entropies[:, i], entropy(p, axis=1), rtol=1e-9)
    shifts = np.linspace(-8.0, 8.0, 100_001)
    for row in range(6):
        p = softmax(logits[row] + shifts[:, None] * rewards[row], 1)
        highest = p[entropy(p, axis=1).argmax()]
        assert highest[:2].sum() == pytest.approx(top[row], abs=1e-4)  # the grid moves p by up to 4e-5
        assert accuracy[row] == pytest.approx(softmax(logits[row])[:2].sum(), rel=1e-12)


def made_up(entropies, returns):
    """A `Run` in a straight line from (2 nats, .1) to each of these ends, one a seed."""
    share = np.linspace(0.0, 1.0, 65)
    h, j = (a + share * (np.asarray(b)[:, None] - a) for a, b in ((2.0, entropies), (0.1, returns)))
    return controls.Run(h, j, np.zeros((*h.shape, 6)))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 99)


def pools_with(boost):
    """A maker of pools whose one correct action of ten has its logit raised by `boost`."""

    def make(seeds, count):
        rewards, draw = np.tile(np.eye(10)[0], (4, 1)), np.random.default_rng(2)
        return [prompts(boost * rewards + draw.standard_normal(rewards.shape), rewards) for _ in range(seeds)]

    return make


def falling(size, each):
    """Runs whose entropy is the higher and whose return the lower, the larger β."""
    shift = np.arange(10) * 1e-3
    return made_up(0.2 + 0.5 * each.reference + shift, 0.9 - 0.2 * each.reference + shift)


def test_the_verdict_on_the_reference_turns_where_every_prompt_is_half_solved(monkeypatch):
    monkeypatch.setattr(bonuses, "run", falling)
    found = []
    for hard, easy in ((0.0, 5.0), (5.0, 5.0)):
        monkeypatch.setattr(bonuses, "pools", pools_with(hard))
        monkeypatch.setattr(bonuses, "realistic_pools", pools_with(easy))
        found.append(CLAIMS["C26"].function(QUICK))
    assert [verdict(CLAIMS["C26"], each) for each in found] == ["holds only when", "holds"]
    assert "p*" in found[0].only_when


def test_the_verdict_on_entropy_and_return_turns_with_the_methods(monkeypatch):
    draw = np.random.default_rng(3)
    order = list(interventions.METHODS.values())
    shuffled = np.random.default_rng(0).permutation(len(order)) / 100.0

    def linked(size, each):
        end = 0.1 + 0.02 * order.index(each)
        return made_up(end + 1e-4 * draw.random(10), 1.0 - end + 1e-4 * draw.random(10))

    def unrelated(size, each):
        number = order.index(each)
        return made_up(0.1 + 0.02 * number + 1e-4 * draw.random(10), 0.8 + shuffled[number] + 1e-4 * draw.random(10))

    verdicts = []
    for runs in (linked, unrelated):
        monkeypatch.setattr(interventions, "run", runs)
        verdicts.append(verdict(CLAIMS["C29"], CLAIMS["C29"].function(QUICK)))
    assert verdicts == ["fails", "holds"]


def test_a_return_is_compared_at_equal_entropy_between_the_settings_of_a_control():
    entropies, returns = np.array([[0.3, 0.1, 0.5], [0.3, 0.1, 0.5]]), np.array([[0.8, 1.0, 0.6], [0.8, 1.0, 0.6]])
    np.testing.assert_allclose(bonuses.matched(entropies, returns, np.array([0.2, 0.45])), [0.9, 0.65])
    assert np.isnan(bonuses.matched(entropies, returns, np.array([0.05, 0.6]))).all()


def test_the_plateau_of_an_exponential_fall():
    steps = np.arange(101)
    curve = 2.0 * np.exp(-steps / 10.0)
    fall = 1.0 - np.exp(-1.0)  # over a tenth of 101 steps, relative to where it is
    assert methods.plateau(curve) == int(np.ceil(10.0 * np.log(fall / 0.01)))
    assert methods.plateau(np.linspace(1.0, 0.0, 101)) == 100


def test_the_variance_that_a_choice_adds_is_that_within_pairs():
    draw = np.random.default_rng(4)
    shared, own = draw.standard_normal(40_000), 0.5 * draw.standard_normal((2, 40_000))
    assert methods._added(shared + own[0], shared + own[1]) == pytest.approx(0.25 / 1.25, rel=0.05)


def test_pairs_with_the_wrong_sign_are_counted():
    first, second = np.array([0.0, 1.0, 2.0]), np.array([1.5, 2.5, 3.5])
    wrong = [b - a <= 0.0 for a in first for b in second]
    assert interventions._wrong_way(first, second) == np.mean(wrong) == pytest.approx(1 / 9)
