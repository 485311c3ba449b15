"""What does the entropy bonus do over training, coefficient by coefficient?

Stands beside figure 9 of arXiv:2505.22617. Run: python experiments/paper/figure_09.py [--quick]

|             | the paper                                   | here                                                    |
| ----------- | ------------------------------------------- | ------------------------------------------------------- |
| model       | Qwen2.5-7B, mathematics                     | 200 prompts of 10 actions, one correct, logits N(0, 1)  |
| algorithm   | GRPO, groups of 8, 8 updates a batch        | the same, 64 batches, no clip; 20 pools                 |
| coefficient | 1e-4, 1e-3, 5e-3, 1e-2                      | 5e-3 to 1, the rewards being 0 and 1                    |
| entropy     | of the tokens of a batch                    | exact, mean over the prompts; at most log 10            |
| return      | validation accuracy                         | exact J on the prompts of the training                  |
"""

import numpy as np
from parts import claims_module, size, write
from training import columns, ends, legend_across, over_training

from softmaxdyn.plots import COLOURS, labelled, three_panels

controls = claims_module("controls")
COEFFICIENTS = (0.0, 0.005, 0.01, 0.05, 0.1, 0.2, 0.35, 1.0)
SHOWN = (0.0, 0.01, 0.1, 0.2, 0.35, 1.0)


def drawn(runs):
    """H and J over training, and both at the end by coefficient, the paper's own shaded."""
    with three_panels(2.5) as (figure, (entropy, value, end)):
        shown = {f"α = {each:g}": runs[each] for each in SHOWN}
        over_training(entropy, shown, "entropy")
        over_training(value, shown, "expected_return")
        legend_across(entropy)
        for number, (field, name) in enumerate((("entropy", "H (nats)"), ("expected_return", "J"))):
            ends(end, COEFFICIENTS, runs.values(), field, COLOURS[number], name)
        end.axvspan(min(COEFFICIENTS[1:]), 0.01, color="0.9", linewidth=0, zorder=0)
        labelled(end, "coefficient α (reward/nat)", "at the end (dotted: α = 0)")
    return figure


def main():
    """Runs the grid, writes figure and numbers."""
    runs = {each: controls.run(size(), controls.Controls(bonus=each)) for each in COEFFICIENTS}
    height = np.array([run.end.mean() for run in runs.values()]) / np.log(controls.ACTIONS)
    value = np.array([run.final_return.mean() for run in runs.values()])
    best = int(value.argmax())
    verdict = (
        f"the paper's largest α = .01 moves H at the end from {height[0]:.2f} to {height[2]:.2f} of log K; between "
        f"α = {COEFFICIENTS[4]:g} and {COEFFICIENTS[-1]:g} it goes from {height[4]:.2f} to {height[-1]:.2f} while J "
        f"falls from {value[4]:.2f} to {value[-1]:.2f}. The best J is {value[best]:.3f} at α = {COEFFICIENTS[best]:g}, "
        f"against {value[0]:.3f} without a bonus."
    )
    numbers = columns({f"{each:g}": run for each, run in runs.items()})
    write("figure_09", drawn(runs), {"α": numbers.pop("run"), **numbers}, verdict)


if __name__ == "__main__":
    main()
