"""Solutions of the exercises, by their names."""

import numpy as np
from scipy.optimize import brentq


def entropy(p):
    """−Σ p log p of probabilities > 0."""
    p = np.asarray(p, float)
    return -(p * np.log(p)).sum()


def softmax(z):
    """The policy of logits."""
    e = np.exp(z - np.max(z))
    return e / e.sum()


def slopes(p):
    """S_a = π_a (log π_a + H)."""
    return p * (np.log(p) + entropy(p))


def with_first(K, p):
    """The policy whose first action has probability p, the others alike."""
    return np.array([p, *np.full(K - 1, (1.0 - p) / (K - 1))])


def policy_with_entropy(K, h):
    """The entropy of `with_first` falls from log K at p = 1/K to 0 at p = 1."""
    return with_first(K, brentq(lambda p: entropy(with_first(K, p)) - h, 1.0 / K, 1.0 - 1e-15, xtol=1e-16))


def divergence(z, delta):
    """KL(π′‖π) = −ΔH − Cov(ℓ, ρ) = −ΔH − Σ (π′ − π) ℓ."""
    before, after = softmax(z), softmax(z + delta)
    return entropy(before) - entropy(after) - ((after - before) * np.log(before)).sum()


def neutral_step():
    """δ with Σ S δ = 0."""
    S = slopes(np.array([0.6, 0.25, 0.1, 0.05]))
    step = np.array([S[1], -S[0], 0.0, 0.0])
    return step / np.abs(step).max()


SOLUTIONS = {
    "1.1": np.log,
    "1.2": policy_with_entropy,
    "1.3": lambda K, p: entropy(with_first(K, p)),
    "2.1": divergence,
    "2.2": neutral_step(),
    "2.3": (np.log([0.5, 0.49, 0.01]), np.array([0.0, 0.0, 20.0])),  # the rare action overtakes both
    "3.1": lambda z, r, time: entropy(softmax(z + time * r)),
    "3.2": lambda z, A, b: -b * (softmax(z) * slopes(softmax(z))).sum(),
    "3.3": (np.log([0.3, 0.25, 0.44, 0.01]), np.array([0.0, 1.0, 0.0, -10.0])),
    "4.1": lambda p: slopes(p) > (p * slopes(p)).sum(),
    "4.2": with_first(5, 0.9),
    "4.3": 0.0,  # a mean of numbers that are all negative cannot be 0, so not every reward raises the entropy
    "5.1": lambda rewards: (rewards - rewards.mean()) * len(rewards) / (len(rewards) - 1),
    "5.2": lambda p, right, wrong: right - wrong,
    "5.3": 10,
    "6.1": lambda log_prob, advantage: (log_prob - log_prob.mean()) * (advantage - advantage.mean()),
    "6.2": lambda log_prob, old, score, beta: score - beta * np.sign(log_prob - old),  # nothing where they are equal
    "6.3": lambda least: -np.log(least),
    "7.1": lambda a, b, H: -a * np.exp(H),
    "7.2": lambda inside, outside: 1.0 / (1.0 + np.exp(outside - inside)),
    "7.3": (np.linspace(0.0, 2.0, 20), 1.0 - 0.4 * np.linspace(0.0, 2.0, 20)),
}
