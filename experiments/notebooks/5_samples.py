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
# # 5. From expectation to samples
#
# Fifteen minutes of reading, and the exercises. Language models are not trained on expected gradients but on samples. What does that change for the entropy?

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd
from softmaxdyn.noise import expected_entropy_change

z = np.log([[0.5, 0.3, 0.15, 0.05]])
bandit = sd.Bandit([[1.0, 0.0, 0.0, 0.0]])

# %% [markdown]
# ## Groups
#
# Draw G responses to a prompt, reward them, subtract the mean of the group: that is GRPO (which also divides by the standard
# deviation), RLOO, Dr. GRPO and others. A step is the mean of score · (e_a − π). Here is what the methods make of one group.

# %%
group = sd.advantages.recorded([1.0, 0.0, 0.0, 1.0])
for advantage in (sd.GRPO(), sd.RLOO(), sd.DrGRPO()):
    print(f"{type(advantage).__name__:7}", np.round(np.asarray(advantage(group))[:, 0], 3))

# %% [markdown]
# ## The null model: they all point the same way
#
# With rewards of 0 and 1, let the score depend only on whether the sample is right. Then the expected step is a number times
# π∘(r − J), whatever the method: REINFORCE, RLOO, GRPO, PSR/NSR, … On average they differ in speed, not in direction.

# %%
π = np.asarray(sd.probs(z[0]))
right = π * (bandit.rewards[0] - π @ np.asarray(bandit.rewards[0]))
for advantage in (sd.GRPO(), sd.RLOO(), sd.DrGRPO(), sd.REINFORCE()):
    step = expected_entropy_change(bandit, sd.Sampled(1, 8, advantage), z, 1.0).step[0]
    cosine = step @ right / np.linalg.norm(step) / np.linalg.norm(right)
    assert np.isclose(cosine, 1.0, rtol=1e-12)
    print(f"{type(advantage).__name__:10} length {np.linalg.norm(step):.4f}, cosine {cosine:.12f}")

# %% [markdown]
# ## Noise moves the entropy, too
#
# A step is its mean plus noise, and the entropy is not linear in it. To second order the change is that of the mean step (*first*),
# the curvature along the mean step (*drift*), and the curvature along the *noise*, which is of size η²/N for N groups. The last is
# there even where the mean step is zero. Near a uniform policy, where H has its top, it lowers the entropy:

# %%
uniform = np.zeros((1, 4))
for groups in (1, 4, 16):
    found = expected_entropy_change(bandit, sd.Sampled(groups, 8, sd.RLOO()), uniform, 1.0)
    print(
        f"{groups:2d} groups: first order {found.first[0]:+.4f}, drift {found.drift[0]:+.5f}, noise {found.noise[0]:+.5f}"
    )
    assert found.noise[0] < 0.0
one, four = (expected_entropy_change(bandit, sd.Sampled(n, 8, sd.RLOO()), uniform, 1.0).noise[0] for n in (1, 4))
assert np.isclose(one / four, 4.0, rtol=1e-9)

# %% [markdown]
# But not always: once a policy is peaked, a random push towards a rare action adds more entropy than one away from it takes.

# %%
for p in ([0.5, 0.3, 0.15, 0.05], [0.9, 0.05, 0.03, 0.02]):
    found = expected_entropy_change(bandit, sd.Sampled(1, 8, sd.RLOO()), np.log([p]), 1.0)
    print(p, f"noise {found.noise[0]:+.5f}")
assert found.noise[0] > 0.0

# %% [markdown]
# Check it against 2,000 steps that were really drawn, the second road:

# %%
keys = jax.random.split(jax.random.key(0), 2000)
algorithm = sd.Algorithm(sd.VanillaPG(0.2), sd.Sampled(1, 8, sd.RLOO()))
one_step = jax.jit(
    jax.vmap(lambda key: sd.simulate(bandit, algorithm, num_steps=1, logits=z, key=key).entropy_change[0, 0])
)
changes = np.asarray(one_step(keys))
theory = expected_entropy_change(bandit, algorithm.estimator, z, 0.2)
predicted = float((theory.first + theory.drift + theory.noise)[0])
error = changes.std() / len(changes) ** 0.5
assert abs(changes.mean() - predicted) < 4.0 * error + 1e-4
print(f"mean ΔH {changes.mean():+.5f} ± {error:.5f}, to second order {predicted:+.5f}")

# %% [markdown]
# ## A collapse out of nothing
#
# Random rewards teach nothing: the expected step is zero, and every step is noise. From a uniform policy the entropy goes down.
# Twenty runs, and their mean:

# %%
coin = sd.Algorithm(sd.VanillaPG(0.5), sd.Sampled(1, 8, sd.RLOO(), sd.rewards.RandomReward()))
run = jax.jit(jax.vmap(lambda key: sd.simulate(bandit, coin, num_steps=400, logits=uniform, key=key).entropy[:, 0]))
entropies = np.asarray(run(jax.random.split(jax.random.key(1), 20)))
figure, ax = plt.subplots(figsize=(5.0, 2.8), layout="constrained")
ax.plot(entropies.T, color="#0072B2", alpha=0.3, linewidth=0.8)
ax.plot(entropies.mean(0), color="#0072B2", linewidth=2.0)
ax.set(xlabel="step", ylabel="entropy, H (nats)", title="random rewards", ylim=(0.0, None))
plt.show()
assert entropies[:, -1].mean() < entropies[:, 0].mean() - 0.1

# %% [markdown]
# ## Exercises
#
# **5.1** A function of a group of rewards [G] that gives RLOO's advantages: each reward minus the mean of the *others*.

# %%
leave_one_out = None
check("5.1", leave_one_out)

# %% [markdown]
# **5.2** A function of (p, w_right, w_wrong) that gives the factor c in "expected step = c · π∘(r − p)" for scores w_right on right
# samples and w_wrong on wrong ones.

# %%
factor = None
check("5.2", factor)

# %% [markdown]
# **5.3** How many groups does it take to bring the noise term of one group down to a tenth? (A number.)

# %%
groups_needed = None
check("5.3", groups_needed)
