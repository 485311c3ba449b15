"""Advantage estimators: recorded numbers, textbook loops, the population limits of class I, and reported faults."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from softmaxdyn import Bandit, InputError
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
    PassKGap,
    PSRReleased,
    ReinforcePP,
    ReinforcePPBaseline,
    ReMax,
    ValueBaseline,
    WReinforce,
    recorded,
)
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.policy import softmax
from softmaxdyn.rewards import ImplicitReward
from softmaxdyn.tokens import gradient, plain_push
from tests.golden import array, cases
from tests.oracles import FAMILIES, hard_logits

SHAPE = (10, 6)  # every batch is padded to it, with episodes of weight 0 in a group of their own
ALL = [
    REINFORCE(),
    Baseline(0.3),
    ValueBaseline(),
    OptimalBaseline(),
    ReMax(),
    PSR(),
    NSR(),
    WReinforce(),
    PSRReleased(),
    NSRReleased(),
    GRPO(),
    DrGRPO(),
    RLOO(),
    OPO(),
    QAE(),
    PassK(),
    PassKGap(),
    ReinforcePP(0.9),
    ReinforcePPBaseline(),
    GPG(),
    GPGReleased(2.0),
    GAE(0.99, 0.95),
    PRIME(2.0, 3.0),
]
COMPARING = [a for a in ALL if type(a).scope != "episode" and not isinstance(a, PSRReleased | NSRReleased | GAE)]
name = lambda estimator: type(estimator).__name__  # noqa: E731
each = partial(pytest.mark.parametrize, "estimator", ids=name)
compiled = jax.jit(lambda estimator, outcomes: estimator(outcomes))


def pad(values, dtype=np.float64):
    values = np.asarray(values, dtype)
    return np.pad(values, [(0, size - old) for size, old in zip(SHAPE, values.shape, strict=False)])


def advantage_of(estimator, reward, mask=None, group=None, weight=None, dtype=np.float64, **fields):
    """The estimator's advantages of a batch, through the padded shape (one compilation); masked cells are 0."""
    reward = np.asarray(reward)[:, None] if np.ndim(reward) == 1 else np.asarray(reward)
    rows, columns = reward.shape
    mask = np.ones(reward.shape) if mask is None else mask
    group = np.zeros(rows) if group is None else group
    ids = np.concatenate([np.unique(group, return_inverse=True)[1] + 1, np.zeros(SHAPE[0] - rows, int)])
    weight = pad(np.ones(rows) if weight is None else weight)
    fields = {key: pad(value, dtype) for key, value in fields.items()}
    outcomes = recorded(pad(reward, dtype), pad(mask), ids, weight=weight, **fields)
    assert outcomes.reward.dtype == dtype
    result = np.asarray(compiled(estimator, outcomes))
    assert result.dtype == dtype
    return result[:rows, :columns]


# Recorded numbers -----------------------------------------------------------------------------------------------------


def replay(case, estimator, rtol, group=None, **fields):
    inputs, outputs = case["inputs"], case["outputs"]
    mask = array(inputs["response_mask"]) > 0.0
    group = inputs.get("index", np.zeros(len(mask), int)) if group is None else group
    ours = advantage_of(estimator, array(inputs["token_level_rewards"]), mask, group, **fields)
    np.testing.assert_allclose(ours[mask], array(outputs["advantages"])[mask], rtol=rtol, atol=1e-14)
    assert (ours[~mask] == 0.0).all()


def leaks(case):
    """Whether the reference returns rounding noise where every group's rewards are equal."""
    return "constant_fraction" in case["name"] and case["outputs"].get("advantages")


@cases("adv_grpo", only=lambda case: not leaks(case))
def test_grpo_is_the_released_one(case):
    scaled = case["inputs"]["norm_adv_by_std"]
    alone_in_float32 = "singleton" in case["name"] and scaled
    replay(case, GRPO(case["inputs"]["epsilon"]) if scaled else DrGRPO(), 1e-6 if alone_in_float32 else 1e-12)


@cases("adv_rloo", only=lambda case: not leaks(case) and case["name"] != "singleton_groups/rloo_vectorized")
def test_rloo_is_the_released_one(case):
    replay(case, RLOO(), 1e-12)


@cases("adv_rloo", only=lambda case: case["name"] == "singleton_groups/rloo_vectorized")
def test_rloo_keeps_the_return_of_a_group_of_one_where_the_vectorised_release_gives_0(case):
    ours = advantage_of(RLOO(), array(case["inputs"]["token_level_rewards"]), np.ones((4, 3)), case["inputs"]["index"])
    np.testing.assert_allclose(ours[:, 0], [1.0, 0.5, -2.3, 2.3], rtol=1e-12)
    np.testing.assert_array_equal(array(case["outputs"]["advantages"])[:2], np.zeros((2, 3)))


@cases("adv_opo")
def test_opo_is_the_released_one(case):
    replay(case, OPO(), 1e-12)


@cases("adv_grpo_passk", only=lambda case: "error" not in case["outputs"])
def test_pass_k_is_the_released_one(case):
    scaled = case["inputs"]["norm_adv_by_std"]
    replay(case, PassK(case["inputs"]["epsilon"]) if scaled else PassKGap(), 1e-12)


@cases("adv_grpo_passk", only=lambda case: "error" in case["outputs"])
def test_pass_k_gives_a_group_of_one_0_where_the_release_raises(case):
    ours = advantage_of(
        PassKGap(), array(case["inputs"]["token_level_rewards"]), np.ones((4, 3)), case["inputs"]["index"]
    )
    np.testing.assert_allclose(ours[:, 0], [0.0, 0.0, 0.0, 2.3], rtol=1e-12)


@cases("adv_reinforce_plus_plus")
def test_reinforce_pp_is_the_released_one(case):
    replay(case, ReinforcePP(case["inputs"]["gamma"]), 1e-12 if case["inputs"]["mask_dtype"] == "float64" else 1e-6)


@cases("adv_reinforce_plus_plus_baseline", only=lambda case: not leaks(case))
def test_reinforce_pp_baseline_is_the_released_one(case):
    replay(case, ReinforcePPBaseline(), 1e-12 if case["inputs"]["mask_dtype"] == "float64" else 1e-6)


@cases("adv_gpg")
def test_gpg_is_the_released_one(case):
    replay(case, GPGReleased(case["inputs"]["f_norm"]), 1e-6)


@cases("adv_remax")
def test_remax_is_the_released_one(case):
    replay(case, ReMax(), 1e-12, greedy=case["inputs"]["reward_baselines"])


@cases("adv_gae")
def test_gae_is_the_released_one(case):
    replay(case, GAE(case["inputs"]["gamma"], case["inputs"]["lam"]), 1e-12, values=array(case["inputs"]["values"]))


@cases("prime_repo_adv_prime")
def test_prime_is_the_released_one(case):
    inputs, mask = case["inputs"], array(case["inputs"]["response_mask"])
    last = mask * (np.cumsum(mask, 1) == mask.sum(1, keepdims=True))
    process = np.zeros(mask.shape) if inputs["rm_scores"] is None else array(inputs["rm_scores"])
    reward = last * np.array(inputs["acc"] or [0] * len(mask), float)[:, None]
    estimator = PRIME(inputs["reward_gt_coef"], inputs["reward_dpo_coef"])
    case["inputs"]["token_level_rewards"] = reward.tolist()
    replay(case, estimator, 1e-6, np.arange(len(mask)) // inputs["n_samples"], process=process)


@cases("adv_grpo", "adv_rloo", "adv_grpo_passk", "adv_reinforce_plus_plus_baseline", only=leaks)
def test_where_all_rewards_of_a_group_are_equal_the_release_leaks_and_we_do_not(case):
    kinds = {"norm_by_std": GRPO(), "rloo": RLOO(), "std": PassK(), "rfpp_baseline": ReinforcePPBaseline()}
    estimator = kinds[case["name"].split("/")[1]]
    ours = advantage_of(
        estimator, array(case["inputs"]["token_level_rewards"]), np.ones((9, 3)), case["inputs"]["index"]
    )
    assert (ours == 0.0).all()
    assert np.abs(array(case["outputs"]["advantages"])).max() < 2e-10


# Textbook loops -------------------------------------------------------------------------------------------------------


def by_group(group, values, formula):
    """formula(values of the group) for every group, back in the order of the episodes."""
    result = np.zeros(len(values))
    for g in set(group):
        here = np.flatnonzero(group == g)
        result[here] = formula(values[here])
    return result


def to_go(reward, mask, discount):
    result = np.zeros(reward.shape)
    for row, (rewards, valid) in enumerate(zip(reward, mask, strict=True)):
        later = 0.0
        for t in reversed(range(len(rewards))):
            later = rewards[t] + discount * later if valid[t] else later
            result[row, t] = later
    return result


def whitened(table, mask):
    valid = table[mask]
    count = len(valid) + 1e-8  # as released
    mean = valid.sum() / count
    variance = ((valid - mean) ** 2).sum() / count * len(valid) / (len(valid) - 1)
    return np.where(np.ptp(valid) > 0.0, (table - mean) / np.sqrt(variance + 1e-8), 0.0)


def gae(b, discount, trace):
    result = np.zeros(b.reward.shape)
    for row in range(len(result)):
        value = advantage = 0.0
        for t in reversed(range(result.shape[1])):
            if b.mask[row, t]:
                advantage = b.reward[row, t] + discount * value - b.values[row, t] + discount * trace * advantage
                value = b.values[row, t]
            result[row, t] = advantage
    return whitened(result, b.mask)


def prime(b, outcome, process):
    token = np.zeros(b.reward.shape)
    mean_q = np.array([q[m].mean() if m.any() else 0.0 for q, m in zip(b.process, b.mask, strict=True)])
    for g in set(b.group):
        here = np.flatnonzero(b.group == g)
        n = len(here)
        for i in here:
            others = [j for j in here if j != i]
            valid = np.flatnonzero(b.mask[i])
            if len(valid):
                token[i, valid[-1]] += outcome * (b.score[i] - (b.score[others].mean() if n > 1 else 0.0))
            scale, base = (n / (n - 1), mean_q[here].sum() / (n - 1)) if n > 1 else (1.0, 0.0)
            token[i, valid] += process * (scale * b.process[i, valid] - base)
    return whitened(to_go(token, b.mask, 1.0), b.mask)


def lead(x):
    best = np.sort(x)[::-1]
    return np.where(np.arange(len(x)) == np.argmax(x), best[0] - best[1], 0.0) if len(x) > 1 else 0.0 * x


def spread(x):
    return (x.std(ddof=1) if len(x) > 1 else 1.0) + 1e-6


def less_mean(x):
    return x - x.mean() if len(x) > 1 else x


def kept(b, advantage):
    return advantage * b.mask.sum() / max(b.mask[advantage != 0.0].sum(), 1)


TEXTBOOK = {
    "REINFORCE": lambda b: b.score,
    "Baseline": lambda b: b.score - 0.3,
    "ValueBaseline": lambda b: to_go(b.reward, b.mask, 1.0) - b.values,
    "OptimalBaseline": lambda b: b.score - b.best_baseline,
    "ReMax": lambda b: to_go(b.reward, b.mask, 1.0) - b.greedy[:, None],
    "PSR": lambda b: b.score,
    "NSR": lambda b: -(1.0 - b.score),
    "WReinforce": lambda b: 0.1 * b.score - (1.0 - b.score),
    "PSRReleased": lambda b: kept(b, b.score),
    "NSRReleased": lambda b: kept(b, b.score - 1.0),
    "GRPO": lambda b: by_group(b.group, b.score, lambda x: less_mean(x) / spread(x)),
    "DrGRPO": lambda b: by_group(b.group, b.score, less_mean),
    "RLOO": lambda b: by_group(
        b.group, b.score, lambda x: x - np.array([np.delete(x, i).mean() for i in range(len(x))]) if len(x) > 1 else x
    ),
    "OPO": lambda b: by_group(
        b.group,
        np.arange(len(b.score)),
        lambda i: b.score[i] - (b.length[i] @ b.score[i] / max(b.length[i].sum(), 1) if len(i) > 1 else 0.0),
    ),
    "QAE": lambda b: by_group(b.group, b.score, lambda x: x - np.quantile(x, 0.4, method="inverted_cdf")),
    "PassK": lambda b: by_group(b.group, b.score, lambda x: lead(x) / spread(x)),
    "PassKGap": lambda b: by_group(b.group, b.score, lead),
    "ReinforcePP": lambda b: whitened(to_go(b.reward, b.mask, 0.9), b.mask),
    "ReinforcePPBaseline": lambda b: whitened(by_group(b.group, b.score, less_mean)[:, None] + 0.0 * b.reward, b.mask),
    "GPG": lambda b: (
        by_group(b.group, b.score, less_mean)
        * len(b.score)
        / (by_group(b.group, b.score, lambda x: np.full(len(x), float(np.ptp(x) > 0.0))).sum() or len(b.score))
    ),
    "GPGReleased": lambda b: (
        by_group(b.group, b.score, less_mean) * len(b.score) / max((b.score != 0.0).sum(), 1) / 2.0
    ),
    "GAE": lambda b: gae(b, 0.99, 0.95),
    "PRIME": lambda b: prime(b, 2.0, 3.0),
}


class Drawn:
    """A random batch: rewards of a few kinds, masks with holes, groups of any sizes in any order."""

    def __init__(self, seed, kind):
        rng = np.random.default_rng(seed)
        rows, columns = rng.integers(2, SHAPE[0] + 1), rng.integers(1, SHAPE[1] + 1)
        self.mask = rng.random((rows, columns)) < 0.8
        self.mask[0, 0] = self.mask[1, 0] = True
        self.reward = (
            rng.integers(0, 2, (rows, columns)) * 1.0 if kind == "dense binary" else rng.normal(size=(rows, columns))
        )
        if kind == "binary":
            self.reward = np.eye(1, columns, columns - 1) * rng.integers(0, 2, (rows, 1)) * 1.0
        self.group = rng.choice([7, -3, 12], rows)
        self.greedy, self.best_baseline = rng.normal(size=(2, rows))
        self.values, self.process = rng.normal(size=(2, rows, columns))
        self.score, self.length = self.reward.sum(1), self.mask.sum(1)

    def fields(self):
        return {key: getattr(self, key) for key in ("greedy", "best_baseline", "values", "process")}


@each(ALL)
@given(st.integers(0, 2**32), st.sampled_from(["binary", "dense binary", "real"]))
@settings(max_examples=30)
def test_an_estimator_is_its_textbook_formula(estimator, seed, kind):
    b = Drawn(seed, kind)
    ours = advantage_of(estimator, b.reward, b.mask, b.group, **b.fields())
    wanted = TEXTBOOK[name(estimator)](b)
    wanted = np.where(b.mask, wanted[:, None] if wanted.ndim == 1 else wanted, 0.0)
    size = max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12 * size)


@each(ALL)
def test_the_order_of_the_episodes_does_not_matter(estimator):
    b = Drawn(3, "real")
    shuffled = np.random.default_rng(0).permutation(len(b.reward))
    fields = {key: value[shuffled] for key, value in b.fields().items()}
    ours = advantage_of(estimator, b.reward, b.mask, b.group, **b.fields())[shuffled]
    again = advantage_of(estimator, b.reward[shuffled], b.mask[shuffled], b.group[shuffled], **fields)
    np.testing.assert_allclose(again, ours, rtol=1e-12, atol=1e-13)


# Class I: the population ----------------------------------------------------------------------------------------------


# c(s): the step of state s is η d(s) c(s) π∘(r − p). p and q are P(right) and P(wrong) [S], d the weights.
COEFFICIENT = [
    (REINFORCE(), lambda p, q, d: 1.0),
    (Baseline(0.3), lambda p, q, d: 1.0),
    (ValueBaseline(), lambda p, q, d: 1.0),
    (OptimalBaseline(), lambda p, q, d: 1.0),
    (ReMax(), lambda p, q, d: 1.0),
    (RLOO(), lambda p, q, d: 1.0),
    (DrGRPO(), lambda p, q, d: 1.0),
    (OPO(), lambda p, q, d: 1.0),
    (QAE(), lambda p, q, d: 1.0),
    (PSR(), lambda p, q, d: 1.0),
    (NSR(), lambda p, q, d: 1.0),
    (WReinforce(), lambda p, q, d: 1.1),
    (PSRReleased(), lambda p, q, d: 1.0 / (d @ p)),
    (NSRReleased(), lambda p, q, d: 1.0 / (d @ q)),
    (GRPO(), lambda p, q, d: 1.0 / (np.sqrt(p * q) + 1e-6)),
    (ReinforcePP(), lambda p, q, d: 1.0 / np.sqrt((d @ p) * (d @ q) + 1e-8)),
    (ReinforcePPBaseline(), lambda p, q, d: 1.0 / np.sqrt(d @ (p * q) + 1e-8)),
    (GAE(), lambda p, q, d: 1.0 / np.sqrt(d @ (p * q) + 1e-8)),
    (GPG(), lambda p, q, d: 1.0 / (d @ (p * q > 0.0))),
    (GPGReleased(), lambda p, q, d: 1.0 / (d @ p)),
]
REWARD = np.array([[1.0, 0, 0, 1, 0], [0, 0, 1, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]])  # the last has no signal
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
MODERATE = ["random", "near-uniform", "masked"]  # where a baseline that is off by R costs no digits of π∘(r − p)
CENTRED = (ValueBaseline, ReMax, RLOO, DrGRPO, OPO, QAE, GRPO)  # A = R − R(mode) or so: exact at any policy


@jax.jit
def population_step(estimator, logits):
    problem, policy = Bandit(REWARD, WEIGHTS), softmax(logits)
    tokens = Exact(estimator)(None, problem, policy)
    return gradient(tokens, plain_push(tokens, problem.shape), policy)


@pytest.mark.parametrize(("estimator", "coefficient"), COEFFICIENT, ids=[name(row[0]) for row in COEFFICIENT])
@given(st.sampled_from(FAMILIES), st.integers(0, 2**32))
@settings(max_examples=20)
def test_reward_only_estimators_share_one_direction_and_differ_by_their_factor(estimator, coefficient, family, seed):
    assume(family in MODERATE or isinstance(estimator, CENTRED))
    rng = np.random.default_rng(seed)
    logits = np.stack([hard_logits(family, 5, rng) for _ in REWARD])
    prob = np.exp(logits - logits.max(-1, keepdims=True))
    prob /= prob.sum(-1, keepdims=True)
    p, q = (prob * REWARD).sum(-1), (prob * (1.0 - REWARD)).sum(-1)
    direction = prob * np.where(REWARD > 0.0, q[:, None], -p[:, None])  # π∘(r − p), without cancellation
    ours = np.asarray(population_step(estimator, logits))
    signal = (p > 1e-200) & (q > 1e-200)
    wanted = (np.broadcast_to(coefficient(p, q, WEIGHTS), p.shape) * WEIGHTS)[:, None] * direction
    for a, b in zip(ours[signal], wanted[signal], strict=True):
        a, b = a / np.abs(b).max(), b / np.abs(b).max()
        assert a @ b / np.sqrt((a @ a) * (b @ b)) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours[p * q == 0.0], 0.0, atol=1e-15 * max(1.0, np.abs(ours).max()))


@each([PassK(), PassKGap()])
def test_in_an_infinite_group_nobody_is_the_only_best(estimator):
    assert (population_step(estimator, np.zeros((4, 5))) == 0.0).all()


def test_prime_leaves_the_common_direction_once_its_table_has_learnt():
    logits = np.random.default_rng(0).normal(size=(1, 5))
    problem, policy = Bandit(REWARD[:1]), softmax(jnp.asarray(logits))
    learnt = ImplicitReward(logits=jnp.asarray(logits + np.array([4.0, -1, 2, 1, -3])), reference=jnp.asarray(logits))
    direction = policy.prob * (REWARD[:1] - (policy.prob * REWARD[:1]).sum())

    @jax.jit
    def cosine(process):
        tokens = Exact(PRIME(), process=process)(None, problem, policy)
        step = gradient(tokens, plain_push(tokens, problem.shape), policy)
        return jnp.sum(step * direction) / jnp.linalg.norm(step) / jnp.linalg.norm(direction)

    assert cosine(learnt) < 0.999
    fresh = ImplicitReward(logits=learnt.reference, reference=learnt.reference)
    assert cosine(fresh) == pytest.approx(1.0, abs=1e-12)


# Groups of one, groups of equals --------------------------------------------------------------------------------------

SINGLE = {  # what a group of one gets out of R = 0.7; the batch has another group of two
    "GRPO": 0.7 / (1.0 + 1e-6),
    "DrGRPO": 0.7,
    "RLOO": 0.7,
    "OPO": 0.7,
    "QAE": 0.0,
    "PassK": 0.0,
    "PassKGap": 0.0,
    "GPG": 0.7 * 3 / 2,
    "GPGReleased": 0.7 * 3 / 2 / 2,
}


@each([a for a in ALL if name(a) in SINGLE])
def test_a_group_of_one_gets_what_the_docstring_says(estimator):
    ours = advantage_of(estimator, [[0.7], [0.0], [1.0]], np.ones((3, 1)), [0, 1, 1])
    assert ours[0, 0] == pytest.approx(SINGLE[name(estimator)], rel=1e-14)


@each([a for a in ALL if type(a).alone])
def test_sampling_groups_of_one_warns_with_what_happens(estimator):
    with pytest.warns(UserWarning, match=rf"in a group of 1, {name(estimator)} {re.escape(type(estimator).alone)}"):
        Sampled(groups=4, group_size=1, advantage=estimator)


@each([a for a in ALL if not type(a).alone])
def test_an_estimator_without_groups_does_not_warn(estimator):
    Sampled(groups=4, group_size=1, advantage=estimator)


@each(COMPARING)
@given(st.floats(-1e6, 1e6, width=32), st.sampled_from([3, 8]), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=20)
def test_equal_rewards_give_exactly_0(estimator, reward, count, dtype):
    rewards = np.full((count, 1), reward)
    assert (advantage_of(estimator, rewards, dtype=dtype, process=rewards, values=rewards) == 0.0).all()


@pytest.mark.parametrize("reward", [0.1, 0.2, 0.7])
def test_eight_equal_rewards_in_float32_leak_nothing(reward):
    assert (advantage_of(GRPO(), [reward] * 8, dtype=np.float32) == 0.0).all()


@each([ReinforcePP(0.9), ReinforcePPBaseline(), GAE(0.99, 0.95), PRIME(2.0, 3.0)])
def test_a_batch_of_one_token_is_whitened_to_0(estimator):
    assert advantage_of(estimator, [[0.7]], values=[[0.2]], process=[[0.1]]) == 0.0


@each(ALL)
def test_a_batch_without_a_valid_token_gives_0(estimator):
    ones = np.ones((4, 2))
    fields = {"greedy": ones[:, 0], "best_baseline": ones[:, 0], "values": ones, "process": ones}
    assert (advantage_of(estimator, ones, 0.0 * ones, **fields) == 0.0).all()


# Reported faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rel"), [(np.float64, 1e-8), (np.float32, 1e-2)])  # 1.00001 − 1 has few digits
def test_close_rewards_are_not_shrunk_by_a_floor_under_the_variance(dtype, rel):
    ours = advantage_of(GRPO(), [1.0, 1.00001], dtype=dtype)[:, 0]
    np.testing.assert_allclose(ours, [-0.61949671, 0.61949671], rtol=rel)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1000.0])
def test_the_spread_is_not_a_difference_of_large_squares(offset):
    reward = np.array([0.0] + [0.95] * 7, np.float32) + np.float32(offset)
    wide, narrow = (advantage_of(GRPO(), reward, dtype=dtype) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(narrow, wide, rtol=8 * 2 * np.spacing(np.float32(offset + 1.0)) / 0.95)


@each([GRPO(), DrGRPO(), RLOO(), OPO(), QAE(), PassK(), ReinforcePPBaseline(), GPG(), GPGReleased(2.0)])
def test_a_response_that_does_not_count_leaves_its_siblings_alone(estimator):
    reward, mask = np.array([[0.0, 1], [0, 0], [0, 1], [0, 0]]), np.array([[1, 1], [1, 1], [0, 0], [1, 1]])
    rest = [0, 1, 3]
    ours = advantage_of(estimator, reward, mask, weight=[1, 1, 0, 1])[rest]
    np.testing.assert_allclose(ours, advantage_of(estimator, reward[rest], mask[rest]), rtol=1e-14)


def test_a_response_without_tokens_that_counts_shifts_the_mean_of_its_siblings():
    ours = advantage_of(RLOO(), [[0.0, 1], [0, 0], [0, 1], [0, 0]], [[1, 1], [1, 1], [0, 0], [1, 1]])  # as released
    np.testing.assert_allclose(ours[:, 0], [2 / 3, -2 / 3, 0.0, -2 / 3], rtol=1e-14)


def test_a_reward_crosses_a_masked_span():
    reward, mask = [[0.0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]]
    ours = advantage_of(ReinforcePP(1.0), reward, mask)
    assert len(set(ours[0, [0, 1, 4, 5]])) == 1
    assert ours[0, 0] > 0.0
    assert ours[0, 2] == ours[0, 3] == 0.0


def test_the_std_is_that_of_the_raw_rewards_of_the_group():
    reward = 1e-3 * np.array([3.0, 5.0, 4.0, 9.0])
    ours = advantage_of(GRPO(), reward)[:, 0]
    np.testing.assert_allclose(ours * (reward.std(ddof=1) + 1e-6), reward - reward.mean(), rtol=1e-12)
    assert ours.std(ddof=1) == pytest.approx(1.0, rel=1e-3)


def test_a_group_of_equal_fractions_carries_no_signal():
    reward, group = [0.1, 0.1, 0.1, 0.3, 0.7, 0.5], [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(advantage_of(GPG(), reward, group=group)[3:, 0], [-0.4, 0.4, 0.0], atol=1e-15)


def test_one_winner_of_eight_has_the_largest_advantage_of_binary_rewards():
    assert advantage_of(GRPO(epsilon=0.0), [1.0] + [0.0] * 7).max() == pytest.approx(7.0 / np.sqrt(8.0), rel=1e-12)


@each([GRPO(epsilon=0.0), PassK(epsilon=0.0)])
def test_an_epsilon_of_0_is_finite_where_rewards_are_equal(estimator):
    assert (advantage_of(estimator, [0.3] * 4) == 0.0).all()


@pytest.mark.parametrize(("level", "baseline"), [(0.4, 0.0), (0.41, 1.0)])  # p = 0.6 ≤ 1 − K, or above
def test_the_quantile_meets_its_level_where_the_share_of_failures_is_equal_to_it(level, baseline):
    reward = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(advantage_of(QAE(level), reward)[:, 0], reward - baseline)


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: recorded([]), "reward has shape"),
        (lambda: recorded(np.zeros((0, 3))), "reward has shape (0, 3); wanted [episodes, tokens]"),
        (lambda: recorded([[1.0], [1.0, 2.0]]), "reward is ragged or not numbers"),
        (lambda: recorded([["a"]]), "reward is ragged or not numbers"),
        (lambda: recorded([[1.0, 2.0]], [[1.0, 0.5]]), "mask and weight must hold nothing but 0 and 1"),
        (lambda: recorded([[1.0, 2.0]], [[1.0]]), "mask has shape (1, 1); wanted (1, 2)"),
        (lambda: recorded([[1.0], [2.0]], group=[0]), "group has shape (1,); wanted (2,)"),
        (lambda: recorded([[np.nan], [2.0]]), "1 rewards of valid tokens are NaN or infinite"),
        (lambda: recorded([[1.0]], greedy=[1.0, 2.0]), "greedy has shape (2,); wanted (1,)"),
        (lambda: compiled(ReMax(), recorded([1.0])), "ReMax needs Outcomes.greedy, which is None"),
        (lambda: compiled(GAE(), recorded([1.0])), "GAE needs Outcomes.values, which is None"),
        (lambda: compiled(PRIME(), recorded([1.0])), "PRIME needs Outcomes.process, which is None"),
        (lambda: GRPO(epsilon=-1.0), "epsilon is -1.0; wanted a finite number ≥ 0"),
        (lambda: PassK(epsilon=np.inf), "epsilon is inf; wanted a finite number ≥ 0"),
        (lambda: QAE(40.0), "level is 40.0; wanted a finite number in (0, 1]"),
        (lambda: ReinforcePP(1.1), "discount is 1.1; wanted a finite number in [0, 1]"),
        (lambda: GAE(trace=-0.1), "trace is -0.1; wanted a finite number in [0, 1]"),
        (lambda: WReinforce(-1.0), "coefficient is -1.0; wanted a finite number ≥ 0"),
        (lambda: GPGReleased(0.0), "norm is 0.0; wanted a finite number > 0"),
        (lambda: Baseline(np.nan), "value is nan; wanted a finite number"),
        (lambda: PRIME(outcome=np.inf), "outcome is inf; wanted a finite number"),
    ],
)
def test_bad_input_is_one_clear_line(make, message):
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_nan_behind_the_mask_is_harmless():
    ours = advantage_of(RLOO(), [[1.0, np.nan], [0.0, 0.0]], [[1, 0], [1, 1]])
    np.testing.assert_array_equal(ours, [[1.0, 0.0], [-1.0, -1.0]])
