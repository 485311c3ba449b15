"""Bad input of bandits, updates, algorithms and runs: one clear line each, and the extremes that are allowed."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from softmaxdyn import Algorithm, Bandit, NaturalPG, VanillaPG, simulate

PRELUDE = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from softmaxdyn import *
from softmaxdyn.problems import named
nan, inf, single = float("nan"), float("inf"), np.float32
bandit, two = Bandit([1.0, 0.0, 0.5]), Bandit([[1.0, 0.0], [0.0, 1.0]])
algorithm = Algorithm(VanillaPG(0.1))
def run(problem=bandit, algorithm=algorithm, num_steps=1, **options):
    return simulate(problem, algorithm, num_steps=num_steps, **options)
def outcome(expression):
    try:
        return "no error", repr(eval(expression))
    except Exception as error:
        return type(error).__name__, str(error)
print(json.dumps([outcome(expression) for expression in json.load(sys.stdin)]))
"""

CASES = [
    # Rewards
    ("Bandit([[1, 2], [3]])", "rewards are ragged or not numbers; wanted [K] or [S, K] numbers, rows of equal length"),
    ("Bandit('abc')", "rewards are ragged or not numbers; wanted [K] or [S, K] numbers, rows of equal length"),
    ("Bandit([1, 10**400])", "rewards are ragged or not numbers; wanted [K] or [S, K] numbers, rows of equal length"),
    ("Bandit(np.array(['a']))", "rewards are of type <U1; wanted real numbers"),
    ("Bandit(np.array([1j]))", "rewards are of type complex128; wanted real numbers"),
    ("Bandit([])", "rewards have shape (0,); wanted [K] or [S, K] with at least one arm"),
    ("Bandit([[]])", "rewards have shape (1, 0); wanted [K] or [S, K] with at least one arm"),
    ("Bandit([[[1]]])", "rewards have shape (1, 1, 1); wanted [K] or [S, K] with at least one arm"),
    ("Bandit(1.0)", "rewards have shape (); wanted [K] or [S, K] with at least one arm"),
    ("Bandit(None)", "rewards have shape (); wanted [K] or [S, K] with at least one arm"),
    ("Bandit([1, nan])", "the reward of context 0, arm 1 is nan; wanted finite numbers"),
    ("Bandit(jnp.array([[1, 0], [inf, 0]]))", "the reward of context 1, arm 0 is inf; wanted finite numbers"),
    ("Bandit([[-inf, 0]])", "the reward of context 0, arm 0 is -inf; wanted finite numbers"),
    ("Bandit([1e31, 0])", "a reward of size 1e+31 overflows; wanted sizes ≤ 1e30: rescale the rewards"),
    # Weights
    ("Bandit([[1, 2]] * 3, [1, -1, 1])", "the weight of context 1 is -1; wanted numbers in [0, 1e30]"),
    ("Bandit([[1, 2]] * 30, [-1.0] * 30)", "the weight of context 0 is -1; wanted numbers in [0, 1e30]"),
    ("Bandit([1, 2], [nan])", "the weight of context 0 is nan; wanted numbers in [0, 1e30]"),
    ("Bandit([1, 2], inf)", "the weight of context 0 is inf; wanted numbers in [0, 1e30]"),
    ("Bandit([[1, 2]] * 2, [1e308] * 2)", "the weight of context 0 is 1e+308; wanted numbers in [0, 1e30]"),
    ("Bandit([[1, 2]] * 2, [0, 0])", "all weights are 0; wanted one above 0"),
    ("Bandit([[1, 2]] * 2, [1, 1, 1])", "weights have shape (3,); wanted one a context: (2,)"),
    ("Bandit([[1, 2]] * 2, [[1, 1]])", "weights have shape (1, 2); wanted one a context: (2,)"),
    ("Bandit([1, 2], 'equal')", "weights are not numbers; wanted one a context (1)"),
    ("Bandit([1, 2], {'a': 1})", "weights are not numbers; wanted one a context (1)"),
    ("Bandit([1, 2], np.array([1j]))", "weights are of type complex128; wanted real numbers"),
    # Step sizes
    ("VanillaPG(-0.1)", "step_size is -0.1; wanted a finite number ≥ 0"),
    ("NaturalPG(-0.1)", "step_size is -0.1; wanted a finite number ≥ 0"),
    ("VanillaPG(nan)", "step_size is nan; wanted a finite number ≥ 0"),
    ("NaturalPG(inf)", "step_size is inf; wanted a finite number ≥ 0"),
    ("NaturalPG(jnp.array([0.1, nan]))", "step_size is an array with nan … nan; wanted a finite number ≥ 0"),
    ("VanillaPG('0.1')", "step_size is '0.1'; wanted a number"),
    ("VanillaPG(None)", "step_size is None; wanted a number"),
    ("VanillaPG([0.1, 0.2])", "step_size is [0.1, 0.2]; wanted a number"),
    (
        "run(algorithm=Algorithm(VanillaPG(np.array([0.1, 0.2]))))",
        "step_size has shape (2,); wanted one number (jax.vmap runs several)",
    ),
    (
        "run(logits=np.zeros(3, single), algorithm=Algorithm(NaturalPG(1e300)))",
        "step_size 1e+300 overflows float32; wanted at most 3e+38",
    ),
    # Algorithms
    ("Algorithm(VanillaPG)", "update is <class 'softmaxdyn.updates."),
    ("Algorithm(0.1)", "update is 0.1; wanted a config, made by calling its class: VanillaPG(0.1)"),
    ("Algorithm(None)", "update is None; wanted a config, made by calling its class: VanillaPG(0.1)"),
    ("Algorithm(VanillaPG(0.1), Exact)", "estimator is <class "),
    ("Algorithm(VanillaPG(0.1), None)", "estimator is None; wanted a config, made by calling its class"),
    ("Algorithm(VanillaPG(0.1), Exact(), 3)", "an intervention is 3; wanted a config, made by calling its class"),
    ("Algorithm(VanillaPG(0.1), Exact(), [Intervention])", "an intervention is <class "),
    ("run(algorithm=Algorithm(Exact()))", "update is Exact("),
    (
        "run(algorithm=VanillaPG(0.1))",
        "algorithm is VanillaPG(step_size=0.1); wanted Algorithm(update), e.g. Algorithm(",
    ),
    ("run(algorithm=Algorithm)", "algorithm is <class 'softmaxdyn.algorithms.Algorithm'>; wanted Algorithm(update)"),
    # Problems
    (
        "run(Bandit)",
        "problem is <class 'softmaxdyn.problems.bandit.Bandit'>; wanted a problem such as Bandit([1.0, 0.0])",
    ),
    ("run([1.0, 0.0])", "problem is [1.0, 0.0]; wanted a problem such as Bandit([1.0, 0.0])"),
    # Counts
    ("run(num_steps=0)", "num_steps is 0; wanted a whole number ≥ 1"),
    ("run(num_steps=-1)", "num_steps is -1; wanted a whole number ≥ 1"),
    ("run(num_steps=2.0)", "num_steps is 2.0; wanted a whole number ≥ 1"),
    ("run(num_steps=True)", "num_steps is True; wanted a whole number ≥ 1"),
    ("run(num_steps='3')", "num_steps is '3'; wanted a whole number ≥ 1"),
    ("run(num_steps=None)", "num_steps is None; wanted a whole number ≥ 1"),
    ("run(every=0)", "every is 0; wanted a whole number ≥ 1"),
    ("run(every=-2)", "every is -2; wanted a whole number ≥ 1"),
    ("run(every=0.5)", "every is 0.5; wanted a whole number ≥ 1"),
    ("run(inner_steps=0)", "inner_steps is 0; wanted a whole number ≥ 1"),
    ("run(inner_steps=nan)", "inner_steps is nan; wanted a whole number ≥ 1"),
    # Logits
    ("run(logits=[1.0, 0.0])", "logits have shape (1, 2); wanted (1, 3), one row a state"),
    ("run(two, logits=[1.0, 0.0])", "logits have shape (2,); wanted (2, 2), one row a state"),
    ("run(two, logits=np.zeros((2, 3)))", "logits have shape (2, 3); wanted (2, 2), one row a state"),
    ("run(two, logits=[[1, 2], [3]])", "logits are ragged or not numbers; wanted shape (2, 2)"),
    ("run(logits='abc')", "logits are ragged or not numbers; wanted shape (1, 3)"),
    ("run(logits=[nan, 0, 0])", "logits hold NaN or +inf; wanted finite numbers, or -inf to mask an action"),
    ("run(logits=jnp.array([inf, 0, 0]))", "logits hold NaN or +inf; wanted finite numbers, or -inf to mask an action"),
    ("run(two, logits=[[0, -inf], [-inf, -inf]])", "all actions of state 1 are masked; leave one"),
    ("run(logits=single([1e31, 0, 0]))", "a logit of size 1e+31 overflows float32; wanted sizes ≤ 3e+30"),
    ("run(logits=[-1e308, 0, 0])", "a logit of size 1e+308 overflows float64; wanted sizes ≤ 2e+300"),
    # Named settings
    ("named.named('testbed', runs=1.5)", "runs is 1.5; wanted a whole number ≥ 1"),
    ("named.named('testbed', seed='x')", "seed is 'x'; wanted a whole number ≥ 0"),
    ("named.named('pool', correct='half')", "correct is 'half'; wanted a number"),
]


@pytest.fixture(scope="module")
def outcomes():
    """What a user sees for each expression: in a process of its own, without the type checks of the tests."""
    expressions = json.dumps([expression for expression, _ in CASES])
    command = [sys.executable, "-W", "error", "-c", PRELUDE]
    done = subprocess.run(command, input=expressions, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    return dict(zip([expression for expression, _ in CASES], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(("expression", "message"), CASES, ids=[expression for expression, _ in CASES])
def test_bad_input_is_one_clear_line(outcomes, expression, message):
    kind, text = outcomes[expression]
    assert kind == "InputError", text
    assert re.match(re.escape(message), text), text
    assert len(text.splitlines()) == 1
    assert len(text) < 200


START = np.array([[0.0, 0.0, 0.0], np.log([0.05, 0.01, 0.94]), [0.0, -50.0, -np.inf], [700.0, 0.0, -700.0]])
REWARDS = np.array([[1.0, 0.9, 0.1], [1.0, 0.9, 0.1], [0.2, 0.7, 1.0], [0.0, 0.0, -1.0]])


def softmax(logits):
    """A second road to π: divide by the sum of exponentials."""
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def assert_no_nan(trace):
    for field in dataclasses.fields(trace):
        if field.name not in ("provenance", "measures"):
            assert not np.isnan(getattr(trace, field.name)).any(), field.name


@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize(("dtype", "step_size"), [(np.float64, 1e300), (np.float64, 1e30), (np.float32, 1e38)])
@pytest.mark.parametrize("update", [VanillaPG, NaturalPG])
def test_a_huge_step_reaches_the_greedy_policy_and_never_nan(update, dtype, step_size, inner_steps):
    """Natural PG: all on the best arm. PG: on the arm of largest π(a) A(a), where the first step points."""
    problem = Bandit(REWARDS[:3], weights=1.0)
    start = START[:3].astype(dtype)
    trace = simulate(problem, Algorithm(update(step_size)), num_steps=4, logits=start, inner_steps=inner_steps)
    assert_no_nan(trace)
    pi = softmax(START[:3])
    advantage = REWARDS[:3] - (pi * REWARDS[:3]).sum(1, keepdims=True)
    pull = np.where(pi > 0.0, pi * advantage if update is VanillaPG else advantage, -np.inf)
    greedy = (pull == pull.max(1, keepdims=True)).astype(float)
    assert np.array_equal(softmax(np.asarray(trace.logits)), greedy)
    assert np.array_equal(trace.final_entropy, np.zeros(3))
    assert np.isneginf(trace.logits[2, 2])


@pytest.mark.parametrize("update", [VanillaPG, NaturalPG])
def test_extreme_logits_never_give_nan(update):
    largest = np.finfo(float).max * 1e-8
    start = np.array([[largest, -largest, 0.0], [700.0, 0.0, -700.0], [1e-300, 0.0, -1e-300]])
    trace = simulate(Bandit(REWARDS[:3], weights=1.0), Algorithm(update(1.0)), num_steps=4, logits=start)
    assert_no_nan(trace)
    assert np.array_equal(softmax(np.asarray(trace.logits))[0], [1.0, 0.0, 0.0])


@pytest.mark.parametrize("update", [VanillaPG(0.7), NaturalPG(0.7)])
def test_with_one_arm_the_entropy_is_zero_and_nothing_moves(update):
    problem, logits = Bandit([[3.0], [-2.0]]), np.array([[5.0], [-1.0]])
    trace = simulate(problem, Algorithm(update), num_steps=3, logits=logits)
    for name in ("entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl"):
        assert (getattr(trace, name) == 0.0).all(), name
    assert np.array_equal(trace.logits, logits)
    assert (trace.expected_return == 0.5).all()


def test_a_zero_step_changes_nothing():
    trace = simulate(Bandit([1.0, 0.5, 0.0]), Algorithm(VanillaPG(0.0)), num_steps=2, logits=START[1:2])
    assert np.array_equal(trace.logits, START[1:2])
    assert (trace.entropy_change == 0.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_run_without_logits_has_the_dtype_of_the_rewards(dtype):
    rewards = np.array([1.0, 0.5, 0.0], dtype)
    assert {Bandit(rewards, weights).weights.dtype for weights in (None, 1, [1.0])} == {np.dtype(dtype)}
    trace = simulate(Bandit(rewards), Algorithm(VanillaPG(0.1)), num_steps=1)
    assert {getattr(trace, name).dtype for name in ("logits", "entropy", "expected_return")} == {np.dtype(dtype)}


def test_a_context_of_weight_zero_is_never_visited_and_never_moves():
    trace = simulate(Bandit(REWARDS[:2], weights=[1.0, 0.0]), Algorithm(NaturalPG(0.3)), num_steps=3, logits=START[:2])
    assert np.array_equal(trace.logits[1], START[1])
    assert (trace.logits[0] != START[0]).any()


def test_rewards_may_be_any_kind_of_real_number():
    for kind in (bool, np.int8, np.uint64, np.float16, np.longdouble):
        trace = simulate(Bandit(np.array([1, 0, 1], kind)), Algorithm(VanillaPG(0.1)), num_steps=1)
        assert trace.expected_return[0] == pytest.approx(2 / 3, rel=1e-6)
        assert trace.entropy.dtype == (np.float32 if kind is np.float16 else np.float64)
