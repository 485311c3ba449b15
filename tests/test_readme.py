"""What the README and the tables of the documentation say is what the code does."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
SPEC = importlib.util.spec_from_file_location("pages", ROOT / "experiments" / "pages.py")
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)
EXAMPLES = [(found[2], found[3]) for found in pages.EXAMPLE.finditer(TEXT)]


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_every_example_prints_what_stands_under_it(code, output):
    assert pages.printed(code) == output


def test_the_first_screen_holds_an_example_of_ten_lines():
    code = EXAMPLES[0][0].strip().splitlines()
    assert len([line for line in code if line.strip()]) <= 10


def test_every_local_link_leads_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert targets
    missing = [t for t in targets if not t.startswith("http") and not (ROOT / t).exists()]
    assert missing == []


def test_the_tables_are_those_of_the_recorded_figures():
    tables = [found for page in pages.PAGES for found in pages.TABLE.finditer(page.read_text("utf-8"))]
    assert sorted(found[2] for found in tables) == sorted(pages.TABLES)
    assert [found[2] for found in tables if found[3] != pages.TABLES[found[2]]()] == [], "run experiments/pages.py"


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= 160
