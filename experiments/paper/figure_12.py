"""Do r of Clip-Cov and β of KL-Cov set the level of the entropy?

Stands beside figure 12 of arXiv:2505.22617. Run: python experiments/paper/figure_12.py [--quick]

|          | the paper                                | here                                                         |
| -------- | ---------------------------------------- | ------------------------------------------------------------ |
| model    | Qwen2.5-7B, mathematics                  | 200 prompts of 10 actions, one correct, logits N(0, 1)       |
| Clip-Cov | r = 2, 4, 5, 7 · 10⁻⁴, band 1 … 5        | 50 times that, for batches of 1024 tokens; the same band     |
| KL-Cov   | β = .05, .1, .5, 1 with k = 2e-3         | the same β with k = .1, the term ∣log r∣ as released         |
| batch    | 256 prompts × 8, 8 updates               | 128 prompts × 8, 8 updates; 64 batches, 20 pools             |
"""

import numpy as np
from parts import claims_module, size, write
from training import columns, over_training

from softmaxdyn.plots import COLOURS, DASHES, labelled, three_panels

controls, methods = claims_module("controls"), claims_module("covariance_methods")
SCALE = 50  # of the shares of tokens


def sweeps(size):
    """The runs by method and coefficient, the first of each being GRPO without a clip."""
    clipped = {f"r = {100 * SCALE * each:g} %": controls.clip_cov(SCALE * each) for each in methods.RATES}
    pulled = {f"β = {each:g}": controls.kl_cov(SCALE * methods.FRACTION, each) for each in methods.PULLS}
    grids = {"Clip-Cov": clipped, "KL-Cov": pulled}
    base = {"GRPO": controls.run(size)}
    return {name: base | {key: controls.run(size, each) for key, each in grid.items()} for name, grid in grids.items()}


def kept(runs):
    """The share of the entropy lost by GRPO that each other run keeps, [N, M]."""
    base, *others = runs.values()
    return controls.kept(others, base)


def drawn(found):
    """H over training by r and by β, and what each keeps of the entropy."""
    with three_panels(2.7) as (figure, (*panels, response)):
        for number, (ax, (name, runs)) in enumerate(zip(panels, found.items(), strict=True)):
            over_training(ax, runs, "entropy")
            labelled(ax, ax.get_xlabel(), ax.get_ylabel() + f", {name}")
            coefficients = (methods.RATES, methods.PULLS)[number]
            relative = coefficients / coefficients[-1]
            controls.band(response, 100.0 * kept(runs), COLOURS[number], name, relative, DASHES[number])
        response.set_xscale("log")
        labelled(response, "r or β over its largest value", "entropy kept (% of the loss)")
        response.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
    return figure


def main():
    """Runs both sweeps, writes figure and numbers."""
    found = sweeps(size())
    words = []
    for name, runs in found.items():
        shares = kept(runs).mean(0)
        order = "in order" if (np.diff(shares) > 0.0).all() else "not in order"
        words.append(f"{name} keeps {', '.join(f'{100 * x:.1f}' for x in shares)} % of the entropy that GRPO loses")
        words[-1] += f", {order}"
    rows = {f"{name}, {key}": run for name, runs in found.items() for key, run in runs.items()}
    write("figure_12", drawn(found), columns(rows), "; ".join(words) + ".")


if __name__ == "__main__":
    main()
