"""`softmaxdyn run`: simulate, print a table, write traces and a figure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from softmaxdyn import episode_plots, plots, results
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.cli.episodes import mean_end_entropy, mean_trace, print_episodes
from softmaxdyn.cli.group import main, mean_visits, one_of, print_table, problem_options, progress, read_problem
from softmaxdyn.cli.output import FOLDER, output_folder
from softmaxdyn.cli.own import GROUPS, Own, check_returns, load, one_line, own_algorithm
from softmaxdyn.comparison import interval
from softmaxdyn.errors import InputError, check_choice, check_integer, check_number
from softmaxdyn.methods import METHODS, build
from softmaxdyn.problems import Bandit, Problem, Setting
from softmaxdyn.problems.named import named_options
from softmaxdyn.simulation import simulate
from softmaxdyn.trace import Trace
from softmaxdyn.updates import NaturalPG, Update, VanillaPG

UPDATES: dict[str, tuple[str, Any, float]] = {  # name, class, default step size
    "pg": ("PG", VanillaPG, 0.4),
    "npg": ("NPG", NaturalPG, 0.025),
}
ROWS = 12  # of a printed table


@main.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option("--update", **one_of("update", *UPDATES), help="Default: both, or the update of the method.")
@click.option("--step-size", type=float, help="η. Default: 0.4 over the mean visits of a state (pg), 0.025 (npg).")
@click.option("--steps", type=int, default=400, show_default=True)
@click.option("--every", type=int, default=1, show_default=True, help="Record every so many steps.")
@click.option("--dtype", default="float64", show_default=True, **one_of("dtype", "float32", "float64"))
@click.option("--out", metavar="FOLDER", help=f"An existing folder. Default: {FOLDER}, made if need be.")
@click.option(
    "--method",
    help="A named method (`softmaxdyn methods`) or FILE.py:NAME, an intervention or Algorithm of your own; "
    "its numbers are options: --fraction 0.02.",
)
@click.option("--mode", **one_of("mode", "sampled", "exact"), help="Of a method. Default: sampled.")
@click.option("--inner-steps", type=int, default=1, show_default=True, help="Updates a batch, of a method.")
@click.option("--groups", type=int, help=f"Prompts a batch, of a method. Default: {GROUPS}.")
@click.option("--group-size", type=int, help="Responses a prompt, of a method. Default: 8 (brorl: 512).")
@click.option("--seeds", type=int, default=1, show_default=True, help="Runs of a method that draws.")
@problem_options("mirror")
@click.pass_context
def run(
    ctx: click.Context,
    update: str | None,
    step_size: float | None,
    steps: int,
    every: int,
    dtype: str,
    seed: int,
    out: str | None,
    method: str | None,
    mode: str | None,
    inner_steps: int,
    groups: int | None,
    group_size: int | None,
    seeds: int,
    problem: str,
    columns: tuple[str, ...],
    **options: int | float | None,
) -> None:
    """Simulate policy gradient or a method: print a table, write the traces (netCDF) and figures (PNG and SVG)."""
    for name, count in {"--steps": steps, "--every": every, "--inner-steps": inner_steps, "--seeds": seeds}.items():
        check_integer(name, count, 1)
    check_integer("--seed", seed, 0)
    check_number("--step-size", 0.0 if step_size is None else step_size, low=0.0)
    jax.config.update("jax_enable_x64", True)
    own = None if method is None else load(method)
    known: Mapping[str, int | float] = own.numbers if own else METHODS[method].numbers if method else {}
    numbers = _numbers(ctx, method, own, known) | _shared_numbers(known, problem, options)
    setting = read_problem(problem, seed, columns, options)
    logits = np.asarray(setting.logits, dtype)
    updates = {UPDATES[kind][0]: _update(kind, step_size, setting) for kind in ([update] if update else UPDATES)}
    given = updates[UPDATES[update][0]] if update else None
    eta: Any = (given or updates["PG"]).step_size
    batch: dict[str, Any] = {"mode": mode, "groups": groups, "group_size": group_size, "update": given}
    if own:
        with one_line(own):
            chosen = own_algorithm(own.with_numbers(numbers), default_step=eta, step_size=step_size, **batch)
            check_returns(own, setting.problem, chosen, logits)
        algorithms = {own.name: chosen}
    elif method:
        batch |= {"mode": mode or "sampled", "groups": GROUPS if groups is None else groups}
        algorithms = {method: build(method, step_size=eta, **batch, **numbers)}
    else:
        algorithms = {name: Algorithm(part) for name, part in updates.items()}
    folder = output_folder(out)
    runs = {}
    for name, algorithm in algorithms.items():
        keys = jax.random.split(jax.random.key(seed), seeds) if algorithm.estimator.draws else [None]
        fixed: dict[str, Any] = {"num_steps": steps, "inner_steps": inner_steps, "every": every, "logits": logits}
        with one_line(own), progress(name, steps * len(keys), steps * len(keys) * logits.size) as advance:
            runs[name] = [
                simulate(setting.problem, algorithm, key=key, progress=_after(advance, number * steps), **fixed)
                for number, key in enumerate(keys)
            ]
    traces = {name: mean_trace(several) for name, several in runs.items()}
    single = isinstance(setting.problem, Bandit)
    written = _write(folder, runs, traces, {"command": ctx.obj, "setting": setting.note, "seed": seed}, single)
    click.echo(setting.note)
    for name, trace in traces.items():
        count = len(runs[name])
        several = f", mean over {count} seeds" if count > 1 else ""
        made = algorithms[name].update if method is None else algorithms[name]
        click.echo(f"\n{name}: {made}, {steps} step{'s' * (steps > 1)}, {dtype}{several}")
        _print_table(name, trace)
        _print_end(name, setting.problem, runs[name])
        if not single:
            print_episodes(name, setting.problem, runs[name], trace, steps)
    for note in results.remarks(setting.problem, logits, traces):
        click.echo(f"note: {note}")
    click.echo(f"\nwrote {', '.join(map(str, written))}")


def _numbers(ctx: click.Context, method: str | None, own: Own | None, known: Collection[str]) -> dict[str, Any]:
    """The options that click does not know, as numbers of the method. Raises InputError for any that it lacks."""
    options = [name for parameter in ctx.command.params for name in parameter.opts]
    found: dict[str, Any] = {}
    rest = iter(ctx.args)
    for arg in rest:
        name, equals, text = arg.partition("=")
        number = name[2:].replace("-", "_")
        if not name.startswith("--"):
            raise InputError(f"unexpected argument {arg!r}; wanted options (--help lists them)")
        if method is None and any(number in each.numbers for each in METHODS.values()):
            raise InputError(f"{name} is a number of a method; add --method NAME (`softmaxdyn methods` lists them)")
        if own and isinstance(own.part, Algorithm):
            raise InputError(f"unknown option {name!r}; the numbers of {own.name}, an Algorithm, are set in {own.file}")
        check_choice("option", name, options + [f"--{each.replace('_', '-')}" for each in known])
        try:
            found[number] = float(text if equals else next(rest))
        except (ValueError, StopIteration):
            raise InputError(f"{name} wants a number, e.g. {name} 0.02") from None
    return found


def _shared_numbers(known: Collection[str], problem: str, options: dict[str, Any]) -> dict[str, Any]:
    """Takes out of `options` what the problem lacks and the method has as a number of the same name."""
    taken = named_options()
    lacks = [name for name in taken if problem.replace("-", "_") not in taken[name] and options[name] is not None]
    return {name: options.pop(name) for name in lacks if name in known}


def _after(advance: Callable[[int], None] | None, before: int) -> Callable[[int], None] | None:
    return None if advance is None else lambda done: advance(before + done)


def _update(kind: str, step_size: float | None, setting: Setting) -> Update:
    _, update, default = UPDATES[kind]
    scale = mean_visits(setting) if update is VanillaPG else 1.0
    return update(float(f"{default / scale:.12g}") if step_size is None else step_size)


def _write(
    folder: Path,
    runs: Mapping[str, list[Trace]],
    traces: Mapping[str, Trace],
    attributes: Mapping[str, Any],
    single: bool,
) -> list[Path]:
    figures = {"dynamics": plots.dynamics(traces)} | ({} if single else {"episodes": episode_plots.episodes(traces)})
    files = []
    for name, several in runs.items():
        path = folder / f"dynamics_{name.lower()}.nc"
        alone = len(several) == 1
        files.append(
            results.save(several[0], path, attributes) if alone else results.save_runs(several, path, attributes)
        )
    return files + [file for name, figure in figures.items() for file in plots.save_figure(figure, folder / name)]


def _print_table(name: str, trace: Trace) -> None:
    theorem = plots.THEOREMS.get(name, "theorem_1")
    columns = {
        "step": trace.step,
        "return\nJ": trace.expected_return,
        "entropy\nH": results.visit_mean(trace, "entropy"),
        "exact\nΔH": results.visit_mean(trace, "entropy_change"),
        "Lemma 1": results.visit_mean(trace, "lemma_1"),
        plots.PREDICTIONS[theorem]: results.visit_mean(trace, theorem),
        "remainder": results.visit_mean(trace, "remainder"),
        "certified\nbound": results.visit_mean(trace, "bound"),
    }
    rows = np.unique(np.linspace(0, len(trace.step) - 1, ROWS).round().astype(int))
    print_table({heading: [_cell(heading, values[row]) for row in rows] for heading, values in columns.items()})


def _print_end(name: str, problem: Problem, traces: list[Trace]) -> None:
    ends = np.array([[trace.final_expected_return, mean_end_entropy(problem, trace)] for trace in traces])
    if len(traces) == 1:
        click.echo(f"{name} ends at J = {ends[0, 0]:.6g} with H = {ends[0, 1]:.6g} nats")
        return
    (J, *J_ends), (H, *H_ends) = map(interval, ends.T)
    spans = [f"[{low:.4g}, {high:.4g}]" for low, high in (J_ends, H_ends)]
    click.echo(
        f"{name} ends at J = {J:.4g} {spans[0]} with H = {H:.4g} {spans[1]} nats (95 % bootstrap over the seeds)"
    )


def _cell(heading: str, value: Any) -> str:
    if heading == "step":
        return str(value)
    plain = heading.startswith(("return", "entropy")) and (value == 0 or 1e-3 <= abs(value) < 1e4)
    return f"{value:.5f}" if plain else f"{value + 0.0:.3e}"
