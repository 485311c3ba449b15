"""requirements.lock answers pyproject.toml: read from the two files alone, offline."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
REMAKE = "remake it as CONTRIBUTING.md says"


def wanted(requirements):
    """Every requirement of the `dev` environment, the project's own extras unfolded."""
    for requirement in map(Requirement, requirements):
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                yield from wanted(PROJECT["optional-dependencies"][extra])
        else:
            yield requirement


WANTED = list(wanted([*PROJECT["dependencies"], f"{PROJECT['name']}[dev]"]))
ENTRIES = re.findall(r"^([\w.-]+)==([^\s;]+)(.*(?:\n[ ]+.*)*)", LOCK, flags=re.MULTILINE)


def test_every_requirement_is_pinned_at_a_version_it_allows():
    pins = {canonicalize_name(name): version for name, version, _ in ENTRIES}
    unmet = [str(r) for r in WANTED if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0"))]
    assert unmet == [], REMAKE


def test_every_pin_is_still_wanted():
    ours = {canonicalize_name(name) for name, _, rest in ENTRIES if "(pyproject.toml)" in rest}
    assert ours == {canonicalize_name(r.name) for r in WANTED}, REMAKE


def test_every_pin_has_a_hash():
    assert [name for name, _, rest in ENTRIES if "--hash=sha256:" not in rest] == []
