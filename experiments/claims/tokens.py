"""Covariances of prompts and of tokens: which are large, which matter, which way they push."""

import numpy as np

from softmaxdyn import theory
from softmaxdyn.ledger import Finding, claim, exactly
from softmaxdyn.plots import COLOURS, labelled

ACCURACIES = np.array([0.125, 0.5, 0.875])


def one_correct(p, actions):
    """(logits, rewards) of prompts with success probability p [N], one correct action, the others alike: [N, K]."""
    wrong = np.broadcast_to(np.log((1.0 - p) / (actions - 1))[:, None], (len(p), actions - 1))
    rewards = np.zeros((len(p), actions))
    rewards[:, 0] = 1.0
    return np.concatenate([np.log(p)[:, None], wrong], 1), rewards


def covariances(p, actions):
    """−ΔH to first order for η = 1 by kind of update: vanilla PG, natural PG, natural PG with A divided by its std."""
    logits, rewards = one_correct(p, actions)
    vanilla, natural = (-np.asarray(f(logits, rewards - p[:, None], 1.0)) for f in (theory.theorem_1, theory.theorem_2))
    return {"PG": vanilla, "natural PG": natural, "natural PG, A / std": natural / np.sqrt(p * (1.0 - p))}


@claim(
    "C16",
    "Harder prompts have a smaller covariance: that at accuracy 1/8 is below that at 1/2, and that below 7/8.",
    source="Cui et al. 2025 (arXiv:2505.22617), section 2 and figure 8",
    threshold="Cov(.125) < Cov(.5) < Cov(.875)",
)
def harder_prompts_have_a_smaller_covariance(size):
    """Prompts with one correct action among K = 10, the wrong ones alike, at every accuracy p: the covariance of
    Theorem 1 and that of Theorem 2, which is p(1−p) log(p/q) with q = (1−p)/(K−1). The statistic is the smaller of the
    two steps up, Cov(.5) − Cov(.125) and Cov(.875) − Cov(.5). The same with advantages divided by their standard
    deviation, as GRPO does, for every K up to 1000. No chance is involved.
    """
    found = covariances(ACCURACIES, 10)
    wanted = {"at_least": np.finfo(float).tiny}
    steps = {kind: exactly(f"smaller step up, {kind}", np.diff(x).min(), **wanted) for kind, x in found.items()}
    counts, p = np.arange(3, 1001), ACCURACIES[:, None]
    ordered = np.diff(np.sqrt(p * (1.0 - p)) * np.log(p * (counts - 1) / (1.0 - p)), axis=0).min(0) > 0.0
    limit = counts[~ordered][0]
    grid = np.linspace(0.01, 0.99, 99)
    curves = covariances(grid, 10)
    top = {kind: grid[x.argmax()] for kind, x in curves.items()}

    def draw(ax):
        for colour, (kind, x) in zip(COLOURS, curves.items(), strict=False):
            ax.plot(grid, x / x.max(), color=colour, label=kind)
            ax.plot(ACCURACIES, found[kind] / x.max(), "o", color=colour)
        labelled(ax, "accuracy of the prompt, p", "covariance over its maximum", columns=3)

    return Finding(
        (steps["PG"], steps["natural PG"], steps["natural PG, A / std"]._replace(deciding=False)),
        counterexample=f"K = 10, p = 1/2 and 7/8: {found['natural PG'][1]:.3f} > {found['natural PG'][2]:.3f} (natural "
        f"PG), {found['PG'][1]:.3f} > {found['PG'][2]:.3f} (PG).",
        only_when=f"advantages are divided by their standard deviation and there are fewer than {limit} actions",
        says=f"The covariance is a hump: it is largest at p = {top['natural PG']:.2f} under natural PG and at "
        f"{top['PG']:.2f} under PG, since an advantage has variance p(1−p). Dividing by its root moves the top to "
        f"{top['natural PG, A / std']:.2f}.",
        boundary=f"With GRPO's division the order is that of the claim up to K = {limit - 1} and lost from {limit} on.",
        meaning="That hard prompts have a small covariance says little about difficulty: it is what GRPO's division by "
        "the standard deviation of a group makes of a hump. Entropy is lost fastest on prompts that are half solved.",
        table={"accuracy": grid, **curves},
        panels=(draw,),
    )
