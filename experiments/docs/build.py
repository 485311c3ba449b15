"""Builds the documentation: pages of this folder, pages made from the code, the ledger. Warnings are errors.

Run: python experiments/docs/build.py [FOLDER] (half a minute); the site is FOLDER/html, by default .cache/docs/html.
"""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import click

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from softmaxdyn import cli  # noqa: E402
from softmaxdyn.methods import METHODS  # noqa: E402


def methods_page():
    """Every named method: what it is, its parts, its numbers, and the docstrings of the parts."""
    lines = ["# The methods", "", f"{len(METHODS)} methods by name: `softmaxdyn run --method NAME`, `sd.build(name)`."]
    lines += ["", "| name | what it is | numbers |", "| --- | --- | --- |"]
    for name, method in METHODS.items():
        numbers = ", ".join(f"{key} = {value:g}" for key, value in method.numbers.items())
        lines.append(f"| `{name}` | {method.summary} | {numbers} |")
    lines += ["", "## Their parts", ""]
    parts = {type(part): part for method in METHODS.values() for part in method.parts if dataclasses.is_dataclass(part)}
    for kind in sorted(parts, key=lambda kind: (kind.__module__, kind.__name__)):
        text = "\n".join(f"    {line}".rstrip() for line in (kind.__doc__ or "").strip().splitlines())
        lines += [f"### {kind.__name__}", "", f"`{kind.__module__}`", "", text, ""]
    return "\n".join(lines) + "\n"


def commands_page():
    """The help of every command."""
    parts = ["# The commands", ""]
    for name, command in sorted(cli.main.commands.items()):
        context = click.Context(command, info_name=f"softmaxdyn {name}", max_content_width=100)
        parts += [f"## softmaxdyn {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def copy_ledger(source):
    """The ledger and its claims where the pages expect them."""
    figures = ROOT / "figures"
    shutil.copytree(figures, source / "figures")
    shutil.copytree(figures / "claims", source / "claims")
    pages = sorted((figures / "claims").glob("C*.md"), key=lambda path: int(path.stem[1:]))
    toctree = "\n".join(["", "```{toctree}", ":hidden:", *(f"claims/{path.stem}" for path in pages), "```", ""])
    (source / "ledger.md").write_text((figures / "ledger.md").read_text("utf-8") + toctree, "utf-8")
    for page in (source / "figures").rglob("*.md"):
        page.unlink()


def main(folder):
    source = folder / "source"
    for old in (source, folder / "html"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "methods.md").write_text(methods_page(), "utf-8")
    (source / "commands.md").write_text(commands_page(), "utf-8")
    copy_ledger(source)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(source),
        str(folder / "html"),
    ]
    subprocess.run(command, check=True)
    print(f"built {folder / 'html' / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache" / "docs")
