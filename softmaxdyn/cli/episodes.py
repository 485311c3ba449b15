"""What `run` prints of problems of several steps: how the change of H̄ splits, and three kinds of entropy."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn.cli.group import print_table
from softmaxdyn.policy import Policy, softmax
from softmaxdyn.problems import Problem
from softmaxdyn.results import FIELDS, visit_mean
from softmaxdyn.trace import Trace
from softmaxdyn.trajectories import trajectory_entropy

POSITIONS = 12  # of a printed table


def mean_trace(traces: list[Trace]) -> Trace:
    """The mean over runs: of a field x of states Σ_runs d x / Σ_runs d, so that visit means are right as well."""
    mean = jax.tree.map(lambda *xs: np.asarray(np.mean(xs, 0)), *traces)
    fixed: dict[str, Any] = {"step": traces[0].step}
    if len(traces) > 1:
        visits = np.stack([np.asarray(trace.visits) for trace in traces])
        share = np.divide(visits, visits.mean(0), out=np.ones_like(visits), where=visits.mean(0) > 0.0)
        for name in (name for name, field in FIELDS.items() if "state" in field.dims and "action" not in field.dims):
            if name != "visits":
                values = np.stack([np.asarray(getattr(trace, name)) for trace in traces])
                weight = share if "step" in FIELDS[name].dims else share[:, -1]
                fixed[name] = np.mean(weight * np.where(weight > 0.0, values, 0.0), 0)
    return dataclasses.replace(mean, **fixed)


def mean_end_entropy(problem: Problem, trace: Trace) -> float:
    """H at the end, a mean over the states by their visits at the end."""
    end = _end(trace)
    return float(trajectory_entropy(problem, end) / jnp.sum(problem.visits(end.prob)))


def print_episodes(name: str, problem: Problem, traces: list[Trace], mean: Trace, steps: int) -> None:
    """H̄ at the start and at the end and the two parts of its change; on token trees the entropies behind it.

    `mean` is the mean of the `traces`, the runs of `name`, each of so many steps.
    """
    end = np.mean([float(trajectory_entropy(problem, _end(trace))) for trace in traces])
    rows = len(mean.step)
    when = f" in {steps} step{'s' * (steps > 1)}:" if rows == steps else f"; the {rows} recorded steps made"
    local, moved = (float(np.sum(part)) for part in (mean.local_change, mean.visitation_change))
    click.echo(
        f"{name} takes the entropy of an episode from {float(mean.trajectory_entropy[0]):.6g} to {end:.6g} nats{when}"
        f" {local:+.4g} with the visits frozen (what the theorems know), {moved:+.4g} by moved visits"
    )
    if "response_entropy" in mean.measures:
        _print_entropies(name, problem, traces, mean)


def _print_entropies(name: str, problem: Problem, traces: list[Trace], mean: Trace) -> None:
    ends = jax.tree.map(lambda *xs: np.mean(xs, 0), *(problem.measures(_end(trace)) for trace in traces))
    token = float(visit_mean(mean, "entropy")[0]), np.mean([mean_end_entropy(problem, trace) for trace in traces])
    pairs = {key: (np.asarray(values)[0], ends[key]) for key, values in mean.measures.items()}
    columns = {
        f"{name}: entropy\nin nats": ["start", "end"],
        "whole\nresponse": map(_cell, pairs["response_entropy"]),
        "final\nanswer": map(_cell, pairs["answer_entropy"]),
        "mean\ntoken": map(_cell, token),
    }
    start, stop = pairs["position_entropy"]
    for at in np.unique(np.linspace(0, len(start) - 1, POSITIONS).round().astype(int)):
        columns[f"token\n{at + 1}"] = [_cell(start[at]), _cell(stop[at])]
    print_table(columns, left=1)


def _end(trace: Trace) -> Policy:
    return softmax(jnp.asarray(trace.logits))


def _cell(value: Any) -> str:
    return f"{value:.5f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.3e}"
