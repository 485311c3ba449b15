"""Where claims come from: the modules of a folder, one a family, each with its `claim`s."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.ledger.findings import Claim


def claims_folder() -> Path:
    """The claims of this installation: those of the wheel, or those beside the package in a clone."""
    package = Path(__file__).parents[1]
    places = package / "claims", package.parent / "experiments" / "claims"
    found = next((place for place in places if (place / "__init__.py").is_file()), None)
    if found is None:
        raise InputError("no claims are installed; run it in a clone of the repository (pip install -e .)")
    return found


def load_claims(folder: Path | None = None) -> dict[str, Claim]:
    """All claims by id, in the order of their numbers."""
    package = _loaded(claims_folder() if folder is None else folder)
    found = {each for module in package for each in vars(module).values() if isinstance(each, Claim)}
    claims = {each.id: each for each in sorted(found, key=lambda each: each.number)}
    if len(claims) < len(found):
        raise InputError("two claims have one id; wanted each of them once")
    return claims


def _loaded(folder: Path) -> list[ModuleType]:
    """The modules of a folder that is a package, without the name of what lies around it."""
    package = f"softmaxdyn_claims_{sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
    if package not in sys.modules:
        spec = importlib.util.spec_from_file_location(package, folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    return [importlib.import_module(f"{package}.{name}") for name in names]


def chosen(claims: dict[str, Claim], wanted: Iterable[str]) -> list[Claim]:
    """The claims of these ids (any case), all if there are none. Raises InputError that suggests the nearest."""
    ids = [check_choice("claim", _tidy(each), claims) for each in wanted]
    return [claims[each] for each in dict.fromkeys(ids)] if ids else list(claims.values())


def _tidy(name: str) -> str:
    digits = re.fullmatch(r"\s*[cC]?0*(\d+)\s*", name)
    return f"C{digits[1]}" if digits else name


def source_hash(folder: Path) -> str:
    """Of the source files of the package, its commands left out, and of the claims in `folder`."""
    package = Path(__file__).parents[1]
    files = sorted({*package.rglob("*.py"), *folder.rglob("*.py")} - {*(package / "cli").rglob("*.py")})
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
