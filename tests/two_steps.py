"""The smallest problem of several steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from softmaxdyn import Episode


class TwoSteps(NamedTuple):
    """Two states one after the other, of two actions; an episode ends early after action 1. Paid at each step."""

    shape = (2, 2)
    episodes_at_once = 1.0

    def visits(self, probs):
        return jnp.stack([jnp.ones(()), probs[0, 0]])

    def action_values(self, probs):
        later = probs[1] @ jnp.array([0.5, 0.25])
        return jnp.array([[0.25, 0.5], [0.5, 0.25]]) + jnp.array([[1.0, 0.0], [0.0, 0.0]]) * later

    def expected_return(self, probs):
        return probs[0] @ self.action_values(probs)[0]

    def sample_start(self, key):
        return jnp.int32(0)

    def rollout(self, key, logits, start=None):
        keys = jax.random.split(key)
        first, second = (jax.random.categorical(k, row).astype(jnp.int32) for k, row in zip(keys, logits, strict=True))
        reward = jnp.array([[0.25, 0.5], [0.5, 0.25]])
        paid = jnp.stack([reward[0, first], reward[1, second]])
        return Episode(
            jnp.array([0, 1], jnp.int32), jnp.stack([first, second]), paid, jnp.stack([first == first, first == 0])
        )
