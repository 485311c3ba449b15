"""The law R = −a exp(H) + b as a form: how well it fits, where its ceiling and its slope are, what it is a rate of."""

import numpy as np

from softmaxdyn.laws import EXPONENTIAL, LINEAR, compare
from softmaxdyn.ledger import Finding, claim, correlation_of, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled

from . import curves as c

PAPER = "Cui et al. 2025 (arXiv:2505.22617)"
CONVERGED = 0.99  # of the reward
LEVELS = np.linspace(0.25, 0.75, 9)  # of the range of H


def fits_better(curve):
    """Whether the exponential law fits a curve better than a straight line (its AIC is lower), a number a seed."""
    return c.squares(curve) < c.squares(curve, LINEAR)


def ceiling(curve):
    """b − a, a number a seed."""
    a, b = c.fitted(*curve).T
    return b - a


def ceiling_error(curve):
    """|b − a − R at the end|, a number a seed."""
    return np.abs(ceiling(curve) - curve.reward[:, -1])


def slopes(curve):
    """(H, dR/dH as measured by secants between nine levels of the middle half of H, −a exp(H)), [seeds, 8] each."""
    found = []
    for h, r, coefficients in zip(*curve, c.fitted(*curve), strict=True):
        high, value = c.falling(h, r)
        at = high[0] + (high[-1] - high[0]) * LEVELS
        middle = 0.5 * (at[1:] + at[:-1])
        secant = np.diff(np.interp(at, high, value)) / np.diff(at)
        found.append((middle, secant, EXPONENTIAL.slope(coefficients, middle)))
    return np.stack(found, 1)


def slope_errors(curve):
    """|−a exp(H)/(dR/dH) − 1| at the eight secants, [seeds, 8]."""
    _, measured, law = slopes(curve)
    return np.abs(law / measured - 1.0)


def growth(kind, world, curve):
    """In words, how the slope grows with H: its factor as measured and by the law, over the middle half of H."""
    _, measured, law = (x.mean(0) for x in slopes(curve))
    return f"{measured[-1] / measured[0]:.1f} under {kind} with {world.name} (exp(H): {law[-1] / law[0]:.1f})"


def draw_paths(ax, kind, worlds, fitted=True):
    """R against H, the mean over seeds (markers), and the law on it (line)."""
    for style, (world, curve) in enumerate(worlds.items()):
        h, r = (x.mean(0) for x in curve)
        ax.plot(h[::6], r[::6], ".", markersize=3, color=COLOURS[style], label=world.name)
        if fitted:
            law = EXPONENTIAL.solve(h, r)
            ax.plot(h, EXPONENTIAL.predict(law, h), color=COLOURS[style], linewidth=1)
    return labelled(ax, "entropy, H (nats)", f"reward, R ({kind})", columns=2)


@claim(
    "C3",
    "Reward follows entropy as R = −a exp(H) + b in every run: R² ≥ 0.95.",
    source=f"{PAPER}, abstract and section 2.4",
    threshold="R² ≥ .95; AIC beside that of R = −a H + b",
)
def reward_is_an_exponential_of_entropy(size):
    """Pools of 200 prompts (GRPO: 40) with one correct action of K = 10 and logits N(0, σ²), σ = 0 … 3; K = 20 and 100
    at σ = 1, and K = 100 with 10 correct actions (PG 50 prompts, GRPO 20). Exact PG, exact natural PG (in closed form)
    and (not in a quick run) sampled GRPO (8 responses, 8 inner steps, PPO clip): 235 steps each, all 236 rows fitted
    by least squares. The deciding number is R² in the worst pool of each update, a mean over 20 seeds; beside it, the
    share of all curves on which the exponential law has a lower AIC than a straight line, which has as many
    coefficients.
    """
    found = c.curves(size)
    fit, lead = c.each_curve(c.r_squared, found), c.each_curve(fits_better, found)
    decided = c.by_kind("lowest R²", fit, np.min, at_least=0.95)
    beside = [each._replace(deciding=False) for each in c.by_kind("share better than a line", lead, np.mean)]
    measured = c.realistic_curves(size)
    real = [over_seeds(f"R², measured success rates, {k}", np.mean, c.r_squared(x)) for k, x in measured.items()]
    kind, world, low = c.extreme(fit, min)
    line = np.mean(c.r_squared(found[kind][world], LINEAR))
    forms = {each: compare(*(x.mean(0) for x in found[each][c.STANDARD]), replicates=100).rivals for each in found}
    best = {each: min(rivals, key=lambda name: rivals[name].aic) for each, rivals in forms.items()}
    shown = {w: found[c.PG][w] for w in (*c.PRIORS[::2], c.SIZES[1]) if w in found[c.PG]}
    ten = min(np.mean(x) for worlds in fit.values() for w, x in worlds.items() if w.actions == 10)
    by_actions = [f"{np.mean(fit[c.NPG][w]):.3f} with K = {w.actions}" for w in (c.STANDARD, *c.SIZES[:2])]

    return Finding(
        (*decided, *beside, *(each._replace(deciding=False) for each in real)),
        only_when=c.condition(fit, lambda x: x >= 0.95),
        counterexample=f"{kind} with {world.name}: R² is {low:.3f}, that of a straight line {line:.3f}."
        if low < 0.95
        else "",
        says=f"R² of the exponential is {ten:.3f} or more in all pools of ten actions, but it has a lower AIC than a "
        f"line on {', '.join(f'{s.value:.0%} of the curves under {k}' for s, k in zip(beside, found, strict=True))}. "
        "On the mean curve at σ = 1, K = 10 the best of four forms is "
        f"{', '.join(f'the {form} one under {each}' for each, form in best.items())}.",
        boundary=f"The more actions, the straighter the curve: with one correct one R² is {', '.join(by_actions)} "
        "under natural PG. A pool of prompts that are either unsolved (H near log K) or solved (H = 0) lies on the "
        "chord between the two. Where success rates are spread as those of a base model are, R² is "
        f"{', '.join(f'{s.value:.3f} under {k}' for s, k in zip(real, measured, strict=True))}, that of a line "
        f"{', '.join(f'{np.mean(c.r_squared(x, LINEAR)):.3f}' for x in measured.values())}.",
        meaning="That reward follows such a curve is no evidence of a mechanism: tables of binary rewards do, as both "
        "numbers are functions of the success probabilities alone. Which curve it is depends on the update and the "
        "number of actions; try a straight line, too.",
        table={
            **c.rows(fit, "R²"),
            "R² of a line": c.rows(c.each_curve(lambda x: c.r_squared(x, LINEAR), found), "")[""],
        },
        panels=(lambda ax: c.dots(ax, fit, 0.95, "R² of the law"), lambda ax: draw_paths(ax, c.PG, shown)),
    )


@claim(
    "C8",
    "The ceiling of a run is b − a: the reward that the law gives at H = 0 is the one in which training ends.",
    source=f"{PAPER}, abstract and section 2.4",
    threshold="|b − a − R at the end| ≤ .02 in runs to convergence",
)
def the_ceiling_is_b_minus_a(size):
    """The curves of C3. A run has converged where its mean reward at the end is 0.99 or more; a and b are fitted to all
    of its rows, the end included. The deciding number is |b − a − R at the end|, the mean over 20 seeds, in the worst
    converged pool of each update. Beside it: the same for pools that have not converged, against their true limit 1,
    and the entropy at which the converged pools end, 0 by the claim.
    """
    found = c.curves(size)
    done = {k: {w: x for w, x in each.items() if x.reward[:, -1].mean() >= CONVERGED} for k, each in found.items()}
    rest = {k: {w: x for w, x in each.items() if w not in done[k]} for k, each in found.items()}
    rest = {k: each for k, each in rest.items() if each}
    miss = c.each_curve(ceiling_error, done)
    beside = (
        *c.by_kind("|b − a − 1|, not converged", c.each_curve(lambda x: np.abs(ceiling(x) - 1.0), rest)),
        *c.by_kind("H at the end, converged", c.each_curve(lambda x: x.entropy[:, -1], done)),
    )
    kind, world, most = c.extreme(miss)
    worst = done[kind][world]

    def draw(ax):
        draw_paths(ax, kind, {w: found[kind][w] for w in (c.STANDARD, world)})
        for style, w in enumerate((c.STANDARD, world)):
            ax.plot(0.0, ceiling(found[kind][w]).mean(), "D", color=COLOURS[style], markersize=4, clip_on=False)
        ax.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":")

    return Finding(
        (*c.by_kind("|b − a − R at the end|", miss, at_most=0.02), *(each._replace(deciding=False) for each in beside)),
        only_when=c.condition(miss, lambda x: x <= 0.02),
        counterexample=f"{kind} with {world.name}: b − a = {ceiling(worst).mean():.3f}, while R ends at "
        f"{worst.reward[:, -1].mean():.3f}, with H = {worst.entropy[:, -1].mean():.2f} left.",
        says=f"Off by {most:.3f} at most among pools that converged. The end of a run is at b − a where its fit "
        "includes that end, H falls to 0 and the law fits the rest.",
        boundary="With several correct actions natural PG ends at the entropy inside the correct set, not at 0, and b "
        "− a is a reward that nothing reaches; with many actions the curve is straighter than the law, which bends "
        "down too early. In runs that were stopped before convergence b − a is no forecast of the limit: see the "
        "numbers.",
        meaning="Do not read b − a as what a model can reach. Entropy at the end is that of the ways to be right, and "
        "a ceiling above the highest reward there is shows that the form is wrong, not that something is lost.",
        table=c.rows(miss, "|b − a − R|"),
        panels=(lambda ax: c.dots(ax, miss, 0.02, "|b − a − R at the end|"), draw),
    )


@claim(
    "C10",
    "Entropy is converted into reward at the rate dR/dH = −a exp(H).",
    source=f"{PAPER}, section 2.5",
    threshold="relative error of the slope ≤ 20 % in the middle half of the range of H",
)
def a_is_the_rate_of_conversion(size):
    """The curves of C3. On each, after its highest entropy, secants between nine levels of H at 25 % … 75 % of its
    range measure dR/dH; −a exp(H) at their middles is set beside them, a fitted to all rows. The deciding number is
    the largest relative error among the eight, the mean over 20 seeds, in the worst pool of each update. Beside it, the
    mean of the eight.
    """
    found = c.curves(size)
    worst = c.each_curve(lambda x: slope_errors(x).max(1), found)
    usual = c.by_kind("mean error of the slope", c.each_curve(lambda x: slope_errors(x).mean(1), found))
    kind, world, _ = c.extreme(worst)
    h, measured, law = (x.mean(0) for x in slopes(found[kind][world]))
    at = np.abs(law / measured - 1.0).argmax()

    def draw(ax):
        for style, each in enumerate(found):
            h, measured, law = slopes(found[each][c.STANDARD])
            c.band(ax, h.mean(0), -measured, color=COLOURS[style], label=f"{each}, measured")
            ax.plot(h.mean(0), -law.mean(0), color=COLOURS[style], linestyle=DASHES[1], label="a exp(H)")
        labelled(ax, "entropy, H (nats)", "−dR/dH at σ = 1 (1/nat)")

    return Finding(
        (
            *c.by_kind("largest error of the slope", worst, at_most=0.2),
            *(each._replace(deciding=False) for each in usual),
        ),
        only_when=c.condition(worst, lambda x: x <= 0.2),
        counterexample=f"{kind} with {world.name}: at H = {h[at]:.2f} the slope is {measured[at]:.3f} per nat, the "
        f"law's {law[at]:.3f}.",
        says="A fit that looks good has slopes that are off by "
        f"{', '.join(f'{np.mean(worst[k][c.STANDARD]):.0%} ({k})' for k in found)} somewhere in the middle of the run "
        "at σ = 1, K = 10.",
        boundary="From the lowest secant to the highest the slope grows by a factor of "
        + ", ".join(growth(k, w, found[k][w]) for k, w in [*((k, c.STANDARD) for k in found), (kind, world)])
        + ".",
        meaning="A rate of exchange between entropy and reward that is read off a fit can be wrong by a factor in "
        "places, with R² above 0.95. Take differences of the curve itself.",
        table=c.rows(worst, "largest error"),
        panels=(lambda ax: c.dots(ax, worst, 0.2, "largest error of the slope"), draw),
    )


@claim(
    "C60",
    "exp(H) is roughly the error rate, so that the law says little: 1 − R is proportional to exp(H) − 1.",
    source=f"public reviews of {PAPER}, reviewer 2",
    threshold="Pearson correlation of 1 − R with exp(H) − 1 (no number was fixed; ≥ .9, as for C14)",
)
def entropy_is_an_error_rate(size):
    """The curves of C3: the correlation, along a run, of the error rate 1 − R with exp(H) − 1, the effective number of
    wrong actions. The deciding number is the mean over 20 seeds in the worst pool of each update. It is the root of R²
    of C3. Beside it, what "roughly" needs: the slope of 1 − R on exp(H) − 1 through the origin, its smallest and
    largest mean over all pools, 1 if the two were equal.
    """
    found = c.curves(size)
    values = {
        kind: {w: (np.exp(x.entropy) - 1.0, 1.0 - x.reward) for w, x in each.items()} for kind, each in found.items()
    }
    together = c.each_curve(lambda pair: np.array([correlation_of(x, y) for x, y in zip(*pair, strict=True)]), values)
    factor = c.each_curve(lambda pair: (pair[0] * pair[1]).sum(1) / (pair[0] ** 2).sum(1), values)
    every = np.stack([x for worlds in factor.values() for x in worlds.values()], 1)
    ends = [
        over_seeds(f"{word} 1 − R per exp(H) − 1", lambda x, f=f: f(x.mean(0)), every, deciding=False)
        for word, f in (("smallest", np.min), ("largest", np.max))
    ]
    few, many, low = c.extreme(factor, min), c.extreme(factor), c.extreme(together, min)

    def draw(ax):
        for style, world in enumerate(found[c.NPG]):
            x, y = (part.mean(0) for part in values[c.NPG][world])
            ax.plot(x[x > 1e-3], y[x > 1e-3], color=COLOURS[style % 7], linestyle=DASHES[style // 7], label=world.mark)
        ax.plot([1e-3, 1.0], [1e-3, 1.0], color="0.6", linewidth=0.8, linestyle=":")
        ax.set(xscale="log", yscale="log", ylim=(1e-4, 1.5))
        labelled(ax, "exp(H) − 1", "1 − R (natural PG)", columns=3)

    return Finding(
        (*c.by_kind("lowest correlation", together, np.min, at_least=0.9), *ends),
        only_when=c.condition(together, lambda x: x >= 0.9),
        counterexample=f"{low[0]} with {low[1].name}: the correlation is {low[2]:.3f}." if low[2] < 0.9 else "",
        says="The two go together along every run, as they must where nothing but the success probabilities moves, but "
        f"they are not equal: 1 − R is {few[2]:.3f} (exp(H) − 1) under {few[0]} with {few[1].name}, and {many[2]:.2f} "
        f"under {many[0]} with {many[1].name}. A uniform policy with one correct action has 1 − R = (exp(H) − 1)/K.",
        boundary="With 10 correct actions of 100 natural PG ends with no error and exp(H) − 1 at "
        f"{values[c.NPG][c.SIZES[-1]][0][:, -1].mean():.1f}.",
        meaning="The reviewer's point stands for tables: the law restates that both numbers count what is still "
        "wrong. The factor depends on the prior and on the number of actions, so entropy does not measure accuracy "
        "across models.",
        table={**c.rows(together, "correlation"), "1 − R per exp(H) − 1": c.rows(factor, "")[""]},
        panels=(lambda ax: c.dots(ax, together, 0.9, "correlation"), draw),
    )
