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
# Twelve minutes of reading, and the exercises. "High probability and high advantage lowers the entropy" is said everywhere. It is
# not the rule, and counterexamples are found in front of you, by [Hypothesis](https://hypothesis.works): a library that looks for
# an example with a property, hard corners first, and then makes the one it found as simple as it can.

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check
from hypothesis import find, settings
from hypothesis import strategies as st

import softmaxdyn as sd
from softmaxdyn.strategies import policies

search = settings(deadline=None, derandomize=True, max_examples=5000)


def found(kind, holds):
    """The simplest case of a kind that Hypothesis finds for which `holds` is true."""
    return find(kind, lambda case: bool(holds(*case)), settings=search)


# %% [markdown]
# ## The right rule
#
# Draw an action a, reward it: the logits move by η (e_a − π), where e_a is 1 for a and 0 elsewhere. With S_a = π_a (log π_a + H) and its mean S̄ = Σ π S the entropy
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
# All of them speak of policies of three actions. `policies` draws logits; rewards are tenths between 0 and 1. A change counts if it
# is clear: 10⁻³ nats for each unit of step size, or more (10⁻⁴ for the second, which is rare).
#
# **1. "Rewarding an action that is more probable than uniform lowers the entropy."**

# %%
rewards = st.lists(st.integers(0, 10), min_size=3, max_size=3).map(lambda tenths: np.array(tenths) / 10)
one, both = st.tuples(policies(num_actions=3)), st.tuples(policies(num_actions=3), rewards)

(z,) = found(one, lambda z: ((sd.probs(z) > 0.35) & (sd.sample_effect(z) > 1e-3)).any())
print("π =", np.round(np.asarray(sd.probs(z)), 3), "  effects:", np.round(np.asarray(sd.sample_effect(z)), 4))

# %% [markdown]
# **2. "Where the most probable action has the highest reward, policy gradient lowers the entropy."** The first action is both, and
# yet. Such cases are rare, so that the policies are drawn as whole-number weights:

# %%
weights = st.lists(st.integers(1, 20), min_size=3, max_size=3).map(lambda w: np.log(np.array(w) / sum(w)))


def best_is_first_and_entropy_rises(z, r):
    """Whether one action has both the highest probability and the highest reward, and Theorem 1 says that H rises."""
    best = r.argmax()
    alone = (np.delete(z, best) < z[best]).all() and (np.delete(r, best) < r[best]).all()
    return alone and sd.theorem_1(z, r - np.exp(z) @ r, 1.0) > 1e-4


z, r = found(st.tuples(weights, rewards), best_is_first_and_entropy_rises)
change = sd.entropy_change(z, sd.proposition_1(z, r, 0.01))  # the step that policy gradient makes, of size 0.01
assert change > 0.0
print(f"π = {np.exp(z).round(3)}, r = {r}: ΔH = {change:+.1e}, exactly")

# %% [markdown]
# It looks harmless: the best action gains. But another probable one loses, and a rare one gains, and that widens the policy by more
# than the best one narrows it.
#
# **3. "Vanilla and natural policy gradient agree about the sign."** The covariance of Theorem 1 has one sign, that of Theorem 2 the
# other:


# %%
def of_two_signs(first, second):
    """Whether two changes are clear and of opposite sign."""
    return (first * second < 0.0) & (abs(first) > 1e-3) & (abs(second) > 1e-3)


def theorems(z, r):
    """What Theorems 1 and 2 say, for a step of size 1."""
    advantage = r - sd.probs(z) @ r
    return sd.theorem_1(z, advantage, 1.0), sd.theorem_2(z, advantage, 1.0)


z, r = found(both, lambda z, r: of_two_signs(*theorems(z, r)))
print("π =", np.round(np.asarray(sd.probs(z)), 3), f"  r = {r}:  PG %+.4f, NPG %+.4f" % theorems(z, r))

# %% [markdown]
# **4. "Theorem 1 holds for raw rewards."** The step does not depend on a constant in the rewards, the printed formula does. It can
# even get the sign wrong, and that at first order, for the smallest steps:

# %%
z, r = found(both, lambda z, r: of_two_signs(theorems(z, r)[0], sd.theorem_1(z, r, 1.0)))
exact = sd.entropy_change(z, sd.proposition_1(z, r, 1e-6)) / 1e-6
assert np.isclose(exact, theorems(z, r)[0], rtol=1e-4)
print(
    f"per step size: exact {exact:+.4f}, Theorem 1 with A {theorems(z, r)[0]:+.4f}, with r {sd.theorem_1(z, r, 1.0):+.4f}"
)

# %% [markdown]
# **5. "−(1 − π_a) S_a is the effect of rewarding a."** This is the estimate of STEER, a method of notebook 6. It lets only the logit of
# a move; but a policy gradient moves the others, too, by −π_b. For two actions it is half the effect; for three its sign can be
# wrong:


# %%
def by_steer(z):
    """STEER's estimate for every action, for a reward of 1."""
    π = sd.probs(z)
    return -(1.0 - π) * π * (sd.log_probs(z) + sd.entropy(z))


two = np.log([0.9, 0.1])
assert np.allclose(sd.sample_effect(two), 2.0 * by_steer(two), rtol=1e-10)
(z,) = found(one, lambda z: of_two_signs(by_steer(z), sd.sample_effect(z)).any())
for name, effect in (("STEER", by_steer(z)), ("first order", sd.sample_effect(z))):
    print(f"{name:11}", np.round(np.asarray(effect), 4))

# %% [markdown]
# ## Exercises
#
# **4.1** A function of probabilities p (an array, all > 0) that says for every action, True or False, whether rewarding it lowers
# the entropy (to first order).

# %%
lowers = None
check("4.1", lowers)

# %% [markdown]
# **4.2** A policy of five actions for which rewarding *any but one* action raises the entropy.

# %%
all_but_one = None  # probabilities
check("4.2", all_but_one)

# %% [markdown]
# **4.3** Is there a policy for which rewarding *every* action raises the entropy? Compute Σ_a π_a (S_a − S̄), for any policy: give
# that number, and say to yourself why it forbids one.

# %%
forbidding_number = None
check("4.3", forbidding_number)
