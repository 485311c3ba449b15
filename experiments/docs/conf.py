"""Settings of the documentation. `python experiments/docs/build.py` builds it."""

import re

import softmaxdyn

project = "softmaxdyn"
author = copyright = "softmaxdyn contributors"
release = version = softmaxdyn.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_output_stderr = "error"
exclude_patterns = ["as_it_is"]
html_extra_path = ["as_it_is"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_title = f"softmaxdyn {release}"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "literal"
nitpicky = False


def as_laid_out(app, what, name, item, options, lines):
    """A docstring is plain text: paragraphs of prose, and columns or formulas that stay as they are laid out."""
    paragraphs = [paragraph.split("\n") for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))]
    lines[:] = [line for paragraph in paragraphs for line in _as_markup(paragraph)]


def _as_markup(paragraph):
    if any(line.startswith(" ") or "   " in line for line in paragraph):
        return [".. code-block:: text", "", *(f"   {line}" for line in paragraph), ""]
    return [_escaped(" ".join(paragraph)), ""]


def _escaped(text):
    parts = text.split("`")
    prose = [re.sub(r"([\\*_|<>])", r"\\\1", part) for part in parts[::2]]
    code = [rf"\ ``{part}``\ " for part in parts[1::2]]  # letters may touch it
    return "".join(piece for pair in zip(prose, [*code, ""], strict=False) for piece in pair)


def setup(app):
    app.connect("autodoc-process-docstring", as_laid_out)
