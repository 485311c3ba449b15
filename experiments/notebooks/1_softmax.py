# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1. A softmax policy, what does not matter about it, and its entropy
#
# Ten minutes of reading, and the exercises. You need nothing but this page: every identity is checked in a cell, and a cell that
# fails says so.

# %%
import jax

jax.config.update("jax_enable_x64", True)  # theory is checked in double precision

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd

# %% [markdown]
# ## Logits and probabilities
#
# A *tabular* policy is a row of numbers, the logits z, one an action. Its probabilities are π(a) = exp(z_a) / Σ exp(z_b).

# %%
z = np.array([2.0, 1.0, 0.0])
π = sd.probs(z)
assert np.allclose(π, np.exp(z) / np.exp(z).sum(), rtol=1e-14)
print("π =", np.round(np.asarray(π), 3))

# %% [markdown]
# ## Gauge freedom: a constant does not matter
#
# Add the same number to all logits, and the policy stays what it was. So K logits say K − 1 things, and two tables of logits
# should never be compared; compare policies. It also means that only the *differences* of a step of the logits count.

# %%
for constant in (-100.0, 3.0, 1e4):
    assert np.allclose(sd.probs(z + constant), π, rtol=1e-11)
print("the policy of z + c is that of z")

# %% [markdown]
# ## Surprisal and entropy
#
# How surprising is an action? Its *surprisal* is −log π(a): 0 for a sure thing, large for a rare one. The entropy is the mean
# surprisal of what the policy does, H = −Σ π log π. In nats, since the logarithm is the natural one.

# %%
surprisal = -sd.log_probs(z)
assert np.allclose(sd.entropy(z), (π * surprisal).sum(), rtol=1e-14)
print("surprisal:", np.round(np.asarray(surprisal), 3), "  mean:", round(float(sd.entropy(z)), 3), "nats")

# %% [markdown]
# exp(H) can be read as a number of actions: a policy that is uniform on n actions has exp(H) = n. Between, it need not be whole.

# %%
for n in (1, 2, 5):
    logits = np.where(np.arange(8) < n, 0.0, -np.inf)  # −∞ masks an action
    assert np.isclose(np.exp(sd.entropy(logits)), n, rtol=1e-14)
print("effective number of actions of π:", round(float(np.exp(sd.entropy(z))), 2), "of 3")

# %% [markdown]
# ## A picture: temperature
#
# Divide the logits by a temperature T: at T → ∞ the policy is uniform, at T → 0 it takes the most probable action only.

# %%
temperatures = np.geomspace(0.1, 20.0, 100)
logits = z[None] / temperatures[:, None]
figure, ax = plt.subplots(figsize=(5.0, 2.8), layout="constrained")
ax.plot(temperatures, sd.entropy(logits), color="#0072B2")
ax.axhline(np.log(3.0), color="0.6", linestyle=":")
ax.text(0.1, np.log(3.0) - 0.08, "log 3: uniform", color="0.4", fontsize=8)
ax.set(xscale="log", xlabel="temperature, T", ylabel="entropy, H (nats)")
plt.show()

# %% [markdown]
# ## Which way does one logit move the entropy?
#
# Let u_a = log π_a + H: positive for actions that are more probable than "typical", exp(−H). Then ∂H/∂z_a = −π_a u_a. Raising
# the logit of a probable action lowers the entropy, raising that of a rare one raises it. JAX differentiates, we compare.

# %%
u = sd.log_probs(z) + sd.entropy(z)
assert np.allclose(jax.grad(sd.entropy)(jax.numpy.asarray(z)), -π * u, atol=1e-14)
assert np.isclose((π * u).sum(), 0.0, atol=1e-14)  # on average, an action is typical
print("∂H/∂z =", np.round(np.asarray(-π * u), 4))

# %% [markdown]
# ## Exercises
#
# Replace `None`. Each check says what is wrong; solutions are in `solutions.py`.
#
# **1.1** A function of probabilities p (an array, all > 0) that gives logits (any that will do) of the policy with these
# probabilities.

# %%
logits_of = None
check("1.1", logits_of)

# %% [markdown]
# **1.2** A function of (K, h), K ≥ 2 actions and 0 < h < log K nats, that gives the probabilities of a policy of K actions with
# exactly that entropy. (Hint: one action with probability p, the others alike; bisect p.)

# %%
policy_with_entropy = None
check("1.2", policy_with_entropy)

# %% [markdown]
# **1.3** A function of (K, p), in this order, that gives the largest entropy of a policy of K actions whose first action has
# probability p.

# %%
largest_entropy = None
check("1.3", largest_entropy)
