"""What do a step and a recorded step cost on each kind of problem, by the size S·A of its table of logits?

Exact vanilla PG in float64: the loop of `simulate`, compiled as it compiles it, without a record and with a row of the
trace a step. Time is the median of interleaved repeats after a warm-up; memory is what XLA plans for arguments, results
and temporaries. Slopes are least squares on logs over the three largest sizes of a kind, all compiled alike: tables of
more than 4,096 numbers get better code, which takes longer to compile. Writes figures/worlds.json, .png and .svg.
Run on an idle machine: python experiments/benchmarks/worlds.py (two minutes; --quick: a test, into a temporary folder)
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).parents[2]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(ROOT))
jax.config.update("jax_enable_x64", True)

from softmaxdyn import MDP, Algorithm, Bandit, TokenTree, VanillaPG, plots  # noqa: E402
from softmaxdyn.simulation import _SMALL, advance, observed, quick_jit  # noqa: E402

REPEATS, LONG_ENOUGH, FITTED = 7, 0.02, 3  # repeats, seconds that one takes at least, sizes in a fit
ACTIONS = 4


def paid(states):
    """Random rewards [S, A]."""
    return np.random.default_rng(0).random((states, ACTIONS))


def moves(states):
    """Dense random transitions [S, A, S]."""
    table = np.random.default_rng(1).random((states, ACTIONS, states))
    return table / table.sum(-1, keepdims=True)


def tree(depth, end):
    """Random rewards for every token of a response."""
    rows = sum((ACTIONS - end) ** level for level in range(depth))
    return TokenTree(paid(rows), vocabulary=ACTIONS, depth=depth, end=end)


KINDS = {  # kind: (what its sizes count, the sizes, the problem of a size)
    "bandit": ("contexts", (8, 256, 2048, 8192, 32768), lambda n: Bandit(paid(n))),
    "tree": ("depth", range(2, 9), lambda n: tree(n, False)),
    "tree with end": ("depth", range(2, 10), lambda n: tree(n, True)),
    "MDP, 8 states": ("horizon", (4, 64, 256, 1024, 4096), lambda n: MDP(moves(8), paid(8), horizon=n)),
    "MDP, horizon 8": ("states", (8, 64, 192, 320, 512), lambda n: MDP(moves(n), paid(n), horizon=8)),
    "discounted MDP": ("states", (8, 32, 128, 256, 512, 1024), lambda n: MDP(moves(n), paid(n), discount=0.99)),
}
PARTS = {"step": lambda *_, **__: (), "step and record": observed}


def prepared(problem, observe):
    """(a function that makes so many steps, the bytes that XLA plans)."""
    logits = np.zeros(problem.shape)
    names = ("rows", "inner_steps", "observe")
    jit = jax.jit(advance, static_argnames=names) if logits.size > _SMALL else quick_jit(advance, *names)
    given = problem, Algorithm(VanillaPG(0.1)).start(logits), logits, None, 0
    program = jit.lower(*given, 1, 1, rows=1, inner_steps=1, observe=observe).compile()
    plan = program.memory_analysis()
    size = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return lambda count: jax.block_until_ready(program(*given, count, 1)), size


def seconds(make, count):
    """Of one step, by `count` of them."""
    start = time.perf_counter()
    make(count)
    return (time.perf_counter() - start) / count


def enough(make):
    """A number of steps that takes long enough, after a warm-up; the best of three, as a pause looks like a step."""
    count = 1
    make(1)
    while (took := count * min(seconds(make, count) for _ in range(3))) < LONG_ENOUGH / 4:
        count *= 4
    return max(1, int(np.ceil(count * LONG_ENOUGH / took)))


def measured(quick):
    """{kind: {sizes, S·A, and for each part seconds and bytes}}, the repeats of all cases in turn."""
    cases, found = {}, {}
    for kind, (unit, sizes, problem_of) in KINDS.items():
        sizes = list(sizes)[:2] if quick else list(sizes)
        found[kind] = {"unit": unit, "sizes": sizes, "table": []}
        for part in PARTS:
            found[kind][part] = {"seconds": [], "bytes": []}
        for size in sizes:
            problem = problem_of(size)
            found[kind]["table"].append(int(np.prod(problem.shape)))
            for part, observe in PARTS.items():
                make, memory = prepared(problem, observe)
                found[kind][part]["bytes"].append(memory)
                cases[kind, part, size] = make, enough(make)
        print(f"{kind}: {len(sizes)} sizes compiled", file=sys.stderr)
    times = {case: [] for case in cases}
    for _ in range(2 if quick else REPEATS):
        for case, (make, count) in cases.items():
            times[case].append(seconds(make, count))
    for (kind, part, _), values in times.items():
        found[kind][part]["seconds"].append(float(np.median(values)))
    return found


def slope(table, values):
    """d log(value)/d log(S·A) over the largest sizes."""
    return float(np.polyfit(np.log(table[-FITTED:]), np.log(values[-FITTED:]), 1)[0])


def draw(found, stem):
    """Time and memory against S·A, a row a part."""
    with plots.panels(2, 2, 4.6) as (figure, rows):
        for axes, part in zip(rows, PARTS, strict=True):
            for ax, quantity, scale in ((axes[0], "seconds", 1e6), (axes[1], "bytes", 2.0**-20)):
                for style, (kind, case) in enumerate(found.items()):
                    line = {"color": plots.COLOURS[style], "marker": "osD^vP"[style], "markersize": 3, "linewidth": 1}
                    line["linestyle"] = plots.DASHES[style % len(plots.DASHES)]
                    label = f"{kind}, by {case['unit']}"
                    ax.loglog(case["table"], np.array(case[part][quantity]) * scale, label=label, **line)
            axes[0].set_ylabel(f"{part} (μs)")
            axes[1].set_ylabel("memory (MiB)")
        for ax in rows[1]:
            ax.set_xlabel("numbers in the table of logits, S·A")
        figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    plots.save_figure(figure, stem)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small sizes a kind, into a temporary folder")
    quick = parser.parse_args().quick
    stem = Path(tempfile.mkdtemp() if quick else ROOT / "figures") / "worlds"
    found = measured(quick)
    for kind, case in found.items():
        for part in PARTS:
            fits = {name: slope(case["table"], case[part][name]) for name in ("seconds", "bytes")}
            case[part]["slopes"] = fits
            print(
                f"{kind:14} {part:15} {case['unit']} {case['sizes'][-1]} (S·A = {case['table'][-1]:,}): "
                f"{case[part]['seconds'][-1] * 1e6:,.0f} μs, {case[part]['bytes'][-1] / 2**20:.2f} MiB; "
                f"slopes against S·A: time {fits['seconds']:.2f}, memory {fits['bytes']:.2f}"
            )
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "jax": jax.__version__}
    record = {"repeats": 2 if quick else REPEATS, "fitted": FITTED, **machine, "kinds": found}
    stem.with_suffix(".json").write_text(json.dumps(record) + "\n", "utf-8")
    draw(found, stem)
    print(f"written to {stem}.json, .png and .svg")


if __name__ == "__main__":
    main()
