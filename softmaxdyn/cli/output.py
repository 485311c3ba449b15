"""Where a command writes: its folder, which is made if need be and removed if it stays empty, and its JSON file."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from softmaxdyn import results
from softmaxdyn.errors import InputError

FOLDER = "softmaxdyn-out"
WRITTEN = {  # into the folder of a command
    "run": ("dynamics.png", "dynamics.svg", "dynamics_*.nc", "episodes.png", "episodes.svg"),
    "compare": ("comparison.png", "comparison.svg"),
    "diagnose": ("diagnose.png", "diagnose.svg"),
    "law": ("law.png", "law.svg"),
    "reproduce": ("ledger.json", "ledger.md", "claims/C*"),
}
_MADE: list[str] = []  # folders that this command made, the deepest first


def refuse_no_place(option: str, file: str | None, read: str = "") -> None:
    """Raises InputError unless `file` (the value of `option`) can be written and is not the one that is `read`."""
    if file is None:
        return
    folder = os.path.dirname(os.path.realpath(file))
    if not file or os.path.isdir(file) or not os.path.isdir(folder):
        raise InputError(f"{option} is {file!r}; wanted a file in a folder that exists")
    if os.path.exists(read) and os.path.exists(file) and os.path.samefile(read, file):
        raise InputError(f"{option} is {file!r}, the file that is read; wanted another, or it would be lost")
    try:
        with suppress(FileNotFoundError):
            os.stat(file)
        if not results.is_stream(file):
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"cannot write to {file!r} ({error.strerror or error}); pass another {option} FILE") from None


def output_folder(out: str | None) -> Path:
    """The folder of --out, made if need be; if it is still empty when the command ends, it is removed again.

    Raises InputError where it cannot be made or written to, and where a file that the command writes there is a folder.
    """
    folder = FOLDER if out is None else out
    if not folder:
        raise InputError("--out is ''; wanted a folder, which is made if need be")
    places = [folder, *map(str, Path(folder).parents)]
    for place in places:
        if os.path.lexists(place) and not os.path.isdir(place):
            raise InputError(f"cannot write to {folder!r} ({place!r} is no folder); pass another --out FOLDER")
    _MADE.extend(place for place in places if not os.path.isdir(place))
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"cannot write to {folder!r} ({error.strerror or error}); pass another --out FOLDER") from None
    _refuse_folders(Path(folder))
    return Path(folder)


def _refuse_folders(folder: Path) -> None:
    """Raises InputError where a file that this command writes is a folder."""
    names = WRITTEN[click.get_current_context().info_name or ""]
    for path in (path for name in names for path in folder.glob(name) if path.is_dir()):
        raise InputError(f"{str(path)!r} is a folder, where a file is to go; rename it or pass another --out FOLDER")


def remove_empty() -> None:
    """Removes the folders that `output_folder` made, as far as they are empty."""
    while _MADE:
        with suppress(OSError):
            os.rmdir(_MADE.pop(0))
