"""Covariances of prompts and of tokens: which are large, which matter, which way they push."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from softmaxdyn import theory
from softmaxdyn.diagnostics.log import Log
from softmaxdyn.diagnostics.scores import covariance_score, entropy_effects, order, top_count
from softmaxdyn.diagnostics.tail import covariance_tail, top_shares
from softmaxdyn.ledger import Finding, claim, correlation_of, exactly, mean
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.policy import softmax
from softmaxdyn.simulation import quick_jit
from softmaxdyn.trajectories import covariances as proxies
from softmaxdyn.updates import NaturalPG

from .worlds import exact, follow, pools, realistic_pools, trees

ACCURACIES = np.array([0.125, 0.5, 0.875])


def one_correct(p, actions):
    """(logits, rewards) of prompts with success probability p [N], one correct action, the others alike: [N, K]."""
    wrong = np.broadcast_to(np.log((1.0 - p) / (actions - 1))[:, None], (len(p), actions - 1))
    rewards = np.zeros((len(p), actions))
    rewards[:, 0] = 1.0
    return np.concatenate([np.log(p)[:, None], wrong], 1), rewards


def covariances(p, actions):
    """−ΔH to first order for η = 1 by kind of update: vanilla PG, natural PG, natural PG with A divided by its std."""
    logits, rewards = one_correct(p, actions)
    vanilla, natural = (-np.asarray(f(logits, rewards - p[:, None], 1.0)) for f in (theory.theorem_1, theory.theorem_2))
    return {"PG": vanilla, "natural PG": natural, "natural PG, A / std": natural / np.sqrt(p * (1.0 - p))}


@claim(
    "C16",
    "Harder prompts have a smaller covariance: that at accuracy 1/8 is below that at 1/2, and that below 7/8.",
    source="Cui et al. 2025 (arXiv:2505.22617), section 2 and figure 8",
    threshold="Cov(.125) < Cov(.5) < Cov(.875)",
)
def harder_prompts_have_a_smaller_covariance(size):
    """Prompts with one correct action among K = 10, the wrong ones alike, at every accuracy p: the covariance of
    Theorem 1 and that of Theorem 2, which is p(1−p) log(p/q) with q = (1−p)/(K−1). The statistic is the smaller of the
    two steps up, Cov(.5) − Cov(.125) and Cov(.875) − Cov(.5). The same with advantages divided by their standard
    deviation, as GRPO does, for every K up to 1000. No chance is involved.
    """
    found = covariances(ACCURACIES, 10)
    wanted = {"at_least": np.finfo(float).tiny}
    steps = {kind: exactly(f"smaller step up, {kind}", np.diff(x).min(), **wanted) for kind, x in found.items()}
    counts, p = np.arange(3, 1001), ACCURACIES[:, None]
    ordered = np.diff(np.sqrt(p * (1.0 - p)) * np.log(p * (counts - 1) / (1.0 - p)), axis=0).min(0) > 0.0
    limit = counts[~ordered][0]
    grid = np.linspace(0.01, 0.99, 99)
    curves = covariances(grid, 10)
    top = {kind: grid[x.argmax()] for kind, x in curves.items()}

    def draw(ax):
        for colour, (kind, x) in zip(COLOURS, curves.items(), strict=False):
            ax.plot(grid, x / x.max(), color=colour, label=kind)
            ax.plot(ACCURACIES, found[kind] / x.max(), "o", color=colour)
        labelled(ax, "accuracy of the prompt, p", "covariance over its maximum", columns=3)

    return Finding(
        (steps["PG"], steps["natural PG"], steps["natural PG, A / std"]._replace(deciding=False)),
        counterexample=f"K = 10, p = 1/2 and 7/8: {found['natural PG'][1]:.3f} > {found['natural PG'][2]:.3f} (natural "
        f"PG), {found['PG'][1]:.3f} > {found['PG'][2]:.3f} (PG).",
        only_when=f"advantages are divided by their standard deviation and there are fewer than {limit} actions",
        says=f"The covariance is a hump: it is largest at p = {top['natural PG']:.2f} under natural PG and at "
        f"{top['PG']:.2f} under PG, since an advantage has variance p(1−p). Dividing by its root moves the top to "
        f"{top['natural PG, A / std']:.2f}.",
        boundary=f"With GRPO's division the order is that of the claim up to K = {limit - 1} and lost from {limit} on.",
        meaning="That hard prompts have a small covariance says little about difficulty: it is what GRPO's division by "
        "the standard deviation of a group makes of a hump. Entropy is lost fastest on prompts that are half solved.",
        table={"accuracy": grid, **curves},
        panels=(draw,),
    )


CUI = "Cui et al. 2025 (arXiv:2505.22617)"
RULES = ("π > 1/K", "π > median", "π > e^−H")


def scored(logits):
    """(the policy of the logits [S, K], the exact first-order change of H by a reward 1 for each action, T7)."""
    return quick_jit(_scored)(jnp.asarray(logits))


def _scored(logits):
    return softmax(logits), theory.sample_effect(logits)


def violations(logits):
    """Over the pairs (state, action) of logits [S, K]: the shares that each of `RULES` gets wrong, and more.

    A rule says that rewarding the action lowers the entropy if it is so and raises it if not; exactly, it lowers it if
    S_a > S̄ (T7). `mode`, `rare`: the shares of modes that raise it and of actions with π ≤ e^−H that lower it.
    """
    policy, effects = scored(logits)
    p, floor = np.asarray(policy.prob), np.exp(-np.asarray(policy.entropy))[:, None]
    lowers = np.asarray(effects) < 0.0
    rules = p > 1.0 / p.shape[1], p > np.median(p, 1, keepdims=True), p > floor
    found = {name: np.mean(rule != lowers) for name, rule in zip(RULES, rules, strict=True)}
    rare, mode = p <= floor, np.asarray(policy.mode)
    return {**found, "mode": np.mean(~lowers[mode]), "rare": np.mean(lowers[rare]), "between": np.mean(~rare & ~mode)}


def smallest_exception(step=20):
    """(π, ΔH per unit step): three actions in multiples of 1/step; a reward for the second raises H most, of all those
    that are above 1/3 and e^−H.
    """
    grid = np.array([(a, b, step - a - b) for a in range(1, step) for b in range(1, step - a)]) / step
    effects = np.asarray(scored(np.log(grid))[1])[:, 1]
    p = grid[:, 1]
    above = (p > 1 / 3) & (p > np.exp((grid * np.log(grid)).sum(1)))
    best = np.where(above, effects, -np.inf).argmax()
    return grid[best], float(effects[best])


def rising_at_the_mode(states=20_000):
    """How often PG raises H though the mode has the highest A: random policies, rewards U(0, 1), three actions."""
    draw = np.random.default_rng(0)
    logits, rewards = draw.standard_normal((states, 3)), draw.random((states, 3))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rises = np.asarray(theory.theorem_1(logits, rewards - (p * rewards).sum(1, keepdims=True), 1.0)) > 0.0
    return np.mean(rises[rewards.argmax(1) == logits.argmax(1)])


@claim(
    "C17",
    "Rewarding an action of high probability lowers the entropy, rewarding a rare one raises it.",
    source=f"{CUI}, section 3",
    threshold="the sign is that of S̄ − S_a, S_a = π_a (log π_a + H); none of π > 1/K, π > median and π > e^−H "
    "violates it",
)
def probable_lowers_rare_raises(size):
    """Policies with 10 and 100 actions, logits N(0, σ²), σ = ½, 1, 2 and 3, 200 states each: for every action the exact
    first-order effect of a reward, −w (S_a − S̄) with S̄ = E_π S, against the sign of three readings of "probable". The
    statistic is the share of wrong signs among all (state, action), one a seed. Then the same for the modes alone
    and for the actions below e^−H alone; and, over random rewards U(0, 1) on three actions, how often the step of exact
    PG raises H although the mode has the highest advantage.
    """
    spreads, counts = (0.5, 1.0, 2.0, 3.0), (10, 100)
    cases = [(spread, actions) for actions in counts for spread in spreads]
    found = {
        case: [violations(made.logits) for made in pools(size.seeds, 200, case[1], 0.1, case[0])] for case in cases
    }
    keys = (*RULES, "mode", "rare", "between")
    wrong = {key: np.array([[x[key] for x in found[case]] for case in cases]) for key in keys}
    p, effect = smallest_exception()
    clean = wrong["mode"].max() == 0.0 and wrong["rare"].max() == 0.0
    between = wrong["between"].mean()

    def shares(ax):
        for colour, dashes, rule in zip(COLOURS, DASHES, RULES, strict=False):
            for marker, rows in zip("os", np.split(wrong[rule], 2), strict=True):
                low, high = np.quantile(rows, [0.05, 0.95], axis=1)
                ax.fill_between(spreads, low, high, color=colour, alpha=0.2, linewidth=0)
                label = f"{rule}, K = {counts['os'.index(marker)]}"
                ax.plot(spreads, rows.mean(1), color=colour, linestyle=dashes, marker=marker, markersize=3, label=label)
        labelled(ax, "σ of the logits", "actions with the wrong sign", columns=2)

    return Finding(
        (
            *(mean(f"wrong signs, {rule}", wrong[rule].mean(0), at_most=0.0) for rule in RULES),
            mean("wrong signs for the mode", wrong["mode"].mean(0), at_most=0.0, deciding=False),
            mean("wrong signs for π ≤ e^−H", wrong["rare"].mean(0), at_most=0.0, deciding=False),
            exactly("H rises although the mode has the highest A", rising_at_the_mode(), deciding=False),
        ),
        only_when="the action is the mode (then H falls) or has π ≤ e^−H (then H rises)" if clean else "",
        counterexample=f"π = ({', '.join(f'{x:.2f}' for x in p)}): a reward for the second action raises H, by "
        f"{effect:.4f} per unit of step, although its probability is above 1/3 and e^−H.",
        says="The threshold is S_a > S̄, and no bound on π alone: "
        + ", ".join(f"{rule} is wrong for {wrong[rule].mean():.1%} of the actions" for rule in RULES)
        + ". What is always so: a reward for the mode lowers H, one for an action with π ≤ e^−H raises it.",
        boundary=f"The signs of the other actions, {between:.1%} of all, depend on the rest of the policy. Summed over "
        f"a step of PG the rule says less still: H rises in {rising_at_the_mode():.1%} of the policies whose mode has "
        "the highest advantage.",
        meaning="High probability is to be read against e^−H, not against ½ or 1/K, and the second most probable "
        "action often counts as rare. To sort tokens by what they do to the entropy, compute S_a − S̄: it needs the "
        "entropy and one more sum over the vocabulary.",
        table={
            "actions": [actions for _, actions in cases],
            "σ": [spread for spread, _ in cases],
            **{rule: x.mean(1) for rule, x in wrong.items()},
        },
        panels=(effects_panel, shares),
    )


def effects_panel(ax):
    """(S_a − S̄) of every action of random policies with 10 actions against its probability over e^−H."""
    logits = np.random.default_rng(0).standard_normal((300, 10)) * 1.5
    policy, effects = scored(logits)
    relative = np.asarray(policy.prob) * np.exp(np.asarray(policy.entropy))[:, None]
    fall, mode = -np.asarray(effects), np.asarray(policy.mode)
    for colour, name, rows in ((COLOURS[0], "modes", mode), (COLOURS[1], "other actions", ~mode)):
        ax.semilogx(relative[rows], fall[rows], ".", markersize=2, color=colour, label=name)
    ax.axhline(0.0, color="0.6", linewidth=0.7, zorder=0)
    ax.axvline(1.0, color="0.6", linewidth=0.7, zorder=0)
    labelled(ax, "π over e^−H", "fall of H per unit reward (nats)")


def batch(made, groups, seed):
    """Tokens of GRPO: `groups` groups of 8 responses to random prompts of a pool or a token tree, as a log on policy.

    A of a response is (R − mean)/(std + 1e-6) over its group, std with n − 1; each of its tokens has it.
    """
    problem, draw = made.problem, np.random.default_rng(seed)
    policy, _ = scored(made.logits)
    p, log_prob, entropy = (np.asarray(x) for x in (policy.prob, policy.log_prob, policy.entropy))
    mean_score = np.sum(p**2 * np.asarray(policy.centred_log_prob), 1)
    cumulative, rewards = p.cumsum(1), np.asarray(problem.rewards)
    depth, prompts = getattr(problem, "depth", 1), np.count_nonzero(problem.start)
    branching = problem.layout.branching if depth > 1 else 0
    state = draw.integers(prompts, size=groups).repeat(8)
    taken, score, path = np.ones(len(state), bool), np.zeros(len(state)), []
    for _ in range(depth):
        token = np.minimum((cumulative[state] < draw.random((len(state), 1))).sum(1), p.shape[1] - 1)
        score += np.where(taken, rewards[state, token], 0.0)
        path.append((state, token, taken))
        taken = taken & (token < branching)
        state = np.where(taken, prompts + branching * state + token, 0) % len(p)
    group = score.reshape(-1, 8)
    advantage = (group - group.mean(1, keepdims=True)) / (group.std(1, ddof=1, keepdims=True) + 1e-6)
    states, tokens, kept = (np.array(x) for x in zip(*path, strict=True))
    episode = np.broadcast_to(np.arange(len(score)), states.shape)[kept]
    states, drawn = states[kept], log_prob[states[kept], tokens[kept]]
    recorded = {"entropy": entropy[states], "mean_entropy_score": mean_score[states], "group": episode // 8}
    return Log(drawn, drawn, advantage.ravel()[episode], **recorded)


KINDS = ("A > 0, π > ½", "A > 0, π ≤ ½", "A < 0, π ≤ ½", "A < 0, π > ½")
FRACTIONS = np.geomspace(1e-4, 1.0, 41)


def kinds(log, chosen):
    """Shares of the chosen tokens that are of each of `KINDS`."""
    good, likely = log.advantage[chosen] > 0.0, log.log_prob[chosen] > np.log(0.5)
    bad = log.advantage[chosen] < 0.0
    return [np.mean(x) for x in (good & likely, good & ~likely, bad & ~likely, bad & likely)]


def summary(log, seed):
    """What C18, C20 and C21 need of one batch."""
    score = covariance_score(log)
    ranked = order(score)
    tail = covariance_tail(log, ranked, permutations=2, seed=seed)
    effect = np.abs(entropy_effects(log)["exact"])
    counts = np.array([top_count(fraction, len(score)) for fraction in FRACTIONS])
    top = ranked[: top_count(2e-3, len(score))]
    return {
        "tokens": len(score),
        "mean C": score.mean(),
        "mean |C|": np.abs(score).mean(),
        "top 0.02 %": tail.mean[0],
        "top 0.2 %": tail.mean[1],
        "top 0.02 %, permuted": tail.permuted_mean[:, 0].mean(),
        "kinds": kinds(log, top),
        "median π": np.exp(np.median(log.log_prob[top])),
        "share by C": top_shares(effect[ranked], counts)[1],
        "share by effect": top_shares(np.sort(effect)[::-1], counts)[1],
        "of 0.2 % by C": effect[top].sum() / effect.sum(),
        "of 0.2 % by effect": np.sort(effect)[-len(top) :].sum() / effect.sum(),
        "r of C and the effect": correlation_of(score, entropy_effects(log)["exact"]),
    }


@cache
def summaries(seeds, tokens):
    """world → name → [N, …] of `summary`, batches of about `tokens` tokens."""
    worlds = {f"pool, σ = {s:g}": (pools(seeds, spread=s), 1.0) for s in (0.5, 1.0, 2.0, 3.0)}
    worlds["pass counts"] = realistic_pools(seeds), 1.0
    worlds |= {f"tree, σ = {s:g}": (trees(seeds, 50, 5, 4, s), 3.0) for s in (1.0, 2.0, 4.0)}
    found = {}
    for name, (settings, length) in worlds.items():
        groups = int(tokens / length / 8)
        rows = [summary(batch(made, groups, seed), seed) for seed, made in enumerate(settings)]
        found[name] = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return found


@claim(
    "C18",
    "Tokens with a high covariance are those of high probability and high advantage.",
    source=f"{CUI}, sections 3 and 4",
    threshold="at least half of the top 0.2 % of the tokens by C have A > 0 and π > ½",
)
def high_covariance_is_probable_and_good(size):
    """GRPO batches of 100 000 tokens (groups of 8, on policy) at the start of a run: pools of 200 prompts with 10
    actions, one correct, logits N(0, σ²); pools as pass counts of a base model give them (20 actions, 5 correct); token
    trees of 50 prompts, responses of up to 4 tokens out of four and an end, the advantage of a response for each of its
    tokens. C = (log π − mean)(A − mean) over the batch. Of the 0.2 % with the highest C: the signs of A, and π. The
    statistic is the mean over these worlds, one number a seed.
    """
    found = summaries(size.seeds, size(100_000, 10_000))
    parts = {name: x["kinds"] for name, x in found.items()}
    likely = np.mean([x[:, 0] for x in parts.values()], 0)
    rare = np.mean([x[:, 2] for x in parts.values()], 0)
    good = [name for name, x in parts.items() if x[:, 0].mean() >= 0.5]
    median = {name: np.median(x["median π"]) for name, x in found.items()}
    best = max(parts, key=lambda name: parts[name][:, 0].mean())
    last = list(found)[-1]

    def bars(ax):
        below = np.zeros(len(parts))
        for colour, place in zip(COLOURS, range(len(KINDS)), strict=False):
            height = np.array([x[:, place].mean() for x in parts.values()])
            ax.barh(range(len(parts)), height, left=below, color=colour, label=KINDS[place])
            below += height
        ax.set_yticks(range(len(parts)), list(parts))
        labelled(ax, "share of the top 0.2 % by C", "", columns=2)

    return Finding(
        (
            mean("A > 0 and π > ½ in the top 0.2 %", likely, at_least=0.5),
            mean("A < 0 and π ≤ ½ in the top 0.2 %", rare, deciding=False),
            *(mean(f"A > 0 and π > ½, {name}", x[:, 0], deciding=False) for name, x in parts.items()),
        ),
        only_when=f"the batch is one of: {', '.join(good)}" if good else "",
        counterexample=f"{last}: {parts[last][:, 2].mean():.0%} of the top 0.2 % are rare tokens of wrong responses, "
        f"of median probability {median[last]:.3f}.",
        says=f"The top is made of rare tokens with a negative advantage ({rare.mean():.0%}); probable and good ones "
        f"are {likely.mean():.1%}. For A > 0 the product is at most A times the mean of −log π, while a rare token "
        "with A < 0 has no such bound.",
        boundary="The larger the spread of log π, the more so: probable and good tokens are "
        + ", ".join(f"{x[:, 0].mean():.0%} ({name})" for name, x in parts.items())
        + f"; most in {best}.",
        meaning="A method that picks the highest covariances mostly stops the model from making unlikely mistakes "
        "still less likely. It acts on surprising errors, not on confident successes.",
        table={
            "world": list(parts),
            **{kind: [x[:, place].mean() for x in parts.values()] for place, kind in enumerate(KINDS)},
            "median π": list(median.values()),
        },
        panels=(bars, covariance_points),
    )


def covariance_points(ax):
    """C of the tokens of one batch of a token tree (σ = 2) against their probability."""
    log = batch(trees(1, 50, 5, 4, 2.0)[0], 400, 0)
    score, p = covariance_score(log), np.exp(log.log_prob)
    for colour, name, rows in ((COLOURS[2], "A < 0", log.advantage < 0.0), (COLOURS[0], "A > 0", log.advantage > 0.0)):
        ax.semilogx(p[rows], score[rows], ".", markersize=1.5, color=colour, label=name)
    ax.axhline(np.sort(score)[-top_count(2e-3, len(score))], color="0.3", linewidth=0.7, linestyle=DASHES[1])
    labelled(ax, "probability π of the token", "covariance C (nats)")


def proxy_and_theorem(problem, step_size, policy, delta, selected):
    """The population mean of the proxy of equation 10, and the covariance of Theorem 2 a token."""
    found = proxies(problem, policy)
    return {"proxy": found.token, "theorem": found.action / jnp.sum(problem.visits(policy.prob))}


@cache
def proxy_runs(seeds, steps):
    """name → the fields of `proxy_and_theorem` [N, T] along runs of exact NPG: trees of several σ, and a pool."""
    starts = {f"tree, σ = {s:g}": trees(seeds, spread=s) for s in (0.5, 1.0, 2.0, 3.0)}
    starts["pool, σ = 1"] = pools(seeds, 40)
    algorithm = exact(NaturalPG(0.1))
    return {name: follow(made, algorithm, steps, observe=proxy_and_theorem)[0] for name, made in starts.items()}


def cross_share(fields):
    """Σ|proxy − theorem| over Σ|proxy| along each run [N]: the cross-state term of the law of total covariance."""
    return np.abs(fields["proxy"] - fields["theorem"]).sum(1) / np.abs(fields["proxy"]).sum(1)


def whitened_share(seeds):
    """The same for a pool with one baseline for the batch: the cross-state term Cov_s(−H, V) over the whole [N]."""
    shares = []
    for made in pools(seeds, 200):
        policy, _ = scored(made.logits)
        p, rewards = np.asarray(policy.prob), np.asarray(made.problem.rewards)
        value, entropy = (p * rewards).sum(1), np.asarray(policy.entropy)
        inside = np.mean((p * np.asarray(policy.centred_log_prob) * (rewards - value[:, None])).sum(1))
        across = np.mean((entropy.mean() - entropy) * (value - value.mean()))
        shares.append(abs(across) / abs(inside + across))
    return np.array(shares)


@claim(
    "C19",
    "The token covariance, averaged over a batch, is the covariance of Theorem 2.",
    source=f"{CUI}, equation 10",
    threshold="the cross-state term is below 5 % of the whole",
)
def the_proxy_is_the_covariance_of_theorem_2(size):
    """The mean of C = (log π − mean)(A − mean) over all tokens is, by the law of total covariance, the mean covariance
    inside a state, which is that of Theorem 2, plus a cross-state term Cov_s(−H(s), E[A given s]). Both exactly, over
    the whole population, at every step of 60 of exact natural PG (η = 0.1): token trees of 16 prompts, responses of up
    to 4 tokens, from logits N(0, σ²), where A = R − V(prompt) for each token of a response; and pools, where a response
    is one token. The statistic is the sum of the absolute cross-state terms of a run over that of the whole, one a
    seed. Beside it pools with one baseline for the whole batch (REINFORCE++) instead of one a prompt.
    """
    runs = proxy_runs(size.seeds, size(60, 20))
    shares = {name: cross_share(fields) for name, fields in runs.items()}
    own, single = np.mean([x for name, x in shares.items() if "tree" in name], 0), shares["pool, σ = 1"]
    sign = np.mean([(x["proxy"] * x["theorem"] < 0.0).mean(1) for name, x in runs.items() if "tree" in name], 0)
    whitened = whitened_share(size.seeds)
    shown = runs["tree, σ = 2"]

    def bars(ax):
        low, middle, high = np.quantile(np.array(list(shares.values())), [0.0, 0.5, 1.0], axis=1)
        ax.errorbar(range(len(shares)), middle, (middle - low, high - middle), fmt="o", color=COLOURS[0], label="runs")
        ax.axhline(0.05, color="0.4", linewidth=0.8, linestyle=DASHES[1], label="5 %")
        ax.set_xticks(range(len(shares)), [name.replace(", ", "\n") for name in shares])
        labelled(ax, "", "cross-state term over the whole")

    def curves(ax):
        for colour, dashes, (key, name) in zip(
            COLOURS, DASHES, (("proxy", "mean of C"), ("theorem", "Theorem 2's")), strict=False
        ):
            low, middle, high = np.quantile(shown[key], [0.05, 0.5, 0.95], axis=0)
            ax.fill_between(range(len(middle)), low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(middle, color=colour, linestyle=dashes, label=name)
        labelled(ax, "step", "covariance (nats), tree, σ = 2")

    return Finding(
        (
            mean("cross-state term over the whole, token trees", own, at_most=0.05),
            mean("cross-state term over the whole, one token a response", single, at_most=0.05),
            mean("steps in which the two differ in sign, token trees", sign, deciding=False),
            mean("cross-state term, one token, one baseline a batch", whitened, deciding=False),
        ),
        only_when="a response is one token and A has mean 0 for every prompt" if single.mean() <= 0.05 else "",
        counterexample=f"tree, σ = 3: the cross-state term is {shares['tree, σ = 3'].mean():.0%} of the whole.",
        says=f"With several tokens a response the cross-state term is {own.mean():.0%} of the proxy; with one token "
        f"and a baseline for each prompt it is 0 to rounding ({single.max():.0e}).".replace("e-", "e−"),
        boundary="It grows with the spread of the policy: "
        + ", ".join(f"{x.mean():.0%} ({name})" for name, x in shares.items() if "tree" in name)
        + f". One baseline for the batch brings it back for one token a response: {whitened.mean():.0%}.",
        meaning="A log of the mean proxy mixes what happens inside a state with how entropy and success vary from "
        "state to state: prefixes of high entropy that lead to success count against it. Centre the advantage for each "
        "prompt at least.",
        table={"world": list(shares), "cross-state share": [x.mean() for x in shares.values()]},
        panels=(curves, bars),
    )


@claim(
    "C20",
    "Covariances have a long tail: the mean of the top 0.02 % of the tokens is 500 times the overall mean and more.",
    source=f"{CUI}, table 1 (5.654 and 0.003 nats)",
    threshold="the mean of the top 0.02 % at least 500 times the overall mean (in 95 % of the batches)",
)
def the_top_is_500_times_the_mean(size):
    """The batches of C18. The ratio of the mean C of the top 0.02 % of the tokens to the mean C of all, and in how many
    of the batches it is 500 or more. The overall mean is a difference of large positive and negative parts, so the
    ratio has a small denominator of either sign; beside it therefore the ratio to the mean of |C|, and the control that
    permutes the advantages among the tokens, which keeps both marginals and breaks every link between log π and A.
    """
    found = summaries(size.seeds, size(100_000, 10_000))
    ratio = {name: x["top 0.02 %"] / x["mean C"] for name, x in found.items()}
    high = np.mean([x >= 500.0 for x in ratio.values()], 0)
    negative = np.mean([x["mean C"] < 0.0 for x in found.values()], 0)
    absolute = np.mean([x["top 0.02 %"] / x["mean |C|"] for x in found.values()], 0)
    permuted = np.mean([x["top 0.02 %, permuted"] / x["top 0.02 %"] for x in found.values()], 0)
    good = [name for name, x in ratio.items() if np.mean(x >= 500.0) >= 0.95]
    last = "tree, σ = 4"
    ends = ratio[last].min(), ratio[last].max()
    return Finding(
        (
            mean("batches with a ratio of 500 or more", high, at_least=0.95),
            mean("batches whose overall mean is negative", negative, deciding=False),
            mean("top 0.02 % over the mean of ∣C∣", absolute, deciding=False),
            mean("top 0.02 % with permuted advantages, over the top", permuted, deciding=False),
        ),
        only_when=f"the batch is one of: {', '.join(good)}" if good else "",
        counterexample=f"{last}: the top 0.02 % have a mean of {found[last]['top 0.02 %'].mean():.1f} nats, and the "
        f"ratio is {ends[0]:.0f} in one batch and {ends[1]:.0f} in another.".replace("-", "−"),
        says=f"The tail is long, {absolute.mean():.0f} times the mean of ∣C∣, but the ratio to the mean of C is no "
        f"measure of it: that mean is negative in {negative.mean():.0%} of the batches. And permuting the advantages "
        f"leaves {permuted.mean():.0%} of the tail, so it comes from the two marginals, not from a link between log π "
        "and A.",
        boundary="Batches with a ratio of 500 or more: "
        + ", ".join(f"{np.mean(x >= 500.0):.0%} ({name})" for name, x in ratio.items())
        + ".",
        meaning="A table of this kind says that some tokens are very improbable and some advantages large. Compare the "
        "tail with that of permuted advantages before reading anything into it.",
        table={
            "world": np.repeat(list(found), size.seeds),
            **{
                key: np.concatenate([x[key] for x in found.values()])
                for key in ("mean C", "mean |C|", "top 0.02 %", "top 0.2 %", "top 0.02 %, permuted")
            },
        },
        panels=(tail_panel, ratio_panel(found)),
    )


def tail_panel(ax):
    """C by rank of one batch of a token tree, highest and lowest, and the same with permuted advantages."""
    log = batch(trees(1, 50, 5, 4, 4.0)[0], 4000, 0)
    tail = covariance_tail(log, order(covariance_score(log)), permutations=5)
    for colour, name, values, control in (
        (COLOURS[0], "highest", tail.highest, tail.permuted_highest),
        (COLOURS[1], "lowest, −C", -tail.lowest, -tail.permuted_lowest),
    ):
        ax.loglog(tail.rank, np.where(values > 0.0, values, np.nan), color=colour, label=name)
        shown = np.where(control > 0.0, control, np.nan).mean(0)
        ax.loglog(tail.rank, shown, color=colour, linestyle=DASHES[2], label=f"{name}, A permuted")
    ax.set_ylim(1e-2, None)
    labelled(ax, "rank of the token", "covariance C (nats)")


def ratio_panel(found):
    """The overall mean of C of every batch, and what a ratio of 500 asks of it."""

    def draw(ax):
        for place, x in enumerate(found.values()):
            ax.plot(x["mean C"], np.full(len(x["mean C"]), place), "|", color=COLOURS[0])
            ax.plot([x["top 0.02 %"].mean() / 500.0], [place], "d", markersize=4, color=COLOURS[1])
        ax.plot([], [], "|", color=COLOURS[0], label="a batch")
        ax.plot([], [], "d", color=COLOURS[1], markersize=4, label="top 0.02 % over 500")
        ax.axvline(0.0, color="0.6", linewidth=0.7, zorder=0)
        ax.set_xscale("symlog", linthresh=0.01)
        ax.set_yticks(range(len(found)), list(found))
        labelled(ax, "mean C of all tokens (nats)", "")

    return draw


@claim(
    "C21",
    "The few tokens with the highest covariance dominate the collapse of the entropy.",
    source=f"{CUI}, section 4",
    threshold="the top 0.2 % of the tokens by C have at least 20 % of the gross first-order change of H",
)
def few_tokens_dominate(size):
    """The batches of C18. Each token changes H to first order by −A (S_a − S̄) per unit of step (T7); the top 0.2 % of
    the tokens by C, and their share of the sum of the absolute changes. Beside it the share of the 0.2 % with the
    largest changes themselves, which no selection can exceed, and the correlation of C with the change.
    """
    found = summaries(size.seeds, size(100_000, 10_000))
    by_score = {name: x["of 0.2 % by C"] for name, x in found.items()}
    by_effect = {name: x["of 0.2 % by effect"] for name, x in found.items()}
    own, most = (np.mean(list(x.values()), 0) for x in (by_score, by_effect))
    needed = np.array([FRACTIONS[(x["share by C"].mean(0) >= 0.2).argmax()] for x in found.values()])
    top = max(by_score, key=lambda name: by_score[name].mean())
    last = min(by_score, key=lambda name: by_score[name].mean())
    link = np.mean([x["r of C and the effect"] for x in found.values()], 0)

    def bars(ax):
        for colour, marker, (name, values) in zip(
            COLOURS, "os", (("top 0.2 % by C", by_score), ("the most that 0.2 % can have", by_effect)), strict=False
        ):
            low, middle, high = np.quantile(np.array(list(values.values())), [0.0, 0.5, 1.0], axis=1)
            bars = {"fmt": marker, "color": colour, "markersize": 3}
            ax.errorbar(middle, range(len(values)), xerr=(middle - low, high - middle), label=name, **bars)
        ax.axvline(0.2, color="0.4", linewidth=0.8, linestyle=DASHES[1])
        ax.set_yticks(range(len(found)), list(found))
        labelled(ax, "share of the gross change of H", "", columns=1)

    def curves(ax):
        for colour, name in zip(COLOURS, ("pool, σ = 1", "pass counts", "tree, σ = 4"), strict=False):
            for key, dashes in (("share by C", DASHES[0]), ("share by effect", DASHES[2])):
                ax.loglog(FRACTIONS, found[name][key].mean(0), color=colour, linestyle=dashes)
            ax.plot([], [], color=colour, label=name)
        ax.loglog(FRACTIONS, FRACTIONS, color="0.6", linewidth=0.7)
        labelled(ax, "top fraction, by C (full) or by effect (dotted)", "share of the gross change", columns=3)

    return Finding(
        (
            mean("share of the gross change, top 0.2 % by C", own, at_least=0.2),
            mean("share of the 0.2 % with the largest changes", most, deciding=False),
            mean("r of C and the first-order fall of H", link, deciding=False),
        ),
        counterexample=f"{last}: the top 0.2 % by C have {by_score[last].mean():.1%} of the gross change, and no 0.2 % "
        f"has more than {by_effect[last].mean():.1%}.",
        says=f"The top 0.2 % by C have {own.mean():.1%} of the gross first-order change: {own.mean() / 2e-3:.0f} times "
        f"their number, and far from a fifth. No choice of 0.2 % reaches more than {most.mean():.1%}.",
        boundary=f"At most {by_score[top].mean():.1%} ({top}). A fifth of the change takes the top {needed.min():.1%} "
        f"to {needed.max():.1%} of the tokens by C.",
        meaning="Most of the change comes from the many ordinary tokens. If masking a handful of tokens changes a run, "
        "it is not because they carry the first-order change of the entropy of that step.",
        table={
            "world": list(found),
            "top 0.2 % by C": [x.mean() for x in by_score.values()],
            "largest 0.2 %": [x.mean() for x in by_effect.values()],
            "fraction by C with a fifth": needed,
        },
        panels=(curves, bars),
    )
