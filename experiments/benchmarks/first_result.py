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

FIGURES = Path(__file__).parents[2] / "figures"
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
assert not compiled, compiled
"""
CACHE = "import jax; jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"


def seconds(code: str, **environment: str) -> float:
    """Wall time of a fresh interpreter that runs `code`."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | environment
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - start


def main() -> None:
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
        for _ in range(REPEATS):
            for name, case in cases.items():
                times[name].append(case())
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, value in median.items():
        print(f"{value:6.2f} s  {value / median['import jax']:5.2f} × import jax   {name}")
    FIGURES.mkdir(exist_ok=True)
    record = {"seconds": times, "median": median, "python": sys.version.split()[0]}
    (FIGURES / "first_result.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
