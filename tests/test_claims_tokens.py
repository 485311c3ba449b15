"""The claims on tokens: what they compute by a second road, and verdicts that turn in another world."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

from softmaxdyn import TokenTree, theory
from softmaxdyn.diagnostics.scores import covariance_score
from softmaxdyn.ledger import Size, verdict
from softmaxdyn.ledger.shelf import load_claims
from softmaxdyn.problems.setting import Setting

CLAIMS = load_claims()
tokens = sys.modules[CLAIMS["C16"].function.__module__]
QUICK = Size(quick=True)
TINY = 1e-6


def change_of_entropy(logits, action):
    """(H(z + ε (e_a − π)) − H(z)) / ε."""
    p = np.exp(logits) / np.exp(logits).sum()
    return (entropy(np.exp(logits + TINY * (np.eye(len(p))[action] - p))) - entropy(p)) / TINY


def test_the_share_of_wrong_signs_is_that_of_small_steps():
    logits = np.random.default_rng(0).standard_normal((7, 4))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    lowers = np.array([[change_of_entropy(row, action) < 0.0 for action in range(4)] for row in logits])
    found = tokens.violations(logits)
    assert found["π > 1/K"] == np.mean((p > 0.25) != lowers)
    assert found["π > median"] == np.mean((p > np.median(p, 1)[:, None]) != lowers)
    assert found["π > e^−H"] == np.mean((p > np.exp(-entropy(p, axis=1))[:, None]) != lowers)
    assert found["mode"] == found["rare"] == 0.0


def test_the_smallest_exception_is_one():
    p, effect = tokens.smallest_exception()
    assert p[1] > max(1.0 / 3.0, np.exp(-entropy(p)))
    assert change_of_entropy(np.log(p), 1) == pytest.approx(effect, abs=1e2 * TINY)
    assert effect > 0.0


def test_the_covariances_of_a_prompt_with_one_correct_action_are_their_closed_forms():
    p = np.array([0.125, 0.5, 0.875])
    q = (1.0 - p) / 9.0
    found = tokens.covariances(p, 10)
    np.testing.assert_allclose(found["PG"], p**2 * (1.0 - p) * (1.0 - p + q) * np.log(p / q), rtol=1e-12)
    np.testing.assert_allclose(found["natural PG"], p * (1.0 - p) * np.log(p / q), rtol=1e-12)


@pytest.fixture(scope="module")
def tree():
    """One prompt; only the response that ends at once is right."""
    problem = TokenTree(lambda response: float(len(response) == 0), vocabulary=3, depth=3, end=True)
    return Setting(problem, np.random.default_rng(0).standard_normal(problem.shape), "")


def test_the_tokens_of_a_batch_are_those_that_the_policy_plays(tree):
    groups = 4000
    log = tokens.batch(tree, groups, 0)
    policy = np.exp(tree.logits) / np.exp(tree.logits).sum(1, keepdims=True)
    visits = np.asarray(tree.problem.visits(jnp.asarray(policy)))
    length, kinds = visits.sum(), entropy(policy, axis=1)
    assert len(log.log_prob) / (8 * groups) == pytest.approx(
        length, abs=4.0 / np.sqrt(8 * groups)
    )  # its std is at most (3 − 1)/2
    assert set(np.round(log.entropy, 12)) == set(np.round(kinds, 12))
    wanted = -(visits @ kinds) / length
    error = 4.0 * log.log_prob.std() / np.sqrt(len(log.log_prob) / 3.0)  # three tokens of a response depend
    assert log.log_prob.mean() == pytest.approx(wanted, abs=error)
    assert set(np.round(log.log_prob[log.advantage > 0.0], 12)) == {np.round(np.log(policy[0, 2]), 12)}


def test_the_advantages_of_a_batch_are_grpos():
    (made,) = tokens.pools(1, 20)
    log = tokens.batch(made, 300, 0)
    groups = log.advantage.reshape(-1, 8)
    np.testing.assert_allclose(groups.sum(1), 0.0, atol=1e-12)
    spread = groups.std(1, ddof=1)
    np.testing.assert_allclose(spread[spread > 0.0], 1.0, rtol=1e-5)  # std / (std + 1e-6)
    assert 0.0 < np.mean(spread > 0.0) < 1.0
    own = np.array(theory.sample_effect(made.logits)).ravel()
    exact = tokens.entropy_effects(log)["exact"]
    moved = log.advantage != 0.0
    nearest = np.abs(-exact[moved] / log.advantage[moved] - own[:, None]).min(0)
    np.testing.assert_allclose(nearest, 0.0, atol=1e-12)


def test_a_summary_counts_what_it_says():
    (made,) = tokens.pools(1, 20)
    log = tokens.batch(made, 400, 0)
    found, score = tokens.summary(log, 0), covariance_score(log)
    top = np.argsort(-score, kind="stable")[: int(2e-3 * len(score))]
    assert found["top 0.2 %"] == pytest.approx(score[top].mean(), rel=1e-12)
    assert sum(found["kinds"]) == pytest.approx(np.mean(log.advantage[top] != 0.0))
    effect = np.abs(tokens.entropy_effects(log)["exact"])
    assert found["of 0.2 % by C"] == pytest.approx(effect[top].sum() / effect.sum(), rel=1e-12)
    assert found["of 0.2 % by effect"] >= found["of 0.2 % by C"]
    assert found["share by C"][-1] == pytest.approx(1.0, rel=1e-12)


def test_one_baseline_for_a_batch_leaves_the_covariance_between_prompts():
    made = tokens.pools(1, 200)[0]
    p = np.exp(made.logits) / np.exp(made.logits).sum(1, keepdims=True)
    rewards = np.asarray(made.problem.rewards)
    whole = np.cov(np.log(p).ravel(), rewards.ravel(), aweights=p.ravel(), ddof=0)[0, 1]
    inside = [np.cov(np.log(q), r, aweights=q, ddof=0)[0, 1] for q, r in zip(p, rewards, strict=True)]
    assert tokens.whitened_share(1)[0] == pytest.approx(abs(whole - np.mean(inside)) / abs(whole), rel=1e-10)


def test_the_verdicts_turn_with_the_world(monkeypatch):
    ones, tail = np.ones(10), {name: np.full((10, 41), 0.5) for name in ("share by C", "share by effect")}
    keys = (
        "mean C",
        "mean |C|",
        "top 0.02 %",
        "top 0.2 %",
        "top 0.02 %, permuted",
        "median π",
        "r of C and the effect",
    )
    world = {**dict.fromkeys(keys, ones), **tail, "of 0.2 % by C": 0.3 * ones, "of 0.2 % by effect": 0.4 * ones}
    world |= {"kinds": np.tile([0.9, 0.0, 0.1, 0.0], (10, 1)), "top 0.02 %": 600.0 * ones}
    monkeypatch.setattr(tokens, "summaries", lambda *sizes: {"tree, σ = 4": world})
    for name in ("C18", "C20", "C21"):
        assert verdict(CLAIMS[name], CLAIMS[name].function(QUICK)) == "holds"
    world |= {"kinds": np.tile([0.1, 0.0, 0.9, 0.0], (10, 1)), "top 0.02 %": 400.0 * ones}
    world["of 0.2 % by C"] = 0.1 * ones
    for name in ("C18", "C20", "C21"):
        assert verdict(CLAIMS[name], CLAIMS[name].function(QUICK)) == "fails"
