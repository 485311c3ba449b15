"""How fast is the sweep engine, beside what else one could type, and beside what the machine can do?

Exact vanilla PG on bandits, 1024 rows of 10 arms: the engine (recording everything at every step, or at every 100th)
against vectorised NumPy, `jit(vmap(scan))` as one would write it, numba, torch (where they are installed) and a loop in
C that is compiled on the spot (where there is a compiler). Those record H and the covariance alone. Runs are
interleaved, medians count, the unit is ns per state · action · step on one core. Also: two devices against one, 100,000
rows against 1,000, and sampled methods in ns a token. Writes figures/performance.json, .png, .svg.
Run: python experiments/benchmarks/performance.py (three minutes, on an idle machine)
"""

import ctypes
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import Algorithm, Bandit, VanillaPG, plots  # noqa: E402
from softmaxdyn.configs import with_dtype  # noqa: E402
from softmaxdyn.methods import build  # noqa: E402
from softmaxdyn.policy import softmax  # noqa: E402
from softmaxdyn.problems.named import named  # noqa: E402
from softmaxdyn.problems.setting import Setting  # noqa: E402
from softmaxdyn.simulation import step  # noqa: E402
from softmaxdyn.sweeps.engine import Engine  # noqa: E402
from softmaxdyn.sweeps.plan import Cell, Plan  # noqa: E402

ROWS, ARMS, STEPS, ETA, REPEATS = 1024, 10, 1000, 0.1, 5
C = """
#include <math.h>
#define K 10
#define W 64
void run(REAL *restrict z, const REAL *restrict r, REAL *restrict H, REAL *restrict C,
         long rows, long steps, REAL eta) {
    for (long low = 0; low < rows; low += W) {  /* a tile keeps in the cache for all of its steps */
        REAL x[K][W], p[K][W], top[W], sum[W], mean[W], gain[W], first[W], both[W];
        for (long t = 0; t < steps; t++) {
            for (int w = 0; w < W; w++) { top[w] = z[low + w]; sum[w] = mean[w] = gain[w] = first[w] = both[w] = 0; }
            for (int k = 1; k < K; k++) for (int w = 0; w < W; w++)
                top[w] = z[k * rows + low + w] > top[w] ? z[k * rows + low + w] : top[w];
            for (int k = 0; k < K; k++) for (int w = 0; w < W; w++) {
                x[k][w] = z[k * rows + low + w] - top[w]; p[k][w] = EXP(x[k][w]); sum[w] += p[k][w]; }
            for (int w = 0; w < W; w++) sum[w] = 1 / sum[w];
            for (int k = 0; k < K; k++) for (int w = 0; w < W; w++) {
                p[k][w] *= sum[w]; mean[w] += p[k][w] * x[k][w]; gain[w] += p[k][w] * r[k * rows + low + w]; }
            for (int k = 0; k < K; k++) for (int w = 0; w < W; w++) {
                REAL d = eta * p[k][w] * (r[k * rows + low + w] - gain[w]);
                first[w] += p[k][w] * d; both[w] += p[k][w] * d * (x[k][w] - mean[w]); z[k * rows + low + w] += d; }
            for (int w = 0; w < W; w++) {
                H[t * rows + low + w] = -LOG(sum[w]) - mean[w]; C[t * rows + low + w] = both[w]; }
        }
    }
}
"""


def tables(dtype, rows=ROWS):
    rng = np.random.default_rng(0)
    return rng.standard_normal((ARMS, rows)).astype(dtype), rng.standard_normal((ARMS, rows)).astype(dtype)


def in_c(dtype):
    """The loop in C, one thread, vectorised by the compiler; None without one."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    single = dtype == np.float32
    kind = ["-DREAL=float", "-DEXP=expf", "-DLOG=logf"] if single else ["-DREAL=double", "-DEXP=exp", "-DLOG=log"]
    folder = Path(tempfile.mkdtemp())
    (folder / "floor.c").write_text(C)
    options = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-shared", "-fPIC", *kind]
    command = [compiler, *options, "floor.c", "-o", "floor.so", "-lmvec", "-lm"]
    if subprocess.run(command, cwd=folder, capture_output=True).returncode:
        return None
    run = ctypes.CDLL(str(folder / "floor.so")).run
    real = ctypes.c_float if single else ctypes.c_double
    run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [real]
    z, r = tables(dtype)
    out = np.zeros((2, STEPS, ROWS), dtype)
    return lambda: run(z.ctypes.data, r.ctypes.data, out[0].ctypes.data, out[1].ctypes.data, ROWS, STEPS, ETA)


def in_numpy(dtype):
    z0, r = (np.ascontiguousarray(x.T) for x in tables(dtype))

    def run():
        z, H, cov = z0.copy(), np.empty((STEPS, ROWS), dtype), np.empty((STEPS, ROWS), dtype)
        for t in range(STEPS):
            x = z - z.max(1, keepdims=True)
            e = np.exp(x)
            s = e.sum(1, keepdims=True)
            p = e / s
            u = x - (p * x).sum(1, keepdims=True)
            d = dtype(ETA) * p * (r - (p * r).sum(1, keepdims=True))
            H[t], cov[t] = (np.log(s) - (x - u))[:, 0], (p * u * d).sum(1)
            z += d
        return H, cov

    return run


def as_one_writes_it(dtype):
    """`jit(vmap(scan))`, the first thing that comes to mind."""
    z, r = (jnp.asarray(np.ascontiguousarray(x.T)) for x in tables(dtype))

    def one(z, r):
        def body(z, _):
            p, log_p = jax.nn.softmax(z), jax.nn.log_softmax(z)
            d = ETA * p * (r - p @ r)
            H = -p @ log_p
            return z + d, (H, p @ ((log_p + H) * (d - p @ d)))

        return jax.lax.scan(body, z, None, STEPS)

    many = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(many(z, r))


def in_numba(dtype):
    numba = import_module("numba")
    z0, r = (np.ascontiguousarray(x.T) for x in tables(dtype))

    @numba.njit(fastmath=True)
    def run(z, r, H, cov, eta):
        for row in range(z.shape[0]):
            for t in range(H.shape[0]):
                top = z[row].max()
                x = z[row] - top
                p = np.exp(x)
                s = p.sum()
                p /= s
                mean, gain = (p * x).sum(), (p * r[row]).sum()
                d = eta * p * (r[row] - gain)
                H[t, row], cov[t, row] = np.log(s) - mean, (p * d * (x - mean)).sum()
                z[row] += d

    out = np.empty((2, STEPS, ROWS), dtype)
    return lambda: run(z0.copy(), r, out[0], out[1], dtype(ETA))


def in_torch(dtype):
    torch = import_module("torch")
    torch.set_num_threads(1)
    z0, r = (torch.from_numpy(np.ascontiguousarray(x.T)) for x in tables(dtype))

    def run():
        z, H, cov = z0.clone(), [], []
        for _ in range(STEPS):
            log_p = torch.log_softmax(z, 1)
            p = log_p.exp()
            d = ETA * p * (r - (p * r).sum(1, keepdim=True))
            H.append(-(p * log_p).sum(1))
            cov.append((p * (log_p + H[-1][:, None]) * d).sum(1))
            z = z + d
        return torch.stack(H), torch.stack(cov)

    return run


def in_engine(dtype, every=1, rows=ROWS, devices=1, runs=1):
    """The engine on `runs` runs of `rows` independent bandits."""
    z, r = (np.ascontiguousarray(x.T) for x in tables(dtype, rows))
    cell = Cell({}, Setting(Bandit(r, 1.0), z, ""), Algorithm(VanillaPG(ETA)), 1)
    plan = Plan((cell,), tuple(range(10_000)), STEPS, every, np.dtype(dtype).name, "")
    engine = Engine(plan, [0], block=runs // devices, devices=devices)
    nothing = np.zeros(runs, int)
    return lambda: engine(nothing, nothing)


PEERS = {
    "C, on the spot": in_c,
    "engine, all fields at every 100th step": lambda dtype: in_engine(dtype, 100),
    "engine, all fields at every step": in_engine,
    "NumPy": in_numpy,
    "jit(vmap(scan))": as_one_writes_it,
    "numba": in_numba,
    "torch": in_torch,
}


def interleaved(functions, work):
    """The median ns per unit of work of each, taken in turns after a first call."""
    for function in functions.values():
        function()
    times = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seen) / work[name] * 1e9 for name, seen in times.items()}


def peers(dtype):
    found, missing = {}, []
    for name, make in PEERS.items():
        try:
            made = make(dtype)
        except ImportError:
            made = None
        if made is None:
            missing.append(name)
        else:
            found[name] = made
    work = dict.fromkeys(found, ROWS * ARMS * STEPS)
    return interleaved(found, work), missing


def sizes():
    """ns/el at 1,000 and 100,000 rows, and of 64 runs on one and on two devices."""
    functions = {f"{rows:,} rows": in_engine(np.float64, 100, rows) for rows in (1000, 100_000)}
    work = {f"{rows:,} rows": rows * ARMS * STEPS for rows in (1000, 100_000)}
    for devices in (1, 2):
        functions[f"devices: {devices}"] = in_engine(np.float64, 100, 256, devices, 64)
        work[f"devices: {devices}"] = 64 * 256 * ARMS * STEPS
    return interleaved(functions, work)


def sampled():
    """ns a token of one step, 1000 states, 10 actions, 8 responses, float32."""
    setting = named("pool", 0, prompts=1000, actions=10, correct=0.2)
    logits, problem = np.asarray(setting.logits, np.float32), with_dtype(setting.problem, np.float32)
    functions, steps = {}, 20
    for name in ("grpo", "clip_cov", "kl_cov", "steer"):
        algorithm = build(name, groups=1000, group_size=8).start(logits)

        def run(z, algorithm, key):
            def body(t, carry):
                z, algorithm = carry
                delta, algorithm, _ = step(problem, algorithm, softmax(z), jax.random.fold_in(key, t))
                return z + delta, algorithm

            return jax.lax.fori_loop(0, steps, body, (z, algorithm))[0]

        compiled = jax.jit(run)
        functions[name] = lambda f=compiled, a=algorithm: f(logits, a, jax.random.key(0)).block_until_ready()
    return interleaved(functions, dict.fromkeys(functions, steps * 8000))


def draw(report):
    """The numbers as bars: both precisions of each peer, and the sampled methods."""
    with matplotlib.rc_context(plots.STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 2.6), layout="constrained", width_ratios=(3, 1))
        for offset, dtype, colour in ((-0.2, "float64", plots.COLOURS[0]), (0.2, "float32", plots.COLOURS[5])):
            bars(left, report[dtype], offset, 0.36, color=colour, label=dtype)
        left.set_xlabel("ns per state · action · step, 1024 rows of 10 arms, one core")
        left.legend(loc="lower right")
        bars(right, report["sampled"], 0.0, 0.6, color="0.6")
        right.set_xlabel("ns a sampled token")
    plots.save_figure(figure, ROOT / "figures" / "performance")


def bars(ax, numbers, offset, height, **look):
    places = np.arange(len(numbers)) + offset
    drawn = ax.barh(places, list(numbers.values()), height, **look)
    ax.bar_label(drawn, [f"{value:.3g}" for value in numbers.values()], padding=2, fontsize=6.5)
    ax.set_yticks(np.arange(len(numbers)), list(numbers))
    ax.yaxis.set_inverted(True)
    ax.set_xlim(right=max(ax.get_xlim()[1], 1.15 * max(numbers.values())))


def main():
    report = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "jax": jax.__version__}
    for dtype in (np.float64, np.float32):
        name = np.dtype(dtype).name
        report[name], missing = peers(dtype)
        for peer, value in report[name].items():
            print(f"{name}  {peer:40s} {value:7.2f} ns", flush=True)
        print(f"{name}  skipped, not installed here: {', '.join(missing) or 'nothing'}")
    report["sizes"], report["sampled"] = sizes(), sampled()
    for peer, value in (report["sizes"] | report["sampled"]).items():
        print(f"{peer:49s} {value:7.2f} ns")
    ratio = {
        "100,000 rows over 1,000": report["sizes"]["100,000 rows"] / report["sizes"]["1,000 rows"],
        "two devices over one": report["sizes"]["devices: 1"] / report["sizes"]["devices: 2"],
    }
    thin = "engine, all fields at every 100th step"
    for dtype in ("float64", "float32"):
        for peer, value in report[dtype].items():
            ratio[f"{peer} / thinned engine, {dtype}"] = value / report[dtype][thin]
    report["ratios"] = ratio
    (ROOT / "figures" / "performance.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(report)
    numpy = [ratio[f"NumPy / thinned engine, {dtype}"] for dtype in ("float64", "float32")]
    print(f"The thinned engine is {numpy[0]:.1f} (f64) and {numpy[1]:.1f} (f32) times as fast as vectorised NumPy.")


if __name__ == "__main__":
    main()
