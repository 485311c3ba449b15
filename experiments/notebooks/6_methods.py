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
# # 6. Clip-Cov, KL-Cov, STEER: what they touch, and when they do nothing
#
# Fifteen minutes of reading, and the exercises. Three ways to slow the loss of entropy, and the controls without which a curve
# says nothing.

# %%
import dataclasses

import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd
from softmaxdyn import interventions as iv
from softmaxdyn.comparison import classify, crossing, interval, paths
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named import named

pool = named("pool", 0, prompts=16, actions=10)  # 16 prompts with ten possible answers each, one of them right
drawn = {"groups": 16, "group_size": 8}  # a batch: eight answers to each of 16 prompts

# %% [markdown]
# ## Tokens and scores
#
# A *token* is an answer that was drawn, with its advantage A. It pushes the logits of its prompt by score · (e_a − π). Several
# *inner steps* are made with one batch; in the later ones the policy π is no longer the policy π_old that drew it, and the plain score
# is A · π(a)/π_old(a). GRPO's A is the reward minus the mean of its group, over the standard deviation; its PPO clip gives the
# score 0 to tokens whose ratio has left [0.8, 1.2] in the direction of their push.
#
# - **Clip-Cov** gives the score 0 to some tokens, drawn among those of high *covariance* (log π − mean)(A − mean).
# - **KL-Cov** takes the tokens of the highest covariance, and subtracts β sign(log π − log π_old) from their scores: a pull back
#   towards the policy that drew them. As released it has no PPO clip.
# - **STEER** multiplies every score by λ_min^(|Ω|/max|Ω|), where Ω = A π(1 − π)(log π + H) is, up to the sign, its estimate of what
#   the token does to the entropy; it keeps the PPO clip.
#
# Which tokens are these? One batch, and what each method does on the second inner step:

# %%
methods = {
    "GRPO": sd.build("grpo", step_size=2.0, **drawn),
    "Clip-Cov": sd.build("clip_cov", step_size=2.0, fraction=0.1, low=0.2, high=5.0, **drawn),
    "KL-Cov": sd.build("kl_cov", step_size=2.0, fraction=0.1, **drawn),
    "STEER": sd.build("steer", step_size=2.0, **drawn),
}
old = softmax(pool.logits)
batch = methods["GRPO"].estimator(jax.random.key(0), pool.problem, old)
moved = softmax(pool.logits + sd.simulation.step(pool.problem, methods["GRPO"], old, jax.random.key(0), 1)[0])
now = sd.tokens.under(batch, moved)  # the same tokens, their probabilities under the policy after one step
plain = sd.tokens.plain_push(now, pool.logits.shape)

# %%
figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.8), sharey=True, layout="constrained")
for ax, name in zip(axes, ("Clip-Cov", "KL-Cov", "STEER"), strict=True):
    method = methods[name].interventions[-1].init(pool.logits)
    score = method(jax.random.key(1), now, moved, plain).score
    ax.plot(np.exp(now.log_prob), now.advantage, ".", color="0.75", markersize=5)
    touched = np.asarray(abs(score - plain.score) > 0.2 * abs(plain.score))
    ax.plot(np.exp(now.log_prob)[touched], now.advantage[touched], "o", color="#D55E00", markersize=4)
    ax.set_title(f"{name}: {touched.sum()} of {touched.size}", fontsize=9)
    ax.set(xscale="log", xlabel="probability of the token, π")
axes[0].set(ylabel="advantage, A")
figure.suptitle("tokens whose score changes by more than a fifth", fontsize=9)
plt.show()

# %% [markdown]
# High covariance means probable *and* rewarded, or rare *and* not rewarded: Clip-Cov and KL-Cov take both ends of that diagonal.
# STEER takes tokens of either sign that, by its estimate, move the entropy most: probable ones. Few of these tokens are both
# rewarded and probable, for all three.
#
# ## A no-op
#
# On the first inner step π *is* π_old, and KL-Cov's pull is zero, although it selects tokens. With one inner step a batch it is GRPO, to
# the bit.

# %%
logits = [
    np.asarray(sd.simulate(pool.problem, methods[name], num_steps=20, logits=pool.logits, key=jax.random.key(0)).logits)
    for name in ("GRPO", "KL-Cov")
]
assert np.array_equal(*logits)
print("one inner step: KL-Cov is GRPO, to the bit")

# %% [markdown]
# `classify` measures what kind of method one has, by running it: *off-policy-only* does nothing on the first inner step;
# *reward-only* looks at nothing but the reward, and does not turn the expected step; *probability-dependent* turns it; a *field* acts
# on the whole table of logits, and not through tokens.

# %%
for name in ("kl_cov", "steer", "positive_reweighting", "entropy_bonus"):
    kind, no_op = classify(pool.problem, sd.build(name, **drawn), pool.logits)
    print(f"{name:20} {kind:22} first step plain: {no_op}")
assert classify(pool.problem, sd.build("kl_cov", **drawn), pool.logits) == ("off-policy-only", True)

# %% [markdown]
# ## Four inner steps, ten seeds, and controls
#
# What should a method be compared with? With itself, less one thing. Clip-Cov and KL-Cov have no PPO clip, so they stand beside
# GRPO *without the clip*, not beside GRPO. And each selection stands beside as many tokens *chosen at random*, on which the same
# is done.

# %%
bare = dataclasses.replace(methods["GRPO"], interventions=())
methods["GRPO, no clip"] = bare
for name in ("Clip-Cov", "KL-Cov"):
    chosen = methods[name].interventions[0]
    methods[f"{name} at random"] = dataclasses.replace(bare, interventions=(iv.AtRandom(chosen),))
keys = jax.random.split(jax.random.key(0), 10)
settings = {"num_steps": 120, "inner_steps": 4, "keys": keys, "logits": pool.logits}
runs = {name: paths(pool.problem, method, **settings) for name, method in methods.items()}

# %%
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.2), layout="constrained")
looks = {
    "GRPO": ("-", "#000000"),
    "GRPO, no clip": (":", "#000000"),
    "Clip-Cov": ("-", "#009E73"),
    "Clip-Cov at random": (":", "#009E73"),
    "KL-Cov": ("-", "#0072B2"),
    "KL-Cov at random": (":", "#0072B2"),
    "STEER": ("-", "#D55E00"),
}
for name, (style, colour) in looks.items():
    run = runs[name]
    axes[0].plot(run.step, run.entropy.mean(0), style, color=colour, label=name)
    axes[1].plot(run.entropy.mean(0), run.expected_return.mean(0), style, color=colour)
axes[0].set(xlabel="step", ylabel="entropy, H (nats)", xlim=(0, 60))
axes[1].set(xlabel="entropy, H (nats)", ylabel="expected return, J")
figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# Left: how fast. Right: at what price. A method that only slows learning runs along the curve of its baseline. Two numbers for it,
# each a mean over ten seeds with a 95 % bootstrap interval: H after 20 steps, and J where H first falls to one nat. And the share of
# tokens that were selected, the mean over all inner steps.

# %%
print(f"{'':20} {'H after 20 steps':22} {'J at H = 1':22} selected")
for name in looks:
    run = runs[name]
    at_20, at_1 = (
        "{:.3f} [{:.3f}, {:.3f}]".format(*interval(values))
        for values in (run.entropy[:, run.step == 20.0].ravel(), crossing(run.entropy, 1.0, run.expected_return))
    )
    share = run.selected.mean(0)[-1] if run.selected.size else 0.0
    print(f"{name:20} {at_20:22} {at_1:22} {100.0 * share:4.1f} %")
mean = {name: run.entropy[:, run.step == 20.0].mean() for name, run in runs.items()}
assert mean["GRPO, no clip"] < mean["KL-Cov at random"] < mean["KL-Cov"] < mean["GRPO"] < mean["STEER"]
assert mean["GRPO, no clip"] < mean["Clip-Cov at random"] < mean["Clip-Cov"] < mean["GRPO"]

# %% [markdown]
# How to read it. Against GRPO, Clip-Cov and KL-Cov seem to *lose* entropy; against their own baseline they keep some, and more than
# their random controls do: the choice counts. But the plain PPO clip, which touches fewer tokens, keeps more than either. At equal
# entropy the returns differ by two hundredths at most. STEER touches a third of the tokens and is slower, on the curve of GRPO: a
# smaller step size does that, too. (Which of this holds on other problems, and with twenty seeds, is in the ledger, C22 to C39.)

# %% [markdown]
# ## Exercises
#
# **6.1** A function of (log-probabilities, advantages), two arrays of N tokens, that gives the covariance score of each token.

# %%
covariance_scores = None
check("6.1", covariance_scores)

# %% [markdown]
# **6.2** A function of (log π, log π_old, score, β) that gives the score of a token that KL-Cov selected, from its plain score. What is
# it where the two policies are equal?

# %%
pulled = None
check("6.2", pulled)

# %% [markdown]
# **6.3** STEER's weight can be written as λ = exp(−α |Ω| / max|Ω|). Which α makes λ_min the smallest weight? A function of λ_min.

# %%
alpha = None
check("6.3", alpha)
