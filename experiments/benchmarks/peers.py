"""The same steps as one would type them elsewhere: each records H and the covariance at every step, [steps, rows].

A road whose package is not installed raises ImportError.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import ETA, ROWS, Case

TILE = 64  # rows that numba takes at once
POOL = ThreadPoolExecutor(2)


def in_numpy(case: Case) -> Callable[[], Any]:
    """Vectorised over the rows; NumPy uses one core."""
    start, r = case.transposed()
    eta = case.dtype(ETA)

    def run() -> Any:
        z = start.copy()
        H, covariance = np.empty((2, case.steps, ROWS), case.dtype)
        for t in range(case.steps):
            x = z - z.max(1, keepdims=True)
            e = np.exp(x)
            s = e.sum(1, keepdims=True)
            p = e / s
            g = x - (p * x).sum(1, keepdims=True)
            d = eta * p * (r - (p * r).sum(1, keepdims=True))
            H[t] = (np.log(s) - (x - g)[:, :1])[:, 0]
            covariance[t] = (p * g * d).sum(1)
            z += d
        return H, covariance

    return run


def as_one_writes_it(case: Case) -> Callable[[], Any]:
    """`jit(vmap(scan))`, the first thing that comes to mind in JAX."""
    z, r = map(jnp.asarray, case.transposed())

    def one(z: Any, r: Any) -> Any:
        def body(z: Any, _: None) -> Any:
            p, log_p = jax.nn.softmax(z), jax.nn.log_softmax(z)
            d = ETA * p * (r - p @ r)
            H = -p @ log_p
            return z + d, (H, p @ ((log_p + H) * (d - p @ d)))

        return jax.lax.scan(body, z, None, case.steps)[1]

    many = jax.jit(jax.vmap(one, out_axes=1))
    return lambda: jax.block_until_ready(many(z, r))


@cache
def _numba_loop() -> Any:
    numba = import_module("numba")

    @numba.njit(fastmath=True, nogil=True)
    def run(z: Any, r: Any, H: Any, covariance: Any, eta: Any, low: Any, high: Any) -> None:
        arms = z.shape[0]
        x, p = np.empty((arms, TILE), z.dtype), np.empty((arms, TILE), z.dtype)
        for start in range(low, high, TILE):
            for t in range(H.shape[0]):
                top, total, mean, gain, both = np.zeros((5, TILE), z.dtype)
                top[:] = z[0, start : start + TILE]
                for k in range(1, arms):
                    for w in range(TILE):
                        top[w] = max(top[w], z[k, start + w])
                for k in range(arms):
                    for w in range(TILE):
                        x[k, w] = z[k, start + w] - top[w]
                        p[k, w] = np.exp(x[k, w])
                        total[w] += p[k, w]
                        mean[w] += p[k, w] * x[k, w]
                        gain[w] += p[k, w] * r[k, start + w]
                for k in range(arms):
                    for w in range(TILE):
                        q = p[k, w] / total[w]
                        d = eta * q * (r[k, start + w] - gain[w] / total[w])
                        both[w] += q * d * (x[k, w] - mean[w] / total[w])
                        z[k, start + w] += d
                for w in range(TILE):
                    H[t, start + w] = np.log(total[w]) - mean[w] / total[w]
                    covariance[t, start + w] = both[w]

    return run


def in_numba(case: Case) -> Callable[[], Any]:
    """Loops over tiles of rows, a thread a core."""
    loop = _numba_loop()
    start, r = case.tables()
    out = np.empty((2, case.steps, ROWS), case.dtype)
    share = ROWS // case.cores

    def run() -> Any:
        z = start.copy()
        some = lambda low: loop(z, r, out[0], out[1], case.dtype(ETA), low, low + share)  # noqa: E731
        list(POOL.map(some, range(0, ROWS, share))) if case.cores > 1 else some(0)
        return out

    return run


def _step(z: Any, r: Any) -> Any:
    """One step, in torch."""
    log_p = z.log_softmax(1)
    p = log_p.exp()
    d = ETA * p * (r - (p * r).sum(1, keepdim=True))
    H = -(p * log_p).sum(1)
    return z + d, H, (p * (log_p + H[:, None]) * d).sum(1)


def in_torch(case: Case, step: Callable[..., Any] = _step) -> Callable[[], Any]:
    """Eager torch, with as many threads as cores."""
    torch = import_module("torch")
    start, r = map(torch.from_numpy, case.transposed())

    def run() -> Any:
        torch.set_num_threads(case.cores)
        z, H, covariance = start, [], []
        with torch.no_grad():
            for _ in range(case.steps):
                z, entropy, both = step(z, r)
                H.append(entropy)
                covariance.append(both)
        return torch.stack(H).numpy(), torch.stack(covariance).numpy()

    return run


def in_compiled_torch(case: Case) -> Callable[[], Any]:
    """`torch.compile` of a step."""
    torch = import_module("torch")
    return in_torch(case, torch.compile(lambda z, r: _step(z, r), dynamic=False))
