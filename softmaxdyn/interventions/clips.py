"""Surrogates and clips: how far a token may move once the policy has left the one that drew it.

Each is a no-op to the bit on the first inner step, where every ratio is 1.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, ratio


def outside(tokens: Tokens, r: Float[Array, " N"], low: Number, high: Number) -> Bool[Array, " N"]:
    """Whether PPO clips the token: A > 0 and r > 1 + high, or A < 0 and r < 1 − low (strict)."""
    a = tokens.advantage
    return ((a > 0.0) & (r > 1.0 + high)) | ((a < 0.0) & (r < 1.0 - low))


@config
class PPOClip(Intervention):
    """w = r A where the ratio is inside [1 − low, 1 + high] on the side where A pushes it out, else 0.

    source  Schulman et al. 2017 (arXiv:1707.06347); Clip-Higher: high = 0.28 (DAPO, arXiv:2503.14476)
    """

    low: Number = 0.2
    high: Number = 0.2

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy | None, push: Push) -> Push:
        cut = outside(tokens, ratio(tokens), self.low, self.high)
        return push._replace(score=jnp.where(cut, 0.0, push.score), selected=cut.astype(push.score.dtype))
