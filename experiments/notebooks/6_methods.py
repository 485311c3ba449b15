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
# Fifteen minutes. Three ways to slow the loss of entropy, and the controls without which they say nothing.

# %%
import jax

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import softmaxdyn as sd
from softmaxdyn.comparison import classify, paths
from softmaxdyn.problems.named import named

pool = named("pool", 0, prompts=16, actions=10)
settings = {"groups": 16, "group_size": 8}

# %% [markdown]
# ## Tokens and scores
#
# Each drawn token pushes the logits of its state by score · (e_a − π); the plain score is ratio × advantage. Clip-Cov sets the
# score of some tokens to zero, KL-Cov subtracts a pull towards the policy that drew them, STEER multiplies it. All three look at
# the *covariance* of a token, (log π − mean)(A − mean), or at an estimate of its effect on the entropy.
#
# ## A no-op
#
# On the first inner step the policy *is* the one that drew the tokens, and KL-Cov's pull is zero. With one inner step a batch it
# is GRPO, to the bit.

# %%
runs = {}
for name in ("grpo", "kl_cov"):
    algorithm = sd.build(name, step_size=4.0, **settings)
    trace = sd.simulate(pool.problem, algorithm, num_steps=20, logits=pool.logits, key=jax.random.key(0))
    runs[name] = np.asarray(trace.logits)
assert np.array_equal(runs["grpo"], runs["kl_cov"])
print("one inner step: KL-Cov is GRPO, to the bit")

# %% [markdown]
# `classify` measures the kind of a method by running it:

# %%
for name in ("kl_cov", "steer", "entropy_bonus", "positive_reweighting"):
    kind, no_op = classify(pool.problem, sd.build(name, **settings), pool.logits)
    print(f"{name:20} {kind:22} first step plain: {no_op}")
assert classify(pool.problem, sd.build("kl_cov", **settings), pool.logits) == ("off-policy-only", True)

# %% [markdown]
# ## Four inner steps, ten seeds
#
# Now with four inner steps a batch. Beside each method stands what it must be compared with: the *same number* of tokens, chosen
# at random.

# %%
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison import Shuffled

methods = {"GRPO": sd.build("grpo", step_size=2.0, **settings)}
for label, name, numbers in (("KL-Cov", "kl_cov", {"fraction": 0.1}), ("STEER", "steer", {})):
    methods[label] = sd.build(name, step_size=2.0, **settings, **numbers)
own = methods["KL-Cov"]
methods["KL-Cov on random tokens"] = Algorithm(own.update, own.estimator, (Shuffled(own.interventions),))
keys = jax.random.split(jax.random.key(0), 10)
seen = {
    name: paths(pool.problem, m, num_steps=120, keys=keys, logits=pool.logits, inner_steps=4)
    for name, m in methods.items()
}

# %%
figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.0), layout="constrained")
for (name, run), style, colour in zip(
    seen.items(), ("-", "--", ":", "-."), ("#000000", "#0072B2", "#D55E00", "#009E73"), strict=True
):
    axes[0].plot(run.step, run.entropy.mean(0), style, color=colour, label=name)
    axes[1].plot(run.entropy.mean(0), run.expected_return.mean(0), style, color=colour)
axes[0].set(xlabel="step", ylabel="entropy, H (nats)")
axes[1].set(xlabel="entropy, H (nats)", ylabel="expected return, J")
figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# Read the right panel: at the *same entropy*, how much return? A method that only slows learning runs along the curve of GRPO.
# A number for it: J where H first falls to one nat, the mean over seeds.

# %%
from softmaxdyn.comparison import crossing, interval

for name, run in seen.items():
    mean, low, high = interval(crossing(run.entropy, 1.0, run.expected_return))
    print(
        f"{name:24} J at H = 1: {mean:.3f} [{low:.3f}, {high:.3f}]   touched {100 * run.selected.mean():.1f} % of the tokens"
    )

# %% [markdown]
# ## Exercises
#
# **6.1** A function of log-probabilities [N] and advantages [N] that gives the covariance scores of the tokens.

# %%
covariance_scores = None
check("6.1", covariance_scores)

# %% [markdown]
# **6.2** A function of (log π, log π_old, score, β) that gives KL-Cov's score of a *selected* token: minus β times the sign of
# log π − log π_old. What is it where the two are equal?

# %%
pulled = None
check("6.2", pulled)

# %% [markdown]
# **6.3** STEER's weight is λ = exp(−α |Ω| / max|Ω|). Which α gives the smallest weight λ_min? A function of λ_min.

# %%
alpha = None
check("6.3", alpha)
