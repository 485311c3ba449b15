"""Surrogates and clips: the recorded gradients, the slope of the loss they stand for, and what they do at ties."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, VanillaPG
from softmaxdyn.aggregation import SequenceMeanTokenMean, TokenMean
from softmaxdyn.interventions.clips import (
    CEGPPO,
    CISPO,
    GMPO,
    GSPO,
    SAPO,
    ClipHigher,
    DualClip,
    LogRatioLimit,
    NoRatio,
    PPOClip,
    episode_mean,
)
from softmaxdyn.policy import softmax
from softmaxdyn.simulation import step
from softmaxdyn.tokens import plain_push
from tests import losses
from tests.compiled import compiled
from tests.golden import cases, matrix, recorded, shape, tokens_of, valid

CLIPS = [
    PPOClip(),
    ClipHigher(),
    DualClip(),
    LogRatioLimit(),
    NoRatio(),
    CISPO(),
    CEGPPO(),
    SAPO(),
    GSPO(),
    GMPO(),
]
each_clip = pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15)


def pushed(parts, tokens, start=None):
    """The push after `parts`, without a policy: tokens of a log are enough."""
    push = plain_push(tokens, (1, 1)) if start is None else start
    for part in parts:
        push = part(None, tokens, None, push)
    return push


quickly = compiled(pushed)


@partial(compiled, static_argnums=0)
def evaluate(loss, log_prob, old, advantage, mask, *numbers):
    """The loss of each token, compiled once a formula."""
    return loss(log_prob, old, advantage, mask, *numbers)


@partial(compiled, static_argnums=0)
def slope(loss, log_prob, old, advantage, mask, weight):
    """∂ Σ weight · L/∂ log π."""
    return jax.grad(lambda x: losses.value(loss(x, old, advantage, mask), weight))(log_prob)


# The reference functions: our parts, the loss form, and the names of their numbers

VERL = {
    "vanilla": (
        lambda low, high, c: (LogRatioLimit(20.0), PPOClip(low, high), DualClip(c)),
        lambda x, o, a, m, low, high, c: losses.dual_clip(x, o, a, low, high, c),
        ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c"),
    ),
    "gpg": (lambda: (NoRatio(),), lambda x, o, a, m: losses.reinforce(x, o, a), ()),
    "cispo": (
        lambda low, high: (CISPO(low, high),),
        lambda x, o, a, m, low, high: losses.cispo(x, o, a, low, high),
        ("clip_ratio_low", "clip_ratio_high"),
    ),
    "sapo": (
        lambda positive, negative: (SAPO(positive, negative),),
        lambda x, o, a, m, positive, negative: losses.sapo(x, o, a, positive, negative),
        ("tau_pos", "tau_neg"),
    ),
    "gspo": (
        lambda low, high: (GSPO(low, high),),
        lambda x, o, a, m, low, high: losses.gspo(x, o, a, low, high, m),
        ("clip_ratio_low", "clip_ratio_high"),
    ),
    "geo_mean": (
        lambda low, high: (GMPO(low, high),),
        lambda x, o, a, m, low, high: losses.geo_mean(x, o, a, low, high, m),
        ("clip_ratio_low", "clip_ratio_high"),
    ),
}


def verl(case):
    """The entry of a recorded case, and its numbers."""
    parts, loss, names = VERL[case["inputs"].get("loss", "vanilla")]
    numbers = [case["inputs"][name] for name in names]
    return parts(*numbers), loss, numbers


def weights(case):
    """The weight of each token in the recorded loss; geo_mean averages over all rows, also those without a token."""
    modes = {"token-mean": TokenMean(), "seq-mean-token-mean": SequenceMeanTokenMean()}
    mode = modes[case["inputs"]["loss_agg_mode"]]
    if case["inputs"].get("loss") == "geo_mean":
        mode = SequenceMeanTokenMean(sequences=float(shape(case)[0]))
    return mode(jnp.asarray(valid(case), float))


recorded_cases = cases("ppo_clip", "ppo_clip_higher", "ppo_dual_clip", "other_policy_losses")


@recorded_cases
def test_the_score_is_minus_the_recorded_gradient(case):
    parts, _, _ = verl(case)
    ours = weights(case) * quickly(parts, recorded(case)).score.reshape(8, 6)
    np.testing.assert_allclose(ours, -matrix(case, "grad_log_prob"), rtol=1e-12, atol=0.0)


@recorded_cases
def test_the_loss_form_has_the_recorded_value(case):
    _, loss, numbers = verl(case)
    mask = valid(case)
    ours = evaluate(loss, *(matrix(case, name) for name in ("log_prob", "old_log_prob", "advantages")), mask, *numbers)
    total = losses.value(ours, weights(case))
    if mask.any():
        np.testing.assert_allclose(total, case["outputs"]["loss"], rtol=1e-12)
    else:  # the reference divides 0 by 0
        assert (total, case["outputs"]["loss"]) == (0.0, "nan")
    if "per_token_loss" in case["outputs"]:
        np.testing.assert_allclose(ours * mask, matrix(case, "per_token_loss"), rtol=1e-12)


@cases("ppo_clip", "ppo_clip_higher", "ppo_dual_clip")
def test_the_touched_share_is_the_recorded_clip_fraction(case):
    tokens, i = recorded(case), case["inputs"]
    clip, dual = PPOClip(i["clip_ratio_low"], i["clip_ratio_high"]), DualClip(i["clip_ratio_c"])
    for part, name in ((clip, "pg_clipfrac"), (dual, "pg_clipfrac_lower")):
        share = jnp.sum(tokens.weight * quickly((part,), tokens).selected)
        np.testing.assert_allclose(share, case["outputs"][name], rtol=1e-6)  # recorded in float32


# Against the slope of the loss form

LOW, HIGH = 0.15, 0.35
FORMS = {
    "plain": ((), lambda x, o, a, m: losses.surrogate(x, o, a)),
    "PPOClip": ((PPOClip(LOW, HIGH),), lambda x, o, a, m: losses.ppo(x, o, a, LOW, HIGH)),
    "ClipHigher": ((ClipHigher(),), lambda x, o, a, m: losses.ppo(x, o, a, 0.2, 0.28)),
    "DualClip": ((PPOClip(), DualClip(1.7)), lambda x, o, a, m: losses.dual_clip(x, o, a, 0.2, 0.2, 1.7)),
    "DualClip first": ((DualClip(1.7), PPOClip()), lambda x, o, a, m: losses.dual_clip(x, o, a, 0.2, 0.2, 1.7)),
    "LogRatioLimit": ((LogRatioLimit(0.5), PPOClip()), lambda x, o, a, m: losses.ppo(x, o, a, 0.2, 0.2, 0.5)),
    "NoRatio": ((NoRatio(),), lambda x, o, a, m: losses.reinforce(x, o, a)),
    "CISPO": ((CISPO(LOW, HIGH),), lambda x, o, a, m: losses.cispo(x, o, a, LOW, HIGH)),
    "CEGPPO": ((CEGPPO(LOW, HIGH, 0.6, 0.9),), lambda x, o, a, m: losses.ce_gppo(x, o, a, LOW, HIGH, 0.6, 0.9)),
    "SAPO": ((SAPO(2.0, 3.0),), lambda x, o, a, m: losses.sapo(x, o, a, 2.0, 3.0)),
    "GSPO": ((GSPO(LOW, HIGH),), lambda x, o, a, m: losses.gspo(x, o, a, LOW, HIGH, m)),
    "GSPO beyond its limit": ((GSPO(LOW, HIGH, 0.2),), lambda x, o, a, m: losses.gspo(x, o, a, LOW, HIGH, m, 0.2)),
    "GMPO": ((GMPO(LOW, HIGH),), lambda x, o, a, m: losses.geo_mean(x, o, a, LOW, HIGH, m)),
}


def batch(seed, rows=4, columns=5, spread=0.6):
    """Matrices [rows, columns] of a policy that has moved: log π, log π_old, A, mask; masked cells hold numbers."""
    rng = np.random.default_rng(seed)
    old = -rng.exponential(2.0, (rows, columns))
    log_prob = np.minimum(old + spread * rng.standard_normal(old.shape), 0.0)
    return log_prob, old, rng.standard_normal(old.shape), rng.random(old.shape) < 0.8


@pytest.mark.parametrize("name", FORMS)
@given(seed=seeds)
def test_the_score_is_minus_the_slope_of_the_loss(name, seed):
    parts, loss = FORMS[name]
    log_prob, old, a, mask = batch(seed)
    weight = SequenceMeanTokenMean()(jnp.asarray(mask, float))
    ours = weight * quickly(parts, tokens_of(log_prob, old, a, mask)).score.reshape(mask.shape)
    np.testing.assert_allclose(ours, -slope(loss, log_prob, old, a, mask, weight), rtol=1e-12, atol=4e-16)


# At ties, where autodiff of a naive loss form goes wrong


@pytest.mark.parametrize(("a", "d"), [(1.0, 0.25), (-1.0, -0.25)])
@pytest.mark.parametrize("kind", [PPOClip, CEGPPO, CISPO, GSPO])
def test_a_ratio_exactly_on_a_bound_keeps_its_whole_score(kind, a, d):
    low, high = 1.0 - np.exp(-0.25), np.exp(0.25) - 1.0
    tokens = tokens_of([[d]], [[0.0]], [[a]], np.ones((1, 1)))
    push = pushed((kind(low, high),), tokens)
    assert push.score[0] == a * jnp.exp(d)
    assert push.selected[0] == 0.0


def test_the_naive_loss_form_would_halve_it():
    naive = jax.grad(lambda x: jnp.clip(jnp.exp(x), 0.8, np.exp(0.25)))(0.25)
    assert float(naive) == pytest.approx(0.5 * np.exp(0.25))


@pytest.mark.parametrize(("d", "share"), [(1.2, 1.0), (1.25, 0.5), (1.3, 0.0)])
def test_dual_clip_halves_the_score_at_a_ratio_of_exactly_c(d, share):
    tokens = tokens_of([[d]], [[0.0]], [[-2.0]], np.ones((1, 1)))
    assert pushed((PPOClip(), DualClip(np.exp(1.25))), tokens).score[0] == share * -2.0 * jnp.exp(d)


def test_dual_clip_removes_a_token_of_negative_advantage_beyond_c_whose_loss_is_minus_c_times_a():
    tokens = tokens_of([[np.log(4.0)]], [[0.0]], [[-1.0]], np.ones((1, 1)))
    push = pushed((PPOClip(), DualClip(3.0)), tokens)
    assert (push.score[0], push.selected[0]) == (0.0, 1.0)
    assert losses.dual_clip(jnp.log(4.0), 0.0, -1.0, 0.2, 0.2, 3.0) == 3.0


@pytest.mark.parametrize(("d", "share"), [(20.0, 1.0), (-20.0, 1.0), (20.1, 0.0), (-20.1, 0.0)])
def test_a_log_ratio_of_exactly_the_limit_passes(d, share):
    tokens = tokens_of([[-30.0 + d]], [[-30.0]], [[1.0]], np.ones((1, 1)))
    assert pushed((LogRatioLimit(),), tokens).score[0] == pytest.approx(share * np.exp(d), rel=1e-14)


def test_gspo_passes_a_log_ratio_of_exactly_its_limit():
    at, beyond = (tokens_of([[d]], [[0.0]], [[-1.0]], np.ones((1, 1))) for d in (2.0, 2.01))
    assert pushed((GSPO(limit=2.0),), at).score[0] == pytest.approx(-np.exp(2.0), rel=1e-15)
    assert pushed((GSPO(limit=2.0),), beyond).score[0] == 0.0


# Laws


@each_clip
@few
@given(seed=seeds)
def test_every_clip_is_a_no_op_to_the_bit_on_the_first_inner_step(clip, seed):
    log_prob, _, a, mask = batch(seed)
    a = np.broadcast_to(a[:, :1], a.shape) if isinstance(clip, GMPO) else a
    tokens = tokens_of(log_prob, log_prob, a, mask)
    start = plain_push(tokens, (1, 1))._replace(score=jnp.sin(tokens.advantage))
    push = quickly((clip,), tokens, start)
    valid = tokens.weight > 0.0
    assert jnp.array_equal(push.score[valid], start.score[valid])


@each_clip
@few
@given(seed=seeds)
def test_every_clip_is_finite_for_log_ratios_of_800(clip, seed):
    rng = np.random.default_rng(seed)
    log_prob, old = -800.0 * rng.integers(0, 2, (2, 4, 5))
    tokens = tokens_of(log_prob, old, rng.standard_normal((4, 5)), rng.random((4, 5)) < 0.8)
    push = quickly((clip,), tokens)
    assert jnp.all(jnp.isfinite(push.score))
    assert jnp.all(jnp.isfinite(push.selected))


@each_clip
@few
@given(seed=seeds)
def test_every_clip_scales_the_score_that_it_meets(clip, seed):
    tokens = tokens_of(*batch(seed))
    start = plain_push(tokens, (1, 1))
    twice = quickly((clip,), tokens, start._replace(score=2.0 * start.score))
    assert jnp.array_equal(twice.score, 2.0 * quickly((clip,), tokens, start).score)


@each_clip
@few
@given(seed=seeds)
def test_splitting_the_episodes_into_micro_batches_changes_nothing(clip, seed):
    matrices = batch(seed)
    whole = quickly((clip,), tokens_of(*matrices)).score.reshape(4, 5)
    halves = [quickly((clip,), tokens_of(*(m[rows] for m in matrices))).score for rows in (slice(2), slice(2, 4))]
    mask = matrices[3]
    np.testing.assert_allclose(jnp.concatenate(halves).reshape(4, 5)[mask], whole[mask], rtol=1e-14, atol=1e-300)


@each_clip
@few
@given(seed=seeds)
def test_permuting_the_tokens_permutes_the_scores(clip, seed):
    tokens = tokens_of(*batch(seed))
    order = np.random.default_rng(seed).permutation(20)
    shuffled = jax.tree.map(lambda x: x[order], tokens)
    ours, valid = quickly((clip,), shuffled).score, np.asarray(shuffled.weight > 0.0)
    expected = quickly((clip,), tokens).score[order]
    np.testing.assert_allclose(ours[valid], expected[valid], rtol=1e-13, atol=1e-300)


@each_clip
def test_every_clip_acts_from_the_second_inner_step_on(clip):
    sharp = {DualClip: {"c": 1.0 + 1e-6}, LogRatioLimit: {"limit": 1e-3}}.get(type(clip), {})
    clip = dataclasses.replace(clip, **sharp)
    assert np.array_equal(move((clip,), 1), move((), 1))
    assert np.abs(move((clip,), 8) - move((), 8)).max() > 1e-3


@partial(compiled, static_argnums=1)
def move(parts, inner_steps):
    """The step of vanilla PG in `inner_steps` parts on a bandit."""
    policy, bandit = softmax(jnp.log(jnp.array([[0.1, 0.1, 0.1, 0.7]]))), Bandit([1.0, -0.7, 0.0, -1.0])
    return step(bandit, Algorithm(VanillaPG(6.0), interventions=parts), policy, None, inner_steps)[0]


@few
@given(seed=seeds)
def test_gspo_of_episodes_of_one_token_is_ppo(seed):
    tokens = tokens_of(*(m.reshape(20, 1) for m in batch(seed)))
    gspo, ppo = (quickly((kind(LOW, HIGH),), tokens).score for kind in (GSPO, PPOClip))
    valid = np.asarray(tokens.weight > 0.0)
    np.testing.assert_allclose(gspo[valid], ppo[valid], rtol=1e-14)


@few
@given(seed=seeds)
def test_cispo_never_silences_a_token(seed):
    tokens = tokens_of(*batch(seed))
    assert jnp.all(quickly((CISPO(),), tokens).score != 0.0)


@few
@given(seed=seeds)
def test_ce_gppo_with_betas_of_0_is_ppo_clip(seed):
    tokens = tokens_of(*batch(seed))
    assert jnp.array_equal(
        quickly((CEGPPO(beta_1=0.0, beta_2=0.0),), tokens).score, quickly((PPOClip(),), tokens).score
    )


@pytest.mark.parametrize("count", [3, 7])
def test_the_mean_of_equal_numbers_is_that_number_to_the_bit(count):
    matrix = np.array([[0.1], [1 / 3], [2.4749]]) * np.ones(count)
    tokens = tokens_of(matrix, matrix, matrix, matrix > 0.0)
    assert np.array_equal(compiled(episode_mean)(tokens, tokens.advantage), matrix.ravel())


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPOClip(low=1.2), r"low is 1.2; wanted a finite number in \[0, 1\]"),
        (lambda: PPOClip(high=-0.1), "high is -0.1; wanted a finite number ≥ 0"),
        (lambda: ClipHigher(low=-0.2), r"low is -0.2; wanted a finite number in \[0, 1\]"),
        (lambda: DualClip(1.0), "c is 1.0; wanted a finite number > 1"),
        (lambda: DualClip(0.5), "c is 0.5; wanted a finite number > 1"),
        (lambda: LogRatioLimit(0.0), "limit is 0.0; wanted a finite number > 0"),
        (lambda: CISPO(high=np.nan), "high is nan; wanted a finite number ≥ 0"),
        (lambda: CEGPPO(beta_1=-1.0), "beta_1 is -1.0; wanted a finite number ≥ 0"),
        (lambda: SAPO(tau_negative=-1.0), "tau_negative is -1.0; wanted a finite number ≥ 0"),
        (lambda: GSPO(low=3.0), r"low is 3.0; wanted a finite number in \[0, 1\]"),
        (lambda: GSPO(limit=-1.0), "limit is -1.0; wanted a finite number > 0"),
        (lambda: GMPO(low=-0.4), "low is -0.4; wanted a finite number ≥ 0"),
    ],
)
def test_a_bound_that_makes_no_sense_is_an_error(make, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        make()
