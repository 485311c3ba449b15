"""A campaign against a real sweep: kills at random moments, a slow disk, spoilt blocks in between, two at once.

`python -m tests.campaign` works in the current folder and prints what it saw as JSON. It loads all that a sweep needs
and forks the processes that run the command. That is safe while it has one thread: JAX starts its own only where it
computes, in the children, which find their programs compiled by the first of them.
"""

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import h5netcdf  # noqa: F401  (the children have no time to load it)
import jax
import numpy as np
import rich.table  # noqa: F401
import scipy.stats  # noqa: F401

from softmaxdyn import cli
from softmaxdyn.sweeps import layout
from softmaxdyn.sweeps.store import Store

KILLS, MOST = 25, 60  # kills, and processes that may be started for them
EXACT, SAMPLED = 40, 8  # runs, a block each; exact ones come first and start sooner, as their program is smaller
TOTAL = EXACT + SAMPLED
SPEC = f"""
steps = 40
every = 4
seeds = {SAMPLED}
problem = "mei"
fields = ["entropy", "expected_return"]
[[method]]
name = "pg"
step_size = {[round(0.1 * number, 1) for number in range(1, EXACT + 1)]}
[[method]]
name = "rloo"
groups = 1
step_size = 0.3
"""


def slow_disk() -> None:
    """Lets time pass after each block, so that the kills come at as many moments as they are meant to."""
    write = Store.write

    def slowly(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        time.sleep(0.01)

    Store.write = slowly  # type: ignore[assignment,method-assign]


def started(folder: Path) -> int:
    """The number of a process that runs the command; what it says goes to a file beside the folder."""
    number = os.fork()
    if number:
        return number
    code = 70
    try:
        said = os.open(folder.with_suffix(f".{os.getpid()}"), os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        cli.main(["sweep", "spec.toml", "--out", str(folder)])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(number: int) -> int:
    """Its exit code, once it has ended; −9 of a killed one."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def said(folder: Path, number: int) -> str:
    """What a process printed."""
    return folder.with_suffix(f".{number}").read_text()


def blocks(folder: Path) -> list[Path]:
    """The files of blocks that are there."""
    return sorted((folder / "blocks").glob("*.npz"))


def wait_for(number: int, reached: Callable[[], bool]) -> None:
    """Until something is reached, or the process has ended."""
    while not reached() and os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.001)


def killed(folder: Path, random: np.random.Generator) -> int:
    """The exit code of a process that is killed after some more blocks, or at any moment where there are to be none.

    No kill passes over the moment when the exact runs are there, nor over that when all are and the tables begin.
    """
    before = len(blocks(folder))
    wanted = min(before + int(random.integers(0, 6)), EXACT if before < EXACT else TOTAL)
    number = started(folder)
    wait_for(number, lambda: len(blocks(folder)) >= wanted)
    pause = 0.02 if wanted > before else 3.0 if before == TOTAL else 0.8  # most of the tables are finished in time
    end = time.monotonic() + random.uniform(0.0, pause)
    wait_for(number, lambda: time.monotonic() >= end)
    os.kill(number, signal.SIGKILL)
    return ended(number)


def spoilt(folder: Path, random: np.random.Generator) -> str:
    """What was done to a block."""
    names = ["cut short", "a byte changed", "emptied", "swapped with another", "replaced by another", "removed"]
    found = blocks(folder)
    if len(found) < 2:
        return "nothing"
    how = int(random.integers(len(names)))
    path, other = (found[place] for place in random.choice(len(found), 2, replace=False))
    content, foreign = path.read_bytes(), other.read_bytes()
    place = int(random.integers(max(1, len(content))))
    if how == 3:
        other.write_bytes(content)
    if how == 5:
        path.unlink()
    elif content:
        changed = content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        path.write_bytes([content[:place], changed, b"", foreign, foreign][how])
    return names[how]


def two_at_once(folder: Path) -> tuple[int, str]:
    """(exit code, words) of a second process in a folder whose owner is stopped; the owner is killed then."""
    owner = started(folder)
    lock = folder / ".lock"
    wait_for(owner, lambda: lock.exists() and lock.read_text().startswith(f"process {owner} "))
    os.kill(owner, signal.SIGSTOP)
    second = started(folder)
    code = ended(second)
    os.kill(owner, signal.SIGKILL)
    ended(owner)
    return code, said(folder, second)


def campaign() -> dict[str, object]:
    """What happened to each process; the folders are there to be compared."""
    random = np.random.default_rng(0)
    codes, moments, damage = [ended(started(Path("undisturbed")))], [], []
    kills, folder = 0, Path("0")
    second = two_at_once(folder)
    for _ in range(MOST):
        if kills == KILLS:
            break
        code = killed(folder, random)
        codes.append(code)
        if code == 0:
            folder = Path(str(int(folder.name) + 1))
            continue
        kills += 1
        moments.append(len(blocks(folder)))
        if kills % 3 == 0:
            damage.append(spoilt(folder, random))
    last = started(folder)
    codes.append(ended(last))
    return {"codes": codes, "moments": moments, "damage": damage, "second": second, "said": said(folder, last)}


def repaired(folder: Path) -> list[int]:
    """The exit codes of the command after each result was damaged: finished.json, the table, the summary."""
    codes = []
    for name, spoil in {
        "finished.json": lambda content: b"",
        "sweep.nc": lambda content: content[:-100],
        "sweep_summary.nc": lambda content: content[:1000] + b"\0" + content[1001:],
    }.items():
        path = folder / name
        path.write_bytes(spoil(path.read_bytes()))
        codes.append(ended(started(folder)))
    return codes


def refused(folder: Path) -> tuple[int, str]:
    """(exit code, words) of the command where plan.json is cut short; it is put back then."""
    path = folder / "plan.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    number = started(folder)
    code = ended(number)
    path.write_bytes(whole)
    return code, said(folder, number)


def main() -> None:
    warnings.simplefilter("ignore")  # of JAX, that a fork is not safe once it has threads
    jax.config.update("jax_compilation_cache_dir", str(Path("cache").resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_enable_x64", True)
    layout.BLOCK_BYTES = 0
    slow_disk()
    Path("spec.toml").write_text(SPEC)
    found = campaign()
    found["repaired"], found["refused"] = repaired(Path("0")), refused(Path("0"))
    tasks = Path("/proc/self/task")
    found["threads"] = len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
