"""Bad input of token trees: one clear line each, before any table is made; and the types that are allowed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softmaxdyn.problems.token_tree import TokenTree

PRELUDE = """
import json, sys
import jax
import jax.numpy as jnp
import numpy as np
from softmaxdyn.problems.named.trees import *
from softmaxdyn.problems.token_tree import TokenTree
def tree(rewards=len, vocabulary=2, depth=2, **options):
    return TokenTree(rewards, vocabulary=vocabulary, depth=depth, **options)
def never(response):
    raise AssertionError("a tree that is too large is refused before its rewards are asked for")
def outcome(expression):
    try:
        return "no error", repr(eval(expression))
    except Exception as error:
        return type(error).__name__, str(error)
print(json.dumps([outcome(expression) for expression in json.load(sys.stdin)]))
"""

CASES = [
    # Sizes
    ("tree(vocabulary=0)", "vocabulary is 0; wanted a whole number ≥ 1"),
    ("tree(vocabulary=2.0)", "vocabulary is 2.0; wanted a whole number ≥ 1"),
    ("tree(depth=0)", "depth is 0; wanted a whole number ≥ 1"),
    ("tree(depth=None)", "depth is None; wanted a whole number ≥ 1"),
    (
        "tree(never, vocabulary=1, depth=101)",
        "depth is 101; wanted at most 100: each level of the tree is compiled on its own",
    ),
    ('tree(end="yes")', "end is 'yes'; wanted True (the last token ends the response) or False"),
    (
        "tree(vocabulary=1, end=True)",
        "vocabulary is 1, and with end=True that token ends; wanted vocabulary ≥ 2, or end=False",
    ),
    (
        "tree(never, vocabulary=10, depth=9)",
        "vocabulary 10, depth 9, prompts 1 make 111,111,111 prefixes, 8.3 GiB a table; wanted at most 1 GiB: lower",
    ),
    (
        "tree(never, vocabulary=2, depth=27)",
        "vocabulary 2, depth 27, prompts 1 make 134,217,727 prefixes, 2.0 GiB a table",
    ),
    (
        "tree([never] * 9, vocabulary=4, depth=12)",
        "vocabulary 4, depth 12, prompts 9 make 50,331,645 prefixes, 1.5 GiB a table",
    ),
    (
        "tree(never, vocabulary=10**9, depth=100, end=True)",
        "vocabulary 1000000000, depth 100, prompts 1 make about 1e891 prefixes, about 1e892 GiB a table; wanted",
    ),
    # Rewards
    ("tree([[1, 2], [3]])", "rewards are ragged or not numbers; wanted real numbers, rows of equal"),
    ('tree("abc")', "rewards are ragged or not numbers; wanted real numbers, rows of equal length"),
    ("tree(np.array([1j]))", "rewards are of type complex128; wanted real numbers"),
    ("tree([len, 1.0])", "rewards mix functions and numbers; wanted one function a prompt, or a table"),
    ("tree([])", "rewards have shape (0,); wanted [3·P, 2] for P prompts (one number a prefix and"),
    (
        "tree(np.zeros((4, 2)))",
        "rewards have shape (4, 2); wanted [3·P, 2] for P prompts (one number a prefix and token), or [2]*2 or [",
    ),
    (
        "tree(np.zeros((3, 3)), 3, end=True, depth=3)",
        "rewards have shape (3, 3); wanted [7·P, 3] for P prompts (one number a prefix and token)",
    ),
    ("tree([[0, 1], [np.nan, 2]])", "the reward of token 0 after (1,) is nan; wanted finite numbers of size ≤ 1e30"),
    (
        "tree(np.where(np.arange(12).reshape(6, 2) == 9, np.inf, 0.0))",
        "the reward of token 1 after (0,) of prompt 1 is inf; wanted finite numbers of size ≤ 1e30",
    ),
    (
        "tree(lambda y: np.nan if y == (0, 1) else 0)",
        "the reward of response (0, 1) is nan; wanted a finite number of size ≤ 1e30",
    ),
    ("tree(lambda y: None)", "the reward of response (0, 0) is None; wanted a finite number of"),
    ('tree(lambda y: "1")', "the reward of response (0, 0) is '1'; wanted a finite number of"),
    ("tree(lambda y: [1.0] * sum(y))", "the reward of response (0, 0) is []; wanted a finite number of size ≤ 1e30"),
    ("tree(lambda y: 10**40)", "the reward of response (0, 0) is 1000000000000"),
    # Weights
    ("tree(weights=[0.5, 0.5])", "weights have shape (2,); wanted one a prompt: (1,)"),
    ("tree([len, sum], weights=[1.0, -1.0])", "the weight of prompt 1 is -1; wanted numbers in [0, 1e30]"),
    ("tree(weights=np.nan)", "the weight of prompt 0 is nan; wanted numbers in [0, 1e30]"),
    ("tree(weights=[0.0])", "all weights are 0; wanted one above 0"),
    ('tree(weights="equal")', "weights are ragged or not numbers; wanted real numbers"),
    # Answers
    ("tree(answers=list)", "the answer of response (0, 0) is [0, 0]; wanted a number, a string or a tuple"),
    ("tree(answers=[1, 2, 3])", "answers have shape (3,); wanted [3·P, 2] for P prompts"),
    (
        "tree(answers=np.zeros((2, 2, 2), int))",
        "answers have shape (2, 2, 2); wanted (3, 2), one row a row of the rewards",
    ),
    ("tree(answers=[[1, 2], [3]])", "answers are ragged; wanted a table of whole numbers"),
    (
        "tree(answers=[[0.5, 1], [1, 1]])",
        "answers are of type float64; wanted whole numbers, or a function of a response",
    ),
    ("tree(answers=[[0, 1], [-1, 1]])", "the answer of token 0 after (1,) is -1; wanted labels 0, 1, 2, …"),
    ("tree(answers=[[0, 1], [5, 1]], num_answers=2)", "num_answers is 2, and a label is 5; wanted at least 6"),
    ("tree(num_answers=2.5)", "num_answers is 2.5; wanted a whole number ≥ 1"),
    (
        "tree(answers=[[0, 1], [10**9, 1]])",
        "a label is 1000000000, too large to count 1000000001 answers; wanted labels 0, 1, 2, …",
    ),
    (
        "jax.eval_shape(lambda a: tree(answers=a), jnp.zeros((3, 2), int))",
        "answers are traced; wanted a table (3, 2) and num_answers=, the number of labels",
    ),
    # Questions
    ("tree().pass_at(jnp.full((3, 2), 0.5), 0)", "k is 0; wanted a finite number ≥ 1"),
    # Named settings
    ("final_token(depth=1.0)", "depth is 1.0; wanted a whole number ≥ 1"),
    ("several_paths(vocabulary='3')", "vocabulary is '3'; wanted a whole number ≥ 2"),
    ("distractor(depth=None)", "depth is None; wanted a whole number ≥ 3"),
]


@pytest.fixture(scope="module")
def outcomes():
    """What a user sees for each expression: in a process of its own, without the type checks of the tests."""
    expressions = [expression for expression, _ in CASES]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE],
        input=json.dumps(expressions),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(expressions, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(("expression", "message"), CASES, ids=[expression for expression, _ in CASES])
def test_bad_input_is_one_clear_line(outcomes, expression, message):
    kind, text = outcomes[expression]
    assert kind == "InputError", text
    assert re.match(re.escape(message), text), text
    assert len(text.splitlines()) == 1
    assert len(text) < 200


def test_an_error_in_a_reward_function_is_the_user_s_own():
    with pytest.raises(ZeroDivisionError):
        TokenTree(lambda y: 1 / 0, vocabulary=2, depth=2)
