"""The claims about R = −a exp(H) + b: their curves and measures by a second road, and verdicts that can turn."""

import sys
from itertools import groupby

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from softmaxdyn.ledger import Size, statistics, verdict
from softmaxdyn.ledger.shelf import load_claims

CLAIMS = load_claims()
law, consumption, coefficients = (sys.modules[CLAIMS[name].function.__module__] for name in ("C3", "C1", "C6"))
c = law.c
QUICK = Size(quick=True)
FULL_RANGE = np.linspace(2.0, 0.0, c.ROWS)  # of H, and small steps between rows


def law_curve(a=0.1, b=1.1, seeds=3, entropy=FULL_RANGE, noise=0.0):
    """Curves that follow the law, but for noise."""
    entropy = np.tile(entropy, (seeds, 1))
    return c.Curve(entropy, b - a * np.exp(entropy) + noise * np.random.default_rng(0).standard_normal(entropy.shape))


def line_curve(seeds=3, top=4.0):
    """Curves R = 1 − H/top."""
    entropy = np.tile(np.linspace(top, 0.0, c.ROWS), (seeds, 1))
    return c.Curve(entropy, 1.0 - entropy / top)


def everywhere(curve):
    """That curve in every world, as `curves` gives them."""
    return {kind: dict.fromkeys((*c.PRIORS, *c.SIZES), curve) for kind in c.SPEEDS}


@pytest.fixture
def few_resamples(monkeypatch):
    """The verdicts here are far from their limits."""
    monkeypatch.setattr(statistics, "RESAMPLES", 49)


def test_the_closed_form_of_natural_pg_is_what_its_steps_give():
    settings, step = c.World(6, 2, 1.5).settings(2, 4), 0.25
    curve = c.natural(settings, step * np.arange(40))
    for seed, setting in enumerate(settings):
        z, r = setting.logits, np.asarray(setting.problem.rewards)
        for row in range(40):
            p = softmax(z, axis=1)
            assert curve.entropy[seed, row] == pytest.approx(stats.entropy(p, axis=1).mean(), rel=1e-12)
            assert curve.reward[seed, row] == pytest.approx((p * r).sum(1).mean(), rel=1e-12)
            z = z + step * (r - (p * r).sum(1, keepdims=True))


def test_a_prompt_gains_entropy_where_log_prob_and_reward_have_a_negative_covariance():
    for setting in c.World(7, 3, 2.0).settings(3, 50):
        rises, below = consumption.rising_prompts(setting)
        p, r = softmax(setting.logits, axis=1), np.asarray(setting.problem.rewards)
        covariance = (p * np.log(p) * (r - (p * r).sum(1, keepdims=True))).sum(1)
        assert 0 < below.sum() < len(below)
        np.testing.assert_array_equal(below, covariance < 0.0)
        np.testing.assert_array_equal(rises, below)


def test_a_boost_is_a_head_start_of_natural_pg():
    settings = c.World().settings(2, 5)
    boosted = c.natural([c.boosted(each, 1.5) for each in settings], np.arange(3.0))
    np.testing.assert_allclose(boosted, c.natural(settings, 1.5 + np.arange(3.0)), rtol=1e-12)


def test_r_squared_is_that_of_a_regression_on_exp_h():
    curve = law_curve(noise=0.05)
    wanted = [stats.linregress(np.exp(h), r).rvalue ** 2 for h, r in c.seeds_of(curve)]
    np.testing.assert_allclose(c.r_squared(curve), wanted, rtol=1e-10)
    np.testing.assert_allclose(
        law.ceiling(curve), [sum(stats.linregress(np.exp(h) - 1, r)[1:2]) for h, r in c.seeds_of(curve)]
    )


def test_runs_that_differ_by_a_constant_are_that_far_apart_at_equal_entropy():
    base = law_curve()
    rise = np.concatenate([[1.5, 1.8], FULL_RANGE[FULL_RANGE < 1.9]])  # what comes before the top does not count
    other = c.Curve(np.tile(rise, (3, 1)), 1.1 - 0.1 * np.exp(np.tile(rise, (3, 1))) + 0.03)
    np.testing.assert_allclose(c.apart(other, base), 0.03, rtol=1e-3)
    np.testing.assert_allclose(c.apart(base, base), 0.0, atol=1e-15)
    assert np.isnan(c.apart(law_curve(entropy=FULL_RANGE + 3.0), base)).all()


def test_secants_of_the_law_miss_its_slope_by_the_second_order_of_their_width():
    curve = law_curve()
    width = np.ptp(FULL_RANGE) * (law.LEVELS[1] - law.LEVELS[0])
    between_rows = np.diff(-FULL_RANGE)[0] ** 2 / 8.0 * 2.0 / width  # of interpolation, twice, over the width
    secant = np.sinh(width / 2.0) / (width / 2.0) - 1.0  # of an exponential
    errors = law.slope_errors(curve)
    assert (errors <= secant + between_rows).all()
    assert errors.max() > secant / 4.0
    assert law.slope_errors(line_curve()).max() > 0.2


def test_the_law_foretells_the_ends_of_its_own_curves_alone():
    for error in (consumption.end_error, consumption.start_error):
        np.testing.assert_allclose(error(law_curve()), 0.0, atol=1e-11)
        assert (error(line_curve()) > 0.05).all()


def test_what_is_used_up_of_a_straight_fall_is_the_share_of_the_time():
    fall = np.tile(np.linspace(3.0, 1.0, c.ROWS), (2, 1))
    np.testing.assert_allclose(consumption.at_share(fall, 40.0, 1 / 3), 1 / 3)
    assert np.isnan(consumption.at_share(fall, 0.5, 1 / 3)).all()  # 0.2 % of the whole fall
    np.testing.assert_allclose(consumption.spent(c.Curve(fall, fall)), (c.SEEN - 1) / (c.ROWS - 1))


def test_the_noise_of_a_step_is_that_of_its_change_without_the_trend():
    change = 0.02 * np.random.default_rng(2).standard_normal((500, c.ROWS)) - 0.5
    entropy = np.cumsum(change, axis=1)
    noise = consumption.noise_of_a_step(c.Curve(entropy, entropy))
    # a square of second differences varies by twice its mean squared; neighbours share one change, ρ² = ¼: 2 (1 + ½)
    standard_error = np.sqrt(3.0 / (500 * (c.ROWS - 2)))
    assert np.mean(noise[2:] ** 2) == pytest.approx(9 * 0.02**2, rel=5 * standard_error)
    assert consumption.never_rises(c.Curve(np.array([[3.0, 2.0, 2.1], [3.0, 2.0, 1.0]]), None)).tolist() == [
        False,
        True,
    ]
    assert consumption.never_rises(c.Curve(np.array([[3.0, 2.0, 2.1]]), None), np.array([0, 0, 0.11])).all()


def test_the_longest_stretch_is_that_of_neighbours_that_are_fine():
    fine = np.random.default_rng(0).random((20, 3, 17)) < 0.7
    runs = [[max(sum(run) for key, run in groupby(row) if key) for row in seed] for seed in fine]
    np.testing.assert_allclose(consumption.decades(fine), (np.max(runs, 1) - 1) / 16)
    np.testing.assert_allclose(consumption.decades(np.ones((1, 1, 17), bool)), 1.0)
    np.testing.assert_allclose(consumption.decades(np.zeros((1, 1, 17), bool)), 0.0)


def test_a_line_in_the_boost_has_the_r_squared_of_a_regression():
    values = np.random.default_rng(1).standard_normal((4, len(coefficients.BOOSTS)))
    wanted = [stats.linregress(coefficients.BOOSTS, row).rvalue ** 2 for row in values]
    np.testing.assert_allclose(coefficients.straight(values), wanted, rtol=1e-10)
    assert coefficients.monotone(np.array([[1, 2, 3], [3, 2, 1], [1, 3, 2], [1, 1, 2]])).tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_a_coefficient_is_enough_where_it_and_all_larger_ones_are():
    gap = {x: np.full(3, y) for x, y in ((0.02, 0.06), (0.05, 0.01), (0.1, 0.07), (0.2, 0.09))}
    assert coefficients.enough(gap) == 0.1
    assert coefficients.enough({0.2: np.zeros(3)}) is None
    said = coefficients.strong_enough({("entropy bonus", "PG"): gap, ("reference KL", "PG"): {0.2: np.zeros(3)}})
    assert said == "the entropy bonus is at least 0.1 under PG"


@pytest.mark.parametrize(
    ("good", "words"),
    [
        ((0, 1), "K = 10 with σ ≤ 0.5 (PG)"),
        ((3, 4), "K = 10 with σ ≥ 2 (PG)"),
        ((0, 3, 6), "K = 10 with σ = 0 or 2 or K = 100 (PG)"),
        ((7,), "K = 100 with 10 correct (PG)"),
        ((), ""),
    ],
)
def test_a_condition_names_the_pools_that_pass(good, words):
    worlds = (*c.PRIORS, *c.SIZES)
    values = {"PG": {world: np.full(2, float(place in good)) for place, world in enumerate(worlds)}}
    assert c.condition(values, lambda x: x > 0.5) == words


@pytest.mark.parametrize("name", ["C3", "C4", "C5", "C8", "C10", "C60"])
def test_a_world_that_follows_the_law_turns_the_verdict(name, monkeypatch, few_resamples):
    claim = CLAIMS[name]
    for curve, wanted in ((law_curve(noise=1e-4), "holds"), (line_curve(top=6.0), "fails")):
        monkeypatch.setattr(c, "curves", lambda size, curve=curve: everywhere(curve))
        monkeypatch.setattr(c, "curve", lambda *settings, curve=curve: curve)
        assert verdict(claim, claim.function(QUICK)) == wanted


def test_entropy_that_falls_to_zero_everywhere_turns_the_verdict(monkeypatch, few_resamples):
    for curve, wanted in ((line_curve(), "holds"), (law_curve(entropy=FULL_RANGE + 1.0), "fails")):
        monkeypatch.setattr(c, "curves", lambda size, curve=curve: everywhere(curve))
        assert verdict(CLAIMS["C1"], CLAIMS["C1"].function(QUICK)) == wanted
