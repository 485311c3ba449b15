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
# # 2. How the entropy changes: exactly, and to first order
#
# Twelve minutes of reading, and the exercises. A step δ of the logits makes π into π′. What happens to the entropy?

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd

z = np.log([0.6, 0.25, 0.1, 0.05])
δ = np.array([0.3, -0.2, 0.1, -0.4])


def covariance(p, x, y):
    """Cov of x and y under p."""
    return (p * x * y).sum() - (p * x).sum() * (p * y).sum()


# %% [markdown]
# ## An identity without any approximation
#
# With ℓ = log π and ρ = π′/π, **ΔH = −Cov(ℓ, ρ) − KL(π′‖π)**. The first part is linear in what became of the probabilities; the
# second always lowers the entropy. Two lines prove it: H(π′) = −Σ π′ℓ′ = −Σ π′ℓ − KL(π′‖π); subtract H(π) = −Σ πℓ.

# %%
π, after = sd.probs(z), sd.probs(z + δ)
ΔH = sd.entropy(z + δ) - sd.entropy(z)
by_the_identity = -covariance(π, np.log(π), after / π) - sd.kl_divergence(z + δ, z)
assert np.isclose(ΔH, by_the_identity, rtol=1e-12)
print(f"ΔH = {ΔH:+.6f} = {by_the_identity:+.6f}")

# %% [markdown]
# ## Lemma 1 is its linear part
#
# For a small step ρ ≈ 1 + δ − E δ, and KL is of second order: **ΔH ≈ −Cov(ℓ, δ)**. How good is that?

# %%
predicted = sd.lemma_1(z, δ)
print(f"exact {ΔH:+.5f}, Lemma 1 {predicted:+.5f}, left out {ΔH - predicted:+.5f}")

# %% [markdown]
# The number that counts is the *order* of the error. Halve the step again and again: a second-order error falls to a quarter.

# %%
sizes = 2.0 ** -np.arange(0, 40)
left_out = np.array([abs(sd.remainder(z, size * δ)) for size in sizes])
orders = np.log2(left_out[:-1] / left_out[1:])
assert abs(orders[20] - 2.0) < 1e-4
print("orders:", np.round(orders[[0, 3, 10, 20, 30]], 4))

# %% [markdown]
# ## Why not subtract two entropies?
#
# Because nothing is left: at a step of 1e-9 the change is far below the rounding of H. `entropy_change` and `remainder` sum
# terms that do not cancel, and keep all their digits.

# %%
naive = np.array([abs(sd.entropy(z + s * δ) - sd.entropy(z) + covariance(π, np.log(π), s * δ)) for s in sizes])
bound = np.array([sd.remainder_bound(z, size * δ) for size in sizes])
assert (left_out <= bound).all()
figure, ax = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
ax.loglog(sizes, bound, color="0.6", linestyle="--", label="proved bound")
ax.loglog(sizes, left_out, color="#0072B2", label="without cancellation")
ax.loglog(sizes, np.maximum(naive, 1e-18), ".", color="#D55E00", label="by subtraction")
ax.set(xlabel="size of the step", ylabel="|ΔH + Cov(ℓ, δ)| (nats)")
ax.legend(loc="lower right", frameon=False)
plt.show()

# %% [markdown]
# ## A certificate
#
# |ΔH + Cov(ℓ, δ)| ≤ (1/8 + log(K−1)/(12√3)) osc(δ)², for *every* policy and step, osc = max − min. So there is a step size below
# which the sign of Lemma 1 is proved to be right.

# %%
η = sd.certified_step_size(z, δ)
for factor in np.linspace(0.01, 1.0, 50):
    step = factor * η * δ
    assert np.sign(sd.entropy_change(z, step)) == np.sign(sd.lemma_1(z, step))
print(f"certified: the sign is right for every η < {η:.3f}")

# %% [markdown]
# ## Exercises
#
# **2.1** A function of (z, δ) that gives KL(π′‖π) from ΔH and a covariance, without computing any divergence.

# %%
divergence = None
check("2.1", divergence)

# %% [markdown]
# **2.2** A step δ (of size one: max |δ| = 1) for the policy `z` above that leaves the entropy unchanged to first order, and
# that is not constant.

# %%
neutral_step = None
check("2.2", neutral_step)

# %% [markdown]
# **2.3** The entropy can *rise* even where Lemma 1 says that it falls, if the step is large. Give logits of three actions and
# a step for which the two signs differ.

# %%
wrong_sign = None  # (z, δ)
check("2.3", wrong_sign)
