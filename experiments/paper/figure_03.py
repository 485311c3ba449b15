"""Does reward follow entropy as R = −a exp(H) + b, whatever the model and the task?

Stands beside figures 3 (mathematics) and 4 (code) of Cui et al. 2025 (arXiv:2505.22617).
Run: python experiments/paper/figure_03.py (a minute; --quick: smaller, into a temporary folder)

|         | the paper                              | here                                                           |
| ------- | -------------------------------------- | -------------------------------------------------------------- |
| models  | language models of four families and   | five priors a task: the spread σ = 0 … 3 of the logits (left), |
|         | several sizes                          | the logit m = −2 … 2 added to correct answers (right)          |
| tasks   | mathematics, code                      | left: bandits of ten actions, one correct; right: bandits of   |
|         |                                        | 20 actions, 5 correct, with pass counts as base models have    |
|         |                                        | them, many prompts nearly unsolved or solved; 40 prompts a     |
|         |                                        | pool                                                           |
| update  | GRPO and others, no KL, no bonus       | sampled GRPO, 8 responses, 8 inner steps, no KL, no bonus      |
| entropy | mean of the tokens of a batch          | mean of the prompts, exact                                     |
| reward  | accuracy on validation problems        | expected reward on the prompts that are trained on             |
| fit     | least squares of a and b, a model      | the same, a pool; beside it a straight line                    |
"""

from typing import NamedTuple

import numpy as np
import parts

from softmaxdyn.laws import EXPONENTIAL, LINEAR
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled, panels

curves, law, worlds = (parts.claims_module(name) for name in ("curves", "law", "worlds"))


class Prior(NamedTuple):
    """A pool with realistic pass counts, so much added to the logits of correct answers."""

    boost: float

    @property
    def name(self):
        return f"m = {self.boost:g}".replace("-", "−")

    def curve(self, size):
        """H and R of sampled GRPO on it."""
        prompts = size(40, 10)
        settings = [curves.boosted(each, self.boost) for each in worlds.realistic_pools(size.seeds, prompts)]
        algorithm = build("grpo", step_size=prompts * curves.SPEEDS[curves.GRPO], groups=prompts)
        return curves.run(settings, algorithm, inner_steps=8)


def tasks(size):
    """{task: {world: curve}}."""
    every = slice(None, None, 2 if size.quick else 1)
    plain = {world: curves.curve(curves.GRPO, world, size) for world in curves.PRIORS[every]}
    counts = {prior: prior.curve(size) for prior in map(Prior, np.arange(-2.0, 3.0)[every])}
    return {"one correct of ten": plain, "realistic pass counts": counts}


def draw(ax, task, each):
    """The means over the seeds at steps 0, 1, 2, 4 …, the law (line) and a straight line (dotted) fitted to them."""
    shown = np.unique(np.geomspace(1, curves.ROWS, 18).astype(int)) - 1
    for colour, (world, curve) in zip(COLOURS, each.items(), strict=False):
        h, r = (x.mean(0) for x in curve)
        grid = np.linspace(h.min(), h.max(), 200)
        ax.plot(h[shown], r[shown], "o", markersize=3, color=colour, label=world.name)
        for form, dashes in ((EXPONENTIAL, DASHES[0]), (LINEAR, DASHES[2])):
            ax.plot(grid, form.predict(form.solve(h, r), grid), color=colour, linestyle=dashes, linewidth=0.9)
    labelled(ax, "entropy, H (nats)", f"reward, R ({task})", columns=3)


def table(found):
    """A row a task, world and step: means over the seeds, and the law and the line fitted to them."""
    rows = []
    for task, each in found.items():
        for world, curve in each.items():
            h, r = (x.mean(0) for x in curve)
            fits = [form.predict(form.solve(h, r), h) for form in (EXPONENTIAL, LINEAR)]
            rows += [(task, world.name, *row) for row in zip(range(len(h)), h, r, *fits, strict=True)]
    return dict(zip(("task", "pool", "step", "H", "R", "the law", "a line"), zip(*rows, strict=True), strict=True))


def verdict(found):
    said = []
    for task, each in found.items():
        fit, line = ([curves.r_squared(x, form).mean() for x in each.values()] for form in (EXPONENTIAL, LINEAR))
        better = np.mean([law.fits_better(x) for x in each.values()])
        said.append(
            f"with {task} R² {min(fit):.3f} … {max(fit):.3f} (a line {min(line):.3f} … {max(line):.3f}; the law is the "
            f"better one on {better:.0%} of the runs)"
        )
    return "; ".join(said)


def main():
    found = tasks(parts.size())
    with panels(1, 2, 3.0) as (figure, (axes,)):
        for ax, (task, each) in zip(axes, found.items(), strict=True):
            draw(ax, task, each)
        fits = zip(("the law", "a straight line"), DASHES[::2], strict=False)
        handles = [axes[0].plot([], color="0.3", linewidth=0.9, linestyle=x, label=name)[0] for name, x in fits]
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
    parts.write("figure_03", figure, table(found), verdict(found))


if __name__ == "__main__":
    main()
