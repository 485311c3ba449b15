"""The MDP against all its episodes, autodiff, power series, exact arithmetic, Fisher matrices and played episodes."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from softmaxdyn import Algorithm, Bandit, NaturalPG, simulate
from softmaxdyn.configs import with_dtype
from softmaxdyn.policy import probs, softmax
from softmaxdyn.problems import linear
from softmaxdyn.problems.mdp import MDP
from softmaxdyn.simulation import step
from tests.compiled import compiled

TIME = 3


class Case(NamedTuple):
    """What was typed: an MDP, logits, and values x of the rows."""

    transitions: Any
    rewards: Any
    discount: float
    start: Any
    logits: Any
    values: Any
    terminal: tuple[int, ...] = ()
    horizon: int | None = None

    @property
    def problem(self):
        """One length of played episodes for all discounts: they share their compilation."""
        tables = self.transitions, self.rewards, self.discount, self.start
        return MDP(*tables, self.terminal, self.horizon, None if self.horizon else 20)


@st.composite
def cases(draw, states=4, actions=3, discounts=(0.0, 0.3, 0.9), terminals=((), (3,)), horizon=None):
    """Tables with zeros (absorbing states, states out of reach), rewards of both signs, masked actions."""
    rows = states * (horizon or 1)
    weight = draw(arrays(float, (states, actions, states), elements=st.sampled_from([0.0, 0.0, 1.0, 2.0])))
    weight[..., 0] += weight.sum(-1) == 0.0
    reward = draw(arrays(float, (states, actions), elements=st.sampled_from([-1.0, 0.0, 0.3, 2.0])))
    first = draw(arrays(float, states, elements=st.sampled_from([0.0, 1.0, 3.0]))) + np.eye(states)[1]
    terminal = draw(st.sampled_from(terminals))
    first[list(terminal)] = 0.0
    logits = draw(arrays(float, (rows, actions), elements=st.sampled_from([-2.0, 0.0, 0.7, 3.0, -np.inf])))
    logits[:, 1] = np.maximum(logits[:, 1], -1.0)
    values = draw(arrays(float, rows, elements=st.sampled_from([-1.0, 0.0, 0.5])))
    chances = weight / weight.sum(-1, keepdims=True), first / first.sum()
    return Case(chances[0], reward, draw(st.sampled_from(discounts)), chances[1], logits, values, terminal, horizon)


def timed_cases():
    return cases(3, 3, (0.0, 0.6, 1.0), ((), (2,)), TIME)


@compiled
def answers(problem, logits, values):
    """Everything that is asked of a problem, in one compilation."""
    policy = softmax(logits)

    def value(z):
        return problem.expected_return(probs(z))

    return {
        "return": value(logits),
        "slope": jax.grad(value)(logits),
        "visits": problem.visits(policy.prob),
        "action_values": problem.action_values(policy.prob),
        "to_go": problem.to_go(policy.prob, values),
        "covariance": problem.normalised_covariance(policy),
        "residual": problem.residual(policy.prob),
    }


def answered(case):
    return {name: np.asarray(x) for name, x in answers(case.problem, case.logits, case.values).items()}


def policy_gradient(found, case):
    """d(s) π(a|s) (Q − V)."""
    p, q = softmaxed(case.logits), found["action_values"]
    return found["visits"][:, None] * p * (q - (p * q).sum(-1, keepdims=True))


def softmaxed(logits):
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def episodes(case, row=None, action=None):
    """Every episode of a time-limited problem as (start, chance, rows, actions), from a given row and action or all."""
    states, actions = case.rewards.shape
    p = softmaxed(case.logits)

    def play(time, state, chance, rows, taken):
        row, forced = time * states + state, action is not None and not rows
        for a in [action] if forced else range(actions):
            here = chance * (1.0 if forced else p[row, a])
            path, acts = (*rows, row), (*taken, a)
            end = 1.0 if time == case.horizon - 1 else 1.0 - case.discount
            yield here * end, path, acts
            for after in range(states):
                odds = here * (1.0 - end) * case.transitions[state, a, after]
                if after in case.terminal:
                    yield odds, path, acts
                elif odds > 0.0:
                    yield from play(time + 1, after, odds, path, acts)

    begins = enumerate(case.start) if row is None else [(row % states, 1.0)]
    for state, chance in begins:
        if chance > 0.0 and state not in case.terminal:
            for odds, path, acts in play(0 if row is None else row // states, state, chance, (), ()):
                yield state, odds, path, acts


def enumerated(case):
    """J, its gradient by the score, d, and the covariance of log π(y|x)/|y| with R, by adding up all episodes."""
    states = case.rewards.shape[0]
    p, log_p = softmaxed(case.logits), np.log(np.maximum(softmaxed(case.logits), 1e-300))
    visits, slope, total = np.zeros(len(p)), np.zeros_like(p), 0.0
    moments = np.zeros((states, 4))  # of 1, L/|y|, R, R·L/|y| by first state
    for first, odds, path, acts in episodes(case):
        gain = sum(case.rewards[row % states, a] for row, a in zip(path, acts, strict=True))
        surprise = sum(log_p[row, a] for row, a in zip(path, acts, strict=True)) / len(path)
        total += odds * gain
        moments[first] += odds * np.array([1.0, surprise, gain, gain * surprise])
        for row, a in zip(path, acts, strict=True):
            visits[row] += odds
            slope[row] += odds * gain * (np.eye(p.shape[1])[a] - p[row])
    weight, mean_surprise, mean_gain, both = moments.T
    covariance = (both - mean_surprise * mean_gain / np.where(weight > 0.0, weight, 1.0)).sum()
    return {"return": total, "slope": slope, "visits": visits, "covariance": covariance}


ROUNDING = {"rtol": 1e-12, "atol": 1e-12}  # sums of a few hundred terms of size ≤ 20


@given(timed_cases())
def test_with_a_horizon_all_is_as_the_enumeration_of_all_episodes_says(case):
    found, expected = answered(case), enumerated(case)
    for name, value in expected.items():
        assert np.allclose(found[name], value, **ROUNDING), name
    assert np.allclose(found["slope"], policy_gradient(found, case), **ROUNDING)
    assert found["residual"] == 0.0


def test_values_with_a_horizon_are_the_mean_rewards_after_a_state_and_an_action():
    case = timed_instance()
    found = answered(case)
    for row in range(len(case.logits)):
        for action in range(3):
            alone = list(episodes(case, row, action))
            gain = sum(odds * sum(case.rewards[i % 3, a] for i, a in zip(p, b, strict=True)) for _, odds, p, b in alone)
            ahead = sum(odds * sum(case.values[i] for i in path[1:]) for _, odds, path, _ in alone)
            live = row % 3 not in case.terminal
            assert found["action_values"][row, action] == pytest.approx(gain * live, rel=1e-13, abs=1e-14)
            assert found["to_go"][row, action] == pytest.approx(ahead * live, rel=1e-13, abs=1e-14)


def timed_instance():
    rng = np.random.default_rng(5)
    tables = rng.dirichlet(np.ones(3), (3, 3)), rng.normal(size=(3, 3)), 0.8, np.array([0.3, 0.7, 0.0])
    return Case(*tables, rng.normal(size=(9, 3)), rng.normal(size=9), (2,), TIME)


def instance(seed=3, discount=0.9, terminal=()):
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.ones(4), (4, 3)), rng.normal(size=(4, 3)), discount, np.array([0.1, 0.4, 0.5, 0.0])
    return Case(*tables, rng.uniform(-1.5, 1.5, (4, 3)), rng.normal(size=4), terminal)


def series(case, terms=400):
    """d, V_x ahead and Q by adding up what happens at each time: γ^400 < 1e-18 for γ ≤ 0.9."""
    live = ~np.isin(np.arange(len(case.start)), case.terminal)
    p, moves = softmaxed(case.logits), case.discount * case.transitions * live
    chain = np.einsum("sa,sat->st", p, moves)
    weight, visits = case.start * live, np.zeros(len(live))
    rewards = case.rewards * live[:, None]
    now = np.stack([case.values * live, (p * rewards).sum(-1)], 1)
    ahead = np.zeros_like(now)
    for _ in range(terms):
        visits, weight = visits + weight, weight @ chain
        ahead, now = ahead + now, chain @ now
    after = np.einsum("sat,tx->sax", moves, ahead) * live[:, None, None]
    return {
        "visits": visits,
        "to_go": after[..., 0],
        "action_values": rewards + after[..., 1],
        "return": (visits[:, None] * p * rewards).sum(),
    }


@given(cases())
def test_discounted_values_are_those_of_a_long_series_and_the_gradient_is_that_of_the_return(case):
    found = answered(case)
    for name, value in series(case).items():
        assert np.allclose(found[name], value, **ROUNDING), name
    assert np.allclose(found["slope"], policy_gradient(found, case), **ROUNDING)
    assert found["residual"] <= 8 * np.finfo(float).eps
    assert np.isnan(found["covariance"])


def in_digits(case):
    """(d, V) in 50 digits; the chance to stay is what the others leave of 1."""
    states = len(case.start)
    p, gamma = [[mp.mpf(x) for x in row] for row in softmaxed(case.logits)], mp.mpf(case.discount)
    matrix, reward = mp.eye(states), mp.matrix(states, 1)
    for s in range(states):
        reward[s] = sum(x * mp.mpf(r) for x, r in zip(p[s], case.rewards[s], strict=True)) / sum(p[s])
        away = [
            mp.fsum(x * mp.mpf(row[t]) for x, row in zip(p[s], case.transitions[s], strict=True)) for t in range(states)
        ]
        away[s] = 1 - mp.fsum(away[t] for t in range(states) if t != s)
        for t in range(states):
            matrix[s, t] -= gamma * away[t]
    return mp.lu_solve(matrix.T, mp.matrix(case.start.tolist())), mp.lu_solve(matrix, reward)


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-8, 1e-10, 2.0**-52])
@pytest.mark.parametrize("seed", [0, 1])
def test_near_discount_one_no_digit_is_lost(seed, gap):
    """Rewards in [0, 1), so that nothing cancels in V; 64 eps: some 16 roundings a state, of four states."""
    case = instance(seed, 1.0 - gap)._replace(rewards=np.random.default_rng(seed).random((4, 3)))
    found = answered(case)
    value = (softmaxed(case.logits) * found["action_values"]).sum(-1)
    with mp.workdps(50):
        visits, values = in_digits(case)
        for exact, double in ((visits, found["visits"]), (values, value)):
            for x, y in zip(exact, double, strict=True):
                assert abs(mp.mpf(y) - x) <= 64 * np.finfo(float).eps * abs(x)
    assert found["residual"] <= 8 * np.finfo(float).eps


def test_in_single_precision_a_discount_that_rounds_to_one_still_counts():
    case = instance(0, 1.0 - 1e-10)
    single = answers(with_dtype(case.problem, np.float32), case.logits.astype("f4"), case.values.astype("f4"))
    assert {x.dtype for x in single.values()} == {np.dtype("f4")}
    assert np.allclose(single["visits"], answered(case)["visits"], rtol=64 * np.finfo("f4").eps, atol=0.0)
    assert all(np.isfinite(x).all() for name, x in single.items() if name != "covariance")


@pytest.mark.parametrize(
    "case", [instance(), instance(terminal=(3,)), timed_instance()], ids=["plain", "ended", "timed"]
)
def test_in_single_precision_all_is_the_same_to_its_own_digits(case):
    problem = dataclasses.replace(case.problem, transitions=case.transitions.astype("f4"))
    single = answers(with_dtype(problem, np.float32), case.logits.astype("f4"), case.values.astype("f4"))
    for name, value in answered(case).items():
        assert single[name].dtype == np.float32
        near = (
            256 * np.finfo("f4").eps * max(1.0, np.abs(value).max())
        )  # inputs rounded, a sum of γ^t of them: 1/(1 − γ)
        assert np.allclose(single[name], value, rtol=0.0, atol=near, equal_nan=True), name


@pytest.mark.parametrize("gap", [0.1, 1e-10])
def test_many_states_are_halved_with_the_same_result(gap):
    """130 states in halves of 65 and quarters of 32 and 33 against one at a time."""
    rng = np.random.default_rng(0)
    moves = (1.0 - gap) * rng.dirichlet(np.full(130, 0.05), 130)
    stop, right = np.full(130, 1.0 - (1.0 - gap)), rng.random(130)

    @compiled
    def both(moves, stop, right):
        by_state = linear._eliminate_by_state(moves, stop)
        alone = linear._substitute(by_state, right), linear._substitute_transposed(by_state, right)
        return alone, (linear.expected_sum(moves, stop, right), linear.expected_visits(moves, stop, right))

    alone, halved = both(moves, stop, right)
    assert np.allclose(halved, alone, rtol=130 * np.finfo(float).eps, atol=0.0)
    if gap == 0.1:
        assert np.allclose(halved[0], np.linalg.solve(np.eye(130) - moves, right), rtol=1e-13, atol=0.0)


def test_the_residual_is_the_relative_change_of_the_system_that_a_wrong_solution_solves():
    matrix, solution = np.array([[2.0, -1.0], [0.0, 3.0]]), np.array([1.0, 1.0])
    right, off = matrix @ solution, solution * np.array([1.0, 1.001])
    found = linear.relative_residual(*(jnp.asarray(x) for x in (matrix, off, right)))
    assert found == pytest.approx(0.003 / 6.003, rel=1e-12)  # 0.001/4.001 in the first row
    exact = linear.relative_residual(*(jnp.asarray(x) for x in (0.0 * matrix, solution, 0.0 * right)))
    assert exact == 0.0


def test_the_second_derivative_through_the_solve_is_that_of_differences():
    case = instance()
    slope = compiled(jax.grad(lambda z: case.problem.expected_return(probs(z))))
    bend = compiled(jax.hessian(lambda z: case.problem.expected_return(probs(z))))(case.logits)
    direction, h = np.random.default_rng(0).normal(size=(4, 3)), 1e-4
    found = (slope(case.logits + h * direction) - slope(case.logits - h * direction)) / (2.0 * h)
    assert np.allclose(found, np.einsum("saib,ib->sa", bend, direction), rtol=0.0, atol=1e-6)  # h² and eps/h, times J


def test_the_derivative_by_the_discount_is_visits_times_what_lies_ahead():
    """dJ/dγ = Σ_s d(s) (P_π V)(s), for many discounts at once."""
    case = instance()
    p = probs(case.logits)
    gammas = jnp.array([0.0, 0.5, 0.99])

    def value(gamma):
        return MDP(case.transitions, case.rewards, gamma, case.start).expected_return(p)

    for gamma, found in zip(gammas, compiled(jax.vmap(jax.grad(value)))(gammas), strict=True):
        chain, reward = np.einsum("sa,sat->st", p, case.transitions), (p * case.rewards).sum(-1)
        inverse = np.linalg.inv(np.eye(4) - float(gamma) * chain)
        assert found == pytest.approx(float(case.start @ inverse @ chain @ inverse @ reward), rel=1e-12)


def fisher(logits, weight):
    """Σ_s w(s) (diag π_s − π_s π_sᵀ), as a matrix over all logits."""
    p = softmaxed(logits)
    full = np.zeros((*p.shape, *p.shape))
    for s in range(len(p)):
        full[s, :, s, :] = weight[s] * (np.diag(p[s]) - np.outer(p[s], p[s]))
    return full.reshape(p.size, p.size)


@given(st.integers(0, 2**32 - 1))
def test_the_natural_gradient_is_the_advantage_and_of_normalised_visits_that_over_one_minus_gamma(seed):
    case = instance(seed)
    found, p = answered(case), softmaxed(case.logits)
    advantage = found["action_values"] - (p * found["action_values"]).sum(-1, keepdims=True)
    expected = (advantage - advantage.mean(-1, keepdims=True)).ravel()
    for scale, factor in ((1.0, 1.0), (1.0 - 0.9, 10.0)):
        inverse = np.linalg.pinv(fisher(case.logits, scale * found["visits"]), rcond=1e-10)
        assert np.allclose(inverse @ found["slope"].ravel(), factor * expected, rtol=0.0, atol=1e-11 * factor)
    moved = natural_step(case.problem, case.logits) - 0.5 * advantage
    assert np.allclose(moved - moved.mean(-1, keepdims=True), 0.0, atol=1e-12)


natural_step = compiled(lambda problem, logits: step(problem, Algorithm(NaturalPG(0.5)), softmax(logits))[0])


@pytest.mark.parametrize("case", [instance(), timed_instance()], ids=["discounted", "timed"])
def test_visits_are_linear_in_the_start(case):
    problem, p, rows = case.problem, probs(case.logits), len(case.logits)
    from_each = compiled(jax.vmap(problem.visits, (None, 0)))(p, jnp.eye(rows))
    weight = jnp.asarray(np.random.default_rng(0).normal(size=rows))
    assert np.allclose(compiled(problem.visits)(p, weight), weight @ from_each, **ROUNDING)
    assert np.allclose(answered(case)["visits"], problem.start @ from_each, **ROUNDING)


def test_a_policy_that_ignores_the_time_is_one_of_the_stationary_ones():
    """With a long horizon the visits, added up over time, and the values at time 0 are those of no horizon."""
    case, time = instance(discount=0.5), 60  # 2⁻⁶⁰ is left
    problem = MDP(case.transitions, case.rewards, 0.5, case.start, horizon=time)
    p = jnp.tile(softmaxed(case.logits), (time, 1))
    found, values = compiled(lambda p: (problem.visits(p), problem.action_values(p)))(p)
    expected = answered(case)
    assert np.allclose(found.reshape(time, 4).sum(0), expected["visits"], rtol=1e-13, atol=0.0)
    assert np.allclose(values[:4], expected["action_values"], rtol=1e-13, atol=1e-14)


CONTEXTS = Bandit(np.random.default_rng(0).normal(size=(4, 3)), [0.25, 0.4, 0.05, 0.3])


@pytest.mark.parametrize(
    ("bandit", "kind"),
    [(Bandit([0.3, 1.0, -0.5]), {"horizon": 1}), (CONTEXTS, {"discount": 0.0})],
    ids=["horizon 1", "γ = 0"],
)
def test_a_bandit_is_an_mdp_of_one_step(bandit, kind):
    states, actions = bandit.shape
    rng = np.random.default_rng(1)
    transitions = rng.dirichlet(np.ones(states), (states, actions))
    problem = MDP(transitions, bandit.rewards, start=bandit.weights, **kind)
    logits, values = rng.normal(size=(states, actions)), rng.normal(size=states)
    found, expected = answers(problem, logits, values), answers_of_bandit(bandit, logits, values)
    for name, value in expected.items():
        if name != "covariance" or "horizon" in kind:
            assert np.allclose(found[name], value, rtol=0.0, atol=1e-12), name
    assert problem.shape == bandit.shape
    assert problem.episodes_at_once == 1.0
    episode = compiled(problem.rollout)(jax.random.key(0), jnp.asarray(logits), jnp.int32(states - 1))
    assert episode.state.tolist() == [states - 1]
    assert episode.reward[0] == bandit.rewards[states - 1, episode.action[0]]
    assert episode.taken.all()
    assert problem.measures(softmax(logits)) == ({} if "horizon" in kind else {"solve_residual": 0.0})


@compiled
def answers_of_bandit(bandit, logits, values):
    policy = softmax(logits)
    return {
        "return": bandit.expected_return(policy.prob),
        "slope": jax.grad(lambda z: bandit.expected_return(probs(z)))(logits),
        "visits": bandit.visits(policy.prob),
        "action_values": bandit.action_values(policy.prob),
        "to_go": bandit.to_go(policy.prob, values),
        "covariance": bandit.normalised_covariance(policy),
    }


def corner(terminal=()):
    """State 0 leads to 1; 1 is absorbing by its loop; 2 leads to 3 and nobody to 2; one action is masked a state."""
    transitions = np.eye(4)[np.array([[1, 1, 0], [1, 1, 1], [3, 3, 0], [3, 0, 3]])]
    logits = np.array([[0.0, -np.inf, 1.0], [-np.inf, 0.0, 0.0], [0.0, 800.0, -np.inf], [0.0, 0.0, -np.inf]])
    rewards = np.arange(12.0).reshape(4, 3)
    return Case(transitions, rewards, 0.0, np.eye(4)[0], logits, np.ones(4), terminal)


@pytest.mark.parametrize("terminal", [(), (3,)])
@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0 - 2.0**-53])
def test_corners_give_no_nan_and_unreachable_states_no_visits(discount, terminal):
    found = answered(corner(terminal)._replace(discount=discount))
    assert all(np.isfinite(x).all() for name, x in found.items() if name != "covariance")
    assert (found["visits"][2:] == 0.0).all()
    assert (found["slope"][2:] == 0.0).all()
    assert found["visits"].sum() == pytest.approx(1.0 / (1.0 - discount), rel=1e-14)


def test_nothing_is_counted_in_a_terminal_state_whatever_its_rows_hold():
    case = instance(terminal=(3,))
    transitions, rewards = case.transitions.copy(), case.rewards.copy()
    transitions[3], rewards[3] = np.nan, np.inf
    found, plain = answered(case._replace(transitions=transitions, rewards=rewards)), answered(case)
    for name, value in plain.items():
        assert np.array_equal(found[name], value, equal_nan=True), name
    assert found["visits"][3] == 0.0
    assert (found["action_values"][3] == 0.0).all()


def test_rewards_that_depend_on_the_next_state_count_with_their_mean():
    case = instance()
    rewards = np.random.default_rng(0).normal(size=(4, 3, 4))
    problem = case._replace(rewards=rewards).problem
    assert np.allclose(problem.rewards, (case.transitions * rewards).sum(-1), rtol=0.0, atol=1e-15)


def test_rewards_may_depend_on_the_time():
    table = np.repeat([1.0, 10.0, 100.0], 3)[:, None] * np.ones(3)
    case = timed_instance()._replace(rewards=table, discount=1.0, terminal=())
    assert answered(case)["return"] == pytest.approx(111.0, rel=1e-14)


def test_terminal_states_and_a_start_can_be_named_in_several_ways():
    case = instance()
    mask = np.array([False, False, False, True])
    for terminal in ([3], 3, (3, 3), mask, mask.tolist(), jnp.array([3])):
        assert MDP(case.transitions, case.rewards, 0.9, terminal=terminal).terminal == (3,)
    assert np.array_equal(MDP(case.transitions, case.rewards, 0.9).start, [1.0, 0.0, 0.0, 0.0])
    assert np.array_equal(MDP(case.transitions, case.rewards, 0.9, 2).start, [0.0, 0.0, 1.0, 0.0])
    timed = MDP(case.transitions, case.rewards, start=2, horizon=2)
    assert np.array_equal(timed.start, np.eye(8)[2])
    assert timed.shape == (8, 3)
    assert dataclasses.replace(timed, discount=0.5).discount == 0.5


def played(problem, logits, count, seed=0):
    """`count` episodes, and `count` from each row."""
    keys = jax.random.split(jax.random.key(seed), count)
    rows = jnp.arange(len(logits), dtype=jnp.int32)
    play = jax.vmap(lambda key, row: problem.rollout(key, logits, row), (0, None))
    own = jax.vmap(lambda key: problem.rollout(key, logits))(keys)
    return own, jax.vmap(play, (None, 0))(keys, rows)


def assert_mean(samples, expected):
    """Within four standard errors, the larger of the observed and the rounding of a sure outcome."""
    error = samples.std(0) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(0) - expected) <= 4.0 * error + 1e-12).all()


@pytest.mark.parametrize(
    "case",
    [instance(discount=0.5, terminal=(3,)), timed_instance()._replace(discount=0.9)],
    ids=["discounted", "timed"],
)
def test_played_episodes_have_the_visits_the_return_and_the_rewards_to_go(case):
    count, rows = 4000, len(case.logits)
    found = answered(case)
    own, from_rows = jax.tree.map(np.asarray, compiled(played, static_argnums=2)(case.problem, case.logits, count))
    assert (own.reward[~own.taken] == 0.0).all()
    assert (np.diff(own.taken.astype(int), axis=1) <= 0).all()
    seen = ((own.state[..., None] == np.arange(rows)) & own.taken[..., None]).sum(1)
    assert_mean(seen.astype(float), found["visits"])
    assert_mean(own.reward.sum(-1), found["return"])
    for row in np.flatnonzero(found["action_values"].any(-1)):
        for action in range(3):
            first = from_rows.action[row, :, 0] == action
            assert_mean(from_rows.reward[row].sum(-1)[first], found["action_values"][row, action])
    terminal = [row for row in range(rows) if row % len(case.start) in case.terminal]
    assert not from_rows.taken[terminal].any()


@pytest.mark.parametrize(
    ("discount", "steps"), [(0.0, 1), (1e-7, 1), (0.1, 6), (0.5, 20), (0.9, 132), (0.95, 270), (0.99, 1375)]
)
def test_an_episode_is_cut_at_the_first_step_at_which_less_than_a_millionth_goes_on(discount, steps):
    case = instance()
    assert MDP(case.transitions, case.rewards, discount).steps == steps
    if discount:
        assert discount**steps <= 1e-6 * (1.0 + 1e-9) < discount ** (steps - 1) or steps == 1


def test_a_run_records_finite_numbers_that_its_theory_predicts():
    case = instance()
    trace = simulate(case.problem, Algorithm(NaturalPG(1e-3)), num_steps=50, logits=case.logits)
    assert (np.diff(trace.expected_return) > 0.0).all()
    for name in ("lemma_1", "theorem_2"):
        assert np.abs(trace.entropy_change - getattr(trace, name)).max() <= 1e-4  # second order: (η · osc A)²
    assert np.allclose(trace.visits.sum(-1), 10.0, rtol=1e-13, atol=0.0)


def test_repr_names_the_sizes_the_discount_and_the_horizon():
    assert repr(instance().problem) == "MDP(S=4, A=3, discount=0.9)"
    assert repr(timed_instance().problem) == "MDP(S=3, A=3, discount=0.8, horizon=3)"
