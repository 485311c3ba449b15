"""Remakes every figure and every number of the README, the documentation and figures/: one command, an hour."""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE.parent / "figures"


def scripts_of(folder: str) -> list[str]:
    """The files of a folder that are run, in order of their names; the others are parts of them."""
    files = sorted((HERE / folder).glob("*.py"))
    return [f"{folder}/{path.name}" for path in files if "__main__" in path.read_text("utf-8")]


SCRIPTS = [
    *("accuracy.py", "bound.py", "sharing.py", "episodes.py", "every_method.py"),
    *("benchmarks/first_result.py", "benchmarks/worlds.py", "benchmarks/performance.py", "benchmarks/scaling.py"),
    *scripts_of("paper"),
]
LEDGER = ["-m", "softmaxdyn", "reproduce", "--out", str(FIGURES)]
QUOTES = "pages.py"  # quotes the others


def main() -> None:
    for arguments in ([str(HERE / script)] for script in SCRIPTS):
        run(arguments)
    run(LEDGER)
    run([str(HERE / QUOTES)])


def run(arguments: list[str]) -> None:
    """Runs Python with these arguments and says how long it took."""
    start = time.perf_counter()
    print(f"\n== {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, *arguments], check=True)
    print(f"({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
