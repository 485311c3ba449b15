"""The report card: its statistics by a second road, what it says of methods whose kind is known, and its command."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from softmaxdyn import (
    Algorithm,
    Bandit,
    Exact,
    InputError,
    Intervention,
    TokenTree,
    VanillaPG,
    cli,
    config,
    plots,
    simulate,
)
from softmaxdyn.cli.own import Own, one_line
from softmaxdyn.comparison import Card, Paths, Shuffled, classify, crossing, interval, paths, report_card
from softmaxdyn.estimators import Sampled
from softmaxdyn.interventions import KLCov, PositiveReweighting, PPOClip
from softmaxdyn.methods import build
from softmaxdyn.policy import softmax
from softmaxdyn.tokens import plain_push, under
from tests.compiled import compiled

REWARDS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
LOGITS = np.array([[0.3, 1.2, -0.5, 0.0], [0.9, 0.1, -0.8, 0.4], [-1.0, 0.7, 0.2, 0.5]])
BANDIT = Bandit(REWARDS)
KINDS = {
    "rloo": "no effect here",
    "positive_reweighting": "reward-only",
    "steer": "probability-dependent",
    "grpo": "off-policy-only",
    "kl_cov": "off-policy-only",
    "entropy_bonus": "field",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_measured_kind_is_the_known_one(name, kind):
    numbers = {"low": 1e-4, "high": 1e-4} if name == "grpo" else {}
    found, no_op = classify(BANDIT, build(name, step_size=1.0, **numbers), LOGITS)
    assert (found, no_op) == (kind, kind in ("off-policy-only", "no effect here"))


@config
class Rare(Intervention):
    """Halves the scores of rare tokens. Of the policies looked at, that 100 steps on is the first with π < bound."""

    bound: float = 6.5e-4

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.where(tokens.log_prob < jnp.log(self.bound), 0.5 * push.score, push.score))


@config
class LateField(Intervention):
    """Pulls the policy of a state that is nearly sure."""

    def __call__(self, key, tokens, policy, push):
        return push._replace(field=jnp.where(policy.prob > 0.9, -0.1 * policy.prob, 0.0))


@config
class Undefined(Intervention):
    """Divides the scores of tokens of π > bound by 0."""

    bound: float = 0.0

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.where(tokens.log_prob > jnp.log(self.bound), push.score / 0.0, push.score))


LATE = {
    "probability-dependent": (Rare(),),
    "field": (LateField(),),
    "off-policy-only": (PPOClip(1e-4, 1e-4), Rare(1e-30)),
    "no effect here": (Rare(1e-30),),
}


@pytest.mark.parametrize(("kind", "parts"), LATE.items(), ids=LATE)
def test_a_method_that_acts_at_later_policies_only_has_the_kind_that_it_has_there(kind, parts):
    assert classify(BANDIT, Algorithm(VanillaPG(1.0), Sampled(), parts), LOGITS) == (kind, True)


def test_a_method_that_later_acts_on_policy_is_not_off_policy_only():
    algorithm = Algorithm(VanillaPG(1.0), Sampled(), (PPOClip(1e-4, 1e-4), Rare()))
    assert classify(BANDIT, algorithm, LOGITS) == ("probability-dependent", True)


def test_at_later_policies_a_reference_is_still_that_of_the_start():
    assert classify(BANDIT, build("reward_kl", step_size=1.0), LOGITS) == ("probability-dependent", True)


@pytest.mark.parametrize("steps", [100, 119])
def test_a_path_runs_through_rounded_points_to_the_very_last_step(steps):
    algorithm = Algorithm(VanillaPG(1.0))
    path = paths(BANDIT, algorithm, num_steps=steps, logits=LOGITS)
    trace = simulate(BANDIT, algorithm, num_steps=steps, logits=LOGITS)
    np.testing.assert_array_equal(path.step, np.linspace(0, steps, 61).round())
    along = np.append(trace.expected_return, trace.final_expected_return)
    np.testing.assert_allclose(path.expected_return[0], along[path.step.astype(int)], rtol=1e-12)


def test_the_share_of_touched_tokens_is_a_mean_over_all_steps_of_segments_of_any_length():
    algorithm = Algorithm(VanillaPG(1.0), interventions=(PositiveReweighting(0.5),))
    for steps in (60, 61):
        path = paths(BANDIT, algorithm, num_steps=steps, logits=LOGITS)
        trace = simulate(BANDIT, algorithm, num_steps=steps, logits=LOGITS)
        np.testing.assert_allclose(path.selected[0], trace.selected.mean(0), rtol=1e-12)


def test_a_path_of_an_exact_run_passes_through_the_points_of_its_trace():
    algorithm = Algorithm(VanillaPG(1.0))
    path = paths(BANDIT, algorithm, num_steps=120, logits=LOGITS)
    trace = simulate(BANDIT, algorithm, num_steps=120, every=2, logits=LOGITS)
    np.testing.assert_array_equal(path.step, np.arange(0.0, 121.0, 2.0))
    np.testing.assert_allclose(path.expected_return[0, :-1], trace.expected_return, rtol=1e-12)
    np.testing.assert_allclose(path.entropy[0, :-1], trace.entropy.mean(-1), rtol=1e-12)
    np.testing.assert_allclose(path.entropy[0, -1], trace.final_entropy.mean(), rtol=1e-12)


def test_the_inner_entropy_is_that_of_the_policy_given_that_it_is_correct():
    path = paths(BANDIT, Algorithm(VanillaPG(0.0)), num_steps=1, logits=LOGITS)
    pair = np.exp(LOGITS[1, [1, 3]]) / np.exp(LOGITS[1, [1, 3]]).sum()
    np.testing.assert_allclose(path.inner_entropy[0, 0], -np.sum(pair * np.log(pair)) / 3.0, rtol=1e-12)


def test_the_inner_entropy_of_a_tree_is_that_of_its_correct_responses_by_length():
    tree = TokenTree(lambda y: float(y in {(0,), (1,), (1, 0), (0, 1)}), vocabulary=3, depth=2, end=True)
    logits = np.random.default_rng(0).standard_normal(tree.shape)
    path = paths(tree, Algorithm(VanillaPG(0.0)), num_steps=1, logits=logits)
    episode, weight = tree.listing(softmax(jax.numpy.asarray(logits)).prob)
    chance, length = np.asarray(weight * np.asarray(episode.reward).sum(-1)), np.asarray(episode.taken).sum(-1)
    given = chance[chance > 0.0] / chance.sum()
    expected = -np.sum(given * np.log(given)) / np.sum(given * length[chance > 0.0])
    np.testing.assert_allclose(path.inner_entropy[0, 0], expected, rtol=1e-12)


def test_there_is_no_inner_entropy_where_nothing_is_a_success():
    path = paths(Bandit(0.5 * REWARDS), Algorithm(VanillaPG(0.0)), num_steps=1, logits=LOGITS)
    assert np.isnan(path.inner_entropy).all()


def test_a_crossing_is_linear_between_points_and_nan_where_there_is_none():
    along = np.array([[0.0, 1.0, 2.0], [0.0, 0.1, 0.2], [2.0, 1.0, 0.0]])
    values = np.array([[5.0, 7.0, 9.0], [1.0, 2.0, 3.0], [4.0, 6.0, 10.0]])
    np.testing.assert_allclose(crossing(along, 0.25, values), [5.5, np.nan, 9.0])


def test_the_interval_covers_a_normal_mean_about_as_wide_as_theory_says():
    sample = np.random.default_rng(0).normal(3.0, 2.0, 200)
    mean, low, high = interval(sample)
    half = 1.96 * sample.std(ddof=1) / np.sqrt(200)
    assert mean == pytest.approx(sample.mean())
    assert low == pytest.approx(mean - half, abs=0.15 * half)
    assert high == pytest.approx(mean + half, abs=0.15 * half)
    assert interval(np.array([np.nan, 2.0, 2.0])) == (2.0, 2.0, 2.0)
    assert np.isnan(interval(np.array([np.nan]))).all()


def test_shuffling_keeps_the_changes_of_score_and_moves_them_elsewhere():
    part = PositiveReweighting(0.5)

    @compiled
    def changes(key):
        old = softmax(jax.numpy.asarray(LOGITS))
        now = softmax(old.logits + jax.numpy.asarray(REWARDS) * 0.3)
        tokens = under(Sampled(16, 8)(key, BANDIT, old), now)
        bare = plain_push(tokens, (3, 4))
        return [each(key, tokens, now, bare).score - bare.score for each in (part, Shuffled((part,)))]

    own, other = changes(jax.random.key(0))
    np.testing.assert_allclose(np.sort(own), np.sort(other), atol=1e-15)
    assert not np.allclose(own, other)


def test_the_card_of_a_slower_method_shows_it_and_its_speed_matched_control_agrees():
    half = Algorithm(VanillaPG(2.0), Sampled(8, 8), (PositiveReweighting(0.5),))
    card = report_card(BANDIT, ("half", half), {}, logits=LOGITS, num_steps=60, inner_steps=1, seeds=4)
    assert card.kind == "reward-only"
    assert card.cosine[0] == pytest.approx(1.0, abs=1e-12)
    assert 0.5 < card.speed < 1.0
    assert [row.name for row in card.rows] == ["half", "speed-matched", "shuffled"]
    (name, factor, value, _), *_ = card.sensitivity
    assert (name, factor) == ("factor", 0.5)
    assert value[0] < 0.0  # weaker still: less return at the end
    assert not card.no_op


def refusal(part, rewards=REWARDS):
    algorithm = Algorithm(VanillaPG(2.0), Sampled(4, 4), (part,))
    with pytest.raises(InputError) as error:
        report_card(Bandit(rewards), ("own", algorithm), {}, logits=LOGITS, num_steps=60, inner_steps=1, seeds=2)
    return str(error.value)


def test_scores_that_are_not_finite_are_refused_with_the_check_to_make():
    assert refusal(Undefined()).startswith("the first step of own is not finite; its scores or its field hold NaN or ∞")
    assert "check jnp.isfinite(push.score).all()" in refusal(Undefined())


def test_a_run_that_becomes_nan_is_refused():
    line = "with Undefined(bound=0.9) the policy is NaN after 60 steps in 2 of 2 runs; its scores or its field hold NaN"
    assert refusal(Undefined(0.9)).startswith(line)


def test_a_problem_on_which_nothing_moves_is_not_blamed_on_the_method():
    assert refusal(PositiveReweighting(0.5), np.ones((3, 4))).startswith("plain policy gradient does not move here")


def test_in_the_figure_the_method_is_pale_and_below_and_each_other_line_is_thinner_than_those_below():
    line = Paths(np.arange(2.0), *3 * [np.ones((1, 2))], np.zeros((1, 1)))
    blank = dict.fromkeys(Card._fields, 0.0) | {"kind": "field", "acts_at": 0, "no_op": True, "cosine": (1.0, 1.0)}
    card = Card(**blank | {"rows": (), "sensitivity": (), "paths": dict.fromkeys("abcdefgh", line)})
    figure = plots.comparison(card)
    for ax in figure.axes:
        own, *others = sorted(ax.lines, key=lambda each: each.get_zorder())
        assert own is ax.lines[0]
        assert own.get_alpha() < 0.5
        assert all(np.diff([each.get_linewidth() for each in (own, *others)]) < 0.0)
        assert all(each.is_dashed() for each in others)


def test_the_expected_step_of_a_sampling_algorithm_is_that_of_its_population():
    from softmaxdyn.comparison import expected_step

    parts = (KLCov(0.1),)
    drawn = expected_step(BANDIT, Algorithm(VanillaPG(1.0), Sampled(4, 4), parts), LOGITS, 2)
    exact = expected_step(BANDIT, Algorithm(VanillaPG(1.0), Exact(Sampled().advantage), parts), LOGITS, 2)
    np.testing.assert_array_equal(drawn, exact)


OWN = """
from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import softmaxdyn as sd
from softmaxdyn.estimators import Sampled

@sd.config
class Cap(sd.Intervention):
    "Scores beyond a cap are cut."
    cap: float = 0.5

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.clip(push.score, -self.cap, self.cap))

MINE = sd.Algorithm(sd.VanillaPG(0.25), Sampled(3, 5), (Cap(),))
EXACT = sd.Algorithm(sd.VanillaPG(0.25), interventions=(Cap(),))
TRUSTED = sd.Algorithm(sd.updates.Restarted(sd.VanillaPG(0.25)), Sampled(3, 5))
WRONG = 3
"""
FAULTY = """
import jax.numpy as jnp
import softmaxdyn as sd
from softmaxdyn.estimators import Sampled

class Bare(sd.Intervention):
    pass

@sd.config
class Typo(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push._replace(score=push.scor)

@sd.config
class Shape(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push._replace(score=push.score * jnp.ones(3))

@sd.config
class If(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push if push.score[0] > 0.0 else push

@sd.config
class Silent(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        push._replace(score=0.5 * push.score)

@sd.config
class Scores(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push.score

@sd.config
class Short(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push._replace(score=push.score[:3])

@sd.config
class Forgets(sd.Intervention):
    def __call__(self, key, tokens, policy, push):
        return push

    def next(self, tokens, policy):
        pass

@sd.config
class Step(sd.VanillaPG):
    def __call__(self, gradient, policy, visits):
        return self.step_size * gradient

HALF = sd.Algorithm(Step(1.0), Sampled())
"""
PUSH = r"wanted a Push: return push\._replace\(score=\.\.\.\)"
FAULTS = {
    "Bare": "Bare in Bare is no config; wanted @softmaxdyn.config above `class Bare`",
    "Typo": r"faulty\.py:12, in __call__: AttributeError: 'Push' object has no attribute 'scor'",
    "Shape": r"faulty\.py:17, in __call__: TypeError: mul got incompatible shapes for broadcasting: .*",
    "If": r"faulty\.py:22, in __call__: TracerBoolConversionError: Attempted boolean conversion of traced array .*",
    "Silent": rf"faulty\.py: Silent\.__call__ returned None; {PUSH}",
    "Scores": rf"faulty\.py: Scores\.__call__ returned an array of shape \(\d+,\); {PUSH}",
    "Short": r"faulty\.py: Short\.__call__ returned a score of shape \(3,\); wanted \(\d+,\): .*",
    "Forgets": r"faulty\.py: Forgets\.next returned None; wanted the intervention: return self, or .*",
    "HALF": r"faulty\.py: Step\.__call__ returned an array of shape \(20, 10\); wanted \(δ, update\): return .*",
}


def compare(folder, *arguments):
    sizes = ["--seeds", "2", "--steps", "20", "--inner-steps", "1", "--groups", "2", "--group-size", "4"]
    return CliRunner().invoke(cli.main, ["compare", *arguments, *sizes, "--out", str(folder)])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """(folder, what was printed): the card of a method of one's own on a token tree."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    rest = ["--against", "grpo", "--problem", "parity", "--depth", "2", "--json", str(folder / "card.json")]
    done = compare(folder, f"{folder / 'own.py'}:Cap", *rest)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return folder, done.stdout


def test_the_command_takes_a_method_of_ones_own_and_writes_its_card(own):
    folder, printed = own
    assert "Cap: reward-only" in printed
    rows = json.loads((folder / "card.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["Cap", "speed-matched", "shuffled", "grpo"]
    assert (folder / "comparison.svg").stat().st_size > 1000


def test_the_report_states_its_steps_and_explains_its_rows_and_columns(own):
    assert "runs with its own numbers" not in own[1]
    assert "\n20 steps, mean over 2 seeds ± half of its 95 % bootstrap interval" in own[1]
    assert re.search(
        r"\nspeed-matched: plain policy gradient, step size × [\d.]+; shuffled: the same changes of score, on random "
        r"tokens\ntouched: share of the tokens that the method changed; H in correct: entropy of the policy given "
        r"success\n",
        own[1],
    )


def test_the_expected_step_of_a_reward_only_method_has_its_direction_on_a_tree_too(own):
    assert "least 1.000000, mean 1.000000 over the states" in own[1]
    assert "note: H is the mean entropy of a token; a state counts as often as it is visited" in own[1]


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("capp", "unknown method 'capp'"),
        ("own.py:Capp", "unknown name in own.py 'Capp'; did you mean 'Cap'?"),
        ("own.py:WRONG", "WRONG in 'own.py' is 3; wanted an Intervention or an Algorithm"),
        ("none.py:Cap", "no file 'none.py'; wanted FILE.py:NAME or a named method"),
        ("none.py", "no file 'none.py'; wanted FILE.py:NAME or a named method"),
        ("own.py", "'own.py' has no name; wanted own.py:NAME (it holds Cap, MINE, EXACT, TRUSTED)"),
        ("own.py:", "'own.py:' has no name; wanted own.py:NAME (it holds Cap, MINE, EXACT, TRUSTED)"),
        ("broken.py", "'broken.py' has no name; wanted broken.py:NAME, an Intervention or an Algorithm in it"),
        ("broken.py:Cap", "'broken.py' does not run: ZeroDivisionError"),
    ],
)
def test_a_method_that_cannot_be_had_is_one_line(tmp_path, monkeypatch, method, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0")
    done = compare(tmp_path, method)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"softmaxdyn: {line}")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["broken.py", "own.py"]


@pytest.mark.parametrize(("name", "line"), FAULTS.items(), ids=FAULTS)
def test_a_fault_of_ones_own_method_is_one_line_that_names_the_place(tmp_path, monkeypatch, name, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = compare(tmp_path, f"faulty.py:{name}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.fullmatch(f"softmaxdyn: {line}\n", done.stderr)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["faulty.py"]


def test_an_error_that_is_not_of_ones_own_file_stays_as_it_is():
    with pytest.raises(ZeroDivisionError), one_line(Own("faulty.py", "Cap", None)):
        raise ZeroDivisionError


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A function that gives the (name, Algorithm) which the command would compare, or its one line of refusal."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)

    def stop(problem, own, against, **settings):
        taken.append(own)
        raise InputError("stopped")

    def given(method, *arguments):
        taken.clear()
        monkeypatch.setattr(sys.modules["softmaxdyn.cli.compare"], "report_card", stop)
        done = CliRunner().invoke(cli.main, ["compare", method, *arguments])
        assert done.exit_code == 2
        return taken[0] if taken else done.stderr

    taken = []
    return given


def test_ones_own_algorithm_keeps_its_numbers_and_takes_those_that_are_typed(built):
    name, kept = built("own.py:MINE")
    assert name == "MINE"
    assert (kept.update.step_size, kept.estimator.groups, kept.estimator.group_size) == (0.25, 3, 5)
    _, changed = built("own.py:MINE", "--step-size", "10", "--groups", "16", "--group-size", "8")
    assert (changed.update.step_size, changed.estimator.groups, changed.estimator.group_size) == (10.0, 16, 8)
    assert built("own.py:EXACT", "--step-size", "10")[1].update.step_size == 10.0
    assert built("own.py:TRUSTED", "--step-size", "10")[1].update.step_size == 10.0


def test_a_number_that_ones_own_algorithm_cannot_take_is_one_line(built):
    line = "cannot be given to EXACT: its estimator is Exact, not Sampled; leave it out, or change own.py"
    assert built("own.py:EXACT", "--groups", "4") == f"softmaxdyn: --groups {line}\n"
    assert built("own.py:EXACT", "--group-size", "4") == f"softmaxdyn: --group-size {line}\n"


def test_ones_own_intervention_joins_the_numbers_of_the_others(built):
    _, algorithm = built("own.py:Cap", "--step-size", "2", "--groups", "4")
    assert (algorithm.update.step_size, algorithm.estimator.groups, algorithm.estimator.group_size) == (2.0, 4, 8)


def test_the_report_says_with_which_other_numbers_ones_own_algorithm_runs(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    sizes = ["--seeds", "2", "--steps", "3", "--inner-steps", "1", "--prompts", "3", "--actions", "4"]
    rest = ["--correct", "0.25", "--against", "rloo", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.main, ["compare", f"{tmp_path / 'own.py'}:MINE", *sizes, *rest])
    theirs = "the others with step size 1.5, 16 groups of 8"
    assert f"note: MINE runs with its own numbers (step size 0.25, 3 groups of 5), {theirs}\n" in done.stdout


def test_the_help_states_the_numbers_of_the_pool_that_runs():
    options = {parameter.name: parameter for parameter in cli.main.commands["compare"].params}
    helps = {name: options[name].help.partition(")")[0] for name in ("prompts", "actions", "correct")}
    assert helps == {"prompts": "pool (20", "actions": "pool (10", "correct": "pool (0.2"}


def test_the_list_of_methods_shows_every_name_and_number():
    done = CliRunner().invoke(cli.main, ["methods"])
    assert done.exit_code == 0
    assert "kl_cov " in done.stdout
    assert "fraction=0.002" in done.stdout
