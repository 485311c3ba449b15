"""Tables in Markdown."""

import numpy as np
from parts import folder

from softmaxdyn.results import whole_file


def cell(value):
    """Text and integers as they are, other numbers with three digits."""
    whole = isinstance(value, str | int | np.integer)
    return str(value) if whole else f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("-", "−")


def write_markdown(name, columns, above):
    """Writes name.md: a line `above`, then the columns (of one length) by name."""
    rows = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    with whole_file(folder() / f"{name}.md") as unfinished:
        unfinished.write_text("\n".join([above, "", *lines, ""]), encoding="utf-8", newline="\n")
