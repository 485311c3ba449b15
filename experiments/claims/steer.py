"""STEER's estimate of what a token does to the entropy: how accurate it is, and which of its factors matter."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import theory
from softmaxdyn.change import entropy_change
from softmaxdyn.interventions.clips import outside
from softmaxdyn.interventions.reweighting import unclipped_loss
from softmaxdyn.ledger import Finding, claim, correlation_of, mean
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.policy import sample, softmax
from softmaxdyn.simulation import quick_jit, quick_options, step
from softmaxdyn.tokens import ratio, under

from .worlds import PROMPTS, pools, stacked

GROUP = 8
STEP = 0.1  # of a token's own push, reward⁻¹
ACTIONS = (10, 100, 1000)
SPREADS = (1.0, 3.0)
ESTIMATORS = ("exact first order", "STEER, theorem", "STEER, released", "Cov proxy")
MEASURES = ("MSE", "MSE/Var", "Pearson", "Spearman", "sign accuracy")
TRUTHS = ("per sample", "per state")
SIZES = 2.0 ** -np.arange(3, 13)  # step sizes
SOURCE = "STEER (arXiv:2510.10150)"


def drawn(key, logits, rewards):
    """(actions, GRPO advantages) of a group of 8 from each prompt, [S, G]; 0 where all rewards are equal."""
    action = sample(key, logits, (GROUP,)).T
    reward = jnp.take_along_axis(rewards, action, 1)
    spread = jnp.std(reward, 1, ddof=1, keepdims=True)
    return action, (reward - jnp.mean(reward, 1, keepdims=True)) / (spread + 1e-6)


def token_estimates(logits, action, advantage):
    """{estimator: the ΔH that it expects of each token [S, G] for a step size of 1}.

    The proxy takes its means over the batch, to which tokens without signal (A = 0) do not belong.
    """
    policy = softmax(logits)
    log_prob, u = (jnp.take_along_axis(x, action, 1) for x in (policy.log_prob, policy.centred_log_prob))
    p, effect = jnp.exp(log_prob), jnp.take_along_axis(theory.sample_effect(logits), action, 1)
    signal = advantage != 0.0
    centred = [x - jnp.mean(x, where=signal) for x in (log_prob, advantage)]
    values = (advantage * effect, -advantage * (1.0 - p) * p * u, -advantage * (1.0 - p) * u, -centred[0] * centred[1])
    return dict(zip(ESTIMATORS, values, strict=True))


def full_push(logits, action, advantage):
    """A (e_a − π) of each token, [S, G, K]: what a sampled policy gradient does to the logits of its state."""
    chosen = jnp.arange(logits.shape[-1]) == action[..., None]
    return advantage[..., None] * (chosen - softmax(logits).prob[:, None])


def own_push(logits, action, advantage):
    """A (1 − π_a) e_a: the same with all logits but that of the action held, STEER's assumption."""
    chosen = jnp.arange(logits.shape[-1]) == action[..., None]
    return jnp.where(chosen, full_push(logits, action, advantage), 0.0)


def true_changes(logits, action, advantage, step_size, push=full_push):
    """Exact ΔH {per sample: of each token alone [S, G], per state: of all tokens of the state, 1/G each [S]}."""
    delta = step_size * push(logits, action, advantage)
    alone, together = entropy_change(logits[:, None], delta), entropy_change(logits, delta.mean(1))
    return dict(zip(TRUTHS, (alone, together), strict=True))


def measures(estimate, truth):
    """The `MEASURES` of one batch."""
    error = np.mean((estimate - truth) ** 2)
    moved = truth != 0.0
    right = np.mean(np.sign(estimate[moved]) == np.sign(truth[moved]))
    ranks = correlation_of(estimate, truth, ranked=True)
    return np.array([error, error / np.var(truth), correlation_of(estimate, truth), ranks, right])


def batch(seed, setting):
    """(logits, actions, advantages) of the prompts whose group has signal: rows of NumPy arrays."""
    logits, rewards = np.asarray(setting.logits), np.asarray(setting.problem.rewards)
    action, advantage = (np.asarray(x) for x in quick_jit(drawn)(jax.random.key(seed), logits, rewards))
    return logits, action, advantage


@cache
def accuracy(seeds, actions, spread=1.0, prompts=PROMPTS, step_size=STEP):
    """{(truth, estimator): the `MEASURES` of each seed [N, 5]} on pools of prompts, one batch of 8 a prompt.

    Prompts whose group has one reward only are left out: nothing moves there.
    """
    found = {(truth, name): [] for truth in TRUTHS for name in ESTIMATORS}
    for seed, setting in enumerate(pools(seeds, prompts, actions, spread=spread)):
        parts = batch(seed, setting)
        kept = parts[2].any(1)
        true, estimates = quick_jit(true_changes, "push")(*parts, step_size), quick_jit(token_estimates)(*parts)
        for truth, name in found:
            value = step_size * np.asarray(estimates[name])[kept]
            value = value if truth == "per sample" else value.mean(1)
            found[truth, name].append(measures(value, np.asarray(true[truth])[kept]))
    return {both: np.array(rows) for both, rows in found.items()}


def accuracies(size):
    """{(actions, spread): `accuracy`} of the pools of C32."""
    each = partial(accuracy, size(20, 10), prompts=size(PROMPTS, 40))
    return {(actions, spread): each(actions, spread) for actions in ACTIONS for spread in SPREADS}


def accuracy_table(size):
    """The accuracy of four estimators of a token's effect on the entropy, as columns of one length.

    One row a pool (actions, spread of the logits), truth and estimator: the means over seeds of the `MEASURES`.
    """
    rows = [
        {"actions": actions, "spread": spread, "truth": truth, "estimator": name}
        | dict(zip(MEASURES, values.mean(0), strict=True))
        for (actions, spread), found in accuracies(size).items()
        for (truth, name), values in found.items()
    ]
    return {column: np.array([row[column] for row in rows]) for column in rows[0]}


def gains(found, truths=TRUTHS, name="STEER, theorem"):
    """[pool · truth, 5, N]: by how much `name` beats the proxy in each of the `MEASURES`, MSE in powers of ten."""
    better = []
    for table in found.values():
        for truth in truths:
            own, proxy = (table[truth, each].T for each in (name, "Cov proxy"))
            better.append(np.concatenate([-np.log10(own[:2] / proxy[:2]), own[2:] - proxy[2:]]))
    return np.array(better)


def least_gain(found, row, label, **wanted):
    """The statistic of the pool and truth where the gain in measure `row` is the smallest."""
    each = gains(found, **{key: wanted.pop(key) for key in ("truths", "name") if key in wanted})[:, row]
    return mean(label, each[each.mean(-1).argmin()], at_least=0.0, **wanted)


def accuracy_panel(table, truth, spread):
    """A panel: Pearson's (solid) and Spearman's (dashed) correlation with the exact change, by number of actions."""

    def draw(ax):
        for colour, name in zip(COLOURS, ESTIMATORS, strict=False):
            rows = (table["estimator"] == name) & (table["truth"] == truth) & (table["spread"] == spread)
            x, pearson, spearman = (table[column][rows] for column in ("actions", "Pearson", "Spearman"))
            ax.plot(x, pearson, color=colour, marker=".", label=name)
            ax.plot(x, spearman, color=colour, linestyle=DASHES[1], marker=".")
        labelled(ax, "actions, K", f"r (–), ρ (- -) with ΔH\n{truth}, σ = {spread:g}")
        ax.set(xscale="log", ylim=(0.4, 1.02))

    return draw


@claim(
    "C32",
    "STEER's estimate of a token's effect on the entropy is more accurate than the covariance proxy.",
    source=SOURCE,
    threshold="MSE, PCC, SRCC, sign accuracy against the exact change, K = 10, 100, 1000, A centred",
)
def steer_is_more_accurate_than_the_proxy(size):
    """Pools of 200 prompts with K = 10, 100, 1000 actions, a tenth of them correct, logits N(0, σ²), σ = 1 and 3; a
    group of 8 from each prompt, GRPO advantages (centred in the group). Truth: the exact ΔH of a state when one token
    moves its logits by 0.1 A (e_a − π) (per sample), and when all tokens of its group do, 1/8 each (per state).
    Estimates: STEER's −A π(1−π)(log π + H), the released one (a factor π fewer), the proxy −(log π − mean)(A − mean A),
    and the exact first order −A (S_a − S̄); per state they are averaged. The statistics are the smallest advantage of
    STEER's over the proxy among these pools and truths, by each measure.
    """
    found, table = accuracies(size), accuracy_table(size)
    rows = {0: "smaller MSE (powers of ten)", 2: "Pearson's r", 3: "Spearman's ρ", 4: "sign accuracy"}
    deciding = [least_gain(found, row, f"least gain, {label}") for row, label in rows.items()]
    extra = {"deciding": False, "truths": ("per state",)}
    by_state = [least_gain(found, row, f"least gain per state, {label}", **extra) for row, label in rows.items()]
    released = {"deciding": False, "name": "STEER, released"}
    deciding.append(least_gain(found, 3, "released form: least gain, Spearman's ρ", **released))
    r = {both: values[:, 2].mean() for both, values in found[10, 1.0].items()}
    steer, proxy, first = ([r[truth, ESTIMATORS[i]] for truth in TRUTHS] for i in (1, 3, 0))
    worse = gains(found, ("per sample",))[:, 2].mean(-1)
    worst = tuple(found)[worse.argmin()]
    own, other = (found[worst]["per sample", ESTIMATORS[i]].mean(0) for i in (1, 3))
    lost = [f"K = {k}, σ = {spread:g}" for (k, spread), gain in zip(found, worse, strict=True) if gain < 0.0]
    return Finding(
        (*deciding, *by_state),
        only_when="the estimates of all samples of a prompt are added" if all(s.inside for s in by_state) else "",
        counterexample=f"K = {worst[0]}, σ = {worst[1]:g}, token by token: Pearson's r {own[2]:.2f} (STEER) against "
        f"{other[2]:.2f} (proxy), signs right {own[4]:.3f} against {other[4]:.3f}.",
        says=f"At K = 10 and σ = 1 STEER has r = {steer[0]:.2f} token by token and {steer[1]:.3f} for a prompt, the "
        f"proxy {proxy[0]:.2f} and {proxy[1]:.2f}, the exact first order {first[0]:.3f} and {first[1]:.4f}.",
        boundary=f"Token by token STEER's r is below that of the proxy at {' and '.join(lost) or 'no size tried'}: the "
        "term S̄ that it lacks is large where policies are peaked. Over a group it cancels: advantages add up to 0.",
        meaning="The estimate is good for the sum over a prompt, less so for ranking single tokens, which is what a "
        "reweighting uses; S_a − S̄ costs one more sum over the vocabulary. The MSE of the proxy says little: without "
        "the factor π it is of another scale.",
        table=table,
        panels=(accuracy_panel(table, "per sample", 1.0), accuracy_panel(table, "per sample", 3.0)),
    )


@cache
def root_errors(seeds, prompts, push, actions=10):
    """{estimator: root mean square error per sample [N, step sizes]}; a tenth of the actions correct, σ = 1."""
    found = []
    for seed, setting in enumerate(pools(seeds, prompts, actions)):
        parts = batch(seed, setting)
        estimates = quick_jit(token_estimates)(*parts)
        true = [np.asarray(quick_jit(true_changes, "push")(*parts, η, push=push)["per sample"]) for η in SIZES]
        both = [[(η * estimates[name] - x) for η, x in zip(SIZES, true, strict=True)] for name in ESTIMATORS]
        found.append(np.sqrt(np.mean(np.square(both), (2, 3))))
    return dict(zip(ESTIMATORS, np.moveaxis(found, 1, 0), strict=True))


def slopes(errors):
    """The slope of log error over log step size, one a seed."""
    return np.polyfit(np.log(SIZES), np.log(errors).T, 1)[0]


def missed(prob):
    """Exact first-order effect over STEER's, −(S_a − S̄)/(−(1−π_a) S_a), for every action."""
    logits = np.log(np.asarray(prob))
    policy = softmax(logits)
    return np.asarray(theory.sample_effect(logits) / -(policy.prob * policy.centred_log_prob * (1.0 - policy.prob)))


@claim(
    "C33",
    "The error of STEER's estimate is of second order in the step size.",
    source=f"{SOURCE}, theorem 1",
    threshold="slope 2 against the exact ΔH, as for Lemma 1 in [1.9, 2.1]",
)
def the_error_is_of_second_order(size):
    """Pools of 200 prompts, K = 10, a tenth correct, σ = 1; a group of 8 from each prompt with GRPO advantages. The
    root mean square over the tokens of (estimate − exact ΔH) for step sizes from 2⁻³ to 2⁻¹², and the slope of its
    logarithm. ΔH is that of a token's push A (e_a − π); beside it that of A (1 − π_a) e_a, which holds the other
    logits, as the derivation assumes.
    """
    sizes = (size(20, 10), size(PROMPTS, 40))
    full, own = (root_errors(*sizes, push) for push in (full_push, own_push))
    curves = {"STEER": full["STEER, theorem"], "−A (S_a − S̄)": full["exact first order"]}
    curves["STEER, other logits held"] = own["STEER, theorem"]
    wanted = {"at_least": 1.9, "at_most": 2.1}
    found = [mean(f"slope, {name}", slopes(x), deciding=name == "STEER", **wanted) for name, x in curves.items()]
    found.append(mean("slope, STEER as released", slopes(full["STEER, released"]), deciding=False, **wanted))
    two, rare = missed([0.7, 0.3]), missed([0.97, *[0.001] * 30])
    condition = "the logits of the other actions do not move, which no softmax policy gradient leaves them"

    def draw(ax):
        for number, (name, errors) in enumerate(curves.items()):
            low, high = np.quantile(errors, [0.025, 0.975], axis=0)
            ax.fill_between(SIZES, low, high, color=COLOURS[number], alpha=0.2, linewidth=0)
            ax.plot(SIZES, errors.mean(0), color=COLOURS[number], linestyle=DASHES[number], label=name)
        labelled(ax, "step size, η", "root mean square error of ΔH (nats)", columns=3)
        ax.set(xscale="log", yscale="log")

    return Finding(
        tuple(found),
        only_when=condition if found[2].inside else "",
        counterexample=f"two actions, π = (0.7, 0.3): the exact first-order effect is {two[0]:.6g} times STEER's for "
        f"either one; a rare action of π = (0.97, 30 × 0.001): {rare[-1]:.3g} times.",
        says=f"Against the exact change the error falls with slope {found[0].value:.2f}, so it is of first order. With "
        f"what the push does to the other logits, −π_b each, the slope is {found[1].value:.2f}.",
        boundary="What is missing is A (S̄ − π_a S_a): as large as the estimate itself, unless the action is frequent "
        "or the advantages of a group cancel it.",
        meaning="A smaller learning rate does not improve STEER's estimate for a single token: the relative error "
        "stays. That of the full effect −A (S_a − S̄) falls.",
        table={"step size": SIZES, **{name: errors.mean(0) for name, errors in curves.items()}},
        panels=(draw,),
    )


@claim(
    "C34",
    "STEER's estimate has a mean squared error of about 1e-4, small against the variance of what it estimates.",
    source=SOURCE,
    threshold="MSE/Var(ΔH), below the 1 that the best constant has",
)
def the_mean_squared_error_is_small(size):
    """The pools and batches of C32 at step size 0.1: MSE of STEER's estimate over the variance of the exact ΔH, the
    largest over K = 10, 100, 1000, σ = 1 and 3, per sample and per state. Then K = 10 and σ = 1 at step sizes from
    0.001 to 1, per sample.
    """
    found = accuracies(size)
    tables = {(*pool, truth): table[truth, ESTIMATORS[1]] for pool, table in found.items() for truth in TRUTHS}
    worst = max(tables, key=lambda where: tables[where][:, 1].mean())
    steps = np.array([0.001, 0.01, 0.1, 0.3, 1.0])
    along = [accuracy(size(20, 10), 10, 1.0, size(PROMPTS, 40), η) for η in steps]
    series = {name: np.array([x["per sample", name][:, :2] for x in along]) for name in ESTIMATORS}
    error, ratio = np.moveaxis(series["STEER, theorem"], -1, 0)
    power = np.polyfit(np.log(steps[:3]), np.log(error[:3]), 1)[0]
    statistics = (
        mean("largest MSE/Var(ΔH)", tables[worst][:, 1], at_most=1.0),
        mean("MSE at step size 0.1 (nats²)", error[2], deciding=False, at_least=1e-5, at_most=1e-3),
        mean("MSE/Var(ΔH) at step size 0.1", ratio[2], deciding=False, at_most=1.0),
        mean("power of the step size in the MSE", power, deciding=False),
    )

    def draw(ax, column):
        for number, (name, values) in enumerate(series.items()):
            style = {"color": COLOURS[number], "linestyle": DASHES[number]}
            ax.plot(steps, values[..., column].mean(1), label=name, **style)
        labelled(ax, "step size, η", ("MSE (nats²)", "MSE/Var(ΔH)")[column])
        ax.set(xscale="log", yscale="log")

    columns = [(name, i) for name in ESTIMATORS for i in (0, 1)]
    return Finding(
        statistics,
        says=f"At step size 0.1 the MSE is {error[2].mean():.1e}, {ratio[2].mean():.0%} of the variance of ΔH; at 0.01 "
        f"it is {error[1].mean():.1e}, still {ratio[1].mean():.0%}. The exact first order has "
        f"{series['exact first order'][2, :, 1].mean():.1%} and {series['exact first order'][1, :, 1].mean():.2%}.",
        boundary=f"The ratio is largest at K = {worst[0]}, σ = {worst[1]:g}, {worst[2]}. The MSE itself grows with the "
        f"step size to the power {power.mean():.2f}: any level can be had.",
        meaning="An MSE without the variance beside it measures the step size. Ask for MSE/Var or a correlation.",
        table={"step size": steps, **{f"{MEASURES[i]}, {name}": series[name][..., i].mean(1) for name, i in columns}},
        panels=(partial(draw, column=0), partial(draw, column=1)),
    )


FACTORS = ("clip", "advantage", "probability", "entropy")


@cache
def off_policy(seeds, prompts, step_size, actions=10):
    """(tokens, policies, exact ΔH of each token's push [N, B]) of the eighth update on one batch of GRPO, all seeds.

    `step_size` is that of a prompt drawn once. Pools with a tenth correct, σ = 1; a token that PPO clips has no effect.
    """
    problem, logits = stacked(pools(seeds, prompts, actions))
    keys = jax.random.split(jax.random.key(0), seeds)

    def one(problem, logits, key):
        algorithm = build("grpo", step_size=prompts * step_size, groups=prompts).start(logits)
        before = softmax(logits)
        after = softmax(logits + step(problem, algorithm, before, key, GROUP - 1)[0])
        tokens = under(algorithm.estimator(jax.random.fold_in(key, 0), problem, before), after)
        push = STEP * unclipped_loss(tokens, 0.2, 0.2)[:, None]
        chosen = jnp.arange(actions) == tokens.action[:, None]
        delta = push * (chosen - after.prob[tokens.state])
        return tokens, entropy_change(after.logits[tokens.state], delta)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one), compiler_options=quick_options())(problem, logits, keys))


def clipped(tokens):
    """Whether PPO clips each token [N, B]."""
    return np.asarray(jax.vmap(lambda each: outside(each, ratio(each), 0.2, 0.2))(tokens))


def rank_correlations(tokens, true, dropped):
    """Spearman's ρ [N] between STEER's Ω without the factor `dropped` ("" for none) and the exact changes.

    Dropped, I, A, π(1−π) or log π + H is 1; "every π" leaves I r A H. Tokens without signal are left out.
    """
    p = np.exp(tokens.log_prob)
    factors = {
        "clip": ~clipped(tokens),
        "advantage": tokens.advantage,
        "probability": p * (1.0 - p),
        "entropy": tokens.log_prob + tokens.entropy,
    }
    if dropped == "every π":
        factors |= {"probability": np.ones_like(p), "entropy": tokens.entropy}
    rest = np.exp(tokens.log_prob - tokens.old_log_prob)
    value = -np.prod([rest, *(x for name, x in factors.items() if name != dropped)], 0)
    kept = tokens.advantage != 0.0
    return np.array([correlation_of(x[k], y[k], ranked=True) for x, y, k in zip(value, true, kept, strict=True)])


def drops(tokens, true):
    """{factor: the fall of Spearman's ρ [N] when it is left out of Ω}."""
    whole = rank_correlations(tokens, true, "")
    return {factor: whole - rank_correlations(tokens, true, factor) for factor in FACTORS}


@claim(
    "C35",
    "Each of the four factors in STEER's estimate (clip, advantage, probability, entropy) is needed.",
    source=SOURCE,
    threshold="drop in SRCC > .02 for each factor",
)
def every_factor_is_needed(size):
    """Pools of 200 prompts, K = 10, a tenth correct, σ = 1: 200 groups of 8, seven GRPO updates on the batch, then the
    estimates Ω = −I r A π(1−π)(log π + H) of the eighth one. Each factor in turn is set to 1; Spearman's ρ with the
    exact ΔH of a token's push, that of Ω less that of what is left. Step size 0.03 for a prompt drawn once, where PPO
    clips a few per cent of the tokens; then from 0.01 to 1, to vary that share.
    """
    grid = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
    batches = [off_policy(size(20, 10), size(PROMPTS, 40), η) for η in grid]
    fallen = [drops(*each) for each in batches]
    cut = np.array([clipped(tokens)[tokens.advantage != 0.0].mean() for tokens, _ in batches])
    nominal = fallen[1]
    lost = {name: np.array([x[name].mean() for x in fallen]) for name in FACTORS}
    whole, bare = (rank_correlations(*batches[1], name) for name in ("", "every π"))
    needless = [name for name in FACTORS if lost[name].max() < 0.02]
    level = np.interp(0.02, lost["clip"], cut)

    def bars(ax):
        found = np.array([nominal[name] for name in FACTORS])
        low, high = np.quantile(found, [0.025, 0.975], axis=1)
        error = np.array([found.mean(1) - low, high - found.mean(1)])
        ax.bar(FACTORS, found.mean(1), yerr=error, color=COLOURS[: len(FACTORS)])
        ax.set(xlabel="factor left out of Ω", ylabel="drop of Spearman's ρ")

    def line(ax):
        for number, name in enumerate(FACTORS):
            ax.plot(cut, lost[name], color=COLOURS[number], linestyle=DASHES[number], marker=".", label=name)
        ax.axhline(0.02, color="0.6", linewidth=0.6)
        labelled(ax, "share of tokens that PPO clips", "drop of Spearman's ρ")

    return Finding(
        (
            *(mean(f"drop of ρ without the {name}", nominal[name], at_least=0.02) for name in FACTORS),
            mean("drop of ρ without any π", whole - bare, at_least=0.02, deciding=False),
        ),
        counterexample=f"The factor{'s' * (len(needless) > 1)} without use: {', '.join(needless)}; ρ falls by at most "
        f"{max(lost[name].max() for name in needless):.3f} at any of the clipped shares tried."
        if needless
        else "",
        says=f"From {whole.mean():.2f}, ρ falls by "
        + ", ".join(f"{nominal[name].mean():.3f} ({name})" for name in FACTORS)
        + f" where PPO clips {cut[1]:.1%} of the tokens. π(1−π) does not change the order much: log π + H has the "
        "sign and nearly the rank. Without log π as well it falls by " + f"{(whole - bare).mean():.2f}.",
        boundary=f"The clip is worth 0.02 from a clipped share of about {level:.1%} on; on policy nothing is clipped.",
        meaning="STEER as released, which drops one π, ranks tokens about as well as the theorem. What cannot be "
        "dropped is the sign of the advantage and the comparison of log π with the entropy of the state.",
        table={"step size": grid, "clipped share": cut, **lost},
        panels=(bars, line),
    )
