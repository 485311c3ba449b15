"""How fast is the sweep engine, beside what else one could type, and beside what the machine can do?

Exact vanilla PG on 1024 bandits of 10 and of 100 arms, in float64 and float32, on one core and on two: the engine,
vectorised NumPy, `jit(vmap(scan))` as one would write it, numba and torch (where they are installed), and a loop in C
that is compiled on the spot (where there is a compiler). All record H and a covariance at every step, and all agree
before they are timed. Runs are interleaved, medians count, the unit is ns per state · action · step. Also: roofs of the
machine, 100,000 contexts against 1,000, sampled methods in ns a token, the first result of a cold Python. Prints what
is to be reached and what is; writes figures/performance.json, .png and .svg.
Run on an idle machine: python experiments/benchmarks/performance.py (five minutes; --quick: a test, into a temporary
folder)
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from functools import partial
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
import first_result  # noqa: E402
import floor  # noqa: E402
import peers  # noqa: E402
import sampled  # noqa: E402
import targets as to_reach  # noqa: E402
from targets import (  # noqa: E402
    ACCURATE,
    ALL,
    COMPILED,
    CORES,
    FAST,
    FLOOR,
    FLOOR_ACCURATE,
    NUMBA,
    NUMPY,
    PURE,
    SIMPLE,
    THIN,
    TORCH,
    USER,
)
from timing import Case, Timed, interleaved, keep_to  # noqa: E402

from softmaxdyn import plots  # noqa: E402
from softmaxdyn.sweeps import native  # noqa: E402

STEPS = {10: 1000, 100: 200}
EVERY = 100
ENGINE = {
    SIMPLE: engines.in_engine,
    PURE: engines.in_pure_jax,
    ALL: partial(engines.in_engine, fields=None),
    THIN: partial(engines.in_engine, fields=None, every=EVERY),
}
BOTH = {FLOOR: floor.simple, NUMBA: peers.in_numba, TORCH: peers.in_torch, COMPILED: peers.in_compiled_torch}
ONE_CORE = {
    FLOOR_ACCURATE: floor.accurate,
    ACCURATE: partial(engines.in_engine, fields=engines.ACCURATE),
    NUMPY: peers.in_numpy,
    USER: peers.as_one_writes_it,
}


def compared(arms: int, dtype: type, repeats: int, scale: int) -> tuple[dict[str, Any], set[str], float]:
    """({cores: {road: ns}}, the roads that are not installed, share of bits that two devices leave as they are)."""
    timed: dict[tuple[str, str], Timed] = {}
    missing, seen = set(), {}
    reference = [np.array(x) for x in peers.in_numpy(Case(arms, dtype, 1, STEPS[arms] // scale))()]
    for cores, name in enumerate(CORES, 1):
        case = Case(arms, dtype, cores, STEPS[arms] // scale)
        keep_to(cores)
        for road, make in (ENGINE | BOTH | (ONE_CORE if cores == 1 else {})).items():
            try:
                run = make(case)
                found = run()
            except ImportError:
                missing.add(road)
                continue
            fields = engines.recorded(found) if road.startswith("engine") else found
            check(case, road, fields, reference)
            timed[name, road] = Timed(run, case.work, cores)
            seen[name, road] = fields[0] if road == SIMPLE else None
    same = np.mean(seen[CORES[0], SIMPLE] == seen[CORES[1], SIMPLE])
    ns: dict[str, Any] = {name: {} for name in CORES}
    for (name, road), value in interleaved(timed, repeats).items():
        ns[name][road] = value
    return ns, missing, float(same)


def check(case: Case, road: str, fields: Any, reference: Any) -> None:
    """Ends the benchmark where a road gives other numbers: an error of one ulp a step is allowed."""
    for found, wanted in zip(fields[:2], reference, strict=True):
        wanted = wanted[::EVERY] if road == THIN else wanted
        error = float(np.max(np.abs(np.asarray(found) - wanted)))
        if not error <= (100 + case.steps) * np.finfo(case.dtype).eps:
            sys.exit(f"{road} is off by {error:g} for {case.name}: nothing to compare")


def sizes(repeats: int, scale: int) -> dict[str, float]:
    """ns/el of one run on so many contexts."""
    timed = {}
    for states, steps in ((1000, 1000), (100_000, 100)):
        run = engines.contexts(states, 10, steps // scale)
        timed[f"{states:,} contexts"] = Timed(_called(run), states * 10 * (steps // scale))
    return interleaved(timed, repeats)


def samples(repeats: int) -> tuple[dict[str, float], set[str]]:
    """(ns a token of one step of each method, here and in torch, on one core; what is not installed)."""
    timed, missing = {}, set()
    keep_to(1)
    for method in sampled.METHODS:
        roads: dict[str, Callable[[], Any]] = {method: partial(sampled.in_jax, method)}
        roads[f"{method}, {FAST}"] = partial(sampled.in_jax, method, FAST)
        roads[f"{method}, torch"] = partial(sampled.in_torch, method, 1)
        for name, make in roads.items():
            try:
                timed[name] = Timed(_called(make()), sampled.TOKENS)
            except ImportError:
                missing.add(name)
    return interleaved(timed, repeats), missing


def _called(run: Callable[[], Any]) -> Callable[[], Any]:
    """The function, called once: it is compiled and its memory is there."""
    run()
    return run


def draw(report: dict[str, Any], stem: Path) -> None:
    """Time a number of each road on a log axis, a panel a number of arms; the sampled methods in the third."""
    with plots.panels(1, 3, 3.4) as (figure, (axes,)):
        roads = [road for road in ROADS if any(road in ns for case in report["ns"].values() for ns in case.values())]
        for ax, arms in zip(axes, STEPS, strict=False):
            for colour, marker, dtype in ((0, "o", "float64"), (1, "s", "float32")):
                for name, filled in zip(CORES, (True, False), strict=True):
                    ns = report["ns"][f"K = {arms}, {dtype}"][name]
                    look = {"color": plots.COLOURS[colour], "marker": marker, "markersize": 4, "linestyle": ""}
                    look["markerfacecolor"] = look["color"] if filled else "white"
                    places = [(ns[road], place) for place, road in enumerate(roads) if road in ns]
                    ax.plot(*zip(*places, strict=True), label=f"{dtype}, {name}", **look)
            ax.set_xscale("log")
            _rows(ax, roads, f"K = {arms} (ns)")
        axes[1].tick_params(labelleft=False)
        names = list(report["sampled"])
        look = {"color": plots.COLOURS[2], "marker": "D", "markersize": 4, "linestyle": ""}
        axes[2].plot(list(report["sampled"].values()), range(len(names)), label="sampled, float32, 1 core", **look)
        axes[2].set_xlim(0.0, 1.1 * max(report["sampled"].values()))
        _rows(axes[2], names, "a token (ns)")
        handles = [ax.get_legend_handles_labels()[0] for ax in (axes[0], axes[2])]
        figure.legend(handles=[*handles[0], *handles[1]], loc="outside upper center", ncols=5)
    plots.save_figure(figure, stem)


ROADS = (FLOOR, FLOOR_ACCURATE, SIMPLE, PURE, ACCURATE, ALL, THIN, NUMBA, NUMPY, USER, TORCH, COMPILED)


def _rows(ax: Any, names: list[str], label: str) -> None:
    ax.set_xlabel(label)
    ax.set_yticks(range(len(names)), names)
    ax.yaxis.set_inverted(True)
    ax.grid(color="0.9", linewidth=0.5)
    ax.set_axisbelow(True)


def tell(report: dict[str, Any]) -> None:
    """The tables, and what they say."""
    for case, by_cores in report["ns"].items():
        print(f"\n{case}: ns per state · action · step{'':18}1 core   2 cores")
        for road in ROADS:
            values = [by_cores[name].get(road) for name in CORES]
            if any(values):
                print(f"  {road:48}" + "".join(f"{value:10.2f}" if value else f"{'–':>10}" for value in values))
    print("\nsampled, ns a token: " + ", ".join(f"{name} {value:.0f}" for name, value in report["sampled"].items()))
    print(f"not installed here: {', '.join(report['missing']) or 'nothing'}")
    for dtype in ("float64", "float32"):
        loop, exp = report["ns"][f"K = 10, {dtype}"]["1 core"].get(FLOOR), report["roofs"].get(f"exp, {dtype}")
        if loop is not None:
            written = 2 * np.dtype(dtype).itemsize / 10 / report["roofs"]["memory, cores: 1"]
            print(
                f"{dtype}: of {loop:.2f} ns in C an exponential is {exp:.2f} ns ({exp / loop:.0%}), and what is "
                f"recorded would take {written:.2f} ns ({written / loop:.0%}) at the bandwidth of memory"
            )
    print(f"\n{'to reach':68} {'target':>10} {'here':>10}")
    for target in to_reach.targets(report):
        print(target)


def measured(repeats: int, scale: int) -> dict[str, Any]:
    """All of it; `scale` divides the numbers of steps."""
    report: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report |= {"jax": jax.__version__, "kernel": native.kernel(), "repeats": repeats, "ns": {}, "same_bits": 1.0}
    report["first_result"] = first_result.measured(repeats)
    missing: set[str] = set()
    for arms in STEPS:
        for dtype in (np.float64, np.float32):
            name = Case(arms, dtype).name
            report["ns"][name], absent, same = compared(arms, dtype, repeats, scale)
            report["same_bits"] = min(report["same_bits"], same)
            missing |= absent
            print(f"{name} is measured", file=sys.stderr)
    report["sampled"], absent = samples(repeats)
    try:
        report["roofs"] = floor.roofs(repeats)
    except ImportError:
        report["roofs"] = {}
    report["sizes"], report["missing"] = sizes(repeats, scale), sorted(missing | absent)
    return report


def keep(report: dict[str, Any], stem: Path) -> None:
    """Prints the report, and writes it and its figure."""
    tell(report)
    found = [target._asdict() | {"verdict": target.verdict} for target in to_reach.targets(report)]
    stem.with_suffix(".json").write_text(json.dumps(report | {"targets": found}, indent=1) + "\n", "utf-8")
    draw(report, stem)
    print(f"\nwritten to {stem}.json, .png and .svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, into a temporary folder")
    quick = parser.parse_args().quick
    stem = Path(tempfile.mkdtemp() if quick else ROOT / "figures") / "performance"
    keep(measured(1 if quick else 5, 10 if quick else 1), stem)


if __name__ == "__main__":
    main()
