"""What a log says: every number by a second road (plain Python, enumeration, autodiff, the classes themselves)."""

import json
import math
import statistics
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import InputError, entropy
from softmaxdyn.diagnostics import (
    TAILS,
    Log,
    Profile,
    covariance_score,
    covariance_tail,
    diagnose,
    divergences,
    entropy_effects,
    estimate,
    groups_without_signal,
    order,
    plain,
    profile,
    ratios,
    tokens_of,
    touch,
    touches,
    weighted_median,
)
from softmaxdyn.interventions import (
    DynamicSampling,
    ForkTokens,
    PositiveReweighting,
    Stare,
    Steer,
    SteerExact,
    SteerReleased,
)
from softmaxdyn.interventions.clips import PPOClip
from softmaxdyn.interventions.covariance import ClipCov, ClipCovReleased, KLCov
from softmaxdyn.logs import make_log

KEY = jax.random.key(0)
SIZE = 64


def recorded(seed=0, size=SIZE, actions=6, moved=0.3):
    """A log of tokens drawn from random policies, a state each, with entropies; four tokens an episode."""
    random = np.random.default_rng(seed)
    logits = 2.0 * random.standard_normal((size, actions))
    old, new = (jax.nn.log_softmax(z) for z in (logits, logits + moved * random.standard_normal((size, actions))))
    action = [random.choice(actions, p=p) for p in np.exp(np.asarray(old, float))]
    rows, step = np.arange(size), np.arange(size)
    h = -jnp.sum(jnp.exp(new) * new, -1)
    return Log(
        log_prob=np.asarray(new)[rows, action],
        old_log_prob=np.asarray(old)[rows, action],
        advantage=random.standard_normal(size // 4).repeat(4),
        entropy=np.asarray(h),
        mean_entropy_score=np.asarray(jnp.sum(jnp.exp(2.0 * new) * (new + h[:, None]), -1)),
        position=step % 4.0,
        episode=step // 4,
        group=step // 16,
    )


def repeated(log, times):
    """Every token several times, one after the other."""
    return Log(*(None if values is None else np.repeat(values, times) for values in log[:-1]))


def of(log_prob, advantage, old_log_prob=None, **more):
    log_prob = np.asarray(log_prob, float)
    old = log_prob if old_log_prob is None else np.asarray(old_log_prob, float)
    return Log(log_prob, old, np.asarray(advantage, float), **more)


def tied(seed):
    """A log whose scores are exact numbers, with many ties: 64 quarters have an exact mean."""
    values = np.random.default_rng(seed).integers(-8, 9, (3, SIZE)) / 4.0
    return of(values[0] - 2.0, values[1], values[2] - 2.0)


logs = st.integers(0, 2**32 - 1).map(tied)


def tail(log, **settings):
    return covariance_tail(log, order(covariance_score(log)), **{"permutations": 2, **settings})


@given(logs)
def test_the_tail_is_that_of_exact_arithmetic(log):
    surprise, advantage = ([Fraction(float(x)) for x in xs] for xs in (log.log_prob, log.advantage))
    means = sum(surprise) / SIZE, sum(advantage) / SIZE
    scores = sorted(((s - means[0]) * (a - means[1]) for s, a in zip(surprise, advantage, strict=True)), reverse=True)
    found = tail(log)
    for f, fraction in enumerate(TAILS):
        top = scores[: max(1, math.floor(fraction * SIZE))]
        assert found.tokens[f] == len(top)
        assert found.mean[f] == float(sum(top)) / len(top)
        for share, total, part in (
            (found.net[f], sum(scores), sum(top)),
            (found.gross[f], sum(map(abs, scores)), sum(map(abs, top))),
        ):
            assert share == float(part) / float(total) if total else np.isnan(share)


def test_the_curve_holds_the_scores_by_rank_from_both_ends():
    log = recorded()
    found, scores = tail(log), np.sort(covariance_score(log))
    np.testing.assert_array_equal(found.highest, scores[::-1][found.rank - 1])
    np.testing.assert_array_equal(found.lowest, scores[found.rank - 1])
    assert (found.rank[0], found.rank[-1]) == (1, SIZE)


@given(logs, st.integers(0, 9))
def test_the_order_of_the_tokens_does_not_matter(log, seed):
    places = np.random.default_rng(seed).permutation(SIZE)
    moved = of(log.log_prob[places], log.advantage[places], log.old_log_prob[places])
    for one, other in zip(tail(log)[:5], tail(moved)[:5], strict=True):
        np.testing.assert_array_equal(one, other)
    assert divergences(moved)["k3"].mean == pytest.approx(divergences(log)["k3"].mean, rel=1e-13)


def test_advantages_or_probabilities_that_are_all_equal_have_no_tail():
    for log in (of(np.linspace(-3.0, -0.1, 10), np.full(10, 0.1)), of(np.full(10, -0.1), np.linspace(-3.0, 3.0, 10))):
        found = tail(log)
        assert not found.mean.any()
        assert np.isnan([found.net, found.gross, found.permuted_gross[0]]).all()


def test_the_control_has_the_marginals_and_not_the_link():
    """If A follows from log π, the tail is beyond its control; if A is drawn apart from it, within its range."""
    random = np.random.default_rng(1)
    log_prob = -random.exponential(1.0, 4000)
    linked, apart = (tail(of(log_prob, a), permutations=40) for a in (log_prob, random.standard_normal(4000)))
    assert (linked.mean > linked.permuted_mean.max(0)).all()
    assert (apart.mean[2:] < apart.permuted_mean.max(0)[2:]).all()
    assert (apart.mean[2:] > apart.permuted_mean.min(0)[2:]).all()


def test_the_mean_of_a_permuted_score_is_0_and_its_variance_that_of_the_marginals():
    """Over all permutations Var(mean C) = Var(log π) Var(A)/(N − 1); 400 of them agree within 4 standard errors."""
    log = recorded()
    means = tail(log, permutations=400).permuted_mean[:, -1]
    variance = np.var(log.log_prob) * np.var(log.advantage) / (SIZE - 1)
    assert abs(means.mean()) < 4.0 * np.sqrt(variance / 400)
    assert np.var(means) == pytest.approx(variance, rel=4.0 * np.sqrt(2.0 / 400))


def test_the_same_seed_gives_the_same_control():
    one, same, other = (tail(recorded(), seed=seed).permuted_mean for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_forms_of_the_effect_are_derivatives_of_the_entropy():
    """−dH/dη of the push w (e_a − π), of w e_a, and of w (1 − π_a) e_a, by forward differentiation."""
    random, w = np.random.default_rng(2), 0.7
    z = jnp.asarray(random.standard_normal(5))
    log_p = jax.nn.log_softmax(z)
    h, s_mean = entropy(z), jnp.sum(jnp.exp(2.0 * log_p) * (log_p + entropy(z)))
    ones = np.ones(5)
    found = entropy_effects(of(log_p, w * ones, entropy=float(h) * ones, mean_entropy_score=float(s_mean) * ones))
    for a in range(5):
        own = jnp.zeros(5).at[a].set(1.0)
        pushes = {"exact": own - jnp.exp(log_p), "own_logit": own, "others_held": own * (1.0 - jnp.exp(log_p[a]))}
        for name, push in pushes.items():
            slope = jax.jvp(entropy, (z,), (w * push,))[1]
            np.testing.assert_allclose(found[name][a], -slope, rtol=1e-12, atol=1e-14)


def test_effects_need_the_entropy_and_the_exact_one_its_mean_score_too():
    log = recorded()
    assert list(entropy_effects(log)) == ["exact", "own_logit", "others_held"]
    assert list(entropy_effects(log._replace(mean_entropy_score=None))) == ["own_logit", "others_held"]
    assert entropy_effects(log._replace(entropy=None)) == {}


@given(logs, st.sampled_from([1e-4, 0.03, 0.25, 0.5]))
def test_kl_cov_selects_what_its_class_selects_also_among_equals(log, fraction):
    method = KLCov(fraction)
    found = touches(log, {"KL-Cov": method}, order(covariance_score(log)))["KL-Cov"]
    np.testing.assert_array_equal(found, touch(tokens_of(log), method))


@pytest.mark.parametrize("method", [ClipCov(0.05, 0.1, 0.8), ClipCovReleased(0.05, 0.1, 0.8), ClipCov(0.5, 0.1, 0.8)])
def test_clip_cov_has_the_candidates_and_the_count_of_its_class(method):
    log = recorded(seed=4)
    inside, chosen = touches(log, {"x": method}, order(covariance_score(log))).values()
    np.testing.assert_array_equal(inside, method.candidates(KEY, tokens_of(log)))
    assert 0 < chosen.sum() == touch(tokens_of(log), method).sum()
    assert not (chosen & ~inside).any()


def test_clip_cov_chooses_each_candidate_as_often():
    log, ranked = recorded(seed=4), np.arange(SIZE)
    draws = [list(touches(log, {"x": ClipCov(0.05, 0.1, 0.8)}, ranked, seed=seed).values()) for seed in range(200)]
    inside, chosen = draws[0][0], np.sum([chosen for _, chosen in draws], axis=0)
    share = 3.0 / inside.sum()
    assert (np.abs(chosen[inside] - 200 * share) < 4.5 * np.sqrt(200 * share * (1 - share))).all()


def test_steer_is_damped_as_its_formula_says():
    log = recorded()
    r, p = np.exp(log.log_prob - log.old_log_prob), np.exp(log.log_prob)
    clipped = ((log.advantage > 0) & (r > 1.2)) | ((log.advantage < 0) & (r < 0.8))
    omega = np.abs(np.where(clipped, 0.0, r * log.advantage * p * (1 - p) * (log.log_prob + log.entropy)))
    found = touches(log, {"STEER": Steer(0.7)}, np.arange(SIZE))["STEER"]
    np.testing.assert_allclose(found, 1.0 - 0.7 ** (omega / omega.max()), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("method", [Steer(), SteerReleased()])
def test_steer_without_entropies_is_refused(method):
    with pytest.raises(InputError, match="^STEER needs the entropy of each token; the log has no column entropy$"):
        touches(recorded()._replace(entropy=None), {"STEER": method}, np.arange(SIZE))


def test_a_method_that_needs_a_policy_says_so():
    with pytest.raises(InputError, match="SteerExact needs the probabilities of all actions"):
        touches(recorded(), {"x": SteerExact()}, np.arange(SIZE))


POSITIVE = int((recorded().advantage > 0.0).sum())
OTHERS = {
    "all but the top quarter": (ForkTokens(0.25), 0.75 * SIZE),
    "groups of equal reward": (DynamicSampling(), SIZE),
    "a quarter of each sign": (Stare(fraction=0.25, target=9.0), POSITIVE // 4 + (SIZE - POSITIVE) // 4),
    "half of each positive": (PositiveReweighting(0.5), 0.5 * POSITIVE),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_methods_touch_what_they_should(what):
    method, wanted = OTHERS[what]
    log = recorded()._replace(reward=np.ones(SIZE))
    assert touches(log, {"x": method}, np.arange(SIZE))["x"].sum() == pytest.approx(wanted, rel=1e-12)


def test_a_profile_counts_the_touched_tokens():
    log = of(np.log([0.9, 0.6, 0.4, 0.1]), [1.0, -1.0, 2.0, 0.0], entropy=np.arange(4.0), position=np.arange(4.0) * 2)
    found = profile(log, np.array([True, True, True, False]))
    assert found._replace(mean_score=None) == Profile(
        tokens=3.0,
        share=0.75,
        positive=pytest.approx(2 / 3),
        negative=pytest.approx(1 / 3),
        likely_and_good=pytest.approx(1 / 3),
        mean_probability=pytest.approx(1.9 / 3),
        median_probability=pytest.approx(0.6),
        mean_score=None,
        mean_entropy=pytest.approx(1.0),
        mean_position=pytest.approx(2.0),
    )
    assert found.mean_score == pytest.approx(covariance_score(log)[:3].mean())


def test_a_profile_weights_tokens_by_how_much_of_them_is_touched():
    """A third of a token counts as one of three copies of it does."""
    log = recorded(size=16)
    times = np.random.default_rng(0).integers(0, 4, 16)
    copies = repeated(log, 3)
    touched = (np.tile(np.arange(3), 16) < np.repeat(times, 3)).astype(bool)
    one, other = profile(log, times / 3.0), profile(copies, touched)
    assert one._replace(tokens=0.0) == pytest.approx(other._replace(tokens=0.0), rel=1e-12)
    assert 3.0 * one.tokens == pytest.approx(other.tokens)


def test_a_profile_of_nothing_is_empty():
    assert profile(recorded(), np.zeros(SIZE, bool)) == Profile(0.0, 0.0)


@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 4)), min_size=1, max_size=9))
def test_a_weighted_median_is_the_low_median_of_the_repeated_values(pairs):
    values, times = (np.array(column, float) for column in zip(*pairs, strict=True))
    assert weighted_median(values, times) == statistics.median_low(np.repeat(values, times.astype(int)))


OLD, NEW = np.array([1, 2, 1, 4]) / 8, np.array([3, 2, 2, 1]) / 8


def test_divergences_of_the_whole_population_are_the_exact_ones():
    drawn = np.repeat(np.arange(4), [1, 2, 1, 4])  # each action as often as the old policy draws it
    found = divergences(of(np.log(NEW)[drawn], np.zeros(8), np.log(OLD)[drawn]))
    kl = math.fsum(OLD * np.log(OLD / NEW))
    assert found["k1"].mean == pytest.approx(kl, rel=1e-14)
    assert found["k3"].mean == pytest.approx(kl, rel=1e-14)
    assert found["k2"].mean == pytest.approx(math.fsum(OLD * np.log(OLD / NEW) ** 2) / 2, rel=1e-14)
    assert found["chi2"].mean == pytest.approx(math.fsum((NEW - OLD) ** 2 / OLD), rel=1e-14)


def test_a_standard_error_is_that_of_independent_values():
    values = np.random.default_rng(0).exponential(size=50)
    wanted = statistics.stdev(values) / math.sqrt(50)
    each = estimate(values, np.arange(50))
    assert (each.error, each.error_by_episode) == (pytest.approx(wanted), pytest.approx(wanted))


def test_copies_of_a_token_in_its_episode_leave_the_error_by_episode_and_shrink_the_other():
    log = recorded()
    one, four = (estimate(each.log_prob, each.episode) for each in (log, repeated(log, 4)))
    assert four.mean == pytest.approx(one.mean, rel=1e-14)
    assert four.error_by_episode == pytest.approx(one.error_by_episode, rel=1e-13)
    assert four.error == pytest.approx(one.error / 2.0 * math.sqrt((SIZE - 1) / (SIZE - 0.25)), rel=1e-13)


def test_one_token_or_one_episode_has_no_error():
    assert estimate(np.array([2.0])) == (2.0, None, None)
    assert estimate(np.array([2.0, 3.0]), np.zeros(2, int)).error_by_episode is None


@pytest.mark.parametrize("difference", [800.0, -800.0, 0.0])
def test_extreme_log_ratios_stay_finite(difference):
    log_prob = np.array([min(difference, 0.0), -1.0, -2.0])
    log = of(log_prob, [1.0, -1.0, 0.5], log_prob - np.array([difference, 0.0, 0.1]), episode=np.arange(3))
    numbers = [divergences(log), ratios(log), tail(log._replace(entropy=np.ones(3)))]
    assert None not in jax.tree.leaves(plain(numbers), is_leaf=lambda x: x is None)


def test_ratios_are_those_of_the_tokens_and_the_harmful_side_is_what_ppo_clips():
    log = recorded(moved=0.6)
    r, found = np.exp(log.log_prob - log.old_log_prob), ratios(log, 0.1, 0.3)
    assert (
        0
        < found.harmful
        == touch(tokens_of(log), PPOClip(0.1, 0.3)).mean()
        == found.harmful_above + found.harmful_below
    )
    assert found.outside == np.mean((r < 0.9) | (r > 1.3)) > found.harmful
    assert (found.smallest, found.largest, found.mean) == (r.min(), r.max(), r.mean())
    assert found.quantiles["0.5"] == np.median(r)
    assert found.largest_log_ratio == np.abs(log.log_prob - log.old_log_prob).max()


def test_on_policy_is_said_when_it_is_so_to_the_bit():
    log = recorded()
    same = log._replace(old_log_prob=log.log_prob)
    assert (ratios(log).on_policy, ratios(same).on_policy) == (False, True)
    assert (ratios(same).smallest, ratios(same).largest, ratios(same).harmful) == (1.0, 1.0, 0.0)


def test_groups_without_signal_are_counted():
    log = make_log(
        {
            "log_prob": -np.ones(9),
            "old_log_prob": -np.ones(9),
            "advantage": [0, 0, 0.1, 0.1, 1, -1, 0, 2, 2],
            "reward": [1, 1, 0, 0, 1, 0, np.nan, 1, 1],
            "group": ["a", "a", "b", "b", "c", "c", "d", "d", "e"],
            "episode": [0, 1, 0, 1, 0, 1, 0, 1, 0],
        }
    )
    found = groups_without_signal(log)
    assert found == (5, 3, 1, 4, 1)  # a, b, e; a; a, b, d (its one known reward), e; e
    assert groups_without_signal(log._replace(group=None)) is None


def test_a_diagnosis_can_be_written_as_json():
    found, touched = diagnose(recorded(), {"KL-Cov": KLCov(), "Clip-Cov": ClipCov()}, permutations=2)
    text = json.dumps(plain(found), allow_nan=False)
    assert json.loads(text)["tail"]["gross"] == list(found.tail.gross)
    assert list(touched) == ["KL-Cov", "Clip-Cov candidates", "Clip-Cov"]
    assert list(found.profiles) == ["all tokens", *touched]
    assert plain((np.float64("nan"), np.inf, 1)) == [None, None, 1]


def test_surprisal_and_entropy_have_their_own_names_and_differ_by_noise_on_policy():
    log = recorded(moved=0.0)
    found, _ = diagnose(log, {}, permutations=2)
    assert found.mean_surprisal.mean == pytest.approx(-log.log_prob.mean())
    assert found.mean_entropy.mean == pytest.approx(log.entropy.mean())
    assert abs(found.surprisal_minus_entropy.mean) < 4.0 * found.surprisal_minus_entropy.error
    assert diagnose(log._replace(entropy=None), {}, permutations=2)[0].mean_entropy is None
