"""Does entropy collapse at once, and is most of it, and of the gain in reward, used up early in training?

Stands beside figure 2 of Cui et al. 2025 (arXiv:2505.22617).
Run: python experiments/paper/figure_02.py (half a minute; --quick: smaller, into a temporary folder)

|         | the paper                              | here                                                           |
| ------- | -------------------------------------- | -------------------------------------------------------------- |
| models  | 11 language models, averaged           | pools of 200 bandits of ten actions (GRPO: 40), logits N(0,    |
|         |                                        | σ²), averaged over σ = 0, 0.5, 1, 2, 3, and 20 seeds           |
| tasks   | verifiable mathematics and code        | one correct action a prompt                                    |
| updates | GRPO, RLOO, PRIME, REINFORCE++         | exact PG, exact natural PG, sampled GRPO (8 inner steps)       |
| entropy | mean of the tokens of a batch          | mean of the prompts, exact                                     |
| reward  | accuracy on validation problems        | expected reward on the prompts that are trained on             |
| length  | 2400 steps                             | 235 steps, and the same runs cut off at 24 … 235               |
| terms   | neither entropy bonus nor KL           | neither                                                        |
"""

import numpy as np
import parts

from softmaxdyn.plots import COLOURS, DASHES, three_panels

curves, consumption = (parts.claims_module(name) for name in ("curves", "consumption"))
AT = (1 / 12, 1 / 3)  # of training
PAPER = {"entropy used": (0.73, 0.94), "gain made": (0.76, 0.93)}
PARTS_OF_RUN = np.linspace(0.0, 1.0, curves.ROWS)


def mean_curve(kind, size):
    """H and R [seeds, rows] of an update, averaged over the pools as the paper does over models."""
    priors = curves.PRIORS[::2] if size.quick else curves.PRIORS
    return curves.Curve(*np.mean([curves.curve(kind, world, size) for world in priors], 0))


def shares(values, horizon=consumption.STEPS, at=PARTS_OF_RUN):
    """What is used up of a run of `horizon` steps after each part of it, [seeds, parts]."""
    return np.stack([consumption.at_share(values, horizon, part) for part in at], 1)


def draw(figure, panels, found):
    steps = np.arange(curves.ROWS)
    for colour, (kind, curve) in zip(COLOURS, found.items(), strict=False):
        for ax, values in zip(panels, curve, strict=False):
            curves.band(ax, steps, values, color=colour)
        for values, dashes in zip(curve, DASHES, strict=False):
            panels[2].plot(PARTS_OF_RUN, shares(values).mean(0), color=colour, linestyle=dashes, linewidth=1.1)
        panels[0].plot([], color=colour, label=kind)
        panels[0].plot([], " ", label=" ")  # a column of the legend is an update, or a meaning
    for (what, points), dashes, mark in zip(PAPER.items(), DASHES, "os", strict=False):
        panels[2].plot([], color="0.3", linestyle=dashes, linewidth=1.1, label=what)
        panels[2].plot(AT, points, mark, color="k", markersize=4, label=f"{what}, paper", zorder=4)
    panels[2].set(xscale="log", xlim=(0.005, 1.0), ylim=(0.0, 1.02))
    panels[2].set_xticks([0.01, *AT, 1.0], ["1/100", "1/12", "1/3", "1"])
    panels[2].minorticks_off()
    names = ("step", "mean entropy, H (nats)"), ("step", "mean reward, R"), ("part of training", "share of the run's")
    for ax, (x, y) in zip(panels, names, strict=True):
        ax.set(xlabel=x, ylabel=y)
    handles = [x for ax in (panels[0], panels[2]) for x in ax.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=5)


def table(found):
    """A row an update and step: means over the seeds and the standard errors of H and R."""
    columns = {"update": np.repeat(list(found), curves.ROWS), "step": np.tile(np.arange(curves.ROWS), len(found))}
    for place, (name, used) in enumerate((("H", "entropy used"), ("R", "gain made"))):
        values = [curve[place] for curve in found.values()]
        columns[name] = [x.mean(0) for x in values]
        columns[f"standard error of {name}"] = [curves.error(x) for x in values]
        columns[used] = [shares(x).mean(0) for x in values]
    return columns


def verdict(found):
    said = []
    for kind, curve in found.items():
        early, late = shares(curve.entropy, at=AT).mean(0)
        cut = [shares(curve.entropy, length, AT[:1]).mean() for length in consumption.HORIZONS]
        said.append(f"{kind} {early:.0%} and {late:.0%} ({min(cut):.0%} … {max(cut):.0%} by 1/12 if cut off earlier)")
    return f"entropy used by 1/12 and 1/3 of training (paper: 73 % and 94 %): {'; '.join(said)}"


def main():
    found = {kind: mean_curve(kind, parts.size()) for kind in curves.SPEEDS}
    with three_panels(2.5) as (figure, panels):
        draw(figure, panels, found)
    parts.write("figure_02", figure, table(found), verdict(found))


if __name__ == "__main__":
    main()
