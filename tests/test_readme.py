"""What the README says is what the code does."""

import importlib.util
import re
from pathlib import Path

import pytest

from softmaxdyn.sweeps.spec import read_spec

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
SPEC = importlib.util.spec_from_file_location("readme", ROOT / "experiments" / "readme.py")
readme = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(readme)
EXAMPLES = [(found[2], found[3]) for found in readme.EXAMPLE.finditer(TEXT)]


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_every_example_prints_what_stands_under_it(code, output):
    assert readme.printed(code) == output


def test_the_first_screen_holds_an_example_of_ten_lines():
    code = EXAMPLES[0][0].strip().splitlines()
    assert len([line for line in code if line.strip()]) <= 10


def test_every_local_link_leads_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert targets
    missing = [t for t in targets if not t.startswith("http") and not (ROOT / t).exists()]
    assert missing == []


def test_the_tables_are_those_of_the_recorded_figures():
    tables = {found[2]: found[3] for found in readme.TABLE.finditer(TEXT)}
    assert tables == {name: write() for name, write in readme.TABLES.items()}


def test_the_sweep_is_one_that_can_be_read(tmp_path):
    (spec,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "grid.toml").write_text(spec)
    plan = read_spec(tmp_path / "grid.toml")
    assert len(plan.cells) == 2 * (2 * 2 + 1)
    assert plan.num_runs == 20 * len(plan.cells)
