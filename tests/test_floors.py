"""How the package hangs together: imports point down only, and `import softmaxdyn` is light and changes nothing."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "softmaxdyn"

FLOORS = [  # lowest first; a folder is one floor
    "errors",
    "configs",
    "policy",
    "change",
    "theory",
    "problems",
    "trajectories",
    "tokens",
    "aggregation",
    "rewards",
    "advantages",
    "estimators",
    "noise",
    "interventions",
    "updates",
    "algorithms",
    "methods",
    "trace",
    "simulation",
    "comparison",
    "results",
    "diagnostics",
    "files",
    "logs",
    "laws",
    "sweeps",
    "verification",
    "plots",
    "log_plots",
    "law_plots",
    "episode_plots",
    "ledger",
    "strategies",
    "bench",
    "cli",
    "__main__",
]
LAZY = {  # imports upward, allowed inside a function
    ("trace", "results"),  # Trace.to_xarray
}
HEAVY = ["click", "hypothesis", "matplotlib", "pandas", "rich", "scipy.stats", "xarray"]


def floor_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(tree, package):
    """(line, dotted name, is it inside a function) of every import that runs; `package` is where `.` points."""

    def visit(node, inside):
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for child in node.orelse:
                    yield from visit(child, inside)
                return
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name, inside
            case ast.ImportFrom():
                up = package[: len(package) - node.level + 1] if node.level else []
                source = [*up, *(node.module.split(".") if node.module else [])]
                for alias in node.names:
                    yield node.lineno, ".".join([*source, alias.name]), inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, False)


def complaints(source, floor, package=("softmaxdyn",)):
    """What is wrong with the imports of a module on `floor`; [] when all of them point down."""
    found = []
    for line, name, inside in imports_of(ast.parse(source), list(package)):
        root, _, rest = name.partition(".")
        if root != "softmaxdyn":
            continue
        target = rest.split(".")[0]
        if target not in FLOORS:
            found.append(f"line {line}: {name} is no floor; import from the module that defines it")
        elif FLOORS.index(target) > FLOORS.index(floor) and not (inside and (floor, target) in LAZY):
            found.append(f"line {line}: {floor} imports {target}, which is above it")
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_module_has_a_floor():
    assert {floor_of(path) for path in MODULES} <= set(FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path):
    assert complaints(path.read_text("utf-8"), floor_of(path), path.relative_to(ROOT).parent.parts) == []


@pytest.mark.parametrize(
    "source",
    [
        "import jax.numpy as jnp",
        "from softmaxdyn.policy import entropy",
        "from .policy import entropy",
        "from . import policy",
        "import softmaxdyn.simulation",
        "if TYPE_CHECKING:\n    from softmaxdyn.cli import main",
    ],
)
def test_a_downward_import_passes(source):
    assert complaints(source, "simulation") == []


def test_an_upward_import_on_the_list_passes_inside_a_function_only():
    line = "from .results import labelled"
    assert complaints(f"def to_xarray():\n    {line}", "trace") == []
    assert len(complaints(line, "trace")) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import softmaxdyn",
        "import softmaxdyn.cli",
        "from softmaxdyn import Bandit",
        "from softmaxdyn import cli",
        "from .results import labelled",
        "from . import sweeps",
        "def late():\n    from softmaxdyn.plots import curve",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import softmaxdyn.cli",
    ],
)
def test_an_upward_import_is_found(source):
    assert len(complaints(source, "simulation")) == 1


def test_a_relative_import_in_a_folder_is_found():
    package = ("softmaxdyn", "problems")
    assert complaints("from .bandit import Bandit\nfrom ..policy import probs", "problems", package) == []
    assert len(complaints("from ..simulation import simulate", "problems", package)) == 1


@pytest.fixture(scope="module")
def fresh_import():
    """What `import softmaxdyn` loads and changes in a process of its own."""
    script = """
import json, os, sys
import jax
before = dict(jax.config.values), dict(os.environ)
import softmaxdyn
after = dict(jax.config.values), dict(os.environ)
changed = [key for b, a in zip(before, after) for key in b.keys() | a.keys() if b.get(key) != a.get(key)]
print(json.dumps({"modules": sorted(sys.modules), "changed": changed}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def test_import_is_light(fresh_import):
    assert [module for module in HEAVY if module in fresh_import["modules"]] == []


def test_import_changes_no_global_setting(fresh_import):
    assert fresh_import["changed"] == []


# Each is written in two pieces, so that this file does not hold it.
FORBIDDEN = [
    "".join(pieces).encode()
    for pieces in [
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("deb.", "debian.org"),
        ("crates", ".io"),
        ("..", "/shared"),
        ("/wo", "rk/"),
    ]
]


def test_the_repository_holds_no_registry_host_nor_a_path_outside_it():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    assert [
        (path.relative_to(ROOT).as_posix(), text.decode())
        for path in paths
        for text in FORBIDDEN
        if text in path.read_bytes()
    ] == []
