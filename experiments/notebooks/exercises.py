"""The checks of the exercises: each says what is wrong with an answer. Solutions are in solutions.py."""

from itertools import pairwise

import numpy as np

import softmaxdyn as sd
from softmaxdyn import laws

RNG = np.random.default_rng(0)
POLICIES = [p / p.sum() for p in RNG.exponential(size=(6, 4)) ** 2 + 1e-3]
TELLING = [
    [0.5, 0.4, 0.1],
    [0.55, 0.35, 0.1],
    [0.9, 0.05, 0.05],
    [0.4, 0.3, 0.2, 0.1],
]  # where a nearly right rule errs


class Wrong(Exception):
    """An answer that is not right yet, and why."""


def check(name, answer):
    """Prints whether the answer to an exercise is right, and if not, what is wrong."""
    if answer is None:
        print(f"{name}: not answered yet")
        return
    try:
        CHECKS[name](answer)
    except Wrong as reason:
        print(f"{name}: not yet: {reason}")
    except Exception as error:
        print(f"{name}: not yet: it raises {type(error).__name__}: {error}")
    else:
        print(f"{name}: right")


def want(condition, reason):
    """Raises Wrong with the reason unless the condition holds."""
    if not condition:
        raise Wrong(reason)


def asked(answer, case, *arguments):
    """What a function answers in a case. Raises Wrong where it is no function, raises, or gives nothing."""
    want(callable(answer), f"wanted a function, got {type(answer).__name__}")
    try:
        got = answer(*arguments)
    except Exception as error:
        raise Wrong(f"for {case} it raises {type(error).__name__}: {error}") from None
    want(got is not None, f"for {case} it gives None; is there a `return`?")
    return got


def numbers(got, shape, case):
    """What came as an array of numbers. Raises Wrong for anything else, and for another shape."""
    try:
        got = np.asarray(got, float)
    except (TypeError, ValueError):
        raise Wrong(f"for {case} it gives a {type(got).__name__}; wanted numbers") from None
    want(got.shape == shape, f"for {case} it has shape {got.shape}; wanted {shape}")
    return got


def shown(x):
    """Numbers as a person reads them."""
    if np.ndim(x) == 0:
        return f"{float(x):.6g}"
    return np.array2string(np.asarray(x, float), precision=4, suppress_small=True, floatmode="maxprec")


def close(got, wanted, case, tolerance=1e-8):
    """Raises Wrong unless two numbers or arrays agree to a relative tolerance."""
    got = numbers(got, np.shape(wanted), case)
    size = np.max(np.abs(wanted)) + 1e-300
    agree = np.max(np.abs(got - wanted)) <= tolerance * size
    want(agree, f"for {case} it gives {shown(got)}; wanted {shown(wanted)}")


def logits_of(answer):
    for p in POLICIES:
        case = f"p = {shown(p)}"
        close(sd.probs(numbers(asked(answer, case, p), p.shape, case)), p, f"{case} the policy of your logits")


def policy_with_entropy(answer):
    for K, h in ((2, 0.5), (5, 1.0), (10, 0.1)):
        case = f"K = {K}, h = {h}"
        p = numbers(asked(answer, case, K, h), (K,), case)
        want(np.isclose(p.sum(), 1.0) and (p >= 0.0).all(), f"for {case} these are no probabilities: {shown(p)}")
        with np.errstate(divide="ignore"):
            close(float(sd.entropy(np.log(p))), h, f"{case} the entropy")


def largest_entropy(answer):
    for K, p in ((3, 0.2), (10, 0.9), (4, 0.25)):
        rest = np.full(K - 1, (1.0 - p) / (K - 1))
        case = f"K = {K}, p = {p}"
        close(asked(answer, case, K, p), float(sd.entropy(np.log([p, *rest]))), case)


def divergence(answer):
    for p, q in pairwise(POLICIES):
        z, delta = np.log(p), np.log(q) - np.log(p)
        case = f"π = {shown(p)}, π′ = {shown(q)}"
        close(asked(answer, case, z, delta), float(sd.kl_divergence(z + delta, z)), case)


def neutral_step(answer):
    z, step = np.log([0.6, 0.25, 0.1, 0.05]), np.asarray(answer, float)
    want(step.shape == (4,), f"it has shape {step.shape}; wanted (4,)")
    want(np.isclose(np.abs(step).max(), 1.0), f"max |δ| is {np.abs(step).max():.3g}; wanted 1")
    want(np.ptp(step) > 0.1, "a constant step changes nothing at all; wanted one that moves the policy")
    want(abs(sd.lemma_1(z, step)) < 1e-9, f"to first order it changes the entropy by {sd.lemma_1(z, step):+.3g}")


def wrong_sign(answer):
    z, step = (np.asarray(part, float) for part in answer)
    want(z.shape == step.shape == (3,), f"shapes are {z.shape} and {step.shape}; wanted three actions in both")
    exact, first = sd.entropy_change(z, step), sd.lemma_1(z, step)
    want(exact * first < 0.0, f"exact {exact:+.3g} and Lemma 1 {first:+.3g} have one sign; try a larger step")


def natural_entropy(answer):
    for p, time in zip(POLICIES, (0.0, 0.5, 1.0, 3.0, -1.0, 10.0), strict=True):
        r = np.arange(4.0)
        case = f"π = {shown(p)}, r = (0, 1, 2, 3), τ = {time}"
        close(asked(answer, case, np.log(p), r, time), float(sd.entropy(np.log(p) + time * r)), case)


def error_of_raw_rewards(answer):
    for p, b in zip(POLICIES, (1.0, -2.0, 0.5, 3.0, 0.0, 10.0), strict=True):
        z = np.log(p)
        A = np.arange(4.0) - p @ np.arange(4.0)
        wanted = float(sd.theorem_1(z, A + b, 1.0) - sd.theorem_1(z, A, 1.0))
        case = f"π = {shown(p)}, A = {shown(A)}, b = {b}"
        got = numbers(asked(answer, case, z, A, b), (), case)
        want(abs(got - wanted) < 1e-9, f"for {case} it gives {got:.6f}; wanted {wanted:.6f}")


def opposite(answer):
    z, r = (np.asarray(part, float) for part in answer)
    want(z.shape == r.shape == (4,), f"shapes are {z.shape} and {r.shape}; wanted four actions in both")
    A = r - np.asarray(sd.probs(z)) @ r
    vanilla, natural = sd.theorem_1(z, A, 1.0), sd.theorem_2(z, A, 1.0)
    want(vanilla > 0.0 > natural, f"vanilla {vanilla:+.3g}, natural {natural:+.3g}; wanted + and −")


def lowers(answer):
    for p in map(np.array, [*TELLING, *POLICIES]):
        case, right = f"p = {shown(p)}", np.asarray(sd.sample_effect(np.log(p))) < 0.0
        got = np.asarray(asked(answer, case, p))
        want(got.dtype == bool, f"for {case} it gives {got.dtype} numbers; wanted True or False for every action")
        want(got.shape == p.shape, f"for {case} it has shape {got.shape}; wanted {p.shape}")
        want((got == right).all(), f"for {case} it says {got}; right is {right}")


def all_but_one(answer):
    p = np.asarray(answer, float)
    want(
        p.shape == (5,) and np.isclose(p.sum(), 1.0) and (p > 0.0).all(),
        "wanted five probabilities > 0 that add up to 1",
    )
    rises = int((np.asarray(sd.sample_effect(np.log(p))) > 0.0).sum())
    want(rises == 4, f"rewarding raises the entropy for {rises} of 5 actions; wanted 4")


def forbidding_number(answer):
    want(np.isscalar(answer) or np.ndim(answer) == 0, "wanted a number")
    want(abs(float(answer)) < 1e-12, f"{float(answer):g} is not it: compute Σ π (S − S̄) for any policy")


def leave_one_out(answer):
    for rewards in ([1.0, 0.0, 0.0, 1.0], [1.0, 1.0], [0.3, 0.1, 0.5]):
        others = [np.mean(rewards[:i] + rewards[i + 1 :]) for i in range(len(rewards))]
        case = f"rewards {rewards}"
        close(asked(answer, case, np.array(rewards)), np.array(rewards) - others, case)


def factor(answer):
    for p, right, wrong in ((0.3, 1.0, 0.0), (0.5, 0.1, -1.0), (0.9, 2.0, 2.0)):
        case = f"p = {p}, w = {right} and {wrong}"
        got = numbers(asked(answer, case, p, right, wrong), (), case)
        want(abs(got - (right - wrong)) < 1e-12, f"for {case} it gives {got:g}")


def groups_needed(answer):
    want(answer == 10, f"{answer} is not it: the noise term is of size η²/N, N the number of groups")


def covariance_scores(answer):
    for log_prob, advantage in (([-1.0, -3.0], [1.0, -1.0]), ([-0.5, -1.0, -3.0], [1.0, 1.0, -0.5])):
        log_prob, advantage = np.array(log_prob), np.array(advantage)
        wanted = (log_prob - log_prob.mean()) * (advantage - advantage.mean())
        case = f"log π = {shown(log_prob)}, A = {shown(advantage)}"
        close(asked(answer, case, log_prob, advantage), wanted, case)


def pulled(answer):
    for now, old, score, beta in ((-1.0, -2.5, 0.5, 1.0), (-2.0, -1.7, 0.5, 0.1), (-1.0, -1.0, 0.5, 1.0)):
        wanted = score - beta * np.sign(now - old)
        case = f"log π = {now}, log π_old = {old}, score = {score}, β = {beta}"
        close(asked(answer, case, now, old, score, beta), wanted, case)


def alpha(answer):
    for least in (0.7, 0.8, 0.99):
        case = f"λ_min = {least}"
        close(asked(answer, case, least), -np.log(least), case)


def slope(answer):
    for a, b, H in ((0.1, 0.9, 1.0), (0.3, 1.2, 0.0)):
        case = f"a = {a}, b = {b}, H = {H}"
        close(asked(answer, case, a, b, H), -a * np.exp(H), case)


def success_at_the_top(answer):
    for inside, outside in ((0.0, 0.0), (0.0, 2.0), (1.0, 0.5)):
        p = np.linspace(0.0, 1.0, 100_001)
        top = p[np.argmax(sd.theory.binary_reward_entropy(p, inside, outside))]
        case = f"H₊ = {inside}, H₋ = {outside}"
        got = numbers(asked(answer, case, inside, outside), (), case)
        want(abs(got - top) < 2e-5, f"for {case} it gives {got:.5f}; wanted {top:.5f}")


def rather_a_line(answer):
    H, R = (np.asarray(part, float) for part in answer)
    want(H.shape == R.shape and H.ndim == 1 and len(H) >= 10, "wanted two rows of one length, ten points at least")
    want(
        (H >= 0.0).all() and (H <= 2.0).all() and (R >= 0.0).all() and (R <= 1.0).all(),
        "H must lie in [0, 2], R in [0, 1]",
    )
    rivals = laws.compare(H, R).rivals
    law, line = rivals["exponential"].aic, rivals["linear"].aic
    want(line < law, f"AIC is {line:.1f} for the line and {law:.1f} for the law; wanted the line's lower")


CHECKS = {
    "1.1": logits_of,
    "1.2": policy_with_entropy,
    "1.3": largest_entropy,
    "2.1": divergence,
    "2.2": neutral_step,
    "2.3": wrong_sign,
    "3.1": natural_entropy,
    "3.2": error_of_raw_rewards,
    "3.3": opposite,
    "4.1": lowers,
    "4.2": all_but_one,
    "4.3": forbidding_number,
    "5.1": leave_one_out,
    "5.2": factor,
    "5.3": groups_needed,
    "6.1": covariance_scores,
    "6.2": pulled,
    "6.3": alpha,
    "7.1": slope,
    "7.2": success_at_the_top,
    "7.3": rather_a_line,
}
