"""The scripts of experiments/paper: what each stands beside, whole files, and their numbers by a second road."""

import ast
import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from softmaxdyn.plots import panels

FOLDER = Path(__file__).parents[1] / "experiments" / "paper"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.fixture(scope="module")
def script():
    """A function that imports a script; what it imports lies beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        patch.setattr(sys, "argv", ["test"])
        yield importlib.import_module


@pytest.fixture
def parts(script, tmp_path, monkeypatch):
    module = script("parts")
    monkeypatch.setattr(module, "folder", lambda: tmp_path)
    return module


def curve(curves, reward, seeds=3):
    """A curve a seed with H from 2 to 0 and R = reward(H)."""
    entropy = np.tile(np.linspace(2.0, 0.0, curves.ROWS), (seeds, 1))
    return curves.Curve(entropy, reward(entropy))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_beside_which_figure_it_stands_and_what_differs(path):
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    kind, number = path.stem.split("_")
    if number.isdigit():
        assert re.search(rf"\b{kind}s? {int(number)}\b", said)
    assert re.search(r"arXiv:25\d\d\.\d{5}", said)
    assert re.search(r"\| +\| the paper +\| here +\|\n", said)
    assert said.split("\n")[0].endswith("?")


def test_write_keeps_six_digits_a_picture_and_the_verdict(parts, tmp_path, capsys):
    with panels(1, 1, 1.0) as (figure, _):
        pass
    parts.write("some", figure, {"name": ["a", "b"], "x": [[1 / 3], [2e-7 / 3]]}, "it holds")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.csv", "some.png", "some.svg"]
    assert (tmp_path / "some.csv").read_bytes() == b"name,x\na,0.333333\nb,6.66667e-08\n"
    assert capsys.readouterr().out == "some: it holds\n"


def test_write_leaves_the_old_table_whole_if_it_is_stopped(parts, tmp_path, monkeypatch):
    parts.write("some", None, {"x": [1, 2]}, "")

    def stopped(table, path, **_):
        path.write_text("x\n1")
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", stopped)
    with pytest.raises(KeyboardInterrupt):
        parts.write("some", None, {"x": [3, 4]}, "")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"some.csv": "x\n1\n2\n"}


def test_a_quick_run_touches_no_figure(script, monkeypatch, tmp_path):
    parts = script("parts")
    monkeypatch.setattr(sys, "argv", ["figure_02.py", "--quick"])
    monkeypatch.setattr(parts.tempfile, "gettempdir", lambda: str(tmp_path))
    assert parts.size().quick
    assert parts.folder().parent == tmp_path


def test_the_shares_of_an_exponential_decay_are_its_closed_form(script):
    """(1 − e^(−kx))/(1 − e^(−k)) after the part x; the parts are whole steps, so that nothing is interpolated."""
    figure = script("figure_02")
    rate, part = np.array([[0.5], [5.0], [20.0]]), np.arange(236) / 235
    found = figure.shares(1.5 * np.exp(-rate * part))
    np.testing.assert_allclose(found, np.expm1(-rate * part) / np.expm1(-rate), rtol=1e-9, atol=1e-14)


def test_a_shift_after_the_rows_seen_is_the_error_of_the_forecast(script):
    figure = script("figure_05")
    held_out = np.arange(236) >= 36
    shifted = curve(figure.curves, lambda h: 1.1 - 0.1 * np.exp(h) + 0.03 * held_out)
    np.testing.assert_allclose(figure.error(shifted), 0.03, rtol=1e-9)


def test_the_forecast_by_a_line_is_that_of_polyfit(script):
    figure = script("figure_05")
    noisy = curve(figure.curves, lambda h: 1 - h / 3 + 0.1 * np.random.default_rng(0).standard_normal(h.shape))
    expected = [np.polyval(np.polyfit(h[:36], r[:36], 1), h) for h, r in zip(*noisy, strict=True)]
    np.testing.assert_allclose(figure.forecast(noisy, figure.LINEAR), expected, rtol=1e-9)


def test_the_gap_of_a_lifted_curve_is_its_lift(script):
    figure = script("figure_06")
    each = {lift: curve(figure.curves, lambda h, lift=lift: 1 - h / 3 + lift) for lift in (0.0, 0.04)}
    runs = {figure.BASE: each[0.0], "lifted": each[0.04]}
    np.testing.assert_allclose(figure.gap(runs, "lifted"), 0.04, rtol=1e-9)


def test_the_line_through_the_coefficients_is_that_of_polyfit(script):
    figure = script("figure_07")
    values = np.random.default_rng(0).standard_normal((4, 5))
    expected = np.polyval(np.polyfit(figure.BOOSTS, values.mean(0), 1), figure.BOOSTS)
    np.testing.assert_allclose(figure.line(figure.BOOSTS, values), expected, rtol=1e-9, atol=1e-14)
