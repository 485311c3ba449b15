"""`softmaxdyn compare`: the report card of a method beside others and its controls."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import plots
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.cli.group import main, mean_visits, print_table, problem_options, read_problem
from softmaxdyn.cli.output import output_folder, refuse_no_place
from softmaxdyn.cli.own import GROUP_SIZE, GROUPS, Own, check_returns, load, one_line, own_algorithm
from softmaxdyn.comparison import Card, Row, report_card
from softmaxdyn.diagnostics import plain
from softmaxdyn.errors import check_choice, check_integer, check_number
from softmaxdyn.estimators import Sampled
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems import Bandit
from softmaxdyn.results import whole_file

USUAL = ("grpo", "kl_cov", "clip_cov", "steer", "entropy_bonus")
POOL = {"prompts": 20, "actions": 10, "correct": 0.2}  # smaller than that of `run`


@main.command()
@click.argument("method")
@click.option("--against", multiple=True, metavar="NAME …", help=f"Named methods. Default: {' '.join(USUAL)}.")
@click.option("--steps", type=int, default=300, show_default=True)
@click.option("--inner-steps", type=int, default=4, show_default=True)
@click.option(
    "--step-size", type=float, help="η. Default: 0.5 over the mean visits of a state; of your own Algorithm: its own."
)
@click.option("--groups", type=int, help=f"Prompts a step. Default: {GROUPS}; of your own Algorithm: its own.")
@click.option(
    "--group-size", type=int, help=f"Responses a prompt. Default: {GROUP_SIZE}; of your own Algorithm: its own."
)
@click.option("--seeds", type=int, default=20, show_default=True)
@click.option("--out", metavar="FOLDER", help="An existing folder for the figure. Default: softmaxdyn-out.")
@click.option("--json", "json_file", metavar="FILE", help="Also write the card as JSON.")
@problem_options("pool", **POOL)
def compare(
    method: str,
    against: tuple[str, ...],
    steps: int,
    inner_steps: int,
    step_size: float | None,
    groups: int | None,
    group_size: int | None,
    seeds: int,
    out: str | None,
    json_file: str | None,
    problem: str,
    seed: int,
    columns: tuple[str, ...],
    **options: Any,
) -> None:
    """Print and draw the report card of METHOD: a name, or FILE.py:NAME, an intervention or Algorithm of your own."""
    given = {
        "groups": GROUPS if groups is None else groups,
        "group_size": GROUP_SIZE if group_size is None else group_size,
    }
    counts = {"--steps": steps, "--inner-steps": inner_steps, "--groups": given["groups"], "--seeds": seeds}
    for name, count in counts.items():
        check_integer(name, count, 1)
    check_integer("--group-size", given["group_size"], 2)
    check_number("--step-size", 1.0 if step_size is None else step_size, low=0.0, open_low=True)
    refuse_no_place("--json", json_file)
    others = [name for names in against for name in names.replace(",", " ").split()] or USUAL
    for name in others:
        check_choice("method", name, METHODS)
    if problem == "pool":
        options = POOL | {k: v for k, v in options.items() if v is not None}
    setting = read_problem(problem, seed, columns, options)
    jax.config.update("jax_enable_x64", True)
    own = load(method)
    eta = 0.5 / mean_visits(setting) if step_size is None else step_size
    common: dict[str, Any] = {"step_size": eta, **given}
    typed: dict[str, Any] = {"step_size": step_size, "groups": groups, "group_size": group_size}
    algorithm = own_algorithm(own, default_step=eta, **typed) if own else build(method, **common)
    against_others = {name: build(name, **common) for name in others}
    folder = output_folder(out)
    with one_line(own):
        if own:
            check_returns(own, setting.problem, algorithm, setting.logits)
            population = dataclasses.replace(algorithm, estimator=algorithm.estimator.population())
            check_returns(own, setting.problem, population, setting.logits)
        card = report_card(
            setting.problem,
            (own.name if own else method, algorithm),
            against_others,
            logits=setting.logits,
            num_steps=steps,
            inner_steps=inner_steps,
            seeds=seeds,
            seed=seed,
        )
    click.echo(setting.note)
    if own:
        _note_sizes(own, algorithm, **common)
    _print(card, steps, inner_steps, seeds)
    if not isinstance(setting.problem, Bandit):
        click.echo("note: H is the mean entropy of a token; a state counts as often as it is visited")
    written = plots.save_figure(plots.comparison(card), folder / "comparison")
    if json_file is not None:
        with whole_file(json_file) as unfinished:
            unfinished.write_text(json.dumps(_plain(card), indent=1) + "\n", "utf-8")
        written.append(Path(json_file))
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _note_sizes(own: Own, algorithm: Algorithm, step_size: float, groups: int, group_size: int) -> None:
    """Says which numbers an Algorithm of one's own runs with, where the others have different ones."""
    estimator, eta = algorithm.estimator, float(algorithm.update.step_size)
    sizes = f"estimator {type(estimator).__name__}"
    if isinstance(estimator, Sampled):
        sizes = f"{estimator.groups} groups of {estimator.group_size}"
    mine, theirs = f"step size {eta:g}, {sizes}", f"step size {step_size:g}, {groups} groups of {group_size}"
    if mine != theirs:
        click.echo(f"note: {own.name} runs with its own numbers ({mine}), the others with {theirs}")


def _print(card: Card, steps: int, inner_steps: int, seeds: int) -> None:
    least, mean = card.cosine
    first = "is plain policy gradient to the bit" if card.no_op else "differs from plain policy gradient"
    late = f", first at a policy {card.acts_at} plain steps on" if card.acts_at else ""
    click.echo(f"\n{card.rows[0].name}: {card.kind}{late}")
    click.echo(
        f"the first inner step {first}; the first outer step ({inner_steps} inner) is {card.speed:.4g} × as long"
    )
    click.echo(
        f"cosine of the expected first step with π∘(Q − V): least {least:.6f}, mean {mean:.6f} over the states\n"
    )
    at_return, at_entropy = f"H at\nJ = {card.matched_return:.3f}", f"J at\nH = {card.matched_entropy:.3f}"
    headings = ("J\nat the end", "H\nat the end", at_return, at_entropy, "H in correct\nat J = 0.9")
    columns = {"": [row.name for row in card.rows]}
    for heading, field in zip(headings, Row._fields[1:-1], strict=True):
        columns[heading] = [_interval(getattr(row, field)) for row in card.rows]
    columns["tokens\ntouched"] = [f"{100 * row.selected:.2f} %" for row in card.rows]
    print_table(columns, left=1)
    click.echo(f"\n{steps} steps, mean over {seeds} seeds ± half of its 95 % bootstrap interval; –: not reached")
    controls = [f"speed-matched: plain policy gradient, step size × {card.speed:.4g}"]
    if any(row.name == "shuffled" for row in card.rows):
        controls.append("shuffled: the same changes of score, on random tokens")
    click.echo("; ".join(controls))
    click.echo(
        "touched: share of the tokens that the method changed; H in correct: entropy of the policy given success"
    )
    if card.sensitivity:
        click.echo("\nwhat halving and doubling a number changes at the end (paired by seed)")
        named = list(card.sensitivity)
        print_table(
            {
                "number": [f"{name} × {factor:g}" for name, factor, *_ in named],
                "ΔJ": [_interval(change, "+") for _, _, change, _ in named],
                "ΔH": [_interval(change, "+") for *_, change in named],
            },
            left=1,
        )


def _interval(value: tuple[float, float, float], sign: str = "") -> str:
    mean, low, high = value
    return "–" if np.isnan(mean) else f"{mean:{sign}.4f} ± {0.5 * (high - low):.4f}"


def _plain(card: Card) -> Mapping[str, Any]:
    """The card without its paths, as JSON takes it: NaN becomes null."""
    return {name: plain(value) for name, value in card._asdict().items() if name != "paths"}
