"""Named settings: each is what its source says, the same for the same seed, and does what its note promises."""

import numpy as np
import pytest

from softmaxdyn import Algorithm, InputError, NaturalPG, VanillaPG, simulate
from softmaxdyn.problems import NAMED, Bandit
from softmaxdyn.problems import named as names
from softmaxdyn.problems.named import named

ROUNDING = 1e-13  # of H after 32 steps: each rounds logits of size 4, that is 4 · 32 · 2⁻⁵² and a factor for H(z)


def run(setting, update, num_steps):
    return simulate(setting.problem, Algorithm(update), num_steps=num_steps, logits=setting.logits)


def softmax(logits):
    """A second road to π: divide by the sum of exponentials."""
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def turns(series):
    """How often a series turns from rising to falling or back."""
    return int((np.diff(np.sign(np.diff(series))) != 0).sum())


def first_order(logits, rewards):
    """−Cov(log π, δ)/η of (PG, NPG) on one bandit, from the definitions."""
    pi = softmax(logits)
    advantage = rewards - pi @ rewards
    log_pi = np.log(pi)
    return [-(pi @ (log_pi * v) - (pi @ log_pi) * (pi @ v)) for v in (pi * advantage, advantage)]


@pytest.mark.parametrize("name", NAMED)
def test_a_setting_has_one_policy_a_context_and_a_note_of_one_line(name):
    setting = named(name)
    assert setting.logits.shape == setting.problem.shape == np.shape(setting.problem.rewards)
    assert np.isfinite(setting.logits).all()
    assert setting.note.startswith(name)
    assert len(setting.note.splitlines()) == 1


@pytest.mark.parametrize("name", ["testbed", "pool"])
def test_the_seed_decides_what_is_drawn(name):
    one, same, other = named(name, 1), named(name, 1), named(name, 2)
    assert np.array_equal(one.problem.rewards, same.problem.rewards)
    assert np.array_equal(one.logits, same.logits)
    assert not np.array_equal(one.problem.rewards, other.problem.rewards)


def test_the_testbed_is_standard_normal_and_starts_uniform():
    setting = names.testbed(seed=0, runs=4000)
    q, n = setting.problem.rewards, 40_000
    assert abs(q.mean()) < 5 / np.sqrt(n)
    assert abs(q.var() - 1.0) < 5 * np.sqrt(2 / n)
    assert (setting.logits == 0.0).all()


def test_more_runs_of_the_testbed_leave_the_first_ones_as_they_were():
    assert np.array_equal(names.testbed(3, runs=2).problem.rewards[:1], names.testbed(3).problem.rewards)


def test_the_runs_of_the_testbed_are_independent_bandits():
    setting = names.testbed(seed=0, runs=2)
    together = run(setting, VanillaPG(0.4), 20)
    for index in range(2):
        alone = simulate(Bandit(setting.problem.rewards[index]), Algorithm(VanillaPG(0.4)), num_steps=20)
        assert np.allclose(together.entropy[:, index], alone.entropy[:, 0], rtol=ROUNDING, atol=0.0)


@pytest.mark.parametrize(("name", "start", "steps"), [("mei", (0.05, 0.01), 35), ("mei_plateau", (0.01, 0.05), 7525)])
def test_vanilla_pg_has_the_best_arm_of_mei_in_front_when_the_docstring_says(name, start, steps):
    setting = named(name)
    assert np.allclose(softmax(setting.logits), [[*start, 0.94]], rtol=1e-14, atol=0.0)
    logits, rewards = setting.logits[0], np.array([1.0, 0.9, 0.1])
    for step in range(steps + 1):  # noqa: B007
        pi = softmax(logits)
        if pi[0] > 0.5:
            break
        logits = logits + 0.4 * pi * (rewards - pi @ rewards)
    assert step == steps
    ends = [softmax(run(setting, VanillaPG(0.4), number).logits)[0, 0] for number in (steps - 1, steps)]
    assert ends[0] < 0.5 < ends[1]


@pytest.mark.parametrize("update", [VanillaPG(0.4), NaturalPG(0.1)])
def test_the_entropy_of_the_wrong_peak_rises_to_one_top_and_falls_below_its_start(update):
    entropy = run(names.wrong_peak(), update, 400).entropy[:, 0]
    assert turns(entropy) == 1
    assert entropy[1] > entropy[0] > entropy[-1]


def test_natural_pg_takes_mirror_through_the_uniform_policy_and_back():
    entropy = run(names.mirror(), NaturalPG(0.25), 33).entropy[:, 0]
    assert entropy[16] == pytest.approx(np.log(3.0), rel=ROUNDING)
    assert np.allclose(entropy[:16], entropy[32:16:-1], rtol=ROUNDING, atol=0.0)
    assert turns(entropy) == 1


def test_vanilla_pg_has_two_tops_on_mirror():
    assert turns(run(names.mirror(), VanillaPG(0.4), 400).entropy[:, 0]) == 3


def test_the_sign_flips_between_pg_and_natural_pg():
    setting = names.sign_flip()
    pg, npg = first_order(setting.logits[0], setting.problem.rewards[0])
    assert pg < 0.0 < npg
    for update, expected in (VanillaPG(1e-3), pg), (NaturalPG(1e-3), npg):
        change = run(setting, update, 1).entropy_change[0, 0]
        assert change == pytest.approx(1e-3 * expected, rel=0.05)


def test_pg_raises_the_entropy_although_the_mode_is_the_best():
    setting = names.best_mode()
    pi, r = softmax(setting.logits[0]), setting.problem.rewards[0]
    assert pi.argmax() == r.argmax()
    assert first_order(setting.logits[0], r)[0] > 0.0
    assert run(setting, VanillaPG(0.1), 1).entropy_change[0, 0] > 0.0


@pytest.mark.parametrize(("share", "count"), [(0.1, 2), (0.5, 10), (0.04, 1), (1e-9, 1)])
def test_the_pool_has_the_given_share_of_correct_actions_and_at_least_one(share, count):
    rewards = names.pool(prompts=5, actions=20, correct=share).problem.rewards
    assert set(np.unique(rewards)) == {0.0, 1.0}
    assert (rewards.sum(1) == count).all()


def test_the_pool_puts_correct_actions_anywhere_and_logits_are_normal():
    setting = names.pool(prompts=2000, actions=20, correct=0.1, spread=2.0)
    frequency = setting.problem.rewards.mean(0)
    assert np.abs(frequency - 0.1).max() < 5 * np.sqrt(0.09 / 2000)
    assert abs(setting.logits.std() - 2.0) < 5 * 2.0 / np.sqrt(2 * 40_000)
    assert abs(np.corrcoef(setting.logits.ravel(), setting.problem.rewards.ravel())[0, 1]) < 5 / np.sqrt(40_000)


def test_one_number_of_the_pool_changes_one_thing():
    one = names.pool(seed=4, prompts=5, actions=20)
    more, wider = names.pool(4, 5, 20, correct=0.3), names.pool(4, 5, 20, spread=3.0)
    assert (one.problem.rewards <= more.problem.rewards).all()
    assert np.array_equal(one.logits, more.logits)
    assert np.array_equal(one.problem.rewards, wider.problem.rewards)
    assert np.array_equal(3.0 * one.logits, wider.logits)


def test_options_reach_the_setting_and_hyphens_are_underscores():
    assert named("testbed", seed=1, arms=3, runs=2).problem.shape == (2, 3)
    assert named("wrong-peak").note == names.wrong_peak().note


def test_every_option_comes_with_the_settings_that_take_it():
    taken = names.named_options()
    assert {(setting, parameter.default) for setting, parameter in taken["size"].items()} == {("gridworld", 4)}
    assert set(taken["depth"]) == {"parity", "final_token", "several_paths", "rare_path", "distractor"}
    assert "seed" not in taken
    for option, settings in taken.items():
        assert all(np.isfinite(named(name, **{option: each.default}).logits).all() for name, each in settings.items())


def test_one_arm_comes_with_a_warning():
    assert named("testbed", arms=1).note.endswith("one arm: the entropy is 0 and nothing moves")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tesbed", {}, "^unknown problem 'tesbed'; did you mean 'testbed'\\? \\(known: testbed, mei, "),
        ("zzz", {}, "^unknown problem 'zzz' \\(known: testbed, mei, "),
        ("testbed", {"arm": 3}, "^unknown option of testbed 'arm'; did you mean 'arms'\\? \\(known: arms, runs\\)$"),
        (
            "parity",
            {"dept": 3},
            "^unknown option of parity 'dept'; did you mean 'depth'\\? \\(known: depth, vocabulary",
        ),
        ("mei", {"arms": 3}, "^mei takes no options; 'arms' came$"),
        ("testbed", {"arms": 0}, "^arms is 0; wanted a whole number ≥ 1$"),
        ("testbed", {"seed": -1}, "^seed is -1; wanted a whole number ≥ 0$"),
        ("pool", {"prompts": 0}, "^prompts is 0; wanted a whole number ≥ 1$"),
        ("pool", {"actions": 1}, "^actions is 1; wanted a whole number ≥ 2$"),
        ("pool", {"correct": 10}, "^correct is 10; wanted a finite number in \\(0, 1\\]$"),
        ("pool", {"correct": 0.0}, "^correct is 0.0; wanted a finite number in \\(0, 1\\]$"),
        ("pool", {"correct": 1}, "^correct is 1, so all 100 actions would be; wanted a share \\(0.01: one\\)$"),
        ("pool", {"spread": -1.0}, "^spread is -1.0; wanted a finite number ≥ 0$"),
        ("pool", {"spread": float("nan")}, "^spread is nan; wanted a finite number ≥ 0$"),
    ],
)
def test_a_wrong_name_or_option_is_one_clear_line(name, options, message):
    with pytest.raises(InputError, match=message):
        named(name, **options)
