"""The report card: its statistics by a second road, what it says of methods whose kind is known, and its command."""

import json

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from softmaxdyn import Algorithm, Bandit, Exact, TokenTree, VanillaPG, cli, simulate
from softmaxdyn.comparison import Shuffled, classify, crossing, interval, paths, report_card
from softmaxdyn.estimators import Sampled
from softmaxdyn.interventions import KLCov, PositiveReweighting
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


def test_the_expected_step_of_a_sampling_algorithm_is_that_of_its_population():
    from softmaxdyn.comparison import expected_step

    parts = (KLCov(0.1),)
    drawn = expected_step(BANDIT, Algorithm(VanillaPG(1.0), Sampled(4, 4), parts), LOGITS, 2)
    exact = expected_step(BANDIT, Algorithm(VanillaPG(1.0), Exact(Sampled().advantage), parts), LOGITS, 2)
    np.testing.assert_array_equal(drawn, exact)


OWN = """
import jax.numpy as jnp
import softmaxdyn as sd

@sd.config
class Cap(sd.Intervention):
    "Scores beyond a cap are cut."
    cap: float = 0.5

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.clip(push.score, -self.cap, self.cap))

WRONG = 3
"""


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


def test_the_list_of_methods_shows_every_name_and_number():
    done = CliRunner().invoke(cli.main, ["methods"])
    assert done.exit_code == 0
    assert "kl_cov " in done.stdout
    assert "fraction=0.002" in done.stdout
