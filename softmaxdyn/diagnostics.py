"""What a log of tokens says about entropy: covariance tail, selected tokens, divergences, groups without signal.

Everything is NumPy in float64, and works on 10⁷ tokens: a few sorts, no table over actions. Natural logarithms, nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.interventions.covariance import ClipCov, KLCov
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.interventions.reweighting import Steer, SteerReleased, SteerReleasedLinear
from softmaxdyn.tokens import Tokens, plain_push

Array = np.ndarray

TAILS = (2e-4, 2e-3, 2e-2, 0.2, 0.5, 1.0)  # of the tokens
QUANTILES = (0.001, 0.01, 0.5, 0.99, 0.999)
CANDIDATES = "candidates"


class Log(NamedTuple):
    """N recorded tokens, drawn from the policy that acted (`old`); what was not recorded is None.

    log_prob            log π of the token under the current policy
    old_log_prob        log π_old of it under the policy that acted
    advantage           A
    entropy             H of the current policy's whole distribution at the token
    mean_entropy_score  S̄ = Σ_b π_b² (log π_b + H) of the same distribution
    group, episode      numbers from 0 up, no two groups sharing an episode
    position            step of the token in its episode
    notes               what was left out on reading
    """

    log_prob: Float[Array, " N"]
    old_log_prob: Float[Array, " N"]
    advantage: Float[Array, " N"]
    entropy: Float[Array, " N"] | None = None
    mean_entropy_score: Float[Array, " N"] | None = None
    position: Float[Array, " N"] | None = None
    reward: Float[Array, " N"] | None = None
    group: Int[Array, " N"] | None = None
    episode: Int[Array, " N"] | None = None
    notes: tuple[str, ...] = ()


class Estimate(NamedTuple):
    """A mean over tokens; its standard error if they were independent, and if only their episodes were."""

    mean: float
    error: float | None
    error_by_episode: float | None


class Tail(NamedTuple):
    """The top `fraction` [F] of the tokens by covariance score C, and P permutations of the advantages.

    mean            of C in the top
    net, gross      Σ C and Σ |C| of the top, as shares of all tokens
    permuted_*      [P, F] of the same; a net share there would divide by 0 up to noise
    effects         name → (net, gross) shares [F] of that form of the first-order −ΔH in the top, still ranked by C
    rank, highest   [R] a rank-ordered curve: the rank from 1 up and the C there; lowest, ranked from the lowest C up
    """

    fraction: Float[Array, " F"]
    tokens: Int[Array, " F"]
    mean: Float[Array, " F"]
    net: Float[Array, " F"]
    gross: Float[Array, " F"]
    permuted_mean: Float[Array, "P F"]
    permuted_gross: Float[Array, "P F"]
    effects: dict[str, tuple[Float[Array, " F"], Float[Array, " F"]]]
    rank: Int[Array, " R"]
    highest: Float[Array, " R"]
    lowest: Float[Array, " R"]
    permuted_highest: Float[Array, "P R"]
    permuted_lowest: Float[Array, "P R"]


class Profile(NamedTuple):
    """Who the touched tokens are: means over the tokens, weighted with how much of each is touched.

    tokens is the sum of these weights; share their mean; likely_and_good the share with A > 0 and π > ½.
    """

    tokens: float
    share: float
    positive: float | None = None
    negative: float | None = None
    likely_and_good: float | None = None
    mean_probability: float | None = None
    median_probability: float | None = None
    mean_score: float | None = None
    mean_entropy: float | None = None
    mean_position: float | None = None


class Ratios(NamedTuple):
    """π/π_old over the tokens: extremes, quantiles, and the share outside [1 − low, 1 + high].

    on_policy           every token has the same probability under both policies, to the bit
    largest_log_ratio   max |log r|
    harmful             outside on the side where A pushes further out (above: A > 0, below: A < 0): what PPO clips
    """

    on_policy: bool
    largest_log_ratio: float
    smallest: float
    largest: float
    mean: float
    quantiles: dict[str, float]
    outside: float
    harmful: float
    harmful_above: float
    harmful_below: float


class Groups(NamedTuple):
    """How many groups there are, and in how many nothing is to be learnt.

    equal          all advantages are equal (rounding may leave them equal and not 0)
    zero           all are 0
    equal_reward   all rewards are equal
    one_episode    have one episode only, so their advantages are equal if each episode has one
    """

    groups: int
    equal: int
    zero: int
    equal_reward: int | None
    one_episode: int | None


class Diagnosis(NamedTuple):
    """All of it, without an array as long as the log."""

    tokens: int
    episodes: int | None
    notes: tuple[str, ...]
    tail: Tail
    profiles: dict[str, Profile]
    divergences: dict[str, Estimate]
    ratios: Ratios
    mean_surprisal: Estimate
    mean_entropy: Estimate | None
    surprisal_minus_entropy: Estimate | None
    groups: Groups | None


def log_ratio(log: Log) -> Float[Array, " N"]:
    """log π − log π_old, cut at ±log √max like `tokens.ratio`, so that its exponential stays finite."""
    limit = 0.5 * np.log(np.finfo(float).max)
    return np.clip(log.log_prob - log.old_log_prob, -limit, limit)


def covariance_score(log: Log) -> Float[Array, " N"]:
    """C_i = (log π_i − mean log π)(A_i − mean A): equation 10 of Cui et al. 2025 (arXiv:2505.22617)."""
    return _centred(log.log_prob) * _centred(log.advantage)


def _centred(values: Float[Array, " N"]) -> Float[Array, " N"]:
    """Less their mean; 0, not rounding, where all are equal."""
    return np.zeros_like(values) if values.min() == values.max() else values - values.mean()


def entropy_effects(log: Log) -> dict[str, Float[Array, " N"]]:
    """The first-order −ΔH of each token per unit of step size, in the forms that the log allows; w = (π/π_old) A.

    exact        w (S − S̄): the whole push w (e_a − π) of T7; needs mean_entropy_score
    own_logit    w S: exact for the token's own logit moved by w alone, S = π (log π + H) = −∂H/∂z_a; needs entropy
    others_held  w (1 − π) S: the others held although the push moves them (STEER's estimate, arXiv:2510.10150)

    On policy and with E[A|s] = 0 the sum of own_logit has the mean of the exact one; its shares by rank have not.
    """
    if log.entropy is None:
        return {}
    probability = np.exp(log.log_prob)
    weight = np.exp(log_ratio(log)) * log.advantage
    score = probability * (log.log_prob + log.entropy)
    exact = {} if log.mean_entropy_score is None else {"exact": weight * (score - log.mean_entropy_score)}
    return exact | {"own_logit": weight * score, "others_held": weight * -np.expm1(log.log_prob) * score}


def order(score: Float[Array, " N"]) -> Int[Array, " N"]:
    """The tokens from the highest score down, the first of equals first."""
    return np.argsort(-score, kind="stable")


def top_count(fraction: Any, tokens: int) -> int:
    """max(1, ⌊fraction · N⌋)."""
    return max(1, int(np.floor(float(fraction) * tokens)))


def covariance_tail(log: Log, ranked: Int[Array, " N"], *, permutations: int = 10, seed: int = 0) -> Tail:
    """The tail table of C; `ranked` is `order(covariance_score(log))`.

    The control keeps both marginals and breaks the link between log π and A: a long tail of C needs no link.
    """
    tokens = len(ranked)
    counts = np.array([top_count(fraction, tokens) for fraction in TAILS])
    rank = np.unique(np.geomspace(1, tokens, 200).round().astype(int))
    score = covariance_score(log)[ranked]
    net, gross = top_shares(score, counts)
    means, shares, highest, lowest = map(np.array, zip(*_permuted(log, counts, rank, permutations, seed), strict=True))
    return Tail(
        fraction=np.array(TAILS),
        tokens=counts,
        mean=_top_sums(score, counts) / counts,
        net=net,
        gross=gross,
        permuted_mean=means,
        permuted_gross=shares,
        effects={name: top_shares(effect[ranked], counts) for name, effect in entropy_effects(log).items()},
        rank=rank,
        highest=score[rank - 1],
        lowest=score[-rank],
        permuted_highest=highest,
        permuted_lowest=lowest,
    )


def top_shares(values: Float[Array, " N"], counts: Int[Array, " F"]) -> tuple[Float[Array, " F"], Float[Array, " F"]]:
    """(Σ of the first `counts` / Σ of all, the same of |values|); NaN where the whole sum is 0."""
    net, gross = (_top_sums(x, counts) / (x.sum() or np.nan) for x in (values, np.abs(values)))
    return net, gross


def _top_sums(values: Float[Array, " N"], counts: Int[Array, " F"]) -> Float[Array, " F"]:
    return np.array([values[:count].sum() for count in counts])


def _permuted(log: Log, counts: Array, rank: Array, permutations: int, seed: int) -> list[tuple[Array, ...]]:
    """(mean, gross share, highest, lowest) for each of the permutations of the advantages."""
    surprise, advantage = _centred(log.log_prob), _centred(log.advantage)
    random = np.random.default_rng(seed)
    found: list[tuple[Array, ...]] = []
    for _ in range(check_integer("permutations", permutations, 1)):
        score = np.sort(surprise * random.permutation(advantage))[::-1]
        gross = top_shares(score, counts)[1]
        found.append((_top_sums(score, counts) / counts, gross, score[rank - 1], score[-rank]))
    return found


def tokens_of(log: Log) -> Tokens:
    """The log as JAX arrays for an intervention: one state, weight 1 each; an entropy or reward not known is NaN."""
    size, real = len(log.log_prob), jnp.asarray(log.log_prob).dtype
    zero, nan = jnp.zeros(size, jnp.int32), jnp.full(size, jnp.nan, real)
    whole = {name: getattr(log, name) for name in ("group", "episode", "position")}
    unsure = {name: getattr(log, name) for name in ("entropy", "reward")}
    return Tokens(
        state=zero,
        action=zero,
        weight=jnp.ones(size, real),
        advantage=jnp.asarray(log.advantage),
        log_prob=jnp.asarray(log.log_prob),
        old_log_prob=jnp.asarray(log.old_log_prob),
        **{name: nan if values is None else jnp.asarray(values) for name, values in unsure.items()},
        **{name: zero if values is None else jnp.asarray(values, jnp.int32) for name, values in whole.items()},
    )


def touch(tokens: Tokens, method: Intervention, seed: int = 0) -> Float[Array, " N"]:
    """How much of each token's score the method takes: the share that it says it selects, else |1 − new/old|.

    Any intervention that needs no policy. Clip-Cov and KL-Cov have their faster road in `touches`.
    """
    return np.asarray(_touch(method, tokens, jax.random.key(seed)))


@jax.jit
def _touch(method: Any, tokens: Tokens, key: jax.Array) -> jax.Array:
    before = plain_push(tokens, (1, 1))
    after = method(key, tokens, None, before)
    if after.selected is not before.selected:
        return after.selected
    moved = before.score != 0.0
    return jnp.abs(1.0 - jnp.where(moved, after.score / jnp.where(moved, before.score, 1.0), 1.0))


def chosen_by_kl_cov(method: KLCov, ranked: Int[Array, " N"]) -> Bool[Array, " N"]:
    """What `method.choose` chooses, from the ranks that the tail table needs too."""
    chosen = np.zeros(len(ranked), bool)
    chosen[ranked[: top_count(method.fraction, len(ranked))]] = True
    return chosen


def chosen_by_clip_cov(method: ClipCov, tokens: Tokens, seed: int = 0) -> tuple[Bool[Array, " N"], Bool[Array, " N"]]:
    """(candidates, chosen): the candidates of `method`, and as many of them as it draws, drawn by NumPy."""
    inside = np.asarray(jax.jit(type(method).candidates)(method, jax.random.key(seed), tokens))
    count = min(top_count(method.fraction, len(inside)), int(inside.sum()))
    chosen = np.zeros(len(inside), bool)
    chosen[np.random.default_rng(seed).choice(np.flatnonzero(inside), count, replace=False, shuffle=False)] = True
    return inside, chosen


def touches(
    log: Log, methods: Mapping[str, Intervention], ranked: Int[Array, " N"], *, seed: int = 0
) -> dict[str, Array]:
    """name → how much of each token the method touches; Clip-Cov also has its candidates, as "name candidates".

    Raises InputError for STEER on a log without entropies.
    """
    found: dict[str, Array] = {}
    tokens = tokens_of(log)
    for name, method in methods.items():
        if isinstance(method, Steer | SteerReleased | SteerReleasedLinear) and log.entropy is None:
            raise InputError(f"{name} needs the entropy of each token; the log has no column entropy")
        if type(method) is KLCov:
            found[name] = chosen_by_kl_cov(method, ranked)
        elif isinstance(method, ClipCov) and type(method).choose is ClipCov.choose:
            found[f"{name} {CANDIDATES}"], found[name] = chosen_by_clip_cov(method, tokens, seed)
        else:
            found[name] = touch(tokens, method, seed)
    return found


def profile(log: Log, touched: Array) -> Profile:
    """The profile of the tokens, each weighted with how much of it is touched."""
    at = np.flatnonzero(touched)
    weight = touched[at].astype(float)
    total = float(weight.sum())
    if not total:
        return Profile(0.0, 0.0)
    advantage, probability = log.advantage[at], np.exp(log.log_prob[at])

    def mean(values: Array) -> float:
        return float(weight @ values) / total

    known = {name: None if values is None else mean(values[at]) for name, values in _known(log).items()}
    return Profile(
        tokens=total,
        share=total / len(touched),
        positive=mean(advantage > 0.0),
        negative=mean(advantage < 0.0),
        likely_and_good=mean((advantage > 0.0) & (probability > 0.5)),
        mean_probability=mean(probability),
        median_probability=weighted_median(probability, weight),
        mean_score=mean((log.log_prob[at] - log.log_prob.mean()) * (advantage - log.advantage.mean())),
        **known,
    )


def _known(log: Log) -> dict[str, Array | None]:
    return {"mean_entropy": log.entropy, "mean_position": log.position}


def weighted_median(values: Float[Array, " n"], weight: Float[Array, " n"]) -> float:
    """The smallest value with at least half of the weight on it and below it."""
    ranked = np.argsort(values)
    below = np.cumsum(weight[ranked])
    return float(values[ranked[np.searchsorted(below, 0.5 * below[-1])]])


def estimate(values: Float[Array, " N"], episode: Int[Array, " N"] | None = None) -> Estimate:
    """The mean of values over the tokens and its standard errors; finite whatever the size of the values.

    By episode: √(E/(E−1) Σ_e (Σ_{i∈e} (x_i − x̄))²)/N, since tokens of an episode are not independent.
    """
    size = float(np.abs(values).max()) or 1.0
    count = len(values)
    x = values / size
    mean = float(x.mean())
    error = float(x.std(ddof=1)) / np.sqrt(count) * size if count > 1 else None
    if episode is None or episode.max() == 0:
        return Estimate(mean * size, error, None)
    of_episode = np.bincount(episode, x - mean)
    inflation = len(of_episode) / (len(of_episode) - 1)
    return Estimate(mean * size, error, float(np.sqrt(inflation * np.sum(of_episode**2))) / count * size)


def divergences(log: Log) -> dict[str, Estimate]:
    """KL(π_old‖π) by k1 = −log r, k2 = (log r)²/2, k3 = r − 1 − log r, and χ²(π‖π_old) by (r − 1)², r = π/π_old.

    All but k2 are unbiased when the tokens were drawn from π_old. k3 ≥ 0 always; k1 may be negative.
    """
    d, excess = log.log_prob - log.old_log_prob, np.expm1(log_ratio(log))
    with np.errstate(over="ignore"):
        squared = np.minimum(excess * excess, np.finfo(float).max)
    forms = {"k1": -d, "k2": 0.5 * d * d, "k3": np.maximum(excess - d, 0.0), "chi2": squared}
    return {name: estimate(values, log.episode) for name, values in forms.items()}


def ratios(log: Log, low: float = 0.2, high: float = 0.2) -> Ratios:
    """The ratio and clip statistics."""
    r, a = np.exp(log_ratio(log)), log.advantage
    above, below = r > 1.0 + high, r < 1.0 - low
    return Ratios(
        on_policy=bool(np.array_equal(log.log_prob, log.old_log_prob)),
        largest_log_ratio=float(np.abs(log_ratio(log)).max()),
        smallest=float(r.min()),
        largest=float(r.max()),
        mean=float(r.mean()),
        quantiles={f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(r, QUANTILES), strict=True)},
        outside=float(np.mean(above | below)),
        harmful=float(np.mean((above & (a > 0.0)) | (below & (a < 0.0)))),
        harmful_above=float(np.mean(above & (a > 0.0))),
        harmful_below=float(np.mean(below & (a < 0.0))),
    )


def groups_without_signal(log: Log) -> Groups | None:
    """How many groups have nothing to learn from; None if the log has no groups."""
    if log.group is None:
        return None
    low, high = _range(log.advantage, log.group)
    reward = None if log.reward is None else _range(log.reward, log.group)
    single = None if log.episode is None else int(np.sum(np.equal(*_range(log.episode, log.group))))
    return Groups(
        groups=len(low),
        equal=int(np.sum(low == high)),
        zero=int(np.sum((low == 0.0) & (high == 0.0))),
        equal_reward=None if reward is None else int(np.sum(np.equal(*reward))),
        one_episode=single,
    )


def _range(values: Array, group: Int[Array, " N"]) -> tuple[Array, Array]:
    """The smallest and the largest of the known values in each group."""
    groups, known = int(group.max()) + 1, ~np.isnan(values)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, group[known], values[known])
    np.maximum.at(high, group[known], values[known])
    return low, high


def diagnose(
    log: Log,
    methods: Mapping[str, Intervention],
    *,
    low: float = 0.2,
    high: float = 0.2,
    permutations: int = 10,
    seed: int = 0,
) -> tuple[Diagnosis, dict[str, Array]]:
    """The diagnosis of a log, and how much of each token every method touches."""
    ranked = order(covariance_score(log))
    touched = touches(log, methods, ranked, seed=seed)
    gap = None if log.entropy is None else estimate(-log.log_prob - log.entropy, log.episode)
    diagnosis = Diagnosis(
        tokens=len(log.log_prob),
        episodes=None if log.episode is None else int(log.episode.max()) + 1,
        notes=log.notes,
        tail=covariance_tail(log, ranked, permutations=permutations, seed=seed),
        profiles={"all tokens": profile(log, np.ones(len(ranked), bool))}
        | {name: profile(log, share) for name, share in touched.items()},
        divergences=divergences(log),
        ratios=ratios(log, low, high),
        mean_surprisal=estimate(-log.log_prob, log.episode),
        mean_entropy=None if log.entropy is None else estimate(log.entropy, log.episode),
        surprisal_minus_entropy=gap,
        groups=groups_without_signal(log),
    )
    return diagnosis, touched


def plain(value: Any) -> Any:
    """The value in terms of JSON: records as objects, arrays as lists, NaN as null."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain(each) for each in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
