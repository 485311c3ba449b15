"""The smallest problem of several steps."""

from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import Episode, Problem, config

REWARDS = np.array([[0.25, 0.5], [0.5, 0.25]])


@config
class TwoSteps(Problem):
    """Two states one after the other, of two actions; an episode ends early after action 1. Paid at each step."""

    rewards: np.ndarray = field(default_factory=lambda: REWARDS)

    def __repr__(self):
        return "TwoSteps()"

    @property
    def start(self):
        return np.array([1.0, 0.0])

    def visits(self, probs, start=None):
        first, second = self.start if start is None else start
        return jnp.stack([jnp.asarray(first, probs.dtype), second + first * probs[0, 0]])

    def ahead(self, values):
        return jnp.zeros((2, 2), values.dtype).at[0, 0].set(values[1])

    def to_go(self, probs, values):
        return jnp.zeros_like(probs).at[0, 0].set(values[1])

    def rollout(self, key, logits, start=None):
        keys = jax.random.split(key)
        first, second = (jax.random.categorical(k, row).astype(jnp.int32) for k, row in zip(keys, logits, strict=True))
        paid = jnp.stack([jnp.asarray(self.rewards)[0, first], jnp.asarray(self.rewards)[1, second]])
        return Episode(
            jnp.array([0, 1], jnp.int32), jnp.stack([first, second]), paid, jnp.stack([first == first, first == 0])
        )
