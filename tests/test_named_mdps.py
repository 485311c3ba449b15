"""Named MDPs: each is what its source says, and its best policy does what its docstring promises."""

import numpy as np
import pytest

from softmaxdyn import Algorithm, InputError, NaturalPG, simulate
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named import mdps

ALL = [mdps.gridworld, mdps.chain, mdps.cliff, mdps.river_swim]
UP, RIGHT, DOWN, LEFT = range(4)


def best(setting, sweeps=2000):
    """(J, the greedy actions) of the best policy, by value iteration."""
    problem = setting.problem
    moves = problem.transitions * ~np.isin(np.arange(len(problem.transitions)), problem.terminal)
    value = np.zeros(len(moves))
    for _ in range(sweeps):
        action_values = problem.rewards + problem.discount * moves @ value
        value = action_values.max(-1)
    return problem.start @ value, action_values.argmax(-1)


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_a_setting_is_a_discounted_mdp_from_the_uniform_policy_with_a_note_of_one_line(make):
    setting = make()
    assert setting.logits.shape == setting.problem.shape
    assert (setting.logits == 0.0).all()
    assert setting.note.startswith(f"{make.__name__}: ")
    assert len(setting.note.splitlines()) == 1
    assert make(discount=0.5).problem.discount == 0.5
    assert softmax(setting.logits).entropy == pytest.approx(np.log(setting.logits.shape[1]), rel=1e-15)


@pytest.mark.parametrize("size", [2, 4, 5])
def test_the_best_way_through_the_gridworld_takes_two_size_minus_two_moves(size):
    setting = mdps.gridworld(size)
    value, _ = best(setting)
    assert value == pytest.approx(0.95 ** (2 * size - 3), rel=1e-13)
    assert setting.problem.terminal == (size * size - 1,)
    after = setting.problem.transitions.argmax(-1)
    assert after[0].tolist() == [0, 1, size, 0]
    assert size == 2 or after[size + 1].tolist() == [1, size + 2, 2 * size + 1, size]


def test_natural_pg_finds_that_way():
    setting = mdps.gridworld()
    trace = simulate(setting.problem, Algorithm(NaturalPG(50.0)), num_steps=200, logits=setting.logits, every=200)
    assert 0.0 < trace.expected_return[0] < 0.5 * trace.final_expected_return
    assert trace.final_expected_return == pytest.approx(0.95**5, rel=1e-3)


@pytest.mark.parametrize("states", [6, 22, 23])
def test_the_far_end_of_the_chain_is_best_up_to_22_states(states):
    value, actions = best(mdps.chain(states))
    assert value == pytest.approx(max(10.0 * 0.9 ** (states - 1), 1.0), rel=1e-12)
    assert actions[0] == (states <= 22)
    assert actions[-1] == 1


def test_the_best_way_along_the_cliff_is_the_edge_and_costs_thirteen():
    setting = mdps.cliff()
    value, actions = best(setting)
    assert value == pytest.approx(-(1.0 - 0.95**13) / (1.0 - 0.95), rel=1e-12)
    assert actions[36] == UP
    assert (actions[24:35] == RIGHT).all()
    assert actions[35] == DOWN


def test_a_step_off_the_cliff_costs_a_hundred_and_leads_back_to_the_start():
    problem = mdps.cliff().problem
    after = problem.transitions.argmax(-1)
    assert after[36].tolist() == [24, 36, 36, 36]
    for cell in range(25, 35):
        assert after[cell, DOWN] == 36
    assert after[35, DOWN] == 47
    falls = np.argwhere(problem.rewards == -100.0)
    assert {(s, a) for s, a in falls.tolist() if s < 37} == {(36, RIGHT), *((s, DOWN) for s in range(25, 35))}
    assert set(np.unique(problem.rewards)) == {-100.0, -1.0, 0.0}
    assert np.flatnonzero(problem.rewards[47]).size == 0


def test_nobody_ever_stands_on_the_cliff():
    setting = mdps.cliff()
    visits = np.asarray(setting.problem.visits(softmax(setting.logits).prob))
    assert (visits[37:] == 0.0).all()
    assert (visits[:37] > 0.0).all()


def test_the_river_has_the_numbers_of_its_source():
    problem = mdps.river_swim().problem
    assert problem.transitions[:, 0].argmax(-1).tolist() == [0, 0, 1, 2, 3, 4]
    assert np.array_equal(problem.transitions[0, 1], [0.7, 0.3, 0.0, 0.0, 0.0, 0.0])
    for s in range(1, 5):
        assert problem.transitions[s, 1, s - 1 : s + 2].tolist() == [0.1, 0.6, 0.3]
    assert np.array_equal(problem.transitions[5, 1], [0.0, 0.0, 0.0, 0.0, 0.7, 0.3])
    rewards = np.zeros((6, 2))
    rewards[0, 0], rewards[5, 1] = 5.0, 0.3 * 10_000.0
    assert np.allclose(problem.rewards * 10_000.0, rewards, rtol=1e-15, atol=0.0)
    assert problem.start.tolist() == [0.0, 0.5, 0.5, 0.0, 0.0, 0.0]


def test_to_swim_up_the_river_is_best():
    assert (best(mdps.river_swim())[1] == 1).all()


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (mdps.gridworld, {"size": 1}, "^size is 1; wanted a whole number ≥ 2$"),
        (mdps.gridworld, {"size": 200}, "^transitions of shape \\(40000, 4, 40000\\) would hold 6,400,000,000 numbers"),
        (mdps.chain, {"states": 1}, "^states is 1; wanted a whole number ≥ 2$"),
        (mdps.chain, {"discount": 1.0}, "^discount is 1; wanted one in \\[0, 1\\), or an end of time: pass horizon=…$"),
        (mdps.river_swim, {"discount": -0.5}, "^discount is -0.5; wanted one in "),
    ],
)
def test_a_wrong_option_is_one_clear_line(make, options, message):
    with pytest.raises(InputError, match=message):
        make(**options)
