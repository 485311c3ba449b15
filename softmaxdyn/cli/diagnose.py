"""`softmaxdyn diagnose FILE`: what a recorded training log says about entropy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import diagnostics
from softmaxdyn.cli.diagnosis import print_diagnosis
from softmaxdyn.cli.group import main, pair
from softmaxdyn.cli.output import FOLDER, output_folder, refuse_no_place
from softmaxdyn.diagnostics import Diagnosis, Log
from softmaxdyn.errors import InputError, check_fraction, check_integer, check_number
from softmaxdyn.interventions.covariance import ClipCov, KLCov
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.interventions.reweighting import Steer
from softmaxdyn.logs import read_log
from softmaxdyn.results import whole_file

SEEDS = 2**63 - 1  # the largest that JAX takes


@main.command()
@click.argument("file")
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN", help="The file's name of a column; repeat.")
@click.option("--drop-nan", is_flag=True, help="Leave out tokens with missing, NaN or infinite values.")
@click.option("--clip-cov-fraction", type=float, default=2e-4, show_default=True, help="Of the tokens.")
@click.option("--clip-cov-low", type=float, default=1.0, show_default=True, help="Lowest C of a candidate.")
@click.option("--clip-cov-high", type=float, default=5.0, show_default=True, help="Highest C of a candidate.")
@click.option("--kl-cov-fraction", type=float, default=2e-3, show_default=True, help="Of the tokens.")
@click.option("--steer-smallest", type=float, default=0.7, show_default=True, help="λ_min; needs the entropies.")
@click.option("--clip-low", type=float, default=0.2, show_default=True, help="Ratios below 1 − this are outside.")
@click.option("--clip-high", type=float, default=0.2, show_default=True, help="Ratios above 1 + this are outside.")
@click.option("--permutations", type=int, default=10, show_default=True, help="Of the advantages, as a control.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the permutations and of Clip-Cov's choice.")
@click.option("--out", metavar="FOLDER", help=f"For the figure; made if need be. Default: {FOLDER}.")
@click.option("--json", "json_file", metavar="FILE", help="Write all numbers to FILE.")
def diagnose(
    file: str,
    columns: tuple[str, ...],
    drop_nan: bool,
    permutations: int,
    seed: int,
    out: str | None,
    json_file: str | None,
    **options: float,
) -> None:
    """Diagnose a recorded log: the covariance tail, what interventions would select, divergences, groups.

    FILE is .npz, .jsonl, .csv or .parquet with one token a row: log_prob, old_log_prob, advantage; optional: mask,
    entropy, mean_entropy_score, group, episode, position, reward.
    """
    methods = _methods(options)
    check_integer("--permutations", permutations, 2)
    check_integer("--seed", seed, 0)
    if seed > SEEDS:
        raise InputError(f"--seed is {seed}; wanted at most {SEEDS}")
    named = dict(map(pair, columns))
    folder = output_folder(out)
    refuse_no_place("--json", json_file, file)
    log = read_log(file, columns=named, drop_nan=drop_nan)
    if log.entropy is None:
        del methods["STEER"]
    jax.config.update("jax_enable_x64", True)
    bounds = {"low": options["clip_low"], "high": options["clip_high"]}
    found, touched = diagnostics.diagnose(log, methods, **bounds, permutations=permutations, seed=seed)
    written = _write(folder, json_file, log, found, touched, {"file": Path(file).name, "seed": seed, **options})
    print_diagnosis(Path(file).name, found, methods, options)
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _methods(options: Mapping[str, float]) -> dict[str, Intervention]:
    """The methods at their options, which are checked under the names that a person typed."""
    for name in ("clip_cov_fraction", "kl_cov_fraction"):
        check_fraction(_option(name), options[name])
    for name in ("clip_cov_low", "clip_cov_high"):
        check_number(_option(name), options[name])
    check_number("--clip-low", options["clip_low"], low=0.0, high=1.0)
    check_number("--clip-high", options["clip_high"], low=0.0)
    check_number("--steer-smallest", options["steer_smallest"], low=0.0, high=1.0, open_low=True)
    low, high = options["clip_cov_low"], options["clip_cov_high"]
    if low > high:
        raise InputError(f"--clip-cov-low is {low:g} and --clip-cov-high is {high:g}; wanted low ≤ high")
    return {
        "Clip-Cov": ClipCov(options["clip_cov_fraction"], low, high),
        "KL-Cov": KLCov(options["kl_cov_fraction"]),
        "STEER": Steer(options["steer_smallest"], options["clip_low"], options["clip_high"]),
    }


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _write(
    folder: Path,
    json_file: str | None,
    log: Log,
    found: Diagnosis,
    touched: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
) -> list[Path]:
    from softmaxdyn.log_plots import diagnosis
    from softmaxdyn.plots import save_figure

    figure = diagnosis(log, found, touched)
    with ExitStack() as files:
        if json_file is not None:
            unfinished = files.enter_context(whole_file(json_file))
            content = {"settings": dict(settings), **diagnostics.plain(found)}
            unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
        written = save_figure(figure, folder / "diagnose")
    return written + ([Path(json_file)] if json_file is not None else [])
