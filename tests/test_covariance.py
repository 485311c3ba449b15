"""Selections by covariance: recorded selections and gradients, faces that agree, and faults that others reported."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, VanillaPG, kl_divergence, simulate
from softmaxdyn.aggregation import SequenceMeanTokenSumNorm, TokenMean
from softmaxdyn.estimators import Exact
from softmaxdyn.interventions.clips import ClipHigher, PPOClip, outside
from softmaxdyn.interventions.covariance import (
    AtRandom,
    ClipCov,
    ClipCovQuantile,
    ClipCovReleased,
    ClipCovTop,
    KLCov,
    KLCovTrueKL,
    PerMicroBatch,
    RandomTokens,
    batch_score,
    first_of,
    rounding,
)
from softmaxdyn.policy import softmax
from softmaxdyn.tokens import Tokens, covariance_score, plain_push, ratio, under
from tests import losses
from tests.compiled import compiled
from tests.golden import cases, matrix, recorded, shape, tokens_of, valid

KEY = jax.random.key(7)
SELECTIONS = [
    KLCov(0.2),
    KLCovTrueKL(0.2),
    ClipCov(0.2, 0.0),
    ClipCovReleased(0.2, 0.0),
    ClipCovTop(0.2, 0.0),
    ClipCovQuantile(0.1, 0.5, 0.1),
    RandomTokens(0.2),
    AtRandom(KLCov(0.2)),
]
each_selection = pytest.mark.parametrize("selection", SELECTIONS, ids=lambda selection: type(selection).__name__)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15)


def typed(fraction):
    """A fraction that is taken at its word, also above one half."""
    return jnp.asarray(float(fraction))


def choice(selection, tokens, key=KEY):
    return selection.choose(key, tokens)


chosen = compiled(choice)


@compiled
def acted(selection, share, tokens):
    return selection.act(share, tokens, None, plain_push(tokens, (1, 1)))


@compiled
def pushed(intervention, tokens, key=KEY):
    return intervention(key, tokens, None, plain_push(tokens, (1, 1)))


@compiled
def plain(tokens, policy):
    return plain_push(tokens, policy.prob.shape)


@compiled
def applied(intervention, key, tokens, policy):
    return intervention(key, tokens, policy, plain_push(tokens, policy.prob.shape))


@partial(compiled, static_argnums=0)
def evaluate(loss, *arguments):
    return loss(*arguments)


def weights(case):
    """The weight of each token in the recorded loss."""
    mask, total = jnp.asarray(valid(case), float), case["inputs"].get("batch_num_tokens")
    modes = {
        "token-mean": TokenMean(None if total is None else float(total)),
        "seq-mean-token-sum-norm": SequenceMeanTokenSumNorm(length=float(shape(case)[1])),
    }
    return modes[case["inputs"]["loss_agg_mode"]](mask)


def flat(cells):
    """Positions in the padded matrix of a list of [row, column]."""
    return [6 * row + column for row, column in cells]


def finite(case):
    return isinstance(case["outputs"]["loss"], float)


# Against the reference functions


@cases("token_cov", "clip_cov", "kl_cov")
def test_the_covariance_score_is_the_recorded_one(case):
    tokens = recorded_or_on_policy(case)
    ours, slack = batch_score(KEY, tokens), float(rounding(tokens))
    np.testing.assert_allclose(ours.reshape(8, 6) * valid(case), matrix(case, "cov"), rtol=1e-12, atol=slack)
    if "flat_index_sorted_by_cov_desc_stable" in case["outputs"]:
        order = np.array(case["outputs"]["flat_index_sorted_by_cov_desc_stable"], int)
        cells = np.divmod(order, shape(case)[1])
        assert np.all(np.diff(ours.reshape(8, 6)[cells]) <= slack)


def recorded_or_on_policy(case):
    if "old_log_prob" in case["inputs"]:
        return recorded(case)
    log_prob = matrix(case, "log_prob")
    return tokens_of(log_prob, log_prob, matrix(case, "advantages"), valid(case))


def kl_cov_of(case):
    return KLCov(typed(case["inputs"]["kl_cov_ratio"]), case["inputs"]["ppo_kl_coef"])


def clip_cov_of(case):
    i = case["inputs"]
    bounds = (i[name] for name in ("clip_cov_lb", "clip_cov_ub", "clip_ratio_low", "clip_ratio_high"))
    return ClipCovReleased(typed(i["clip_cov_ratio"]), *bounds)


def replayed(case):
    """The recorded choice: of KL-Cov the ranks, of Clip-Cov the first of the candidates in the order that was drawn."""
    out, tokens = case["outputs"], recorded(case)
    if "k_num" in out:
        return jnp.zeros(48).at[jnp.array(flat(out["selected_in_topk_order"]), int)].set(1.0)
    drawn = flat([out["candidates"][k] for k in out["randperm"]])
    order = jnp.array(drawn + [k for k in range(48) if k not in drawn])
    candidates = clip_cov_of(case).candidates(KEY, tokens).astype(float)
    return first_of(order, candidates, jnp.asarray(float(out["clip_num"])))


@cases("kl_cov")
def test_kl_cov_chooses_the_recorded_tokens(case):
    tokens, out = recorded(case), case["outputs"]
    share = chosen(kl_cov_of(case), tokens)
    assert np.sum(share) == (out["k_num"] if out["n_valid"] else 0)
    score = np.where(valid(case).ravel(), batch_score(KEY, tokens), -np.inf)
    if share.any():  # among equals either choice is right
        ours, theirs = score[share > 0], score[flat(out["selected_in_topk_order"])]
        np.testing.assert_allclose(np.sort(ours), np.sort(theirs), rtol=1e-12, atol=float(rounding(tokens)))


@cases("clip_cov")
def test_clip_cov_has_the_recorded_candidates_and_replays_the_recorded_draw(case):
    tokens, out = recorded(case), case["outputs"]
    method = clip_cov_of(case)
    assert np.flatnonzero(method.candidates(KEY, tokens)).tolist() == flat(out["candidates"])
    assert np.flatnonzero(replayed(case)).tolist() == sorted(flat(out["selected_in_order"]))
    assert jnp.sum(chosen(method, tokens)) == min(out["clip_num"], len(out["candidates"]))
    clipped = outside(tokens, ratio(tokens), method.clip_low, method.clip_high).reshape(8, 6) & valid(case)
    np.testing.assert_array_equal(clipped, matrix(case, "ppo_clipped_mask") > 0)
    if out["n_valid"]:
        np.testing.assert_allclose(jnp.sum(tokens.weight * replayed(case)), out["pg_clipfrac"], rtol=1e-6)


@cases("kl_cov", "clip_cov")
def test_the_score_on_the_recorded_choice_is_minus_the_recorded_gradient(case):
    method = kl_cov_of(case) if "k_num" in case["outputs"] else clip_cov_of(case)
    ours = weights(case) * acted(method, replayed(case), recorded(case)).score.reshape(8, 6)
    expected = -matrix(case, "grad_log_prob")
    if case["name"].startswith("ratio_overflow"):  # the reference has inf or NaN at the token whose ratio overflows
        assert not np.isfinite(expected).all()
        expected = np.where(np.isfinite(expected), expected, ours)
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-150)  # log-ratios are cut at ±355


@cases("kl_cov", "clip_cov", only=finite)
def test_the_loss_form_has_the_recorded_value(case):
    i, selected = case["inputs"], replayed(case).reshape(8, 6)
    matrices = [matrix(case, name) for name in ("log_prob", "old_log_prob", "advantages")]
    if "k_num" in case["outputs"]:
        ours = evaluate(losses.kl_cov, *matrices, i["ppo_kl_coef"], selected)
    else:
        ours = evaluate(losses.clip_cov, *matrices, i["clip_ratio_low"], i["clip_ratio_high"], selected)
    inside = valid(case) & np.isfinite(matrix(case, "per_token_loss"))
    np.testing.assert_allclose(ours[inside], matrix(case, "per_token_loss")[inside], rtol=1e-12)
    if not case["name"].startswith("extreme"):  # there the terms span 1e20
        np.testing.assert_allclose(losses.value(ours, weights(case)), case["outputs"]["loss"], rtol=1e-12)


@cases("kl_cov", only=lambda case: case["name"] == "microbatch_long_tail_full")
def test_per_micro_batch_makes_the_recorded_choices_of_the_halves(case):
    (mark,) = cases("kl_cov", only=lambda other: other["name"] == "microbatch_long_tail_mb0").args[1]
    half = mark.values[0]
    ours = weights(case) * pushed(PerMicroBatch(kl_cov_of(case), 2), recorded(case)).score.reshape(8, 6)
    np.testing.assert_allclose(ours[:4], -matrix(half, "grad_log_prob")[:4], rtol=1e-12)
    assert np.abs(matrix(case, "grad_log_prob")[:4] - matrix(half, "grad_log_prob")[:4]).max() > 0.01


# Choices


def batch(seed, rows=4, columns=5, spread=0.3):
    """Matrices of a policy that has moved: log π, log π_old, A, mask."""
    rng = np.random.default_rng(seed)
    old = -rng.exponential(2.0, (rows, columns))
    log_prob = np.minimum(old + spread * rng.standard_normal(old.shape), 0.0)
    return log_prob, old, rng.standard_normal(old.shape), rng.random(old.shape) < 0.9


def scored(scores):
    """Tokens, on policy, whose covariance scores are the given ones, which must add up to their number times 1.

    log π = −2 ± 1 and A = ± score: the means are those of a balanced design.
    """
    c = np.asarray(scores, float)
    log_prob = np.concatenate([-1.0 + 0.0 * c, -3.0 + 0.0 * c])[None]
    return tokens_of(log_prob, log_prob, np.concatenate([c, -c])[None], np.ones_like(log_prob) > 0)


def test_the_scores_of_a_balanced_batch_are_the_advantages():
    np.testing.assert_allclose(batch_score(KEY, scored([6.0, 3.0, 0.5])), [6.0, 3.0, 0.5] * 2, rtol=1e-15)


@pytest.mark.parametrize("kind", [ClipCov, ClipCovReleased, ClipCovTop])
def test_a_score_above_the_upper_bound_is_let_through(kind):
    share = chosen(kind(0.5), scored([6.0, 3.0]))
    np.testing.assert_array_equal(share, [0.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize(("kind", "expected"), [(ClipCov, [1.0, 1.0, 0.0]), (ClipCovReleased, [0.0, 0.0, 0.0])])
def test_the_printed_interval_is_closed_and_the_released_open(kind, expected):
    share = chosen(kind(typed(1.0), 0.1, 0.3), scored([0.1, 0.3, 0.7]))
    np.testing.assert_array_equal(share, expected * 2)


@pytest.mark.parametrize("method", [KLCov(2e-4), ClipCov(2e-4, 0.0), ClipCovTop(2e-4, 0.0), RandomTokens(2e-4)])
def test_at_least_one_token_is_chosen_and_the_share_says_so(method):
    push = pushed(method, scored(np.linspace(0.1, 2.0, 32)))
    assert np.mean(push.selected) == 1.0 / 64


@each_selection
@few
@given(seed=seeds)
def test_the_share_touched_is_the_fraction_of_the_valid_tokens(selection, seed):
    tokens = tokens_of(*batch(seed, 8, 6))
    share, n = chosen(selection, tokens), int(jnp.sum(tokens.weight > 0.0))
    fraction = selection.selection.fraction if isinstance(selection, AtRandom) else selection.fraction
    count = max(int(fraction * n), 1)
    if hasattr(selection, "candidates"):
        count = min(count, int(jnp.sum(selection.candidates(KEY, tokens))))
    assert set(np.unique(share)) <= {0.0, 1.0}
    assert np.sum(share) == count
    assert jnp.all(tokens.weight[share > 0.0] > 0.0)


@few
@given(seed=seeds)
def test_a_quantile_band_does_not_depend_on_the_scale_of_the_advantages(seed):
    tokens = tokens_of(*batch(seed, 8, 6))
    shares = [
        chosen(ClipCovQuantile(0.1, 0.5, 0.1), tokens._replace(advantage=c * tokens.advantage)) for c in (1.0, 8.0)
    ]
    assert jnp.array_equal(*shares)


@few
@given(seed=seeds)
def test_a_baseline_shift_does_not_change_the_choice(seed):
    tokens = tokens_of(*batch(seed, 8, 6))
    shares = [chosen(KLCov(0.2), tokens._replace(advantage=tokens.advantage + b)) for b in (0.0, 3.0)]
    assert jnp.array_equal(*shares)


def test_a_uniform_policy_has_no_candidates():
    log_prob = np.full((4, 5), -np.log(5.0))
    tokens = tokens_of(log_prob, log_prob, np.arange(20.0).reshape(4, 5), np.ones((4, 5)) > 0)
    assert jnp.sum(chosen(ClipCovReleased(0.5, 0.0), tokens)) == 0.0


def test_loss_weights_do_not_move_the_means_of_a_sample():
    tokens = tokens_of(*batch(1))
    unequal = tokens._replace(weight=tokens.weight * (1.0 + tokens.position))
    np.testing.assert_array_equal(batch_score(KEY, unequal), batch_score(KEY, tokens))


def test_the_mean_score_is_within_groups_plus_between_groups():
    log_prob, _, a, _ = batch(3)
    tokens = tokens_of(log_prob, log_prob, a, np.ones_like(a) > 0)
    within = np.mean([np.cov(x, y, bias=True)[0, 1] for x, y in zip(log_prob, a, strict=True)])
    between = np.cov(log_prob.mean(1), a.mean(1), bias=True)[0, 1]
    assert jnp.mean(covariance_score(tokens)) == pytest.approx(within + between, rel=1e-12)
    assert abs(between) > 1e-2


# Two faces of one choice


@pytest.mark.parametrize(
    "method",
    [ClipCov(0.2, 0.2, 3.0), ClipCovReleased(0.2, 0.2, 3.0), RandomTokens(0.2), AtRandom(KLCov(0.2))],
    ids=lambda method: type(method).__name__,
)
def test_the_expected_face_is_the_mean_of_the_drawing_face(method):
    log_prob, old, a, _ = batch(5)
    tokens, draws = tokens_of(log_prob, old, a, np.ones_like(a) > 0), 4000
    shares = np.asarray(compiled(jax.vmap(choice, (None, None, 0)))(method, tokens, jax.random.split(KEY, draws)))
    expected = np.asarray(chosen(method, tokens, None))
    error = np.sqrt(expected * (1.0 - expected) / draws)
    assert np.all(np.abs(shares.mean(0) - expected) <= 4.5 * error + 1e-12)
    assert 0.1 < expected.max() < 0.9
    assert len(np.unique(expected)) <= 2  # all candidates alike


def population(prob, advantage):
    """The population of one state: every action once, with its probability."""
    action = np.arange(len(prob), dtype=np.int32)
    log_prob, state, zeros = np.log(prob), 0 * action, 0.0 * prob
    fields = (state, action, prob, advantage, log_prob, log_prob, zeros, zeros, action, state, state)
    return Tokens(*(jnp.asarray(field) for field in fields))


COUNTS = np.array([500, 250, 130, 70, 40, 10])
ADVANTAGE = np.array([0.6, -1.0, 0.9, -1.4, 2.0, -1.8])


@pytest.mark.parametrize(
    "method",
    [
        KLCov(0.1),
        ClipCov(0.1, 0.2, 4.0),
        ClipCovReleased(0.1, 0.2, 4.0),
        ClipCovTop(0.1, 0.2, 4.0),
        ClipCovQuantile(0.1, 0.5, 0.05),
        RandomTokens(0.1),
        AtRandom(KLCov(0.1)),
    ],
    ids=lambda method: type(method).__name__,
)
def test_the_population_is_a_sample_in_which_every_action_comes_up_as_often_as_it_should(method):
    whole = population(COUNTS / 1000.0, ADVANTAGE)
    sample = jax.tree.map(lambda x: x[np.repeat(np.arange(6), COUNTS)], whole)._replace(weight=jnp.full(1000, 1e-3))
    share = np.asarray(chosen(method, whole, None))
    drawn = np.bincount(sample.action, chosen(method, sample))
    assert np.sum(whole.weight * share) == pytest.approx(drawn.sum() / 1000.0, abs=1e-12)
    if isinstance(method, KLCov | ClipCovTop):
        np.testing.assert_allclose(drawn / COUNTS, share, atol=1e-12)
    else:  # a draw without replacement varies less than a binomial
        assert np.all(np.abs(drawn / COUNTS - share) <= 4.5 * np.sqrt(share * (1.0 - share) / COUNTS) + 1e-12)


# What is done to the chosen


def test_clip_cov_detaches_the_chosen_and_leaves_the_rest():
    tokens = tokens_of(*batch(2))
    push, before = pushed(ClipCov(0.2, 0.0), tokens), pushed(PPOClip(1.0, 1e9), tokens)
    assert 0 < np.sum(push.selected) < 20
    np.testing.assert_array_equal(push.score, np.where(push.selected > 0, 0.0, before.score))


def test_released_clip_cov_clips_as_ppo_does_and_spares_the_clipped_from_the_choice():
    tokens = tokens_of(*batch(2, spread=0.6))
    method = ClipCovReleased(typed(1.0), 0.0, 100.0)
    push, ppo = pushed(method, tokens), pushed(PPOClip(), tokens)
    assert jnp.sum(ppo.selected * push.selected) == 0.0 < jnp.sum(ppo.selected)
    np.testing.assert_array_equal(push.score, np.where(push.selected > 0, 0.0, ppo.score))


def test_at_random_pulls_other_tokens_as_hard_as_kl_cov():
    tokens = tokens_of(*batch(2))
    best, other = pushed(KLCov(0.2, 0.5), tokens), pushed(AtRandom(KLCov(0.2, 0.5)), tokens)
    assert jnp.sum(best.selected) == jnp.sum(other.selected)
    pull = np.where(other.selected > 0, 0.5 * np.sign(tokens.log_prob - tokens.old_log_prob), 0.0)
    np.testing.assert_array_equal(other.score, np.asarray(pushed(PPOClip(1.0, 1e9), tokens).score) - pull)
    assert not jnp.array_equal(best.selected, other.selected)


@few
@given(seed=seeds)
def test_the_pull_of_kl_cov_does_not_depend_on_the_clip_before_it(seed):
    tokens = tokens_of(*batch(seed, spread=0.6))

    np.testing.assert_allclose(pull_after(PPOClip(), tokens), pull_after(ClipHigher(high=5.0), tokens), atol=1e-12)


@compiled
def pull_after(clip, tokens):
    before = clip(None, tokens, None, plain_push(tokens, (1, 1)))
    return KLCov(0.3)(KEY, tokens, None, before).score - before.score


@few
@given(seed=seeds)
def test_the_score_of_kl_cov_is_minus_the_slope_of_its_loss(seed):
    log_prob, old, a, mask = batch(seed)
    tokens = tokens_of(log_prob, old, a, mask)
    push = pushed(KLCov(0.3, 0.7), tokens)
    selected, weight = push.selected.reshape(4, 5), tokens.weight.reshape(4, 5)
    slope = slope_of_kl_cov(log_prob, old, a, selected, weight)
    np.testing.assert_allclose(weight * push.score.reshape(4, 5), -slope, rtol=1e-12, atol=1e-17)


@compiled
def slope_of_kl_cov(log_prob, old, a, selected, weight):
    return jax.grad(lambda x: losses.value(losses.kl_cov(x, old, a, 0.7, selected), weight))(log_prob)


def sampled(seed, states=3, actions=4, count=30):
    """(tokens, policy, logits of the policy that acted): a sample that a moved policy looks at."""
    rng = np.random.default_rng(seed)
    old, move = rng.standard_normal((states, actions)), 0.5 * rng.standard_normal((states, actions))
    state, action = (rng.integers(0, n, count).astype(np.int32) for n in (states, actions))
    number, zeros = np.arange(count, dtype=np.int32), np.zeros(count)
    row, weight, a = 0 * number, zeros + 1.0 / count, rng.standard_normal(count)
    before = np.asarray(probe(old).log_prob)[state, action]
    fields = (state, action, weight, a, before, before, zeros, zeros, number, row, row)
    policy = probe(old + move)
    return looked_at(Tokens(*(jnp.asarray(field) for field in fields)), policy), policy, old


probe, looked_at = compiled(softmax), compiled(under)


@pytest.mark.parametrize("key", [None, KEY], ids=["population", "sample"])
def test_the_field_of_true_kl_is_minus_the_slope_of_the_divergence_from_the_old_policy(key):
    tokens, policy, old = sampled(0)
    method = KLCovTrueKL(0.25, 0.3).init(jnp.asarray(old))
    push = applied(method, key, tokens, policy)
    slope = slope_of_divergence(policy.logits, jnp.asarray(old), tokens.state, 0.3 * tokens.weight * push.selected)
    np.testing.assert_allclose(push.field, -slope, rtol=1e-11, atol=1e-16)
    np.testing.assert_array_equal(push.score, plain(tokens, policy).score)
    assert np.abs(push.field).sum() > 1e-3


@compiled
@jax.grad
def slope_of_divergence(logits, old, state, weight):
    return jnp.sum(weight * kl_divergence(old, logits)[state])


# The first inner step, and the following


@pytest.mark.parametrize("method", [KLCov(0.3), KLCovTrueKL(0.3), AtRandom(KLCov(0.3))])
def test_kl_cov_is_a_no_op_to_the_bit_on_policy_although_tokens_are_chosen(method):
    tokens, policy, _ = sampled(1)
    tokens = tokens._replace(old_log_prob=tokens.log_prob)
    before = plain(tokens, policy)
    push = applied(method.init(policy.logits), KEY, tokens, policy)
    assert np.array_equal(push.score, before.score)
    assert np.array_equal(push.field, before.field)
    assert np.sum(push.selected) == 9


def trajectory(parts, inner_steps, num_steps=5, step_size=1.0):
    start = np.array([0.3, -1.0, 0.5, 1.0, -2.0])
    algorithm = Algorithm(VanillaPG(step_size), Exact(), parts)
    return simulate(
        Bandit([1.0, 0.6, 0.0, -1.0, 2.0]), algorithm, num_steps=num_steps, inner_steps=inner_steps, logits=start
    )


@pytest.mark.parametrize("method", [KLCov(0.3), KLCovTrueKL(0.3)])
def test_with_one_update_per_rollout_kl_cov_is_plain_policy_gradient(method):
    np.testing.assert_array_equal(trajectory((method,), 1).logits, trajectory((), 1).logits)
    assert np.abs(trajectory((method,), 2).logits - trajectory((), 2).logits).max() > 1e-3


@pytest.mark.parametrize("method", [KLCov(0.3), KLCovTrueKL(0.3), ClipCov(0.3, 0.05), ClipCovReleased(0.3, 0.05)])
def test_many_inner_steps_never_leave_the_simplex(method):
    trace = trajectory((method,), 16, num_steps=100, step_size=3.0)
    assert np.isfinite(trace.logits).all()
    assert np.all((trace.entropy >= 0.0) & (trace.entropy <= np.log(5.0) + 1e-12))


# Micro-batches


def test_the_choice_of_the_whole_batch_is_not_that_of_its_micro_batches():
    log_prob, old, a, _ = batch(4, 8, 5)
    tokens = tokens_of(log_prob, old, a * np.repeat([0.01, 1.0], 4)[:, None], np.ones_like(a) > 0)
    whole, halves = pushed(KLCov(0.1), tokens).selected, pushed(PerMicroBatch(KLCov(0.1), 2), tokens).selected
    by_half = halves.reshape(2, 20)
    np.testing.assert_array_equal(by_half.sum(1), [2.0, 2.0])
    np.testing.assert_array_equal(whole.reshape(2, 20).sum(1), [0.0, 4.0])


@few
@given(seed=seeds)
def test_each_micro_batch_chooses_as_if_it_were_alone(seed):
    matrices = batch(seed, 6, 4)
    together = pushed(PerMicroBatch(KLCov(0.2, 0.5), 3), tokens_of(*matrices))
    alone = [pushed(KLCov(0.2, 0.5), tokens_of(*(m[2 * k : 2 * k + 2] for m in matrices))) for k in range(3)]
    mask = matrices[3].ravel()
    np.testing.assert_array_equal(together.selected, jnp.concatenate([push.selected for push in alone]))
    np.testing.assert_allclose(together.score[mask], jnp.concatenate([push.score for push in alone])[mask], rtol=1e-14)


@few
@given(seed=seeds)
def test_what_depends_on_the_token_alone_is_the_same_per_micro_batch(seed):
    tokens = tokens_of(*batch(seed, spread=0.6))
    together, apart = pushed(PPOClip(), tokens), pushed(PerMicroBatch(PPOClip(), 2), tokens)
    assert jnp.array_equal(together.score, apart.score)
    assert jnp.array_equal(together.selected, apart.selected)


def test_fields_of_micro_batches_add_up():
    tokens, policy, old = sampled(2)
    method = KLCovTrueKL(typed(1.0), 0.3)
    parts = (part.init(jnp.asarray(old)) for part in (method, PerMicroBatch(method, 4)))
    together, apart = (applied(part, KEY, tokens, policy).field for part in parts)
    np.testing.assert_allclose(together, apart, rtol=1e-13)


def test_uneven_micro_batches_cover_every_episode():
    tokens = tokens_of(*batch(3, 5, 4))
    push = pushed(PerMicroBatch(RandomTokens(typed(1.0)), 3), tokens)
    np.testing.assert_array_equal(push.selected > 0.0, tokens.weight > 0.0)


# Laws


@each_selection
@few
@given(seed=seeds)
def test_every_choice_is_finite_for_log_ratios_of_800(selection, seed):
    rng = np.random.default_rng(seed)
    log_prob, old = -800.0 * rng.integers(0, 2, (2, 4, 5))
    tokens = tokens_of(log_prob, old, rng.standard_normal((4, 5)), rng.random((4, 5)) < 0.8)
    share = chosen(selection, tokens)
    assert jnp.all(jnp.isfinite(share))
    if not isinstance(selection, KLCovTrueKL):
        assert jnp.all(jnp.isfinite(acted(selection, share, tokens).score))


@pytest.mark.parametrize("method", [KLCov(0.2), ClipCovTop(0.2, 0.0)])
@few
@given(seed=seeds)
def test_permuting_the_tokens_permutes_the_choice(method, seed):
    tokens = tokens_of(*batch(seed))
    order = np.random.default_rng(seed).permutation(20)
    assert jnp.array_equal(chosen(method, jax.tree.map(lambda x: x[order], tokens)), chosen(method, tokens)[order])


@each_selection
def test_a_batch_without_tokens_is_left_alone(selection):
    log_prob, old, a, mask = batch(0)
    tokens = tokens_of(log_prob, old, a, mask & False)
    assert jnp.sum(chosen(selection, tokens)) == 0.0


@pytest.mark.parametrize("method", [KLCov(0.3, 0.0), KLCovTrueKL(0.3, 0.0)])
def test_a_coefficient_of_zero_changes_nothing(method):
    tokens, policy, old = sampled(3)
    push, before = applied(method.init(jnp.asarray(old)), KEY, tokens, policy), plain(tokens, policy)
    assert np.array_equal(push.score, before.score)
    assert np.array_equal(push.field, before.field)


def test_a_wrapper_is_of_the_kind_of_what_it_wraps():
    assert PerMicroBatch(KLCov(), 2).kind == AtRandom(KLCov()).kind == "off-policy-only"
    assert PerMicroBatch(ClipCov(), 2).kind == "probability-dependent"
    assert AtRandom(ClipCov()).kind == RandomTokens().kind == "reward-only"


def test_wrappers_carry_what_a_run_fills_in():
    tokens, policy, old = sampled(0)
    old = jnp.asarray(old)
    for wrapper in (AtRandom(KLCovTrueKL()), PerMicroBatch(KLCovTrueKL(), 2)):
        inner = lambda config: getattr(config, "selection", None) or config.intervention  # noqa: E731
        assert jnp.array_equal(inner(wrapper.init(old)).old, old)
        assert jnp.array_equal(inner(wrapper.init(old).next(tokens, policy)).old, policy.logits)


# Bad input


@pytest.mark.parametrize("kind", [KLCov, KLCovTrueKL, ClipCov, ClipCovReleased, ClipCovQuantile, RandomTokens])
def test_a_fraction_that_looks_like_per_cent_is_an_error(kind):
    message = r"^fraction is 20.0; wanted a fraction in \(0, 0.5\]: 20.0 per cent is 0.2$"
    with pytest.raises(InputError, match=message):
        kind(20.0)
    with pytest.raises(InputError, match="0.9 per cent is 0.009$"):
        kind(0.9)
    assert kind(typed(0.9)).fraction == 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KLCov(0.0), r"fraction is 0.0; wanted a finite number in \(0, 1\]"),
        (lambda: KLCov(typed(1.1)), r"fraction is 1.1; wanted a finite number in \(0, 1\]"),
        (lambda: KLCov(coefficient=-1.0), "coefficient is -1.0; wanted a finite number ≥ 0"),
        (lambda: ClipCov(low=5.0, high=1.0), "low is 5.0 and high is 1.0; wanted low ≤ high"),
        (lambda: ClipCov(low=np.nan), "low is nan; wanted a finite number "),
        (lambda: ClipCovReleased(clip_low=1.5), r"low is 1.5; wanted a finite number in \[0, 1\]"),
        (lambda: ClipCovQuantile(topmost=0.1, top=0.01), "topmost is 0.1 and top is 0.01; wanted topmost ≤ top"),
        (lambda: PerMicroBatch(KLCov(), 0), "parts is 0; wanted a whole number ≥ 1"),
        (
            lambda: pushed.__wrapped__(PerMicroBatch(KLCov(), 2), tokens_of(*batch(0)), None),
            r"PerMicroBatch splits a sample; the population of Exact\(\) has no micro-batches: use Sampled",
        ),
        (
            lambda: pushed.__wrapped__(KLCovTrueKL(), tokens_of(*batch(0))),
            r"KLCovTrueKL needs whole policies, also the old one \(`init`\); on a recorded log use KLCov",
        ),
    ],
)
def test_numbers_that_make_no_sense_are_an_error(make, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        make()
