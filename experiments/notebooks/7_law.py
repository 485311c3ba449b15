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
# # 7. R = −a exp(H) + b: fit it, its rivals, and where it breaks
#
# Fifteen minutes of reading, the exercises, and an epilogue on responses of several tokens.

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd
from softmaxdyn import laws
from softmaxdyn.problems.named import named


def curve(setting, update, num_steps):
    """(H, R) along a run, the means over the prompts."""
    trace = sd.simulate(setting.problem, sd.Algorithm(update), num_steps=num_steps, logits=setting.logits)
    return np.asarray(trace.entropy).mean(1), np.asarray(trace.expected_return)


pool = named("pool", 0, prompts=100, actions=10, correct=0.1)
entropy, reward = curve(pool, sd.NaturalPG(0.05), 150)

# %% [markdown]
# ## The fit
#
# The law is linear in exp(H), so a fit is ordinary least squares. b − a is its reward at H = 0, "the ceiling".

# %%
fitted = laws.fit(entropy, reward)
a, b = fitted.coefficients["a"], fitted.coefficients["b"]
design = np.stack([-np.exp(entropy), np.ones_like(entropy)], 1)
assert np.allclose(np.linalg.lstsq(design, reward)[0], [a, b], rtol=1e-8)
print(f"a = {a:.3f}, b = {b:.3f}, ceiling {b - a:.3f}, R² = {fitted.r_squared:.4f}")

# %% [markdown]
# ## Its rivals
#
# A good fit is no evidence until something else fits worse. A straight line has as many numbers; a power and a quadratic one more.

# %%
rivals = laws.compare(entropy, reward).rivals
for name, rival in rivals.items():
    print(f"{name:12} R² = {rival.fit.r_squared:.5f}   AIC = {rival.aic:.1f}")
figure, ax = plt.subplots(figsize=(5.0, 3.0), layout="constrained")
ax.plot(entropy[::5], reward[::5], ".", color="0.4", label="run")
styles = (("-", "#0072B2"), ("--", "#D55E00"), (":", "#009E73"), ("-.", "#CC79A7"))
for (name, rival), (style, colour) in zip(rivals.items(), styles, strict=True):
    ax.plot(entropy, rival.fit.form.predict(rival.fit.vector, entropy), style, color=colour, label=name)
ax.set(xlabel="entropy, H (nats)", ylabel="reward, R")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## Why a table obeys such a law at all
#
# With rewards of 0 and 1 natural PG freezes the policy inside the right and inside the wrong set; only p = P(right) moves. So
# H(p) = h(p) + p H₊ + (1 − p) H₋, exactly, with h(p) = −p log p − (1 − p) log(1 − p) and the entropies H₊, H₋ inside the two sets:
# entropy and reward are functions of one number, whatever the step size. (Vanilla PG moves the policy inside the sets as well.)

# %%
one = sd.Bandit([1.0, 1.0, 0.0, 0.0, 0.0])
z = np.log([0.05, 0.15, 0.2, 0.25, 0.35])
trace = sd.simulate(one, sd.Algorithm(sd.NaturalPG(0.1)), num_steps=80, logits=z)
inside, outside = sd.entropy(z[:2]), sd.entropy(z[2:])
by_success = sd.theory.binary_reward_entropy(trace.expected_return, inside, outside)
assert np.allclose(trace.entropy[:, 0], by_success, rtol=1e-10)
print(f"ends at H₊ = {inside:.3f} nats, not at 0: {trace.final_entropy[0]:.3f}")

# %% [markdown]
# ## Where it breaks
#
# Two right answers, and the entropy does not end at 0; a wrong peak, and it rises before it falls: R is not a function of H.

# %%
wrong = named("wrong_peak")
h, j = curve(wrong, sd.NaturalPG(0.05), 250)
figure, ax = plt.subplots(figsize=(5.0, 2.8), layout="constrained")
ax.plot(h, j, color="#D55E00")
ax.plot(h[0], j[0], "o", color="#D55E00", markerfacecolor="white")
ax.set(xlabel="entropy, H (nats)", ylabel="reward, R", title="from 90 % on the worst of three actions")
plt.show()
assert h.argmax() not in (0, len(h) - 1)

# %% [markdown]
# ## Epilogue: responses of several tokens
#
# On a tree of tokens the visits move too. The entropy of a response changes by what happens at each prefix, plus by which
# prefixes are visited; the theorems know only the first part. Pay a response for not ending at once, and the second wins:

# %%
tree = sd.TokenTree(lambda response: float(len(response) > 0), vocabulary=5, depth=3, end=True)
trace = sd.simulate(tree, sd.Algorithm(sd.NaturalPG(0.5)), num_steps=1)
total = trace.local_change[0] + trace.visitation_change[0]
assert np.isclose(total, trace.trajectory_change[0], rtol=1e-12)
print(
    f"visits frozen {trace.local_change[0]:+.3f}, moved visits {trace.visitation_change[0]:+.3f}, together {total:+.3f}"
)

# %% [markdown]
# ## Exercises
#
# **7.1** A function of (a, b, H) that gives dR/dH of the law: what a nat of entropy buys.

# %%
slope = None
check("7.1", slope)

# %% [markdown]
# **7.2** A function of (H₊, H₋) that gives the success probability at which the entropy is largest under natural PG.

# %%
success_at_the_top = None
check("7.2", success_at_the_top)

# %% [markdown]
# **7.3** Data (H, R) of at least ten points, with H between 0 and 2 and R between 0 and 1, on which a straight line has a lower
# AIC than the law.

# %%
rather_a_line = None  # (H, R)
check("7.3", rather_a_line)
