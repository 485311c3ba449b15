"""Clip-Cov and KL-Cov: what they do to the entropy, how strongly, and how sensitively."""

import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.ledger import Finding, claim, correlation_of, exactly, mean, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled

from .controls import (
    ABOVE_0,
    ACTIONS,
    CLIP_COV,
    CUI,
    PPO,
    REVIEW,
    SOLVED,
    Salted,
    band,
    clip_cov,
    drift,
    ends,
    entropy_curves,
    infinite_batches,
    infinite_run,
    kept,
    kl_cov,
    percent,
    rank_correlation,
    run,
    scaled_run,
    text,
    tokens,
    train,
)
from .worlds import pools

RATES = np.array([2e-4, 4e-4, 5e-4, 7e-4])  # r of figure 12
PULLS = np.array([0.05, 0.1, 0.5, 1.0])  # β of figure 12
FRACTION = 2e-3  # k of the 7B runs
STRENGTHS = [(FRACTION, 1.0), (0.02, 1.0), (0.1, 1.0), (0.5, 1.0), (0.1, 5.0), (0.5, 5.0)]  # (k, β)


def plateau(curve):
    """The first step of a curve [T] from which it loses less than 1 % of its start over a tenth of the run."""
    ahead = max(1, len(curve) // 10)
    flat = curve[:-ahead] - curve[ahead:] < 0.01 * curve[0]
    return int(flat.argmax()) if flat.any() else len(curve) - 1


@claim(
    "C22",
    "Clip-Cov raises the entropy, and the more the larger its share r of dropped tokens.",
    source=f"{CUI}, section 4.5, figure 12",
    threshold="Spearman(r, H at the end) ≥ .9",
)
def clip_cov_raises_the_entropy_with_its_share(size):
    """Pools of 200 prompts (quick: 24), K = 10, one correct action, logits N(0, 1), one pool a seed; sampled GRPO, 128
    (16) prompts of 8 answers a batch, 8 inner steps, 64 (40) outer ones, no PPO clip. The paper's r = 2, 4, 5, 7 · 10⁻⁴
    is one token of such a batch for each of them, so r is scaled by 50: 1 to 3.5 % of the tokens, those dropped having
    C in 1 … 5 as printed. The statistic is Spearman's correlation of r with the mean entropy at the end. Beside it:
    what the largest r keeps of the entropy lost without Clip-Cov; the rise where J first reaches .8; the scale-free
    form, which drops half of the 2r tokens of the highest C; the paper's own r in batches of infinite size.
    """
    base, runs = run(size), [run(size, clip_cov(50 * rate)) for rate in RATES]
    scaled = [scaled_run(size, 50 * rate) for rate in RATES]
    exact = infinite_run(clip_cov(RATES[-1]))
    late = runs[-1].selected[:, -20:, CLIP_COV].mean(1)
    share = mean("share of the lost entropy that r = 3.5 % keeps", kept(runs, base)[:, -1], deciding=False)
    scaled_share = mean("the same, scale-free form", kept(scaled, base)[:, -1], deciding=False)
    at_return = mean(
        f"rise of H at J = {SOLVED}, r = 3.5 % (nats)", runs[-1].entropy_at() - base.entropy_at(), deciding=False
    )
    infinite = float(kept([exact], infinite_run()).mean())
    statistics = (
        rank_correlation("Spearman of r and H at the end", RATES, ends(runs), at_least=0.9),
        mean("rise of H at the end, r = 3.5 % (nats)", ends(runs)[:, -1] - base.end, at_least=ABOVE_0),
        share,
        at_return,
        mean("tokens dropped in the last 20 steps over r", late / (50 * RATES[-1]), deciding=False),
        rank_correlation("Spearman, scale-free form", RATES, ends(scaled), deciding=False),
        scaled_share,
        exactly("share kept, infinite batch, the paper's r = 7e-4", infinite, deciding=False),
    )

    curves = entropy_curves({"GRPO": base, "Clip-Cov, 3.5 %": runs[-1], "scale-free, 3.5 %": scaled[-1]})

    def response(ax):
        band(ax, 100 * kept(runs, base), COLOURS[1], "band 1 … 5", 5e3 * RATES)
        band(ax, 100 * kept(scaled, base), COLOURS[2], "scale-free", 5e3 * RATES, DASHES[1])
        labelled(ax, "r (% of the tokens)", "entropy kept (% of the loss)")

    return Finding(
        statistics,
        says=f"The order is as claimed and the effect small: dropping 3.5 % of the tokens keeps {percent(share)} of "
        f"the entropy that GRPO loses; the paper's r = 7e-4 in an infinite batch keeps {100 * infinite:.1g} %.",
        boundary=f"The band 1 … 5 runs empty: over the last 20 steps it holds {percent(statistics[4])} of the tokens "
        f"that r asks for. The scale-free form keeps {percent(scaled_share)}. Where J first reaches {SOLVED} the "
        f"entropy is higher by {text(at_return)} nats, so it is not only a slower run.",
        meaning="Where an update reaches one prompt only, dropping a few tokens in a hundred slows the collapse by "
        "less than their share. A large effect of r = 7e-4 in a language model would have to come from shared "
        "parameters.",
        table={"r": 50 * RATES, "entropy_end": ends(runs).mean(0), "kept": kept(runs, base).mean(0)}
        | {"entropy_end_scale_free": ends(scaled).mean(0), "kept_scale_free": kept(scaled, base).mean(0)},
        panels=(curves, response),
    )


@claim(
    "C23",
    "KL-Cov raises the entropy the more the larger its coefficient β, and keeps it steadier than Clip-Cov.",
    source=f"{CUI}, section 4.5, figure 12",
    threshold="Spearman(β, H at the end) ≥ .9 for both forms of the KL; std of H over time smaller than with Clip-Cov",
)
def kl_cov_raises_the_entropy_with_its_coefficient(size):
    """The pools and runs of C22, β = .05, .1, .5, 1 as in the paper, its shares k = 2e-3 and, for the Clip-Cov beside
    it, r = 2e-4, both scaled by 50. Two forms: |log r| as released, and the KL as printed. Neither acts on the first
    of the 8 inner steps, where the policies are equal. Statistics: Spearman's correlation of β and the mean entropy at
    the end, for each form, where the printed one is so weak that the draws hide its order, so that batches of infinite
    size decide (3 pools of 40 prompts); the standard deviation of the entropy over all steps of a run, KL-Cov (β = 1)
    minus Clip-Cov. Beside them the same for the changes from step to step in the last third, and the paper's own k.
    """
    base, clipped, paper = run(size), run(size, clip_cov(50 * RATES[0])), run(size, kl_cov(FRACTION, 1.0))
    released = [run(size, kl_cov(50 * FRACTION, pull)) for pull in PULLS]
    printed = [scaled_run(size, 0.0, 50 * FRACTION, pull) for pull in PULLS]
    infinite = ends([infinite_batches(iv.KLCovTrueKL(50 * FRACTION, pull)) for pull in PULLS]).mean(0)
    shares = [
        mean(f"share of the lost entropy kept, β = 1, {name}", kept([each], base)[:, 0], deciding=False)
        for name, each in {
            "as released": released[-1],
            "as printed": printed[-1],
            "as released, k = 2e-3": paper,
        }.items()
    ]
    spread = released[-1].entropy.std(1) - clipped.entropy.std(1)
    steadier = mean("std of H over time, KL-Cov − Clip-Cov (nats)", spread, at_most=-ABOVE_0)
    drifts = drift(released[-1]) / drift(clipped)
    statistics = (
        rank_correlation("Spearman of β and H at the end, as released", PULLS, ends(released), at_least=0.9),
        exactly("the same, as printed, infinite batch", correlation_of(PULLS, infinite, ranked=True), at_least=0.9),
        steadier,
        rank_correlation("the same, as printed", PULLS, ends(printed), deciding=False),
        mean("std of ΔH in the last third, KL-Cov over Clip-Cov", drifts, deciding=False),
        *shares,
    )

    shown = {"GRPO": base, "Clip-Cov": clipped, "KL-Cov, released": released[-1], "printed": printed[-1]}

    def response(ax):
        band(ax, 100 * kept(released, base), COLOURS[2], "as released", PULLS)
        band(ax, 100 * kept(printed, base), COLOURS[3], "as printed", PULLS, DASHES[1])
        ax.set_xscale("log")
        labelled(ax, "β (reward)", "entropy kept (% of the loss)")

    return Finding(
        statistics,
        says=f"With a tenth of the tokens pulled back at β = 1 the form as released keeps {percent(shares[0])} of the "
        f"entropy that GRPO loses, the KL as printed {percent(shares[1])}. The standard deviation of H over a run "
        f"differs from that of Clip-Cov by {text(steadier)} nats: it measures how far the entropy falls.",
        boundary=f"At the paper's k = 2e-3 it is {percent(shares[2])}. From step to step the entropy of the last "
        f"third moves {text(statistics[4])} times as much as with Clip-Cov.",
        meaning="β works as a dial in either form, but the form as released is much the stronger: its pull does not "
        "shrink as the policies come close. Say which of the two was run.",
        table={
            "beta": PULLS,
            "entropy_end_released": ends(released).mean(0),
            "entropy_end_printed": ends(printed).mean(0),
        }
        | {"kept_released": kept(released, base).mean(0), "kept_printed": kept(printed, base).mean(0)},
        panels=(entropy_curves(shown), response),
    )


@claim(
    "C24",
    "Where GRPO's entropy has reached its plateau, KL-Cov keeps more than ten times as much.",
    source=f"{CUI}, section 4.4, figure 11",
    threshold="ratio of the entropies at the baseline's plateau ≥ 10",
)
def kl_cov_keeps_ten_times_the_entropy(size):
    """The pools and runs of C22. The plateau is the first step from which GRPO's mean entropy loses less than 1 % of
    its start over the next tenth of the run. The statistic is the ratio of the entropies there, KL-Cov as released
    with the paper's k = 2e-3, β = 1 over GRPO without a clip (KL-Cov has none). Beside it: over GRPO with the clip of
    .2, and larger shares k up to half of the tokens, at β = 1 and 5, to see whether any reaches ten.
    """
    base, clipped = run(size), run(size, PPO)
    at = plateau(base.entropy.mean(0))
    runs = [run(size, kl_cov(*each)) for each in STRENGTHS]
    ratio = [
        over_seeds(f"ratio, k = {k:g}, β = {pull:g}", _ratio, each.entropy[:, at], base.entropy[:, at], deciding=False)
        for (k, pull), each in zip(STRENGTHS, runs, strict=True)
    ]
    ends_of = runs[0].entropy[:, at], clipped.entropy[:, at]
    other = over_seeds("ratio to GRPO with clip .2", _ratio, *ends_of, deciding=False)
    decides = ratio[0]._replace(at_least=10.0, deciding=True)
    largest = max(ratio, key=lambda each: each.value)
    strong = {"k = 2e-3, β = 1": runs[0], "k = .1, β = 5": runs[4], "k = .5, β = 5": runs[5]}
    shown = {"GRPO": base, "clip .2": clipped, **strong}

    def curves(ax):
        entropy_curves(shown, 3)(ax)
        ax.axvline(at, color="0.6", linewidth=0.8)
        ax.set_yscale("log")

    def paths(ax):
        for number, each in enumerate(shown.values()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number % 4]}
            ax.plot(each.entropy.mean(0), each.expected_return.mean(0), **style)
        ax.set_xlabel("entropy, H (nats)")
        ax.set_ylabel("expected return, J")

    return Finding(
        (decides, *ratio[1:], other),
        counterexample=f"k = 2e-3, β = 1, step {at}: {runs[0].entropy[:, at].mean():.3f} against "
        f"{base.entropy[:, at].mean():.3f} nats, a ratio of {ratio[0].value:.2f}.",
        says=f"At the plateau (step {at}) KL-Cov with the paper's numbers has {text(ratio[0])} times GRPO's entropy, "
        f"and {text(other)} times that of GRPO with its clip.",
        boundary=f"The largest ratio that was found is {text(largest)}, for {largest.name.removeprefix('ratio, ')}; J "
        f"is then {runs[ratio.index(largest)].expected_return[:, at].mean():.2f} against "
        f"{base.expected_return[:, at].mean():.2f}.",
        meaning="Pulling back one token in 500 changes the entropy of the few prompts that it belongs to. A tenfold "
        "entropy from such a share must reach the other prompts through shared parameters, or it is a matter of one's "
        "baseline.",
        table=dict(zip(("k", "beta"), np.transpose(STRENGTHS), strict=True))
        | {"ratio": [each.value for each in ratio]}
        | {"return_at_plateau": [each.expected_return[:, at].mean() for each in runs]},
        panels=(curves, paths),
    )


def _ratio(top, bottom):
    return top.mean() / bottom.mean()


@claim(
    "C57",
    "That Clip-Cov chooses at random among its candidates adds to the variance of the entropy at the end.",
    source=REVIEW,
    threshold="var(H at the end) over that of a deterministic choice of the top rN ≥ 1.05",
)
def a_random_choice_adds_variance(size):
    """One pool of 24 prompts, K = 10, batches of 16 prompts of 8 answers, 8 inner and 40 outer steps, 400 runs (quick:
    60) that differ in their draws only. Clip-Cov drops 3.5 % of the tokens among those with C in 1 … 5, at random or
    from the top. Statistic: the ratio of the variances of the entropy at the end. Beside it, a sharper number: runs in
    pairs that draw the same answers and choose differently; half the mean square of their difference, over the
    variance of all, is the share of the variance that the choice makes, directly and by what follows from it.
    """
    quick = type(size)(quick=True)
    settings = pools(1, 24, ACTIONS) * size(400, 60)
    share = 0.035
    parts = {"random": Salted(iv.ClipCov(share, 1.0, 5.0), 0), "again": Salted(iv.ClipCov(share, 1.0, 5.0), 1)}
    runs = {name: train(quick, part, settings=settings) for name, part in parts.items()}
    runs["top"] = train(quick, iv.ClipCovTop(share, 1.0, 5.0), settings=settings)
    end = {name: each.end for name, each in runs.items()}
    ratio = over_seeds("variance, random over top", _variance_ratio, end["random"], end["top"], at_least=1.05)
    added = over_seeds(
        "share of the variance that the choice makes", _added, end["random"], end["again"], deciding=False
    )
    shift = mean("H at the end, random − top (nats)", end["random"] - end["top"], deciding=False)

    def spread(ax):
        edges = np.histogram_bin_edges(np.concatenate(list(end.values())), 25)
        for number, (name, label) in enumerate({"random": "random choice", "top": "top rN"}.items()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number], "label": label, "histtype": "step"}
            ax.hist(end[name], edges, **style)
        labelled(ax, "entropy at the end, H (nats)", "runs")

    def pairs(ax):
        ax.plot(end["random"], end["again"], ".", color=COLOURS[2], markersize=2)
        ax.set_xlabel("H at the end (nats)")
        ax.set_ylabel("H, same answers,\nother choice (nats)")

    return Finding(
        (ratio, added, shift),
        says=f"The variance with a random choice is {text(ratio)} times that with the top; the choice itself makes "
        f"{percent(added)} of it. The answers that were drawn make the rest.",
        boundary=f"One pool, r = {100 * share:g} %. The mean entropy at the end, random less top, is {text(shift)} "
        "nats.",
        meaning="The randomness of the choice is a small worry beside that of sampling answers: more seeds, not a "
        "deterministic choice, is what makes a comparison firm.",
        table={"entropy_end_" + name: each for name, each in end.items()},
        panels=(spread, pairs),
    )


def _variance_ratio(top, bottom):
    return top.var(ddof=1) / bottom.var(ddof=1)


def _added(first, second):
    return 0.5 * np.mean((first - second) ** 2) / np.concatenate([first, second]).var(ddof=1)


@claim(
    "C58",
    "The outcome of KL-Cov is sensitive to the share k: a decade of it moves the entropy at the end by a tenth of its "
    "start.",
    source=REVIEW,
    threshold="largest dH/dlog k at the end ≥ a tenth of the entropy at the start per decade",
)
def the_outcome_is_sensitive_to_k(size):
    """The pools and runs of C22; KL-Cov as released, β = 1, k from 1e-3 (one token of 1024) to .1. The statistic is the
    largest slope of the mean entropy at the end between neighbouring k, per decade and over the entropy at the start.
    Beside it: the largest factor per decade; the slope of J; and k from 1e-4 on in batches of infinite size (3 pools of
    40 prompts), where a share of 1e-4 is met exactly.
    """
    fractions = np.array([1e-3, 3e-3, 1e-2, 3e-2, 0.1])
    runs = [run(size, kl_cov(k, 1.0)) for k in fractions]
    small = np.logspace(-4, -1, 7)
    infinite = ends([infinite_run(kl_cov(k, 1.0)) for k in small])
    decades = np.diff(np.log10(fractions))
    start, values = runs[0].entropy[:, :1].mean(), np.stack([each.final_return for each in runs], 1)
    slope = over_seeds(
        "largest slope per decade over H at the start", lambda h: _steepest(h, decades) / start, ends(runs)
    )
    factor = over_seeds("largest factor per decade", lambda h: _factor(h, decades), ends(runs), deciding=False)
    cost = over_seeds("largest fall of J per decade", lambda j: _steepest(-j, decades), values, deciding=False)
    below = float(np.abs(np.diff(infinite.mean(0))[:2]).max() / 0.5 / start)

    def response(ax):
        band(ax, ends(runs) / run(size).end[:, None], COLOURS[0], f"batch of {tokens(size)}", fractions)
        band(ax, infinite / infinite_run().end[:, None], COLOURS[1], "infinite batch", small, DASHES[1])
        ax.set_xscale("log")
        labelled(ax, "k (share of the tokens)", "H at the end over GRPO's")

    def returns(ax):
        band(ax, values, COLOURS[0], "", fractions)
        ax.set_xscale("log")
        ax.set_xlabel("k (share of the tokens)")
        ax.set_ylabel("J at the end")

    return Finding(
        (
            slope._replace(at_least=0.1),
            factor,
            cost,
            exactly("the same from 1e-4 to 1e-3, infinite batch", below, deciding=False),
        ),
        counterexample=f"from k = {fractions[-2]:g} to {fractions[-1]:g} the entropy at the end goes from "
        f"{ends(runs).mean(0)[-2]:.3f} to {ends(runs).mean(0)[-1]:.3f} nats, of {start:.2f} at the start.",
        says=f"The steepest decade moves the entropy at the end by {percent(slope)} of that at the start, which is a "
        f"factor of {text(factor)} at the low level where runs end; J falls by {text(cost)} with it.",
        boundary="Below a hundredth of the tokens little happens: in an infinite batch the slope is at most "
        f"{100 * below:.2g} % from 1e-4 to 1e-3.",
        meaning="In the toy k is a dull dial below 1e-2: its effect is in proportion to the tokens it touches. A "
        "reported sensitivity at 1e-4 is a sign that something else, such as one token a micro-batch at least, sets "
        "the share.",
        table={"k": fractions, "entropy_end": ends(runs).mean(0), "return_end": values.mean(0)},
        panels=(response, returns),
    )


def _steepest(values, decades):
    return (np.diff(values.mean(0)) / decades).max()


def _factor(values, decades):
    return np.exp((np.diff(np.log(values.mean(0))) / decades).max())
