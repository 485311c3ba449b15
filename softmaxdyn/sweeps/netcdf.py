"""netCDF-4 files that are written piece by piece, whole or not at all, and that survive a full disk."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from softmaxdyn.results import whole_file


class Output(NamedTuple):
    """An h5netcdf file and what backs it."""

    file: Any
    disk: Disk

    def check(self) -> None:
        """Raises the OSError that the disk met since the start."""
        if self.disk.error is not None:
            raise self.disk.error


class Disk(io.FileIO):
    """A file for HDF5, which crashes the process when a write fails: the error is kept, and what was lost is held."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.error: OSError | None = None
        self._lost: dict[int, bytes] = {}

    def write(self, data: Any) -> int:
        """Writes all of `data`, or holds it."""
        place, view, done = self.tell(), memoryview(data).cast("B"), 0
        try:
            while done < len(view) and self.error is None:
                done += self.put(view[done:])
        except OSError as error:
            self.error = error
        if self.error is not None:
            self._lost[place] = bytes(view)
        return len(view)

    def put(self, data: memoryview) -> int:
        """What a file does to write: some of `data`, and how much it was."""
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        """Reads what was written, or held."""
        view = memoryview(buffer).cast("B")
        held = self._lost.get(self.tell(), b"")[: len(view)]
        if held:
            view[: len(held)] = held
            return len(held)
        return super().readinto(view)

    def truncate(self, size: int | None = None) -> int:
        """Sets the size of the file, if the disk lets it."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return self.tell() if size is None else size


@contextmanager
def written(path: Path) -> Iterator[Output]:
    """A new netCDF-4 file at `path`; it appears at the end, or not at all. Raises OSError where the disk is full.

    `Output.check` raises it early.
    """
    import h5netcdf

    with whole_file(path) as unfinished, Disk(unfinished) as disk:
        try:
            with h5netcdf.File(disk, "w") as file:
                yield Output(file, disk)
        except Exception:
            if disk.error is not None:
                raise disk.error from None
            raise
        if disk.error is not None:
            raise disk.error
