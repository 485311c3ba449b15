"""Entropy bonus and reference KL: fixed points, thresholds, and how they compare when tuned."""

import dataclasses
from functools import cache, partial

import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.ledger import Finding, claim, exactly, mean
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.updates import VanillaPG

from .controls import ACTIONS, CUI, REVIEW, Controls, band, clip_cov, ends, kl_cov, run, scaled_run, text
from .worlds import PROMPTS, exact, follow, policies, pools, realistic_pools

ALPHAS = np.logspace(-1.5, 0.5, 9)
LEVELS = 0.1, 0.9  # of log K
BETAS = np.logspace(-1.5, 1.5, 31)


def crossings(alphas, height, levels=LEVELS):
    """log₁₀ α where the entropy over log K [N, M] of each run first reaches each level, linear in log α: [N, L].

    NaN where it does not, or lies above it from the start.
    """
    x, found = np.log10(alphas), np.full((len(height), len(levels)), np.nan)
    for row, y in enumerate(height):
        for column, level in enumerate(levels):
            i = int((y >= level).argmax())
            if i and y[i] >= level:
                found[row, column] = x[i - 1] + (x[i] - x[i - 1]) * (level - y[i - 1]) / (y[i] - y[i - 1])
    return found


def fixed_point(actions, coefficient):
    """H/log K of π ∝ e^{r/α} with one correct action of K, whatever the start: for each coefficient α."""
    inverse = 1.0 / np.asarray(coefficient)
    wrong = (actions - 1) / (actions - 1 + np.exp(np.minimum(inverse, 600.0)))
    log_wrong = np.log(np.maximum(wrong, 1e-300))
    right = np.log1p(-np.minimum(wrong, 1.0 - 1e-12))
    return (-(1 - wrong) * right - wrong * (log_wrong - np.log(actions - 1))) / np.log(actions)


@cache
def bonus_heights(size, scale=1.0):
    """H at the end over log K after exact PG with an entropy bonus, [N, M] for the `ALPHAS` times `scale`.

    Rewards are 0 and `scale`; the step size goes with 1/scale, so that a step moves the policy as much.
    """
    found = []
    for alpha in scale * ALPHAS:
        settings = [_scaled(setting, scale) for setting in pools(size.seeds, 24, ACTIONS)]
        algorithm = exact(VanillaPG(4.0 * 24 / scale), iv.EntropyBonus(alpha))
        found.append(follow(settings, algorithm, 400, every=400)[0]["entropy"][:, -1])
    return np.stack(found, 1) / np.log(ACTIONS)


def _scaled(setting, scale):
    return setting._replace(
        problem=dataclasses.replace(setting.problem, rewards=scale * np.asarray(setting.problem.rewards))
    )


@claim(
    "C25",
    "The entropy bonus is sensitive to its coefficient: less than a decade of it lies between no effect and an "
    "explosion.",
    source=f"{CUI}, section 4.1, figure 9",
    threshold="the coefficients at which H at the end is .1 and .9 of log K lie within one decade",
)
def the_bonus_is_sensitive(size):
    """Exact PG on pools of 24 prompts, K = 10, one correct action, logits N(0, 1), one pool a seed: 400 steps of 4,
    coefficients α from .03 to 3 (beyond 2K/4 = 5 such steps overshoot the uniform policy); the same with rewards of a
    tenth, α/10 and ten times the step; sampled GRPO on the pools of C22, the same α. The statistic is the number of
    decades of α between H = .1 log K and H = .9 log K at the end, for exact and for sampled. Beside it the α of
    .5 log K, and the width at the fixed point π ∝ e^{r/α}, in closed form, for K up to 10⁵. What the paper calls no
    effect is 1e-4 and 1e-3, stable 5e-3, explosion 1e-2.
    """
    heights = {"exact PG": bonus_heights(size), "exact PG, rewards / 10": bonus_heights(size, 0.1)}
    heights["sampled GRPO"] = ends([run(size, Controls(bonus=alpha)) for alpha in ALPHAS]) / np.log(ACTIONS)
    alphas = {"exact PG": ALPHAS, "exact PG, rewards / 10": 0.1 * ALPHAS, "sampled GRPO": ALPHAS}
    width = {name: np.diff(crossings(alphas[name], x))[:, 0] for name, x in heights.items()}
    middle = {name: 10 ** crossings(alphas[name], x, (0.5,))[:, 0] for name, x in heights.items()}
    deciding = [mean(f"decades of α, {name}", width[name], at_most=1.0) for name in ("exact PG", "sampled GRPO")]
    halves = [mean(f"α at H = .5 log K, {name}", x, deciding=False) for name, x in middle.items()]
    fine = np.logspace(-2.0, 2.0, 4001)
    limits = {k: crossings(fine, fixed_point(k, fine)[None])[0] for k in (10, 1000, 100_000)}
    limit = {k: float(x[1] - x[0]) for k, x in limits.items()}

    def draw(ax):
        for number, (name, x) in enumerate(heights.items()):
            band(ax, x, COLOURS[number], name, alphas[name], DASHES[number])
        ax.plot(ALPHAS, fixed_point(ACTIONS, ALPHAS), ":", color=COLOURS[6], label="fixed point")
        ax.set_xscale("log")
        labelled(ax, "coefficient, α (reward per nat)", "H at the end / log K", columns=4)

    return Finding(
        (
            *deciding,
            *halves,
            *(exactly(f"decades at the fixed point, K = {k}", x, deciding=False) for k, x in limit.items()),
        ),
        says=f"The way from .1 to .9 of log K takes {text(deciding[0])} decades for exact PG and {text(deciding[1])} "
        "for sampled GRPO.",
        boundary=f"Where the threshold lies is a matter of units: half of log K is reached at α = {text(halves[0])} "
        f"with rewards of 1 and at {text(halves[1])} with rewards of .1, while GRPO divides the scale away "
        f"({text(halves[2])}). 1e-2 does nothing in either here. At the fixed point more actions narrow it: "
        f"{limit[10]:.2f} decades for K = 10, {limit[100_000]:.2f} for 10⁵.",
        meaning="The bonus is a switch rather than a dial because the policy is e^{r/α}: its threshold is the reward "
        "over the logarithm of the number of actions. A coefficient of another run is worth nothing unless rewards "
        "are scaled alike.",
        table={"alpha": ALPHAS, "height_exact": heights["exact PG"].mean(0)}
        | {"height_exact_rewards_tenth_at_alpha_tenth": heights["exact PG, rewards / 10"].mean(0)}
        | {"height_fixed_point": fixed_point(ACTIONS, ALPHAS)},
        panels=(draw,),
    )


def tilted(setting, betas):
    """(J [S, B], H [S, B], start accuracy [S], its p*) of the prompts of a pool at the fixed points π ∝ π₀ e^{r/β}.

    p* = e^{H₊}/(e^{H₊} + e^{H₋}), from the entropies inside the correct and the wrong set: H rises with p up to there.
    """
    start, rewards = policies(setting.logits), np.asarray(setting.problem.rewards)
    weight = start[:, None] * np.exp((rewards[:, None] - 1.0) / betas[:, None])
    p = weight / weight.sum(-1, keepdims=True)
    inside = [np.where(right, start, 0.0) for right in (rewards > 0.5, rewards <= 0.5)]
    inside = [x / x.sum(-1, keepdims=True) for x in inside]
    entropies = [_entropy(x) for x in inside]
    top = 1.0 / (1.0 + np.exp(entropies[1] - entropies[0]))
    return (p * rewards[:, None]).sum(-1), _entropy(p), (start * rewards).sum(-1), top


def _entropy(p):
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), -1)


def largest_fall(values):
    """The largest fall between neighbours along the last axis, 0 if there is none."""
    return np.maximum(-np.diff(values), 0.0).max(-1)


@claim(
    "C26",
    "A KL penalty to the start keeps the entropy up, the more the larger its β, and costs return.",
    source=f"{CUI}, section 4.1, figure 10",
    threshold="at the fixed points R(β) is decreasing and H(β) increasing",
)
def the_reference_keeps_entropy_and_costs_return(size):
    """The fixed points π ∝ π₀ e^{r/β} of a KL penalty to the start, β from .03 to 30 in 31 steps: pools of 200 prompts
    (quick: 24), K = 10, one correct, logits N(0, 1); the same with K = 20, 5 correct and accuracies of a base model
    (many near 0 or 1). The statistics are the largest rise of J and the largest fall of H between neighbouring β of a
    pool, which should be 0. Then prompt by prompt, beside the start accuracy p* up to which H rises when p does, and
    sampled GRPO with the penalty (β = .03 … 1) after equally many steps.
    """
    sets = {
        name: make(size.seeds, size(PROMPTS, 24))
        for name, make in (("one of 10", pools), ("base model", realistic_pools))
    }
    found = {name: [tilted(setting, BETAS) for setting in settings] for name, settings in sets.items()}
    rise, fall = ({name: _worst(x, part) for name, x in found.items()} for part in (0, 1))
    _, entropy, start, top = (np.concatenate([x[part] for each in found.values() for x in each]) for part in range(4))
    above, drops = start >= top, largest_fall(entropy)
    shares = [float(np.sum(drops[group] > 1e-12) / max(1, np.sum(group))) for group in (above, ~above)]
    drawn = [run(size, Controls(reference=beta)) for beta in (0.03, 0.1, 0.3, 1.0)]
    statistics = (
        *(mean(f"largest rise of J with β, {name}", x, at_most=1e-12) for name, x in rise.items()),
        *(mean(f"largest fall of H with β, {name} (nats)", x, at_most=1e-12) for name, x in fall.items()),
        exactly("share of prompts whose H falls somewhere, p ≥ p* at the start", shares[0], deciding=False),
        exactly("the same, p < p* at the start", shares[1], deciding=False),
        mean("sampled GRPO: largest rise of J with β", largest_fall(-_returns(drawn)), deciding=False),
        mean("sampled GRPO: largest fall of H with β (nats)", largest_fall(ends(drawn)), deciding=False),
    )
    worst = int(drops.argmax())
    path = entropy[worst]

    def prompts(ax):
        ax.plot(start - top, drops, ".", color=COLOURS[2], markersize=1.5)
        ax.axvline(0.0, color="0.6", linewidth=0.8)
        ax.set_xlabel("accuracy at the start, p − p*")
        ax.set_ylabel("largest fall of H with β (nats)")

    condition = "every prompt starts with an accuracy of p* = e^{H₊}/(e^{H₊} + e^{H₋}) or more"
    return Finding(
        statistics,
        only_when=condition if above.any() and shares[0] == 0.0 else "",
        counterexample=f"a prompt of accuracy {start[worst]:.3f}: its entropy is {path.max():.3f} nats at "
        f"β = {BETAS[path.argmax()]:.2g} and {path[-1]:.3f} at β = {BETAS[-1]:.2g}.",
        says="J falls with β everywhere (its slope in 1/β is a variance). H does not always rise: a penalty that is "
        f"too strong keeps a hard prompt at its start, which is sure of wrong answers; {100 * shares[1]:.3g} % of the "
        "prompts that start below p* have such a fall.",
        boundary="A prompt's entropy grows with β throughout if its accuracy at the start is at least p*: the "
        f"largest fall among {int(above.sum())} such prompts is {drops[above].max():.1g} nats.",
        meaning="On prompts that the model already half solves the penalty trades return for entropy. On hard ones it "
        "costs both: there the way to the answer leads through higher entropy.",
        table={"beta": BETAS, **{f"{what}, {name}": x.mean(0) for (what, name), x in _by_pool(found).items()}},
        panels=(partial(_fixed_point_curves, found=found), prompts),
    )


def _by_pool(found):
    """{(J or H, name): the means over the prompts of each pool [N, B]}."""
    return {
        (what, name): np.stack([x[part].mean(0) for x in each])
        for name, each in found.items()
        for part, what in enumerate("JH")
    }


def _fixed_point_curves(ax, found):
    for number, ((what, name), x) in enumerate(_by_pool(found).items()):
        label = f"{name}, {what}" + " (nats)" * (what == "H")
        band(ax, x, COLOURS[number // 2], label, BETAS, DASHES[1 - number % 2])
    ax.set_xscale("log")
    labelled(ax, "coefficient, β (reward per nat)", "at the fixed point")


def _returns(runs):
    return np.stack([each.final_return for each in runs], 1)


def _worst(pools_found, part):
    """Of each pool: the largest rise of its mean J (part 0) or the largest fall of its mean H (part 1)."""
    sign = -1.0 if part == 0 else 1.0
    return np.array([largest_fall(sign * x[part].mean(0)) for x in pools_found])


def matched(entropies, returns, level):
    """J at the entropy `level` [N] of each run, linear between the settings of a control [N, M]; NaN outside of "
    "them."""
    order = np.argsort(entropies, 1)
    x, y = (np.take_along_axis(values, order, 1) for values in (entropies, returns))
    return np.array(
        [np.interp(z, *each, left=np.nan, right=np.nan) for z, each in zip(level, zip(x, y, strict=True), strict=True)]
    )


@claim(
    "C59",
    "The gain of the covariance methods comes of baselines that are not tuned: a tuned bonus has as much return at "
    "equal H.",
    source=REVIEW,
    threshold="J of the tuned entropy bonus − J of the covariance method at equal entropy at the end ≥ −.01",
)
def tuned_baselines_do_as_well(size):
    """The pools and runs of C22. Clip-Cov in its scale-free form (a fifth of the tokens), KL-Cov as released (k = .2,
    β = 1) and Clip-Cov as printed (r = 3.5 %) against an entropy bonus, α = 0 … .35, and against a controller that
    steers the bonus to a target of .05 … .6 nats, all from the same pools and draws. J is compared at the end of the
    runs where the entropies are equal, linear between the coefficients, seed by seed.
    """
    covs = {
        "Clip-Cov, scale-free": scaled_run(size, 0.2),
        "KL-Cov": run(size, kl_cov(0.2, 1.0)),
        "Clip-Cov, printed": run(size, clip_cov(0.035)),
    }
    grids = {
        "entropy bonus": [Controls(bonus=x) for x in (0.0, 0.05, 0.1, 0.15, 0.2, 0.35)],
        "controller": [Controls(), *(Controls(target=x, gain=0.02) for x in (0.05, 0.15, 0.3, 0.6))],
    }
    runs = {name: [run(size, each) for each in grid] for name, grid in grids.items()}
    paths = {name: (ends(each), _returns(each)) for name, each in runs.items()}
    at_equal = {name: {method: matched(*path, cov.end) for method, cov in covs.items()} for name, path in paths.items()}
    bonus, controller = (
        [mean(f"J, {name} − {method}", x - covs[method].final_return, at_least=-0.01) for method, x in each.items()]
        for name, each in at_equal.items()
    )
    raised = [
        mean(f"H at the end above GRPO, {name} (nats)", x.end - run(size).end, deciding=False)
        for name, x in covs.items()
    ]

    def draw(ax):
        for number, (name, (entropy, value)) in enumerate(paths.items()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number], "marker": "o", "markersize": 3}
            ax.plot(entropy.mean(0), value.mean(0), label=name, **style)
        for number, (name, each) in enumerate(covs.items()):
            error = [1.96 * x.std(ddof=1) / np.sqrt(len(x)) for x in (each.final_return, each.end)]
            style = {"color": COLOURS[number + 2], "marker": "s^D"[number], "linestyle": "", "label": name}
            ax.errorbar(each.end.mean(), each.final_return.mean(), *error, **style)
        labelled(ax, "entropy at the end, H (nats)", "J at the end", columns=3)

    return Finding(
        (*bonus, *(x._replace(deciding=False) for x in controller), *raised),
        says=f"At equal entropy a tuned bonus has {text(bonus[0])} more return than the scale-free Clip-Cov, "
        f"{text(bonus[1])} more than KL-Cov and {text(bonus[2])} more than Clip-Cov as printed.",
        boundary="The controller is at "
        + ", ".join(f"{text(x)} ({method})" for x, method in zip(controller, covs, strict=True))
        + f". The entropies compared are {text(raised[0])} and {text(raised[1])} nats above GRPO's.",
        meaning="Compare methods at equal entropy, with the baseline tuned as carefully as the method. Untuned, a "
        "bonus of the wrong size looks useless or explosive (C25).",
        table={"method": [*covs], "entropy_end": [x.end.mean() for x in covs.values()]}
        | {"return_end": [x.final_return.mean() for x in covs.values()]}
        | {f"return_of_{name.replace(' ', '_')}": [x.mean() for x in each.values()] for name, each in at_equal.items()},
        panels=(draw,),
    )
