"""Second roads to the numbers of the package: arithmetic of hundreds of digits (mpmath), and families of hard cases."""

import math
from typing import NamedTuple

import mpmath as mp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

FAMILIES = ["random", "near-uniform", "gap 40", "gap 700", "two peaks", "masked"]
FLOOR = {"float64": 1e-290, "float32": 1e-30}  # a value below it is exempt: its terms are not normal numbers

exp = np.frompyfunc(mp.exp, 1, 1)
exactly = np.frompyfunc(lambda x: mp.mpf(float(x)), 1, 1)


class Step(NamedTuple):
    """One step of one state, in numbers of mpmath.

    change_terms and remainder_terms are Σ|term| of the two sums of which ΔH and R are the values:
    −Σ (π' − π) u − KL and −Σ (π' − π − π d) u − KL. The scales bound the rounding errors, see `rounding_error`.
    """

    entropy: mp.mpf
    entropy_change: mp.mpf
    covariance: mp.mpf
    remainder: mp.mpf
    kl: mp.mpf
    change_terms: mp.mpf
    remainder_terms: mp.mpf
    change_scale: mp.mpf
    remainder_scale: mp.mpf


def digits(logits, delta=0.0):
    """Decimal places that leave 40 right ones: as many as e^gap has, and twice those of the step's own smallness."""
    live = np.isfinite(logits)
    z, d = np.asarray(logits, float)[live], np.broadcast_to(np.asarray(delta, float), np.shape(logits))[live]
    sizes = np.abs(d[d != 0.0])
    small_or_large = np.abs(np.log10([sizes.min(), sizes.max()])).sum() if sizes.size else 0.0
    return int(60 + max(np.ptp(z), np.ptp(z + d)) / math.log(10) + 2 * small_or_large)


def policy_of(z):
    """(π, log π) by the textbook: eᶻ/Σ eᶻ, z − log Σ eᶻ."""
    weight = exp(z)
    total = weight.sum()
    return weight / total, z - mp.log(total)


def exact_entropy(logits):
    """H = −Σ π log π."""
    with mp.workdps(digits(logits)):
        p, lp = policy_of(exactly(np.asarray(logits)[np.isfinite(logits)]))
        return -(p * lp).sum()


def exact_step(logits, delta):
    """ΔH by subtraction of two entropies, Cov_π(log π, δ), R their sum, with digits to spare."""
    with mp.workdps(digits(logits, delta)):
        live = np.isfinite(logits)
        z, d = exactly(np.asarray(logits)[live]), exactly(np.asarray(delta)[live])
        (p, lp), (q, lq) = policy_of(z), policy_of(z + d)
        entropy, after = -(p * lp).sum(), -(q * lq).sum()
        u, d, mode = lp + entropy, d - (p * d).sum(), np.argmax(lp)
        covariance, kl = (p * u * d).sum(), (q * (lq - lp)).sum()
        new = (lp - lq + d)[mode]  # log Σ π eᵈ
        far = abs(d) + (p * abs(d - d[mode])).sum() + new
        off = abs(u) + (p * abs(lp - lp[mode])).sum()
        change = after - entropy
        step = Step(
            entropy=entropy,
            entropy_change=change,
            covariance=covariance,
            remainder=change + covariance,
            kl=kl,
            change_terms=kl + abs((q - p) * u).sum(),
            remainder_terms=kl + abs((q - p - p * d) * u).sum(),
            change_scale=((p + q) * far * (off + far)).sum(),
            remainder_scale=((p + q) * (far * far + new) * (1 + off)).sum(),
        )
        return Step(*(x if abs(x) > 1e9 * mp.eps else mp.mpf(0) for x in step))  # what is left of an exact zero


def exact_kl(logits, other):
    """(KL(π‖other), Σ (π + other)|t|(1 + |log π| + |log other|), t = log other − log π): the value and its scale."""
    with mp.workdps(digits(logits) + digits(other)):
        (p, lp), (q, lq) = policy_of(exactly(np.asarray(logits))), policy_of(exactly(np.asarray(other)))
        return (p * (lp - lq)).sum(), ((p + q) * abs(lp - lq) * (1 + abs(lp) + abs(lq))).sum()


def rounding_error(logits, delta, dtype):
    """What rounding may cost, as a multiple of `change_scale` or `remainder_scale`.

    Each term is a product of π, a function of the step and u. The sums over K actions cost at most K eps, some 16
    operations a term cost eps each, and the exponent of π'/π, rounded twice, costs |exponent| eps. What centring
    costs, K eps E|x| at worst in u and K eps E|y| in d (x and y are relative to the mode), is in the scale.
    """
    live = np.isfinite(logits)
    return float(np.finfo(dtype).eps) * (len(live) + 16 + np.ptp(np.asarray(delta, float)[live]))


def error(value, exact):
    """|value − exact| as a float."""
    return float(abs(mp.mpf(float(value)) - exact))


def relative_error(value, exact, floor=0.0):
    """|value − exact|/|exact| as a float; 0 where |exact| ≤ `floor`."""
    return 0.0 if abs(exact) <= floor else float(abs(mp.mpf(float(value)) - exact) / abs(exact))


def hard_logits(family, actions, rng, dtype="float64"):
    """Logits of one family of policies. In float32 a gap of 700 shrinks to 70: e^−70 is still a number there."""
    noise = rng.standard_normal(actions)
    order = rng.permutation(actions)
    deep = 700.0 if dtype == "float64" else 70.0
    return {
        "random": 2.0 * noise,
        "near-uniform": 10.0 ** rng.uniform(-9.0, -2.0) * noise,
        "gap 40": noise - 40.0 * (order > 0),
        "gap 700": noise - deep * np.where(order > 0, rng.uniform(0.1, 0.95, actions), 0.0),
        "two peaks": noise - deep * np.where(order > 1, rng.uniform(0.1, 0.95, actions), 0.0),
        "masked": np.where(order > actions // 2, -np.inf, 2.0 * noise),
    }[family].astype(dtype)


def hard_step(kind, actions, rng, dtype="float64"):
    """A step of one kind: of one size from 1e-12 to 1, of one size up to 10, or of an own size for each action."""
    noise = rng.standard_normal(actions)
    size = {
        "small": 10.0 ** rng.uniform(-12.0, 0.0),
        "large": 10.0 ** rng.uniform(0.0, 1.0) / np.abs(noise).max(),
        "uneven": 10.0 ** rng.uniform(-6.0, 0.5, actions),
    }[kind]
    return (size * noise).astype(dtype)


def campaign(kind, dtype, actions, cases, seed=0):
    """(logits [N, K], δ [N, K], family of each): `cases` seeded cases of each family."""
    rng = np.random.default_rng([seed, actions])
    families = [family for family in FAMILIES for _ in range(cases)]
    logits = np.stack([hard_logits(family, actions, rng, dtype) for family in families])
    return logits, np.stack([hard_step(kind, actions, rng, dtype) for _ in families]), families


@st.composite
def moves(draw, sizes=(2, 3, 10)):
    """(logits, δ) of K actions, float64: gaps up to 600, masks, steps of up to 10 that differ between actions."""
    actions = draw(st.sampled_from(sizes))
    unit = st.floats(-1.0, 1.0, width=32)
    z = draw(arrays(float, actions, elements=unit)) * draw(st.sampled_from([1.0, 1e-9, 1e-3, 40.0, 600.0]))
    size = draw(arrays(float, actions, elements=st.sampled_from([1.0, 1e-3, 1e-6])))
    d = draw(arrays(float, actions, elements=unit)) * size * draw(st.sampled_from([1.0, 1e-6, 10.0]))
    hidden = draw(arrays(bool, actions, elements=st.booleans()))
    return np.where(hidden & (np.arange(actions) > 0), -np.inf, z), d
