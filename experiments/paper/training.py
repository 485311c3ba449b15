"""Runs of GRPO over training, side by side: their curves with bands over the pools, and their columns."""

import numpy as np
from parts import claims_module

from softmaxdyn.plots import COLOURS, DASHES

controls = claims_module("controls")
STEP = "outer step of 8 inner ones"
H, J = "mean entropy, H (nats)", "expected return, J"


def over_training(ax, runs, field):
    """Mean and 95 % interval over the pools of a field of each `Run`, "entropy" or "expected_return", by name."""
    for number, (name, run) in enumerate(runs.items()):
        colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        controls.band(ax, getattr(run, field), colour, name, dashes=dashes)
    ax.set(xlabel=STEP, ylabel={"entropy": H, "expected_return": J}[field])


def legend_across(ax):
    """A legend of one row above this panel and the next ones, which leave its height free for their own."""
    sizes = {"handlelength": 1.6, "columnspacing": 0.9, "handletextpad": 0.4, "borderaxespad": 0.0}
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=9, **sizes).set_in_layout(False)


def ends(ax, coefficients, runs, field, colour, label):
    """The field at the end of each run against its coefficient, one of 0 as a line across."""
    values = np.stack([getattr(run, field)[:, -1] for run in runs], 1)
    positive = np.asarray(coefficients) > 0.0
    controls.band(ax, values[:, positive], colour, label, np.asarray(coefficients)[positive])
    ax.axhline(values[:, ~positive].mean(), color=colour, linewidth=0.7, linestyle=DASHES[2])
    ax.set_xscale("log")


def columns(runs):
    """One row a run and step: means over the pools of H and J, and their standard errors."""
    steps = np.arange(next(iter(runs.values())).entropy.shape[1])
    table = {"run": np.repeat(list(runs), len(steps)), "outer step": np.tile(steps, len(runs))}
    for name, field in (("H", "entropy"), ("J", "expected_return")):
        values = np.stack([getattr(run, field) for run in runs.values()])
        table[f"{name}, mean"] = values.mean(1)
        table[f"{name}, standard error"] = values.std(1, ddof=1) / np.sqrt(values.shape[1])
    return table
