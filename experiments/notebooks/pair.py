"""Writes the .ipynb of every notebook from its .py, without outputs. Run: python experiments/notebooks/pair.py"""

from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("[0-9]_*.py"))


def paired(source):
    """The text of the notebook of a source; ids of cells are their places, so that it is the same each time."""
    book = jupytext.read(source)
    book.metadata["language_info"] = {"name": "python"}
    for place, cell in enumerate(book.cells):
        cell["id"] = f"cell-{place}"
    return nbformat.writes(book) + "\n"


def main():
    for source in SOURCES:
        source.with_suffix(".ipynb").write_text(paired(source), "utf-8")
        print(f"wrote {source.with_suffix('.ipynb').name}")


if __name__ == "__main__":
    main()
