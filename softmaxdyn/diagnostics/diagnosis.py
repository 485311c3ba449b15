"""A diagnosis: all that a log says, in one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from softmaxdyn.diagnostics.divergence import Ratios, divergences, ratios
from softmaxdyn.diagnostics.estimates import Estimate, estimate
from softmaxdyn.diagnostics.groups import Groups, groups_without_signal
from softmaxdyn.diagnostics.log import Array, Log
from softmaxdyn.diagnostics.profiles import Profile, profile
from softmaxdyn.diagnostics.scores import covariance_score, order
from softmaxdyn.diagnostics.selection import touches
from softmaxdyn.diagnostics.tail import Tail, covariance_tail
from softmaxdyn.interventions.protocol import Intervention


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
