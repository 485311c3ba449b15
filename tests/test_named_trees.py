"""Named token trees: each is what its docstring says, the same for the same seed, and does what its note promises."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import Algorithm, InputError, NaturalPG, simulate
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named.trees import distractor, final_token, parity, rare_path, several_paths
from tests.compiled import compiled

SETTINGS = [parity, final_token, several_paths, rare_path, distractor]


@compiled
def listed(tree, logits):
    policy = softmax(logits)
    return tree.listing(policy.prob), tree.action_values(policy.prob), tree.expected_return(policy.prob)


@compiled
def ascend(tree, logits, step_size, num_steps):
    """The logits after plain gradient ascent on J, by autodiff."""
    slope = jax.grad(lambda z: tree.expected_return(softmax(z).prob))
    return jax.lax.fori_loop(0, num_steps, lambda _, z: z + step_size * slope(z), logits)


def responses(setting):
    """{tokens: (probability, reward)} at the start, and J."""
    (episode, weight), _, value = listed(setting.problem, jnp.asarray(setting.logits))
    found = {}
    for tokens, reward, taken, chance in zip(episode.action, episode.reward, episode.taken, weight, strict=True):
        found[tuple(tokens[: int(taken.sum())].tolist())] = float(chance), float(reward.sum())
    return found, float(value)


@pytest.mark.parametrize("make", SETTINGS)
def test_a_setting_has_one_row_a_prefix_and_a_note_of_one_line(make):
    setting = make()
    assert setting.logits.shape == setting.problem.shape == setting.problem.rewards.shape
    assert np.isfinite(setting.logits).all()
    assert setting.note.startswith(make.__name__)
    assert len(setting.note.splitlines()) == 1
    assert len(setting.note) < 200


def test_parity_pays_for_a_sum_that_is_a_multiple_and_answers_with_the_remainder():
    setting = parity(depth=3, vocabulary=3)
    found, value = responses(setting)
    assert set(found) == set(itertools.product(range(3), repeat=3))
    assert all(reward == (sum(y) in (0, 3, 6)) for y, (_, reward) in found.items())
    assert value == pytest.approx(1 / 3, rel=1e-15)
    last = np.asarray(setting.problem.answers)[-9:]
    assert np.array_equal(last.ravel() == 0, np.asarray(setting.problem.rewards)[-9:].ravel() == 1.0)


def test_parity_teaches_only_the_last_token_at_the_start():
    setting = parity()
    _, values, _ = listed(setting.problem, jnp.asarray(setting.logits))
    spread = np.ptp(values, axis=1)
    assert (spread[:7] == 0.0).all()
    assert (spread[7:] == 1.0).all()


def test_the_last_position_of_final_token_is_a_bandit_and_the_others_never_move():
    setting = final_token()
    logits = np.asarray(ascend(setting.problem, jnp.asarray(setting.logits), 8.0, 40))
    bandit = np.zeros(4)
    for _ in range(40):
        p = np.exp(bandit) / np.exp(bandit).sum()
        bandit += 8.0 / 16 * p * ((np.arange(4) == 0) - p[0])
    assert np.allclose(logits[5:], bandit, rtol=1e-12, atol=1e-14)
    assert np.abs(logits[:5]).max() <= 1e-14


def test_several_paths_are_correct_and_more_keep_the_first():
    one, more, other = several_paths(1, paths=2), several_paths(1, paths=5), several_paths(2, paths=2)
    assert [setting.problem.rewards.sum() for setting in (one, more, other)] == [2.0, 5.0, 2.0]
    assert (one.problem.rewards <= more.problem.rewards).all()
    assert np.array_equal(one.problem.rewards, several_paths(1, paths=2).problem.rewards)
    assert not np.array_equal(one.problem.rewards, other.problem.rewards)
    found, value = responses(one)
    assert sum(reward for _, reward in found.values()) == 2.0
    assert value == pytest.approx(2 / 81, rel=1e-14)


def test_the_paths_lie_anywhere():
    hits = sum(several_paths(seed, depth=2).problem.rewards[1:].ravel() for seed in range(300))
    assert np.abs(hits / 300 - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 300)


def test_the_rare_path_is_the_only_correct_response_and_rare():
    setting = rare_path()
    found, value = responses(setting)
    assert [y for y, (_, reward) in found.items() if reward] == [(0,) * 6]
    assert max(map(len, found)) == 6
    assert found[(0,) * 6] == (pytest.approx((1 + 2 * np.e) ** -6, rel=1e-14), 1.0)
    assert value == pytest.approx(1.4e-5, rel=0.01)
    assert "1.4e-05" in setting.note


@pytest.mark.parametrize("depth", [3, 4])
def test_vanilla_pg_takes_the_distractor(depth):
    setting = distractor(depth)
    found, _ = responses(setting)
    assert {y: reward for y, (_, reward) in found.items() if reward} == {(0, 2): 0.5, (1,) * depth: 1.0}
    rare = (1 + 2 * np.e) ** -depth
    assert found[(1,) * depth][0] == pytest.approx(rare, rel=1e-14)
    assert f"{rare:.2g}" in setting.note
    for step_size in (0.5, 5.0):
        logits = ascend(setting.problem, jnp.asarray(setting.logits), step_size, 4000)
        after, value = responses(setting._replace(logits=logits))
        assert after[0, 2][0] > 0.99
        assert 0.49 < value < 0.501


def test_natural_pg_leaves_the_distractor_for_the_long_response():
    setting = distractor()
    trace = simulate(setting.problem, Algorithm(NaturalPG(0.5)), num_steps=400, logits=setting.logits, every=400)
    assert trace.final_expected_return > 0.99


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (parity, {"vocabulary": 1}, "^vocabulary is 1; wanted a whole number ≥ 2$"),
        (parity, {"depth": 0}, "^depth is 0; wanted a whole number ≥ 1$"),
        (
            parity,
            {"depth": 30},
            "^vocabulary 2, depth 30, prompts 1 make 1,073,741,823 prefixes, 16.0 GiB a table; wanted",
        ),
        (final_token, {"vocabulary": 1}, "^vocabulary is 1; wanted a whole number ≥ 2$"),
        (several_paths, {"seed": -1}, "^seed is -1; wanted a whole number ≥ 0$"),
        (several_paths, {"paths": 0}, "^paths is 0; wanted a whole number ≥ 1$"),
        (several_paths, {"paths": 81}, "^paths is 81, and there are 81 responses; wanted at most 80$"),
        (several_paths, {"depth": 10**9}, "^depth is 1000000000; wanted at most 100: each level of the tree"),
        (several_paths, {"depth": 40}, "^vocabulary 3, depth 40, prompts 1 make about 1e19 prefixes"),
        (several_paths, {"vocabulary": 1}, "^vocabulary is 1; wanted a whole number ≥ 2$"),
        (rare_path, {"vocabulary": 1}, "^vocabulary is 1; wanted a whole number ≥ 2$"),
        (rare_path, {"depth": 0}, "^depth is 0; wanted a whole number ≥ 1$"),
        (distractor, {"vocabulary": 2}, "^vocabulary is 2; wanted a whole number ≥ 3$"),
        (distractor, {"depth": 2}, "^depth is 2; wanted a whole number ≥ 3$"),
    ],
)
def test_a_wrong_option_is_one_clear_line(make, options, message):
    with pytest.raises(InputError, match=message):
        make(**options)
