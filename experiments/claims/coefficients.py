"""What the coefficients a and b of the law depend on: the algorithm, the prior, entropy and KL terms."""

from functools import partial

import numpy as np

from softmaxdyn.interventions import EntropyBonus, ReferenceKL
from softmaxdyn.ledger import Finding, claim, correlation_of, over_seeds
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.updates import NaturalPG, VanillaPG

from . import curves as c
from .law import PAPER
from .worlds import exact

BOOSTS = np.linspace(0.0, 3.0, 5)  # added to the logits of correct actions
TERMS = {"entropy bonus": EntropyBonus, "reference KL": ReferenceKL}
COEFFICIENTS = {"entropy bonus": (0.02, 0.05, 0.1, 0.2), "reference KL": (0.05, 0.2)}  # reward per nat
CLASS = "exact GRPO", "sampled RLOO", "sampled GRPO"  # reward-only on policy, like exact PG
OTHERS = "GRPO, 8 inner steps", "PRIME", "natural PG"


def methods(world, size):
    """The curves of exact PG and seven other methods on the same pools."""
    prompts = size(40, 10)
    settings = world.settings(size.seeds, prompts)
    step = {"step_size": prompts}
    sampled = {**step, "groups": prompts}
    quick = {
        "exact PG": c.run(settings, exact(VanillaPG(4.0 * prompts))),
        "exact GRPO": c.run(settings, build("grpo", mode="exact", **step)),
        "sampled RLOO": c.run(settings, build("rloo", **sampled)),
        "natural PG": c.natural(settings, c.SPEEDS[c.NPG] * np.arange(c.ROWS)),
    }
    if size.quick:
        return quick
    return quick | {
        "sampled GRPO": c.run(settings, build("grpo", **sampled)),
        "GRPO, 8 inner steps": c.curve(c.GRPO, world, size),
        "PRIME": c.run(settings, build("prime", **sampled)),
    }


def one_prompt(size):
    """The largest |ΔR| at equal H between exact PG and exact GRPO on single prompts, with small steps."""
    settings = c.STANDARD.settings(size.seeds, 1)
    slow = [exact(VanillaPG(0.2)), build("grpo", mode="exact", step_size=0.1)]
    return c.apart(*(c.run(settings, algorithm) for algorithm in slow))


def most_apart(found, names):
    """For each method its largest |ΔR| from exact PG at equal H, [seeds, methods]."""
    return np.stack([c.apart(found[name], found["exact PG"]) for name in names if name in found], 1)


@claim(
    "C6",
    "a and b do not depend on the algorithm: at equal entropy all methods have the same reward.",
    source=f"{PAPER}, section 2.5",
    threshold="|ΔR| at equal H ≤ .02 among reward-only methods, ≤ .05 from the others",
)
def the_curve_does_not_depend_on_the_algorithm(size):
    """Pools of 40 prompts with one correct action of K = 10, σ = 0, 1 and 3; 235 steps each of exact PG, exact GRPO,
    sampled RLOO and GRPO (8 responses, on policy): reward-only methods, which share one expected direction a prompt;
    and of GRPO with 8 inner steps and clip, PRIME, and natural PG. The deciding number is the largest |ΔR| from exact
    PG at equal mean entropy, each run after its highest entropy: a mean over 20 seeds, in the worst method and prior.
    Beside it, the same on single prompts, where theory says that PG and GRPO follow one curve (steps small), and at
    σ = 0, where all prompts are alike.
    """
    worlds = (c.PRIORS[0], c.STANDARD) if size.quick else c.PRIORS[::2]
    found = {world: methods(world, size) for world in worlds}
    names = {"reward-only": CLASS, "others": OTHERS}
    gaps = {kind: {w: most_apart(x, each) for w, x in found.items()} for kind, each in names.items()}
    joined = {kind: np.concatenate(list(each.values()), 1) for kind, each in gaps.items()}
    worst = lambda x: x.mean(0).max()  # noqa: E731
    equal = {n: c.apart(found[c.PRIORS[0]][n], found[c.PRIORS[0]]["exact PG"]) for n in (*CLASS[:2], "natural PG")}
    alike = [over_seeds(f"|ΔR| at σ = 0, {n}", np.mean, x, deciding=False) for n, x in equal.items()]
    same = np.mean(equal[CLASS[0]]) <= 0.02 and np.mean(equal["natural PG"]) <= 0.05
    limits = {"reward-only": 0.02, "others": 0.05}
    alone = over_seeds("|ΔR| of PG and GRPO on one prompt", np.mean, one_prompt(size), deciding=False)
    listed = [
        (k, w, n, x)
        for k, names_ in names.items()
        for w in worlds
        for n, x in zip([n for n in names_ if n in found[w]], gaps[k][w].T, strict=True)
    ]
    broken = max((each for each in listed if each[0] == "reward-only"), key=lambda each: each[3].mean())

    def draw(ax, world):
        for style, (name, curve) in enumerate(found[world].items()):
            h, r = (x.mean(0) for x in curve)
            ax.plot(h, r, color=COLOURS[style % 7], linestyle=DASHES[style % 4], linewidth=1.1, label=name)
        labelled(ax, f"entropy at {world.name}, H (nats)", "reward, R")

    return Finding(
        (
            *(over_seeds(f"|ΔR|, {kind}", worst, x, at_most=limits[kind]) for kind, x in joined.items()),
            *alike,
            alone,
        ),
        only_when="the updates are exact and all prompts start alike (σ = 0)" if same else "",
        counterexample=f"{broken[2]} and exact PG at {broken[1].name}: |ΔR| = {broken[3].mean():.3f} at equal entropy.",
        says=f"On one prompt PG and GRPO follow one curve (|ΔR| = {alone.value:.4f}, from the size of the steps), and "
        "so does natural PG on a pool of equal prompts. On a mixed pool methods differ in which prompts they move "
        "first: the root that GRPO divides by speeds up hard ones. Sampling noise moves the curve, too: see RLOO at σ "
        "= 0.",
        boundary="The gap grows with the spread of the prompts: the largest of all methods is "
        + ", ".join(f"{max(gaps[k][w].mean(0).max() for k in gaps):.3f} at {w.name}" for w in worlds)
        + ".",
        meaning="That methods fall on one curve says that they only set the pace of each prompt. Where a method gives "
        "pace to other prompts, the reward at equal entropy changes without any change of mechanism.",
        table={
            "class": [x[0] for x in listed],
            "pool": [x[1].name for x in listed],
            "method": [x[2] for x in listed],
            "largest difference of R": [x[3].mean() for x in listed],
            "standard error": [c.error(x[3]) for x in listed],
        },
        panels=tuple(partial(draw, world=world) for world in worlds[-2:]),
    )


def by_boost(kind, size):
    """(a, b) [seeds, boosts] of the law on pools whose correct actions have so much more logit."""
    fits = [c.fitted(*c.curve(kind, c.STANDARD, size, boost=boost)) for boost in BOOSTS]
    return np.moveaxis(np.stack(fits, 1), 2, 0)


def straight(values):
    """R² of a straight line in the boost, a number a seed."""
    return np.array([correlation_of(BOOSTS, row) ** 2 for row in values])


def monotone(values):
    """Whether the values only rise or only fall with the boost, a seed."""
    steps = np.diff(values, axis=1)
    return (steps > 0.0).all(1) | (steps < 0.0).all(1)


@claim(
    "C7",
    "a and b are properties of the model and the data, and linear in the logarithm of the model's size.",
    source=f"{PAPER}, section 2.5",
    threshold="a and b monotone in the strength m of the prior, R² of a line in m ≥ .95",
)
def the_coefficients_are_linear_in_the_prior(size):
    """Pools of 200 prompts (GRPO: 40) with one correct action of K = 10 and logits N(0, 1), to which m = 0 … 3 is
    added on the correct action: a stronger model. Exact PG, natural PG and (not in a quick run) sampled GRPO, 235
    steps; the law is fitted to each run. The deciding numbers are R² of a straight line of a, and of b, in m, and the
    share of seeds in which both are monotone, in the worst update; 20 seeds. Beside them, the change of a from m = 0
    to 3, and from σ = 0 to 3 at m = 0, as ratios, under natural PG.
    """
    fits = {kind: by_boost(kind, size) for kind in c.kinds(size)}
    least = {
        word: over_seeds(
            f"R² of {word} in m, worst update",
            lambda x: x.mean(0).min(),
            np.stack([straight(fits[kind][place]) for kind in fits], 1),
            at_least=0.95,
        )
        for place, word in enumerate("ab")
    }
    both = np.stack([monotone(a) & monotone(b) for a, b in fits.values()], 1)
    ordered = over_seeds("share monotone, worst update", lambda x: x.mean(0).min(), both, at_least=0.95)
    priors = np.stack([c.fitted(*c.curve(c.NPG, world, size))[:, 0] for world in c.PRIORS], 1)
    by_m = fits[c.NPG][0]
    change = [
        over_seeds(
            f"a at {word} over a at 0, natural PG", lambda x: x[:, -1].mean() / x[:, 0].mean(), x, deciding=False
        )
        for word, x in (("m = 3", by_m), ("σ = 3", priors))
    ]
    a = by_m.mean(0)

    def draw(ax):
        for style, (kind, pair) in enumerate(fits.items()):
            c.band(ax, BOOSTS, pair[0], color=COLOURS[style], linestyle=DASHES[style], label=kind)
        labelled(ax, "logit added to the correct action, m", "a of the law", columns=3)

    def draw_priors(ax):
        c.band(
            ax, [world.spread for world in c.PRIORS], priors, color=COLOURS[1], marker="o", markersize=3, label=c.NPG
        )
        labelled(ax, "spread of the prior, σ", "a of the law")

    return Finding(
        (*least.values(), ordered, *change),
        counterexample=f"natural PG: a = {a[0]:.3f}, {a[len(a) // 2]:.3f} and {a[-1]:.3f} at m = {BOOSTS[0]:g}, "
        f"{BOOSTS[len(a) // 2]:g} and {BOOSTS[-1]:g}.",
        says=f"A better prior hardly changes a: by a factor {change[0].value:.2f} over three logits, from "
        f"{a.min():.3f} to {a.max():.3f} at most. Its spread does: from σ = 0 to 3 a grows by a factor "
        f"{change[1].value:.1f}.",
        boundary="Under natural PG m is a head start of τ = m on the same curve, exactly: what changes a and b is "
        "only which part of the curve the fit sees.",
        meaning="If a and b of two models differ, their entropies at equal accuracy differ, as by the temperature or "
        "by how sharp the model is; that one knows more need not show in either.",
        table={
            "update": np.repeat(list(fits), len(BOOSTS)),
            "m": np.tile(BOOSTS, len(fits)),
            **{w: np.concatenate([p[i].mean(0) for p in fits.values()]) for i, w in enumerate("ab")},
        },
        panels=(draw, draw_priors),
    )


def with_term(kind, world, size, term="entropy bonus", coefficient=0.0, **options):
    """The curve of an update with an entropy bonus or a reference KL of this coefficient."""
    prompts = 40 if kind == c.GRPO else size(100, 40)
    settings, step = world.settings(size.seeds, prompts), c.SPEEDS[kind]
    if kind == c.GRPO:
        name = term.replace(" ", "_").lower()
        algorithm = build(name, step_size=step * prompts, groups=prompts, coefficient=coefficient)
        return c.run(settings, algorithm, inner_steps=8, **options)
    update = NaturalPG(step) if kind == c.NPG else VanillaPG(step * prompts)
    return c.run(settings, exact(update, TERMS[term](coefficient)))


def enough(gaps, limit=0.05):
    """The smallest coefficient from which on the mean gap is above the limit; None if not even the largest is."""
    found = None
    for coefficient in sorted(gaps, reverse=True):
        if gaps[coefficient].mean() <= limit:
            break
        found = coefficient
    return found


def strong_enough(gaps):
    """In words, the coefficients from which on a run is off: {(term, kind): {coefficient: a gap a seed}}."""
    parts = {term: [] for term in TERMS}
    for (term, kind), each in gaps.items():
        if (least := enough(each)) is not None:
            parts[term].append(f"{least:g} under {kind}")
    return " or ".join(f"the {term} is at least {', '.join(said)}" for term, said in parts.items() if said)


@claim(
    "C9",
    "The law holds only without entropy or KL terms: with one of them a run leaves its curve.",
    source=f"{PAPER}, section 2.2, and its public reviews, reviewer 4",
    threshold="|ΔR| at equal H > .05 from the curve without the term, bonus .02 … .2 and KL .05, .2",
)
def terms_take_a_run_off_the_curve(size):
    """Pools of 100 prompts (GRPO: 40) with one correct action of K = 10 and logits N(0, 1), 235 steps of exact PG,
    natural PG and (not in a quick run) sampled GRPO, without terms and with an entropy bonus of 0.02, 0.05, 0.1, 0.2 or
    a KL penalty to the start, of 0.05, 0.2 (reward per nat). The deciding numbers are the largest |ΔR| from the run
    without the term at equal mean entropy, both after their highest entropy: a mean over 20 seeds, for each update and
    term the smallest over its coefficients. Beside it, the gap that two runs of GRPO with different draws have anyway.
    """
    kinds = c.kinds(size)
    keys = [(term, kind) for kind in kinds for term in TERMS]
    runs = {(t, k): {x: with_term(k, c.STANDARD, size, t, x) for x in COEFFICIENTS[t]} for t, k in keys}
    base = {kind: with_term(kind, c.STANDARD, size) for kind in kinds}
    gaps = {key: {x: c.apart(curve, base[key[1]]) for x, curve in each.items()} for key, each in runs.items()}
    least = lambda x: x.mean(0).min()  # noqa: E731
    decided = [
        over_seeds(f"smallest |ΔR|, {term}, {kind}", least, np.stack(list(each.values()), 1), at_least=0.05)
        for (term, kind), each in gaps.items()
    ]
    again = [c.apart(with_term(k, c.STANDARD, size, first_seed=1), base[k]) for k in kinds if k == c.GRPO]
    beside = [over_seeds("|ΔR| of two runs of GRPO", np.mean, x, deciding=False) for x in again]
    kept = gaps["reference KL", c.NPG][0.2].mean()
    sharp = [with_term(c.PG, c.PRIORS[-1], size, "entropy bonus", x) for x in (0.02, 0.0)]

    def draw(ax, kind):
        ax.plot(*(x.mean(0) for x in base[kind]), color="k", linewidth=2.5, alpha=0.4, label="no term")
        for style, (term, x) in enumerate([("entropy bonus", 0.05), ("entropy bonus", 0.2), ("reference KL", 0.2)]):
            h, r = (part.mean(0) for part in runs[term, kind][x])
            ax.plot(h, r, color=COLOURS[style], linestyle=DASHES[style], label=f"{term} {x:g}")
        labelled(ax, f"entropy, H (nats), {kind}", "reward, R")

    cells = [
        (kind, term, x, gap.mean(), c.error(gap)) for (term, kind), each in gaps.items() for x, gap in each.items()
    ]
    names = "update", "term", "coefficient", "largest difference of R", "standard error"
    return Finding(
        (*decided, *beside),
        only_when=strong_enough(gaps),
        counterexample=f"natural PG with a reference KL of 0.2: |ΔR| = {kept:.5f} at equal entropy.",
        says="An entropy bonus takes a run off its curve once it is strong enough. Under natural PG a KL penalty to "
        "the start never does: every policy on the way is the start tilted by the reward, so that the run goes the "
        "same way, only slower, and stops.",
        boundary="The sharper the prior, the less it takes: an entropy bonus of 0.02 under PG is off by "
        f"{gaps['entropy bonus', c.PG][0.02].mean():.3f} at σ = 1 and by {c.apart(*sharp).mean():.3f} at σ = 3."
        + "".join(f" Two runs of GRPO with other draws are {x.mean():.3f} apart anyway." for x in again),
        meaning="A run that has left the curve of its siblings was pushed by something besides the reward. A run "
        "under a reference KL can stay on it, and then looks like a shorter run without one.",
        table=dict(zip(names, zip(*cells, strict=True), strict=True)),
        panels=(lambda ax: draw(ax, c.PG), lambda ax: draw(ax, c.NPG)),
    )
