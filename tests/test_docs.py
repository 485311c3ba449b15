"""The documentation: every block of its pages is run, and what the code lists is explained."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

from softmaxdyn.cli import main
from softmaxdyn.methods import METHODS
from softmaxdyn.sweeps.spec import read_spec
from softmaxdyn.verification.checks import ONE_STEP
from softmaxdyn.verification.closed_forms import NATURAL

FOLDER = Path(__file__).parents[1] / "experiments" / "docs"
RUN = ["tutorial", "howto", "theory", "episodes", "accuracy", "teaching"]


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("docs_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", RUN)
def test_a_page_prints_what_it_says(page):
    failed, tried = doctest.testfile(str(FOLDER / f"{page}.md"), module_relative=False, encoding="utf-8")
    assert tried > 5
    assert failed == 0


def test_every_page_is_run_that_has_something_to_run():
    pages = {page.stem for page in FOLDER.glob("*.md") if ">>> " in page.read_text("utf-8")}
    assert pages == set(RUN)


def test_every_picture_of_a_page_is_there():
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\((\.\./[^)]+)\)", page.read_text("utf-8")):
            assert (FOLDER / target).is_file(), f"{page.name}: {target}"


def test_the_grid_is_one_that_can_be_read(tmp_path):
    (spec,) = re.findall(r"```toml\n(.*?)```", (FOLDER / "howto.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "grid.toml").write_text(spec)
    plan = read_spec(tmp_path / "grid.toml")
    assert len(plan.cells) == 2 * (2 * 2 + 1)
    assert plan.num_runs == 20 * len(plan.cells)


def test_the_theory_page_has_every_label_once_and_what_verify_checks():
    labels = re.findall(r"\*\*T(\d+)", (FOLDER / "theory.md").read_text("utf-8"))
    assert labels == [str(number) for number in range(1, 21)]
    checked = {label for check in ONE_STEP + NATURAL for label in re.findall(r"T(\d+)", check.label)}
    assert checked <= set(labels)


def test_every_method_and_command_has_its_entry(build):
    methods, commands = build.methods_page(), build.commands_page()
    assert [name for name in METHODS if f"| `{name}` |" not in methods] == []
    assert [name for name in main.commands if f"## softmaxdyn {name}\n" not in commands] == []


def test_a_docstring_keeps_its_columns_and_its_signs():
    spec = importlib.util.spec_from_file_location("docs_conf", FOLDER / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    lines = ["|x| of `a|b` for z*.", "", "units   nats", "error   |y|", "", "More", "prose."]
    conf.as_laid_out(None, None, None, None, None, lines)
    columns = [".. code-block:: text", "", "   units   nats", "   error   |y|", ""]
    assert lines == [r"\|x\| of \ ``a|b``\  for z\*.", "", *columns, "More prose.", ""]
