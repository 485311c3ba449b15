"""The claims on the theorems: what they compute by a second road, and verdicts that turn in another world."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

from softmaxdyn import NaturalPG, theory
from softmaxdyn.ledger import Size, verdict
from softmaxdyn.ledger.shelf import load_claims
from softmaxdyn.policy import entropy as entropy_of
from softmaxdyn.policy import softmax
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.simulation import quick_jit
from softmaxdyn.tokens import Tokens, plain_push

CLAIMS = load_claims()
theorems = sys.modules[CLAIMS["C11"].function.__module__]
QUICK = Size(quick=True)


@pytest.fixture
def prompts():
    draw = np.random.default_rng(0)
    return draw.standard_normal((2, 5)), draw.random((2, 5)), draw.standard_normal((2, 5))


def test_the_error_of_a_theorem_is_the_difference_of_entropies_less_what_it_says(prompts):
    logits, rewards, random = prompts
    for direction, slope in quick_jit(theorems.directions)(logits, rewards, random).values():
        found = quick_jit(theorems.errors)(logits, direction, slope, np.array([1.0, 0.25]))
        moved = [entropy(np.exp(logits + size * direction), axis=1) for size in (1.0, 0.25)]
        said = np.outer([1.0, 0.25], slope)
        np.testing.assert_allclose(found, np.abs(moved - entropy(np.exp(logits), axis=1) - said), rtol=0, atol=1e-14)


def test_each_theorem_is_the_derivative_of_the_entropy_but_the_one_with_raw_rewards(prompts):
    logits, rewards, random = prompts
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    lacking = {"raw rewards": -(p * rewards).sum(1) * (p**2 * (np.log(p) + entropy(p, axis=1)[:, None])).sum(1)}
    for name, (direction, slope) in quick_jit(theorems.directions)(logits, rewards, random).items():
        _, derivative = jax.jvp(entropy_of, (jnp.asarray(logits),), (jnp.asarray(direction),))
        np.testing.assert_allclose(slope - derivative, lacking.get(name, 0.0), rtol=1e-12, atol=1e-14)


def test_the_error_is_of_third_order_where_the_second_derivative_vanishes():
    p, order = theorems.inflection()
    bend = theory.second_order(np.log([p, 1.0 - p]), np.array([1.0, 0.0]))
    assert bend == pytest.approx(0.0, abs=1e-12)
    assert order == pytest.approx(3.0, abs=0.05)  # the fourth order shifts it by some η = 1/32


def test_the_covariance_of_a_group_is_that_of_its_responses():
    lengths, groups = np.array([1, 3, 2, 2, 1]), np.array([0, 0, 0, 1, 1])
    draw = np.random.default_rng(0)
    log_prob, advantage = -draw.random(lengths.sum()), draw.standard_normal(5)
    episode = np.arange(5).repeat(lengths)
    padded = [np.append(x, 0) for x in (episode, groups[episode], advantage[episode], log_prob)]
    blank, weight = np.zeros(len(padded[0]), np.int32), np.append(np.full(len(episode), 0.2), 0.0)
    names = dict(zip(("episode", "group", "advantage", "log_prob"), map(jnp.asarray, padded), strict=True))
    fields = names | {"episode": jnp.asarray(padded[0], jnp.int32), "group": jnp.asarray(padded[1], jnp.int32)}
    rest = {name: jnp.asarray(padded[3]) for name in ("old_log_prob", "entropy", "reward")}
    state = {name: jnp.asarray(blank) for name in ("state", "action", "position")}
    tokens = Tokens(weight=jnp.asarray(weight), **fields, **rest, **state)
    push = theorems.GroupCovariance()(None, tokens, None, plain_push(tokens, (1, 1)))
    mean = np.array([log_prob[episode == e].mean() for e in range(5)])
    wanted = sum(np.cov(mean[g], (np.exp(mean) * advantage)[g], ddof=0)[0, 1] * len(g) for g in ([0, 1, 2], [3, 4]))
    np.testing.assert_allclose(push.selected, wanted / 5.0, rtol=1e-12)


def test_the_mean_covariances_are_those_of_numpy(prompts):
    logits, rewards, _ = prompts
    found = theorems.covariance_means(Bandit(rewards), 1.0, softmax(jnp.asarray(logits)), None, None)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    gain = rewards - (p * rewards).sum(1, keepdims=True)
    spread = np.sqrt((p * gain**2).sum(1, keepdims=True))
    for name, values in {"PG": p * gain, "NPG": gain, "GRPO": p * gain / spread}.items():
        wanted = [np.cov(np.log(q), v, aweights=q, ddof=0)[0, 1] for q, v in zip(p, values, strict=True)]
        np.testing.assert_allclose(found[name], np.mean(wanted), rtol=1e-12)


def test_a_run_from_a_uniform_start_is_on_the_path_of_natural_policy_gradient():
    (made,) = theorems.uniform_starts(1, 3, 4)
    fields, _ = theorems.follow([made], theorems.exact(NaturalPG(0.5)), 6, observe=theorems.entropy_steps)
    path = np.exp(0.5 * np.arange(8)[:, None, None] * made.problem.rewards)
    known = entropy(path, axis=2)
    np.testing.assert_allclose(fields["H"][0], known[:-1].mean(1), rtol=1e-12)
    np.testing.assert_allclose(fields["change"][0], np.diff(known, axis=0), rtol=0, atol=1e-14)


def test_a_response_to_a_random_tree_pays_0_or_1_and_the_shares_are_as_said():
    made = theorems.trees(3, prompts=40, vocabulary=4, depth=4)
    paid = np.array([each.problem.layout.finished(each.problem.sequence_rewards()) for each in made])
    assert set(np.unique(paid)) == {0.0, 1.0}
    shares = paid.mean(2)
    noise = np.sqrt(0.25 / paid.shape[2] / shares.size)
    assert shares.mean() == pytest.approx(0.275, abs=4.0 * (0.45 / np.sqrt(12.0 * shares.size) + noise))


def test_the_verdicts_turn_with_the_world(monkeypatch):
    fall = np.linspace(1.0, 0.1, 40) * np.ones((10, 1))
    exactly = dict.fromkeys(("responses, groups of 8", "one token, population"), (fall, fall, fall))
    monkeypatch.setattr(theorems, "worlds_of_c14", lambda size: exactly)
    assert verdict(CLAIMS["C14"], CLAIMS["C14"].function(QUICK)) == "holds"
    covariance = np.append(fall, fall[:, -1:], 1)
    run = {"H": 50.0 - np.cumsum(covariance, 1), "PG": covariance, "NPG": covariance, "GRPO": covariance}
    for sign, wanted in ((1.0, "holds"), (-1.0, "fails")):
        turned = {name: sign * x for name, x in run.items() if name != "H"} | {"H": 50.0 - sign * (50.0 - run["H"])}
        runs = {(method, "σ = 1"): turned for method in ("PG", "NPG", "GRPO")}
        monkeypatch.setattr(theorems, "monotone_runs", lambda *sizes, runs=runs: runs)
        assert verdict(CLAIMS["C15"], CLAIMS["C15"].function(QUICK)) == wanted
