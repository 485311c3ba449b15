"""Resampled residuals that keep their autocorrelation: a circular block bootstrap after an AR(1) filter.

Residuals u are filtered to e_t = u_t − ρ u_{t−1}, blocks of e are drawn on a circle (Politis & Romano 1992), and the
filter is undone on what was drawn ("post-blackening", Davison & Hinkley 1997). Blocks of u themselves cover far too
little on a few dozen rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from softmaxdyn.laws.forms import Array

_CELLS = 2**22  # numbers drawn at a time


class Noise(NamedTuple):
    """How residuals hang together.

    correlation   ρ of neighbours, ρ̂ + (P + (P + 2) ρ̂)/N, which allows for P fitted coefficients; within [0, 0.97]
    innovations   e_t = u_t − ρ u_{t−1}, their mean taken off
    block         length of the blocks of innovations
    inflation     variance of a mean over that of independent rows, at least 1: N rows are worth N/inflation
    """

    correlation: float
    innovations: Float[np.ndarray, " M"]
    block: int
    inflation: float


def noise(residuals: Array, fitted: int = 2, block: int | None = None) -> Noise:
    """The noise in residuals that are left after `fitted` coefficients; `block` in place of `block_length`."""
    u = residuals - residuals.mean()
    square = float(u @ u)
    raw = float(u[1:] @ u[:-1]) / square if square else 0.0
    correlation = float(np.clip(raw + (fitted + (fitted + 2) * raw) / len(u), 0.0, 0.97))
    innovations = u[1:] - correlation * u[:-1]
    innovations = innovations - innovations.mean()
    length, inflation = _spectrum(innovations)
    inflation *= (1.0 + correlation) / (1.0 - correlation)
    return Noise(correlation, innovations, length if block is None else block, inflation)


def block_length(values: Array) -> int:
    """The length of block that is best for the mean of a stationary series.

    (2 G²/D)^⅓ N^⅓ with G = Σ λ(k/M) |k| R_k, D = 4/3 (Σ λ(k/M) R_k)², a flat-top window λ, and M = 2 m, where m is the
    lag after which five correlations are within ±2 √(log₁₀N/N); at most min(3 √N, N/3). From 1 up.
    source  Politis & White 2004, as corrected by Patton, Politis & White 2009
    """
    return _spectrum(values - values.mean())[0]


def resample(found: Noise, rows: int, count: int, random: np.random.Generator) -> Float[np.ndarray, "B N"]:
    """`count` series of `rows` residuals each, drawn from the noise that was found."""
    from scipy.signal import lfilter

    start_up = 0 if found.correlation == 0.0 else int(np.ceil(np.log(1e-3) / np.log(found.correlation)))
    total = rows + start_up
    first = random.integers(0, len(found.innovations), (count, -(-total // found.block)))
    at = (first[..., None] + np.arange(found.block)) % len(found.innovations)
    drawn = found.innovations[at.reshape(count, -1)[:, :total]]
    return lfilter([1.0], [1.0, -found.correlation], drawn, axis=1)[:, start_up:]


def resampled_coefficients(
    inverse: Float[np.ndarray, "P N"], found: Noise, replicates: int, seed: int
) -> Float[np.ndarray, "B P"]:
    """What least squares makes of `replicates` resampled series: (pseudoinverse) @ u, bit for bit by the seed."""
    random = np.random.default_rng(seed)
    rows, at_once = inverse.shape[1], max(_CELLS // inverse.shape[1], 1)
    counts = [min(at_once, replicates - done) for done in range(0, replicates, at_once)]
    return np.concatenate([resample(found, rows, count, random) @ inverse.T for count in counts])


def _spectrum(values: Array) -> tuple[int, float]:
    """The best block, and Σ λ R_k / R_0 (at least 1), of a series with mean 0."""
    rows = len(values)
    covariance = _autocovariance(values)
    if covariance[0] <= 0.0 or rows < 4:
        return 1, 1.0
    lags = np.arange(1, min(2 * _last_lag(covariance, rows), len(covariance) - 1) + 1)
    window = np.clip(2.0 * (1.0 - lags / len(lags)), 0.0, 1.0)
    total = float(covariance[0] + 2.0 * np.sum(window * covariance[lags]))
    total = total if total > 0.0 else float(covariance[0])
    spread = 2.0 * float(np.sum(window * lags * covariance[lags]))
    best = np.ceil((1.5 * spread**2 / total**2 * rows) ** (1.0 / 3.0))
    longest = min(np.ceil(3.0 * np.sqrt(rows)), np.ceil(rows / 3.0))
    return int(np.clip(best, 1.0, longest)), max(total / float(covariance[0]), 1.0)


def _last_lag(covariance: Float[np.ndarray, " K"], rows: int) -> int:
    """The lag after which five correlations in a row are small, at least 1."""
    small = np.abs(covariance[1:]) < 2.0 * np.sqrt(np.log10(rows) / rows) * covariance[0]
    starts = [m for m in range(len(small) - 4) if small[m : m + 5].all()]
    return max(starts[0] if starts else len(small), 1)


def _autocovariance(values: Array) -> Float[np.ndarray, " K"]:
    """Σ_t x_t x_{t+k} / N for k up to √N + 5."""
    rows = len(values)
    spectrum = np.abs(np.fft.rfft(values, 2 * rows)) ** 2
    return np.fft.irfft(spectrum, 2 * rows)[: min(int(np.ceil(np.sqrt(rows))) + 6, rows)] / rows
