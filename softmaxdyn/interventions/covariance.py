"""Selections by covariance: Clip-Cov and KL-Cov of Cui et al. 2025 (arXiv:2505.22617), as printed and as released."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, covariance_score, mix, top_share


@config
class KLCov(Intervention):
    """w = r A − β sign(log r) for the tokens of the highest covariance score, as released.

    A no-op on the first inner step, where the two policies are equal (sign(0) = 0), although tokens are selected.
    """

    fraction: Number = 2e-3  # of the tokens, at least one
    coefficient: Number = 1.0  # β, nats⁻¹

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        share = top_share(covariance_score(tokens), tokens, self.fraction, population=key is None)
        pull = self.coefficient * jnp.sign(tokens.log_prob - tokens.old_log_prob)
        return push._replace(score=mix(share, push.score - pull, push.score), selected=share)
