"""How long from a cold Python to the first result? A 1 × 10 bandit, 1000 steps of vanilla policy gradient.

Starts fresh interpreters in turn: `import jax` alone, the run, the run with a warm compilation cache, and the run of
another length (which must compile nothing). Prints medians and writes figures/first_result.json.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "figures"
REPEATS = 5
RUN = """
import numpy as np, softmaxdyn as sd
bandit, algorithm = sd.Bandit(np.linspace(0, 1, 10)), sd.Algorithm(sd.VanillaPG(0.1))
sd.simulate(bandit, algorithm, num_steps=1000)
"""
SECOND = """
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None)
sd.simulate(bandit, algorithm, num_steps=1500, every=3)
print(len(compiled))
"""
CACHE = "import jax; jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
OTHERS = ("PYTHONDONTWRITEBYTECODE", "XLA_FLAGS", "OMP_NUM_THREADS")  # settings of other benchmarks


def printed(code: str, **environment: str) -> str:
    """What a fresh interpreter that runs `code` prints."""
    environment = {k: v for k, v in os.environ.items() if k not in OTHERS} | environment
    options: dict[str, Any] = {"env": environment, "cwd": ROOT, "stdout": subprocess.PIPE, "text": True}
    return subprocess.run([sys.executable, "-c", code], check=True, **options).stdout


def seconds(code: str, **environment: str) -> float:
    """Wall time of a fresh interpreter that runs `code`."""
    start = time.perf_counter()
    printed(code, **environment)
    return time.perf_counter() - start


def measured(repeats: int) -> dict[str, Any]:
    """The times of each case, their medians, and how many programs a second length compiles."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        cases = {
            "import jax": lambda: seconds("import jax"),
            "first result": lambda: seconds(RUN),
            "first result, warm compilation cache": lambda: seconds(CACHE + RUN, **cache),
            "first result and a second length": lambda: seconds(RUN + SECOND),
        }
        for case in cases.values():
            case()  # byte code, disk and compilation caches
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, case in cases.items():
                times[name].append(case())
    median = {name: statistics.median(values) for name, values in times.items()}
    return {"seconds": times, "median": median, "compiled by a second length": int(printed(RUN + SECOND))}


def main() -> None:
    found = measured(REPEATS) | {"python": sys.version.split()[0]}
    for name, value in found["median"].items():
        print(f"{value:6.2f} s  {value / found['median']['import jax']:5.2f} × import jax   {name}")
    print(f"programs that a second length compiles: {found['compiled by a second length']}")
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / "first_result.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
