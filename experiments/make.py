"""Remakes every figure and every number of the README and of figures/: one command, half an hour."""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = [
    *("accuracy.py", "bound.py", "sharing.py", "episodes.py", "every_method.py"),
    *("benchmarks/first_result.py", "benchmarks/worlds.py", "benchmarks/performance.py"),
    "readme.py",  # quotes the others
]


def main() -> None:
    for script in SCRIPTS:
        start = time.perf_counter()
        print(f"\n== {script}", flush=True)
        subprocess.run([sys.executable, str(HERE / script)], check=True)
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
