"""Which estimate of a token's effect on the entropy comes closest to the exact change?

Stands beside the table of accuracies of STEER (arXiv:2510.10150). Run: python experiments/paper/steer_accuracy.py

|            | the paper                            | here                                                            |
| ---------- | ------------------------------------ | --------------------------------------------------------------- |
| model      | language models                      | pools of 200 prompts; 10, 100, 1000 actions; σ = 1, 3           |
| batch      | of their training                    | a group of 8 a prompt, GRPO advantages; 20 pools                |
| truth      | measured change of the entropy       | exact ΔH of one token's push (per sample), and of the mean push |
|            |                                      | of its group (per state); step size .1                          |
| estimators | STEER, covariance proxy              | both, STEER as released (a factor π fewer), exact first order   |
| measures   | MSE, Pearson, Spearman               | the same, the sign, and MSE/Var, 1 for the best constant        |
"""

from parts import claims_module, size, write
from tables import write_markdown

from softmaxdyn.plots import COLOURS, DASHES, panels

steer = claims_module("steer")
SHOWN = {
    "MSE/Var": "mean squared error / Var(ΔH)",
    "Pearson": "Pearson's r with ΔH",
    "Spearman": "Spearman's ρ with ΔH",
    "sign accuracy": "share of the signs right",
}


def rows(table, **wanted):
    """Which rows have these entries."""
    chosen = [table[column] == entry for column, entry in wanted.items()]
    return sum(chosen) == len(chosen)


def drawn(table, spread=1.0):
    """Four measures by the number of actions, of each estimator: per sample (full) and per state (dashed)."""
    with panels(2, 2, 4.4) as (figure, grid):
        axes = [ax for row in grid for ax in row]
        for number, name in enumerate(steer.ESTIMATORS):
            for dashes, truth in zip(DASHES, steer.TRUTHS, strict=False):
                at = rows(table, estimator=name, truth=truth, spread=spread)
                for ax, measure in zip(axes, SHOWN, strict=True):
                    style = {"color": COLOURS[number], "linestyle": dashes, "marker": ".os^"[number], "markersize": 4}
                    ax.semilogx(table["actions"][at], table[measure][at], **style)
            grid[0][0].plot([], [], color=COLOURS[number], marker=".os^"[number], markersize=4, label=name)
        for dashes, truth in zip(DASHES, steer.TRUTHS, strict=False):
            grid[0][0].plot([], [], color="0.4", linestyle=dashes, label=truth)
        for ax, label in zip(axes, SHOWN.values(), strict=True):
            ax.set(xlabel=f"actions, K (σ = {spread:g})", ylabel=label)
        grid[0][0].set_yscale("log")
        sizes = {"ncols": 6, "handlelength": 2.0, "columnspacing": 1.2}
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", **sizes)
    return figure


def best(table, truth):
    """{estimator other than the exact first order: in how many pools it has the highest Spearman}."""
    wins = dict.fromkeys(steer.ESTIMATORS[1:], 0)
    for actions in steer.ACTIONS:
        for spread in steer.SPREADS:
            where = {"actions": actions, "spread": spread, "truth": truth}
            values = {name: table["Spearman"][rows(table, **where, estimator=name)].item() for name in wins}
            wins[max(values, key=values.get)] += 1
    return ", ".join(f"{name} {count}" for name, count in wins.items())


def main():
    """Measures, writes table, figure and numbers."""
    table = steer.accuracy_table(size())
    write_markdown("steer_accuracy", table, "Means over the pools; MSE in nats², spread is the σ of the logits.")
    r = [
        " / ".join(
            f"{table['Pearson'][rows(table, actions=10, spread=1.0, truth=truth, estimator=name)].item():.3f}"
            for name in steer.ESTIMATORS
        )
        for truth in steer.TRUTHS
    ]
    verdict = (
        f"at K = 10 and σ = 1 Pearson's r of {' / '.join(steer.ESTIMATORS)} is {r[0]} per sample and {r[1]} per state; "
        f"among the approximate ones the highest Spearman of the {len(steer.ACTIONS) * len(steer.SPREADS)} kinds of "
        f"pools is that of {best(table, 'per sample')} per sample, {best(table, 'per state')} per state."
    )
    write("steer_accuracy", drawn(table), table, verdict)


if __name__ == "__main__":
    main()
