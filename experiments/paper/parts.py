"""What the scripts of this folder share: the claims' own runs, the size of a run, and where its results go."""

import importlib
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn.ledger import Size  # noqa: E402
from softmaxdyn.plots import save_figure  # noqa: E402
from softmaxdyn.results import whole_file  # noqa: E402


def size():
    """The full size, or a quick one if the command line has --quick."""
    return Size(quick="--quick" in sys.argv[1:])


def folder():
    """figures/paper, or a temporary folder for quick runs; it is made if it is not there."""
    found = Path(tempfile.gettempdir()) / "softmaxdyn_paper" if size().quick else ROOT / "figures" / "paper"
    found.mkdir(parents=True, exist_ok=True)
    return found


def claims_module(name):
    """A module of experiments/claims, such as "curves", and so its worlds and its runs."""
    return importlib.import_module(f"experiments.claims.{name}")


def write(name, figure, numbers, verdict):
    """Writes name.png and name.svg (none if `figure` is None) and name.csv, columns of one length; prints the verdict.

    Numbers have six digits in the table. Each file is whole or not there.
    """
    columns = {key: np.asarray(column).ravel() for key, column in numbers.items()}
    if figure is not None:
        save_figure(figure, folder() / name)
    with whole_file(folder() / f"{name}.csv") as unfinished:
        pd.DataFrame(columns).to_csv(unfinished, index=False, lineterminator="\n", float_format="%.6g")
    print(f"{name}: {verdict}")
