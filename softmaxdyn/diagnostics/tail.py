"""The tail of the covariance score, beside its control: the same with the advantages permuted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from softmaxdyn.diagnostics.log import Array, Log
from softmaxdyn.diagnostics.scores import centred, covariance_score, entropy_effects, top_count
from softmaxdyn.errors import check_integer

TAILS = (2e-4, 2e-3, 2e-2, 0.2, 0.5, 1.0)  # of the tokens


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
    surprise, advantage = centred(log.log_prob), centred(log.advantage)
    random = np.random.default_rng(seed)
    found: list[tuple[Array, ...]] = []
    for _ in range(check_integer("permutations", permutations, 1)):
        score = np.sort(surprise * random.permutation(advantage))[::-1]
        gross = top_shares(score, counts)[1]
        found.append((_top_sums(score, counts) / counts, gross, score[rank - 1], score[-rank]))
    return found
