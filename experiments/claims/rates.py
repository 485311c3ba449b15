"""Inequalities and identities that can be checked at every step: rates, KL estimators, the term of the visits."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import rel_entr

from softmaxdyn.change import decompose
from softmaxdyn.interventions import K1Penalty, K2Penalty, K3Penalty
from softmaxdyn.ledger import Finding, claim, exactly, over_seeds, share
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.policy import centred, kl_divergence, softmax
from softmaxdyn.problems import Bandit, TokenTree
from softmaxdyn.problems.named import named
from softmaxdyn.problems.setting import Setting
from softmaxdyn.simulation import quick_jit
from softmaxdyn.theory import covariance
from softmaxdyn.trajectories import split
from softmaxdyn.updates import NaturalPG, VanillaPG

from .worlds import exact, follow

MEI_STEP = 0.4
BANDITS = 100  # of each number of actions, half of them from a uniform start
ROUNDING = 1e-9  # of sums of some hundred terms of size one


def bandits(actions):
    """Independent bandits with rewards U[0, 1]: the plateau of Mei et al. (K = 3), uniform and normal starts."""
    generator = np.random.default_rng(actions)
    rewards, logits = generator.random((BANDITS, actions)), generator.standard_normal((BANDITS, actions))
    logits[: BANDITS // 2] = 0.0
    if actions == 3:
        plateau = named("mei_plateau")
        rewards[-1], logits[-1] = plateau.problem.rewards[0], plateau.logits[0]
    return Setting(Bandit(rewards, weights=1.0), logits, "")


def gap_and_best(problem, step_size, policy, delta, selected):
    """max r − E_π r and the probability of the best action, of each bandit."""
    rewards = problem.rewards
    best = rewards == jnp.max(rewards, -1, keepdims=True)
    gap = jnp.sum(policy.prob * (jnp.max(rewards, -1, keepdims=True) - rewards), -1)
    return {"gap": gap, "best": jnp.sum(jnp.where(best, policy.prob, 0.0), -1)}


def gaps(actions, update, steps):
    """(gap, probability of the best action), each [t, bandit] for t = 1, 2, …, steps."""
    fields, _ = follow([bandits(actions)], exact(update), steps, observe=gap_and_best)
    return fields["gap"][0, 1:], fields["best"][0]


def best_values(mdp):
    """The largest J of any policy, by value iteration."""
    moves, rewards = np.asarray(mdp.transitions), np.asarray(mdp.rewards)
    value = np.zeros(len(rewards))
    for _ in range(2_000):
        value = (rewards + float(mdp.discount) * moves @ value).max(-1)
    return float(np.asarray(mdp.start) @ value)


def natural_mdp_gap(steps):
    """(gap, bound) [t] of natural PG on the chain: log A/(η(1 − γ) t) + 1/((1 − γ)² t), here η = 1."""
    setting = named("chain")
    left = 1.0 - float(setting.problem.discount)
    fields, _ = follow([setting], exact(NaturalPG(1.0)), steps)
    t = np.arange(1, steps + 1)
    bound = (np.log(setting.problem.shape[1]) / left + 1.0 / left**2) / t
    return best_values(setting.problem) - fields["expected_return"][0, 1:], bound


@claim(
    "C51",
    "Exact PG with η = 2/5 closes the gap to the best return within 5/(c² t), from a uniform start within 5K²/t, "
    "though a plateau may last thousands of steps; natural PG from a uniform start within log K/(ηt).",
    source="Mei et al. 2020 (arXiv:2005.06392), Agarwal et al. 2021 (arXiv:1908.00261)",
    threshold="the inequality at every t; plateau > 7000 iterations",
    proved=True,
)
def rates_hold(size):
    """100 bandits with rewards U[0, 1] for K = 3 and K = 10, half of them from a uniform start, half from logits
    N(0, 1); exact PG with η = 2/5 for 10,000 steps (the plateau instance of Mei et al. is among those with K = 3),
    natural PG with η = 1 for 300. Each statistic is the largest gap over its bound at any t; c is the least probability
    of the best action so far. The plateau ends when the best action is the most probable. Natural PG also on the chain
    of 6 states (γ = 0.9), whose bound is log A/(η(1 − γ) t) + 1/((1 − γ)² t).
    """
    steps = {3: 10_000, 10: size(10_000, 500)}
    uniform = slice(0, BANDITS // 2)
    ratios, series = {}, {}
    for actions, number in steps.items():
        gap, best = gaps(actions, VanillaPG(MEI_STEP), number)
        t = np.arange(1.0, number + 1)[:, None]
        least = np.minimum.accumulate(best)[1:]
        series[actions] = gap, best, 5.0 / (least**2 * t)
        ratios[f"PG, gap c² t/5, K = {actions}"] = gap * least**2 * t / 5.0
        ratios[f"PG, gap t/(5K²), uniform start, K = {actions}"] = (gap * t / (5.0 * actions**2))[:, uniform]
        natural, _ = gaps(actions, NaturalPG(1.0), 300)
        ratios[f"NPG, gap η t/log K, uniform start, K = {actions}"] = (natural * t[:300] / np.log(actions))[:, uniform]
    chain_gap, chain_bound = natural_mdp_gap(300)
    ratios["NPG on the chain, gap over its bound"] = (chain_gap / chain_bound)[:, None]
    found = [exactly(f"largest {name}", x.max(), at_most=1.0) for name, x in ratios.items()]
    gap, best, bound = (x[:, -1] for x in series[3])
    plateau = exactly("steps until the best action is in front, plateau instance", (best < 0.5).sum(), at_least=7_000)
    least_gap = np.diff(np.sort(bandits(10).problem.rewards, -1)[:, -2:])[:, 0]
    tail = series[10][0][-1] * 6 * steps[10] / least_gap**2
    lower = exactly(f"smallest gap · 6t/Δ² at t = {steps[10]}, K = 10", tail.min(), at_least=1.0, deciding=False)

    def curves(ax):
        t = np.arange(1, len(gap) + 1)
        ax.loglog(t, gap, color=COLOURS[0], label="gap, plateau instance")
        ax.loglog(t, bound, color=COLOURS[1], linestyle=DASHES[1], label="5/(c² t)")
        ax.loglog(t, series[3][0][:, 0], color=COLOURS[2], linestyle=DASHES[2], label="gap, a uniform start")
        ax.loglog(t, 45.0 / t, color=COLOURS[3], linestyle=DASHES[3], label="5K²/t")
        labelled(ax, "step, t", "gap to the best return")

    def worst(ax):
        drawn = {"PG, c": "PG, gap c² t/5, K = 10", "PG, uniform": "PG, gap t/(5K²), uniform start, K = 10"}
        drawn["natural PG"] = "NPG, gap η t/log K, uniform start, K = 10"
        for style, (label, name) in enumerate(drawn.items()):
            x = ratios[name].max(-1)
            ax.loglog(np.arange(1, len(x) + 1), x, color=COLOURS[style], linestyle=DASHES[style], label=label)
        ax.axhline(1.0, color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "step, t", "gap over bound, K = 10")

    return Finding(
        (*found, plateau, lower),
        says=f"The largest ratio of a gap to its bound is {max(each.value for each in found):.3f}. The plateau "
        f"lasts {plateau.value:.0f} steps.",
        boundary=f"The bounds are wide: 5/(c² t) by a factor of at least {1 / found[0].value:.0f} on these bandits. "
        f"A lower bound quoted as Δ²/(6t) holds with a factor of {lower.value:.1f} to spare at t = {steps[10]}.",
        meaning="Guarantees of 1/t say little about a run: c, the least probability that the best answer ever had, is "
        "in them squared, and a plateau can look like convergence.",
        table={"step": np.arange(1, len(gap) + 1)[::10], "gap": gap[::10], "bound": bound[::10]},
        panels=(curves, worst),
    )


SPREADS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the logits by which two policies differ
PAIRS = 400  # of policies for each spread
ESTIMATORS = {"k1": K1Penalty(1.0), "k2": K2Penalty(1.0), "k3": K3Penalty(1.0)}


def pairs(spread, count):
    """(logits of π, logits of π_ref), [count, 10]: N(0, 1), and the same moved by N(0, spread²)."""
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((count, 10))
    return logits, logits + spread * generator.standard_normal((count, 10))


def moments(policy, values):
    """(mean, variance) of values [N, K] under π."""
    mean = np.sum(policy.prob * values, -1)
    return mean, np.sum(policy.prob * (values - mean[:, None]) ** 2, -1)


def mean_slope(policy, slope):
    """E_π slope(a) (e_a − π), [N, K]: the mean gradient in the logits of a loss whose slope in log π is given."""
    drawn = np.asarray(policy.prob * slope)
    return drawn - np.asarray(policy.prob) * drawn.sum(-1, keepdims=True)


def relative(value, truth):
    """The largest |value − truth| over the size of the truth in its row."""
    size = abs(np.asarray(truth)) if np.ndim(truth) == 1 else abs(np.asarray(truth)).max(-1, keepdims=True)
    return float((abs(value - truth) / size).max())


def gradients(logits, other):
    """The gradients of KL(π‖ref) and KL(ref‖π) in the logits of π."""
    both = (lambda z: jnp.sum(kl_divergence(z, other))), (lambda z: jnp.sum(kl_divergence(other, z)))
    return tuple(jax.grad(divergence)(logits) for divergence in both)


def estimators_of(spread, count):
    """What the estimators do on `count` pairs: relative errors of means and of mean gradients, bias, variances."""
    logits, other = pairs(spread, count)
    policy, reference = softmax(logits), softmax(other)
    x = policy.log_prob - reference.log_prob
    kl = rel_entr(policy.prob, reference.prob).sum(-1)
    chi2 = np.asarray(jnp.sum((reference.prob - policy.prob) ** 2 / policy.prob, -1))
    away, back = quick_jit(gradients)(logits, other)
    means, variances = zip(*(moments(policy, np.asarray(k.value(x))) for k in ESTIMATORS.values()), strict=True)
    slopes = {name: mean_slope(policy, k.slope(x)) for name, k in ESTIMATORS.items()}
    return {
        "k1, mean − KL(π‖ref)": relative(means[0], kl),
        "k3, mean − KL(π‖ref)": relative(means[2], kl),
        "(r − 1)², mean − χ²(ref‖π)": relative(moments(policy, np.expm1(-x) ** 2)[0], chi2),
        "k1, mean gradient − 0": float(abs(slopes["k1"]).max()),
        "k2, mean gradient − that of KL(π‖ref)": relative(slopes["k2"], away),
        "k3, mean gradient − that of KL(ref‖π)": relative(slopes["k3"], back),
    }, {"kl": kl, "bias": means[1] / kl - 1.0, "k1": variances[0], "k2": variances[1], "k3": variances[2]}


@claim(
    "C52",
    "k1 and k3 are unbiased estimates of KL(π‖ref) and k2 is not; as losses on policy, k2 has the gradient of "
    "KL(π‖ref), k1 none, and k3 that of KL(ref‖π).",
    source="Schulman 2020 (joschu.net/blog/kl-approx.html); used as losses in verl",
    threshold="bias exact; gradient identities",
    proved=True,
)
def kl_estimators(size):
    """Policies π with 10 actions and logits N(0, 1), references with N(0, s²) added, s = 0.03 … 3, 400 pairs each.
    Means, variances and mean gradients are sums over all actions; the true divergences are sums of their definitions,
    and automatic differentiation gives the true gradients. Statistics are the largest relative errors (of k1's
    gradient, whose truth is 0: the largest size). The bias of k2 is E k2/KL − 1; its median size at s = 1 must not
    vanish. No chance is involved.
    """
    count = size(PAIRS, 50)
    found = {spread: estimators_of(spread, count) for spread in SPREADS}
    errors = {name: max(each[0][name] for each in found.values()) for name in found[1.0][0]}
    bias = {spread: each[1]["bias"] for spread, each in found.items()}
    wins = {spread: np.mean(each[1]["k3"] < each[1]["k1"]) for spread, each in found.items()}
    biased = exactly("median |bias| of k2 over KL, s = 1", np.median(abs(bias[1.0])), at_least=1e-3)
    level = [exactly(f"pairs where k3 varies less than k1, s = {s:g}", wins[s], deciding=False) for s in (0.1, 3.0)]

    def spreads(ax):
        for style, name in enumerate(ESTIMATORS):
            for spread in SPREADS:
                _, each = found[spread]
                mark = {"color": COLOURS[style], "label": name if spread == SPREADS[0] else None}
                ax.loglog(each["kl"], each[name] / each["kl"] ** 2, ".", markersize=1.5, **mark)
        labelled(ax, "KL(π‖ref) (nats)", "variance / KL²", columns=3)

    def biases(ax):
        for style, spread in enumerate(SPREADS):
            each = found[spread][1]
            ax.semilogx(each["kl"], each["bias"], ".", markersize=1.5, color=COLOURS[style], label=f"s = {spread:g}")
        labelled(ax, "KL(π‖ref) (nats)", "bias of k2 over KL", columns=3)

    flat = [each for _, each in found.values()]
    return Finding(
        (*(exactly(f"largest error of {name}", x, at_most=ROUNDING) for name, x in errors.items()), biased, *level),
        says=f"All identities hold to {max(errors.values()):.0e}. k2 is off by {np.median(abs(bias[0.1])):.1%} of KL "
        f"at s = 0.1 and by {np.median(abs(bias[1.0])):.0%} at s = 1 (medians).",
        boundary="That k3 varies less than k1 is no law: it does in "
        + ", ".join(f"{wins[s]:.0%} of the pairs at s = {s:g}" for s in SPREADS)
        + ".",
        meaning="To report a KL use k3 (or k1); to penalise one on policy use k2, or the exact divergence: the "
        "gradient of k1 is noise, and k3 pulls towards covering the reference.",
        table={"spread": np.repeat(SPREADS, count), **{k: np.concatenate([x[k] for x in flat]) for k in flat[0]}},
        panels=(spreads, biases),
    )


STEP_SIZES = 2.0 ** np.arange(-12, -3)
WIDE, NARROW = 100, 2


def two_step(wide, p):
    """(tree, logits): token 0, of probability p, leads to `wide` equal tokens and pays 1; token 1 to 2, and pays 0."""
    rewards = np.zeros((WIDE, WIDE))
    rewards[0] = 1.0
    tree = TokenTree(rewards, vocabulary=WIDE, depth=2)
    logits = np.full(tree.shape, -np.inf)
    logits[0, :2] = np.log([p, 1.0 - p])
    logits[1, :wide], logits[2, :NARROW], logits[3:] = 0.0, 0.0, 0.0
    return tree, logits


def random_tree(seed):
    """Responses of 3 tokens out of 3 to 4 prompts, a random quarter of them right; logits N(0, 1)."""
    generator = np.random.default_rng(seed)
    tree = TokenTree((generator.random((4, 3, 3, 3)) < 0.25).astype(float), vocabulary=3, depth=3)
    return tree, generator.standard_normal(tree.shape)


def _terms(problem, logits, step_size):
    policy = softmax(logits)
    visits = problem.visits(policy.prob)
    advantage = centred(policy, problem.action_values(policy.prob))
    delta = step_size * visits[:, None] * policy.prob * advantage
    local = -jnp.sum(visits * covariance(logits, delta))
    return local, split(problem, policy, delta, decompose(policy, delta).entropy_change)


def terms(problem, logits, step_size):
    """(first order of the local term, `Split`) of one step of PG."""
    return quick_jit(_terms)(problem, jnp.asarray(logits), step_size)


def first_order_ratio(problem, logits):
    """|visitation|/|local|, both to first order in η."""
    local, parts = terms(problem, logits, 1.0)
    return abs(float(parts.visitation_prediction / local))


def local_sign_differs(problem, logits):
    """Whether a small step moves the entropy of a response the other way than its local part."""
    _, parts = terms(problem, logits, 1e-3)
    return bool(parts.trajectory_change * parts.local_change < 0.0)


@claim(
    "C55",
    "The theory leaves out how a step moves the visits to later states, and what it leaves out is of first order.",
    source="public review of arXiv:2505.22617 (reviewer 1)",
    threshold="first-order size of the visitation term vs the local term (slope 1 in η; at least a tenth)",
)
def visits_are_of_first_order(size):
    """A tree of two steps: token 0 (probability 0.7) pays 1 and leads to a state with 100 equally likely tokens, token
    1 to one with 2. One step of PG of size η = 2⁻¹² … 2⁻⁴ splits the change of the entropy of a response exactly into a
    local part, visits frozen, and a visitation part. Statistics: the slope of log |visitation| on log η, and its first
    order over that of the local part. Then the same with 2 … 100 continuations and other probabilities, where the ratio
    is |log n − log 2|/|log p/(1 − p)|, and random trees of 3 tokens out of 3 (one a seed).
    """
    sizes = [terms(*two_step(WIDE, 0.7), eta)[1] for eta in STEP_SIZES]
    visitation = np.array([float(each.visitation_change) for each in sizes])
    slope = np.polyfit(np.log(STEP_SIZES), np.log(abs(visitation)), 1)[0]
    counts, chances = np.array([2, 3, 5, 10, 30, 100]), (0.55, 0.7, 0.9)
    ratios = np.array([[first_order_ratio(*two_step(n, p)) for n in counts] for p in chances])
    formula = np.log(counts / NARROW) / np.log(np.divide(chances, np.subtract(1.0, chances)))[:, None]
    drawn = np.array([first_order_ratio(*random_tree(seed)) for seed in range(size.seeds)])
    signs = [local_sign_differs(*random_tree(seed)) for seed in range(size.seeds)]
    ours = ratios[1, -1]

    def orders(ax):
        local = [abs(float(each.local_change)) for each in sizes]
        ax.loglog(STEP_SIZES, abs(visitation), "o-", markersize=3, color=COLOURS[0], label="visitation")
        ax.loglog(STEP_SIZES, local, "s--", markersize=3, color=COLOURS[1], label="local")
        labelled(ax, "step size, η", "part of ΔH̄ (nats)")

    def continuations(ax):
        for style, (p, found, line) in enumerate(zip(chances, ratios, formula, strict=True)):
            ax.plot(counts, line, color=COLOURS[style], linestyle=DASHES[style], label=f"formula, p = {p:g}")
            ax.plot(counts, found, "o", markersize=3, color=COLOURS[style])
        ax.set_xscale("log")
        labelled(ax, "continuations after token 0", "visitation / local, first order", columns=2)

    median = over_seeds("median |visitation/local|, random trees", np.median, drawn, at_least=0.1, deciding=False)
    flips = share("random trees where ΔH̄ and its local part differ in sign", signs, deciding=False)
    return Finding(
        (
            exactly("slope of log |visitation| on log η", slope, at_least=0.95, at_most=1.05),
            exactly("|visitation/local| of first order, 100 vs 2 continuations", ours, at_least=0.1),
            exactly("largest error of the formula", abs(ratios - formula).max(), at_most=ROUNDING, deciding=False),
            median,
            flips,
        ),
        says=f"The term of the visits shrinks as η^{slope:.3f}, like the local one. With 100 against 2 continuations "
        f"it is {ours:.1f} times as large: {visitation[-1]:+.1e} nats against {float(sizes[-1].local_change):+.1e} at "
        f"η = 2⁻⁴. On random trees the median ratio is {median.value:.2f}, and {flips.value:.0%} lose the sign.",
        boundary=f"It vanishes where all continuations are equally uncertain (ratio {ratios[1, 0]:.0e} at 2 against 2) "
        "and on bandits, where there are none.",
        meaning="The covariance explains the entropy of tokens in given contexts. How the entropy of whole responses "
        "moves also depends on which contexts are visited: measure the two apart.",
        table={
            "continuations": np.tile(counts, len(chances)),
            "probability": np.repeat(chances, len(counts)),
            "ratio": ratios.ravel(),
            "formula": formula.ravel(),
        },
        panels=(orders, continuations),
    )
