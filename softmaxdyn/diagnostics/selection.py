"""The tokens of a log that an intervention selects, or how much of each it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from softmaxdyn.diagnostics.log import Array, Log
from softmaxdyn.diagnostics.scores import top_count
from softmaxdyn.errors import InputError
from softmaxdyn.interventions.covariance import ClipCov, KLCov
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.interventions.reweighting import Steer, SteerReleased, SteerReleasedLinear
from softmaxdyn.tokens import Tokens, plain_push

CANDIDATES = "candidates"


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
            found[name] = _chosen_by_kl_cov(method, ranked)
        elif isinstance(method, ClipCov) and type(method).choose is ClipCov.choose:
            found[f"{name} {CANDIDATES}"], found[name] = _chosen_by_clip_cov(method, tokens, seed)
        else:
            found[name] = touch(tokens, method, seed)
    return found


def _chosen_by_kl_cov(method: KLCov, ranked: Int[Array, " N"]) -> Bool[Array, " N"]:
    """What `method.choose` chooses, from the ranks that the tail table needs too."""
    chosen = np.zeros(len(ranked), bool)
    chosen[ranked[: top_count(method.fraction, len(ranked))]] = True
    return chosen


def _chosen_by_clip_cov(method: ClipCov, tokens: Tokens, seed: int = 0) -> tuple[Bool[Array, " N"], Bool[Array, " N"]]:
    """(candidates, chosen): the candidates of `method`, and as many of them as it draws, drawn by NumPy."""
    inside = np.asarray(jax.jit(type(method).candidates)(method, jax.random.key(seed), tokens))
    count = min(top_count(method.fraction, len(inside)), int(inside.sum()))
    chosen = np.zeros(len(inside), bool)
    chosen[np.random.default_rng(seed).choice(np.flatnonzero(inside), count, replace=False, shuffle=False)] = True
    return inside, chosen
