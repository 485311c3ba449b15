"""The notebooks: paired, without outputs; exercises that can be solved, and checks that say what is wrong.

They are run from top to bottom by experiments/notebooks/run.py and experiments/docs/build.py.
"""

import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

import softmaxdyn as sd

FOLDER = Path(__file__).parents[1] / "experiments" / "notebooks"


@pytest.fixture(scope="module", autouse=True)
def _inside():
    """What a notebook imports lies beside it."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture
def exercises():
    import exercises

    return exercises


SOURCES = sorted(FOLDER.glob("[0-9]_*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_that_of_its_source_and_holds_no_outputs(source):
    import pair

    text = source.with_suffix(".ipynb").read_text("utf-8")
    assert text == pair.paired(source), "run experiments/notebooks/pair.py"
    code = [cell for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_seven_notebooks_have_three_to_five_exercises_each_and_one_solution_to_each(exercises):
    from solutions import SOLUTIONS

    asked = [re.findall(r'^check\("([\d.]+)"', source.read_text("utf-8"), re.M) for source in SOURCES]
    assert [3 <= len(names) <= 5 for names in asked] == [True] * 7
    assert sorted(name for names in asked for name in names) == sorted(exercises.CHECKS) == sorted(SOLUTIONS)


def test_the_solutions_are_right(exercises, capsys):
    from solutions import SOLUTIONS

    for name, answer in SOLUTIONS.items():
        exercises.check(name, answer)
    assert capsys.readouterr().out.splitlines() == [f"{name}: right" for name in SOLUTIONS]


def test_no_cell_is_empty():
    books = [nbformat.read(source.with_suffix(".ipynb"), as_version=4) for source in SOURCES]
    assert [cell.source for book in books for cell in book.cells if not cell.source.strip()] == []


def slopes(p):
    return p * (np.log(p) - (p * np.log(p)).sum())


WRONG = {
    "1.1": (np.exp, "the policy of your logits it gives"),
    "1.2": (lambda K, h: np.full(K, 1.0 / K), "for K = 2, h = 0.5 the entropy it gives 0.693147; wanted 0.5"),
    "1.3": (lambda K, p: np.log(K), "for K = 3, p = 0.2 it gives"),
    "2.1": (lambda z, step: 0.0, "it gives 0; wanted"),
    "2.2": (np.ones(4), "a constant step changes nothing at all"),
    "2.3": (([0.0, 0.0, 1.0], [0.0, 0.0, 0.1]), "have one sign; try a larger step"),
    "3.1": (lambda z, r, time: 0.0, "τ = 0.0 it gives 0; wanted 0.629"),
    "3.2": (lambda z, A, b: 0.0, "b = 1.0 it gives 0.000000; wanted -0.07"),
    "3.3": ((np.zeros(4), [1.0, 0.0, 0.0, 0.0]), "wanted + and −"),
    "4.1": (lambda p: p > 1.0 / len(p), "p = [0.5 0.4 0.1] it says [ True  True False]; right is [ True False False]"),
    "4.1, log π + H > 0": (lambda p: np.log(p) > (p * np.log(p)).sum(), "right is [ True False False]"),
    "4.1, the plain mean": (lambda p: slopes(p) > slopes(p).mean(), "right is [ True False False]"),
    "4.1, no logarithm": (lambda p: np.asarray(sd.sample_effect(p)) < 0.0, "right is [ True False False]"),
    "4.1, numbers": (lambda p: p, "it gives float64 numbers; wanted True or False for every action"),
    "4.2": (np.full(5, 0.2), "for 0 of 5 actions; wanted 4"),
    "4.3": (1.0, "1 is not it"),
    "5.1": (lambda rewards: rewards - rewards.mean(), "wanted"),
    "5.2": (lambda p, right, wrong: right, "for p = 0.5, w = 0.1 and -1.0 it gives 0.1"),
    "5.3": (100, "100 is not it"),
    "6.1": (
        lambda log_prob, advantage: log_prob * advantage,
        "for log π = [-1. -3.], A = [ 1. -1.] it gives [-1.  3.]",
    ),
    "6.2": (lambda now, old, score, beta: score, "log π_old = -2.5, score = 0.5, β = 1.0 it gives 0.5; wanted -0.5"),
    "6.2, no sign": (lambda now, old, score, beta: score - beta * (now - old), "it gives -1; wanted -0.5"),
    "6.3": (lambda least: least, "λ_min = 0.7"),
    "7.1": (lambda a, b, H: -a, "H = 1.0 it gives"),
    "7.2": (lambda inside, outside: 0.5, "for H₊ = 0.0, H₋ = 2.0 it gives 0.50000; wanted 0.11920"),
    "7.3": ((np.linspace(0, 2, 20), 1.0 - 0.1 * np.exp(np.linspace(0, 2, 20))), "wanted the line's lower"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(exercises, capsys, case):
    answer, reason = WRONG[case]
    name = case.split(",")[0]
    exercises.check(name, answer)
    line = capsys.readouterr().out
    assert line.startswith(f"{name}: not yet: ")
    assert reason in line


def test_an_answer_that_raises_and_none_at_all(exercises, capsys):
    for answer in (lambda K, p: 1 / 0, lambda K, p: None, lambda K, p: "much", lambda K, p: [K, p], np.ones(3), None):
        exercises.check("1.3", answer)
    case = "1.3: not yet: for K = 3, p = 0.2 it"
    assert capsys.readouterr().out.splitlines() == [
        f"{case} raises ZeroDivisionError: division by zero",
        f"{case} gives None; is there a `return`?",
        f"{case} gives a str; wanted numbers",
        f"{case} has shape (2,); wanted ()",
        "1.3: not yet: wanted a function, got ndarray",
        "1.3: not answered yet",
    ]
