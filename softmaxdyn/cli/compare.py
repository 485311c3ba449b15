"""`softmaxdyn compare`: the report card of a method beside others and its controls."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import plots
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.cli.group import (
    main,
    mean_visits,
    output_folder,
    print_table,
    problem_options,
    read_problem,
    refuse_no_place,
)
from softmaxdyn.comparison import Card, Row, report_card
from softmaxdyn.diagnostics import plain
from softmaxdyn.errors import InputError, check_choice, check_integer, check_number
from softmaxdyn.estimators import Sampled
from softmaxdyn.interventions import Intervention
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems import Bandit
from softmaxdyn.results import whole_file
from softmaxdyn.updates import VanillaPG

USUAL = ("grpo", "kl_cov", "clip_cov", "steer", "entropy_bonus")


@main.command()
@click.argument("method")
@click.option("--against", multiple=True, metavar="NAME …", help=f"Named methods. Default: {' '.join(USUAL)}.")
@click.option("--steps", type=int, default=300, show_default=True)
@click.option("--inner-steps", type=int, default=4, show_default=True)
@click.option("--step-size", type=float, help="η. Default: 0.5 over the mean visits of a state.")
@click.option("--groups", type=int, default=16, show_default=True, help="Prompts a step.")
@click.option("--group-size", type=int, default=8, show_default=True, help="Responses a prompt.")
@click.option("--seeds", type=int, default=20, show_default=True)
@click.option("--out", metavar="FOLDER", help="An existing folder for the figure. Default: softmaxdyn-out.")
@click.option("--json", "json_file", metavar="FILE", help="Also write the card as JSON.")
@problem_options("pool")
def compare(
    method: str,
    against: tuple[str, ...],
    steps: int,
    inner_steps: int,
    step_size: float | None,
    groups: int,
    group_size: int,
    seeds: int,
    out: str | None,
    json_file: str | None,
    problem: str,
    seed: int,
    columns: tuple[str, ...],
    **options: Any,
) -> None:
    """Print and draw the report card of METHOD: a name, or FILE.py:NAME, an intervention or Algorithm of your own."""
    for name, count in {"--steps": steps, "--inner-steps": inner_steps, "--groups": groups, "--seeds": seeds}.items():
        check_integer(name, count, 1)
    check_integer("--group-size", group_size, 2)
    check_number("--step-size", 1.0 if step_size is None else step_size, low=0.0, open_low=True)
    refuse_no_place("--json", json_file)
    others = [name for names in against for name in names.replace(",", " ").split()] or USUAL
    for name in others:
        check_choice("method", name, METHODS)
    if problem == "pool":
        options = {"prompts": 20, "actions": 10, "correct": 0.2} | {k: v for k, v in options.items() if v is not None}
    setting = read_problem(problem, seed, columns, options)
    jax.config.update("jax_enable_x64", True)
    eta = 0.5 / mean_visits(setting) if step_size is None else step_size
    common: dict[str, Any] = {"step_size": eta, "groups": groups, "group_size": group_size}
    own = build(method, **common) if method in METHODS else _loaded(method, Sampled(groups, group_size), VanillaPG(eta))
    against_others = {name: build(name, **common) for name in others}
    folder = output_folder(out)
    card = report_card(
        setting.problem,
        (method.rpartition(":")[2], own),
        against_others,
        logits=setting.logits,
        num_steps=steps,
        inner_steps=inner_steps,
        seeds=seeds,
        seed=seed,
    )
    click.echo(setting.note)
    _print(card, inner_steps, seeds)
    if not isinstance(setting.problem, Bandit):
        click.echo("note: H is the mean entropy of a token; a state counts as often as it is visited")
    written = plots.save_figure(plots.comparison(card), folder / "comparison")
    if json_file is not None:
        with whole_file(json_file) as unfinished:
            unfinished.write_text(json.dumps(_plain(card), indent=1) + "\n", "utf-8")
        written.append(Path(json_file))
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _loaded(method: str, estimator: Sampled, update: VanillaPG) -> Algorithm:
    """The algorithm of FILE.py:NAME; an intervention joins GRPO without a clip."""
    path, _, name = method.rpartition(":")
    if not path.endswith(".py"):
        check_choice("method", method, METHODS)
    if not Path(path).is_file():
        raise InputError(f"no file {path!r}; wanted FILE.py:NAME or a named method (`softmaxdyn methods` lists them)")
    spec = importlib.util.spec_from_file_location("own_method", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception as error:
        raise InputError(f"{path!r} does not run: {type(error).__name__}: {error}") from None
    found = getattr(module, check_choice(f"name in {path}", name, [n for n in vars(module) if not n.startswith("_")]))
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise InputError(f"{name} cannot be made without arguments ({error}); give its numbers defaults") from None
    if isinstance(found, Algorithm):
        return found
    if not isinstance(found, Intervention):
        raise InputError(f"{name} in {path!r} is {found!r}; wanted an Intervention or an Algorithm")
    return Algorithm(update, estimator, (found,))


def _print(card: Card, inner_steps: int, seeds: int) -> None:
    least, mean = card.cosine
    first = "is plain policy gradient to the bit" if card.no_op else "differs from plain policy gradient"
    click.echo(f"\n{card.rows[0].name}: {card.kind}")
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
    click.echo(f"\nmean over {seeds} seeds ± half of its 95 % bootstrap interval; –: not reached")
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
