"""The claims on STEER, on reweightings and on the pushes of methods: their computations by a second road."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from softmaxdyn import interventions as iv
from softmaxdyn.advantages import GRPO, Outcomes
from softmaxdyn.estimators import Exact
from softmaxdyn.ledger import verdict
from softmaxdyn.ledger.shelf import load_claims
from softmaxdyn.policy import entropy, softmax
from softmaxdyn.problems import Bandit
from softmaxdyn.tokens import plain_push, under

CLAIMS = load_claims()
steer, reweighting, pushes = (sys.modules[CLAIMS[each].function.__module__] for each in ("C33", "C36", "C39"))
LOGITS = np.random.default_rng(0).standard_normal((6, 5))
REWARDS = np.tile([1.0, 0.0, 0.0, 1.0, 0.0], (6, 1))


def plain_softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def plain_entropy(logits):
    p = plain_softmax(logits)
    return -(p * np.log(p)).sum(-1)


class Tiny:
    """A size that no run would want."""

    quick, seeds = True, 3

    def __call__(self, full, quick):
        return min(quick, 8)


@pytest.fixture(scope="module")
def estimates(batch):
    return jax.jit(steer.token_estimates)(*batch)


@pytest.fixture(scope="module")
def batch():
    action, advantage = (np.asarray(x) for x in jax.jit(steer.drawn)(jax.random.key(3), LOGITS, REWARDS))
    return LOGITS, action, advantage


def test_advantages_are_those_of_grpo(batch):
    _, action, advantage = batch
    count = action.size
    full = lambda value: jnp.full(count, value)  # noqa: E731
    reward = np.take_along_axis(REWARDS, action, 1).reshape(-1, 1)
    group = jnp.repeat(jnp.arange(6), 8)
    outcomes = Outcomes(jnp.asarray(reward), jnp.ones((count, 1), bool), group, full(1.0 / count), full(8.0))
    np.testing.assert_allclose(advantage.ravel(), jax.jit(lambda x: GRPO()(x))(outcomes)[:, 0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "push"), [("exact first order", "full_push"), ("STEER, theorem", "own_push")])
def test_an_estimate_is_the_derivative_of_the_entropy_along_its_push(batch, estimates, name, push):
    logits, _, _ = batch
    direction = jax.jit(getattr(steer, push))(*batch)
    tables = jnp.broadcast_to(jnp.asarray(logits)[:, None], direction.shape)
    slope = jax.jit(lambda z, v: jax.jvp(entropy, (z,), (v,))[1])(tables, direction)
    np.testing.assert_allclose(estimates[name], slope, rtol=1e-11, atol=1e-14)


def test_the_proxy_and_the_released_form_are_their_formulas(batch, estimates):
    logits, action, advantage = batch
    log_prob = np.take_along_axis(logits - np.log(np.exp(logits).sum(1, keepdims=True)), action, 1)
    signal = advantage != 0.0
    covariance = (log_prob - log_prob[signal].mean()) * (advantage - advantage[signal].mean())
    np.testing.assert_allclose(estimates["Cov proxy"], -covariance, rtol=1e-11, atol=1e-13)
    released = estimates["STEER, theorem"] / np.exp(log_prob)
    np.testing.assert_allclose(estimates["STEER, released"], released, rtol=1e-11, atol=1e-14)


def test_true_changes_are_differences_of_entropies(batch):
    logits, action, advantage = batch
    found = jax.jit(steer.true_changes)(*batch, 0.3)
    delta = 0.3 * advantage[..., None] * (np.eye(5)[action] - plain_softmax(logits)[:, None])
    alone = plain_entropy(logits[:, None] + delta) - plain_entropy(logits)[:, None]
    np.testing.assert_allclose(found["per sample"], alone, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(
        found["per state"], plain_entropy(logits + delta.mean(1)) - plain_entropy(logits), rtol=1e-9, atol=1e-14
    )


def test_steer_misses_half_at_two_actions_and_nearly_all_of_a_rare_one():
    np.testing.assert_allclose(steer.missed([0.7, 0.3]), 2.0, rtol=1e-12)
    p = np.array([0.97, *[0.001] * 30])
    s = p * (np.log(p) - p @ np.log(p))
    np.testing.assert_allclose(steer.missed(p), (s - p @ s) / ((1.0 - p) * s), rtol=1e-10)


def test_slopes_are_the_powers_of_power_laws():
    np.testing.assert_allclose(steer.slopes([3.0 * steer.SIZES**1.5, steer.SIZES**2]), [1.5, 2.0], rtol=1e-12)


def test_measures_of_a_scaled_truth():
    truth = np.array([1.0, -2.0, 3.0, 0.0])
    error, relative, pearson, spearman, right = steer.measures(2.0 * truth, truth)
    assert error == pytest.approx(3.5)  # the mean of the squares
    assert relative == pytest.approx(3.5 / truth.var())
    assert (pearson, spearman, right) == (pytest.approx(1.0), pytest.approx(1.0), 1.0)


def test_rank_correlations_are_those_of_scipy():
    tokens, true = steer.off_policy(2, 4, 0.3, actions=10)
    p, r = np.exp(tokens.log_prob[0]), np.exp(tokens.log_prob[0] - tokens.old_log_prob[0])
    clipped = ((tokens.advantage[0] > 0.0) & (r > 1.2)) | ((tokens.advantage[0] < 0.0) & (r < 0.8))
    kept = tokens.advantage[0] != 0.0
    omega = -r * tokens.advantage[0] * p * (1.0 - p) * (tokens.log_prob[0] + tokens.entropy[0])
    without_clip, whole = (steer.rank_correlations(tokens, true, name)[0] for name in ("clip", ""))
    assert without_clip == pytest.approx(spearmanr(omega[kept], true[0][kept])[0], rel=1e-12)
    assert whole == pytest.approx(spearmanr((omega * ~clipped)[kept], true[0][kept])[0], rel=1e-12)
    assert (true[0][clipped] == 0.0).all()


def test_one_of_several_is_that_one():
    choices = reweighting.reweightings()

    def both(name):
        policy = softmax(jnp.asarray(LOGITS))
        tokens = under(Exact(GRPO())(None, Bandit(REWARDS), policy), softmax(1.5 * policy.logits))
        push = wanted = plain_push(tokens, LOGITS.shape)
        for part in choices[name]:
            wanted = part(None, tokens, policy, wanted)
        return reweighting.one_of(choices, name)(None, tokens, policy, push).score, wanted.score

    found = jax.jit(lambda: [both(name) for name in choices])()
    for chosen, wanted in found:
        np.testing.assert_array_equal(chosen, wanted)
    assert len({tuple(np.asarray(chosen)) for chosen, _ in found}) >= len(choices) - 1  # Clip-Higher may be GRPO


def test_a_blend_of_one_is_that_estimator():
    outcomes = Outcomes(
        jnp.eye(4)[:, :1], jnp.ones((4, 1), bool), jnp.zeros(4, int), jnp.full(4, 0.25), jnp.full(4, 4.0)
    )
    blend, one = reweighting.Blend((GRPO(), GRPO(1.0)), (0.0, 1.0)), GRPO(1.0)
    np.testing.assert_array_equal(*jax.jit(lambda x: (blend(x), one(x)))(outcomes))


def test_the_flow_of_grpo_on_policy_is_the_common_direction():
    found = jax.jit(pushes.flow)(Bandit(REWARDS), LOGITS, LOGITS, (iv.PPOClip())) * 6.0
    prob = plain_softmax(LOGITS)
    p = prob @ REWARDS[0]
    common = prob * (REWARDS - p[:, None]) / (np.sqrt(p * (1.0 - p)) + 1e-6)[:, None]
    np.testing.assert_allclose(found, common, rtol=1e-9, atol=1e-12)


def test_a_turn_is_one_minus_the_cosine_of_its_angle():
    own, base = np.array([[[2.0, 0.0], [0.0, 0.0]]]), np.array([[[np.cos(0.3), np.sin(0.3)], [1.0, 1.0]]])
    assert pushes.turn(own, base)[0] == pytest.approx(1.0 - np.cos(0.3), rel=1e-12)  # a state without push is no turn


def test_the_largest_rise_is_above_any_earlier_value():
    found = reweighting.largest_rise(np.array([[3.0, 2.0, 2.5, 1.0], [3.0, 2.0, 1.0, 0.5], [3.0, 1.0, 1.5, 2.0]]))
    np.testing.assert_array_equal(found, [0.5, 0.0, 1.0])


def test_with_the_other_logits_held_the_error_would_be_of_second_order(monkeypatch):
    assert verdict(CLAIMS["C33"], CLAIMS["C33"].function(Tiny())) == "holds only when"
    monkeypatch.setattr(steer, "full_push", steer.own_push)
    assert verdict(CLAIMS["C33"], CLAIMS["C33"].function(Tiny())) == "holds"


def test_foreign_data_would_change_the_pattern_if_only_its_entropy_rose(monkeypatch):
    fall = np.tile(np.linspace(2.0, 0.0, 201), (80, 1))
    bump = fall + np.where(np.arange(201) == 100, 0.1, 0.0)
    monkeypatch.setattr(reweighting, "exact_entropy", lambda size, foreign, spread: bump if foreign else fall)
    assert verdict(CLAIMS["C61"], CLAIMS["C61"].function(Tiny())) == "holds"
    monkeypatch.setattr(reweighting, "exact_entropy", lambda size, foreign, spread: bump)
    assert verdict(CLAIMS["C61"], CLAIMS["C61"].function(Tiny())) == "fails"
