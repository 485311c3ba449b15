"""The two faces of an intervention on one small bandit: over all actions, and on large batches that were drawn."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import Bandit, Exact
from softmaxdyn.policy import softmax as policy_of
from softmaxdyn.tokens import Tokens, gradient, plain_push, under

softmax = jax.jit(policy_of)
REWARDS = np.array([[1.0, 0.0, 0.4, 0.0], [0.0, 0.0, 1.0, 0.3], [0.5, 0.5, 0.5, 0.5]])  # the last state has no signal
BANDIT = Bandit(REWARDS, [0.5, 0.3, 0.2])
OLD = softmax(jnp.array([[0.8, 0.1, -0.6, 0.3], [0.0, 0.9, -1.2, 0.2], [0.2, -0.4, 0.5, 0.0]]))
NOW = softmax(OLD.logits + jnp.array([[0.3, -0.2, 0.1, 0.0], [-0.4, 0.2, 0.3, 0.0], [0.1, 0.0, -0.2, 0.2]]))
REFERENCE = np.array([[0.0, 0.5, 0.2, -0.3], [0.3, 0.1, 0.0, 0.4], [0.0, 0.6, -0.2, 0.1]])

BATCHES, SIZE = 64, 16384


@jax.jit
def population(policy=NOW, old=OLD, bandit=BANDIT):
    """All pairs (s, a) under `policy`, with the weights and advantages of `old`."""
    return under(Exact()(None, bandit, old), policy)


def direction(part, tokens, policy=NOW, key=None):
    """Where the tokens push the logits of `policy` after `part`."""
    return gradient(tokens, part(key, tokens, policy, plain_push(tokens, policy.prob.shape)), policy)


def drawn(key, policy=NOW, old=OLD, bandit=BANDIT, size=SIZE):
    """`size` pairs of the population in proportion to their weights, one episode each; groups are states."""
    everything = population(policy, old, bandit)
    cumulative = jnp.cumsum(everything.weight)
    pick = jnp.searchsorted(cumulative, jax.random.uniform(key, (size,)) * cumulative[-1], side="right")
    share = jnp.full(size, jnp.sum(everything.weight) / size)
    return Tokens(*(field[pick] for field in everything))._replace(weight=share, episode=jnp.arange(size))


@cache
def batches():
    """The batches of drawn tokens, about 10⁶ tokens in all."""
    return jax.jit(jax.vmap(drawn))(jax.random.split(jax.random.key(1), BATCHES))


def standard_errors_apart(part):
    """(mean over batches of the sampled direction − exact direction)/standard error, in every cell that varies."""
    sampled = np.asarray(jax.vmap(lambda batch: direction(part, batch, key=jax.random.key(2)))(batches()))
    exact = np.asarray(direction(part, population()))
    error = sampled.std(0, ddof=1) / np.sqrt(BATCHES)
    apart = sampled.mean(0) - exact
    np.testing.assert_allclose(apart[error < 1e-15], 0.0, atol=1e-14)
    return apart[error >= 1e-15] / error[error >= 1e-15]
