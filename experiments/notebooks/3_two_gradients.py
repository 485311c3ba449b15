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
# # 3. Vanilla and natural policy gradient
#
# Fifteen minutes of reading, and the exercises. Two updates, two theorems, one closed form, and a policy on which they disagree about the sign.

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd

z = np.log([0.5, 0.3, 0.2])
r = np.array([1.0, 0.4, 0.0])
advantage = r - sd.probs(z) @ r

# %% [markdown]
# ## The gradient
#
# The return is J = Σ π r. Its derivative is ∂J/∂z_a = π_a A_a with the advantage A = r − J: autodiff agrees. So **vanilla**
# policy gradient moves the logits by η π∘A. **Natural** policy gradient divides by the Fisher information, and moves them by
# η A: rare actions are not held back by being rare.

# %%
gradient = jax.grad(lambda logits: sd.probs(logits) @ r)(jax.numpy.asarray(z))
assert np.allclose(gradient, sd.probs(z) * advantage, atol=1e-15)
fisher = np.diag(sd.probs(z)) - np.outer(sd.probs(z), sd.probs(z))
natural = np.linalg.pinv(fisher) @ np.asarray(gradient)
assert np.allclose(natural - natural.mean(), advantage - advantage.mean(), atol=1e-12)  # up to a constant
print("vanilla:", np.round(np.asarray(gradient), 3), "  natural:", np.round(np.asarray(advantage), 3))

# %% [markdown]
# ## Theorems 1 and 2
#
# Put the two steps into Lemma 1: ΔH ≈ −η Cov(ℓ, π∘A) and ΔH ≈ −η Cov(ℓ, A).

# %%
for η in (0.1, 0.01, 0.001):
    vanilla = sd.entropy_change(z, η * gradient) / sd.theorem_1(z, advantage, η)
    other = sd.entropy_change(z, η * advantage) / sd.theorem_2(z, advantage, η)
    print(f"η = {η:5}: exact over predicted {vanilla:.5f} (vanilla), {other:.5f} (natural)")
assert abs(vanilla - 1.0) < 1e-3
assert abs(other - 1.0) < 1e-3

# %% [markdown]
# **A trap.** Theorem 1 wants an advantage whose mean is 0. With raw rewards the *update* is the same, since a softmax does not
# feel the constant, but the printed *formula* is not: it is wrong at first order. Theorem 2 does not care.

# %%
η = 1e-6
exact = sd.entropy_change(z, sd.proposition_1(z, r, η))
assert np.isclose(sd.theorem_1(z, advantage, η), exact, rtol=1e-5)
assert not np.isclose(sd.theorem_1(z, r, η), exact, rtol=0.05)
assert np.isclose(sd.theorem_2(z, r, η), sd.theorem_2(z, advantage, η), rtol=1e-12)
print(f"exact {exact:.3e}; Theorem 1 with A {sd.theorem_1(z, advantage, η):.3e}, with r {sd.theorem_1(z, r, η):.3e}")

# %% [markdown]
# ## A closed form
#
# On a bandit natural PG is solved: π_t ∝ π_0 exp(ηt r). A simulated run follows it to the last digits.

# %%
trace = sd.simulate(sd.Bandit(r), sd.Algorithm(sd.NaturalPG(0.1)), num_steps=200, logits=z)
assert np.allclose(sd.probs(trace.logits[0]), sd.probs(z + 0.1 * 200 * r), rtol=1e-11)
print("π after 200 steps:", np.round(np.asarray(sd.probs(trace.logits[0])), 6))

# %% [markdown]
# ## On the simplex
#
# Policies of three actions are points of a triangle; the share of a corner is the probability of its action. Both flows go to the
# best action's corner; vanilla PG first runs along the sides, where a wrong action is probable and the right one rare: plateaus.
# Runs start at the open circles.

# %%
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
starts = np.array([(0.05, 0.9, 0.05), (0.05, 0.05, 0.9), (0.01, 0.09, 0.9), (0.3, 0.4, 0.3)])


def vanilla_step(logits):
    """Of size 0.4."""
    return np.asarray(sd.proposition_1(logits, r, 0.4))


def natural_step(logits):
    """Of size 0.05; the constant η J that A has and r has not changes nothing."""
    return 0.05 * r


figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.2), layout="constrained")
flows = (
    ("vanilla PG", vanilla_step, sd.VanillaPG(0.4), "#0072B2"),
    ("natural PG", natural_step, sd.NaturalPG(0.05), "#D55E00"),
)
for ax, (name, step, update, colour) in zip(axes, flows, strict=True):
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.6", linewidth=0.8)
    for start in starts:
        path = [np.log(start)]
        for _ in range(300):
            path.append(path[-1] + step(path[-1]))
        run = sd.simulate(sd.Bandit(r), sd.Algorithm(update), num_steps=300, logits=path[0])
        assert np.allclose(sd.probs(path[-1]), sd.probs(run.logits[0]), rtol=1e-9)  # by hand as by `simulate`
        ax.plot(*(np.asarray(sd.probs(np.array(path))) @ CORNERS).T, color=colour)
    ax.plot(*(starts @ CORNERS).T, "o", color=colour, markerfacecolor="white", markersize=4)
    for corner, label, shift in zip(CORNERS, ("r = 1", "r = 0.4", "r = 0"), (-0.07, -0.07, 0.06), strict=True):
        ax.text(corner[0], corner[1] + shift, label, ha="center", va="center", fontsize=8)
    ax.set(aspect="equal", xlim=(-0.2, 1.2))
    ax.set_title(name, fontsize=10, pad=10)
    ax.axis("off")
plt.show()

# %% [markdown]
# ## Where they disagree
#
# At this policy vanilla PG lowers the entropy, and natural PG raises it, for the same rewards.

# %%
odd, rewards = np.log([0.504, 0.063, 0.063, 0.370]), np.array([1.0, 1.0, 1.0, 0.0])
steps = {"vanilla": sd.proposition_1(odd, rewards, 0.01), "natural": 0.01 * rewards}
changes = {name: float(sd.entropy_change(odd, step)) for name, step in steps.items()}
assert changes["vanilla"] < 0.0 < changes["natural"]
print({name: f"{change:+.2e}" for name, change in changes.items()})

# %% [markdown]
# ## Exercises
#
# **3.1** A function of (z, r, τ) that gives the entropy of natural PG after time τ = ηt, in closed form.

# %%
natural_entropy = None
check("3.1", natural_entropy)

# %% [markdown]
# **3.2** A function of (z, A, b) that gives by how much Theorem 1 at η = 1 is wrong if A + b is put in place of A.

# %%
error_of_raw_rewards = None
check("3.2", error_of_raw_rewards)

# %% [markdown]
# **3.3** Another policy and rewards of four actions on which the two first-order changes have opposite signs, the *other way
# round*: natural PG lowers the entropy, vanilla PG raises it.

# %%
opposite = None  # (z, r)
check("3.3", opposite)
