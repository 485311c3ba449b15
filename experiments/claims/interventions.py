"""Interventions beside each other: Clip-Higher, and whether entropy says anything about return."""

from functools import cache

import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.comparison import crossing
from softmaxdyn.configs import Number, config
from softmaxdyn.interventions.covariance import batch_score
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.ledger import Finding, claim, correlation_of, mean, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.tokens import ratio

from .controls import (
    ABOVE_0,
    CUI,
    HIGHER,
    PPO,
    REVIEW,
    SOLVED,
    Controls,
    band,
    clip_cov,
    drift,
    entropy_curves,
    kl_cov,
    percent,
    run,
    text,
    train,
    world,
)

CLIPS = (0.2, 0.28, 0.4, 0.8)
METHODS = {
    "no clip": Controls(),
    "clip .2": PPO,
    "Clip-Higher": HIGHER,
    "Clip-Cov 1 %": clip_cov(0.01),
    "Clip-Cov 3.5 %": clip_cov(0.035),
    "KL-Cov .1": kl_cov(0.1, 0.1),
    "KL-Cov 1": kl_cov(0.1, 1.0),
    "bonus .1": Controls(bonus=0.1),
    "bonus .3": Controls(bonus=0.3),
    "reference .1": Controls(reference=0.1),
    "reference .3": Controls(reference=0.3),
    "controller .3": Controls(target=0.3, gain=0.02),
}


@config
class Admitted(Intervention):
    """Changes nothing; reports the tokens of A > 0 and ratio in (low, high]: what a wider upper clip lets through."""

    low: Number = 1.2
    high: Number = 1.28

    def inside(self, tokens):
        """1 for those tokens."""
        r = ratio(tokens)
        inside = (tokens.advantage > 0.0) & (r > self.low) & (r <= self.high) & (tokens.weight > 0.0)
        return inside.astype(r.dtype)

    def __call__(self, key, tokens, policy, push):
        return push._replace(selected=self.inside(tokens))


@config
class AdmittedScore(Admitted):
    """The same, times their covariance score: its mean over that of `Admitted` is the mean score of those tokens."""

    def __call__(self, key, tokens, policy, push):
        return push._replace(selected=self.inside(tokens) * batch_score(key, tokens))


@config
class AdmittedSurprise(Admitted):
    """The same, times −log π."""

    def __call__(self, key, tokens, policy, push):
        return push._replace(selected=-self.inside(tokens) * tokens.log_prob)


@cache
def clipped(size, high):
    """The runs of GRPO with the clip .2 below and `high` above, with what a clip of .28 admits beyond .2."""
    return train(size, Admitted(), AdmittedScore(), AdmittedSurprise(), iv.PPOClip(0.2, high))


def admitted(each):
    """(mean C, mean of −log π, share of the tokens) of those that were admitted in a run, each [N]."""
    count, score, surprise, _ = each.selected[:, :-1].sum(1).T
    return score / count, surprise / count, count / (each.selected.shape[1] - 1)


@claim(
    "C27",
    "Clip-Higher lets low-covariance tokens through, of mean about −.03, and so raises the entropy.",
    source=f"{CUI}, section 4.5; DAPO (arXiv:2503.14476)",
    threshold="mean C of the newly unclipped tokens < 0; H at the end larger with .28 than with .2",
)
def clip_higher_admits_low_covariance(size):
    """Pools of 200 prompts (quick: 24), K = 10, one correct action, logits N(0, 1), one pool a seed; sampled GRPO, 128
    (16) prompts of 8 answers a batch, 8 inner steps, 64 (40) outer ones, clip .2 below and .2, .28, .4 or .8 above. The
    newly unclipped tokens are those of A > 0 whose ratio is in (1.2, 1.28] at an inner step of the run with .28; C and
    log π are those of that inner step. Statistics: their mean C; the entropy at the end, .28 minus .2. Beside it their
    mean C in the last 20 steps, and the entropy where J first reaches .8.
    """
    runs = {high: clipped(size, high) for high in CLIPS}
    narrow, wide = runs[0.2], runs[0.28]
    score, surprise, share = admitted(wide)
    covariance = mean("mean C of the newly unclipped tokens", score, at_most=-ABOVE_0)
    rise = mean("H at the end, .28 − .2 (nats)", wide.end - narrow.end, at_least=ABOVE_0)
    level = mean(f"H at J = {SOLVED}, .28 − .2 (nats)", wide.entropy_at() - narrow.entropy_at(), deciding=False)
    gain = mean("J at the end, .28 − .2", wide.final_return - narrow.final_return, deciding=False)
    late = wide.selected[:, -21:-1].sum(1).T
    later = mean("mean C of these tokens in the last 20 steps", late[1] / late[0], deciding=False)
    rare = mean("mean π of these tokens (geometric)", np.exp(-surprise), deciding=False)
    levels = np.stack([each.entropy_at() for each in runs.values()], 1)

    curves = entropy_curves({f"upper clip {high:g}": each for high, each in runs.items()})

    def scores(ax):
        size_of = wide.selected[:, :-1, 0].mean(0)
        seen = size_of > 0.0
        ax.plot(np.flatnonzero(seen), (wide.selected[:, :-1, 1].mean(0)[seen] / size_of[seen]), ".", color=COLOURS[1])
        ax.axhline(0.0, color="0.7", linewidth=0.6)
        ax.set_xlabel("outer step")
        ax.set_ylabel("mean C, ratio in (1.2, 1.28]")

    return Finding(
        (covariance, rise, later, level, gain, rare, mean("share of the tokens", share, deciding=False)),
        counterexample=f"H ends at {wide.end.mean():.3f} nats with .28 and at {narrow.end.mean():.3f} with .2."
        if rise.value < 0.0
        else "",
        says=f"The tokens that the wider clip lets through have mean C {text(covariance)} (π about {text(rare)}), and "
        f"after equally many steps the entropy is different by {text(rise)} nats and J by {text(gain)}.",
        boundary=f"Their mean C falls during training, to {text(later)} in the last 20 steps. At equal return (J = "
        f"{SOLVED}) the entropy differs by {text(level)} nats; from .2 to .8 it goes "
        + ", ".join(f"{x:.3f}" for x in np.nanmean(levels, 0))
        + ".",
        meaning="A wider clip first of all means larger steps on correct answers. Whether it raises entropy depends on "
        "whether runs are compared after equal steps or at equal return: say which.",
        table={"upper_clip": CLIPS, "entropy_end": [x.end.mean() for x in runs.values()]}
        | {"return_end": [x.final_return.mean() for x in runs.values()], "entropy_at_return": np.nanmean(levels, 0)},
        panels=(curves, scores),
    )


@claim(
    "C28",
    "Later in training Clip-Higher is less stable than KL-Cov.",
    source=f"{CUI}, section 4.5",
    threshold="variance of the change of H from step to step in the last third higher than with KL-Cov",
)
def clip_higher_is_less_stable(size):
    """The runs of C27 (upper clip .28) and of KL-Cov as released (no clip) with the paper's k = 2e-3, β = 1, and with
    k = .1. The statistic is the logarithm of the ratio of the variances of the change of the mean entropy from step to
    step in the last third, Clip-Higher over KL-Cov, seed by seed. Beside it the same ratio over k = .1 and over GRPO
    with the clip of .2, and the entropies there: where more of it is left, more can move.
    """
    higher = run(size, HIGHER)
    others = {
        "KL-Cov, k = 2e-3": run(size, kl_cov(2e-3, 1.0)),
        "KL-Cov, k = .1": run(size, kl_cov(0.1, 1.0)),
        "clip .2": run(size, PPO),
    }
    logs = {name: 2.0 * np.log(drift(higher) / drift(each)) for name, each in others.items()}
    statistics = [
        mean(
            f"log variance ratio, Clip-Higher over {name}",
            x,
            **({"at_least": 0.0} if number == 0 else {"deciding": False}),
        )
        for number, (name, x) in enumerate(logs.items())
    ]
    relative = {name: x - 2.0 * np.log(higher.end / others[name].end) for name, x in logs.items()}
    per_nat = mean("the same over KL-Cov, k = 2e-3, per nat left", relative["KL-Cov, k = 2e-3"], deciding=False)

    def curves(ax):
        for number, (name, each) in enumerate({"Clip-Higher": higher, **others}.items()):
            band(ax, np.diff(each.entropy, axis=1), COLOURS[number], name, dashes=DASHES[number])
        labelled(ax, "outer step", "ΔH of a step (nats)")

    def levels(ax):
        for number, (name, each) in enumerate({"Clip-Higher": higher, **others}.items()):
            ax.plot(each.end, drift(each), ".", color=COLOURS[number], label=name)
        ax.set_yscale("log")
        labelled(ax, "entropy at the end, H (nats)", "std of ΔH, last third (nats)")

    return Finding(
        (*statistics, per_nat),
        says=f"The variance of ΔH with Clip-Higher is e^x times that with KL-Cov, x = {text(statistics[0])} at k = "
        f"2e-3 and {text(statistics[1])} at k = .1.",
        boundary=f"Relative to the entropy that is left x is {text(per_nat)}. Against the clip of .2 x is "
        f"{text(statistics[2])}.",
        meaning="The size of the fluctuations follows the entropy that is left to move. A comparison of stability "
        "needs runs at the same entropy.",
        table={"seed": np.arange(len(higher.end)), "clip_higher": drift(higher)}
        | {name: drift(x) for name, x in others.items()},
        panels=(curves, levels),
    )


def _spearman(entropy, value):
    return abs(correlation_of(entropy.mean(0), value.mean(0), ranked=True))


@claim(
    "C29",
    "Among interventions the entropy that a run ends with says nothing about its return.",
    source=f"{CUI}, section 4.5",
    threshold="|Spearman| of H and R at the end over the methods < .3",
)
def entropy_says_nothing_about_return(size):
    """The pools and runs of C22 with twelve settings: no clip, the clips of .2 and .28, Clip-Cov as printed (1 and 3.5
    % of the tokens), KL-Cov as released (k = .1, β = .1 and 1), entropy bonus .1 and .3, reference KL .1 and .3, and a
    controller with target .3 nats. The statistic is |Spearman| over the settings of the means of H and J at the end.
    Beside it how far the J of a setting is from that of plain GRPO at the step where that has the same entropy, and
    the return at the same entropy of every setting.
    """
    runs = {name: run(size, each) for name, each in METHODS.items()}
    entropy, value = (np.stack([f(x) for x in runs.values()], 1) for f in (lambda x: x.end, lambda x: x.final_return))
    base = runs["no clip"]
    own = np.stack([crossing(base.entropy - level[:, None], 0.0, base.expected_return) for level in entropy.T], 1)
    gap = value - own
    spearman = over_seeds("|Spearman| of H and J at the end", _spearman, entropy, value, at_most=0.3)
    pearson = over_seeds(
        "Pearson of H and J at the end", lambda h, j: correlation_of(h.mean(0), j.mean(0)), entropy, value
    )
    far = np.nanmean(np.abs(gap[:, 1:]), 0)
    worst = list(METHODS)[1 + int(far.argmax())]
    size_of_gap = over_seeds(
        "mean |J − GRPO's at the same H|", lambda x: np.nanmean(np.abs(np.nanmean(x, 0))), np.nan_to_num(gap[:, 1:])
    )

    def ends_of_runs(ax):
        ax.plot(base.entropy.mean(0), base.expected_return.mean(0), color="0.6", label="GRPO on its way")
        for number, name in enumerate(METHODS):
            ax.plot(
                entropy[:, number].mean(),
                value[:, number].mean(),
                "osD^v"[number // 7],
                color=COLOURS[number % 7],
                label=name,
            )
        ax.set_xlim(0.0, 1.15 * entropy.mean(0).max())
        ax.set_ylim(value.mean(0).min() - 0.05, 1.0)
        labelled(ax, "H at the end (nats)", "J at the end", columns=5)

    return Finding(
        (spearman, pearson._replace(deciding=False), size_of_gap._replace(deciding=False)),
        counterexample=f"the highest entropy, {entropy.mean(0).max():.3f} nats "
        f"({list(METHODS)[entropy.mean(0).argmax()]}), has J = {value.mean(0)[entropy.mean(0).argmax()]:.3f}; the "
        f"lowest, {entropy.mean(0).min():.3f}, has {value.mean(0)[entropy.mean(0).argmin()]:.3f}.",
        says=f"In the toy they go together: |Spearman| is {text(spearman)}. Methods end near GRPO's own path: the "
        f"mean distance in J at the same entropy is {text(size_of_gap)}.",
        boundary=f"The one farthest from the path is {worst}, by {far.max():.3f}.",
        meaning="A policy without function approximation can only be uncertain at a price in expected return. Where "
        "entropy and performance are unrelated, something else limits the performance: data, optimisation or the test.",
        table={"method": list(METHODS), "entropy_end": entropy.mean(0), "return_end": value.mean(0)}
        | {"return_of_grpo_at_that_entropy": np.nanmean(own, 0)},
        panels=(ends_of_runs,),
    )


def final_returns(size, each, number):
    """J at the end of three times as many runs as there are seeds, from one pool; `number` tells methods apart."""
    pool = world(size)[:1] * size.seeds
    runs = [train(size, *each.parts(), settings=pool, first_seed=3 * number + part) for part in range(3)]
    return np.concatenate([run.final_return for run in runs])


def _wrong_way(first, second):
    """The share of all pairs of a run of each whose difference has not the sign of the difference of the means."""
    gap = second[None, :] - first[:, None]
    return np.mean(gap * np.sign(gap.mean()) <= 0.0)


@claim(
    "C54",
    "Without seeds and intervals the reported gains may be noise: one run of each is not enough to see a difference.",
    source=REVIEW,
    threshold="a pair of single runs shows the difference of J with the wrong sign in 5 % of cases or more",
)
def one_run_of_each_is_not_enough(size):
    """One pool of the size of C22, 60 runs (quick: 30) of each of five methods from it that differ in the answers
    drawn: GRPO without a clip, with the clip .2, Clip-Higher, Clip-Cov as printed (3.5 %) and KL-Cov as released (k =
    .1, β = 1). The statistic is the share of all pairs of single runs, Clip-Cov or KL-Cov against GRPO, whose
    difference of J at the end has another sign than the difference of the means. Beside it the difference with its
    bootstrap interval and the number of seeds at which that interval is half as wide as the difference.
    """
    names = ("no clip", "clip .2", "Clip-Higher", "Clip-Cov 3.5 %", "KL-Cov 1")
    value = {name: final_returns(size, METHODS[name], number) for number, name in enumerate(names)}
    base = value["no clip"]
    wrong = {
        name: over_seeds(f"share of pairs with the wrong sign, {name}", _wrong_way, base, value[name], deciding=False)
        for name in names[1:]
    }
    deciding = [wrong[name]._replace(at_least=0.05, deciding=True) for name in names[3:]]
    change = {name: mean(f"J at the end, {name} − no clip", value[name] - base, deciding=False) for name in names[1:]}
    noise = float(np.sqrt(np.mean([each.var(ddof=1) for each in value.values()])))
    limit = 1.645 * np.sqrt(2.0) * noise  # of a difference: 5 % of pairs are then below 0
    agree = all((wrong[name].value >= 0.05) == (abs(change[name].value) <= limit) for name in wrong)
    seeds = int(np.ceil(2.0 * (4.0 * 1.96 * noise / max(abs(change["Clip-Cov 3.5 %"].value), 1e-9)) ** 2))

    def draw(ax):
        for number, each in enumerate(value.values()):
            ax.plot(each, np.full(len(each), number), ".", color=COLOURS[number], markersize=3)
            ax.plot(each.mean(), number, "|", color=COLOURS[number], markersize=14)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("J at the end, one point a run (stroke: mean)")

    return Finding(
        (*deciding, wrong["clip .2"], wrong["Clip-Higher"], *change.values()),
        only_when=f"the means differ by {limit:.4f} or less, 2.3 standard deviations of a run" if agree else "",
        counterexample=f"KL-Cov changes J by {change['KL-Cov 1'].value:+.4f}, and {100 * wrong['KL-Cov 1'].value:.2g} "
        "% of pairs of single runs show it the wrong way round."
        if deciding[1].outside
        else "",
        says=f"Clip-Cov changes J by {text(change['Clip-Cov 3.5 %'])}, and {percent(deciding[0])} of pairs of single "
        f"runs show it the wrong way round. KL-Cov changes it by {text(change['KL-Cov 1'])}, with "
        f"{percent(deciding[1])}.",
        boundary=f"An interval half as wide as the effect of Clip-Cov needs about {seeds} seeds. Here J is exact: a "
        "finite test set adds its own noise.",
        meaning="Whether one run is enough depends on the size of the effect, and one run cannot tell that size. "
        "Effects of the size of Clip-Cov's need many seeds.",
        table={"run": np.arange(len(base)), **value},
        panels=(draw,),
    )
