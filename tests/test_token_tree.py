"""The token tree: every number against the enumeration of all responses in plain Python, and against autodiff."""

import dataclasses
import itertools
from collections import Counter
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn.policy import softmax
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.token_tree import TokenTree
from tests.compiled import compiled

SIZES = [(1, 2, 3, False), (2, 3, 2, True), (1, 4, 1, False)]  # (P, A, depth, end)
ROUNDING = 1e-12  # sums of at most 50 terms of size ≤ 50, some eps each


class Rows:
    """The rows of a tree by (prompt, prefix), shortest prefixes first, and its responses: tuples with the end token."""

    def __init__(self, prompts, tokens, depth, end):
        grow = range(tokens - end)
        prefixes = [p for k in range(depth) for p in itertools.product(grow, repeat=k)]
        states = sorted(itertools.product(range(prompts), prefixes), key=lambda s: (len(s[1]), *s))
        self.row = {state: number for number, state in enumerate(states)}
        whole = list(itertools.product(grow, repeat=depth))
        if end:
            whole += [(*p, tokens - 1) for p in prefixes]
        self.responses = [(x, y) for x in range(prompts) for y in whole]
        self.shape, self.depth, self.prompts = (len(states), tokens), depth, prompts

    def path(self, x, y):
        """[(row, token)] of a response."""
        return [(self.row[x, y[:t]], y[t]) for t in range(len(y))]


ROWS = {size: Rows(*size) for size in SIZES}


@compiled
def facts(tree, logits, values, start):
    """All that is exact about a tree and a policy."""
    policy = softmax(logits)
    p = policy.prob
    return {
        "prob": p,
        "log_prob": policy.log_prob,
        "visits": tree.visits(p),
        "from_start": tree.visits(p, start),
        "to_go": tree.to_go(p, values),
        "action_values": tree.action_values(p),
        "expected_return": tree.expected_return(p),
        "gradient": jax.grad(lambda z: tree.expected_return(softmax(z).prob))(logits),
        "listing": tree.listing(p),
        "sequence_probs": tree.sequence_probs(p),
        "sequence_log_probs": tree.sequence_log_probs(policy),
        "sequence_rewards": tree.sequence_rewards(),
        "prompt_values": tree.prompt_values(p),
        "pass_at": [tree.pass_at(p, k) for k in (1, 3)],
        "length_distribution": tree.length_distribution(p),
        "answer_distribution": tree.answer_distribution(p),
        "normalised_covariance": tree.normalised_covariance(policy),
        "measures": tree.measures(policy),
    }


def sum_of_all(tree, policy):
    """One number in which every differentiable quantity is."""
    log_probs = jnp.where(jnp.isfinite(tree.sequence_log_probs(policy)), tree.sequence_log_probs(policy), 0.0)
    parts = [tree.measures(policy), tree.normalised_covariance(policy), tree.pass_at(policy.prob, 3), log_probs]
    return sum(jnp.sum(part) for part in jax.tree.leaves(parts))


draws = st.tuples(st.sampled_from(SIZES), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 30.0]), st.booleans())


def case_of(drawn, dtype=float):
    """A tree with process rewards, weights and answers, a policy with a few masks, and all that follows from both."""
    size, seed, spread, masks = drawn
    rng, rows, (prompts, tokens, depth, end) = np.random.default_rng(seed), ROWS[size], size
    logits = spread * rng.standard_normal(rows.shape)
    hidden = masks & (rng.random(rows.shape) < 0.3) & (np.arange(tokens) != rng.integers(tokens))
    logits = np.where(hidden, -np.inf, logits)
    rewards = rng.integers(-1, 2, rows.shape) + rng.integers(0, 2) * rng.standard_normal(rows.shape)
    tree = TokenTree(
        rewards.astype(dtype),
        vocabulary=tokens,
        depth=depth,
        end=end,
        weights=rng.random(prompts).astype(dtype) + 0.1,
        answers=rng.integers(0, 3, rows.shape),
        num_answers=3,
    )
    values, start = rng.standard_normal(rows.shape[0]), rng.random(rows.shape[0])
    found = jax.tree.map(np.asarray, facts(tree, *(np.asarray(x, dtype) for x in (logits, values, start))))
    prob, log_prob = found["prob"].astype(float), found["log_prob"].astype(float)
    chance = {(x, y): np.prod([prob[at] for at in rows.path(x, y)]) for x, y in rows.responses}
    return SimpleNamespace(
        tree=tree, rows=rows, logits=logits, values=values, start=start, found=found, prob=prob, log_prob=log_prob,
        weights=np.asarray(tree.weights, float), rewards=np.asarray(tree.rewards, float), chance=chance,
    )  # fmt: skip


def close(found, expected, rounding=ROUNDING):
    return np.allclose(found, expected, rtol=rounding, atol=rounding)


def mean(case, function):
    """Σ_x w_x E[function(x, y) | x] over all responses."""
    return sum(case.weights[x] * chance * function(x, y) for (x, y), chance in case.chance.items())


def gain(case, x, y):
    """R(y)."""
    return sum(case.rewards[at] for at in case.rows.path(x, y))


def entropy_of(chances):
    return -sum(p * np.log(p) for p in chances if p > 0.0)


@given(draws)
def test_visits_are_the_weights_of_the_responses_that_pass(drawn):
    case = case_of(drawn)
    expected = np.zeros(case.rows.shape[0])
    for (x, y), chance in case.chance.items():
        for row, _ in case.rows.path(x, y):
            expected[row] += case.weights[x] * chance
    assert close(case.found["visits"], expected)


def onward(case, x, prefix):
    """{longer prefix: chance to get there}, the prefix itself included, by recursion."""
    reached = {(x, prefix): 1.0}
    row = case.rows.row[x, prefix]
    for token in range(case.rows.shape[1]):
        if (x, (*prefix, token)) in case.rows.row:
            for state, chance in onward(case, x, (*prefix, token)).items():
                reached[state] = case.prob[row, token] * chance
    return reached


@given(draws)
def test_visits_can_start_from_any_prefix(drawn):
    case = case_of(drawn)
    expected = np.zeros(case.rows.shape[0])
    for (x, prefix), first in case.rows.row.items():
        for state, chance in onward(case, x, prefix).items():
            expected[case.rows.row[state]] += case.start[first] * chance
    assert close(case.found["from_start"], expected)


@given(draws)
def test_to_go_is_the_mean_sum_of_values_over_longer_prefixes(drawn):
    case = case_of(drawn)
    expected = np.zeros(case.rows.shape)
    for (x, prefix), row in case.rows.row.items():
        for token in range(case.rows.shape[1]):
            if (x, (*prefix, token)) in case.rows.row:
                later = onward(case, x, (*prefix, token)).items()
                expected[row, token] = sum(chance * case.values[case.rows.row[state]] for state, chance in later)
    assert close(case.found["to_go"], expected)


@given(draws)
def test_the_expected_return_is_the_mean_of_all_responses(drawn):
    case = case_of(drawn)
    expected = mean(case, lambda x, y: gain(case, x, y))
    assert close(case.found["expected_return"], expected)
    assert close(case.weights @ case.found["prompt_values"], expected)


@given(draws)
def test_the_gradient_is_visits_times_probability_times_advantage(drawn):
    """Three roads: the formula, jax.grad of J, and Σ_y w π(y) R(y) Σ_t (e_t − π) over all responses."""
    case = case_of(drawn)
    found = {name: np.asarray(case.found[name]) for name in ("visits", "action_values", "gradient")}
    state_values = (case.prob * found["action_values"]).sum(1, keepdims=True)
    formula = found["visits"][:, None] * case.prob * (found["action_values"] - state_values)
    score = np.zeros(case.rows.shape)
    for (x, y), chance in case.chance.items():
        for row, token in case.rows.path(x, y):
            push = (np.arange(case.rows.shape[1]) == token) - case.prob[row]
            score[row] += case.weights[x] * chance * gain(case, x, y) * push
    assert close(formula, score)
    assert close(formula, found["gradient"])


@given(draws)
def test_the_listing_holds_each_response_once_with_its_weight(drawn):
    case = case_of(drawn)
    (state, action, reward, taken), weight = case.found["listing"]
    seen = {}
    for row, tokens, pay, real, w in zip(state, action, reward, taken, weight, strict=True):
        length = int(real.sum())
        y = tuple(tokens[:length].tolist())
        x = int(row[0])
        assert real[:length].all()
        assert [*zip(row[:length].tolist(), y, strict=True)] == case.rows.path(x, y)
        assert close(pay[:length], [case.rewards[at] for at in case.rows.path(x, y)])
        assert (pay[length:] == 0.0).all()
        seen[x, y] = float(w)
    assert seen.keys() == set(case.rows.responses)
    assert len(weight) == len(seen)
    assert close([seen[key] for key in case.chance], [case.weights[x] * p for (x, _), p in case.chance.items()])


@given(draws)
def test_sequence_tables_hold_the_log_probability_the_probability_and_the_reward_of_each_response(drawn):
    case = case_of(drawn)
    tables = [np.asarray(case.found[f"sequence_{name}"]) for name in ("log_probs", "probs", "rewards")]
    left = [table.copy() for table in tables]
    for (x, y), chance in case.chance.items():
        last = case.rows.path(x, y)[-1]
        expected = sum(case.log_prob[at] for at in case.rows.path(x, y)), chance, gain(case, x, y)
        for table, rest, value in zip(tables, left, expected, strict=True):
            assert close(table[last], value)
            rest[last] = 0.0
    assert np.isneginf(left[0][left[0] != 0.0]).all()
    assert not left[1].any()
    assert not left[2].any()


@given(draws)
def test_the_length_distribution_counts_the_end_token(drawn):
    case = case_of(drawn)
    expected = np.zeros(case.rows.depth + 1)
    for (x, y), chance in case.chance.items():
        expected[len(y)] += case.weights[x] * chance / case.weights.sum()
    assert close(case.found["length_distribution"], expected)
    assert close(case.found["measures"]["mean_length"], expected @ np.arange(case.rows.depth + 1))


@given(draws)
def test_pass_at_k_is_one_minus_all_k_wrong(drawn):
    case = case_of(drawn)
    right = np.zeros(case.rows.prompts)
    for (x, y), chance in case.chance.items():
        right[x] += chance * (gain(case, x, y) > 0.5)
    for k, found in zip((1, 3), case.found["pass_at"], strict=True):
        assert close(found, 1.0 - (1.0 - right) ** k)


@given(draws)
def test_the_entropy_of_a_response_is_that_of_the_distribution_over_all_of_them(drawn):
    case = case_of(drawn)
    each = [entropy_of([p for (x, _), p in case.chance.items() if x == prompt]) for prompt in range(case.rows.prompts)]
    assert close(case.found["measures"]["response_entropy"], case.weights @ each / case.weights.sum())


@given(draws)
def test_answers_add_up_over_the_responses_that_end_in_them(drawn):
    case = case_of(drawn)
    answers = np.asarray(case.tree.answers)
    expected = np.zeros((case.rows.prompts, 3))
    for (x, y), chance in case.chance.items():
        expected[x, answers[case.rows.path(x, y)[-1]]] += chance
    assert close(case.found["answer_distribution"], expected)
    entropy = case.weights @ [entropy_of(row) for row in expected] / case.weights.sum()
    assert close(case.found["measures"]["answer_entropy"], entropy)


@given(draws)
def test_the_entropy_of_a_position_is_the_mean_over_those_who_get_there(drawn):
    """A second road: the law of the token at position t given its prefix, counted over whole responses."""
    case = case_of(drawn)
    for t, found in enumerate(np.asarray(case.found["measures"]["position_entropy"])):
        there = [(x, y, case.weights[x] * p) for (x, y), p in case.chance.items() if len(y) > t]
        total, spread = sum(w for *_, w in there), 0.0
        for prefix in {(x, y[:t]) for x, y, _ in there}:
            tokens = Counter()
            for x, y, w in there:
                if (x, y[:t]) == prefix:
                    tokens[y[t]] += w
            mass = sum(tokens.values())
            spread += mass * entropy_of([w / mass for w in tokens.values()]) if mass > 0.0 else 0.0
        assert abs(found * total - spread) <= ROUNDING  # the ratio of two rounded sums, where few get there
        assert found >= 0.0


@given(draws)
def test_the_normalised_covariance_is_that_of_all_responses(drawn):
    case = case_of(drawn)
    total = 0.0
    for prompt in range(case.rows.prompts):
        terms = [
            (p, sum(case.log_prob[at] for at in case.rows.path(x, y)) / len(y), gain(case, x, y))
            for (x, y), p in case.chance.items()
            if x == prompt and p > 0.0
        ]
        log_mean, reward_mean = (sum(t[0] * t[i] for t in terms) for i in (1, 2))
        total += case.weights[prompt] * sum(p * (log - log_mean) * (r - reward_mean) for p, log, r in terms)
    assert close(case.found["normalised_covariance"], total)


@given(draws)
def test_nothing_is_nan(drawn):
    leaves = jax.tree.leaves(case_of(drawn).found)
    assert not any(np.isnan(leaf).any() for leaf in leaves if leaf.dtype.kind == "f")


slopes = compiled(jax.grad(lambda z, tree: sum_of_all(tree, softmax(z))))


@given(draws.map(lambda drawn: (SIZES[1], *drawn[1:3], True)))
def test_no_slope_is_nan(drawn):
    case = case_of(drawn)
    assert np.isfinite(slopes(jnp.asarray(case.logits), case.tree)).all()


def test_the_normalised_covariance_keeps_its_digits_near_a_deterministic_policy():
    tree = TokenTree(lambda y: len(y) + y.count(0) / 2, vocabulary=3, depth=2, end=True)
    logits = np.where(np.arange(3) == 1, 40.0, np.arange(3.0)) * np.ones((3, 1))
    with mp.workdps(80):
        rows = [[mp.exp(z) / sum(map(mp.exp, row)) for z in row] for row in logits.tolist()]
        paths = [[(0, 2)], *([(0, a), (1 + a, b)] for a in (0, 1) for b in (0, 1, 2))]
        rewards = [0, *(len(y) + mp.mpf(y.count(0)) / 2 for a in (0, 1) for y in ((a, 0), (a, 1), (a,)))]
        chance = [mp.fprod(rows[s][a] for s, a in path) for path in paths]
        log = [sum(mp.log(rows[s][a]) for s, a in path) / len(path) for path in paths]
        means = [sum(p * v for p, v in zip(chance, values, strict=True)) for values in (log, rewards)]
        exact = sum(p * (u - means[0]) * (r - means[1]) for p, u, r in zip(chance, log, rewards, strict=True))
    assert abs(exact) < 1e-14
    found = compiled(tree.normalised_covariance)(softmax(jnp.asarray(logits)))
    assert float(found) == pytest.approx(float(exact), rel=1e-12)


pass_at = compiled(lambda tree, probs, k: tree.pass_at(probs, k))


@pytest.mark.parametrize("k", [1, 7, 10**6])
def test_pass_at_k_keeps_the_digits_of_rare_successes(k):
    tree = TokenTree(lambda y: y == (1, 1), vocabulary=2, depth=2)
    logits = jnp.array([[0.0, -20.0]] * 3)
    with mp.workdps(60):
        right = (mp.exp(-20) / (1 + mp.exp(-20))) ** 2
        exact = 1 - (1 - right) ** k
    assert float(pass_at(tree, softmax(logits).prob, k)[0]) == pytest.approx(float(exact), rel=1e-14)


def test_pass_at_k_of_a_sure_success_is_one():
    tree = TokenTree(lambda y: 1.0, vocabulary=2, depth=2)
    assert pass_at(tree, softmax(jnp.zeros(tree.shape)).prob, 4).tolist() == [1.0]


measures = compiled(lambda tree, logits: tree.measures(softmax(logits)))


def test_where_nobody_gets_the_entropy_of_a_position_is_zero():
    tree = TokenTree(len, vocabulary=3, depth=3, end=True)
    logits = jnp.zeros(tree.shape).at[0, :2].set(-jnp.inf)
    found = measures(tree, logits)
    assert found["position_entropy"].tolist() == [0.0, 0.0, 0.0]
    assert [float(found[name]) for name in ("response_entropy", "answer_entropy", "mean_length")] == [0.0, 0.0, 1.0]


POLICY = np.random.default_rng(5).standard_normal((6, 3))


@pytest.mark.parametrize("first", [None, 1])
def test_rollouts_visit_and_earn_what_is_expected(first):
    rng, count = np.random.default_rng(1), 20_000
    tree = TokenTree(rng.standard_normal((6, 3)), vocabulary=3, depth=2, end=True, weights=[0.3, 0.7])
    play = compiled(lambda key: tree.rollout(key, jnp.asarray(POLICY), None if first is None else jnp.int32(first)))
    state, action, reward, taken = map(np.asarray, jax.vmap(play)(jax.random.split(jax.random.key(3), count)))
    p = softmax(jnp.asarray(POLICY)).prob
    start = None if first is None else jnp.eye(6)[first]
    pairs = np.asarray(tree.visits(p, start)[:, None] * p)
    seen = np.zeros((6, 3))
    np.add.at(seen, (state[taken], action[taken]), 1.0 / count)
    assert (np.abs(seen - pairs) <= 4.0 * np.sqrt(pairs * (1.0 - pairs) / count) + 1e-15).all()
    assert np.array_equal(reward[taken], np.asarray(tree.rewards)[state[taken], action[taken]])
    returns = reward.sum(1)
    expected = np.sum(pairs * np.asarray(tree.rewards))
    assert abs(returns.mean() - expected) <= 4.0 * returns.std() / np.sqrt(count)


def test_a_rollout_stops_at_the_end_token_and_at_the_depth():
    tree = TokenTree(len, vocabulary=3, depth=3, end=True)
    ends = jnp.zeros(tree.shape).at[1:3, :2].set(-jnp.inf).at[0, 2].set(-jnp.inf)
    keys = jax.random.split(jax.random.key(0), 50)
    play = compiled(jax.vmap(tree.rollout, (0, None, None)))
    state, action, reward, taken = play(keys, ends, jnp.int32(0))
    assert taken.tolist() == [[True, True, False]] * 50
    assert (action[:, 1] == 2).all()
    assert (state[:, 2] == state[:, 1]).all()
    assert reward.tolist() == [[0.0, 1.0, 0.0]] * 50
    *_, taken = play(keys, ends, jnp.int32(6))  # a prefix of the last level
    assert taken.tolist() == [[True, False, False]] * 50


@compiled
def members(problem, policy):
    """All that a problem answers."""
    keys = jax.random.split(jax.random.key(1), 9)
    return {
        "start": problem.start,
        "episodes_at_once": problem.episodes_at_once,
        "visits": problem.visits(policy.prob),
        "visits from": problem.visits(policy.prob, jnp.arange(problem.shape[0]) / 3.0),
        "to_go": problem.to_go(policy.prob, jnp.ones(problem.shape[0])),
        "action_values": problem.action_values(policy.prob),
        "values of others": problem.action_values(policy.prob, policy.prob**2),
        "expected_return": problem.expected_return(policy.prob),
        "listing": problem.listing(policy.prob),
        "normalised_covariance": problem.normalised_covariance(policy),
        "sample_start": jax.vmap(problem.sample_start)(keys),
        "rollout": jax.vmap(problem.rollout, (0, None))(keys, policy.logits),
        "rollout from": jax.vmap(problem.rollout, (0, None, None))(keys, policy.logits, jnp.int32(1)),
    }


@pytest.mark.parametrize("weights", [None, 1.0, [0.2, 0.8]])
def test_a_tree_of_depth_one_is_a_bandit(weights):
    rewards = np.random.default_rng(2).standard_normal((2, 4))
    policy = softmax(jnp.array([[0.0, 1.0, -jnp.inf, 3.0], [50.0, 0.0, -1.0, 2.0]]))
    tree, bandit = TokenTree(rewards, vocabulary=4, depth=1, weights=weights), Bandit(rewards, weights)
    assert tree.shape == bandit.shape
    found, expected = members(tree, policy), members(bandit, policy)
    for name in expected:
        for one, other in zip(jax.tree.leaves(found[name]), jax.tree.leaves(expected[name]), strict=True):
            assert one.dtype == other.dtype, name
            assert np.allclose(one, other, rtol=1e-12, atol=0.0), name


@given(draws.map(lambda drawn: (SIZES[1], *drawn[1:])))
def test_single_precision_stays_single_and_right_to_its_digits(drawn):
    case = case_of(drawn, np.float32)
    leaves = jax.tree.leaves(case.found)
    assert {leaf.dtype for leaf in leaves if leaf.dtype.kind == "f"} == {np.dtype("float32")}
    assert not any(np.isnan(leaf).any() for leaf in leaves if leaf.dtype.kind == "f")
    assert close(case.found["expected_return"], mean(case, lambda x, y: gain(case, x, y)), 2e-5)  # 50 terms ≤ 5, eps


def test_all_ways_to_give_the_rewards_are_one():
    first, second = (lambda y: y[0] - 2.0 * y[1]), (lambda y: y[0] * y[1] == 2)
    boxes = np.array([[[f((a, b)) for b in range(3)] for a in range(3)] for f in (first, second)], float)
    by_function = TokenTree([first, second], vocabulary=3, depth=2)
    by_box = TokenTree(boxes, vocabulary=3, depth=2)
    by_table = TokenTree(by_box.rewards, vocabulary=3, depth=2)
    traced = jax.jit(lambda r: TokenTree(r, vocabulary=3, depth=2))(boxes)
    for tree in (by_box, by_table, traced):
        assert np.array_equal(tree.rewards, by_function.rewards)
        assert np.array_equal(tree.answers, by_function.answers)
    one = TokenTree(first, vocabulary=3, depth=2)
    assert np.array_equal(one.rewards, TokenTree(boxes[0].tolist(), vocabulary=3, depth=2).rewards)
    assert np.array_equal(one.rewards, np.r_[np.zeros((1, 3)), boxes[0]])
    assert by_function.prompts == 2


def test_a_function_sees_each_response_once_without_the_end_token():
    seen = []
    tree = TokenTree(lambda y: seen.append(y) or len(y), vocabulary=3, depth=2, end=True)
    assert sorted(seen) == [(), (0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1)]
    assert tree.rewards.tolist() == [[0, 0, 0], [2, 2, 1], [2, 2, 1]]


def test_rewards_of_other_kinds_of_numbers():
    values = iter([True, np.float32(0.5), jnp.asarray(2.0), 3])
    assert TokenTree(lambda y: next(values), vocabulary=2, depth=2).rewards[1:].ravel().tolist() == [1.0, 0.5, 2.0, 3.0]


def test_by_default_the_answer_is_the_last_token_before_the_end():
    tree = TokenTree([len, sum], vocabulary=3, depth=2, end=True)
    assert tree.answers.tolist() == [[-1, -1, 2]] * 2 + [[0, 1, 0], [0, 1, 1]] * 2
    assert tree.num_answers == 3
    assert TokenTree(len, vocabulary=2, depth=2).answers.tolist() == [[-1, -1], [0, 1], [0, 1]]


def test_answers_are_numbered_as_they_come_up_and_shared_by_the_prompts():
    tree = TokenTree([len, sum], vocabulary=2, depth=2, answers=lambda y: "same" if y[0] == y[1] else "other")
    assert tree.answers.tolist() == [[-1, -1], [-1, -1], [0, 1], [1, 0], [0, 1], [1, 0]]
    assert tree.num_answers == 2
    box = TokenTree(sum, vocabulary=2, depth=2, answers=[[3, 0], [1, 2]], num_answers=5)
    assert box.answers.tolist() == [[-1, -1], [3, 0], [1, 2]]
    assert box.num_answers == 5
    right = TokenTree(sum, vocabulary=2, depth=1, answers=np.array([False, True]))
    assert right.answers.tolist() == [[0, 1]]


def test_a_tree_can_be_changed_in_one_field_and_mapped_over():
    tree = TokenTree([sum, len], vocabulary=2, depth=2, weights=[0.1, 0.9], answers=sum)
    other = dataclasses.replace(tree, weights=[0.5, 0.5])
    assert np.array_equal(other.rewards, tree.rewards)
    assert np.array_equal(other.answers, tree.answers)
    p = softmax(jnp.zeros(tree.shape)).prob
    boxes = jnp.arange(12.0).reshape(3, 2, 2)
    returns = jax.vmap(lambda box: TokenTree(box, vocabulary=2, depth=2).expected_return(p[: 1 + 2]))(boxes)
    assert np.allclose(returns, boxes.mean((1, 2)), rtol=1e-15, atol=0.0)


def test_the_weights_are_shares_one_each_or_equal():
    trees = [TokenTree([sum, len], vocabulary=2, depth=2, weights=w) for w in (None, 1, [1, 3], jnp.array([0.2, 0.3]))]
    assert [np.asarray(tree.weights).tolist() for tree in trees] == [[0.5, 0.5], [1.0, 1.0], [1.0, 3.0], [0.2, 0.3]]
    measured = [measures(tree, jnp.zeros(tree.shape)) for tree in trees]
    assert np.allclose([m["response_entropy"] for m in measured], 2.0 * np.log(2.0), rtol=1e-14, atol=0.0)
    assert float(trees[2].episodes_at_once) == 4.0


def test_too_many_responses_are_not_listed():
    assert TokenTree(np.zeros((2,) * 17), vocabulary=2, depth=17).listing(jnp.ones((2**17 - 1, 2)) / 2.0) is None


def test_tokens_that_never_branch_make_a_chain_of_chances_to_stop():
    tree = TokenTree(len, vocabulary=2, depth=4, end=True)
    p = softmax(jnp.zeros(tree.shape)).prob
    assert tree.shape == (4, 2)
    assert tree.length_distribution(p).tolist() == [0.0, 0.5, 0.25, 0.125, 0.125]
    assert float(tree.expected_return(p)) == 0.0 * 0.5 + 1.0 * 0.25 + 2.0 * 0.125 + 3.5 * 0.125


def test_repr_names_the_sizes():
    assert repr(TokenTree([len, sum], vocabulary=3, depth=2, end=True)) == "TokenTree(P=2, A=3, depth=2, end=True)"
