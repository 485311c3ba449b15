"""How does the time of a run grow with contexts, actions, steps and the number of runs, and where are the knees?

Exact vanilla PG on bandits in float64 on one core: the engine of a sweep, with H and a covariance recorded at every
step and at every 100th. Each axis is varied alone, medians of interleaved repeats, after a warm-up. The law
time = fixed + each · size is fitted in relative errors; the knee is where both are equal. Writes figures/scaling.json,
.png and .svg.
Run on an idle machine: python experiments/benchmarks/scaling.py (two minutes; --quick: a test, into a temporary folder;
--large: besides, 10⁶ contexts × 16 actions × 1000 steps, the ten-armed testbed of Sutton and Barto, and the peak memory
of sweeps of 4,096 and 16,384 runs, each in a process of its own; ten minutes)
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]
jax.config.update("jax_enable_x64", True)

import engines  # noqa: E402
from timing import Timed, interleaved, keep_to  # noqa: E402

from softmaxdyn import Algorithm, Bandit, Sampled, VanillaPG, plots  # noqa: E402
from softmaxdyn.advantages import RLOO, ValueBaseline  # noqa: E402
from softmaxdyn.problems.setting import Setting  # noqa: E402
from softmaxdyn.sweeps import execute, native  # noqa: E402
from softmaxdyn.sweeps.plan import Cell, make_plan  # noqa: E402

AXES: dict[str, tuple[int, ...]] = {
    "contexts": (1, 8, 64, 512, 4096, 32_768, 262_144),
    "actions": (2, 8, 32, 128, 512, 2048),
    "steps": (10, 100, 1000, 10_000, 100_000),
    "runs": (1, 8, 64, 512, 4096),
}
BASE = {"contexts": 64, "actions": 10, "steps": 1000, "runs": 1}
LABELS = {"contexts": "contexts S", "actions": "actions K", "steps": "steps", "runs": "runs of one context"}
MOST = 2 * 10**8  # numbers of a run: fewer steps where a table is large, and the time is scaled up
RECORDS = {"recorded at every step": 1, "recorded at every 100th": 100}
CAPTION = """Time of one run of exact vanilla PG on a bandit (float64, one core; {base}).
Lines: fixed + each · size. The fixed part is what a call of the engine costs whatever is in it (dispatch, the loop over
steps); left of the dotted knee it is the larger part, so that more rows in a call are nearly free. Right of it time is
proportional to the numbers: tiles of rows keep in the cache for all steps of a call, so a large table costs about the
same a number. Time per run falls with the number of runs until the calls of the engine are full."""


def plan_of(every: int, contexts: int, actions: int, steps: int, runs: int) -> Any:
    """(a plan of that many equal cells, the numbers that it computes)."""
    rewards, logits = np.random.default_rng(0).standard_normal((2, contexts, actions))
    one = engines.cell(rewards, logits)
    return engines.Plan((one,) * runs, (0,), steps, every, "float64", "", engines.SIMPLE)


def measured(quick: bool) -> dict[str, Any]:
    """{axis: {sizes, and for each record the seconds of a run}}."""
    timed, found = {}, {}
    keep_to(1)
    for axis, sizes in AXES.items():
        chosen = sizes[:3] if quick else sizes
        found[axis] = {"sizes": list(chosen), **{record: [] for record in RECORDS}}
        for size in chosen:
            point = BASE | {axis: size} | ({"contexts": 1} if axis == "runs" else {})
            rows = point["contexts"] * point["actions"] * point["runs"]
            steps = point["steps"] if axis == "steps" else int(np.clip(MOST // rows, 100, point["steps"]))
            steps = min(steps, 200) if quick and axis != "steps" else steps
            for record, every in RECORDS.items():
                run = engines.runner(plan_of(every, **(point | {"steps": steps})))
                run()
                work = point["runs"] * steps / point["steps"]
                timed[axis, record, size] = Timed(run, 1e9 * work)
        print(f"{axis}: {len(chosen)} sizes compiled", file=sys.stderr)
    for (axis, record, _), seconds in interleaved(timed, 1 if quick else 5).items():
        found[axis][record].append(seconds)
    return found


def fitted(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """(fixed, each) of time = fixed + each · size, both ≥ 0, least squares in relative errors."""
    from scipy.optimize import nnls

    table = np.stack([np.ones(len(sizes)), sizes], 1) / np.array(seconds)[:, None]
    scale = np.linalg.norm(table, axis=0)
    fixed, each = nnls(table / scale, np.ones(len(sizes)))[0] / scale
    return float(fixed), float(each)


def verdict(axis: str, case: dict[str, Any], record: str) -> str:
    """What the times of an axis say, in a line; adds the fit to `case`."""
    sizes, seconds = case["sizes"], case[record]
    if axis == "runs":
        full = seconds[-1]
        enough = next(size for size, value in zip(sizes, seconds, strict=True) if value <= 2 * full)
        return (
            f"a run alone takes {seconds[0] / full:.0f} times what it takes among {sizes[-1]:,}; {enough:,} are enough "
            "for half the speed"
        )
    fixed, each = fitted(sizes, seconds)
    case[f"{record}: fixed, each"] = fixed, each
    knee = f"the knee is at {fixed / each:,.0f}" if each > 0.0 and fixed > 0.0 else "no knee"
    others = np.prod([value for name, value in BASE.items() if name != axis])
    per_number = [value / size / others * 1e9 for size, value in zip(sizes, seconds, strict=True)]
    worst = per_number[-1] / min(per_number)
    return (
        f"{fixed * 1e3:.2f} ms + {each * 1e3:.2g} ms each, {knee}; ns a number {per_number[-1]:.2f} at {sizes[-1]:,}, "
        f"{worst:.2f} times the least"
    )


def draw(found: dict[str, Any], stem: Path) -> None:
    """A panel an axis, both axes logarithmic, with the fits and their knees."""
    with plots.panels(1, 4, 2.4) as (figure, (axes,)):
        for ax, (axis, case) in zip(axes, found.items(), strict=True):
            for style, record in enumerate(RECORDS):
                look: dict[str, Any] = {"color": plots.COLOURS[style], "marker": "os"[style], "markersize": 3.5}
                fit = case.get(f"{record}: fixed, each")
                line = "-" if fit is None else ""
                milliseconds = np.array(case[record]) * 1e3
                ax.loglog(case["sizes"], milliseconds, linestyle=line, label=record, linewidth=1.0, **look)
                if fit is not None:
                    x = np.geomspace(case["sizes"][0], case["sizes"][-1])
                    dashes = plots.DASHES[style]
                    ax.loglog(x, (fit[0] + fit[1] * x) * 1e3, color=look["color"], linewidth=1.0, linestyle=dashes)
                    if style == 0 and case["sizes"][0] < fit[0] / max(fit[1], 1e-99) < case["sizes"][-1]:
                        ax.axvline(fit[0] / fit[1], color="0.6", linewidth=0.8, linestyle=":")
            ax.set_xlabel(LABELS[axis])
        axes[0].set_ylabel("time of a run (ms)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    plots.save_figure(figure, stem)


# Large cases: each in a process of its own, whose peak memory is its own.


def million(scale: int) -> dict[str, Any]:
    """10⁶ contexts × 16 actions × 1000 steps, exact, recorded at every 100th."""
    contexts, steps = 10**6 // scale, 1000 // scale
    start = time.perf_counter()
    found = engines.runner(plan_of(100, contexts, 16, steps, 1))()
    seconds = time.perf_counter() - start
    numbers = contexts * 16 * steps
    table = contexts * 16 * 8 / 2**20
    last = {"MiB of a table": table, "mean entropy": found[0]["entropy"][0, -1]}
    return {"seconds": seconds, "numbers a second": numbers / seconds, **last}


def testbed(scale: int) -> dict[str, Any]:
    """10⁴ runs of 1000 steps on 2000 bandits of ten arms that pay q ~ N(0, 1): a draw a step against V, η = 0.4."""
    bandits, rng = 2000 // scale, np.random.default_rng(0)
    algorithm = Algorithm(VanillaPG(0.4), Sampled(1, 1, advantage=ValueBaseline()))
    cells = []
    for number in range(bandits):
        rewards = rng.standard_normal((1, 10))
        cells.append(Cell({"problem": str(number)}, Setting(Bandit(rewards), np.zeros((1, 10)), ""), algorithm, 1))
    options: dict[str, Any] = {"seeds": 5, "num_steps": 1000, "every": 10, "dtype": "float64", "lines": ["testbed"]}
    return swept(make_plan(cells, fields=["expected_return", "entropy"], **options), "expected_return")


def memory(runs: int) -> dict[str, Any]:
    """A sweep of that many runs of 100 steps, which stores every field at every step: some 20 kB a run."""
    setting = Setting(Bandit(np.linspace(0.0, 1.0, 10)), np.zeros((1, 10)), "")
    cell = Cell({"problem": "bandit"}, setting, Algorithm(VanillaPG(0.1), Sampled(1, 4, advantage=RLOO())), 1)
    options: dict[str, Any] = {"seeds": runs, "num_steps": 100, "every": 1, "dtype": "float64", "lines": ["memory"]}
    return swept(make_plan([cell], **options), "entropy")


def swept(plan: Any, name: str) -> dict[str, Any]:
    """The sweep, with its files in a temporary folder; `name` is what to take the mean of at the last step."""
    import h5netcdf

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = execute(plan, Path(folder) / "out")
        seconds = time.perf_counter() - start
        with h5netcdf.File(done.table, "r") as file:
            mean = float(np.mean(file.variables[name][:, -1]))
    return {"runs": plan.num_runs, "seconds": seconds, "runs a second": plan.num_runs / seconds, f"mean {name}": mean}


LARGE = {"million": million, "testbed": testbed, "memory": memory}


def alone(name: str, size: int) -> dict[str, Any]:
    """A large case in a fresh process."""
    command = [sys.executable, __file__, "--case", name, str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_alone(name: str, size: int) -> None:
    """Prints what a large case finds and the peak memory of this process."""
    found = LARGE[name](size)
    print(json.dumps({k: float(v) for k, v in found.items()} | {"peak MiB": peak()}))


def peak() -> float:
    """MiB that this process held at most; on Linux from /proc, as getrusage there starts with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)


def large(quick: bool) -> dict[str, Any]:
    """All large cases, smaller ones in a test."""
    scale = 20 if quick else 1
    counts = (1024, 4096) if quick else (4096, 16_384)
    found = {"10⁶ contexts × 16 × 1000": alone("million", scale), "ten-armed testbed": alone("testbed", scale)}
    found |= {f"sweep of {runs:,} runs": alone("memory", runs) for runs in counts}
    for name, case in found.items():
        print(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in case.items()))
    few, many = (found[f"sweep of {runs:,} runs"]["peak MiB"] for runs in counts)
    print(f"Four times as many runs take {many / few:.2f} times the memory at the peak.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three sizes an axis, into a temporary folder")
    parser.add_argument("--large", action="store_true", help="also the large cases and their peak memory")
    parser.add_argument("--case", nargs=2, metavar=("NAME", "SIZE"), help="one large case; --large starts these")
    given = parser.parse_args()
    if given.case:
        return run_alone(given.case[0], int(given.case[1]))
    stem = Path(tempfile.mkdtemp() if given.quick else ROOT / "figures") / "scaling"
    found = measured(given.quick)
    for axis, case in found.items():
        for record in RECORDS:
            print(f"{axis:9} {record:24} {verdict(axis, case, record)}")
    base = ", ".join(f"{value:,} {name}" for name, value in BASE.items() if name != "runs")
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "jax": jax.__version__}
    report = {**machine, "kernel": native.kernel(), "caption": CAPTION.format(base=base), "axes": found}
    print(report["caption"])
    if given.large:
        report["large"] = large(given.quick)
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    draw(found, stem)
    print(f"written to {stem}.json, .png and .svg")


if __name__ == "__main__":
    main()
