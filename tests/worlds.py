"""One problem of each kind, all of one shape and with as many tokens, so that a part compiles once for all of them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import MDP, Bandit, Exact, Sampled, TokenTree
from softmaxdyn.advantages import GRPO
from softmaxdyn.policy import softmax
from softmaxdyn.tokens import Tokens
from tests.compiled import compiled

SHAPE = (6, 3)
UNREACHABLE, TERMINAL = 4, 5  # states of the discounted MDP
COUNT = 64
BEFORE = jax.jit(softmax)(jnp.asarray(np.random.default_rng(2).standard_normal(SHAPE)))
AFTER = jax.jit(softmax)(BEFORE.logits + 0.3 * np.random.default_rng(3).standard_normal(SHAPE))


def even(response):
    return float(sum(response) % 2 == 0)


def transitions(states, closed=()):
    table = np.random.default_rng(0).dirichlet(np.ones(states), (states, 3))
    table[..., list(closed)] = 0.0
    return table / table.sum(-1, keepdims=True)


@cache
def worlds():
    """By name: a bandit, a token tree with two prompts and an end token, and the two kinds of MDP."""
    rewards = (np.random.default_rng(1).random(SHAPE) < 0.4).astype(float)
    return {
        "bandit": Bandit(rewards),
        "tree": TokenTree([even, lambda y: 1.0 - even(y)], vocabulary=3, depth=2, end=True),
        "discounted": MDP(transitions(6, [UNREACHABLE]), rewards, discount=0.5, terminal=[TERMINAL], length=2),
        "time-limited": MDP(transitions(3), rewards[:3], horizon=2),
    }


@cache
def tokens_of(world):
    """(key, tokens of BEFORE) of a sample and of the population, padded to COUNT tokens."""
    draw = compiled(lambda estimator, problem, key: estimator(key, problem, BEFORE))
    sampled = draw(Sampled(8, 4), worlds()[world], jax.random.key(3))
    exact = draw(Exact(GRPO()), worlds()[world], None)
    return [(jax.random.key(5), padded(sampled)), (None, padded(exact))]


def padded(tokens):
    """The tokens, and others of weight 0 behind them."""
    more = COUNT - tokens.weight.size
    fields = Tokens(*(jnp.pad(field, (0, more)) for field in tokens))
    beyond = jnp.where(jnp.arange(COUNT) < COUNT - more, fields.episode, COUNT - 1)
    return fields._replace(episode=beyond)
