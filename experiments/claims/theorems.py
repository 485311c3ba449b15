"""The theorems on the change of entropy: their orders, what the printed forms need, and what covariances say of it."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import entr, expit

from softmaxdyn import build, theory
from softmaxdyn.aggregation import SequenceMeanTokenSum
from softmaxdyn.change import decompose, remainder
from softmaxdyn.configs import config
from softmaxdyn.interventions import Intervention
from softmaxdyn.ledger import Finding, claim, correlation_of, exactly, mean
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.policy import centred, softmax
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.setting import setting
from softmaxdyn.simulation import quick_jit
from softmaxdyn.updates import NaturalPG, VanillaPG

from .worlds import exact, follow, pools, realistic_pools, trees

CUI = "Cui et al. 2025 (arXiv:2505.22617)"
COUNTS, SPREADS = (10, 20, 50, 100), (0.0, 0.5, 1.0, 2.0, 3.0)
SIZES = 2.0 ** -np.arange(23)
FITTED = slice(12, 21)  # η from 2⁻¹² to 2⁻²⁰
SQUARE = {"at_least": 1.9, "at_most": 2.1}
BASELINES = (0.0, -10.0, 10.0)


@cache
def states(seeds, prompts):
    """(logits, rewards, random directions) [N, states, 100]: prompts of the pools of every K and σ, padded by masks."""
    logits = np.full((seeds, len(COUNTS) * len(SPREADS), prompts, max(COUNTS)), -np.inf)
    rewards = np.zeros(logits.shape)
    for place, (actions, spread) in enumerate((k, s) for k in COUNTS for s in SPREADS):
        for seed, made in enumerate(pools(seeds, prompts, actions, 0.1, spread)):
            logits[seed, place, :, :actions] = made.logits
            rewards[seed, place, :, :actions] = made.problem.rewards
    flat = (seeds, -1, max(COUNTS))
    return (
        logits.reshape(flat),
        rewards.reshape(flat),
        np.random.default_rng(0).standard_normal(rewards.reshape(flat).shape),
    )


def directions(logits, rewards, random):
    """name → (direction v of the step ηv, what the theorem says of dH/dη)."""
    policy = softmax(logits)
    advantage = centred(policy, rewards)
    vanilla = policy.prob * advantage
    return {
        "Lemma 1": (random, theory.lemma_1(logits, random)),
        "A centred": (vanilla, theory.theorem_1(logits, advantage, 1.0)),
        "raw rewards": (vanilla, theory.theorem_1(logits, rewards, 1.0)),
        **{f"baseline {b:+g}": (advantage, theory.theorem_2(logits, advantage + b, 1.0)) for b in BASELINES},
    }


def errors(logits, direction, slope, sizes):
    """|ΔH − η slope| of the step ηv for each η in `sizes`, as |remainder + η (what `slope` lacks)|: nothing cancels."""
    lacking = theory.lemma_1(logits, direction) - slope
    return jax.lax.map(lambda size: jnp.abs(remainder(logits, size * direction) + size * lacking), sizes)


@cache
def tried(name, seeds, prompts):
    """(errors [sizes, N, states], dH/dη as the theorem has it [N, states]) of that theorem on `states`."""
    logits, rewards, random = states(seeds, prompts)
    direction, slope = quick_jit(directions)(logits, rewards, random)[name]
    return np.asarray(quick_jit(errors)(logits, direction, slope, SIZES)), np.asarray(slope)


def slopes(found):
    """The log-log slope of the mean error over η in `FITTED`, one a seed."""
    return np.polyfit(np.log2(SIZES[FITTED]), np.log2(found[FITTED].mean(2)), 1)[0]


def extremes(found):
    """The smallest and the largest slope of a single state, from η = 2⁻¹⁹ to 2⁻²⁰."""
    each = np.log2(found[19] / found[20])
    return float(each.min()), float(each.max())


def error_panel(curves, y="error of the theorem (nats)"):
    """Median and 5–95 % band of each name's errors against η, with guides of slope 1 and 2."""

    def draw(ax):
        for colour, dashes, (name, found) in zip(COLOURS, DASHES, curves.items(), strict=False):
            low, middle, high = np.quantile(found.reshape(len(SIZES), -1), [0.05, 0.5, 0.95], axis=1)
            ax.fill_between(SIZES, low, high, color=colour, alpha=0.2, linewidth=0)
            ax.loglog(SIZES, middle, color=colour, linestyle=dashes, label=name)
        for power in (1, 2):
            ax.loglog(SIZES, SIZES**power, color="0.6", linewidth=0.7, zorder=0)
            place = {"xytext": (-3, 4), "textcoords": "offset points", "ha": "right", "color": "0.4"}
            ax.annotate(["η", "η²"][power - 1], (SIZES[14], SIZES[14] ** power), **place)
        labelled(ax, "step size η", y)

    return draw


def reach(found, slope, level=0.1):
    """The largest η at which half of the states are predicted within `level` of the prediction, and the shares by η."""
    moving = np.abs(slope) > 0.0
    close = (found[:, moving] <= level * SIZES[:, None] * np.abs(slope[moving])).mean(1)
    good = SIZES[close >= 0.5]
    return (float(good.max()) if good.size else 0.0), close


def close_panel(close):
    """The share of the states in which the prediction is within 10 %, against η."""

    def draw(ax):
        for colour, dashes, (name, shares) in zip(COLOURS, DASHES, close.items(), strict=False):
            ax.semilogx(SIZES, shares, color=colour, linestyle=dashes, label=name)
        ax.set_ylim(0.0, 1.02)
        labelled(ax, "step size η", "states predicted within 10 %")

    return draw


def inflection():
    """(p, slope of the error there): two actions of probability p, 1 − p, where d²H/dη² of moving one logit is 0."""
    p = brentq(lambda p: (2.0 * p - 1.0) * np.log(p / (1.0 - p)) - 1.0, 0.6, 0.99)
    x, eta = np.log(p / (1.0 - p)), 2.0 ** -np.arange(5, 9)
    entropy = lambda x: entr(expit(x)) + entr(expit(-x))  # noqa: E731
    error = np.abs(entropy(x + eta) - entropy(x) + eta * p * (1.0 - p) * x)
    return p, float(np.polyfit(np.log(eta), np.log(error), 1)[0])


@claim(
    "C11",
    "Lemma 1: a small step δ of the logits changes the entropy by −Cov(log π, δ), up to an error of second order.",
    source=f"{CUI}, Lemma 1",
    threshold="log-log slope of the error against the step size in [1.9, 2.1]",
    proved=True,
)
def lemma_1_is_the_first_order(size):
    """Prompts of the pools with 10, 20, 50 and 100 actions and logits N(0, σ²), σ = 0, ½, 1, 2 and 3; each takes steps
    ηv, v drawn from N(0, 1) for every action, η = 1, ½ … 2⁻²². The error ΔH + Cov is computed without cancellation, so
    that its slope can be read off down to 1e-13 nats: of the mean error over the states, fitted over η = 2⁻¹² … 2⁻²⁰,
    one a seed; and of every single state from 2⁻¹⁹ to 2⁻²⁰. Each error is also held against the certified bound.
    """
    found, slope = tried("Lemma 1", size.seeds, size(10, 2))
    low, high = extremes(found)
    logits, _, random = states(size.seeds, size(10, 2))
    bound = np.asarray(quick_jit(theory.remainder_bound)(logits, random))
    worst = float((found / (SIZES**2)[:, None, None] / bound).max())
    far, close = reach(found, slope)
    half, _ = reach(found, slope, 1.0)
    p, order = inflection()
    return Finding(
        (
            mean("slope of the mean error", slopes(found), **SQUARE),
            exactly("smallest slope of a state", low, **SQUARE),
            exactly("largest slope of a state", high, **SQUARE),
            exactly("largest error over its certified bound", worst, at_most=1.0, deciding=False),
        ),
        says=f"Halving the step quarters the error in each of the {slope.size} states ({low:.4f} to {high:.4f} in the "
        f"exponent), and no error of any step exceeds {worst:.2f} of its certified bound.",
        boundary=f"First order is not small: half of the states are predicted within 10 % only up to η = {far:g}, "
        f"logits moved by {far:g} (standard deviation). Where the second order vanishes the error is of order "
        f"{order:.2f}: two actions, of which one has probability {p:.4f}.",
        meaning="The lemma is a statement about one small step of the logits, whatever made it. Once a step moves "
        f"logits by {half:g}, what it leaves out is in half of the states as large as what it says.",
        table={"step size": SIZES, **quantiles(found), "states within 10 %": close},
        panels=(error_panel({"ΔH + Cov(log π, δ)": found}, "error of Lemma 1 (nats)"), close_panel({"Lemma 1": close})),
    )


def quantiles(found, name="error"):
    """Columns: the median and the 5 % and 95 % quantiles of the errors at each η."""
    values = np.quantile(found.reshape(len(SIZES), -1), [0.5, 0.05, 0.95], axis=1)
    return {f"{name}, {which}": x for which, x in zip(("median", "5 %", "95 %"), values, strict=True)}


@claim(
    "C12",
    "Theorem 1: a step of vanilla policy gradient changes the entropy by −η Cov(log π, π A), up to second order in η.",
    source=f"{CUI}, Theorem 1",
    threshold="slope of the error in [1.9, 2.1] with A centred, and a first-order error that does not vanish with A "
    "raw counts against it",
)
def theorem_1_holds_as_printed(size):
    """The prompts of C11, each with its own step η of exact vanilla policy gradient, for which the formula is printed,
    once with the centred advantage A = r − E r and once with the raw reward in its place: the step is the same for
    both, since the softmax removes any baseline. Slopes as in C11. Then a baseline b is added to A, and the signs that
    the formula gives are compared with the exact ones, in the states with σ > 0.
    """
    found = {name: tried(name, size.seeds, size(10, 2)) for name in ("A centred", "raw rewards")}
    true = found["A centred"][1]
    per_baseline = found["raw rewards"][1] - true  # −V S̄
    logits, rewards, _ = states(size.seeds, size(10, 2))
    value = np.asarray(quick_jit(lambda z, r: jnp.sum(softmax(z).prob * r, -1))(logits, rewards))
    live = np.abs(true) > 1e-12
    shift = per_baseline[live] / value[live]
    baselines = np.linspace(-2.0, 2.0, 81)
    wrong = np.array([np.mean((true[live] + b * shift) * true[live] < 0.0) for b in baselines])
    raw, order = found["raw rewards"], slopes(found["A centred"][0]).mean()
    first = np.abs(per_baseline).mean(1) / np.abs(true).mean(1)
    bad = float(np.mean(raw[1][live] * true[live] < 0.0))
    p = np.array([0.9, 0.1])
    said = -float((p**2 * (np.log(p) - p @ np.log(p))).sum())

    def draw(ax):
        ax.plot(baselines, wrong, color=COLOURS[0], label="sign of −η Cov(log π, π (A + b)) wrong")
        labelled(ax, "baseline b (reward)", "share of the states")

    return Finding(
        (
            mean("slope of the mean error, A centred", slopes(found["A centred"][0]), **SQUARE),
            mean("slope of the mean error, raw rewards", slopes(raw[0]), **SQUARE),
            mean("first-order error over dH/dη, raw rewards", first, deciding=False),
            exactly("wrong signs, raw rewards", bad, deciding=False),
        ),
        only_when="the advantage is centred under the policy, E_π A = 0" if abs(order - 2.0) < 0.1 else "",
        counterexample=f"π = (.9, .1), both rewards 1: the policy stays, and the formula with rewards says ΔH = "
        f"−{-said:.3f} η.",
        says=f"With raw rewards the error is of first order, on average {first.mean():.2f} times the change, and the "
        f"sign is wrong in {bad:.0%} of the states. It is −η b S̄, S̄ = Cov(log π, π).",
        boundary=f"Wrong signs reach {wrong[baselines == 1.0][0]:.0%} at b = 1 and {wrong[baselines == -1.0][0]:.0%} "
        "at b = −1; the formula is right whatever b only where the policy is uniform (S̄ = 0).",
        meaning="Whoever logs this covariance should centre the advantage with the policy's own mean reward first. The "
        "update does not feel a baseline, the printed formula does: a REINFORCE run logged with raw rewards looks as "
        "if it lost entropy that it keeps.",
        table={"baseline": baselines, "wrong signs": wrong},
        panels=(error_panel({name: x[0] for name, x in found.items()}, "error of Theorem 1 (nats)"), draw),
    )


@claim(
    "C13",
    "Theorem 2: a step of natural policy gradient changes the entropy by −η Cov(log π, A), up to second order in η.",
    source=f"{CUI}, Theorem 2",
    threshold="slope of the error in [1.9, 2.1], with any baseline",
    proved=True,
)
def theorem_2_holds_with_any_baseline(size):
    """The prompts of C11, each with a step η A of exact natural policy gradient, and the formula with A + b for b = 0,
    −10 and 10. Slopes as in C11, and the largest difference that b makes to the prediction.
    """
    found = {b: tried(f"baseline {b:+g}", size.seeds, size(10, 2)) for b in BASELINES}
    errors_of, slope = found[0.0]
    low, high = extremes(errors_of)
    differ = max(float(np.abs(x[1] - slope).max()) for x in found.values()) / float(np.abs(slope).max())
    far, close = reach(errors_of, slope)
    vanilla = tried("A centred", size.seeds, size(10, 2))
    _, close_vanilla = reach(*vanilla)
    apart = float(np.mean((vanilla[1] * slope)[np.abs(slope) > 1e-12] < 0.0))
    return Finding(
        (
            *(mean(f"slope of the mean error, b = {b:g}", slopes(x[0]), **SQUARE) for b, x in found.items()),
            exactly("smallest slope of a state", low, **SQUARE),
            exactly("largest slope of a state", high, **SQUARE),
            exactly("what b changes, over the largest prediction", differ, deciding=False),
            exactly("states in which Theorems 1 and 2 differ in sign", apart, deciding=False),
        ),
        says=f"The error is of second order in each of the {slope.size} states ({low:.4f} to {high:.4f}); the baseline "
        f"changes the prediction by {differ:.0e} of it, which is rounding.".replace("e-", "e−"),
        boundary=f"With rewards 0 and 1 half of the states are predicted within 10 % up to η = {far:g}; Theorem 1 does "
        f"so in {close_vanilla[0]:.0%} of them at η = 1, because a vanilla step is shorter by the factor π.",
        meaning="Of the two formulas this is the one that can be logged without care for the baseline. It speaks of "
        f"natural policy gradient: for a vanilla step it has the wrong size, and in {apart:.0%} of the states the "
        "wrong sign.",
        table={
            "step size": SIZES,
            **quantiles(errors_of),
            "within 10 %, Theorem 2": close,
            "within 10 %, Theorem 1": close_vanilla,
        },
        panels=(
            error_panel({"natural PG": errors_of, "vanilla PG": vanilla[0]}, "error of the theorem (nats)"),
            close_panel({"Theorem 2": close, "Theorem 1": close_vanilla}),
        ),
    )


@config
class GroupCovariance(Intervention):
    """Leaves the push alone and reports, as the share that it touched, the covariance of the source's figure 8.

    Per group Cov(x, eˣ A) over the responses y, x = log π(y)/|y|, so that eˣ is the geometric mean of π over the
    tokens; the mean over the groups. A response weighs what its tokens weigh.
    """

    def __call__(self, key, tokens, policy, push):
        count = tokens.weight.shape[0]
        taken = (tokens.weight > 0.0).astype(tokens.weight.dtype)
        total = lambda values: jax.ops.segment_sum(taken * values, tokens.episode, count)  # noqa: E731
        length = jnp.maximum(total(taken), 1.0)
        log_prob, advantage = total(tokens.log_prob) / length, total(tokens.advantage) / length
        weight = total(tokens.weight) / length
        group = jnp.zeros(count, tokens.group.dtype).at[tokens.episode].set(tokens.group)
        per_group = lambda values: jax.ops.segment_sum(weight * values, group, count)  # noqa: E731
        mass = per_group(jnp.ones(count))
        centre = per_group(log_prob) / jnp.where(mass > 0.0, mass, 1.0)
        found = jnp.sum(weight * (log_prob - centre[group]) * jnp.exp(log_prob) * advantage) / jnp.sum(weight)
        return push._replace(selected=jnp.full(count, found))


def token_means(problem, step_size, policy, delta, selected):
    """J, the mean entropy of a token H̄/E|y|, that of a response H̄, and what `GroupCovariance` reports."""
    visits = problem.visits(policy.prob)
    response = jnp.sum(visits * policy.entropy)
    return {
        "J": problem.expected_return(policy.prob),
        "token": response / jnp.sum(visits),
        "response": response,
        "covariance": selected[0],
    }


def monitored(settings, mode, steps, step_size=0.5):
    """(η × covariance [N, T], fall of the entropy of a token, of a response [N, T]) along runs of on-policy GRPO."""
    prompts = np.count_nonzero(settings[0].problem.start)
    made = build("grpo", mode=mode, step_size=step_size * prompts, groups=2 * prompts)
    estimator = dataclasses.replace(made.estimator, aggregation=SequenceMeanTokenSum())
    made = dataclasses.replace(made, estimator=estimator, interventions=(GroupCovariance(),))
    fields, _ = follow(settings, made, steps, observe=token_means)
    falls = (-np.diff(fields[name], axis=1) for name in ("token", "response"))
    return step_size * fields["covariance"][:, :-1], *falls


def each_correlation(x, y):
    """Pearson's correlation over the steps, one a seed."""
    return np.array([correlation_of(one, other) for one, other in zip(x, y, strict=True)])


def smooth(x, width=15):
    """Means over a sliding window of steps, [N, T − width + 1]."""
    return np.lib.stride_tricks.sliding_window_view(x, width, axis=1).mean(-1)


def worlds_of_c14(size):
    """world → (η × covariance, fall of the entropy of a token, of a response); groups of 8 and the population."""
    responses, single, steps = trees(size.seeds), pools(size.seeds, 16), size(150, 60)
    cases = {
        "responses, groups of 8": (responses, "sampled"),
        "one token, population": (single, "exact"),
        "responses, population": (responses, "exact"),
        "one token, groups of 8": (single, "sampled"),
    }
    return {name: monitored(*case, steps) for name, case in list(cases.items())[: size(4, 2)]}


@claim(
    "C14",
    "Along a run, the covariance of figure 8 matches the fall of the entropy exactly.",
    source=f"a digest of {CUI}, figure 8; the paper itself says that the two show similar trends",
    threshold="Pearson's r over the steps ≥ .9 and the ratio of the two within 10 % of 1",
)
def the_covariance_matches_the_fall(size):
    """On-policy GRPO (no clip, one update a batch, groups of 8, 32 groups a step, the plain sum over tokens) on token
    trees: 16 prompts, responses of 1 to 4 tokens out of two and an end token, 5 % to 50 % of them correct, logits
    N(0, 1); 150 steps. At each step the covariance as in figure 8, from the batch that makes the step: per group
    Cov(x, eˣ A) with x = log π(y)/|y|, so that eˣ is a geometric mean; the mean over groups, times η. It is compared
    with the exact fall of the entropy of a mean token, H̄/E|y|: r over the steps, and the ratio of the sums, one a
    seed. Beside it the entropy of a whole response, the same with the whole population for a group, the same with
    responses of one token (pools of 16 prompts, 10 actions), and both curves smoothed over 15 steps, as figures are.
    """
    found = worlds_of_c14(size)
    r = {name: each_correlation(x, fall) for name, (x, fall, _) in found.items()}
    ratio = {name: fall.sum(1) / x.sum(1) for name, (x, fall, _) in found.items()}
    own, best = list(found)[:2]
    x, fall, whole = found[own]
    similar = each_correlation(smooth(x), smooth(fall))
    worst = int(ratio[own].argmin())
    exact_there = r[best].mean() >= 0.9 and abs(ratio[best].mean() - 1.0) <= 0.1

    def points(ax):
        for place, values in enumerate((r, ratio)):
            low, middle, high = np.quantile(np.array(list(values.values())), [0.0, 0.5, 1.0], axis=1)
            at = np.arange(len(values)) + 0.2 * place - 0.1
            lines = {"color": COLOURS[place], "fmt": "os"[place], "markersize": 3}
            ax.errorbar(at, middle, (middle - low, high - middle), label=("r", "ratio of the sums")[place], **lines)
        ax.set_xticks(range(len(found)), [name.replace(", ", "\n") for name in found])
        ax.axhline(1.0, color="0.6", linewidth=0.7, zorder=0)
        labelled(ax, "", "median and range over seeds")

    return Finding(
        (
            mean("r, responses, groups of 8", r[own], at_least=0.9),
            mean("ratio, responses, groups of 8", ratio[own], at_least=0.9, at_most=1.1),
            mean("r of the curves smoothed over 15 steps", similar, at_least=0.9, deciding=False),
            mean("r with the entropy of a response", each_correlation(x, whole), deciding=False),
            *(mean(f"r, {name}", r[name], deciding=False) for name in list(found)[1:]),
            *(mean(f"ratio, {name}", ratio[name], deciding=False) for name in list(found)[1:]),
        ),
        only_when="a response is one token and the covariance is that of the whole population" if exact_there else "",
        counterexample=f"the tree of seed {worst}: the covariances add up to a fall of {x[worst].sum():.3f} nats a "
        f"token over the run, and it falls by {fall[worst].sum():.3f}.",
        says=f"From step to step r is {r[own].mean():.2f}, smoothed {similar.mean():.2f}: similar trends, as the paper "
        f"says, but the covariance is {1.0 / ratio[own].mean():.1f} times the fall. With one token a response and the "
        f"whole population r is {r[best].mean():.3f} and the ratio {ratio[best].mean():.2f}.",
        boundary="The ratio by itself: "
        + "; ".join(f"{name} {x.mean():.2f}" for name, x in ratio.items())
        + ". Several tokens a response break it, and so do small groups.",
        meaning="The covariance is a fair monitor of the trend and no forecast in nats: a response of several tokens "
        "is not one action of a softmax, and a group of 8 is not the policy. Its scale has to be fitted to each run.",
        table={
            "step": np.arange(x.shape[1]),
            "η × covariance": x.mean(0),
            "fall of the entropy of a token": fall.mean(0),
        },
        panels=(over_steps({"η × covariance": x, "fall of H̄/E∣y∣": fall}, "nats a step"), points),
    )


def over_steps(curves, y, columns=2):
    """Mean and central 90 % over the seeds [N, T] of each name, against the step."""

    def draw(ax):
        for colour, dashes, (name, values) in zip(COLOURS, DASHES, curves.items(), strict=False):
            low, high = np.nanquantile(values, [0.05, 0.95], axis=0)
            steps = np.arange(values.shape[1])
            ax.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(steps, np.nanmean(values, 0), color=colour, linestyle=dashes, label=name)
        labelled(ax, "step", y, columns=columns)

    return draw


STARTS = (*SPREADS, "pass counts")
LIMITS = {"steps": 0.01, "runs": 0.95, "rise": 1e-6, "sampled rise": 0.01}


def covariance_means(problem, step_size, policy, delta, selected):
    """The mean over the prompts of the entropy and of the covariances of Theorem 1, the same with A/std, Theorem 2."""
    weights = problem.visits(policy.prob)
    advantage = centred(policy, problem.action_values(policy.prob))
    variance = jnp.sum(policy.prob * advantage**2, -1, keepdims=True)
    slope = policy.prob * policy.centred_log_prob
    vanilla = slope * policy.prob * advantage
    by_state = {
        "H": policy.entropy,
        "PG": jnp.sum(vanilla - slope * jnp.sum(policy.prob**2 * advantage, -1, keepdims=True), -1),
        "NPG": jnp.sum(slope * advantage, -1),
        "GRPO": jnp.sum(vanilla / jnp.sqrt(jnp.where(variance > 0.0, variance, 1.0)), -1),
    }
    return {name: jnp.sum(weights * values) / jnp.sum(weights) for name, values in by_state.items()}


@cache
def monotone_runs(seeds, prompts, steps):
    """(method, start) → the fields of `covariance_means` [N, T] along the runs; GRPO makes half as many steps."""
    starts = {f"σ = {spread:g}": pools(seeds, prompts, spread=spread) for spread in SPREADS}
    starts["pass counts"] = realistic_pools(seeds, prompts, actions=10, correct=2)
    methods = {
        "PG": (exact(VanillaPG(1.0 * prompts)), steps, 1),
        "NPG": (exact(NaturalPG(0.1)), steps, 1),
        "GRPO": (build("grpo", step_size=0.2 * prompts, groups=prompts // 4), steps // 2, 8),
    }
    return {
        (method, start): follow(made, algorithm, number, inner_steps=inner, observe=covariance_means)[0]
        for method, (algorithm, number, inner) in methods.items()
        for start, made in starts.items()
    }


def negative_and_monotone(runs):
    """[M, N]: share of the steps with Cov < 0, relative rise, whether monotone, share of falls if Cov > 0."""
    negative, rises, fine, agree = [], [], [], []
    for (method, _), fields in runs.items():
        entropy, covariance = fields["H"], fields[method][:, :-1]
        rise = (entropy - np.minimum.accumulate(entropy, 1)).max(1) / entropy[:, 0]
        negative.append(np.mean(covariance < 0.0, axis=1))
        rises.append(rise)
        fine.append(rise <= (0.01 if method == "GRPO" else 1e-6))
        falls, positive = np.diff(entropy, axis=1) < 0.0, covariance > 0.0
        agree.append(np.sum(falls & positive, 1) / np.where(positive.any(1), positive.sum(1), np.nan))
    return tuple(np.array(x) for x in (negative, rises, fine, agree))


@claim(
    "C15",
    "The covariance stays positive throughout training, so the entropy falls monotonically.",
    source=f"{CUI}, section 3",
    threshold="fewer than 1 % of the steps with a negative covariance, and H monotone (in 95 % of the runs)",
)
def the_covariance_stays_positive(size):
    """Pools of 200 prompts with 10 actions, one correct, from logits N(0, σ²), σ = 0, ½, 1, 2 and 3, and pools as pass
    counts of a base model give them (10 actions, 2 correct); exact PG, exact NPG and sampled GRPO (groups of 8 on 50 of
    the prompts, 8 inner steps). At each step the sign of the mean covariance over the prompts: that of Theorem 1 for
    PG, with A/std for GRPO, of Theorem 2 for NPG. A run is monotone if H never rises above its lowest value so far by
    more than 1e-6 of its start (GRPO, because of its noise: 1 %). A seed gives the mean of the 18 cases.
    """
    runs = monotone_runs(size.seeds, size(200, 40), size(200, 80))
    negative, rises, fine, agree = negative_and_monotone(runs)
    starts = list(dict.fromkeys(start for _, start in runs))
    rows = {start: [place for place, (_, each) in enumerate(runs) if each == start] for start in starts}
    clean = (negative.mean(1) < 0.01) & (fine.mean(1) >= 0.95)
    good = [start for start in starts if clean[rows[start]].all()]
    worst = int(rises.mean(1).argmax())
    method, start = list(runs)[worst]
    place = np.concatenate([np.nonzero(x[name][:, :-1] < 0.0)[1] / x[name].shape[1] for (name, _), x in runs.items()])
    early = np.sum(place < 0.1) / max(place.size, 1)
    two = -float(theory.theorem_2(np.log([0.1, 0.9]), np.array([1.0, 0.0]), 1.0))
    curves = {
        f"{name}, {start}": fields["H"] / fields["H"][:, :1] for (name, each), fields in runs.items() if each == start
    }
    sampled = np.array([name == "GRPO" for name, _ in runs])

    def shares(ax):
        for colour, name in zip(COLOURS, ("PG", "NPG", "GRPO"), strict=False):
            found = np.array([negative[place] for place, (each, _) in enumerate(runs) if each == name])
            low, high = np.quantile(found, [0.05, 0.95], axis=1)
            ax.fill_between(range(len(starts)), low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(range(len(starts)), found.mean(1), "o-", color=colour, markersize=3, label=name)
        ax.set_xticks(range(len(starts)), [name.replace("σ = ", "").replace(" ", "\n") for name in starts])
        labelled(ax, "σ of the starting logits", "steps with Cov < 0", columns=3)

    return Finding(
        (
            mean("steps with a negative covariance", negative.mean(0), at_most=0.01),
            mean("runs with a monotone entropy", fine.mean(0), at_least=0.95),
            mean("steps with Cov > 0 in which H falls, exact", agree[~sampled].mean(0), deciding=False),
            mean("steps with Cov > 0 in which H falls, GRPO", agree[sampled].mean(0), deciding=False),
        ),
        only_when=f"the run starts from one of: {', '.join(good)}" if good else "",
        counterexample=f"one prompt, π = (.1, .9), the first action correct, natural PG: Cov(log π, A) = −{-two:.3f}.",
        says=f"Of the steps with a negative covariance {early:.0%} lie in the first tenth of a run: "
        "what is wrong and probable loses mass before what is right is probable. H never rises far: at most "
        f"{rises.max():.1%} of its start ({method} from {start}: {rises[worst].mean():.2%} on average).",
        boundary="It depends on the start. Steps with a negative covariance, mean over the three methods: "
        + ", ".join(f"{negative[rows[start]].mean():.1%} ({start})" for start in starts)
        + ".",
        meaning="That entropy falls from the first step on is no law: a model that is confidently wrong on many "
        f"prompts gains some at first. Where the covariance is positive H falls in {agree[~sampled].mean():.1%} of the "
        f"steps with exact gradients and in {agree[sampled].mean():.1%} with sampled ones.",
        table={
            "method": [name for name, _ in runs],
            "start": [each for _, each in runs],
            "steps with Cov < 0": negative.mean(1),
            "runs monotone": fine.mean(1),
            "largest rise": rises.max(1),
            "steps with Cov > 0 in which H falls": agree.mean(1),
        },
        panels=(shares, over_steps(curves, "H over its start", 3)),
    )


def entropy_steps(problem, step_size, policy, delta, selected):
    """Per prompt: the exact change of the entropy, the covariance of Theorem 2; and the mean entropy."""
    change = decompose(policy, delta).entropy_change
    advantage = centred(policy, problem.action_values(policy.prob))
    covariance = jnp.sum(policy.prob * policy.centred_log_prob * advantage, -1)
    return {"change": change, "covariance": covariance, "H": jnp.mean(policy.entropy)}


def uniform_starts(seeds, prompts, actions=10):
    """Uniform policies: a third of the prompts each with one correct action, rewards U(0, 1) and rewards N(0, 1)."""
    found = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        parts = np.eye(actions)[draw.integers(actions, size=prompts)], draw.random((prompts, actions))
        kinds = np.stack([*parts, draw.standard_normal((prompts, actions))])
        rewards = kinds[np.arange(prompts) % 3, np.arange(prompts)]
        found.append(setting(Bandit(rewards), np.zeros(rewards.shape), f"uniform start, seed {seed}"))
    return found


@cache
def risen(seeds, prompts, steps):
    """(method, start) → (share of the prompts with a rise [N], its fields of `entropy_steps`), exact PG and NPG."""
    starts = {"uniform": uniform_starts(seeds, prompts)}
    starts |= {f"σ = {spread:g}": pools(seeds, prompts, spread=spread) for spread in SPREADS[1:]}
    methods = {"natural PG": NaturalPG(0.1), "vanilla PG": VanillaPG(0.4 * prompts)}
    found = {}
    for method, update in methods.items():
        for start, made in starts.items():
            fields, _ = follow(made, exact(update), steps, observe=entropy_steps)
            found[method, start] = np.mean((fields["change"] > 1e-12).any(1), axis=1), fields
    return found


@claim(
    "C31",
    "Under natural policy gradient from a uniform start the covariance is positive and entropy falls at every step.",
    source=f"{CUI}, section 3, after a note of Liu; T14 of this project's theory",
    threshold="no step of any prompt raises H",
    proved=True,
)
def entropy_falls_under_natural_policy_gradient(size):
    """Uniform policies over 10 actions on 100 prompts, a third of them with one correct action, a third with rewards
    U(0, 1), a third N(0, 1); 150 steps of exact natural PG, η = 0.1. After time τ the policy is ∝ e^{τr}, so that
    Cov(log π, r) = τ Var(r) ≥ 0 and dH/dτ = −τ Var(r). Of every prompt and step the exact change of H and the
    covariance. Then the same from logits N(0, σ²) (one correct action), and under vanilla PG: the share of the prompts
    whose entropy rises in some step.
    """
    found = risen(size.seeds, size(100, 30), size(150, 60))
    change = found["natural PG", "uniform"][1]["change"]
    covariance = found["natural PG", "uniform"][1]["covariance"]
    kinds = dict.fromkeys(method for method, _ in found)
    shares = {kind: {start: x for (method, start), (x, _) in found.items() if method == kind} for kind in kinds}
    natural, vanilla = shares.values()
    curves = {start: found["natural PG", start][1]["H"] for start in ("uniform", "σ = 1", "σ = 3")}

    def draw(ax):
        for colour, (method, by_start) in zip(COLOURS, shares.items(), strict=False):
            rows = np.array(list(by_start.values()))
            low, high = np.quantile(rows, [0.05, 0.95], axis=1)
            ax.fill_between(range(len(rows)), low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(range(len(rows)), rows.mean(1), "o-", color=colour, markersize=3, label=method)
        ax.set_xticks(range(len(rows)), ["0", "½", "1", "2", "3"])
        labelled(ax, "σ of the starting logits (0: uniform)", "prompts whose H rises at some step")

    return Finding(
        (
            exactly("largest change of H in a step", change.max(), at_most=0.0),
            exactly("smallest covariance", covariance.min(), at_least=0.0),
            mean("prompts with a rise, natural PG, σ = 1", natural["σ = 1"], deciding=False),
            mean("prompts with a rise, vanilla PG, uniform start", vanilla["uniform"], deciding=False),
        ),
        says=f"H falls in each of the {change[:, :-1].size} steps of prompts (the smallest fall, at the end of a run, "
        f"is {-change.max():.0e} nats); the covariance is 0 at the start and positive after it.".replace("e-", "e−"),
        boundary="It needs the uniform start. H rises at some step on "
        + ", ".join(f"{natural[start].mean():.0%} of the prompts ({start})" for start in list(natural)[1:])
        + f". Vanilla PG from the uniform start: {vanilla['uniform'].mean():.0%}.",
        meaning="No trained model is uniform, so by itself this theorem does not explain why entropy falls in "
        "training. On single prompts it often rises first; the mean over many prompts hides that.",
        table={
            "method": [method for method, _ in found],
            "start": [start for _, start in found],
            "prompts with a rise": [x.mean() for x, _ in found.values()],
        },
        panels=(over_steps(curves, "mean entropy (nats)", 3), draw),
    )
