"""Claims about diversity, rewards and rates: what they compute by a second road, and that their verdicts can flip."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn.advantages import NSR, PSR, WReinforce, recorded
from softmaxdyn.ledger import Size, verdict
from softmaxdyn.ledger.shelf import load_claims
from softmaxdyn.rewards import IncorrectReward
from softmaxdyn.updates import NaturalPG, blended_kernel

CLAIMS = load_claims()
diversity, rewards, rates = (sys.modules[CLAIMS[name].function.__module__] for name in ("C40", "C45", "C51"))
EPS = np.finfo(float).eps
GENERATOR = np.random.default_rng(0)


def soft(logits):
    """A second road to π: divide by the sum of exponentials."""
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def test_signed_samples_are_psr_nsr_and_w_reinforce():
    outcomes = recorded([1.0, 0.0, 1.0, 1.0, 0.0])
    pairs = {(1.0, 0.0): PSR(), (0.0, 1.0): NSR(), (0.1, 1.0): WReinforce(0.1)}
    for weights, named in pairs.items():
        assert (diversity.SignedSamples(*weights)(outcomes) == named(outcomes)).all()


def test_blended_moves_by_the_blended_kernel():
    gradient = GENERATOR.standard_normal((4, 3))
    wanted = 0.5 * np.einsum("satb,tb->sa", blended_kernel((4, 3), 0.3), gradient)
    got, _ = diversity.Blended(0.5, 0.3)(jnp.asarray(gradient), None, None)
    np.testing.assert_allclose(got, wanted, atol=16 * EPS)  # sums of 4 numbers of size 1, in another order


def test_permuting_actions_changes_no_success_probability():
    (setting,) = diversity.realistic_pools(1, 30)
    moved = diversity.permuted(setting, 3)
    assert not np.array_equal(moved.problem.rewards, setting.problem.rewards)
    found = [diversity.success([each], each.logits[None]) for each in (setting, moved)]
    np.testing.assert_allclose(*found, atol=40 * EPS)  # sums of 20 probabilities, in another order


def test_pass_at_k_is_the_share_of_groups_of_k_with_a_success():
    draws = GENERATOR.random((20_000, 3, 4))  # four tries at three prompts
    p = np.array([0.1, 0.4, 0.9])
    share = np.mean((draws < p[:, None]).any(-1))
    assert abs(diversity.pass_at(p[None])[0, 3] - share) < 5 * 0.5 / np.sqrt(60_000)  # five standard errors


def test_the_base_is_ahead_where_one_prompt_was_given_up():
    before = np.array([[0.1, 0.1], [0.1, 0.1]])
    after = np.array([[0.9, 0.0], [0.9, 0.2]])
    assert diversity.crosses(before, after).tolist() == [True, False]


def test_a_step_with_centred_scores_never_lowers_the_right_mass():
    prob = GENERATOR.dirichlet(np.ones(6), 500)
    right = np.tile(np.arange(6) < 2, (500, 1)).astype(float)
    before = (prob * right).sum(-1)
    after = diversity.one_step(GENERATOR, prob, right, 8, diversity.group_mean)
    assert (after >= before - 8 * EPS).all()
    assert (diversity.one_step(GENERATOR, prob, right, 8, diversity.half) < before - 8 * EPS).any()


def test_many_samples_make_the_step_that_of_the_population():
    prob = np.tile([0.5, 0.3, 0.2], (1, 1))
    right = np.array([[1.0, 0.0, 0.0]])
    exact = prob * np.exp(prob * (right - 0.5))  # z + π∘(r − p) with p = 1/2
    got = diversity.one_step(GENERATOR, prob, right, 10**8, diversity.half)
    assert got == pytest.approx((exact * right).sum(-1) / exact.sum(-1), abs=5e-4)  # five errors of size 1/√N


@pytest.mark.parametrize("name", ["cross-entropy", "total variation"])
def test_drafts_climb_what_they_are_named_after(name):
    logits, target = GENERATOR.standard_normal(5), GENERATOR.dirichlet(np.ones(5))
    value = {
        "cross-entropy": lambda q: target @ np.log(q),
        "total variation": lambda q: np.minimum(target, q).sum(),
    }[name]
    small = 1e-6
    shift = small * np.eye(5)
    slope = [(value(soft(logits + d)) - value(soft(logits - d))) / (2 * small) for d in shift]
    np.testing.assert_allclose(diversity.TRAINED_DRAFTS[name](logits, target), slope, atol=1e-8)  # h² and eps/h


def test_a_signed_fit_tells_a_rise_from_a_fall():
    entropy = np.array([[3.0, 2.0, 1.0]])
    np.testing.assert_allclose(diversity.signed_fit(entropy, 1.0 - 0.2 * entropy), 1.0, rtol=8 * EPS)
    np.testing.assert_allclose(diversity.signed_fit(entropy, 0.2 * entropy), -1.0, rtol=8 * EPS)


def test_the_rows_of_the_table_have_the_means_of_pencil_and_paper():
    assert rewards.averages(rewards.SCORES["7B"])["GRPO"] == pytest.approx(273.6 / 7)
    assert rewards.averages(rewards.SCORES["32B"])["KL-Cov"] == pytest.approx(361.1 / 7)
    gains = rewards.gains_over_grpo()
    assert gains["7B", "KL-Cov"].mean() == pytest.approx(2.0)
    assert gains["32B", "KL-Cov"].mean() == pytest.approx(44.9 / 7)


def test_the_verdict_on_the_table_is_that_of_its_numbers(monkeypatch):
    made = CLAIMS["C53"]
    assert verdict(made, made.function(Size())) == "holds only when"
    right = {"GRPO": (50.0,) * 7, "Clip-higher": (51.0,) * 7, "Clip-Cov": (52.0,) * 7, "KL-Cov": (52.0,) * 7}
    monkeypatch.setattr(rewards, "SCORES", {"7B": right, "32B": {**right, "GRPO": (45.6,) * 7}})
    monkeypatch.setattr(rewards, "PRINTED", {"7B": (50.0, 51.0, 52.0, 52.0), "32B": (45.6, 51.0, 52.0, 52.0)})
    assert verdict(made, made.function(Size())) == "holds"


def natural_run(settings, update, reward):
    """What `trained_on` gives for natural PG with η = 0.1, in closed form: π ∝ π₀ exp(τ r), whatever the update."""
    right = np.stack([each.problem.rewards for each in settings])
    start = np.stack([each.logits for each in settings])
    paid = 1.0 - right if isinstance(reward, IncorrectReward) else np.arange(right.shape[-1]) % 2 == 0
    path = [(soft(start + time * paid) * right).sum(-1) for time in np.linspace(0.0, 40.0, 101)]
    return np.mean(path, -1).T, path[0], path[-1]


def test_a_run_on_another_reward_is_the_closed_form_of_natural_pg():
    settings = rewards.pools(2, 5)
    found = rewards.trained_on(settings, NaturalPG(0.1), IncorrectReward())
    for got, wanted in zip(found, natural_run(settings, None, IncorrectReward()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)  # 400 steps, each rounds logits of size 40


def test_a_format_reward_would_help_where_it_overlaps_if_pg_were_natural(monkeypatch):
    made = CLAIMS["C47"]
    monkeypatch.setattr(rewards, "trained_on", natural_run)
    assert verdict(made, made.function(Size(quick=True))) == "holds"

    def mirrored(settings, update, reward):
        path, before, after = natural_run(settings, update, reward)
        return path, after, before

    monkeypatch.setattr(rewards, "trained_on", mirrored)
    assert verdict(made, made.function(Size(quick=True))) == "fails"


def test_value_iteration_finds_the_way_to_the_far_end_of_the_chain():
    chain = rates.named("chain").problem
    assert rates.best_values(chain) == pytest.approx(10.0 * 0.9**5)


def test_the_estimators_have_the_moments_of_a_sum_over_actions():
    errors, found = rates.estimators_of(0.5, 3)
    assert max(errors.values()) < rates.ROUNDING
    logits, other = rates.pairs(0.5, 3)
    p, q = soft(logits), soft(other)
    k2 = 0.5 * np.log(p / q) ** 2
    np.testing.assert_allclose(found["k2"], (p * k2**2).sum(1) - (p * k2).sum(1) ** 2, rtol=1e-10)
    kl = (p * np.log(p / q)).sum(1)
    np.testing.assert_allclose(found["bias"], (p * k2).sum(1) / kl - 1.0, rtol=1e-10)


@pytest.mark.parametrize(("wide", "p"), [(100, 0.7), (5, 0.9)])
def test_the_visits_matter_as_the_formula_says(wide, p):
    wanted = np.log(wide / 2) / abs(np.log(p / (1.0 - p)))
    assert rates.first_order_ratio(*rates.two_step(wide, p)) == pytest.approx(wanted, rel=1e-12)
