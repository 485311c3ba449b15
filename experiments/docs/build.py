"""Builds the documentation: pages of this folder, pages made from the code, the ledger, the notebooks, which are run as
.ipynb in a fresh kernel each, and the playground. A warning is an error, of a notebook too.

Run: python experiments/docs/build.py [FOLDER] (three minutes); the site is FOLDER/html, by default .cache/docs/html.
"""

import ast
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIGURES = ROOT / "figures"
NOTEBOOKS = ROOT / "experiments" / "notebooks"
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


def joined_rows(lines):
    """Lines in which a row of a table whose first cell is empty goes on with the row above it."""
    joined = []
    for line in lines:
        if re.match(r"\|\s+\|", line) and joined[-1].startswith("| ") and "| ---" not in joined[-1]:
            cells = zip(joined[-1].strip("|").split(" | "), line.strip("|").split(" | "), strict=True)
            joined[-1] = f"| {' | '.join(f'{above.strip()} {below.strip()}' for above, below in cells)} |"
        else:
            joined.append(line)
    return joined


def paper_page():
    """The counterpart of each figure of the paper: what its script asks, what differs, what it draws."""
    parts = ["# The paper's figures, on tables", "", "Each is made by a script of its name in `experiments/paper`."]
    for picture in sorted((ROOT / "figures" / "paper").glob("*.png")):
        script = ROOT / "experiments" / "paper" / f"{picture.stem}.py"
        question, *about = ast.get_docstring(ast.parse(script.read_text("utf-8"))).split("\n")
        about = "\n".join(joined_rows(line for line in about if not line.startswith("Run: ")))
        name = picture.stem.replace("_0", " ").replace("_", " ").capitalize()
        parts += ["", f"## {name}", "", f"**{question}**", about, "", f"![{name}](figures/paper/{picture.name})"]
    return "\n".join(parts) + "\n"


def contents(folder, pages, glob):
    """A hidden table of contents of the files of a folder, in the order of their numbers."""
    names = sorted((page.stem for page in pages.glob(glob)), key=lambda name: int(re.search(r"\d+", name)[0]))
    return "\n".join(["", "```{toctree}", ":hidden:", *(f"{folder}/{name}" for name in names), "```", ""])


def copy_ledger(source):
    """The ledger and its claims where the pages expect them, and all figures."""
    shutil.copytree(FIGURES, source / "figures", ignore=shutil.ignore_patterns("*.md", "*.svg", "claims"))
    shutil.copytree(FIGURES / "claims", source / "claims")
    ledger = (FIGURES / "ledger.md").read_text("utf-8")
    (source / "ledger.md").write_text(ledger + contents("claims", FIGURES / "claims", "C*.md"), "utf-8")


def copy_notebooks(source):
    """The notebooks, which are run when the pages are made, and the list of them."""
    shutil.copytree(NOTEBOOKS, source / "notebooks", ignore=shutil.ignore_patterns("__pycache__", "[0-9]_*.py"))
    (source / "notebooks.md").write_text("# Notebooks\n" + contents("notebooks", NOTEBOOKS, "[0-9]_*.ipynb"), "utf-8")


def moved(text):
    """A page whose links, which lead through the repository, lead through the site."""
    for here, there in (
        ("figures/ledger.md", "ledger.md"),
        ("figures/", "figures/"),
        ("softmaxdyn/playground/", "playground/"),
    ):
        text = text.replace(f"../../{here}", there)
    return text


def plain_kernel(folder):
    """A folder of settings for IPython that are not the user's: no start-up files, nothing said but errors."""
    profile = folder / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n", "utf-8")
    return str(folder)


def main(folder):
    source = folder / "source"
    for old in (source, folder / "html"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__", "build.py"))
    for page in source.glob("*.md"):
        page.write_text(moved(page.read_text("utf-8")), "utf-8")
    for name, write in (("methods", methods_page), ("commands", commands_page), ("paper", paper_page)):
        (source / f"{name}.md").write_text(write(), "utf-8")
    copy_ledger(source)
    copy_notebooks(source)
    shutil.copytree(ROOT / "softmaxdyn" / "playground", source / "as_it_is" / "playground")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", source, folder / "html"]
    subprocess.run(command, check=True, env={**os.environ, "IPYTHONDIR": plain_kernel(folder / "ipython")})
    print(f"built {folder / 'html' / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache" / "docs")
