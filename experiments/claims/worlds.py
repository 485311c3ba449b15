"""What the claims are tried on: pools of prompts, one a seed, and their runs, all seeds at once."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn.algorithms import Algorithm
from softmaxdyn.configs import with_dtype
from softmaxdyn.files.counts import from_counts
from softmaxdyn.policy import softmax
from softmaxdyn.problems.layout import Layout
from softmaxdyn.problems.named import named
from softmaxdyn.problems.setting import setting
from softmaxdyn.problems.token_tree import TokenTree
from softmaxdyn.simulation import advance, quick_options

PROMPTS = 200


def pools(seeds, prompts=PROMPTS, actions=10, correct=0.1, spread=1.0):
    """Settings of `seeds` pools: `correct` a share of the actions or a count, logits N(0, spread²)."""
    sizes = {"prompts": prompts, "actions": actions, "correct": correct, "spread": spread}
    return [named("pool", seed, **sizes) for seed in range(seeds)]


def realistic_pools(seeds, prompts=PROMPTS, actions=20, correct=5, samples=128):
    """Settings of pools made from tables of pass counts as a base model gives them: many prompts near 0 or 1.

    Each prompt passes Binomial(128, p) of 128 samples, p ~ Beta(0.5, 0.4), kept between 1 and 127.
    """
    found = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        passed = np.clip(draw.binomial(samples, draw.beta(0.5, 0.4, prompts)), 1, samples - 1)
        sizes = {"actions": actions, "correct": correct, "spread": 1.0}
        found.append(from_counts(np.full(prompts, samples), passed, options=sizes, seed=seed))
    return found


def trees(seeds, prompts=16, vocabulary=3, depth=4, spread=1.0):
    """Settings of token trees with an end token, logits N(0, spread²): 5 % to 50 % of a prompt's responses correct."""
    layout = Layout(prompts, vocabulary, depth, end=True)
    owner = np.concatenate([np.arange(prompts).repeat(layout.branching**level) for level in range(depth)])
    found = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        paid = draw.random(layout.shape) < draw.uniform(0.05, 0.5, prompts)[owner][:, None]
        problem = TokenTree((paid & layout.finishes()).astype(float), vocabulary=vocabulary, depth=depth, end=True)
        found.append(setting(problem, spread * draw.standard_normal(layout.shape), f"token tree, seed {seed}"))
    return found


def stacked(settings):
    """(problem, logits) of all settings, the seeds along axis 0 of every array."""
    problems = [with_dtype(setting.problem, np.dtype(float)) for setting in settings]
    logits = np.stack([np.asarray(setting.logits, float) for setting in settings])
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *problems), logits


def state_means(problem, step_size, policy, delta, selected):
    """What `follow` keeps of a step unless it is told otherwise: J, the mean entropy, the shares touched."""
    visits = problem.visits(policy.prob)
    entropy = jnp.sum(visits * policy.entropy) / jnp.sum(visits)
    return {"expected_return": problem.expected_return(policy.prob), "entropy": entropy, "selected": selected}


def follow(settings, algorithm, num_steps, *, every=1, inner_steps=1, observe=state_means, first_seed=0):
    """(fields, logits at the end [N, S, A]) of the runs of `algorithm`, one a setting, as NumPy arrays.

    Fields are [N, T, …]: what `observe` returns at the steps 0, every, …, and at the very end (T = ⌈steps/every⌉ + 1;
    δ of that last one is the step that would come). Step sizes, coefficients and the number of steps may change
    without a new compilation as long as T does not.
    """
    problem, logits = stacked(settings)
    keys = jax.random.split(jax.random.key(first_seed), len(settings))
    rows = -(-num_steps // every) + 1
    algorithms = [algorithm.start(table) for table in logits]
    several = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *algorithms)
    run = _runner(observe, rows, inner_steps)
    fields, final = run(problem, several, logits, keys, num_steps, every)
    return {name: np.asarray(x) for name, x in fields.items()}, np.asarray(final)


@cache
def _runner(observe, rows, inner_steps):
    def one(problem, algorithm, logits, key, num_steps, every):
        sizes = {"inner_steps": inner_steps, "observe": observe}
        logits, algorithm, kept = advance(problem, algorithm, logits, key, 0, num_steps, every, rows=rows, **sizes)
        _, _, last = advance(problem, algorithm, logits, key, num_steps, num_steps + 1, 1, rows=1, **sizes)
        return {name: x.at[-1].set(last[name][0]) for name, x in kept.items()}, logits

    each = (0, 0, 0, 0, None, None)
    return jax.jit(jax.vmap(one, each), compiler_options=quick_options())


def policies(logits):
    """The probabilities of tables of logits."""
    return np.asarray(softmax(jnp.asarray(logits)).prob)


def exact(update, *interventions, estimator=None):
    """An algorithm with the exact gradient."""
    extra = {} if estimator is None else {"estimator": estimator}
    return Algorithm(update, interventions=interventions, **extra)
