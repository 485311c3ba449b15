"""Reweightings of tokens in training: what STEER, positive reweighting and their kin change, and what is only speed."""

from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.advantages import GRPO, OPO, RLOO, Advantage
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison import Shuffled, crossing
from softmaxdyn.configs import Number, config
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.ledger import Finding, claim, mean, share
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.updates import VanillaPG

from .worlds import PROMPTS, follow, pools, realistic_pools

STEPS = 60
INNER = 8
PUSH = 0.3  # step size of a prompt that is drawn once
ADVANTAGES = (GRPO(), RLOO(), OPO())
SOLVED = 0.8  # of J, where runs are compared
STEER = "STEER (arXiv:2510.10150)"
POSITIVE = 1e-6  # what counts as above 0: more than rounding


@config
class OneOf(iv.Intervention):
    """The tuple of interventions with this number: one compiled program runs all of them."""

    choices: tuple[Any, ...]
    number: Number = 0.0

    def init(self, logits):
        """All of them at the start."""
        return OneOf(self._each(lambda part: part.init(logits)), self.number)

    def next(self, tokens, policy):
        """All of them one step on."""
        return OneOf(self._each(lambda part: part.next(tokens, policy)), self.number)

    def __call__(self, key, tokens, policy, push):
        after = [push for _ in self.choices]
        for place, parts in enumerate(self.choices):
            for part in parts:
                after[place] = part(key, tokens, policy, after[place])
        score, field = (sum(jnp.where(i == self.number, x[j], 0.0) for i, x in enumerate(after)) for j in (0, 1))
        return push._replace(score=score, field=field, selected=(score != push.score).astype(score.dtype))

    def _each(self, function):
        return tuple(tuple(function(part) for part in parts) for parts in self.choices)


@config
class Blend(Advantage):
    """Σ w A of several estimators."""

    parts: tuple[Any, ...]
    weights: tuple[Number, ...]

    scope = "group"

    def __call__(self, outcomes):
        return sum(weight * part(outcomes) for part, weight in zip(self.parts, self.weights, strict=True))


class Numbers(NamedTuple):
    """The numbers of the reweightings: PPO's bounds, λ, α, and the factor of the step size."""

    low: float = 0.2
    high: float = 0.2
    factor: float = 0.5
    coefficient: float = 0.4
    speed: float = 1.0


def reweightings(numbers=Numbers()):
    """{name: interventions}; all but Clip-Higher stand behind PPO's clip."""
    bounds = (numbers.low, numbers.high)
    own = {
        "GRPO": (),
        "STEER": (iv.Steer(0.7, *bounds),),
        "STEER, released": (iv.SteerReleased(),),
        "STEER, exact score": (iv.SteerExact(0.7, *bounds),),
        "positive": (iv.PositiveReweighting(numbers.factor),),
        "entropy-aware": (iv.EntropyAwareAdvantage(numbers.coefficient),),
    }
    return {"Clip-Higher": (iv.ClipHigher(),)} | {name: (iv.PPOClip(*bounds), *parts) for name, parts in own.items()}


def one_of(choices, name):
    """The `OneOf` that is the choice of this name."""
    return OneOf(tuple(choices.values()), float(list(choices).index(name)))


class Run(NamedTuple):
    """N runs: J and mean entropy at every step and at the end [N, T], logits at the end [N, S, A]."""

    expected_return: np.ndarray
    entropy: np.ndarray
    logits: np.ndarray

    @property
    def end(self):
        """(J, entropy) at the end, [N] each."""
        return self.expected_return[:, -1], self.entropy[:, -1]

    def entropy_at(self, level=SOLVED):
        """The entropy where J first crosses `level` [N], NaN where it does not."""
        return crossing(self.expected_return, level, self.entropy)


def trained(settings, *parts, advantage=GRPO(), speed=1.0):
    """The `Run` of 60 outer steps of 8 updates; a batch is as many groups of 8 as there are prompts."""
    groups = settings[0].problem.shape[0]
    algorithm = Algorithm(VanillaPG(PUSH * groups * speed), Sampled(groups, 8, advantage), parts)
    seen, logits = follow(settings, algorithm, STEPS, inner_steps=INNER)
    return Run(seen["expected_return"], seen["entropy"], logits)


def world(size):
    """The pools: 200 prompts (40 in a quick run), 10 actions, one of them correct, logits N(0, 1); one pool a seed."""
    return pools(size.seeds, size(PROMPTS, 40))


def base_model(size):
    """Pools of prompts with pass rates as of a base model, two of 10 actions correct."""
    return realistic_pools(size.seeds, size(PROMPTS, 40), 10, 2)


@cache
def run(size, name, numbers=Numbers(), advantage=0, realistic=False):
    """The `Run` of a reweighting with these numbers, `advantage` the place among `ADVANTAGES`."""
    settings = base_model(size) if realistic else world(size)
    blend = Blend(ADVANTAGES, tuple(float(i == advantage) for i in range(len(ADVANTAGES))))
    return trained(settings, one_of(reweightings(numbers), name), advantage=blend, speed=numbers.speed)


def band(ax, values, number, label, x=None):
    """A line of the means over seeds of values [N, T] and the band of their 95 % intervals."""
    x = np.arange(values.shape[1]) if x is None else x
    centre, half = values.mean(0), 1.96 * values.std(0, ddof=1) / np.sqrt(len(values))
    style = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
    ax.fill_between(x, centre - half, centre + half, color=style["color"], alpha=0.2, linewidth=0)
    ax.plot(x, centre, label=label, **style)


def path_panels(runs):
    """Two panels of named runs: the mean entropy over the steps, and J over the entropy (means over seeds)."""

    def entropy(ax):
        for number, (name, each) in enumerate(runs.items()):
            band(ax, each.entropy, number, name)
        labelled(ax, "outer step", "entropy, H (nats)")

    def path(ax):
        for number, (name, each) in enumerate(runs.items()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number % len(DASHES)]}
            ax.plot(each.entropy.mean(0), each.expected_return.mean(0), label=name, **style)
        labelled(ax, "entropy, H (nats)", "expected return, J")

    return entropy, path


def gap_panels(runs):
    """Two panels of what the other runs have more of entropy than the first: after as many steps, and at equal J."""
    (_, base), *others = runs.items()
    levels = np.linspace(0.2, 0.9, 15)

    def by_step(ax):
        for number, (name, each) in enumerate(others):
            band(ax, each.entropy - base.entropy, number, name)
        labelled(ax, "outer step", "ΔH to GRPO (nats)")

    def by_return(ax):
        for number, (name, each) in enumerate(others):
            gap = np.array([each.entropy_at(level) - base.entropy_at(level) for level in levels]).T
            band(ax, gap[np.isfinite(gap).all(1)], number, name, levels)
        labelled(ax, "expected return, J", "ΔH to GRPO at equal J (nats)")

    return by_step, by_return


def path_table(runs):
    """Columns: the means over seeds of H and J of named runs at every step."""
    columns = {"outer step": np.arange(STEPS + 1)}
    for name, each in runs.items():
        columns |= {f"H, {name}": each.entropy.mean(0), f"J, {name}": each.expected_return.mean(0)}
    return columns


def effect(own, base):
    """(ΔJ, ΔH) at the end, (ΔH) at equal J, all [N]."""
    return *(a - b for a, b in zip(own.end, base.end, strict=True)), own.entropy_at() - base.entropy_at()


@claim(
    "C36",
    "STEER keeps the entropy higher than GRPO and reaches a higher return in as many steps.",
    source=STEER,
    threshold="methods 29, 30 (31) against GRPO at matched steps: H_end larger and R_end not lower",
)
def steer_beats_grpo(size):
    """Pools of 200 prompts, K = 10, one action correct, σ = 1: 60 outer steps of 8 updates on a batch of 200 groups of
    8, PPO clip 0.2, a push of 0.3 for each unit of advantage; one pool a seed. The differences to GRPO at the end, for
    STEER as in the theorem (λ_min = 0.7) and as released (0.8). Controls: the exact score S_a − S̄ in place of STEER's,
    the same factors on randomly chosen tokens, and H where J crosses 0.8.
    """
    names = ("STEER", "STEER, released", "STEER, exact score")
    base, runs = run(size, "GRPO"), {name: run(size, name) for name in names}
    runs["factors shuffled"] = trained(world(size), iv.PPOClip(), Shuffled((iv.Steer(),)))
    found = {name: effect(each, base) for name, each in runs.items()}
    statistics = []
    for name, (value, entropy, matched) in found.items():
        own = {"deciding": name in names[:2]}
        statistics += [
            mean(f"{name}: H_end − GRPO's (nats)", entropy, at_least=POSITIVE, **own),
            mean(f"{name}: R_end − GRPO's", value, at_least=0.0, **own),
            mean(f"{name}: H at J = 0.8 − GRPO's (nats)", matched, deciding=False, at_least=POSITIVE),
        ]
    value, entropy, matched = (each.mean() for each in found["STEER"])
    gap = (runs["STEER"].entropy - base.entropy).mean(0).max()
    everything = {"GRPO": base, **runs}
    return Finding(
        tuple(statistics),
        counterexample=f"K = 10, one correct action, σ = 1: R_end {runs['STEER'].end[0].mean():.4f} (STEER) against "
        f"{base.end[0].mean():.4f} (GRPO)."
        if value < 0.0
        else "",
        says=f"After as many steps STEER has {entropy:+.4f} nats and {value:+.4f} of return: a slower GRPO. Where both "
        f"have J = 0.8 the entropies differ by {matched:+.4f} nats. The same factors on random tokens give "
        f"{found['factors shuffled'][1].mean():+.4f} nats and {found['factors shuffled'][0].mean():+.4f}.",
        boundary=f"Along the run the mean entropy is at most {gap:.3f} nats above that of GRPO.",
        meaning="Compare a damping method with GRPO at equal return, or at a smaller step size: higher entropy after "
        "as many steps may be lost speed. What states do to each other in a network is not in a table.",
        table=path_table(everything),
        panels=gap_panels(everything),
    )


@claim(
    "C37",
    "STEER withstands an extreme clip (0.99 down, 5 up), GRPO does not.",
    source=STEER,
    threshold="R_end drop ≤ .02 with eps (.99, 5) and 8 inner updates, GRPO's drop larger",
)
def steer_withstands_an_extreme_clip(size):
    """The runs of C36 with PPO bounds (0.2, 0.2) and (0.99, 5), GRPO and STEER (theorem form). The drop is R_end with
    the usual bounds less R_end with the extreme ones. Also on prompts with pass rates as of a base model, and with step
    sizes 10 times as large.
    """
    usual, extreme = Numbers(), Numbers(0.99, 5.0)
    runs = {(name, n): run(size, name, n) for name in ("GRPO", "STEER") for n in (usual, extreme)}
    drop = {name: runs[name, usual].end[0] - runs[name, extreme].end[0] for name in ("GRPO", "STEER")}
    fast = [run(size, "GRPO", n._replace(speed=10.0)).end[0] for n in (usual, extreme)]
    real = [run(size, "GRPO", n, realistic=True).end[0] for n in (usual, extreme)]
    worst = max(float(x.mean()) for x in (drop["GRPO"], fast[0] - fast[1], real[0] - real[1]))
    shown = {f"{name}, clip {n.low:g}/{n.high:g}": each for (name, n), each in runs.items()}
    return Finding(
        (
            mean("drop of R_end, STEER", drop["STEER"], at_most=0.02),
            mean("drop of GRPO less that of STEER", drop["GRPO"] - drop["STEER"], at_least=POSITIVE),
            mean("drop of R_end, GRPO: something to withstand", drop["GRPO"], at_least=0.02, deciding=False),
            mean("the same, step size × 10", fast[0] - fast[1], at_least=0.02, deciding=False),
            mean("the same, prompts of a base model", real[0] - real[1], at_least=0.02, deciding=False),
        ),
        says=f"With the extreme bounds GRPO's R_end changes by {-drop['GRPO'].mean():+.3f} and STEER's by "
        f"{-drop['STEER'].mean():+.3f}: both go faster, and there is nothing to withstand. The threshold is met by the "
        "letter.",
        boundary=f"The largest drop of GRPO's R_end in the three worlds tried is {worst:+.3f}.",
        meaning="In a table an unclipped token moves its own state only, and in the right direction. The damage that a "
        "wide clip does in a network, and STEER's cure, must come from what states share, which a table lacks.",
        table=path_table(shown),
        panels=path_panels(shown),
    )


@claim(
    "C38",
    "STEER's effect carries over from GRPO to RLOO and OPO.",
    source=STEER,
    threshold="swap the advantage: same sign of the effect",
)
def steer_carries_over(size):
    """The runs of C36 with the advantages of RLOO and of OPO in place of GRPO's (a step size 3 times as large, since
    they lack the division by the standard deviation); the effect of STEER on H_end and R_end, times the sign of that
    under GRPO. On a bandit OPO is RLOO with 7/8 of the step.
    """
    names = ("GRPO", "RLOO", "OPO")
    runs = {}
    for place, name in enumerate(names):
        numbers = Numbers(speed=3.0 if place else 1.0)
        runs |= {(name, each): run(size, each, numbers, place) for each in ("GRPO", "STEER")}
    found = {name: effect(runs[name, "STEER"], runs[name, "GRPO"]) for name in names}
    sign = [np.sign(each.mean()) for each in found["GRPO"]]
    statistics = [
        mean(f"effect on {what}_end under {name} × sign under GRPO", sign[i] * found[name][i], at_least=POSITIVE)
        for name in names[1:]
        for i, what in ((1, "H"), (0, "R"))
    ]
    statistics += [mean(f"effect on H at J = 0.8, {name}", found[name][2], deciding=False) for name in names]

    def draw(ax):
        for number, name in enumerate(names):
            value, entropy = found[name][:2]
            ax.plot(entropy, value, "o", color=COLOURS[number], markersize=2.5, alpha=0.5)
            ax.plot(entropy.mean(), value.mean(), "D", color=COLOURS[number], label=name)
        for line in (ax.axhline, ax.axvline):
            line(0.0, color="0.6", linewidth=0.6)
        labelled(ax, "effect on the entropy at the end (nats)", "effect on the return at the end", columns=3)

    effects = [found[name][:2] for name in names]
    return Finding(
        tuple(statistics),
        says="STEER changes H_end and R_end by "
        + ", ".join(f"{h.mean():+.4f} and {r.mean():+.4f} ({n})" for n, (r, h) in zip(names, effects, strict=True))
        + ": under each of them it slows the run.",
        boundary="Where J first is 0.8 the entropies differ by "
        + ", ".join(f"{np.nanmean(found[name][2]):+.4f} ({name})" for name in names)
        + " nats: next to nothing carries over at equal return.",
        meaning="Since Ω is divided by its largest value in the batch, STEER does not see the scale of the advantage.",
        table={f"{what}, {name}": found[name][i] for name in names for i, what in ((0, "R"), (1, "H"))},
        panels=(draw,),
    )


@claim(
    "C42",
    "Positive reweighting (A > 0 times λ < 1) raises the entropy.",
    source=f"{STEER}; 2511.05993",
    threshold="λ grid, matched R: ΔH at matched R above 0",
)
def positive_reweighting_raises_entropy(size):
    """The runs of C36 with λ = 0.25, 0.5, 0.75 against GRPO (λ = 1): the entropy where J first crosses 0.8, per seed,
    at GRPO's step size and, speed-matched, at 2/(1 + λ) times it; the claim must hold at both. Beside it the
    differences at the end, prompts of a base model, and one prompt alone with exact gradients, where T16 says that
    nothing changes.
    """
    grid, kinds = (0.25, 0.5, 0.75), ("same step size", "speed-matched")
    base, gain, runs = run(size, "GRPO"), {}, {}
    for λ in grid:
        for kind, speed in zip(kinds, (1.0, 2.0 / (1.0 + λ)), strict=True):
            runs[kind, λ] = run(size, "positive", Numbers(factor=λ, speed=speed))
            gain[kind, λ] = runs[kind, λ].entropy_at() - base.entropy_at()
    slow, worst = runs[kinds[0], 0.5], min(gain, key=lambda each: gain[each].mean())
    alone = alone_at(size, "positive") - alone_at(size, "GRPO")
    real = run(size, "positive", realistic=True).entropy_at() - run(size, "GRPO", realistic=True).entropy_at()
    found = {
        each: mean(f"ΔH at J = 0.8, λ = {each[1]}, {each[0]} (nats)", x, at_least=POSITIVE) for each, x in gain.items()
    }
    ends = [
        mean("ΔH at the end, λ = 0.5, same step size", slow.end[1] - base.end[1], deciding=False, at_least=POSITIVE),
        mean("ΔR at the end, λ = 0.5, same step size", slow.end[0] - base.end[0], deciding=False, at_least=0.0),
    ]
    beside = [
        mean("ΔH at J = 0.8, prompts of a base model, λ = 0.5", real, deciding=False, at_least=POSITIVE),
        mean("ΔH at J = 0.8, one prompt, exact, λ = 0.5", alone, deciding=False, at_least=1e-3),
    ]
    plain = all(found[kinds[0], λ].inside for λ in grid)
    each = {kind: ", ".join(f"{gain[kind, λ].mean():+.4f}" for λ in grid) for kind in kinds}
    shown = {"GRPO": base, **{f"λ = {λ}{', matched' * (kind == kinds[1])}": x for (kind, λ), x in runs.items()}}
    return Finding(
        (*found.values(), *ends, *beside),
        only_when="the step size is not raised to make up for the smaller weights" if plain else "",
        counterexample=f"λ = {worst[1]}, {worst[0]}: {gain[worst].mean():+.4f} nats at J = 0.8."
        if found[worst].outside
        else "",
        says=f"At equal return the entropy differs by {each[kinds[0]]} nats (λ = 0.25, 0.5, 0.75) at the same step "
        f"size, by {each[kinds[1]]} when speed-matched; after as many steps by {ends[0].value:+.3f} at λ = 0.5, with "
        f"{ends[1].value:+.3f} of return.",
        boundary=f"For one prompt and exact gradients the path (H, J) is that of GRPO, to {np.abs(alone).max():.0e} "
        "nats: all there is comes from which prompts learn first (c(s) = λ(1 − p) + p), sampling and clip.",
        meaning="Most of the entropy that positive reweighting keeps after as many steps is lost speed; what is left "
        "at equal return is a few per cent of the entropy, does not grow as λ falls, and can change its sign with the "
        "step size.",
        table=path_table(shown),
        panels=gap_panels(shown),
    )


@cache
def alone_at(size, name):
    """H where J crosses 0.8 on single prompts with exact gradients [N]: one update a batch, small steps."""
    algorithm = Algorithm(VanillaPG(0.02), Exact(GRPO()), (one_of(reweightings(), name),))
    seen, _ = follow(pools(size.seeds, 1), algorithm, 2000)
    return crossing(seen["expected_return"], SOLVED, seen["entropy"])


@claim(
    "C44",
    "Training on the 20 % of tokens of the highest entropy is enough.",
    source=f"{STEER}; 2506.01939",
    threshold="ρ grid: R_end against that of all tokens at as many updates, at most .02 lower",
)
def fork_tokens_are_enough(size):
    """The runs of C36 with only the tokens of the highest state entropy kept, a share ρ of the batch: 0.1, 0.2, 0.5;
    R_end less that of GRPO. Controls: 20 % of the tokens at random, and both with 5 times the step size. Then prompts
    with pass rates as of a base model, K = 10, two correct.
    """
    base, real = run(size, "GRPO"), run(size, "GRPO", realistic=True)
    fork, chance = iv.ForkTokens(0.2), iv.AtRandom(iv.ForkTokens(0.2))
    runs = {f"ρ = {ρ}": trained(world(size), iv.PPOClip(), iv.ForkTokens(ρ)) for ρ in (0.1, 0.2, 0.5)}
    runs["random 20 %"] = trained(world(size), iv.PPOClip(), chance)
    runs["ρ = 0.2, step × 5"] = trained(world(size), iv.PPOClip(), fork, speed=5.0)
    runs["random 20 %, step × 5"] = trained(world(size), iv.PPOClip(), chance, speed=5.0)
    loss = {name: each.end[0] - base.end[0] for name, each in runs.items()}
    loss["ρ = 0.2, prompts of a base model"] = trained(base_model(size), iv.PPOClip(), fork).end[0] - real.end[0]
    statistics = [
        mean(f"R_end − that of all tokens, {name}", x, at_least=-0.02, deciding=name == "ρ = 0.2")
        for name, x in loss.items()
    ]
    shown = {"all tokens": base, **runs}
    change = {name: f"{x.mean():+.3f}" for name, x in loss.items()}
    lower = loss["ρ = 0.2"].mean() < -0.02
    enough = statistics[4].inside
    return Finding(
        tuple(statistics),
        only_when="the step size is raised as much as tokens are dropped (5 times)" if enough else "",
        counterexample=f"K = 10, one correct, σ = 1, equal step size: R_end {runs['ρ = 0.2'].end[0].mean():.2f}, "
        f"{base.end[0].mean():.2f} with all tokens and {runs['random 20 %'].end[0].mean():.2f} with a random 20 %."
        if lower
        else "",
        says=f"With the top 20 % by entropy R_end changes by {change['ρ = 0.2']}, with a random 20 % by "
        f"{change['random 20 %']}, with the top half by {change['ρ = 0.5']}; with 5 times the step size by "
        f"{change['ρ = 0.2, step × 5']} (random: {change['random 20 %, step × 5']}).",
        boundary="The states of the highest entropy are those where no action stands out: the batch spends its updates "
        "on them until they fall out of the top, and only then on others.",
        meaning="Entropy is no better a choice of tokens than chance here, at either step size. In a table nothing "
        "learnt at one state helps another; if 20 % are enough in a network, it is by what its states share.",
        table=path_table(shown),
        panels=path_panels(shown),
    )


@claim(
    "C61",
    "Off-policy data changes the pattern: with responses of a stronger model the entropy no longer falls all the way.",
    source="digest of arXiv:2505.22617, section 2.6; LUFFY (arXiv:2504.14945)",
    threshold="LUFFY's weight, foreign sampler: H not monotone (in ≥ .95 of the runs; without it monotone in ≥ .95)",
)
def off_policy_data_changes_the_pattern(size):
    """80 pools of 50 prompts, K = 10, one correct, σ = 1, exact gradients of GRPO, one update a batch, 200 steps; the
    same with an eighth of each group from a foreign policy that is always right, under LUFFY's weight γx/(x + γ)². A
    run is monotone if its mean entropy is never more than 1e-6 above an earlier value. Then σ = 0.5, 2 and 3, and half
    of each group from the foreign policy.
    """
    spreads, shares = (0.5, 1.0, 2.0, 3.0), {"GRPO": 0.0, "LUFFY": 0.125, "LUFFY, half foreign": 0.5}
    found = {(name, σ): exact_entropy(size, foreign, σ) for name, foreign in shares.items() for σ in spreads}
    rise = {each: largest_rise(x) for each, x in found.items()}
    statistics = []
    for (name, σ), x in rise.items():
        kind, hits = ("monotone", x <= 1e-6) if name == "GRPO" else ("not monotone", x > 1e-6)
        main = σ == 1.0 and name != "LUFFY, half foreign"
        statistics.append(share(f"{kind}, {name}, σ = {σ:g}", hits, at_least=0.95, deciding=main))
    height = {name: rise[name, 1.0].mean() for name in shares}
    rising = {name: np.mean(rise[name, 1.0] > 1e-6) for name in shares}
    alike = [σ for σ in spreads if np.mean(rise["GRPO", σ] > 1e-6) > 0.0]

    def draw(ax, σ):
        for number, name in enumerate(shares):
            band(ax, found[name, σ], number, name)
        labelled(ax, "step", f"entropy, H (nats), σ = {σ:g}")

    return Finding(
        tuple(statistics),
        counterexample=f"σ = 1: without foreign data {rising['GRPO']:.0%} of the runs rise at some time, with it "
        f"{rising['LUFFY']:.0%}.",
        says=f"Foreign data does not make the difference: with exact gradients the entropy rises at some time in "
        f"{rising['GRPO']:.0%} of the runs of GRPO (σ = 1, by {height['GRPO']:.4f} nats on average), in "
        f"{rising['LUFFY']:.0%} with LUFFY (by {height['LUFFY']:.4f}). LUFFY falls more slowly.",
        boundary=f"Runs of GRPO alone rise at σ = {', '.join(f'{σ:g}' for σ in alike)}: wherever a prior puts its mass "
        "on wrong actions, learning first spreads it.",
        meaning="A rise of the entropy is no sign of foreign data. What foreign responses change is which prompts are "
        "learnt at all; in a table each prompt has its own logits and only its own responses help.",
        table={"step": np.arange(201), **{f"H, {n}, σ = {σ:g}": x.mean(0) for (n, σ), x in found.items()}},
        panels=(partial(draw, σ=1.0), partial(draw, σ=3.0)),
    )


@cache
def exact_entropy(size, foreign, spread):
    """Mean entropy [N, T] along 200 exact steps of GRPO, a share of each group from a policy that is always right."""
    algorithm = build("luffy" if foreign else "grpo", step_size=25.0, mode="exact")
    if foreign:
        algorithm = replace(algorithm, estimator=replace(algorithm.estimator, share=foreign))
    return follow(pools(size(80, 20), 50, spread=spread), algorithm, 200)[0]["entropy"]


def largest_rise(entropy):
    """How far the entropy [N, T] is at most above an earlier value [N]."""
    return np.max(entropy - np.minimum.accumulate(entropy, 1), 1)
