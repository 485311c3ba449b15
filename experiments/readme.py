"""Does the README say what the code does? Runs its example, writes the printed output under it, draws its picture."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"(```python\n(.*?)```\n+```text\n)(.*?)(```)", re.DOTALL)


def printed(code: str) -> str:
    """What `code` prints, in a namespace of its own."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {"__name__": "__readme__"})
    return output.getvalue()


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    updated = EXAMPLE.sub(lambda found: found[1] + printed(found[2]) + found[4], text)
    readme.write_text(updated)
    figures = ROOT / "figures"
    figures.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "softmaxdyn", "run", "--out", str(figures)], check=True, cwd=ROOT)
    for trace in figures.glob("dynamics_*.nc"):
        trace.replace(trace.with_name(trace.name))
    print("README.md is", "as it was" if updated == text else "updated")


if __name__ == "__main__":
    main()
