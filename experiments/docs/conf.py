"""Settings of the documentation. `python experiments/docs/build.py` builds it."""

import re

import softmaxdyn

project = "softmaxdyn"
author = copyright = "softmaxdyn contributors"
release = version = softmaxdyn.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["build.py"]
html_theme = "furo"
html_title = f"softmaxdyn {release}"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "literal"
nitpicky = False


def as_laid_out(app, what, name, item, options, lines):
    """A docstring is plain text in columns: its first paragraph is prose, the rest stays as it is laid out."""
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    first, rest = lines[:end], lines[end:]
    while rest and not rest[0].strip():
        rest = rest[1:]
    kept = ["", ".. code-block:: text", "", *(f"   {line}" for line in rest), ""] if any(rest) else [""]
    lines[:] = [_escaped(line) for line in first] + kept


def _escaped(line):
    parts = line.split("`")
    prose = [re.sub(r"([\\*_|<>])", r"\\\1", part) for part in parts[::2]]
    code = [f"``{part}``" for part in parts[1::2]]
    return "".join(piece for pair in zip(prose, [*code, ""], strict=False) for piece in pair)


def setup(app):
    app.connect("autodoc-process-docstring", as_laid_out)
