"""Is the covariance what the entropy loses, and do easier prompts have a larger one?

Stands beside figure 8 of arXiv:2505.22617: covariance and step-wise fall of the entropy during on-policy GRPO, and the
covariance of prompts by their accuracy. Run: python experiments/paper/figure_08.py [--quick]

|            | the paper                                   | here                                                    |
| ---------- | ------------------------------------------- | ------------------------------------------------------- |
| model      | Qwen2.5-7B                                  | tables of logits: token trees (left), 20 actions (else) |
| algorithm  | on-policy GRPO, groups of 8, no clip        | the same                                                |
| covariance | of one length-normalised response, a group  | the same (left); of the whole policy (middle, right)    |
| entropy    | of the tokens of a batch                    | exact, of a mean token                                  |
| difficulty | passes of a group of 8                      | exact accuracy to the nearest eighth, at each step      |
"""

import numpy as np
from parts import claims_module, size, write

from softmaxdyn import build, theory
from softmaxdyn.plots import COLOURS, DASHES, labelled, three_panels
from softmaxdyn.policy import centred

theorems, worlds = claims_module("theorems"), claims_module("worlds")
EIGHTHS = np.arange(1, 8)
FORMS = ("A/std", "A")
FEWEST = 20  # prompts of one accuracy, over all pools, to be shown


def by_prompt(problem, step_size, policy, delta, selected):
    """Of each prompt: its accuracy, Cov(log π, π A/std) and Cov(log π, π A)."""
    rewards = problem.action_values(policy.prob)
    advantage, accuracy = centred(policy, rewards), (policy.prob * rewards).sum(-1)
    covariance, std = -theory.theorem_1(policy.logits, advantage, 1.0), (accuracy * (1.0 - accuracy)) ** 0.5
    return {"accuracy": accuracy, FORMS[0]: covariance / std, FORMS[1]: covariance}


def by_accuracy(fields, form, axes, fewest=1):
    """Mean covariance over `axes` of [N, T, S] of the prompts nearest to each eighth; NaN if fewer than `fewest`."""
    near = np.rint(8.0 * fields["accuracy"]) == EIGHTHS[:, None, None, None]
    count, total = near.sum(axes), np.where(near, fields[form], 0.0).sum(axes)
    return total / np.where(count >= fewest, count, np.nan)


def trained(size):
    """The fields of `by_prompt` [N, T, S] along on-policy GRPO from pools as pass counts of a base model give them."""
    prompts = size(worlds.PROMPTS, 40)
    algorithm = build("grpo", step_size=0.3 * prompts, groups=prompts)
    pools = worlds.realistic_pools(size.seeds, prompts)
    return worlds.follow(pools, algorithm, size(100, 60), observe=by_prompt)[0]


def drawn(covariance, fall, over_time, whole):
    """The three panels."""
    with three_panels(2.5) as (figure, (left, middle, right)):
        theorems.over_steps({"η × covariance": covariance, "−ΔH": fall}, "nats a step")(left)
        for number, eighth in enumerate((7, 4, 1)):
            line = {"color": COLOURS[number], "linestyle": DASHES[number], "label": f"{eighth}/8"}
            middle.plot(over_time[eighth - 1], **line)
        labelled(middle, "step", "covariance with A/std (nats)", columns=3)
        for number, form in enumerate(FORMS):
            line = whole[form].T, COLOURS[number + 3], form, EIGHTHS / 8.0, DASHES[number]
            claims_module("controls").band(right, *line)
        labelled(right, "accuracy of the prompt", "mean covariance (nats)")
        middle.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
    return figure


def words(form, values):
    """How the mean covariances by eighth go from accuracy 1/8 to 1/2 to 7/8."""
    three = values[[0, 3, 6]]
    rises = "rises" if (np.diff(three) > 0.0).all() else "does not rise throughout"
    return f"{rises} with {form} ({', '.join(f'{x:.3f}' for x in three)} nats)"


def rows(curves):
    """Columns of curves {name: (x, y)}, one row a point; what was not found is left out."""
    found = [(name, *point) for name, xy in curves.items() for point in zip(*xy, strict=True) if np.isfinite(point[1])]
    return dict(zip(("curve", "step or accuracy", "nats"), zip(*found, strict=True), strict=True))


def main():
    """Runs both, writes figure and numbers."""
    sizes = size()
    covariance, fall, _ = theorems.monitored(worlds.trees(sizes.seeds), "sampled", sizes(150, 60))
    r = theorems.each_correlation(theorems.smooth(covariance), theorems.smooth(fall)).mean()
    fields = trained(sizes)
    over_time = by_accuracy(fields, FORMS[0], (1, 3), FEWEST)
    whole = {form: by_accuracy(fields, form, (2, 3)) for form in FORMS}
    mean = {form: np.nanmean(values, 1) for form, values in whole.items()}
    verdict = (
        f"smoothed over 15 steps the covariance follows the fall of H (r = {r:.2f}) and is "
        f"{covariance.sum() / fall.sum():.1f} times as large; from accuracy 1/8 to 1/2 to 7/8 the covariance of "
        f"prompts {'; '.join(words(*each) for each in mean.items())}; with A/std it is highest at "
        f"{EIGHTHS[mean[FORMS[0]].argmax()]}/8."
    )
    curves = {"η × covariance": covariance.mean(0), "fall of H": fall.mean(0)}
    curves |= {f"covariance at accuracy {eighth}/8": over_time[eighth - 1] for eighth in EIGHTHS}
    points = {name: (np.arange(len(y)), y) for name, y in curves.items()}
    points |= {f"mean covariance with {form}": (EIGHTHS / 8.0, y) for form, y in mean.items()}
    write("figure_08", drawn(covariance, fall, over_time, whole), rows(points), verdict)


if __name__ == "__main__":
    main()
