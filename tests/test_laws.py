"""One table of laws over all interventions. A new one joins by a row: itself, and a version of strength zero."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import interventions as iv
from softmaxdyn.advantages import GRPO
from softmaxdyn.estimators import Sampled
from softmaxdyn.policy import softmax
from softmaxdyn.tokens import Push, gradient, plain_push, token_mean, under
from tests.compiled import compiled
from tests.faces import BANDIT, NOW, OLD, population
from tests.worlds import AFTER, BEFORE, SHAPE, TERMINAL, UNREACHABLE, tokens_of, worlds

FAR = 1e30


class Row(NamedTuple):
    """An intervention; the same at strength zero, if it has one; the share of tokens that it says it touches."""

    part: Any
    neutral: Any = None
    share: float | None = None


ROWS = {
    "PPOClip": Row(iv.PPOClip(), iv.PPOClip(1.0, FAR)),
    "ClipHigher": Row(iv.ClipHigher(), iv.ClipHigher(1.0, FAR)),
    "DualClip": Row(iv.DualClip(), iv.DualClip(FAR)),
    "LogRatioLimit": Row(iv.LogRatioLimit(), iv.LogRatioLimit(FAR)),
    "NoRatio": Row(iv.NoRatio()),
    "CISPO": Row(iv.CISPO(), iv.CISPO(1.0, FAR)),
    "CEGPPO": Row(iv.CEGPPO(), iv.CEGPPO(1.0, FAR)),
    "SAPO": Row(iv.SAPO(), iv.SAPO(1e-12, 1e-12)),
    "GSPO": Row(iv.GSPO(), iv.GSPO(1.0, FAR, FAR)),
    "GMPO": Row(iv.GMPO(), iv.GMPO(FAR, FAR)),
    "KLCov": Row(iv.KLCov(0.1), iv.KLCov(0.1, 0.0), 0.1),
    "KLCovTrueKL": Row(iv.KLCovTrueKL(0.1), iv.KLCovTrueKL(0.1, 0.0), 0.1),
    "ClipCov": Row(iv.ClipCov(0.05, -FAR, FAR), iv.ClipCov(0.05, FAR, FAR), 0.05),
    "ClipCovReleased": Row(
        iv.ClipCovReleased(0.05, -FAR, FAR, 1.0, FAR), iv.ClipCovReleased(0.05, FAR, FAR, 1.0, FAR), 0.05
    ),
    "ClipCovTop": Row(iv.ClipCovTop(0.05, -FAR, FAR), iv.ClipCovTop(0.05, FAR, FAR), 0.05),
    "ClipCovQuantile": Row(iv.ClipCovQuantile(0.05, 0.3, 0.05), None, 0.05),
    "RandomTokens": Row(iv.RandomTokens(0.1), None, 0.1),
    "AtRandom": Row(iv.AtRandom(iv.KLCov(0.1)), iv.AtRandom(iv.KLCov(0.1, 0.0)), 0.1),
    "PerMicroBatch": Row(iv.PerMicroBatch(iv.KLCov(0.1), 2), iv.PerMicroBatch(iv.KLCov(0.1, 0.0), 2)),
    "ClipB": Row(iv.ClipB(0.5, 0.5), iv.ClipB(FAR, FAR)),
    "ClipBReleased": Row(iv.ClipBReleased(0.5), iv.ClipBReleased(FAR)),
    "ClipV": Row(iv.ClipV(0.5, 0.5), iv.ClipV(FAR, FAR)),
    "ClipVReleased": Row(iv.ClipVReleased(0.5, 0.1), iv.ClipVReleased(FAR, 0.1)),
    "ForkTokens": Row(iv.ForkTokens(), iv.ForkTokens(jnp.asarray(1.0)), 0.8),
    "DynamicSampling": Row(iv.DynamicSampling()),
    "DynamicResampling": Row(iv.DynamicResampling()),
    "Entrocraft": Row(iv.Entrocraft(FAR, FAR), iv.Entrocraft(-FAR, FAR)),
    "Steer": Row(iv.Steer(), iv.Steer(1.0, 1.0, FAR)),
    "SteerExact": Row(iv.SteerExact(), iv.SteerExact(1.0, 1.0, FAR)),
    "SteerReleased": Row(iv.SteerReleased(), iv.SteerReleased(1.0)),
    "SteerReleasedLinear": Row(iv.SteerReleasedLinear(), iv.SteerReleasedLinear(1.0, 1.0)),
    "PositiveReweighting": Row(iv.PositiveReweighting(), iv.PositiveReweighting(1.0)),
    "EntropyAwareAdvantage": Row(iv.EntropyAwareAdvantage(), iv.EntropyAwareAdvantage(0.0)),
    "Stare": Row(iv.Stare(target=FAR), iv.Stare(0.1, 1.0, 1.0, FAR)),
    "REPO": Row(iv.REPO(), iv.REPO(0.0)),
    "REPORescaled": Row(iv.REPORescaled(), iv.REPORescaled(0.0)),
    "LUFFY": Row(iv.LUFFY()),
    "EntropyBonus": Row(iv.EntropyBonus(), iv.EntropyBonus(0.0)),
    "LogBarrier": Row(iv.LogBarrier(), iv.LogBarrier(0.0)),
    "ReferenceKL": Row(iv.ReferenceKL(), iv.ReferenceKL(0.0)),
    "K1Penalty": Row(iv.K1Penalty(), iv.K1Penalty(0.0)),
    "K1PlusPenalty": Row(iv.K1PlusPenalty(), iv.K1PlusPenalty(0.0)),
    "AbsPenalty": Row(iv.AbsPenalty(), iv.AbsPenalty(0.0)),
    "AbsPlusPenalty": Row(iv.AbsPlusPenalty(), iv.AbsPlusPenalty(0.0)),
    "K2Penalty": Row(iv.K2Penalty(), iv.K2Penalty(0.0)),
    "K3Penalty": Row(iv.K3Penalty(), iv.K3Penalty(0.0)),
    "K3PenaltyReleased": Row(iv.K3PenaltyReleased(), iv.K3PenaltyReleased(0.0)),
    "K3PlusPenalty": Row(iv.K3PlusPenalty(), iv.K3PlusPenalty(0.0)),
    "RewardKL": Row(iv.RewardKL(), iv.RewardKL(0.0)),
    "AdaptiveKL": Row(iv.AdaptiveKL(), iv.AdaptiveKL(0.0)),
    "TargetEntropy": Row(iv.TargetEntropy(coefficient=0.1), iv.TargetEntropy(coefficient=0.0)),
    "EntroPIC": Row(iv.EntroPIC(coefficient=0.1), iv.EntroPIC(coefficient=0.0)),
    "EntroPICReleased": Row(iv.EntroPICReleased(coefficient=0.1), iv.EntroPICReleased(coefficient=0.0)),
    "ProRL": Row(iv.ProRL(), iv.ProRL(0.0)),
    "Scheduled": Row(
        iv.Scheduled(iv.EntropyBonus(0.1), iv.EntropyBonus(0.0)), iv.Scheduled(iv.KLCov(0.1, 0.0), iv.KLCov(0.1, 0.0))
    ),
}
IDLE = {"discounted": [UNREACHABLE, TERMINAL], "time-limited": [1, 2]}  # at time 0 only state 0 begins
OF_SEQUENCES = ("GSPO", "GMPO")  # with longer episodes, a mean ratio even at strength zero
BASES = {"Intervention", "Selection", "Clip", "ReferencePenalty"}
KEY = jax.random.key(5)
COUNT = 32 * 8

DRAWING = {"ClipCov", "ClipCovReleased", "ClipCovQuantile", "RandomTokens", "AtRandom", "PerMicroBatch"}  # by place
FIRST_OF_EQUALS = {"KLCov", "KLCovTrueKL", "ClipCovTop", "ForkTokens", "Stare", "ClipVReleased"}


def rows(keep):
    """The names of the rows whose intervention is one to keep."""
    return pytest.mark.parametrize("name", [name for name, row in ROWS.items() if keep(name, row.part)])


with_a_neutral = pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.neutral is not None])
with_a_share = pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.share is not None])
every = pytest.mark.parametrize("name", ROWS)


@cache
def sample():
    """Tokens drawn from OLD, seen from NOW."""
    return under(compiled(Sampled(32, 8, GRPO()))(jax.random.key(3), BANDIT, OLD), NOW)


@compiled
def push_of(part, key, tokens, policy):
    return part(key, tokens, policy, plain_push(tokens, policy.prob.shape))


def ready(part):
    """The intervention at the start of a run from the policy that acted."""
    return part.init(OLD.logits)


def same(a: Push, b: Push, tolerance=0.0):
    for x, y in ((a.score, b.score), (a.field, b.field)):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_every_intervention_has_a_row():
    assert set(iv.__all__) - BASES == set(ROWS)


@every
def test_on_every_kind_of_problem_a_push_is_finite_and_leaves_alone_what_is_never_visited(name):
    part, neutral = ROWS[name].part.init(BEFORE.logits), ROWS[name].neutral
    for world, problem in worlds().items():
        idle = np.asarray(problem.visits(BEFORE.prob)) == 0.0
        assert np.flatnonzero(idle).tolist() == IDLE.get(world, [])
        for key, tokens in tokens_of(world):
            if key is None and name == "PerMicroBatch":
                continue
            seen = under(tokens, AFTER)
            push = push_of(part, key, seen, AFTER)
            assert bool(jnp.isfinite(push.score).all() & jnp.isfinite(push.field).all()), world
            assert not np.asarray(gradient(seen, push, AFTER))[idle].any(), world
            share = float(token_mean(seen, push.selected))
            assert 0.0 <= share <= 1.0 + 1e-12, world
            if neutral is not None and (world == "bandit" or name not in OF_SEQUENCES):
                weak, bare = push_of(neutral.init(BEFORE.logits), key, seen, AFTER), plain_push(seen, SHAPE)
                counted = seen.weight > 0.0
                same(*(p._replace(score=jnp.where(counted, p.score, 0.0)) for p in (weak, bare)), 1e-11)


@with_a_neutral
def test_strength_zero_changes_nothing(name):
    faces = [(KEY, sample())] if name == "PerMicroBatch" else [(KEY, sample()), (None, population())]
    for key, tokens in faces:
        bare = plain_push(tokens, NOW.prob.shape)
        same(push_of(ready(ROWS[name].neutral), key, tokens, NOW), bare, 1e-11)


@every
def test_a_constant_shift_of_the_logits_of_a_state_changes_nothing(name):
    part = ready(ROWS[name].part)
    shifted = softmax(NOW.logits + jnp.array([[3.0], [-5.0], [0.25]]))
    moved = part.init(OLD.logits + jnp.array([[1.0], [2.0], [-4.0]])) if hasattr(part, "reference") else part
    same(push_of(moved, KEY, under(sample(), shifted), shifted), push_of(part, KEY, sample(), NOW), 1e-12)


@rows(lambda name, part: part.kind == "off-policy-only")
def test_off_policy_methods_are_plain_to_the_bit_on_the_first_inner_step(name):
    part = ready(ROWS[name].part)
    tokens = under(sample(), OLD)
    same(push_of(part, KEY, tokens, OLD), plain_push(tokens, OLD.prob.shape))
    changed = push_of(part, KEY, sample(), NOW)
    assert not (
        jnp.array_equal(changed.score, plain_push(sample(), NOW.prob.shape).score) and not changed.field.any()
    ) or (
        name in ("DualClip", "LogRatioLimit")  # too far out for this sample; see test_clips
    )


@with_a_share
def test_the_touched_share_is_the_stated_fraction(name):
    row = ROWS[name]
    drawn = push_of(ready(row.part), KEY, sample(), NOW).selected
    stated = row.share if row.share > 0.5 else np.floor(row.share * COUNT) / COUNT
    assert abs(float(drawn.mean()) - stated) <= 1.0 / COUNT
    everything = population()
    exact = jnp.sum(everything.weight * push_of(ready(row.part), None, everything, NOW).selected)
    np.testing.assert_allclose(exact, row.share, rtol=1e-12)


@rows(lambda name, part: name not in DRAWING | FIRST_OF_EQUALS)
def test_permuting_the_tokens_permutes_the_result(name):
    part = ready(ROWS[name].part)
    order = jax.random.permutation(jax.random.key(8), COUNT)
    permuted = push_of(part, KEY, type(sample())(*(field[order] for field in sample())), NOW)
    straight = push_of(part, KEY, sample(), NOW)
    same(permuted, straight._replace(score=straight.score[order]), 1e-12)


@rows(lambda name, part: part.scope not in ("batch", "group"))
def test_a_split_into_micro_batches_changes_nothing_unless_the_scope_says_so(name):
    part = ready(ROWS[name].part)
    whole = push_of(part, KEY, sample(), NOW)
    first = sample().episode < COUNT // 2
    halves = [sample()._replace(weight=jnp.where(mine, sample().weight, 0.0)) for mine in (first, ~first)]
    pushes = [push_of(part, KEY, half, NOW) for half in halves]
    same(
        Push(jnp.where(first, pushes[0].score, pushes[1].score), pushes[0].field + pushes[1].field, first), whole, 1e-12
    )


@every
def test_the_result_is_finite_at_extreme_ratios_and_probability_zero(name):
    part = ready(ROWS[name].part)
    places = jnp.arange(COUNT)
    far = sample()._replace(
        log_prob=jnp.where(places % 3 == 0, -800.0, jnp.where(places % 3 == 1, 0.0, -0.5)),
        old_log_prob=jnp.where(places % 5 == 0, -800.0, -0.25),
    )
    edge = softmax(jnp.array([[0.0, -800.0, -jnp.inf, -1.0], [0.0, -2000.0, -1.0, -3.0], [0.0, 0.0, -40.0, -700.0]]))
    for key, tokens in ((KEY, far), (KEY, under(sample(), edge)), (None, under(population(), edge))):
        if key is None and name == "PerMicroBatch":
            continue
        push = push_of(part, key, tokens, edge)
        assert bool(jnp.isfinite(push.score).all() and jnp.isfinite(push.field).all())


@rows(lambda name, part: name not in DRAWING)
def test_padding_counts_for_nothing(name):
    part, padding = ready(ROWS[name].part), jnp.arange(COUNT) % 4 == 0
    tokens = sample()._replace(weight=jnp.where(padding, 0.0, sample().weight))
    junk = tokens._replace(
        log_prob=jnp.where(padding, -7.0, tokens.log_prob), advantage=jnp.where(padding, 9.0, tokens.advantage)
    )
    one, other = push_of(part, KEY, tokens, NOW), push_of(part, KEY, junk, NOW)
    same(one._replace(score=one.score[~padding]), other._replace(score=other.score[~padding]), 1e-12)
