"""What does a KL penalty to the start do over training, coefficient by coefficient?

Stands beside figure 10 of arXiv:2505.22617. Run: python experiments/paper/figure_10.py [--quick]

|             | the paper                                   | here                                                    |
| ----------- | ------------------------------------------- | ------------------------------------------------------- |
| model       | Qwen2.5-7B, mathematics                     | 200 prompts of 10 actions, one correct, logits N(0, 1)  |
| algorithm   | GRPO, groups of 8, 8 updates a batch        | the same, 64 batches, no clip; 20 pools                 |
| penalty     | β KL to the first policy, estimated         | β KL(π‖π₀), exact on the prompts of the batch           |
| coefficient | .001, .01, .05, .1                          | .001 to 3, the rewards being 0 and 1                    |
| return      | validation accuracy                         | exact J on the prompts of the training                  |
"""

import numpy as np
from parts import claims_module, size, write
from training import columns, ends, legend_across, over_training

from softmaxdyn.plots import COLOURS, labelled, three_panels

controls = claims_module("controls")
COEFFICIENTS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 1.0, 3.0)
SHOWN = (0.0, 0.01, 0.1, 0.3, 1.0, 3.0)


def drawn(runs):
    """H and J over training, and both at the end by coefficient, the paper's own shaded."""
    with three_panels(2.5) as (figure, (entropy, value, end)):
        shown = {f"β = {each:g}": runs[each] for each in SHOWN}
        over_training(entropy, shown, "entropy")
        over_training(value, shown, "expected_return")
        legend_across(entropy)
        for number, (field, name) in enumerate((("entropy", "H (nats)"), ("expected_return", "J"))):
            ends(end, COEFFICIENTS, runs.values(), field, COLOURS[number], name)
        end.axvspan(0.001, 0.1, color="0.9", linewidth=0, zorder=0)
        labelled(end, "coefficient β (reward/nat)", "at the end (dotted: β = 0)")
    return figure


def main():
    """Runs the grid, writes figure and numbers."""
    runs = {each: controls.run(size(), controls.Controls(reference=each)) for each in COEFFICIENTS}
    height = np.array([run.end.mean() for run in runs.values()])
    value = np.array([run.final_return.mean() for run in runs.values()])
    rises, falls = (np.diff(height) > 0.0).all(), (np.diff(value) < 0.0).all()
    verdict = (
        f"H at the end {'rises' if rises else 'does not always rise'} with β and J {'falls' if falls else 'does not '}"
        f"{'' if falls else 'always fall'}: from {height[0]:.2f} nats and {value[0]:.3f} without a penalty to "
        f"{height[4]:.2f} and {value[4]:.3f} at the paper's largest β = .1 and {height[-1]:.2f} and {value[-1]:.3f} "
        f"at β = {COEFFICIENTS[-1]:g}."
    )
    numbers = columns({f"{each:g}": run for each, run in runs.items()})
    write("figure_10", drawn(runs), {"β": numbers.pop("run"), **numbers}, verdict)


if __name__ == "__main__":
    main()
