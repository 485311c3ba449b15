"""`softmaxdyn diagnose FILE`: what a recorded training log says about entropy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import diagnostics
from softmaxdyn.cli.group import FOLDER, main, output_folder, pair, print_table, refuse_no_place
from softmaxdyn.diagnostics import Diagnosis, Estimate, Groups, Log, Profile
from softmaxdyn.errors import InputError, check_fraction, check_integer, check_number
from softmaxdyn.interventions.covariance import ClipCov, KLCov
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.interventions.reweighting import Steer
from softmaxdyn.logs import read_log
from softmaxdyn.results import whole_file

NOISE = 1e-3  # nats
EFFECTS = {
    "exact": "exact\nw (S − S̄)",
    "own_logit": "own logit alone\nw S",
    "others_held": "others held\nw (1−π) S",
}
DIVERGENCES = {
    "k1": "KL(π_old‖π) by k1 = −log r",
    "k2": "by k2 = (log r)²/2, biased",
    "k3": "by k3 = r − 1 − log r",
    "chi2": "χ²(π‖π_old) by (r − 1)²",
}


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
@click.option("--out", metavar="FOLDER", help=f"For the figure. Default: {FOLDER}, made if need be.")
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
    named = dict(map(pair, columns))
    folder = output_folder(out)
    refuse_no_place("--json", json_file)
    log = read_log(file, columns=named, drop_nan=drop_nan)
    if log.entropy is None:
        del methods["STEER"]
    jax.config.update("jax_enable_x64", True)
    bounds = {"low": options["clip_low"], "high": options["clip_high"]}
    found, touched = diagnostics.diagnose(log, methods, **bounds, permutations=permutations, seed=seed)
    written = _write(folder, json_file, log, found, touched, {"file": Path(file).name, "seed": seed, **options})
    _print(Path(file).name, found, methods, options)
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _methods(options: Mapping[str, float]) -> dict[str, Intervention]:
    """The methods at their options, which are checked under the names that a person typed."""
    for name in ("clip_cov_fraction", "kl_cov_fraction"):
        check_fraction(_option(name), options[name])
    for name in ("clip_cov_low", "clip_cov_high", "clip_high"):
        check_number(_option(name), options[name], low=0.0 if name == "clip_high" else -np.inf)
    check_number("--clip-low", options["clip_low"], low=0.0, high=1.0)
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
            unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False), "utf-8")
        written = save_figure(figure, folder / "diagnose")
    return written + ([Path(json_file)] if json_file is not None else [])


def _print(name: str, found: Diagnosis, methods: Mapping[str, Intervention], options: Mapping[str, float]) -> None:
    click.echo(f"{name}: {_plural(found.tokens, 'token')}{_episodes(found)}")
    for note in (*found.notes, *_notes(found, methods)):
        click.echo(f"note: {note}")
    _print_tail(found)
    _print_profiles(found.profiles, methods)
    _print_estimates(found)
    _print_ratios(found, options)
    if found.groups is not None:
        _print_groups(found.groups)


def _episodes(found: Diagnosis) -> str:
    groups = "" if found.groups is None else f" in {_plural(found.groups.groups, 'group')}"
    return groups if found.episodes is None else f", {_plural(found.episodes, 'episode')}{groups}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _notes(found: Diagnosis, methods: Mapping[str, Intervention]) -> Iterable[str]:
    if found.ratios.on_policy:
        yield "on policy, every ratio is 1: KL-Cov selects tokens but does not move them, and no clip acts"
    elif found.ratios.largest_log_ratio < NOISE:
        yield (
            f"|log π/π_old| is at most {found.ratios.largest_log_ratio:.1g}, the noise of one policy evaluated twice: "
            "KL-Cov would pull at its tokens with all of its β, in random directions"
        )
    if not found.tail.highest.any():
        yield "every covariance score is 0: log π or A is the same for all tokens"
    if "STEER" not in methods:
        yield "without a column entropy there is no STEER, no −ΔH share and no exact entropy"
    elif "exact" not in found.tail.effects:
        yield "the exact −ΔH of a token needs S̄ = Σ_b π_b² (log π_b + H) too, a column mean_entropy_score"


def _print_tail(found: Diagnosis) -> None:
    tail, runs = found.tail, len(found.tail.permuted_mean)
    click.echo(
        "\nCovariance score C = (log π − mean)(A − mean) of the top tokens; "
        f"permuted: the same with A permuted, mean ± sd of {runs}"
    )
    columns = {
        "top": [f"{100 * fraction:g} %" if fraction < 1 else "all" for fraction in tail.fraction],
        "tokens": [str(count) for count in tail.tokens],
        "mean C": list(map(_number, tail.mean)),
        "permuted\nmean C": _spread(tail.permuted_mean),
        "net\nshare": list(map(_number, tail.net)),
        "gross\nshare": list(map(_number, tail.gross)),
        "permuted\ngross share": _spread(tail.permuted_gross),
    }
    print_table(columns)
    if tail.effects:
        click.echo(
            "\nFirst-order −ΔH of the same tokens, w = (π/π_old) A, S = π (log π + H): net share / gross share\n"
            "  own logit alone: exact for that logit, without S̄; others held: STEER's estimate"
        )
        shares = {name: zip(*both, strict=True) for name, both in tail.effects.items()}
        forms = {EFFECTS[name]: [f"{_number(a)} / {_number(b)}" for a, b in both] for name, both in shares.items()}
        print_table({"top": columns["top"], **forms})


def _spread(values: np.ndarray) -> list[str]:
    """mean ± standard deviation of each column of [P, F]."""
    return [f"{_number(x.mean())} ± {x.std(ddof=1):.1g}" for x in values.T]


def _print_profiles(profiles: Mapping[str, Profile], methods: Mapping[str, Intervention]) -> None:
    click.echo("\nWhat each method would select (STEER: damp, each token weighted with 1 − λ)")
    for name, method in methods.items():
        click.echo(f"  {name}: {method}")
    rows = profiles.values()
    columns = {
        "": list(profiles),
        "tokens": [f"{row.tokens:.6g}" for row in rows],
        "share": [_number(row.share) for row in rows],
        "A > 0": [_number(row.positive) for row in rows],
        "A < 0": [_number(row.negative) for row in rows],
        "A > 0,\nπ > ½": [_number(row.likely_and_good) for row in rows],
        "mean\nπ": [_number(row.mean_probability) for row in rows],
        "median\nπ": [_number(row.median_probability) for row in rows],
        "mean\nC": [_number(row.mean_score) for row in rows],
        "mean\nentropy": [_number(row.mean_entropy) for row in rows],
        "mean\nposition": [_number(row.mean_position) for row in rows],
    }
    print_table({name: cells for name, cells in columns.items() if not name or set(cells) != {"–"}}, left=1)


def _print_estimates(found: Diagnosis) -> None:
    rows: dict[str, Estimate | None] = {DIVERGENCES[name]: value for name, value in found.divergences.items()}
    rows |= {
        "mean surprisal, −log π of the token": found.mean_surprisal,
        "mean entropy, exact H": found.mean_entropy,
        "surprisal − entropy": found.surprisal_minus_entropy,
    }
    click.echo("\nMeans over the tokens (nats; χ²: 1) and their standard errors")
    known = {name: row for name, row in rows.items() if row is not None}
    print_table(
        {
            "": list(known),
            "mean": [_number(row.mean) for row in known.values()],
            "error, tokens\nindependent": [_number(row.error) for row in known.values()],
            "error, episodes\nindependent": [_number(row.error_by_episode) for row in known.values()],
        },
        left=1,
    )


def _print_ratios(found: Diagnosis, options: Mapping[str, float]) -> None:
    r, low, high = found.ratios, 1.0 - options["clip_low"], 1.0 + options["clip_high"]
    click.echo(f"\nRatio π/π_old: smallest {_number(r.smallest)}, mean {_number(r.mean)}, largest {_number(r.largest)}")
    click.echo("  quantiles " + ", ".join(f"{q}: {_number(value)}" for q, value in r.quantiles.items()))
    click.echo(
        f"  outside [{low:g}, {high:g}]: {_number(r.outside)} of the tokens; on the harmful side {_number(r.harmful)} "
        f"(A > 0 above: {_number(r.harmful_above)}, A < 0 below: {_number(r.harmful_below)})"
    )


def _print_groups(groups: Groups) -> None:
    parts = {
        "all advantages equal": groups.equal,
        "all of them 0": groups.zero,
        "all rewards equal": groups.equal_reward,
    }
    known = {name: count for name, count in parts.items() if count is not None}
    click.echo(f"\nGroups without signal, of {groups.groups}:")
    for name, count in known.items():
        click.echo(f"  {name}: {count}, a share of {_number(count / groups.groups)}")
    if groups.one_episode:
        click.echo(f"  {_plural(groups.one_episode, 'group')} of one episode only, which cannot have signal")


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value + 0.0:.4g}"
