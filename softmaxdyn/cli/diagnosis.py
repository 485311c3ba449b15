"""A diagnosis on the terminal: notes, then a table for each of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click
import numpy as np

from softmaxdyn.cli.group import print_table
from softmaxdyn.diagnostics import Diagnosis, Estimate, Groups, Profile
from softmaxdyn.interventions.protocol import Intervention

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


def print_diagnosis(
    name: str, found: Diagnosis, methods: Mapping[str, Intervention], options: Mapping[str, float]
) -> None:
    """Prints what was found in the file `name` by these methods; `options` has the bounds clip_low and clip_high."""
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
