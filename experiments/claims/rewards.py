"""Rewards that are not the truth: random ones under clips, wrong ones, ones for form; and a table of averages."""

from functools import cache

import numpy as np
from scipy.optimize import nnls

from softmaxdyn.estimators import Exact
from softmaxdyn.ledger import Finding, claim, correlation, exactly, mean
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.rewards import FormatReward, IncorrectReward
from softmaxdyn.updates import NaturalPG, VanillaPG

from .worlds import exact, follow, policies, pools, realistic_pools

ABOVE_ZERO = np.finfo(float).tiny
NEVER = 1e9  # the distance of an upper bound that no ratio reaches; a lower bound at distance 1 is never reached
CLIPS = {"no clip": (1.0, NEVER), "0.2 / 0.2": (0.2, 0.2), "low only": (0.2, NEVER), "high only": (1.0, 0.2)}
SPREADS = (0.0, 0.5, 1.0, 2.0, 3.0)
STEPS, INNER = 60, 8
CLAIMED_CLIP = "0.2 / 0.2"


def paid_by_coins(settings, clip, own_step=1.0):
    """(fields, logits at the end) of GRPO, 8 inner steps, with random rewards; `own_step` is that of a prompt's η."""
    prompts = settings[0].problem.shape[0]
    low, high = CLIPS[clip]
    algorithm = build("random_reward", low=low, high=high, groups=prompts, step_size=own_step * prompts / INNER)
    return follow(settings, algorithm, STEPS, every=STEPS // 2, inner_steps=INNER)


@cache
def entropy_changes(size, spread, clip, own_step=1.0):
    """H at the end less H at the start, one a seed, on the standard pool (K = 10)."""
    fields, _ = paid_by_coins(pools(size.seeds, size(100, 20), spread=spread), clip, own_step)
    return fields["entropy"][:, -1] - fields["entropy"][:, 0]


def against_no_clip(size, spread, clip, own_step=1.0):
    """The change of entropy with a clip less that without, one a seed."""
    return entropy_changes(size, spread, clip, own_step) - entropy_changes(size, spread, "no clip", own_step)


def intervals(ax, x, found, style, label, line=True):
    """Statistics at x with their intervals."""
    value, low, high = (np.array([getattr(each, part) for each in found]) for part in ("value", "low", "high"))
    look = {
        "color": COLOURS[style],
        "linestyle": DASHES[style] if line else "",
        "marker": "os"[style % 2],
        "markersize": 3,
    }
    ax.errorbar(x, value, [value - low, high - value], label=label, **look)


@claim(
    "C45",
    "Under a random reward PPO's clip at 0.2 / 0.2 lowers the entropy: clipping above lowers it more than clipping "
    "below raises it.",
    source="arXiv:2509.26114, Shao et al. 2025 (arXiv:2506.10947)",
    threshold="sign(ΔH clip − ΔH none) per start, negative",
)
def clip_lowers_entropy(size):
    """GRPO paid by coin flips: 100 groups of 8, 8 inner steps, a prompt's own step size η = 1, 60 outer steps, on the
    standard pool (100 prompts, K = 10) with logits N(0, σ²), σ = 0 … 3. Clips: none, 0.2 / 0.2, only below, only above.
    The statistic at each σ is ΔH with the clip 0.2 / 0.2 less ΔH without a clip; the claim wants it negative. Then
    other step sizes at σ = 3.
    """

    def gap(clip, spread):
        return mean(f"ΔH({clip}) − ΔH(no clip), σ = {spread:g}", against_no_clip(size, spread, clip), at_most=0.0)

    gaps = {clip: [gap(clip, spread) for spread in SPREADS] for clip in list(CLIPS)[1:]}
    both = gaps["0.2 / 0.2"]
    alone = [mean(f"ΔH without a clip, σ = {s:g}", entropy_changes(size, s, "no clip")) for s in SPREADS]
    lower = [each._replace(deciding=False) for each in gaps["high only"][1::2]]
    raising = [each._replace(at_most=np.inf, at_least=0.0, deciding=False) for each in gaps["low only"][1::2]]
    sharp = [s for s, each in zip(SPREADS, both, strict=True) if each.inside]
    ends = {clip: (found[0].value, found[-1].value) for clip, found in gaps.items()}
    flat = max(both, key=lambda each: each.low)
    other = [mean("", against_no_clip(size, 3.0, "0.2 / 0.2", eta)).value for eta in (0.25, 4.0)]

    def differences(ax):
        for style, (clip, found) in enumerate(gaps.items()):
            intervals(ax, SPREADS, found, style, clip)
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "spread of the logits at the start, σ", "ΔH less that without a clip (nats)", columns=3)

    def without(ax):
        intervals(ax, SPREADS, alone, 0, "no clip")
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "spread of the logits at the start, σ", "ΔH in 60 steps (nats)")

    return Finding(
        (*both, *lower, *raising),
        counterexample="" if flat.inside else f"{flat.name} = {flat.value:.3f} [{flat.low:.3f}, {flat.high:.3f}].",
        only_when=f"the start is sharp (here σ = {', '.join(f'{s:g}' for s in sharp)})" if sharp else "",
        says=f"The clip changes ΔH by {', '.join(f'{each.value:+.3f}' for each in both)} nats at σ = 0, 0.5, 1, 2, 3. "
        f"Clipping only below changes it by {ends['low only'][0]:+.3f} at σ = 0 and {ends['low only'][1]:+.3f} at σ = "
        f"3, only above by {ends['high only'][0]:+.3f} and {ends['high only'][1]:+.3f}. "
        f"Without any clip noise alone moves it by {alone[0].value:.2f} at σ = 0.",
        boundary=f"At σ = 3 the sign turns with the step: {other[0]:+.4f} at η = 0.25, where hardly a ratio leaves the "
        f"clip, {both[-1].value:+.3f} at 1, {other[1]:+.3f} at 4, where the clip mostly stops noise.",
        meaning="A clip does two things to entropy under noise: it biases (down above, up below), and it damps a "
        "random walk that lowers entropy by itself. Which wins depends on how sharp the policy is and on the step.",
        table={"spread": SPREADS, **{clip: [x.value for x in found] for clip, found in gaps.items()}},
        panels=(differences, without),
    )


def drifts(settings, clip, own_step=1.0):
    """(change of the success probability, whether the mode of the start is right), [N, S]."""
    _, final = paid_by_coins(settings, clip, own_step)
    right = np.stack([each.problem.rewards for each in settings])
    before, after = policies(np.stack([each.logits for each in settings])), policies(final)
    mode = np.take_along_axis(right, before.argmax(-1)[..., None], -1)[..., 0]
    return ((after - before) * right).sum(-1), mode


@claim(
    "C46",
    "What a random reward gains is the prior amplified: accuracy rises where the mode of the base policy is right.",
    source="Shao et al. 2025 (arXiv:2506.10947)",
    threshold="corr(ΔP(correct), mode = correct) > 0",
)
def random_rewards_amplify_the_prior(size):
    """GRPO paid by coin flips as in C45 (own step size 1, clip 0.2 / 0.2, 60 outer steps) on a realistic pool: 200
    prompts, 20 answers, 5 right, pass rates Beta(0.5, 0.4). The statistic is the correlation over prompts and seeds of
    the change of P(correct) with whether the most probable answer at the start is right. Controls: no clip, only the
    upper clip, only the lower; and the standard pool (K = 20, 5 right).
    """
    prompts = size(200, 40)
    realistic = realistic_pools(size.seeds, prompts)
    runs = {clip: drifts(realistic, clip) for clip in CLIPS}
    standard = drifts(pools(size.seeds, prompts, actions=20, correct=0.25), CLAIMED_CLIP)
    name, wanted = "correlation of ΔP(correct) with mode = correct", {"at_least": ABOVE_ZERO}
    ours = correlation(f"{name}, 0.2 / 0.2", *runs[CLAIMED_CLIP], **wanted)
    wanted["deciding"] = False
    others = {clip: correlation(f"{name}, {clip}", *runs[clip], **wanted) for clip in CLIPS if clip != CLAIMED_CLIP}
    plain = correlation(f"{name}, 0.2 / 0.2, standard pool", *standard, **wanted)
    excess, mode = runs[CLAIMED_CLIP][0] - runs["no clip"][0], runs[CLAIMED_CLIP][1]
    beyond = correlation(f"{name}, 0.2 / 0.2 less no clip", excess, mode, **wanted)
    gains = {clip: mean(f"change of R, {clip}", runs[clip][0].mean(1), deciding=False) for clip in CLIPS}
    parts = {
        clip: [mean("", np.nanmean(np.where(mode == right, drift, np.nan), 1)) for right in (1.0, 0.0)]
        for clip, (drift, mode) in runs.items()
    }

    def bars(ax):
        for style, label in enumerate(("mode right", "mode wrong")):
            place = np.arange(len(CLIPS)) + 0.1 * style
            intervals(ax, place, [each[style] for each in parts.values()], style, label, line=False)
        ax.set_xticks(np.arange(len(CLIPS)), list(CLIPS))
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "clip", "change of P(correct)")

    return Finding(
        (ours, beyond, *others.values(), plain, *gains.values()),
        says=f"With the clip 0.2 / 0.2 the correlation is {ours.value:.3f} [{ours.low:.3f}, {ours.high:.3f}] and R "
        f"changes by {gains[CLAIMED_CLIP].value:+.4f}. It has two parts: noise, which moves sure prompts towards the "
        f"middle ({others['no clip'].value:+.3f} without a clip), and what the clip adds to the same draws "
        f"({beyond.value:+.3f} [{beyond.low:.3f}, {beyond.high:.3f}]).",
        boundary=f"With the upper clip alone the correlation is {others['high only'].value:+.3f} "
        f"[{others['high only'].low:+.3f}, {others['high only'].high:+.3f}], with the lower alone "
        f"{others['low only'].value:+.3f}.",
        meaning="What a clip makes of random rewards favours the base policy's first choice; whether accuracy rises "
        "then depends on how often that is right, and on noise. Run a random reward as a control.",
        table={
            "clip": list(CLIPS),
            "right": [x.value for x, _ in parts.values()],
            "wrong": [x.value for _, x in parts.values()],
        },
        panels=(bars,),
    )


def trained_on(settings, update, reward):
    """(R [N, T], P(correct) before and after [N, S]) of exact runs of 400 steps paid by `reward`."""
    fields, final = follow(settings, exact(update, estimator=Exact(reward=reward)), 400, every=4)
    right = np.stack([each.problem.rewards for each in settings])
    before, after = policies(np.stack([each.logits for each in settings])), policies(final)
    return fields["expected_return"], (before * right).sum(-1), (after * right).sum(-1)


@claim(
    "C47",
    "Wrong and format rewards act like a shifted reward: 1 − r lowers accuracy, and a reward for a format raises it if "
    "and only if the format contains the right answer.",
    source="Shao et al. 2025 (arXiv:2506.10947)",
    threshold="R decreases under 1 − r (exact); format helps iff F and correct overlap",
)
def format_helps_where_it_overlaps(size):
    """Exact runs of 400 steps on the standard pool (200 prompts, K = 10, one right answer at a random place, logits
    N(0, 1)): vanilla PG, own step size 1, and natural PG, η = 0.1. Paid by 1 − r: the statistic is the largest change
    of R between kept points. Paid for a format F, the even actions: the share of prompts where P(correct) ends higher
    exactly if the right answer is in F. Then only prompts whose right answer is the most probable of F.
    """
    settings = pools(size.seeds, size(200, 40))
    even = np.arange(10) % 2 == 0
    right = np.stack([each.problem.rewards for each in settings]) > 0.5
    logits = np.stack([each.logits for each in settings])
    overlap = (right & even).any(-1)
    leads = overlap & (np.where(even, logits, -np.inf).argmax(-1) == right.argmax(-1))
    updates = {"PG": VanillaPG(float(right.shape[1])), "natural PG": NaturalPG(0.1)}
    wrong = {name: trained_on(settings, update, IncorrectReward())[0] for name, update in updates.items()}
    formed = {name: trained_on(settings, update, FormatReward()) for name, update in updates.items()}
    rise = {name: np.diff(x, axis=1).max() for name, x in wrong.items()}
    falls = [exactly(f"largest change of R under 1 − r, {name}", x, at_most=0.0) for name, x in rise.items()]
    agree = {name: np.mean((after > before) == overlap, 1) for name, (_, before, after) in formed.items()}
    iff = {
        name: mean(f"share where format helps iff it overlaps, {name}", x, at_least=1.0) for name, x in agree.items()
    }
    _, before, after = formed["PG"]
    led = exactly("the same, PG, right answer first in F", (after > before)[leads].mean(), at_least=1.0, deciding=False)
    lost = np.unravel_index(np.where(overlap, before - after, -1.0).argmax(), before.shape)
    only = iff["natural PG"].inside and led.inside

    def returns(ax):
        steps = np.linspace(0.0, 400.0, wrong["PG"].shape[1])
        curves = {"1 − r": wrong["PG"], "format, PG": formed["PG"][0], "format, natural PG": formed["natural PG"][0]}
        for style, (label, values) in enumerate(curves.items()):
            ax.plot(steps, values.mean(0), color=COLOURS[style], linestyle=DASHES[style], label=label)
        labelled(ax, "step", "mean return, R")

    def prompts(ax):
        groups = {"in F": overlap & ~leads, "first in F": leads, "not in F": ~overlap}
        for style, (label, chosen) in enumerate(groups.items()):
            ax.plot(before[chosen][:400], after[chosen][:400], ".", markersize=2, color=COLOURS[style], label=label)
        labelled(ax, "P(correct) before", "after, PG, format", columns=3)

    return Finding(
        (*falls, *iff.values(), led),
        only_when="the update is natural PG, or the right answer is the most probable of the format" if only else "",
        counterexample="PG, F = the even actions, right answer in F: P(correct) goes from "
        f"{before[lost]:.3f} to {after[lost]:.3f}.",
        says="Under 1 − r R falls at every kept point. Under a format reward the rule is right for "
        f"{iff['natural PG'].value:.0%} of the prompts with natural PG and {iff['PG'].value:.0%} with PG.",
        boundary="PG favours what is already probable: inside F the most probable answer takes all. Where that is the "
        f"right one, P(correct) rises in {led.value:.0%} of the prompts.",
        meaning="A format reward teaches the most probable answer of that format. It looks like learning where that "
        "answer is right.",
        table={"before": before[0], "PG": after[0], "natural PG": formed["natural PG"][2][0], "in format": overlap[0]},
        panels=(returns, prompts),
    )


BENCHMARKS = ("AIME24", "AIME25", "AMC", "MATH-500", "OMNI-MATH", "OlympiadBench", "Minerva")
SCORES = {
    "7B": {
        "GRPO": (21.2, 9.6, 58.7, 78.8, 27.9, 40.7, 36.7),
        "Clip-higher": (18.1, 11.5, 56.6, 79.2, 29.8, 43.3, 40.4),
        "Clip-Cov": (22.1, 15.8, 58.2, 80.4, 30.5, 44.1, 41.1),
        "KL-Cov": (22.6, 12.9, 61.4, 80.8, 29.1, 42.6, 38.2),
    },
    "32B": {
        "GRPO": (21.8, 16.2, 69.7, 84.2, 35.2, 43.6, 45.5),
        "Clip-higher": (35.6, 22.3, 69.5, 77.2, 35.1, 42.5, 43.0),
        "Clip-Cov": (32.3, 22.7, 67.2, 87.0, 42.0, 57.2, 46.0),
        "KL-Cov": (36.8, 30.8, 74.5, 84.6, 39.1, 49.0, 46.3),
    },
}  # per cent
PRINTED = {"7B": (38.6, 38.8, 40.4, 40.6), "32B": (45.8, 47.2, 50.3, 52.2)}  # the column of averages
CLAIMED = {"7B": 2.0, "32B": 6.4}  # points above GRPO
ROUNDING = 0.05  # of a printed number, and of the mean of a row of them


def averages(rows):
    """The mean of each row."""
    return {name: float(np.mean(row)) for name, row in rows.items()}


def gains_over_grpo():
    """The scores less those of GRPO at the same size, for each (model, method) of the paper."""
    ours = ("Clip-Cov", "KL-Cov")
    return {(m, name): np.subtract(rows[name], rows["GRPO"]) for m, rows in SCORES.items() for name in ours}


def best_weighting():
    """(weights ≥ 0 of the benchmarks that add up to 1, largest error) that fit the printed averages best."""
    rows = np.array([row for each in SCORES.values() for row in each.values()])
    printed = np.concatenate(list(PRINTED.values()))
    sure = 1e4  # how heavily Σ w = 1 counts
    weights, _ = nnls(np.vstack([rows, np.full(7, sure)]), np.append(printed, sure))
    return weights, abs(rows @ weights - printed).max()


@claim(
    "C53",
    "Clip-Cov and KL-Cov beat GRPO by 2.0 points (7B) and 6.4 points (32B) on average over seven benchmarks.",
    source="Cui et al. 2025 (arXiv:2505.22617), table 2, as printed in verl's docs/algo/entropy.md",
    threshold="the recomputed means of the rows equal the reported ones (to the printed digits)",
)
def averages_of_the_table(size):
    """The unweighted mean of each of the eight printed rows, seven benchmarks each, against the printed average (the
    largest distance; entries and averages are rounded to 0.1), and the difference of the means of each method and GRPO
    against the claimed gain. No simulation: the numbers are those of the source. The interval of a gain is a bootstrap
    over benchmarks, since the table has no seeds. Last, the weights of the benchmarks that fit all averages best.
    """
    means = {model: averages(rows) for model, rows in SCORES.items()}
    keys = [(model, name) for model, rows in SCORES.items() for name in rows]
    printed = dict(zip(keys, (x for column in PRINTED.values() for x in column), strict=True))
    off = {key: means[key[0]][key[1]] - printed[key] for key in keys}
    gains = gains_over_grpo()
    wrong = {name: max(abs(gains[m, name].mean() - CLAIMED[m]) for m in SCORES) for name in ("Clip-Cov", "KL-Cov")}
    spread = [mean(f"gain of {name}, {m}", gain, deciding=False) for (m, name), gain in gains.items()]
    worst = max(keys, key=lambda key: abs(off[key]))
    weights, error = best_weighting()
    rest = {name: exactly(f"largest |gain − claimed|, {name}", x, at_most=3 * ROUNDING) for name, x in wrong.items()}

    def rows(ax):
        for style, (model, column) in enumerate(PRINTED.items()):
            mark = {"marker": "os"[style], "markersize": 4, "linestyle": "", "color": COLOURS[style]}
            ax.plot(column, list(means[model].values()), label=model, **mark)
        ax.plot([38, 53], [38, 53], color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "printed average (%)", "mean of the row (%)")

    def benchmarks(ax):
        for style, ((model, name), gain) in enumerate(gains.items()):
            mark = {"marker": "os^v"[style], "markersize": 3, "linestyle": "", "color": COLOURS[style]}
            ax.plot(np.arange(7), gain, label=f"{name}, {model}", **mark)
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        ax.set_xticks(np.arange(7), BENCHMARKS, rotation=30, ha="right", fontsize=6)
        labelled(ax, "benchmark", "points above GRPO")

    return Finding(
        (exactly("largest |row mean − printed|", abs(off[worst]), at_most=2 * ROUNDING), *rest.values(), *spread),
        counterexample=f"{worst[1]}, {worst[0]}: the row has the mean {means[worst[0]][worst[1]]:.2f}, and "
        f"{printed[worst]} is printed.",
        only_when="it is said of KL-Cov, and of the gain alone" if rest["KL-Cov"].inside else "",
        says=f"KL-Cov gains {gains['7B', 'KL-Cov'].mean():.2f} and {gains['32B', 'KL-Cov'].mean():.2f} points, "
        f"Clip-Cov {gains['7B', 'Clip-Cov'].mean():.2f} and {gains['32B', 'Clip-Cov'].mean():.2f}. No printed average "
        f"is the mean of its row: they are off by {min(map(abs, off.values())):.2f} to {abs(off[worst]):.2f} points.",
        boundary=f"Seven free weights, from {weights.min():.2f} to {weights.max():.2f}, would bring all eight averages "
        f"within {error:.2f}: they may be weighted. Single benchmarks move by {min(map(min, gains.values())):.1f} to "
        f"{max(map(max, gains.values())):.1f} points.",
        meaning="Quote the rows, not the averages. With one run a row, the interval over benchmarks is the only one "
        "there is, and it is wide.",
        table={
            "model": [model for model, _ in keys],
            "method": [name for _, name in keys],
            "mean": [means[model][name] for model, name in keys],
            "printed": list(printed.values()),
        },
        panels=(rows, benchmarks),
    )
