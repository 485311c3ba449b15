"""Runs the source of every notebook from top to bottom; a warning is an error.

Run: python experiments/notebooks/run.py [NUMBER …] (two minutes; prints the seconds of each). The .ipynb are run when the
documentation is built.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 600  # seconds; on two idle cores each takes far less than 60
NOT_YET = "not answered yet"


def printed(source):
    """What a source prints. Raises CalledProcessError where it fails or warns."""
    command = [sys.executable, "-W", "error", source.name]
    settings = {"env": {**os.environ, "MPLBACKEND": "Agg"}, "cwd": HERE, "timeout": LIMIT, "encoding": "utf-8"}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **settings).stdout


def main(wanted):
    for source in sorted(HERE.glob("[0-9]_*.py")):
        if not wanted or source.name[0] in wanted:
            start = time.perf_counter()
            exercises = printed(source).count(NOT_YET)
            print(f"{source.stem}: {exercises} exercises; {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
