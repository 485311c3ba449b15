"""Runs every notebook from top to bottom, as a script and as .ipynb in a fresh kernel; a warning is an error.

Run: python experiments/notebooks/run.py [NUMBER …] (four minutes; prints the seconds of each)
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
LIMIT = 600  # seconds; on two idle cores each takes far less than 60
NOT_YET = "not answered yet"


def run_source(source):
    """What a source prints; raises where it fails or warns."""
    command = [sys.executable, "-W", "error", source.name]
    settings = {"env": {**os.environ, "MPLBACKEND": "Agg"}, "cwd": HERE, "timeout": LIMIT, "encoding": "utf-8"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, **settings)
    return done.stdout


def run_notebook(path):
    """What a notebook prints; raises where a cell fails or says anything on stderr."""
    book = nbformat.read(path, as_version=4)
    settings = {"kernel_name": "python3", "resources": {"metadata": {"path": str(HERE)}}, "timeout": LIMIT}
    NotebookClient(book, extra_arguments=["--IPKernelApp.log_level=ERROR"], **settings).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    complaints = [output.text for output in outputs if output.get("name") == "stderr"]
    if complaints:
        raise RuntimeError(f"{path.name} warns: {complaints[0]}")
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def main(wanted):
    for source in sorted(HERE.glob("[0-9]_*.py")):
        if wanted and source.name[0] not in wanted:
            continue
        start = time.perf_counter()
        printed = run_source(source)
        middle = time.perf_counter()
        again = run_notebook(source.with_suffix(".ipynb"))
        exercises = printed.count(NOT_YET)
        if exercises != again.count(NOT_YET):
            raise RuntimeError(f"{source.name} and its .ipynb have different exercises: run pair.py")
        seconds = middle - start, time.perf_counter() - middle
        print(f"{source.stem}: {exercises} exercises; {seconds[0]:.0f} s as a script, {seconds[1]:.0f} s as a notebook")


if __name__ == "__main__":
    main(sys.argv[1:])
