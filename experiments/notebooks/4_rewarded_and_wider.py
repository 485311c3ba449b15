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
# # 4. When a rewarded action raises the entropy
#
# Twelve minutes. "High probability and high advantage lowers the entropy" is said everywhere. It is not the rule, and here
# Hypothesis finds counterexamples in front of you.

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check
from hypothesis import find, settings

import softmaxdyn as sd
from softmaxdyn.strategies import policies

search = settings(deadline=None, derandomize=True, max_examples=5000)

# %% [markdown]
# ## The right rule
#
# Draw an action a, reward it: the logits move by η (e_a − π). With S_a = π_a (log π_a + H) and its mean S̄ = Σ π S the entropy
# changes by **−η (S_a − S̄)** to first order. The sign is decided by S_a > S̄, not by π_a.

# %%
p = np.array([0.7, 0.2] + 8 * [0.0125])
S = p * (np.log(p) + sd.entropy(np.log(p)))
S_mean = (p * S).sum()
assert np.allclose(sd.sample_effect(np.log(p)), -(S - S_mean), rtol=1e-12)
for a in (0, 1, 2):
    step = 1e-4 * (np.eye(10)[a] - p)
    exact = sd.entropy_change(np.log(p), step) / 1e-4
    assert np.isclose(exact, -(S[a] - S_mean), rtol=1e-2)
    print(f"rewarding an action of probability {p[a]:.4f}: ΔH/η = {exact:+.4f}")

# %% [markdown]
# The second action has twice the probability of a uniform policy, and rewarding it *raises* the entropy: it takes from the first.

# %%
K = 10
mine = np.linspace(0.002, 0.99, 300)
figure, ax = plt.subplots(figsize=(5.5, 3.0), layout="constrained")
for style, top in (("-", 0.0), ("--", 0.4), (":", 0.7)):
    x = mine[mine < 1.0 - top - 1e-3]
    rest = (1.0 - top - x) / (K - 1 - (top > 0.0))
    columns = [x, *([np.full_like(x, top)] if top else []), *([rest] * (K - 1 - (top > 0.0)))]
    effect = sd.sample_effect(np.log(np.stack(columns, 1)))[:, 0]
    ax.plot(x, effect, "k" + style, label=f"another action has {top}" if top else "the others alike")
ax.axhline(0.0, color="0.6", linewidth=0.8)
ax.axvline(1.0 / K, color="0.6", linewidth=0.8)
ax.text(1.0 / K + 0.01, ax.get_ylim()[0] * 0.95, "1/K", color="0.4", fontsize=8)
ax.set(xlabel="probability of the rewarded action", ylabel="ΔH/η (nats)")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## Five statements, five counterexamples
#
# **1. "Rewarding an action that is more probable than uniform lowers the entropy."** Hypothesis, please:

# %%
found = find(
    policies(num_actions=3),
    lambda z: bool(((sd.probs(z) > 0.35) & (sd.sample_effect(z) > 1e-3)).any()),
    settings=search,
)
print("π =", np.round(np.asarray(sd.probs(found)), 3), " effects:", np.round(np.asarray(sd.sample_effect(found)), 4))

# %% [markdown]
# **2. "Where the most probable action has the highest advantage, policy gradient lowers the entropy."** A mode that is best, and yet:

# %%
π, r = np.array([0.42061, 0.42242, 0.15697]), np.array([0.0307, 0.8972, 0.8774])
assert r.argmax() == π.argmax()
change = sd.entropy_change(np.log(π), sd.proposition_1(np.log(π), r, 0.01))
assert change > 0.0
print(f"ΔH = {change:+.2e}")

# %% [markdown]
# **3. "Vanilla and natural policy gradient agree."** See notebook 3. Let Hypothesis find a policy for rewards (1, 1, 1, 0):

# %%
rewards = np.array([1.0, 1.0, 1.0, 0.0])


def disagree(z):
    """Whether both changes are clear and of opposite sign."""
    advantage = rewards - sd.probs(z) @ rewards
    one, two = sd.theorem_1(z, advantage, 1.0), sd.theorem_2(z, advantage, 1.0)
    return bool((one * two < 0.0) & (abs(one) > 1e-3) & (abs(two) > 1e-3))


print("π =", np.round(np.asarray(sd.probs(find(policies(num_actions=4), disagree, settings=search))), 3))

# %% [markdown]
# **4. "Theorem 1 holds for raw rewards."** At first order it does not; the step does not depend on the constant, the formula does:

# %%
z = np.log([0.6, 0.3, 0.1])
shift = sd.theorem_1(z, np.array([1.0, 0.0, 0.0]) + 5.0, 1.0) - sd.theorem_1(z, np.array([1.0, 0.0, 0.0]), 1.0)
S = np.exp(z) * (z + sd.entropy(z))
assert np.isclose(shift, -5.0 * (np.exp(z) * S).sum(), rtol=1e-12)
print(f"adding 5 to every reward moves the prediction by {shift:+.3f} nats, and the truth by 0")

# %% [markdown]
# **5. "−w (1 − π_a) S_a, the estimate of STEER, is right to second order."** It holds the other logits still. Two actions: half.

# %%
for q in (0.6, 0.9, 0.99):
    two = np.log([q, 1.0 - q])
    S_a = q * (np.log(q) + sd.entropy(two))
    steer, truth = -(1.0 - q) * S_a, sd.sample_effect(two)[0]
    assert np.isclose(truth / steer, 2.0, rtol=1e-10)
    print(f"π_a = {q}: STEER {steer:+.4f}, first order {truth:+.4f}")

# %% [markdown]
# ## Exercises
#
# **4.1** A function of probabilities p that says, for every action, whether rewarding it lowers the entropy (to first order).

# %%
lowers = None
check("4.1", lowers)

# %% [markdown]
# **4.2** A policy of five actions for which rewarding *any but one* action raises the entropy.

# %%
all_but_one = None  # probabilities
check("4.2", all_but_one)

# %% [markdown]
# **4.3** Is there a policy for which rewarding *every* action raises the entropy? Give one, or the number that forbids it:
# Σ_a π_a (S_a − S̄), which you can compute for any policy.

# %%
forbidding_number = None
check("4.3", forbidding_number)
