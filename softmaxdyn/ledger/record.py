"""What is kept of a claim that was tried: a record, a figure, its numbers and a page, in the folder `claims`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from softmaxdyn.diagnostics import plain
from softmaxdyn.errors import InputError
from softmaxdyn.ledger.findings import Claim, Finding, Size, verdict
from softmaxdyn.ledger.pages import page
from softmaxdyn.plots import panels, save_figure
from softmaxdyn.results import whole_file

HEIGHT = 2.6  # inches of a figure
MOST_POINTS = 200  # of a cloud that an SVG keeps as shapes: thousands weigh a megabyte
_WORDS = ("says", "boundary", "meaning", "only_when", "cannot", "counterexample")


def maker(size: Size, source: str) -> dict[str, str]:
    """What a record depends on besides the claim."""
    version = sys.modules["softmaxdyn"].__version__
    versions = {"softmaxdyn": version, "jax": jax.__version__, "numpy": np.__version__}
    return {**versions, "size": size.name, "source": source}


def keep(folder: Path, claim: Claim, finding: Finding, made_by: Mapping[str, str]) -> dict[str, Any]:
    """Writes the figure, the numbers, the page and last of all the record, which it returns."""
    if finding.panels:
        save_figure(_figure(finding), folder / claim.id)
    if finding.table:
        _write(folder / f"{claim.id}.csv", _csv(claim, finding.table))
    record = as_record(claim, finding, made_by)
    _write(folder / f"{claim.id}.md", page(record))
    _write(folder / f"{claim.id}.json", to_json(record))
    return record


def as_record(claim: Claim, finding: Finding, made_by: Mapping[str, str]) -> dict[str, Any]:
    """The claim, its verdict and the words and numbers of the finding as JSON takes them (an infinite bound: null)."""
    return {
        "id": claim.id,
        "statement": claim.statement,
        "source": claim.source,
        "threshold": claim.threshold,
        "verdict": verdict(claim, finding),
        "statistics": plain(finding.statistics),
        **{word: getattr(finding, word) for word in _WORDS},
        "experiment": claim.experiment,
        "figure": bool(finding.panels),
        "numbers": bool(finding.table),
        "made_by": dict(made_by),
    }


def kept_records(folder: Path, made_by: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The records that the folder holds, by id; one that is damaged is not among them.

    Raises InputError for one of another version of softmaxdyn or another size: its ledger must not be mixed with this.
    """
    found = {}
    for path in sorted(folder.glob("C*.json")):
        try:
            record = json.loads(path.read_text("utf-8"))
            made = record["made_by"]
            size, version = made["size"], made["softmaxdyn"]
        except (ValueError, KeyError, TypeError):
            continue  # damaged: it is made again
        if (size, version) != (made_by["size"], made_by["softmaxdyn"]):
            raise InputError(
                f"{str(folder)!r} holds a {size} ledger of softmaxdyn {version}, and this would be a {made_by['size']} "
                f"one of {made_by['softmaxdyn']}; pass another --out FOLDER, or --fresh to replace it"
            )
        found[path.stem] = record
    return found


def to_json(record: Any) -> str:
    """The text of a file of JSON."""
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _figure(finding: Finding) -> Any:
    with panels(1, len(finding.panels), HEIGHT) as (figure, (axes,)):
        for draw, ax in zip(finding.panels, axes, strict=True):
            draw(ax)
            for line in ax.lines:
                alone = line.get_linestyle() == "None"
                line.set_rasterized(alone and np.size(line.get_xdata()) > MOST_POINTS)
    return figure


def _csv(claim: Claim, table: Mapping[str, Any]) -> str:
    import pandas as pd

    columns = {name: np.asarray(column).ravel() for name, column in table.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the columns of {claim.id} have lengths {lengths}; wanted one length")
    return str(pd.DataFrame(columns).to_csv(index=False, lineterminator="\n"))


def _write(path: Path, text: str) -> None:
    with whole_file(path) as unfinished:
        unfinished.write_text(text, "utf-8")
