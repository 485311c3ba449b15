"""Gates: what they drop, by a second road, and what dropping does to the expected direction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Bandit, InputError
from softmaxdyn.interventions import (
    ClipB,
    ClipBReleased,
    ClipV,
    ClipVReleased,
    DynamicResampling,
    DynamicSampling,
    Entrocraft,
    ForkTokens,
    ReferenceKL,
)
from softmaxdyn.interventions.gates import has_signal
from softmaxdyn.tokens import Tokens, plain_push, top_share
from tests.faces import BANDIT, NOW, OLD, REFERENCE, direction, drawn, population, softmax, standard_errors_apart
from tests.test_reweighting import some_tokens

GATES = [
    ForkTokens(0.3),
    ClipB(0.9, 1.3),
    ClipBReleased(0.9),
    ClipV(1.3, 1.1),
    ClipVReleased(0.5, fraction=0.05),
    ClipVReleased(0.5, fraction=0.5),
    DynamicSampling(),
    DynamicResampling(),
    Entrocraft(1.5, 1.6),
    Entrocraft(0.5, 0.6),
]
WITHOUT_POLICY = [part for part in GATES if not isinstance(part, ClipV | ClipVReleased)]
seeds = st.integers(0, 2**32 - 1)
named = {"ids": lambda part: type(part).__name__}


def kept(part, tokens, key=None, policy=None):
    """1 for each token that stays, as NumPy."""
    shape = (1, 1) if policy is None else policy.prob.shape
    push = part(key, tokens, policy, plain_push(tokens, shape))
    np.testing.assert_array_equal(push.score == 0.0, (push.selected == 1.0) | (tokens.advantage == 0.0))
    return np.asarray(1.0 - push.selected)


@pytest.mark.parametrize("part", GATES, **named)
def test_a_large_sample_pushes_like_the_population(part):
    assert np.abs(standard_errors_apart(part)).max() < 4.0


@pytest.mark.parametrize("part", WITHOUT_POLICY, **named)
@settings(max_examples=10)
@given(seed=seeds)
def test_the_order_of_the_tokens_does_not_matter(part, seed):
    rng = np.random.default_rng(seed)
    tokens, order = some_tokens(rng), rng.permutation(24)
    shuffled = Tokens(*(field[order] for field in tokens))
    key = jax.random.key(0)
    push = part(key, tokens, None, plain_push(tokens, (1, 1)))
    np.testing.assert_allclose(
        part(key, shuffled, None, plain_push(shuffled, (1, 1))).score, push.score[order], rtol=1e-12
    )


@pytest.mark.parametrize("part", GATES, **named)
def test_scores_stay_finite_at_log_ratios_of_800_and_probability_0(part):
    policy = softmax(jnp.array([[0.0, -800.0, 1.0, -jnp.inf]]))
    before = softmax(jnp.array([[-800.0, 0.0, -1.0, -jnp.inf]]))
    assert jnp.isfinite(direction(part, population(policy, before, Bandit([1.0, 0.0, 0.5, 0.2])), policy)).all()


@pytest.mark.parametrize(
    "part", [ForkTokens(0.6), DynamicSampling(), DynamicResampling(), Entrocraft(1.5, 1.6)], **named
)
def test_a_gate_that_knows_only_the_reward_keeps_the_direction_of_each_state(part):
    """T16: every state moves along π∘(r − p), or not at all."""
    bandit = Bandit([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    pushed = direction(part, population(OLD, OLD, bandit), OLD)
    plain = OLD.prob * (bandit.rewards - jnp.sum(OLD.prob * bandit.rewards, -1, keepdims=True))
    moving = np.abs(pushed).max(-1) > 1e-12
    assert moving.any()
    norms = jnp.linalg.norm(pushed, axis=-1) * jnp.linalg.norm(plain, axis=-1)
    np.testing.assert_allclose((jnp.sum(pushed * plain, -1) / norms)[moving], 1.0, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("part", [ClipB(0.6, 0.9), ClipV(0.6, 0.9), ClipBReleased(0.6)], **named)
def test_a_gate_that_knows_the_probability_leaves_that_direction(part):
    bandit = Bandit([1.0, 0.0, 1.0, 0.0])
    policy = softmax(OLD.logits[:1])
    pushed = direction(part, population(policy, policy, bandit), policy)
    plain = policy.prob * (bandit.rewards - jnp.sum(policy.prob * bandit.rewards))
    assert jnp.sum(pushed * plain) < (1.0 - 1e-6) * jnp.linalg.norm(pushed) * jnp.linalg.norm(plain)


@given(seed=seeds, fraction=st.sampled_from([0.01, 0.2, 0.5, 1.0]))
def test_fork_tokens_keeps_the_stated_number_of_a_sample_those_of_highest_entropy(seed, fraction):
    tokens = some_tokens(np.random.default_rng(seed))
    valid = np.asarray(tokens.weight > 0.0)
    stay = kept(ForkTokens(fraction), tokens, jax.random.key(0))[valid] > 0.0
    assert stay.sum() == max(1, int(fraction * valid.sum()))
    entropy = np.asarray(tokens.entropy)[valid]
    assert stay.all() or entropy[stay].min() >= entropy[~stay].max()


@given(fraction=st.floats(0.01, 1.0))
def test_fork_tokens_keeps_the_stated_share_of_the_population_and_all_actions_of_a_state_alike(fraction):
    tokens = population()
    stay = kept(ForkTokens(fraction), tokens).reshape(3, 4)
    np.testing.assert_allclose(np.sum(tokens.weight.reshape(3, 4) * stay), fraction * np.sum(tokens.weight), rtol=1e-12)
    np.testing.assert_allclose(stay, stay[:, :1] * np.ones(4), rtol=1e-12)


def test_all_fork_tokens_are_all_tokens_to_the_bit():
    tokens = population()
    push = plain_push(tokens, (3, 4))
    np.testing.assert_array_equal(ForkTokens(1.0)(None, tokens, NOW, push).score, push.score)


def test_equals_of_the_population_take_part_in_equal_shares():
    tokens = population()
    np.testing.assert_allclose(top_share(jnp.zeros(12), tokens, 0.3, True), 0.3, rtol=1e-12)
    values = jnp.arange(12.0).at[11].set(10.0)  # the two largest are equal
    share = top_share(values, tokens, 0.5 * (tokens.weight[10] + tokens.weight[11]), True)
    np.testing.assert_allclose(share[10:], 0.5, rtol=1e-12)


def clip_b_released(t, low):
    """The released mask of Clip_B, in NumPy."""
    p, m = np.exp(t.log_prob), t.weight > 0
    s = p * (t.entropy + t.log_prob)
    mean = s[m].mean()
    deviation = np.sqrt(((s[m] - mean) ** 2).mean())
    return np.where(t.advantage < 0, s - mean >= -low * deviation, True)


@given(seed=seeds, low=st.floats(0.1, 3.0))
def test_clip_b_is_the_released_mask(seed, low):
    tokens = some_tokens(np.random.default_rng(seed))
    stay = kept(ClipBReleased(low), tokens, jax.random.key(0))
    valid = np.asarray(tokens.weight > 0.0)
    np.testing.assert_array_equal(stay[valid], clip_b_released(jax.tree.map(np.asarray, tokens), low)[valid])


def clip_v_released(t, policy, low, fraction):
    """The released mask of Clip_V, in NumPy: the worst first, no more than the cap."""
    s = policy.prob * (policy.log_prob + policy.entropy[:, None])
    d = (np.sum(policy.prob * s, -1)[t.state] - s[t.state, t.action]).astype(float)
    bad = (t.advantage < 0) & (d > low * np.sqrt(((d - d.mean()) ** 2).mean()))
    cap = max(int(fraction * d.size), 1)
    worst = sorted(np.flatnonzero(bad), key=lambda i: -d[i])[: cap if bad.mean() > fraction else None]
    return ~np.isin(np.arange(d.size), worst)


@pytest.mark.parametrize("fraction", [0.001, 0.05, 0.5])
@settings(max_examples=10)
@given(seed=st.integers(0, 100))
def test_clip_v_is_the_released_mask(fraction, seed):
    tokens = drawn(jax.random.key(seed), size=24)
    stay = kept(ClipVReleased(0.5, fraction), tokens, jax.random.key(0), NOW)
    expected = clip_v_released(*jax.tree.map(np.asarray, (tokens, NOW)), 0.5, fraction)
    gone, wanted = np.flatnonzero(stay == 0.0), np.flatnonzero(~expected)
    number = np.asarray(4 * tokens.state + tokens.action)
    np.testing.assert_array_equal(
        np.sort(number[gone]), np.sort(number[wanted])
    )  # equal pairs may stand in for another


def test_clip_b_and_clip_v_drop_both_tails():
    tokens = population(OLD)
    s = np.asarray(OLD.prob * OLD.centred_log_prob).ravel()
    weight = np.asarray(tokens.weight)
    for part, distance in (
        (ClipB(0.6, 0.9), s - weight @ s),
        (ClipV(0.6, 0.9), s - np.repeat(np.sum(np.asarray(OLD.prob) * s.reshape(3, 4), -1), 4)),
    ):
        deviation = np.sqrt(weight @ (distance - weight @ distance) ** 2)
        inside = (distance >= -0.6 * deviation) & (distance <= 0.9 * deviation)
        assert (distance < -0.6 * deviation).any()
        assert (distance > 0.9 * deviation).any()
        np.testing.assert_array_equal(kept(part, tokens, policy=OLD), inside)


@pytest.mark.parametrize("part", [ClipB(0.0, 0.0), ClipV(0.0, 0.0), ClipBReleased(0.0), ClipVReleased(0.0)], **named)
def test_nothing_is_extreme_at_a_uniform_policy(part):
    policy = softmax(jnp.zeros((1, 3)))
    tokens = population(policy, policy, Bandit(np.arange(3.0)))
    np.testing.assert_array_equal(1.0 - jax.jit(part)(None, tokens, policy, plain_push(tokens, (1, 3))).selected, 1.0)


def padded(values, fill=0.0):
    """24 numbers, the last of them `fill`."""
    return jnp.concatenate([jnp.asarray(values), jnp.full(24 - len(values), fill, jnp.asarray(values).dtype)])


def groups(*rewards):
    """One-token episodes, one group a list; padding fills up to 24."""
    ids = np.repeat(np.arange(len(rewards), dtype=np.int32), [len(r) for r in rewards])
    return some_tokens(np.random.default_rng(0))._replace(
        reward=padded([float(x) for r in rewards for x in r]),
        group=padded(ids, 23),
        weight=padded(np.full(ids.size, 1.0 / ids.size)),
    )


def test_groups_of_equal_rewards_carry_no_signal_and_a_group_of_one_stays():
    """np.std([0.1] * 3) is 1.4e-17, not 0."""
    tokens = groups([0.1] * 3, [1.0, 0.0], [0.0, 0.0], [1.0])
    np.testing.assert_array_equal(has_signal(tokens)[:8], [0, 0, 0, 1, 1, 0, 0, 1])


def test_padding_neither_gives_nor_takes_signal():
    tokens = groups([0.0, 0.0, 1.0], [1.0, 0.0])
    masked = tokens._replace(weight=tokens.weight.at[2].set(0.0), reward=tokens.reward.at[2].set(jnp.nan))
    np.testing.assert_array_equal(np.asarray(has_signal(masked))[[0, 1, 3, 4]], [0, 0, 1, 1])


def test_a_long_episode_alone_in_its_group_is_one_episode():
    tokens = groups([1.0, 1.0], [0.0, 0.0])
    np.testing.assert_array_equal(has_signal(tokens._replace(episode=padded([0, 0, 1, 2], 3)))[:4], [1, 1, 0, 0])
    np.testing.assert_array_equal(has_signal(tokens)[:4], [0, 0, 0, 0])


def test_foreign_episodes_belong_to_their_group():
    tokens = groups([0.0, 1.0], [0.0, 0.0])
    np.testing.assert_array_equal(has_signal(tokens._replace(group=padded([0, -1, 1, -2], 3)))[:4], [1, 1, 0, 0])


def test_dynamic_sampling_moves_no_state_without_signal_and_leaves_the_others():
    pushed = direction(DynamicSampling(), population(OLD), OLD)
    plain = direction(lambda key, tokens, policy, push: push, population(OLD), OLD)
    np.testing.assert_array_equal(pushed[2], 0.0)
    np.testing.assert_array_equal(pushed[:2], plain[:2])


def test_dynamic_resampling_is_the_mean_over_the_kept_tokens():
    tokens = groups([1.0, 0.0, 0.0], [0.0, 0.0], [1.0, 1.0, 1.0])
    scores = DynamicResampling()(None, tokens, None, plain_push(tokens, (1, 1))).score
    plain = np.asarray(plain_push(tokens, (1, 1)).score)
    np.testing.assert_allclose(np.sum(tokens.weight * scores), plain[:3].mean(), rtol=1e-12)


def test_a_batch_without_signal_stands_still():
    tokens = groups([1.0, 1.0], [0.0, 0.0])
    for part in (DynamicSampling(), DynamicResampling()):
        push = part(None, tokens, None, plain_push(tokens, (1, 1)))
        np.testing.assert_array_equal(tokens.weight * push.score, 0.0)


@pytest.mark.parametrize("part", [DynamicSampling(), DynamicResampling()], **named)
def test_a_penalty_pulls_dropped_groups_only_if_it_comes_after_the_gate(part):
    """All rewards equal: the reference KL is all that is left, unless the gate drops it with the group."""
    tokens, pull = population(), ReferenceKL(0.5, REFERENCE)
    push = plain_push(tokens, (3, 4))
    before = part(None, tokens, NOW, pull(None, tokens, NOW, push))
    after = pull(None, tokens, NOW, part(None, tokens, NOW, push))
    np.testing.assert_array_equal(before.field[2], 0.0)
    np.testing.assert_array_equal(after.field[2], pull(None, tokens, NOW, push).field[2])


def test_the_kept_share_of_a_state_keeps_that_share_of_its_field():
    """Two groups that start in one state, one of them without signal."""
    tokens = groups([1.0, 0.0], [1.0, 1.0])
    push = plain_push(tokens, (1, 2))._replace(field=jnp.array([[2.0, -2.0]]))
    np.testing.assert_allclose(DynamicSampling()(None, tokens, None, push).field, [[1.0, -1.0]], rtol=1e-15)


@pytest.mark.parametrize(("entropy", "stays"), [(0.5, [1, 0, 0]), (0.65, [1, 1, 1]), (0.8, [0, 0, 1])])
def test_entrocraft_drops_the_sign_that_leads_out_of_the_band(entropy, stays):
    tokens = some_tokens(np.random.default_rng(0))._replace(
        advantage=padded([-1.0, 0.0, 1.0]), entropy=jnp.full(24, entropy), weight=padded(np.full(3, 1 / 3))
    )
    push = Entrocraft(0.6, 0.7)(None, tokens, None, plain_push(tokens, (1, 1)))
    np.testing.assert_array_equal(1.0 - push.selected[:3], stays)


@pytest.mark.parametrize("part", [ClipV(), ClipVReleased()], **named)
def test_the_exact_score_of_a_log_is_refused(part):
    tokens = some_tokens(np.random.default_rng(0))
    with pytest.raises(InputError, match="needs the probabilities of all actions; a log holds one a token"):
        part(None, tokens, None, plain_push(tokens, (1, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ForkTokens(20.0), r"fraction of the tokens to keep \(20 % is 0.2\) is 20.0; wanted .* in \(0, 1\]"),
        (lambda: ForkTokens(0.0), r"fraction of the tokens to keep .* is 0.0; wanted"),
        (lambda: ClipB(-1.0), "low is -1.0; wanted a finite number ≥ 0"),
        (lambda: ClipV(high=float("nan")), "high is nan; wanted a finite number ≥ 0"),
        (lambda: ClipBReleased(-1.0), "low is -1.0; wanted a finite number ≥ 0"),
        (lambda: ClipVReleased(fraction=2.0), "fraction is 2.0; wanted a fraction in"),
        (lambda: Entrocraft(0.7, 0.6), "low is 0.7 and high is 0.6; wanted low ≤ high"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_bandit_has_a_state_without_signal():
    np.testing.assert_array_equal(has_signal(population(OLD, OLD, BANDIT)).reshape(3, 4)[:, 0], [True, True, False])
