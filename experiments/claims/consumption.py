"""When entropy is spent in a run, and what part of a run foretells the rest by the law R = −a exp(H) + b."""

import numpy as np

from softmaxdyn.laws import LINEAR, compare
from softmaxdyn.ledger import Finding, claim, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled

from . import curves as c
from .law import PAPER

ROUNDING = 1e-6  # nats
STEPS = c.ROWS - 1
HORIZONS = STEPS * np.geomspace(0.1, 1.0, 17)  # steps of a run that is cut short
SPEEDS = 0.1, 1.0, 10.0


def never_rises(curve, noise=0.0):
    """Whether H stays within 1e-6 nats, and the noise (of each row), of its lowest value so far, a seed."""
    above = curve.entropy - np.minimum.accumulate(curve.entropy, 1)
    return (above <= ROUNDING + noise).all(1)


def noise_of_a_step(curve):
    """Three standard deviations of the noise in a step's change of H, row by row, from second differences (nats)."""
    second = np.sqrt((np.diff(curve.entropy, 2, axis=1) ** 2).mean(0) / 2.0)
    return 3.0 * np.concatenate([second[:1], second[:1], second])


def ends_low(curve):
    """Whether H ends below a tenth of its start, a seed."""
    return curve.entropy[:, -1] < 0.1 * curve.entropy[:, 0]


def rising_prompts(setting, time=1e-4):
    """(which prompts gain entropy in the first instant of natural PG, which have p < e^H₊/(e^H₊ + e^H₋))."""
    odds, inside, outside = c.split(setting)
    entropy = c.entropy_of_odds(odds + np.array([0.0, time])[:, None], inside, outside)
    return entropy[1] > entropy[0], odds < inside - outside


def at_share(values, horizon, share):
    """(v(0) − v(share · T))/(v(0) − v(T)), T steps the horizon: what is used up by then, a number a seed.

    NaN where the whole run up to T uses less than a hundredth of the range of v.
    """
    step = np.arange(values.shape[1])
    part, end = (np.array([np.interp(x, step, v) for v in values]) for x in (share * horizon, horizon))
    total = values[:, 0] - end
    enough = np.abs(total) > 0.01 * np.ptp(values, axis=1)
    return np.where(enough, values[:, 0] - part, np.nan) / np.where(enough, total, 1.0)


def used(kind, world, size):
    """Shares of entropy and of gain used at T/12 and T/3: [4, seeds, speeds, lengths]."""
    found = []
    for speed in SPEEDS:
        curve = c.curve(kind, world, size, speed)
        found.append([[at_share(x, h, share) for h in HORIZONS] for x in curve for share in (1 / 12, 1 / 3)])
    return np.moveaxis(np.array(found), (1, 3), (0, 1))


def decades(fine):
    """The longest stretch of lengths at one speed, in decades, along which a seed is fine [seeds, speeds, lengths]."""
    longest = current = np.full(fine.shape[:2], -1.0)
    for column in np.moveaxis(fine, 2, 0):
        current = np.where(column, current + 1.0, -1.0)
        longest = np.maximum(longest, current)
    return np.maximum(longest, 0.0).max(1) / (fine.shape[2] - 1)


def end_error(curve, rows=c.SEEN):
    """|R foretold for the end − R at the end| of the law fitted to the first rows, a seed."""
    law = c.fitted(curve.entropy[:, :rows], curve.reward[:, :rows])
    return np.abs(c.predicted(law, curve.entropy[:, -1:])[:, 0] - curve.reward[:, -1])


def start_error(curve, rows=c.ROWS // 2):
    """|R said of the start − R at the start| of the law fitted to the last rows, a seed."""
    law = c.fitted(curve.entropy[:, -rows:], curve.reward[:, -rows:])
    return np.abs(c.predicted(law, curve.entropy[:, :1])[:, 0] - curve.reward[:, 0])


def spent(curve, rows=c.SEEN):
    """The share of the fall of entropy that the first rows see, a seed."""
    return (curve.entropy[:, 0] - curve.entropy[:, rows - 1]) / (curve.entropy[:, 0] - curve.entropy[:, -1])


@claim(
    "C1",
    "Without intervention entropy falls from the first steps on and keeps falling, to about 0.",
    source=f"{PAPER}, abstract and section 2.3; a digest of it",
    threshold="share of runs in which H never rises by more than 1e-6 nats or noise, and ends below a tenth, ≥ .95",
)
def entropy_falls_to_zero(size):
    """Pools of 200 prompts (GRPO: 40) with one correct action of K = 10 and logits N(0, σ²), σ = 0 … 3; K = 20 and 100
    at σ = 1, and K = 100 with 10 correct actions (PG 50 prompts, GRPO 20). Exact PG, exact natural PG and sampled GRPO
    (8 responses, 8 inner steps; not in a quick run), 235 steps, 20 seeds. H is the mean over the prompts; for GRPO a
    rise within three standard deviations of the noise of that step (second differences, over the seeds) counts as
    none. The deciding number is the share of runs, over all pools, an update. Beside it: the share that ends low, and
    whether a prompt gains entropy at first under natural PG exactly where p < e^H₊/(e^H₊ + e^H₋), H₊ and H₋ the
    entropies inside the correct and the wrong actions.
    """
    found = c.curves(size)
    falls = {
        kind: {w: never_rises(x, noise_of_a_step(x) if kind == c.GRPO else 0.0) for w, x in worlds.items()}
        for kind, worlds in found.items()
    }
    low = c.each_curve(ends_low, found)
    both = {k: {w: falls[k][w] & low[k][w] for w in each} for k, each in found.items()}
    pairs = [np.array(rising_prompts(each)) for each in c.STANDARD.settings(size.seeds, size(200, 40))]
    agree = over_seeds("prompts that rise as p < p*", np.mean, [x[0] == x[1] for x in pairs], deciding=False)
    rising = over_seeds("share of prompts that rise, σ = 1", np.mean, [x[0] for x in pairs], deciding=False)
    ends = [each._replace(deciding=False) for each in c.by_kind("share that ends low", low, np.mean)]
    left = {k: each[c.SIZES[-1]].entropy[:, -1].mean() for k, each in found.items() if c.SIZES[-1] in each}
    tens = [f"{x:.2f} under {kind}" for kind, x in left.items()]
    sharp = found[c.NPG][c.PRIORS[-1]].entropy

    def draw(ax):
        for style, (world, curve) in enumerate(found[c.NPG].items()):
            share = curve.entropy / curve.entropy[:, :1]
            c.band(
                ax, np.arange(c.ROWS), share, color=COLOURS[style % 7], linestyle=DASHES[style // 7], label=world.mark
            )
        labelled(ax, "step of natural PG", "H / H at the start", columns=3)

    return Finding(
        (*c.by_kind("share that falls to 0", both, np.mean, at_least=0.95), agree, rising, *ends),
        only_when=c.condition(both, lambda x: x >= 0.95),
        counterexample=f"{c.NPG} with {c.SIZES[-1].name}: R ends at "
        f"{found[c.NPG][c.SIZES[-1]].reward[:, -1].mean():.3f} with H = {left[c.NPG]:.2f} nats left, for good.",
        says=f"A prompt loses entropy at once only if it is solved often enough to begin with: {rising.value:.0%} of "
        "those at σ = 1, K = 10 gain some first, though the mean over the pool hides it. At σ = 3 the mean rises by "
        f"{(sharp.max(1) - sharp[:, 0]).mean():.4f} nats before it falls.",
        boundary="What is left at the end is the entropy inside the set of correct actions: with ten of 100 H ends at "
        f"{', '.join(tens)}. After 235 steps H is a tenth of its start or more where "
        f"{c.condition(low, lambda x: x < 0.95)}.",
        meaning="A flat or rising entropy early in training is no sign of a fault: hard prompts must first give up "
        "their wrong favourite. And entropy that stays may be several right answers.",
        table={**c.rows(both, "share that falls to 0"), "share that ends low": c.rows(low, "")[""]},
        panels=(lambda ax: c.dots(ax, both, 0.95, "share that falls to 0"), draw),
    )


@claim(
    "C2",
    "73 % of the entropy is used up in the first 1/12 of training and 94 % in the first 1/3 (of the gain: 76 % and 93 "
    "%).",
    source=f"{PAPER}, section 2.3",
    threshold="both shares of entropy within ±5 points over a decade of lengths T",
)
def most_entropy_is_used_early(size):
    """Pools of 200 prompts (GRPO: 40), one correct action of K = 10, σ = 0, 1 and 3; exact PG, natural PG and (not in
    a quick run) sampled GRPO with steps of 0.1, 1 and 10 times the usual, each run cut off at lengths T from 23.5 to
    235 steps: ηT covers three decades. The shares (H₀ − H_t)/(H₀ − H_T) at t = T/12 and T/3 are compared with 0.73 and
    0.94. The deciding number is the longest stretch of lengths, in decades, in which both are within 0.05: a mean over
    20 seeds, for each update the largest of the three priors. Beside it, the same for the gain in reward, 0.76 and
    0.93.
    """
    worlds = (c.PRIORS[0], c.STANDARD) if size.quick else c.PRIORS[::2]
    found = {kind: {world: used(kind, world, size) for world in worlds} for kind in c.kinds(size)}
    widths = c.each_curve(lambda x: stretch(x[:2], 0.73, 0.94), found)
    gains = c.each_curve(lambda x: stretch(x[2:], 0.76, 0.93), found)
    usual = {kind: each[c.STANDARD].mean(1) for kind, each in found.items()}
    early, late = usual[c.NPG][:2].reshape(2, -1)
    near = np.nanargmin(np.abs(early - 0.73))
    joined = found[c.PG][c.STANDARD][0]
    best = [c.extreme({kind: each}) for kind, each in widths.items()]
    spread = [f"from {np.nanmin(x[0]):.2f} to {np.nanmax(x[0]):.2f} under {kind}" for kind, x in usual.items()]

    return Finding(
        (
            *c.by_kind("decades of T", widths, at_least=1.0),
            *(each._replace(deciding=False) for each in c.by_kind("decades of T, gain", gains)),
        ),
        only_when=c.condition(widths, lambda x: x >= 1.0),
        counterexample=f"natural PG at σ = 1: where the share at T/12 is nearest to 0.73, at {early[near]:.2f}, that "
        f"at T/3 is {late[near]:.3f}.",
        says="The two shares are those of one length of training, not of training: with the length the share at T/12 "
        f"goes, at σ = 1, {', '.join(spread)}. The longest stretch on which both hold is "
        f"{', '.join(f'{width:.2f} decades under {kind} ({world.name})' for kind, world, width in best)}.",
        boundary="Under the exact updates η and T enter as ηT: with PG at σ = 1 the share at T/12 of 235 small steps "
        f"and that of 23.5 steps ten times as large differ by {np.abs(joined[:, 0, -1] - joined[:, 1, 0]).max():.3f} "
        "at most.",
        meaning="How early entropy is gone says how long one went on afterwards. Compare runs at equal entropy or "
        "equal reward, not at equal fractions of their length.",
        table=_lengths(found),
        panels=(
            lambda ax: _draw_shares(ax, found, 0, "entropy used", (0.73, 0.94)),
            lambda ax: _draw_shares(ax, found, 2, "gain made", (0.76, 0.93)),
        ),
    )


def stretch(shares, early, late):
    """The decades of T along which both shares [2, seeds, speeds, lengths] are within 0.05 of these, a number a "
    "seed."""
    return decades((np.abs(shares[0] - early) <= 0.05) & (np.abs(shares[1] - late) <= 0.05))


def _draw_shares(ax, found, first, what, marks):
    """The shares at T/12 and T/3 against ηT at σ = 1, a line a speed."""
    for style, (kind, each) in enumerate(found.items()):
        for place, speed in enumerate(SPEEDS):
            for row, dashes in enumerate(DASHES[:2]):
                label = kind if row == place == 0 else None
                line = {"color": COLOURS[style], "linestyle": dashes, "label": label}
                c.band(ax, c.SPEEDS[kind] * speed * HORIZONS, each[c.STANDARD][first + row, :, place], **line)
    for mark in marks:
        ax.axhspan(mark - 0.05, mark + 0.05, color="0.85", zorder=0)
    ax.set(xscale="log", ylim=(0, 1.02))
    labelled(ax, "length of the run, ηT", f"{what} by T/12 and T/3 (dashed)", columns=3)


def _lengths(found):
    """A row a kind, world, speed and length: means over the seeds."""
    names = "update", "pool", "length", "entropy at T/12", "entropy at T/3", "gain at T/12", "gain at T/3"
    rows = [
        (kind, world.name, c.SPEEDS[kind] * speed * horizon, *shares[:, :, i, j].mean(1))
        for kind, worlds in found.items()
        for world, shares in worlds.items()
        for i, speed in enumerate(SPEEDS)
        for j, horizon in enumerate(HORIZONS)
    ]
    return dict(zip(names, zip(*rows, strict=True), strict=True))


@claim(
    "C4",
    "The first 15 % of the steps foretell the reward at the end.",
    source=f"{PAPER}, section 2.4 (36 of 236 steps, root mean square error ≤ 1.9 %)",
    threshold="|error of the reward at the end| ≤ .02, fitted to 36 of 236 rows",
)
def the_start_foretells_the_end(size):
    """The curves of C1, and at σ = 1, K = 10 those with steps a tenth and ten times as large. The law is fitted to the
    first 36 of 236 rows and given the entropy at the end. The deciding number is the absolute error of its reward, the
    mean over 20 seeds, in the worst pool of each update at its usual step. Beside it, at σ = 1, K = 10, the root mean
    square error over the 200 rows that were held out, and the same for a straight line.
    """
    found = c.curves(size)
    miss, seen = c.each_curve(end_error, found), c.each_curve(spent, found)
    other = {kind: {speed: c.curve(kind, c.STANDARD, size, speed) for speed in (0.1, 10.0)} for kind in found}
    runs = [
        (k, spent(x).mean(), end_error(x).mean())
        for each in (found, other)
        for k, w in each.items()
        for x in w.values()
    ]
    shares, errors = np.array([run[1:] for run in runs]).T
    late = shares >= 0.9
    beside = [each._replace(deciding=False) for k in found for each in _held_out(k, found[k][c.STANDARD])]
    kind, world, most = c.extreme(miss)
    pg = other[c.PG][0.1], found[c.PG][c.STANDARD], other[c.PG][10.0]
    speeds = [f"{end_error(x).mean():.3f}" for x in pg]

    def draw(ax):
        for style, each in enumerate(found):
            mine = [run[0] == each for run in runs]
            ax.plot(shares[mine], errors[mine], "os^"[style], color=COLOURS[style], markersize=3, label=each)
        ax.axhline(0.02, color="0.6", linewidth=0.8, linestyle=":")
        ax.set_yscale("log")
        labelled(ax, "share of the entropy used in the rows seen", "|error of R at the end|", columns=3)

    return Finding(
        (*c.by_kind("error at the end", miss, at_most=0.02), *beside),
        counterexample=f"{kind} with {world.name}: the error is {most:.2f}, after {np.mean(seen[kind][world]):.0%} of "
        "the fall of entropy.",
        says=f"Of {len(runs)} pools and speeds {int((errors <= 0.02).sum())} are foretold to 0.02. Those that had "
        f"used nine tenths of their entropy by then, {int(late.sum())} of them, are foretold to "
        f"{errors[late].max(initial=0.0):.3f}, those that had used less than half to "
        f"{errors[shares < 0.5].max(initial=0.0):.2f}.",
        boundary="What counts is the share of the entropy that was used in the part that is seen, not that of the "
        f"steps: with a tenth of the step, the step, and ten times it PG at σ = 1 is foretold to {', '.join(speeds)}.",
        meaning="A forecast from the first steps is worth what the form is worth beyond the range of H that was seen. "
        "Try it with a straight line, too: the gap between the two is the least error to expect.",
        table={"update": [run[0] for run in runs], "share of entropy used": shares, "error at the end": errors},
        panels=(lambda ax: c.dots(ax, miss, 0.02, "|error of R at the end|").set_yscale("log"), draw),
    )


def _held_out(kind, curve):
    """The error over the rows after the first 36, of the law and of a straight line."""
    runs = [
        compare(h, r, forms=(LINEAR,), forward=c.SEEN / c.ROWS, replicates=100).rivals
        for h, r in zip(*curve, strict=True)
    ]
    names = {"exponential": "the law", "linear": "a line"}
    return [
        over_seeds(f"error over the rest, {word}, {kind}", np.mean, [run[form].forward.error for run in runs])
        for form, word in names.items()
    ]


@claim(
    "C5",
    "The law fitted to the end of a run, where entropy is flat, gives back its start.",
    source=f"public reviews of {PAPER}, reviewer 1, and the authors' answer",
    threshold="|error of the reward at the start| ≤ .05, fitted to the last half of the rows",
)
def the_end_gives_back_the_start(size):
    """The curves of C1. The law is fitted to the last 118 of 236 rows and given the entropy at the start. The deciding
    number is the absolute error of its reward, the mean over 20 seeds, in the worst pool of each update. Beside it, the
    range of H, in nats, in the rows that were fitted.
    """
    found = c.curves(size)
    miss = c.each_curve(start_error, found)
    span = c.each_curve(lambda x: np.ptp(x.entropy[:, -(c.ROWS // 2) :], axis=1), found)
    ranges = [each._replace(deciding=False) for each in c.by_kind("smallest range of H fitted", span, np.min)]
    kind, world, most = c.extreme(miss)
    curve = found[kind][world]
    fine = {(k, w.name): np.mean(x) for k, each in miss.items() for w, x in each.items() if np.mean(x) <= 0.05}
    total = sum(len(each) for each in miss.values())

    def draw(ax):
        for style, each in enumerate(found):
            h, r = (x.mean(0) for x in found[each][c.STANDARD])
            half = c.ROWS // 2
            law = c.fitted(h[None, -half:], r[None, -half:])
            ax.plot(h, r, color=COLOURS[style], label=each)
            ax.plot(h, c.predicted(law, h[None])[0], color=COLOURS[style], linestyle=DASHES[2])
        labelled(ax, "entropy, H (nats)", "R at σ = 1, and the fits (dotted)", columns=3)

    return Finding(
        (*c.by_kind("error at the start", miss, at_most=0.05), *ranges),
        counterexample=f"{kind} with {world.name}: the start is put at R = "
        f"{(c.predicted(c.fitted(*(x[:, -(c.ROWS // 2) :] for x in curve)), curve.entropy[:, :1])).mean():.2f}, where "
        f"it is {curve.reward[:, 0].mean():.2f}.",
        says=f"The error is up to {most:.1f}; it is within 0.05 in {len(fine)} of {total} pools"
        + (f" ({', '.join(f'{k} with {w}' for k, w in fine)}), where two deviations cancel." if fine else "."),
        boundary="The last half of a run has a short range of H, in which any form with the slope that R has there "
        "fits; what it says of the start is the form's own.",
        meaning="Late training tells nothing about where a run came from. Fits of a and b need rows from the whole "
        "range of H, early ones above all.",
        table={**c.rows(miss, "error at the start"), "range of H fitted": c.rows(span, "")[""]},
        panels=(lambda ax: c.dots(ax, miss, 0.05, "|error of R at the start|").set_yscale("log"), draw),
    )
