"""Loss forms: what the literature writes and differentiates, as matrices [B, T] of log-probabilities. Test oracles.

Every function gives the loss of each token; `value` aggregates. They are written for `jax.grad` with the subgradients
of the reference: a clamp passes the whole gradient at its bounds, |x| has slope 0 at 0, a tie of max or min halves it.
Masked cells must hold finite numbers.
"""

import jax
import jax.numpy as jnp

constant = jax.lax.stop_gradient


def clamp(x, low, high):
    """x within [low, high]; slope 1 on both bounds."""
    return jnp.where((x >= low) & (x <= high), x, constant(jnp.clip(x, low, high)))


def absolute(x):
    """|x|; slope 0 at 0."""
    return jnp.where(x > 0.0, x, jnp.where(x < 0.0, -x, 0.0))


def sequence_mean(x, mask):
    """The mean of each row over its valid cells, 0 for a row without any: [B, 1]."""
    return jnp.sum(x * mask, -1, keepdims=True) / jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1.0)


def reinforce(log_prob, old, advantage):
    """−A log π, also of GPG."""
    return -advantage * log_prob


def surrogate(log_prob, old, advantage):
    """−r A."""
    return -advantage * jnp.exp(log_prob - old)


def ppo(log_prob, old, advantage, low, high, limit=20.0):
    """max(−r A, −clip(r) A), log r cut at ±limit."""
    r = jnp.exp(clamp(log_prob - old, -limit, limit))
    return jnp.maximum(-advantage * r, -advantage * clamp(r, 1.0 - low, 1.0 + high))


def dual_clip(log_prob, old, advantage, low, high, c, limit=20.0):
    """PPO's loss, but at most −c A where A < 0."""
    clipped = ppo(log_prob, old, advantage, low, high, limit)
    return jnp.where(advantage < 0.0, jnp.minimum(clipped, -c * advantage), clipped)


def clip_cov(log_prob, old, advantage, low, high, selected):
    """PPO's loss times 0 on the selected tokens."""
    return ppo(log_prob, old, advantage, low, high, limit=jnp.inf) * (1.0 - selected)


def kl_cov(log_prob, old, advantage, coefficient, selected):
    """−r A + β |log r| on the selected tokens."""
    return surrogate(log_prob, old, advantage) + coefficient * absolute(log_prob - old) * selected


def gspo(log_prob, old, advantage, low, high, mask, limit=10.0):
    """PPO's loss of the sequence's ratio; the gradient is each token's own."""
    s = constant(sequence_mean(log_prob - old, mask))
    s = jnp.exp(clamp(log_prob - constant(log_prob) + s, -jnp.inf, limit))
    return jnp.maximum(-advantage * s, -advantage * clamp(s, 1.0 - low, 1.0 + high))


def geo_mean(log_prob, old, advantage, low, high, mask):
    """−Ā exp(mean of log r cut on the side of A), the same for every token of a row."""
    d, sign = log_prob - old, jnp.sign(advantage)
    d = sign * jnp.minimum(sign * d, sign * clamp(d, -low, high))
    return -sequence_mean(advantage, mask) * jnp.exp(sequence_mean(d, mask)) * jnp.ones_like(mask)


def cispo(log_prob, old, advantage, low, high):
    """−sg(clip(r)) A log π."""
    return -constant(jnp.clip(jnp.exp(log_prob - old), 1.0 - low, 1.0 + high)) * advantage * log_prob


def sapo(log_prob, old, advantage, tau_positive, tau_negative):
    """−A σ(τ (r − 1)) 4/τ; log σ(x) = −softplus(−x) keeps the slope's digits where σ is nearly 1."""
    tau = jnp.where(advantage > 0.0, tau_positive, tau_negative)
    gate = jnp.exp(-jax.nn.softplus(-tau * (jnp.exp(log_prob - old) - 1.0)))
    return -advantage * gate * 4.0 / tau


def ce_gppo(log_prob, old, advantage, low, high, beta_1, beta_2):
    """−r A, outside PPO's bounds rescaled to β times the bound."""
    r = jnp.exp(log_prob - old)
    scale = jnp.where((advantage < 0.0) & (r < 1.0 - low), beta_1 * (1.0 - low) / constant(r), 1.0)
    scale = jnp.where((advantage > 0.0) & (r > 1.0 + high), beta_2 * (1.0 + high) / constant(r), scale)
    return -advantage * scale * r


def value(loss, weight):
    """Σ weight · L; masked cells, of weight 0, do not count whatever they hold."""
    return jnp.sum(jnp.where(weight > 0.0, weight * loss, 0.0))
