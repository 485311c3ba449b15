"""Are a and b of R = −a exp(H) + b linear in the logarithm of the size of the model?

Stands beside figure 7 of Cui et al. 2025 (arXiv:2505.22617).
Run: python experiments/paper/figure_07.py (a minute; --quick: smaller, into a temporary folder)

|         | the paper                              | here                                                           |
| ------- | -------------------------------------- | -------------------------------------------------------------- |
| size    | number of parameters, one family of    | a table has none; what a larger model does have is a better    |
|         | language models                        | prior: m logits more on the correct action (odds times e^m), m |
|         |                                        | = 0 … 3. Beside it, a sharper prior: logits N(0, σ²), σ = 0 …  |
|         |                                        | 3                                                              |
| tasks   | mathematics, code                      | pools of 200 bandits of ten actions (GRPO: 40), one correct;   |
|         |                                        | 20 seeds                                                       |
| updates | one algorithm of RL                    | exact PG, exact natural PG, sampled GRPO (8 inner steps)       |
| fit     | a and b of each model's run            | the same, 236 rows a run                                       |
| axis    | logarithm of the size                  | m, the logarithm of the odds that the prior is better by       |
"""

import numpy as np
import parts

from softmaxdyn.plots import COLOURS, DASHES, three_panels

curves, coefficients = (parts.claims_module(name) for name in ("curves", "coefficients"))
BOOSTS, SPREADS = coefficients.BOOSTS, np.array([world.spread for world in curves.PRIORS])


def by_spread(kind, size):
    """(a, b) [seeds, spreads] of the law on pools with sharper and sharper priors."""
    fits = [curves.fitted(*curves.curve(kind, world, size)) for world in curves.PRIORS]
    return np.moveaxis(np.stack(fits, 1), 2, 0)


def line(x, values):
    """The least-squares straight line of the mean over seeds, at x."""
    return np.polynomial.Polynomial.fit(x, values.mean(0), 1)(x)


def draw(axes, boosted, spread):
    for style, kind in enumerate(boosted):
        look = {"color": COLOURS[style], "marker": "os^"[style], "markersize": 3.5, "linestyle": ""}
        for ax, x, values in ((axes[0], BOOSTS, boosted[kind][0]), (axes[1], BOOSTS, boosted[kind][1])):
            curves.band(ax, x, values, **look)
            ax.plot(x, line(x, values), color=COLOURS[style], linestyle=DASHES[2], linewidth=1)
        curves.band(axes[2], SPREADS, spread[kind][0], **{**look, "linestyle": DASHES[0], "linewidth": 0.8}, label=kind)
    for ax, words in zip(axes, ("a of the law", "b of the law", "a of the law"), strict=True):
        ax.set_ylabel(words)
    for ax in axes[:2]:
        ax.set_xlabel("logit added to correct actions, m")
    axes[2].set_xlabel("spread of the prior's logits, σ")
    axes[0].plot([], color="0.3", linestyle=DASHES[2], label="straight lines fitted")


def table(boosted, spread):
    """A row an update and prior: means over the seeds and their standard errors."""
    rows = []
    for found, names in ((boosted, [f"m = {x:g}" for x in BOOSTS]), (spread, [world.name for world in curves.PRIORS])):
        for kind, (a, b) in found.items():
            columns = a.mean(0), curves.error(a), b.mean(0), curves.error(b)
            rows += [(kind, name, *row) for name, row in zip(names, zip(*columns, strict=True), strict=True)]
    names = "update", "prior", "a", "standard error of a", "b", "standard error of b"
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def verdict(boosted, spread):
    said = []
    for kind, (a, b) in boosted.items():
        fit = [coefficients.straight(x).mean() for x in (a, b)]
        change, sharper = (x[:, -1].mean() / x[:, 0].mean() for x in (a, spread[kind][0]))
        said.append(
            f"{kind}: R² of a line in m is {fit[0]:.2f} for a and {fit[1]:.2f} for b, and a changes by a factor "
            f"{change:.2f} from m = 0 to {BOOSTS[-1]:g}, {sharper:.1f} from σ = 0 to {SPREADS[-1]:g}"
        )
    return "; ".join(said)


def main():
    size = parts.size()
    boosted, spread = ({kind: f(kind, size) for kind in curves.SPEEDS} for f in (coefficients.by_boost, by_spread))
    with three_panels(2.5) as (figure, axes):
        draw(axes, boosted, spread)
        handles = [x for ax in axes[::-2] for x in ax.get_legend_handles_labels()[0]]
        figure.legend(handles=handles, loc="outside upper center", ncols=4)
    parts.write("figure_07", figure, table(boosted, spread), verdict(boosted, spread))


if __name__ == "__main__":
    main()
