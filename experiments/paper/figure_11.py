"""How do entropy and return go over training with GRPO, Clip-Higher, Clip-Cov and KL-Cov?

Stands beside figure 11 of arXiv:2505.22617. Run: python experiments/paper/figure_11.py [--quick]

|          | the paper                                      | here                                                   |
| -------- | ---------------------------------------------- | ------------------------------------------------------ |
| model    | Qwen2.5-7B and 32B, mathematics                | 200 prompts of 10 actions, one correct, logits N(0, 1) |
| batch    | 256 prompts × 8, 8 updates                     | 128 prompts × 8, 8 updates; 64 batches, 20 pools       |
| GRPO     | clip of .2                                     | the same, and without a clip                           |
| others   | Clip-Higher .28; Clip-Cov and KL-Cov, no clip  | the same                                               |
| Clip-Cov | r = 2e-4 of the tokens, band 1 … 5             | 3.5 %, band 1 … 5: one of 1024 tokens is 1e-3          |
| KL-Cov   | k = 2e-3, β = 1                                | k = .1, β = 1, the term ∣log r∣ as released            |
| length   | of the responses, too                          | one token                                              |
"""

from parts import claims_module, size, write
from training import H, J, columns, over_training

from softmaxdyn.plots import COLOURS, DASHES, three_panels

controls = claims_module("controls")
LEVEL = 0.6  # of J, which all methods reach
METHODS = {
    "GRPO": controls.PPO,
    "Clip-Higher": controls.HIGHER,
    "Clip-Cov": controls.clip_cov(0.035),
    "KL-Cov": controls.kl_cov(0.1, 1.0),
    "GRPO without a clip": controls.Controls(),
}


def drawn(runs):
    """H and J over training, and J against H."""
    with three_panels(2.5) as (figure, (entropy, value, path)):
        over_training(entropy, runs, "entropy")
        over_training(value, runs, "expected_return")
        for number, run in enumerate(runs.values()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number % len(DASHES)]}
            path.plot(run.entropy.mean(0), run.expected_return.mean(0), **style)
        path.set(xlabel=H, ylabel=J)
        figure.legend(*entropy.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def main():
    """Runs the methods, writes figure and numbers."""
    runs = {name: controls.run(size(), numbers) for name, numbers in METHODS.items()}
    found = ", ".join(f"{name} {run.end.mean():.3f} ({run.final_return.mean():.3f})" for name, run in runs.items())
    equal = [run.entropy_at(LEVEL).mean() for run in runs.values()]
    verdict = (
        f"H in nats (and J) at the end: {found}. Where J first reaches {LEVEL:g} they have "
        f"{', '.join(f'{x:.3f}' for x in equal)} nats in this order, a range of {max(equal) / min(equal) - 1.0:.0%}."
    )
    write("figure_11", drawn(runs), columns(runs), verdict)


if __name__ == "__main__":
    main()
