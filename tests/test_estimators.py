"""Estimators: the sampled face against the exact one, against jax.grad, and tokens that another policy drew."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, Episode, InputError, VanillaPG, simulate
from softmaxdyn.advantages import (
    GAE,
    GPG,
    GRPO,
    NSR,
    OPO,
    PRIME,
    PSR,
    QAE,
    REINFORCE,
    RLOO,
    Baseline,
    DrGRPO,
    GPGReleased,
    NSRReleased,
    OptimalBaseline,
    PassK,
    PSRReleased,
    ReinforcePP,
    ReinforcePPBaseline,
    ReMax,
    ValueBaseline,
    WReinforce,
)
from softmaxdyn.estimators import AEPO, AEPOReleased, Exact, OffPolicy, Sampled
from softmaxdyn.noise import expected_entropy_change
from softmaxdyn.policy import softmax
from softmaxdyn.rewards import FormatReward, ImplicitReward, IncorrectReward, MajorityReward, RandomReward
from softmaxdyn.tokens import gradient, plain_push, state_mass, under
from tests.two_steps import TwoSteps

name = lambda x: type(x).__name__  # noqa: E731
BANDIT = Bandit([[1.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]], [0.6, 0.4])
LOGITS = np.array([[0.3, -0.4, 1.1, 0.0, 0.5], [0.9, 0.2, -0.3, -np.inf, 0.0]])


def exact_step(estimator, problem, logits):
    @jax.jit
    def step(estimator):
        policy = softmax(jnp.asarray(logits))
        tokens = under(estimator(None, problem, policy), policy)
        return gradient(tokens, plain_push(tokens, problem.shape), policy)

    return np.asarray(step(estimator))


def towards(problem, logits):
    """d(s) π∘(r − p)."""
    prob = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    r = np.asarray(problem.rewards)
    return np.asarray(problem.weights)[:, None] * prob * (r - (prob * r).sum(1, keepdims=True))


def within(steps, wanted, errors=4.0):
    """Asserts that the mean of steps [B, S, A] is `wanted`, within so many standard errors of each entry."""
    error = steps.std(0, ddof=1) / np.sqrt(len(steps))
    np.testing.assert_array_less(np.abs(steps.mean(0) - wanted), errors * error + 1e-14)


# Unbiased estimators --------------------------------------------------------------------------------------------------

BATCHES, SIZE = 100_000, 4
UNBIASED = [
    REINFORCE(),
    Baseline(0.4),
    ValueBaseline(),
    OptimalBaseline(),
    ReMax(),
    RLOO(),
    PSR(),
    NSR(),
    WReinforce(),
]
BIASED = [DrGRPO(), GRPO(), OPO(), QAE(), PassK()]  # in scale, by a factor that the counts of the group give


@pytest.fixture(scope="module")
def batch():
    """10⁵ batches of one group, one after the other."""
    policy = softmax(jnp.asarray(LOGITS))
    return jax.jit(Sampled(BATCHES, SIZE).play)(*jax.random.split(jax.random.key(5)), BANDIT, policy, policy)


@jax.jit
def steps_of(advantage, batch):
    """The step of each batch, [B, S, A]."""
    policy = softmax(jnp.asarray(LOGITS))
    weight = (Sampled(1, 2, advantage).advantages(batch, BANDIT, policy) * batch.weight[:, None]).reshape(BATCHES, SIZE)
    state, action = batch.state.reshape(BATCHES, SIZE)[:, 0], batch.action.reshape(BATCHES, SIZE)
    table = BATCHES * jnp.einsum("bi,bia->ba", weight, jax.nn.one_hot(action, 5))
    step = table - policy.prob[state] * table.sum(1, keepdims=True)
    return jax.nn.one_hot(state, 2)[:, :, None] * step[:, None, :]


@pytest.mark.parametrize("advantage", UNBIASED, ids=name)
def test_the_mean_of_many_sampled_steps_is_the_exact_step(advantage, batch):
    within(np.asarray(steps_of(advantage, batch)), exact_step(Exact(advantage), BANDIT, LOGITS))


@pytest.mark.parametrize("advantage", BIASED, ids=name)
def test_the_mean_of_many_sampled_steps_is_the_enumerated_one_along_the_common_direction(advantage, batch):
    wanted = np.asarray(expected_entropy_change(BANDIT, Sampled(1, SIZE, advantage), LOGITS, 1.0).step)
    within(np.asarray(steps_of(advantage, batch)), wanted)
    for a, b in zip(wanted, towards(BANDIT, LOGITS), strict=True):
        assert a @ b / np.sqrt((a @ a) * (b @ b)) == pytest.approx(1.0, abs=1e-12)


def test_the_mean_advantage_of_drgrpo_is_short_by_one_nth():
    wanted = np.asarray(expected_entropy_change(BANDIT, Sampled(1, SIZE, DrGRPO()), LOGITS, 1.0).step)
    np.testing.assert_allclose(wanted, (1.0 - 1.0 / SIZE) * towards(BANDIT, LOGITS), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("advantage", [REINFORCE(), RLOO(), ValueBaseline(), ReMax(), OptimalBaseline()], ids=name)
def test_sampled_episodes_of_several_steps_follow_the_gradient_of_the_return(advantage):
    problem, logits, groups = TwoSteps(), jnp.asarray([[0.2, -0.3], [0.5, 0.1]]), 40_000

    @jax.jit
    def many(key):
        policy = softmax(logits)
        tokens = Sampled(groups, 2, advantage)(key, problem, policy)
        row = jnp.zeros((groups, 2, 2)).at[tokens.group, tokens.state, tokens.action]
        table = row.add(groups * tokens.weight * tokens.advantage)
        return table - policy.prob * table.sum(-1, keepdims=True)

    wanted = jax.grad(lambda z: problem.expected_return(jax.nn.softmax(z)))(logits)
    within(np.asarray(many(jax.random.key(3))), np.asarray(wanted))


def test_tokens_after_the_end_weigh_nothing():
    policy = softmax(jnp.asarray([[0.2, -0.3], [0.5, 0.1]]))
    tokens = jax.jit(Sampled(50, 2, REINFORCE()).__call__)(jax.random.key(0), TwoSteps(), policy)
    ended = (np.asarray(tokens.position) == 1) & (np.repeat(np.asarray(tokens.action)[::2], 2) == 1)
    assert ended.any()
    np.testing.assert_allclose(np.asarray(tokens.weight), np.where(ended, 0.0, 1.0 / 100), rtol=1e-15)
    assert (np.asarray(tokens.advantage)[ended] == 0.0).all()


# Two faces ------------------------------------------------------------------------------------------------------------

ONE = Bandit([1.0, 0.0, 0.0, 1.0, 0.0], 1.0)
ONE_LOGITS = LOGITS[:1]
LEARNT = ImplicitReward(logits=jnp.asarray([[1.0, 0.3, -0.8, 0.1, 0.2]]), reference=jnp.asarray(ONE_LOGITS))
PARTS, LARGE = 64, 16_384  # 2²⁰ tokens, as 64 groups
ON_POLICY = [
    *[Sampled(1, LARGE, a) for a in (*UNBIASED, *BIASED, PSRReleased(), NSRReleased(), GPG(), GPGReleased(), GAE())],
    *[Sampled(1, LARGE, a) for a in (ReinforcePP(), ReinforcePPBaseline())],
    Sampled(1, LARGE, PRIME(), process=LEARNT),
    *[Sampled(1, LARGE, RLOO(), r) for r in (FormatReward([1, 1, 0, 0, 0]), IncorrectReward(), MajorityReward())],
    Sampled(1, LARGE, RLOO(), RandomReward()),
]
MIXED = [
    OffPolicy(Sampled(1, LARGE, RLOO()), 0.125),
    OffPolicy(Sampled(1, LARGE, GRPO()), 0.25, np.array([0.0, 1.0, 0.0, -1.0, 2.0])),
    AEPO(Sampled(1, LARGE, RLOO()), 0.4),
    AEPO(Sampled(1, LARGE, RLOO()), 0.4, target=3.0),
    AEPOReleased(Sampled(1, LARGE, GRPO()), 0.2),
    AEPOReleased(Sampled(1, LARGE, GRPO()), 0.5, target=3.0),
]


def label(estimator):
    if hasattr(estimator, "base"):
        return name(estimator)
    return f"{name(estimator.advantage)} {name(estimator.reward)}"


def are_exact(steps, estimator):
    """Asserts that the mean step is that of the population: 4 standard errors, and O(1/n) for what is so at n = ∞."""
    wanted = exact_step(estimator.population(), ONE, ONE_LOGITS)
    error = 4.0 * np.std(steps, 0, ddof=1) / np.sqrt(PARTS)
    bias = 10.0 * np.abs(wanted).max() / LARGE
    np.testing.assert_array_less(np.abs(np.mean(steps, 0) - wanted), error + bias + 1e-14)


@pytest.fixture(scope="module")
def large_batches():
    """2²⁰ tokens, in 64 batches of one group."""
    policy = softmax(jnp.asarray(ONE_LOGITS))
    draw = jax.jit(lambda keys: Sampled(1, LARGE).play(*keys, ONE, policy, policy))
    return [draw(jax.random.split(key)) for key in jax.random.split(jax.random.key(2), PARTS)]


@pytest.mark.parametrize("estimator", ON_POLICY, ids=label)
def test_a_million_sampled_tokens_make_the_exact_step(estimator, large_batches):
    @jax.jit
    def step(key, batch):
        policy = softmax(jnp.asarray(ONE_LOGITS))
        episodes = Episode(batch.state, batch.action, batch.reward, batch.taken)
        pay = jax.vmap(estimator.reward.drawn, (0, None, None, 0))
        batch = batch._replace(reward=pay(jax.random.split(key, LARGE), ONE, policy, episodes))
        tokens = estimator.tokens(batch, estimator.advantages(batch, ONE, policy), policy)
        return gradient(tokens, plain_push(tokens, ONE.shape), policy)

    are_exact([np.asarray(step(jax.random.key(n), batch)) for n, batch in enumerate(large_batches)], estimator)


@jax.jit
def mixed_step(estimator, key):
    policy = softmax(jnp.asarray(ONE_LOGITS))
    tokens = under(estimator(key, ONE, policy), policy)
    return gradient(tokens, plain_push(tokens, ONE.shape), policy)


@pytest.mark.parametrize("estimator", MIXED, ids=label)
def test_a_million_tokens_of_two_policies_make_the_exact_step(estimator):
    keys = jax.random.split(jax.random.key(2), PARTS)
    are_exact([np.asarray(mixed_step(estimator, key)) for key in keys], estimator)


THREE = Bandit([[1.0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]], [0.5, 0.3, 0.2])
THREE_LOGITS = np.concatenate([LOGITS, LOGITS[:1]])


@pytest.fixture(scope="module")
def batches_of_three_states():
    """64 batches of 256 groups of 16."""
    policy = softmax(jnp.asarray(THREE_LOGITS))
    draw = jax.jit(lambda keys: Sampled(256, 16).play(*keys, THREE, policy, policy))
    return [draw(jax.random.split(key)) for key in jax.random.split(jax.random.key(4), PARTS)]


@pytest.mark.parametrize(
    "advantage",
    [ReinforcePP(), ReinforcePPBaseline(), GAE(), GPG(), GPGReleased(), PSRReleased(), NSRReleased()],
    ids=name,
)
def test_estimators_of_the_whole_batch_weigh_its_states_as_the_population_does(advantage, batches_of_three_states):
    @jax.jit
    def step(batch):
        policy = softmax(jnp.asarray(THREE_LOGITS))
        tokens = Sampled(1, 2).tokens(batch, Sampled(1, 2, advantage).advantages(batch, THREE, policy), policy)
        return gradient(tokens, plain_push(tokens, THREE.shape), policy)

    steps = np.array([step(batch) for batch in batches_of_three_states])
    wanted = exact_step(Exact(advantage), THREE, THREE_LOGITS)
    prob = np.exp(THREE_LOGITS) / np.exp(THREE_LOGITS).sum(1, keepdims=True)
    p = (prob * np.asarray(THREE.rewards)).sum(1)
    mute = np.array([0.5, 0.3, 0.2]) @ (p**16 + (1.0 - p) ** 16)  # groups that lack a signal, some of them by chance
    finite = {"ReinforcePPBaseline": np.sqrt(15 / 16), "GPG": 15 / 16 * 0.8 / (1.0 - mute), "GPGReleased": 15 / 16}
    wanted = wanted * finite.get(name(advantage), 1.0)  # R − the mean of 16 is short by a sixteenth, its spread by half
    error = 4.0 * steps.std(0, ddof=1) / np.sqrt(PARTS)
    np.testing.assert_array_less(np.abs(steps.mean(0) - wanted), error + np.abs(wanted).max() / 256 + 1e-14)


@given(st.integers(0, 2**32), st.sampled_from([1.0, 0.25]))
@settings(max_examples=10)
def test_exact_tokens_are_the_population(seed, weight):
    problem = Bandit(np.random.default_rng(seed).normal(size=(2, 5)), [weight, 2.0 * weight])
    policy = softmax(jnp.asarray(LOGITS))
    tokens = jax.jit(Exact().__call__)(None, problem, policy)
    np.testing.assert_allclose(tokens.weight, (np.asarray(problem.weights)[:, None] * policy.prob).ravel(), rtol=1e-15)
    np.testing.assert_allclose(
        gradient(tokens, plain_push(tokens, (2, 5)), policy), towards(problem, LOGITS), atol=1e-15
    )
    np.testing.assert_allclose(jnp.sum(tokens.weight * tokens.advantage), 0.0, atol=1e-15)


@pytest.mark.parametrize(
    "estimator", [Sampled(8, 4), OffPolicy(Sampled(8, 4), 0.25), AEPO(Sampled(8, 4), 0.25)], ids=name
)
def test_sampled_tokens_weigh_as_much_as_the_population(estimator):
    draw = jax.jit(lambda problem: estimator(jax.random.key(0), problem, softmax(jnp.asarray(LOGITS))))
    for weights in (None, 1.0):
        problem = Bandit(np.asarray(BANDIT.rewards), weights)
        np.testing.assert_allclose(jnp.sum(draw(problem).weight), np.sum(problem.weights), rtol=1e-14)


def test_independent_bandits_learn_as_fast_sampled_as_exact():
    problem = Bandit(np.asarray(BANDIT.rewards), 1.0)
    policy = softmax(jnp.asarray(LOGITS))
    tokens = jax.jit(Sampled(20_000, 2, ValueBaseline()).__call__)(jax.random.key(0), problem, policy)
    step = gradient(tokens, plain_push(tokens, (2, 5)), policy)
    np.testing.assert_allclose(step, towards(problem, LOGITS), atol=4.0 * np.sqrt(2.0 * 0.25 * 2.0 / 40_000))


# Foreign tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [Exact(Baseline(0.4)), Exact()], ids=["baseline", "exact advantage"])
def test_plain_foreign_tokens_are_importance_weighted(base):
    foreign = np.array([[0.0, 1.0, -1.0, 0.3, 0.2], [0.5, 0.0, 0.4, 3.0, -0.2]])
    ours = exact_step(OffPolicy(base, 0.3, foreign), BANDIT, LOGITS)
    np.testing.assert_allclose(ours, exact_step(base, BANDIT, LOGITS), rtol=1e-12, atol=1e-16)


@jax.jit
def foreign_tokens(estimator, key):
    return estimator(key, BANDIT, softmax(jnp.asarray(LOGITS)))


@pytest.mark.parametrize("estimator", [OffPolicy(Exact(RLOO()), 0.25), OffPolicy(Sampled(50, 8, RLOO()), 0.25)])
def test_foreign_tokens_are_marked_and_are_the_stated_share(estimator):
    tokens = foreign_tokens(estimator, jax.random.key(1))
    foreign = np.asarray(tokens.group) < 0
    weight = np.asarray(tokens.weight)
    np.testing.assert_allclose(weight[foreign].sum(), 0.25, rtol=1e-12)
    np.testing.assert_allclose(weight.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(state_mass(tokens, 2).sum(), 1.0, rtol=1e-12)
    right = np.asarray(BANDIT.rewards)[tokens.state, tokens.action] == 1.0
    assert right[foreign & (weight > 1e-100)].all()  # the default teacher is never wrong
    best = np.array([2.0, 1.0])[np.asarray(tokens.state)]  # right actions that are not masked: it is even among them
    np.testing.assert_allclose(
        np.asarray(tokens.old_log_prob)[foreign & (weight > 1e-100)], -np.log(best)[foreign & (weight > 1e-100)]
    )
    policy = softmax(jnp.asarray(LOGITS))
    here = weight > 1e-100
    wanted = np.asarray(policy.log_prob)[tokens.state, tokens.action]
    np.testing.assert_array_equal(np.asarray(tokens.log_prob)[here], wanted[here])


def test_a_foreign_token_belongs_to_the_group_of_its_start():
    tokens = foreign_tokens(OffPolicy(Sampled(50, 8, RLOO()), 0.25), jax.random.key(1))
    group, state = np.asarray(tokens.group), np.asarray(tokens.state)
    of_group = {int(g): int(s) for g, s in zip(group, state, strict=True) if g >= 0}
    assert {g: int(np.sum(group == g)) for g in range(50)} == dict.fromkeys(range(50), 6)
    assert {g: int(np.sum(~group == g)) for g in range(50)} == dict.fromkeys(range(50), 2)
    assert all(of_group[int(~g)] == s for g, s in zip(group, state, strict=True) if g < 0)


def test_the_advantage_compares_own_and_foreign_episodes():
    tokens = foreign_tokens(OffPolicy(Sampled(50, 8, RLOO()), 0.25), jax.random.key(1))
    group = np.where(np.asarray(tokens.group) < 0, ~np.asarray(tokens.group), tokens.group)
    reward = np.asarray(tokens.reward)
    for g in range(50):
        here = group == g
        np.testing.assert_allclose(
            np.asarray(tokens.advantage)[here], 8 / 7 * (reward[here] - reward[here].mean()), atol=1e-15
        )


def test_a_masked_action_is_never_taken_by_the_foreign_policy():
    foreign = np.array([0.0, 0.0, 0.0, 50.0, 0.0])  # the last state masks what it prefers
    for estimator in (OffPolicy(Exact(), 0.5, foreign), OffPolicy(Sampled(200, 2, RLOO()), 0.5, foreign)):
        tokens = foreign_tokens(estimator, jax.random.key(1))
        masked = (np.asarray(tokens.state) == 1) & (np.asarray(tokens.action) == 3)
        assert np.asarray(tokens.weight)[masked].sum() == 0.0


# AEPO -----------------------------------------------------------------------------------------------------------------


def tempered(logits, temperature):
    e = np.exp(logits / temperature - np.max(logits / temperature, 1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize(("target", "temperature"), [(3.0, 1.2), (0.1, 0.8)])
def test_aepo_adds_the_right_answers_of_a_tempered_policy(target, temperature):
    prob, hot = tempered(LOGITS, 1.0), tempered(LOGITS, temperature)
    right = hot * np.asarray(BANDIT.rewards)
    extra = np.array([[0.6], [0.4]]) * (right - prob * right.sum(1, keepdims=True))
    wanted = 0.7 * towards(BANDIT, LOGITS) + 0.3 * extra
    ours = exact_step(AEPO(Exact(), 0.3, target), BANDIT, LOGITS)
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(("target", "temperature", "share"), [(3.0, 1.2, 0.2), (0.1, 0.8, 0.1), (3.0, 1.2, 0.5)])
def test_aepo_as_released_is_made_of_right_answers_only_and_fewer_above_the_target(target, temperature, share):
    prob, hot = tempered(LOGITS, 1.0), tempered(LOGITS, temperature)
    right = np.array([[0.6], [0.4]]) * hot * np.asarray(BANDIT.rewards)
    extra = (right - prob * right.sum(1, keepdims=True)) / right.sum()
    base = exact_step(Exact(GRPO()), BANDIT, LOGITS)
    ours = exact_step(AEPOReleased(Exact(GRPO()), max(0.2, share), target), BANDIT, LOGITS)
    share = min(share, right.sum())  # there may not be as many
    np.testing.assert_allclose(ours, (1.0 - share) * base + share * extra, rtol=1e-12, atol=1e-15)


def test_aepo_as_released_is_its_base_where_no_answer_is_right():
    problem = Bandit(np.zeros((2, 5)))
    for estimator in (AEPOReleased(Exact(GRPO())), AEPO(Exact(GRPO()))):
        assert (exact_step(estimator, problem, LOGITS) == 0.0).all()


@pytest.mark.parametrize("estimator", [AEPO(Exact(), 0.5), AEPO(Sampled(64, 8), 0.5)], ids=["exact", "sampled"])
@pytest.mark.parametrize("scale", [0.1, 4.0])
def test_aepo_keeps_the_entropy_near_its_target(estimator, scale):
    logits = scale * np.array([[1.0, 0.0, -1.0]])
    trace = simulate(
        Bandit([1.0, 1.0, 1.0]),
        Algorithm(VanillaPG(0.5), estimator),
        num_steps=4000,
        logits=logits,
        key=jax.random.key(0),
        every=100,
    )
    assert abs(trace.entropy[0, 0] - 0.5) > 0.3
    np.testing.assert_allclose(trace.entropy[-5:, 0], 0.5, atol=0.05)


def test_tempered_tokens_are_not_importance_weighted_on_the_first_inner_step():
    policy = softmax(jnp.asarray(LOGITS))
    tokens = jax.jit(AEPO(Sampled(8, 4), 0.25).__call__)(jax.random.key(0), BANDIT, policy)
    np.testing.assert_array_equal(tokens.old_log_prob, tokens.log_prob)
    extra = np.asarray(tokens.group) < 0
    assert extra.sum() == 32
    assert set(np.unique(np.asarray(tokens.advantage)[extra])) == {0.0, 1.0}
    assert len(set(np.asarray(tokens.episode).tolist())) == 64


# States, keys, dtypes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", [lambda base: base, AEPO, OffPolicy], ids=["plain", "AEPO", "OffPolicy"])
def test_an_estimator_with_a_learnt_reward_moves_it_once_an_outer_step(around):
    estimator = around(Exact(PRIME(), process=ImplicitReward(step_size=10.0)))
    logits = jnp.asarray(ONE_LOGITS)
    policy = softmax(logits)

    @jax.jit
    def once(estimator):
        estimator = estimator.init(logits)
        tokens = under(estimator(None, ONE, policy), policy)
        return estimator.next(tokens, policy)

    after = once(estimator)
    process = after.process if isinstance(after, Exact) else after.base.process
    assert np.abs(np.asarray(process.logits - logits)).max() > 1e-3
    np.testing.assert_array_equal(process.reference, logits)


def test_the_population_of_a_sampled_estimator_is_exact():
    for estimator in (*ON_POLICY, *MIXED):
        assert not estimator.population().draws
        assert estimator.draws
    assert Exact().population().draws is False


@pytest.mark.parametrize("estimator", [Sampled(4, 4), AEPO(Sampled(4, 4)), OffPolicy(Sampled(4, 4), 0.25)], ids=name)
def test_the_same_key_gives_the_same_tokens_and_another_key_others(estimator):
    first, again, other = (foreign_tokens(estimator, jax.random.key(k)) for k in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.action, other.action)


@pytest.mark.parametrize(
    "estimator",
    [
        Exact(),
        Exact(GRPO()),
        Sampled(4, 4),
        AEPO(),
        AEPOReleased(),
        OffPolicy(),
        Exact(PRIME(), process=ImplicitReward()),
    ],
    ids=name,
)
def test_tokens_have_the_dtype_of_the_policy(estimator):
    def tokens(logits):
        return estimator.init(logits)(jax.random.key(0), BANDIT, softmax(logits))

    for dtype in (jnp.float32, jnp.float64):
        kinds = {x.dtype for x in jax.eval_shape(tokens, jnp.asarray(LOGITS, dtype)) if x.dtype != jnp.int32}
        assert kinds == {jnp.dtype(dtype)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampled(0, 8), "groups is 0; wanted a whole number ≥ 1"),
        (lambda: Sampled(4, 0), "group_size is 0; wanted a whole number ≥ 1"),
        (lambda: OffPolicy(share=12.5), "share is 12.5; wanted a fraction in (0, 0.5]: 12.5 per cent is 0.125"),
        (lambda: OffPolicy(share=0.0), "share is 0.0; wanted a finite number in (0, 1]"),
        (lambda: OffPolicy(Sampled(4, 1, REINFORCE())), "group_size is 1; wanted at least 2, to share a group"),
        (lambda: AEPO(share=2.3), "share is 2.3; wanted a fraction in (0, 0.5]"),
        (lambda: AEPO(target=-1.0), "target is -1.0; wanted a finite number ≥ 0"),
        (lambda: AEPO(hot=0.0), "hot is 0.0; wanted a finite number > 0"),
        (lambda: AEPO(cold=-0.8), "cold is -0.8; wanted a finite number > 0"),
    ],
)
def test_bad_input_is_one_clear_line(make, message):
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        make()
    assert "\n" not in str(raised.value)
