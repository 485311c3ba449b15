"""Do the first 15 % of the steps of a run foretell its reward at the end?

Stands beside figure 5 of Cui et al. 2025 (arXiv:2505.22617).
Run: python experiments/paper/figure_05.py (half a minute; --quick: smaller, into a temporary folder)

|          | the paper                              | here                                                           |
| -------- | -------------------------------------- | -------------------------------------------------------------- |
| models   | language models of one family          | pools of 200 bandits of ten actions (GRPO: 40), logits N(0,    |
|          |                                        | σ²), σ = 0, 1 and 3; 20 seeds                                  |
| tasks    | mathematics, code                      | one correct action a prompt                                    |
| updates  | one algorithm of RL                    | exact PG, exact natural PG, sampled GRPO (8 inner steps)       |
| fit      | a and b by the first 36 steps          | a and b by the first 36 of 236 rows; beside it a straight line |
| forecast | R of the 200 steps that follow, given  | the same                                                       |
|          | their entropy                          |                                                                |
| error    | root mean square, up to 1.9 %          | root mean square of the 200 rows, and |error| in the last one  |
"""

import numpy as np
import parts

from softmaxdyn.laws import EXPONENTIAL, LINEAR
from softmaxdyn.plots import COLOURS, DASHES, three_panels

curves, consumption = (parts.claims_module(name) for name in ("curves", "consumption"))
SEEN = curves.SEEN


def forecast(curve, form=EXPONENTIAL, entropy=None):
    """R of all rows [seeds, rows], or at other entropies [seeds, n], by the form fitted to the first 36."""
    fit = curves.fitted(curve.entropy[:, :SEEN], curve.reward[:, :SEEN], form)
    return curves.predicted(fit, curve.entropy if entropy is None else entropy, form)


def error(curve, form=EXPONENTIAL):
    """The root mean square error of the forecast over the 200 rows not seen, a number a seed."""
    return np.sqrt(((forecast(curve, form) - curve.reward)[:, SEEN:] ** 2).mean(1))


def draw(ax, kind, worlds):
    for colour, curve in zip(COLOURS, worlds.values(), strict=False):
        h, r = (x.mean(0) for x in curve)
        first = np.unique(np.geomspace(1, SEEN, 10).astype(int)) - 1
        grid = np.linspace(h.min(), h.max(), 200)
        ax.plot(h[SEEN::8], r[SEEN::8], "o", color=colour, markersize=3, markerfacecolor="white", markeredgewidth=0.7)
        ax.plot(h[first], r[first], "o", color=colour, markersize=3.5)
        for form, dashes in ((EXPONENTIAL, DASHES[0]), (LINEAR, DASHES[2])):
            said = forecast(curve, form, np.tile(grid, (len(curve.entropy), 1))).mean(0)
            ax.plot(grid, said, color=colour, linestyle=dashes, linewidth=1)
    ax.set(xlabel="entropy, H (nats)", ylabel=f"reward, R ({kind})", ylim=(0.0, 1.3))


def explain(figure, worlds):
    """One legend for the three panels."""
    blank = figure.axes[0]
    handles = [blank.plot([], color=x, label=w.name)[0] for x, w in zip(COLOURS, worlds, strict=False)]
    for label, style in (("seen", {"marker": "o"}), ("held out", {"marker": "o", "markerfacecolor": "white"})):
        handles += blank.plot([], color="0.3", linestyle="", markersize=3.5, label=label, **style)
    for label, dashes in (("forecast by the law", DASHES[0]), ("by a line", DASHES[2])):
        handles += blank.plot([], color="0.3", linestyle=dashes, label=label)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), columnspacing=1.2)


def table(found):
    """A row an update, pool and step: means over the seeds; the forecasts are of each seed's own first rows."""
    rows = []
    for kind, worlds in found.items():
        for world, curve in worlds.items():
            columns = [*curve, forecast(curve), forecast(curve, LINEAR)]
            rows += [
                (kind, world.name, *row) for row in zip(range(curves.ROWS), *(x.mean(0) for x in columns), strict=True)
            ]
    names = "update", "pool", "step", "H", "R", "forecast by the law", "forecast by a line"
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def verdict(found):
    said = []
    for kind, worlds in found.items():
        errors, ends = ([f(x).mean() for x in worlds.values()] for f in (error, consumption.end_error))
        line = [error(x, LINEAR).mean() for x in worlds.values()]
        said.append(
            f"{kind} {min(errors):.3f} … {max(errors):.3f} (at the end up to {max(ends):.3f}; by a line "
            f"{min(line):.3f} … {max(line):.3f})"
        )
    return f"root mean square error of R over the 200 rows held out (paper: up to 0.019): {'; '.join(said)}"


def main():
    found = {k: {w: curves.curve(k, w, parts.size()) for w in curves.PRIORS[::2]} for k in curves.SPEEDS}
    with three_panels(2.5) as (figure, axes):
        for ax, (kind, worlds) in zip(axes, found.items(), strict=True):
            draw(ax, kind, worlds)
        explain(figure, curves.PRIORS[::2])
    parts.write("figure_05", figure, table(found), verdict(found))


if __name__ == "__main__":
    main()
