"""Training curves, entropy against reward, of three kinds of update on pools of several priors and sizes."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import entr, expit, logsumexp

from softmaxdyn.laws import EXPONENTIAL
from softmaxdyn.ledger import over_seeds
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, labelled
from softmaxdyn.policy import entropy
from softmaxdyn.updates import VanillaPG

from .worlds import exact, follow, pools, realistic_pools

ROWS = 236  # of a curve, the start included
SEEN = 36  # of these, from which the end is foretold
PG, NPG, GRPO = "PG", "natural PG", "GRPO"
SPEEDS = {PG: 4.0, NPG: 0.1, GRPO: 1.0}  # a prompt's own step


class World(NamedTuple):
    """A pool of prompts: so many actions, of which so many are correct, and logits N(0, spread²)."""

    actions: int = 10
    correct: int = 1
    spread: float = 1.0

    @property
    def name(self):
        """What sets it apart: σ where K = 10, else K."""
        if self.actions == 10:
            return f"σ = {self.spread:g}"
        return f"K = {self.actions}" + (f" with {self.correct} correct" if self.correct > 1 else "")

    @property
    def mark(self):
        """The same on an axis."""
        return self.name.replace(" = ", " ").replace("with ", "\n").replace(" correct", " right")

    def settings(self, seeds, prompts):
        """`seeds` pools of so many prompts."""
        return pools(seeds, prompts, self.actions, self.correct / self.actions, self.spread)


class Curve(NamedTuple):
    """Mean entropy of the prompts (nats) and mean reward, [seeds, rows]."""

    entropy: np.ndarray
    reward: np.ndarray


PRIORS = tuple(World(spread=spread) for spread in (0.0, 0.5, 1.0, 2.0, 3.0))
SIZES = World(20), World(100), World(100, 10)
STANDARD = World()


def kinds(size):
    """The kinds of update that are tried; a quick run leaves GRPO out."""
    return (PG, NPG) if size.quick else (PG, NPG, GRPO)


@cache
def curves(size):
    """{kind: {world: Curve}} at the usual speeds. A quick run has three priors, and larger K under natural PG alone."""
    priors = PRIORS[::2] if size.quick else PRIORS
    several = {kind: () if size.quick and kind != NPG else SIZES for kind in kinds(size)}
    return {kind: {world: curve(kind, world, size) for world in (*priors, *sizes)} for kind, sizes in several.items()}


@cache
def curve(kind, world, size, speed=1.0, boost=0.0):
    """The curve of a kind of update at `speed` times its usual step, `boost` added to the logits of correct actions.

    Pools with K > 10 have fewer prompts under PG and GRPO.
    """
    prompts = 40 if kind == GRPO else size(200, 40)
    if world.actions > 10 and kind != NPG:
        prompts = {PG: 50, GRPO: 20}[kind]
    settings, step = [boosted(each, boost) for each in world.settings(size.seeds, prompts)], SPEEDS[kind] * speed
    if kind == NPG:
        return natural(settings, step * np.arange(ROWS))
    if kind == PG:
        return run(settings, exact(VanillaPG(step * prompts)))
    return run(settings, build("grpo", step_size=step * prompts, groups=prompts), inner_steps=8)


def realistic_curves(size):
    """{kind: Curve} on pools of 20 actions, 5 of them correct, with success rates as a base model has them."""
    prompts = size(200, 40)
    settings = realistic_pools(size.seeds, prompts)
    found = {NPG: natural(settings, SPEEDS[NPG] * np.arange(ROWS))}
    return found if size.quick else {PG: run(settings, exact(VanillaPG(SPEEDS[PG] * prompts))), **found}


def run(settings, algorithm, **options):
    """The curve of an algorithm, a row a step."""
    fields, _ = follow(settings, algorithm, ROWS - 1, **options)
    return Curve(fields["entropy"], fields["expected_return"])


def natural(settings, times):
    """The curve of natural PG on binary rewards at times τ = ηt, in closed form.

    log p/(1−p) grows by τ, and H = h₂(p) + p H₊ + (1−p) H₋ with the entropies inside the correct and the wrong set.
    """
    found = []
    for setting in settings:
        odds, inside, outside = split(setting)
        moved = odds + times[:, None]
        found.append((entropy_of_odds(moved, inside, outside).mean(1), expit(moved).mean(1)))
    return Curve(*np.stack(found, 1))


def entropy_of_odds(odds, inside, outside):
    """h₂(p) + p H₊ + (1−p) H₋ at log-odds of p, all arrays of one shape."""
    p, q = expit(odds), expit(-odds)
    return entr(p) + entr(q) + p * inside + q * outside


def boosted(setting, boost):
    """The setting with so much added to the logits of its correct actions."""
    return setting._replace(logits=setting.logits + boost * np.asarray(setting.problem.rewards))


def split(setting):
    """(log-odds of a correct action, entropy inside the correct set, entropy inside the wrong one), [prompts] each."""
    right = np.asarray(setting.problem.rewards) > 0.0
    parts = [np.where(mask, setting.logits, -np.inf) for mask in (right, ~right)]
    inside = [np.asarray(entropy(part)) for part in parts]
    mass = [logsumexp(part, axis=1) for part in parts]
    return mass[0] - mass[1], *inside


def seeds_of(curve):
    """(entropy, reward) of each seed."""
    return zip(*curve, strict=True)


def falling(entropy, reward):
    """(H, R) of one seed from the highest entropy on, H rising, as `np.interp` wants it."""
    top = entropy.argmax()
    h, r = np.minimum.accumulate(entropy[top:]), reward[top:]
    first = np.r_[True, np.diff(h) < 0.0]
    return h[first][::-1], r[first][::-1]


def apart(curve, base):
    """The largest |ΔR| at equal entropy between two curves, both after their highest entropy, a number a seed."""
    return np.array([_apart(falling(*a), falling(*b)) for a, b in zip(seeds_of(curve), seeds_of(base), strict=True)])


def _apart(one, other):
    low, high = max(one[0][0], other[0][0]), min(one[0][-1], other[0][-1])
    grid = np.linspace(low, high, 400)
    return np.abs(np.interp(grid, *one) - np.interp(grid, *other)).max() if low < high else np.nan


def fitted(entropy, reward, form=EXPONENTIAL):
    """The coefficients of a form on each curve [seeds, rows]: [seeds, P]."""
    return np.array([form.solve(h, r) for h, r in zip(entropy, reward, strict=True)])


def predicted(coefficients, entropy, form=EXPONENTIAL):
    """R at entropies [seeds, n] by coefficients [seeds, P]."""
    return np.array([form.predict(v, h) for v, h in zip(coefficients, entropy, strict=True)])


def squares(curve, form=EXPONENTIAL):
    """Σ(R − R̂)² of a form fitted to each curve: a number a seed."""
    miss = curve.reward - predicted(fitted(*curve, form), curve.entropy, form)
    return (miss**2).sum(1)


def r_squared(curve, form=EXPONENTIAL):
    """R² of a form fitted to each curve: a number a seed."""
    return 1.0 - squares(curve, form) / ((curve.reward - curve.reward.mean(1, keepdims=True)) ** 2).sum(1)


def each_curve(measure, found):
    """{kind: {world: measure(curve)}} of {kind: {world: curve}}."""
    return {kind: {world: measure(curve) for world, curve in worlds.items()} for kind, worlds in found.items()}


def by_kind(name, values, worst=np.max, **wanted):
    """A statistic a kind: the worst of the worlds' means over seeds; `values` are {kind: {world: a number a seed}}."""
    return tuple(
        over_seeds(f"{name}, {kind}", lambda x: worst(x.mean(0)), np.stack(list(worlds.values()), 1), **wanted)
        for kind, worlds in values.items()
    )


def extreme(values, pick=max):
    """(kind, world, mean) of the largest mean over seeds, or of the smallest with `pick=min`."""
    named = [(np.mean(x), kind, world) for kind, worlds in values.items() for world, x in worlds.items()]
    mean, kind, world = pick(named, key=lambda each: each[0])
    return kind, world, float(mean)


def condition(values, fine):
    """In words, the worlds whose mean over seeds is `fine`; empty if there are none."""
    passed = each_curve(lambda x: bool(fine(np.mean(x))), values)
    return "; ".join(f"{_worlds(worlds)} ({kind})" for kind, worlds in passed.items() if any(worlds.values()))


def _worlds(passed):
    """σ ≤ 1, K = 100 …"""
    priors = [world.spread for world in passed if world.actions == 10]
    good = [world.spread for world, fine in passed.items() if fine and world.actions == 10]
    others = [world.name for world, fine in passed.items() if fine and world.actions > 10]
    if len(good) > 1 and good == priors[: len(good)]:
        words = [f"K = 10 with σ ≤ {good[-1]:g}"]
    elif len(good) > 1 and good == priors[-len(good) :]:
        words = [f"K = 10 with σ ≥ {good[0]:g}"]
    else:
        words = [f"K = 10 with σ = {' or '.join(f'{each:g}' for each in good)}"] if good else []
    return " or ".join([*words, *others])


def rows(values, name):
    """A table with a row a kind and world: the mean over seeds and its standard error."""
    listed = [
        (kind, world.name, np.mean(x), error(x)) for kind, worlds in values.items() for world, x in worlds.items()
    ]
    return dict(zip(("update", "pool", name, f"standard error of {name}"), zip(*listed, strict=True), strict=True))


def error(values):
    """The standard error of a mean over seeds (axis 0)."""
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


def dots(ax, values, limit, label):
    """The mean of each kind in each world with its 95 % interval, and a line at the limit."""
    worlds = [world for world in (*PRIORS, *SIZES) if any(world in each for each in values.values())]
    ax.axhline(limit, color="0.6", linewidth=0.8, linestyle=":")
    for place, (kind, each) in enumerate(values.items()):
        at = [worlds.index(world) + 0.2 * (place - 1) for world in each]
        mean, spread = (np.array([f(x) for x in each.values()]) for f in (np.mean, error))
        ax.errorbar(at, mean, 1.96 * spread, fmt="os^"[place], color=COLOURS[place], markersize=3, label=kind)
    ax.set_xticks(range(len(worlds)), [world.mark for world in worlds], rotation=45, fontsize=6)
    return labelled(ax, "pool", label, columns=3)


def band(ax, x, values, **style):
    """The mean over seeds of values [seeds, n] as a line, with its 95 % interval as a band."""
    mean, spread = values.mean(0), 1.96 * error(values)
    line = ax.plot(x, mean, **style)[0]
    ax.fill_between(x, mean - spread, mean + spread, color=line.get_color(), alpha=0.2, linewidth=0)
    return ax
