"""Expected pushes of methods: which way they turn those of GRPO, and where they only change the length."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.advantages import GRPO
from softmaxdyn.comparison import crossing
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.ledger import Finding, claim, correlation_of, mean
from softmaxdyn.plots import COLOURS, labelled
from softmaxdyn.policy import softmax
from softmaxdyn.simulation import pushed, quick_options
from softmaxdyn.tokens import gradient, under

from .reweighting import (
    INNER,
    POSITIVE,
    PUSH,
    STEER,
    Numbers,
    gap_panels,
    one_of,
    path_panels,
    path_table,
    reweightings,
    run,
    trained,
    world,
)
from .worlds import PROMPTS, policies, pools, stacked


def flow(problem, table, moved, intervention):
    """Where the population drawn at logits `table` pushes at `moved` [S, A]: GRPO advantages behind `intervention`."""
    tokens = Exact(GRPO())(None, problem, softmax(table))
    now = softmax(moved)
    return gradient(under(tokens, now), pushed((intervention,), None, under(tokens, now), now)[0], now)


@cache
def _flows():
    return jax.jit(jax.vmap(flow, (0, 0, 0, None)), compiler_options=quick_options())


def flows(settings, name, logits, moved=None, numbers=Numbers()):
    """`flow` of a reweighting in every pool [N, S, A], for logits of the policy that acted and of the current one."""
    problem, _ = stacked(settings)
    moved = logits if moved is None else moved
    return np.asarray(_flows()(problem, logits, moved, one_of(reweightings(numbers), name)))


def after_updates(settings, logits, count=INNER - 1):
    """The logits after GRPO's first `count` updates on the population drawn at `logits`."""
    moved = logits
    for _ in range(count):
        moved = moved + PUSH * logits.shape[1] * flows(settings, "GRPO", logits, moved)
    return moved


def turn(own, base):
    """1 − cosine between two pushes of a state, the mean over the states that both push [N]."""
    length = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (own, base)]
    moves = np.minimum(*length)[..., 0] > 0.0
    unit = [x / np.where(size > 0.0, size, 1.0) for x, size in zip((own, base), length, strict=True)]
    return np.mean(0.5 * np.sum((unit[0] - unit[1]) ** 2, -1), 1, where=moves)


@claim(
    "C39",
    "Clip-Higher, positive reweighting and entropy-aware advantages act on the entropy through STEER's four factors.",
    source=STEER,
    threshold="direction cosine with π∘(r − p) of the on-policy expected direction: below 1 (by more than 1e-9)",
)
def others_act_through_the_factors(size):
    """Pools of 200 prompts, K = 10, three actions correct, σ = 1. The expected push of each state, over all samples, by
    each method: one that acts on the entropy otherwise than GRPO does must push a state in another direction than
    π∘(r − p). The statistic is 1 − cosine, the mean over the states. Then the same after seven GRPO updates on the
    batch, against GRPO's own push there, also with one correct action; and STEER for contrast.
    """
    names = ("Clip-Higher", "positive", "entropy-aware", "STEER")
    several = pools(size.seeds, size(PROMPTS, 40), correct=0.3)
    problem, logits = stacked(several)
    prob, reward = policies(logits), np.asarray(problem.rewards)
    common = prob * (reward - np.sum(prob * reward, -1, keepdims=True))
    pushes = {name: flows(several, name, logits) for name in ("GRPO", *names)}
    first = {name: turn(pushes[name], common) for name in names}
    second, single = (turned_later(settings, names) for settings in (several, world(size)))
    length = {name: np.linalg.norm(x, axis=-1) for name, x in pushes.items()}
    speed = {name: length[name] / length["GRPO"] for name in names[:3]}
    wanted = {"at_least": 1e-9}
    on = [mean(f"1 − cosine on policy, {n}", x, deciding=n != "STEER", **wanted) for n, x in first.items()]
    off = [mean(f"1 − cosine at update 8, {n}", x, deciding=False, **wanted) for n, x in second.items()]

    def draw(ax):
        for number, (kind, found) in enumerate({"on policy": first, "at the eighth update": second}.items()):
            values = [max(found[name].mean(), 1e-34) for name in names]
            ax.plot(values, names, "os"[number], color=COLOURS[number], label=kind)
        ax.axvline(1e-9, color="0.6", linewidth=0.6)
        labelled(ax, "1 − cosine with GRPO's expected push", "")
        ax.set(xscale="log", ylim=(-0.5, len(names) - 0.5))

    least = max(each.high for each in on[:3])
    condition = "a batch is used for several updates (8 here) and actions of equal reward part at the clip"
    table = {"method": names, "on policy": [first[n].mean() for n in names]}
    return Finding(
        (*on, *off),
        only_when=condition if all(each.inside for each in off[:3]) else "",
        says=f"On policy the three push every state in GRPO's direction (1 − cosine ≤ {least:.0e}); they change "
        "its length, by factors of "
        + ", ".join(f"{x.min():.2f} to {x.max():.2f} ({n})" for n, x in speed.items())
        + f". STEER turns it: 1 − cosine = {first['STEER'].mean():.1e}.",
        boundary="At the eighth update on a batch the three turn it by "
        + ", ".join(f"{second[n].mean():.1e}" for n in names[:3])
        + f" with three correct actions, by at most {max(single[n].mean() for n in names[:3]):.0e} with one.",
        meaning="With binary rewards, what depends on a sample only through its state and its reward is a learning "
        "rate for each prompt (T16). Judge it by which prompts it speeds up, not by the entropy after as many steps.",
        table={
            **table,
            "update 8": [second[n].mean() for n in names],
            "update 8, one correct": [single[n].mean() for n in names],
        },
        panels=(draw,),
    )


def turned_later(settings, names):
    """{name: `turn` at the eighth update on a batch against GRPO's own push there}."""
    logits = stacked(settings)[1]
    moved = after_updates(settings, logits)
    base = flows(settings, "GRPO", logits, moved)
    return {name: turn(flows(settings, name, logits, moved), base) for name in names}


@claim(
    "C43",
    "Entropy-aware advantages protect states of high entropy.",
    source=f"{STEER}; 2506.14758",
    threshold="c(s) against H: the correlation negative; H at matched R above GRPO's",
)
def entropy_aware_advantages_protect(size):
    """c(s) is the length of a state's expected push over GRPO's; to protect a state is to move it less, so Spearman's
    correlation of c and H over the states should be negative: at the start of the pools of C36 and at the end of a
    GRPO run. The entropy where J crosses 0.8, less GRPO's, for α = 0.1, 0.4 and 1. Then the states with p below and
    above ½ apart, p the probability of the correct action.
    """
    start = np.asarray(stacked(world(size))[1])
    base = run(size, "GRPO")
    states = {"at the start": start, "at the end": base.logits}
    rows = {when: lengths(size, table) for when, table in states.items()}
    ranked = {when: over_states(*found[:2]) for when, found in rows.items()}
    gain = {
        α: run(size, "entropy-aware", Numbers(coefficient=α)).entropy_at() - base.entropy_at() for α in (0.1, 0.4, 1.0)
    }
    both = [np.concatenate([found[i] for found in rows.values()], 1) for i in range(3)]
    solved = [over_states(both[0], both[1], keep(both[2])) for keep in (lambda p: p < 0.5, lambda p: p > 0.5)]
    statistics = [mean(f"Spearman's ρ of c and H, {when}", x, at_most=-POSITIVE) for when, x in ranked.items()]
    statistics += [mean(f"ΔH at J = 0.8, α = {α} (nats)", x, at_least=POSITIVE) for α, x in gain.items()]
    statistics += [
        mean("ρ of c and H where p < ½", solved[0], deciding=False, at_most=-POSITIVE),
        mean("ρ of c and H where p > ½", solved[1], deciding=False, at_most=-POSITIVE),
    ]

    def draw(ax):
        for number, (when, (c, entropy, _)) in enumerate(rows.items()):
            ax.plot(entropy[0], c[0], ".", color=COLOURS[number], markersize=3, label=f"{when} of a run")
        ax.axhline(1.0, color="0.6", linewidth=0.6)
        labelled(ax, "entropy of the state (nats)", "push over GRPO's, c(s)")

    shown = {"GRPO": base, **{f"α = {α}": run(size, "entropy-aware", Numbers(coefficient=α)) for α in gain}}
    return Finding(
        tuple(statistics),
        counterexample=f"the states of the pools at the start: c is up to {rows['at the start'][0].max():.2f}, and "
        f"ρ(c, H) = {ranked['at the start'].mean():+.2f}."
        if ranked["at the start"].mean() > 0.0
        else "",
        says=f"c(s) is above 1 where p < ½ and below 1 where p > ½; its correlation with H is {solved[0].mean():+.2f} "
        f"and {solved[1].mean():+.2f} there. At equal return the entropy changes by {gain[0.4].mean():+.3f} nats (α = "
        f"0.4) and {gain[1.0].mean():+.3f} (α = 1).",
        boundary="min(α H, |A|/κ) strengthens the sign with the larger |A|, which is the rare outcome: a state is "
        "slowed only once it is mostly solved.",
        meaning="It is a learning rate for each prompt: faster on unsolved ones, slower on solved ones. Whether that "
        "helps is a question of curriculum; at equal return it keeps little more entropy than GRPO.",
        table={
            "when": np.repeat(list(rows), start.shape[1]),
            **{k: np.concatenate([x[i][0] for x in rows.values()]) for i, k in enumerate(("c", "H", "p"))},
        },
        panels=(draw, gap_panels(shown)[1]),
    )


def lengths(size, logits):
    """(c, H, p) of all states [N, S]: the push over GRPO's, the entropy, the success probability."""
    own, base = (np.linalg.norm(flows(world(size), n, logits), axis=-1) for n in ("entropy-aware", "GRPO"))
    policy, rewards = softmax(jnp.asarray(logits)), np.asarray(stacked(world(size))[0].rewards)
    return own / base, np.asarray(policy.entropy), np.sum(np.asarray(policy.prob) * rewards, -1)


def over_states(x, y, kept=None):
    """Spearman's correlation over the (kept) states of each pool [N]; NaN where fewer than three are left."""
    kept = np.ones(x.shape, bool) if kept is None else kept
    pairs = [(a[k], b[k]) for a, b, k in zip(x, y, kept, strict=True)]
    return np.array([correlation_of(a, b, ranked=True) if len(a) > 2 else np.nan for a, b in pairs])


@cache
def bonus_or_covariance(size, name, strength):
    """The `Run` of a control of the entropy by name at a strength, on 100 prompts (40 in a quick run)."""
    settings = pools(size.seeds, size(100, 40))
    return trained(settings, *(controls(strength)[name]))


def controls(strength):
    """{name: interventions}: α of the bonus; the share of the tokens of Clip-Cov and of KL-Cov (β = 1)."""
    return {
        "GRPO": (iv.PPOClip(),),
        "entropy bonus": (iv.PPOClip(), iv.EntropyBonus(strength)),
        "Clip-Cov": (iv.ClipCov(strength, 1.0, 5.0),),
        "KL-Cov": (iv.KLCov(strength, 1.0),),
    }


LEVEL = 0.5  # nats, where the returns of controls are compared
STRENGTHS = {
    "entropy bonus": (1e-2, 3e-2, 1e-1, 2e-1),
    "Clip-Cov": (2e-2, 2e-1, 5e-1),
    "KL-Cov": (2e-2, 2e-1, 5e-1),
}


@claim(
    "C62",
    "An entropy bonus moves every token, Cov methods few: at equal entropy the Cov methods have the higher return.",
    source="Cui et al. 2025 (arXiv:2505.22617), section 4",
    threshold="R at matched H higher for the Cov method; cosine of the update difference with the uniform direction",
)
def cov_methods_have_the_higher_return(size):
    """GRPO with PPO's clip and an entropy bonus, Clip-Cov (1 ≤ C ≤ 5) and KL-Cov (β = 1, as released) on 100 prompts,
    K = 10, one correct, σ = 1; 60 outer steps of 8 updates, one pool a seed. J where the mean entropy first crosses 0.5
    nats; each method at the strength (of 3 or 4) that has the highest. Beside it, at the fifth update on a batch from
    the start: what the method adds to the push of all states, its cosine with that of an entropy bonus, and the share
    of the drawn states where it adds anything.
    """
    runs = {(n, x): bonus_or_covariance(size, n, x) for n, strengths in STRENGTHS.items() for x in strengths}
    value = {each: crossing(found.entropy, LEVEL, found.expected_return) for each, found in runs.items()}
    score = {each: x.mean() for each, x in value.items() if np.isfinite(x).all()}
    best = {name: max((each for each in score if each[0] == name), key=score.get) for name in STRENGTHS}
    bonus = value[best["entropy bonus"]]
    base = bonus_or_covariance(size, "GRPO", 1e-3)
    plain = crossing(base.entropy, LEVEL, base.expected_return)
    added = {name: additions(size, name, best[name][1]) for name in STRENGTHS}
    statistics = [
        mean(f"J at H = 0.5, {name} − entropy bonus", value[best[name]] - bonus, at_least=POSITIVE)
        for name in ("Clip-Cov", "KL-Cov")
    ]
    statistics.append(mean("J at H = 0.5, GRPO − entropy bonus", plain - bonus, deciding=False, at_least=POSITIVE))
    for name, (cosine, pushed_share) in added.items():
        statistics += [
            mean(f"cosine with the bonus, {name}", cosine, deciding=False),
            mean(f"share of the drawn states pushed, {name}", pushed_share, deciding=False),
        ]
    at = {name: f"{value[each].mean():.3f}" for name, each in best.items()}
    few = {name: f"{value[name, 2e-2].mean():.3f}" for name in ("Clip-Cov", "KL-Cov")}
    part = {name: f"{found[1].mean():.0%}" for name, found in added.items()}
    shown = {"GRPO": base, **{f"{name} {x:g}": runs[name, x] for name, x in best.values()}}
    return Finding(
        tuple(statistics),
        counterexample=f"K = 10, one correct, σ = 1: J at 0.5 nats {at['entropy bonus']} (bonus), {at['Clip-Cov']} "
        f"(Clip-Cov), {at['KL-Cov']} (KL-Cov)."
        if min(each.value for each in statistics[:2]) < 0.0
        else "",
        says=f"At 0.5 nats J is {at['entropy bonus']} with the best bonus, {plain.mean():.3f} with none, "
        f"{at['Clip-Cov']} with Clip-Cov and {at['KL-Cov']} with KL-Cov. The bonus pushes "
        f"{part['entropy bonus']} of the states drawn, Clip-Cov {part['Clip-Cov']}, KL-Cov {part['KL-Cov']}.",
        boundary="The best strengths are "
        + ", ".join(f"{name} {x:g}" for name, x in best.values())
        + f"; Clip-Cov and KL-Cov on 2 % of the tokens have {few['Clip-Cov']} and {few['KL-Cov']}.",
        meaning="How many tokens a control touches does not say what it costs: compare returns at equal entropy, each "
        "control at its best strength.",
        table=path_table(shown),
        panels=path_panels(shown),
    )


def additions(size, name, strength):
    """(cosine of what a control adds to the push with what a bonus adds, share of drawn states where it adds) [N]."""
    settings = pools(size.seeds, size(100, 40))
    problem, logits = stacked(settings)
    groups = logits.shape[1]
    keys = jax.random.split(jax.random.key(0), len(settings))
    with_bonus = (iv.PPOClip(0.99, 5.0), iv.EntropyBonus(1.0))
    plain = (iv.PPOClip(0.99, 5.0),)
    own = (*plain, *(part for part in controls(strength)[name] if not isinstance(part, iv.PPOClip)))

    def one(problem, table, key):
        tokens = Sampled(groups, 8, GRPO())(key, problem, softmax(table))
        moved = table
        for _ in range(4):
            now = softmax(moved)
            moved = moved + PUSH * groups * gradient(tokens, pushed(plain, key, under(tokens, now), now)[0], now)
        now = softmax(moved)
        push = [
            gradient(tokens, pushed(parts, key, under(tokens, now), now)[0], now) for parts in (plain, own, with_bonus)
        ]
        added, uniform = push[1] - push[0], push[2] - push[0]
        cosine = jnp.sum(added * uniform) / (jnp.linalg.norm(added) * jnp.linalg.norm(uniform))
        drawn = jnp.any(uniform != 0.0, -1)
        return cosine, jnp.mean(jnp.any(added != 0.0, -1), where=drawn)

    return [np.asarray(x) for x in jax.jit(jax.vmap(one), compiler_options=quick_options())(problem, logits, keys)]
