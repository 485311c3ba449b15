"""The folder of a sweep: a lock, the plan that it belongs to, and blocks with their checksums."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from softmaxdyn.errors import InputError
from softmaxdyn.results import whole_file
from softmaxdyn.sweeps import native
from softmaxdyn.sweeps.layout import Block
from softmaxdyn.sweeps.manifest import PLAN, kept_manifest, manifest, refuse_other_bits, write_json
from softmaxdyn.sweeps.plan import Plan

BLOCKS, LOCK, FINISHED = "blocks", ".lock", "finished.json"
TABLE, SUMMARY = "sweep.nc", "sweep_summary.nc"

_OURS = {PLAN, BLOCKS, LOCK, FINISHED, TABLE, SUMMARY}
_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")  # what `whole_file` leaves when its process is killed
_HEADER = "header"


class Fault(Exception):
    """What is wrong with a block; it has to be computed (again)."""


class Store:
    """The files of one sweep, in a folder that this process holds the lock of.

    table, summary  the paths of the results
    made            what plan.json says
    kernel          what runs the fast path now
    """

    def __init__(self, folder: Path, plan: Plan, made: dict[str, Any], kernel: str = native.JAX) -> None:
        self.folder, self.plan, self.made, self.kernel, self.hash = folder, plan, made, kernel, plan.hash
        self.table, self.summary = folder / TABLE, folder / SUMMARY

    def path(self, block: Block) -> Path:
        """The file of a block."""
        return self.folder / BLOCKS / block.name

    def write(self, block: Block, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes a block, whole or not at all."""
        header = self._header(block) | {"sha256": checksum(arrays)}
        content: dict[str, Any] = {_HEADER: np.array(json.dumps(header)), **arrays}
        with whole_file(self.path(block)) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, **content)

    def read(self, block: Block) -> dict[str, np.ndarray]:
        """The arrays of a block. Raises Fault for a file that is missing, damaged, or of other runs."""
        path = self.path(block)
        if not path.exists():
            raise Fault("is missing")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            header = json.loads(str(arrays.pop(_HEADER)))
            wanted = header.pop("sha256")
        except Exception:  # a damaged archive fails in a dozen ways
            raise Fault("is damaged or no block") from None
        if header.get("sweep") != self.hash:
            raise Fault("is of another sweep")
        if header != self._header(block):
            raise Fault("holds other runs")
        if wanted != checksum(arrays):
            raise Fault("does not match its checksum")
        return arrays

    def fault(self, block: Block) -> str | None:
        """What is wrong with the file of a block; None if it is valid."""
        try:
            self.read(block)
        except Fault as fault:
            return str(fault)
        return None

    def go_on(self, fresh: bool) -> None:
        """Before blocks are computed: notes what with if all are, else refuses versions that give other last bits."""
        now = manifest(self.plan, self.kernel)
        if fresh:
            self.made = now
            write_json(self.folder / PLAN, now)
        refuse_other_bits(self.folder, self.made, now)

    def finish(self) -> None:
        """Notes that the table and the summary are whole, with their checksums."""
        write_json(self.folder / FINISHED, self._results())

    def finished(self) -> bool:
        """Whether the table and the summary are those that `finish` saw, to the bit."""
        if not all(path.is_file() for path in (self.folder / FINISHED, self.table, self.summary)):
            return False
        try:
            return json.loads((self.folder / FINISHED).read_text("utf-8")) == self._results()
        except ValueError:
            return False

    def _results(self) -> dict[str, str]:
        digests = {}
        for path in (self.table, self.summary):
            with open(path, "rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sweep": self.hash, **digests}

    def _header(self, block: Block) -> dict[str, Any]:
        runs = hashlib.sha256(block.cell.tobytes() + block.seed.tobytes()).hexdigest()
        return {"sweep": self.hash, "family": block.family, "block": block.number, "runs": runs}


@contextmanager
def opened(folder: str | Path, plan: Plan, kernel: str = native.JAX) -> Iterator[Store]:
    """The folder of a sweep, made if need be, locked, and rid of what a killed process left unfinished.

    Raises InputError for a folder that cannot be written, that another process works in, that holds another sweep or
    other files, and for a damaged plan.json.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strange = [path.name for path in folder.iterdir() if path.name not in _OURS and not _PART.fullmatch(path.name)]
        if strange and not (folder / PLAN).exists():
            raise InputError(f"{str(folder)!r} holds other files ({min(strange)}); wanted an empty or a new folder")
        (folder / BLOCKS).mkdir(exist_ok=True)
        lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write to {str(folder)!r} ({error.strerror}); wanted another folder") from None
    with lock:
        _take(lock, folder)
        for place in (folder, folder / BLOCKS):
            for path in place.iterdir():
                if _PART.fullmatch(path.name):
                    path.unlink()
        yield Store(folder, plan, kept_manifest(folder, plan, kernel), kernel)


def _take(lock: TextIO, folder: Path) -> None:
    """Locks the file until it is closed or the process ends; Windows has no such lock, there it is left out."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            raise InputError(f"{str(folder)!r} is in use by {owner}; wait for it, or pass another folder") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} on {socket.gethostname()}")
    lock.flush()


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, dtypes, shapes and bits."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()
