"""Trying claims: those that a folder lacks, in several processes, and the ledger of all that it then holds."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import jax

from softmaxdyn.errors import InputError
from softmaxdyn.ledger.findings import Claim, Size
from softmaxdyn.ledger.pages import ledger
from softmaxdyn.ledger.record import keep, kept_records, maker, to_json
from softmaxdyn.ledger.shelf import chosen, claims_folder, load_claims, source_hash
from softmaxdyn.results import whole_file


def reproduce(
    names: Iterable[str],
    folder: Path,
    size: Size,
    *,
    source: Path | None = None,
    processes: int = 1,
    fresh: bool = False,
    report: Callable[[dict[str, Any], bool], None] = lambda record, kept: None,
) -> list[dict[str, Any]]:
    """The records of the claims of these names, in order, all if there are none; `source` is the folder of claims.

    `report(record, kept)` is called with each as soon as it is there. A claim that the folder has of the same source
    and versions is kept, so that a stopped call goes on; `fresh` forgets all that it has. Then ledger.json and
    ledger.md are written, of every record that the folder holds, those of older source too. Raises InputError for an
    unknown name, and for a folder with the ledger of another version or size.
    """
    source, place = claims_folder() if source is None else source, folder / "claims"
    claims = chosen(load_claims(source), names)
    made_by = maker(size, source_hash(source))
    there = {} if fresh else kept_records(place, made_by)
    kept = {name: record for name, record in there.items() if record["made_by"] == made_by}
    place.mkdir(exist_ok=True)
    if fresh:
        for path in place.glob("C*.json"):
            path.unlink()
    found = {claim.id: kept[claim.id] for claim in claims if claim.id in kept}
    for old in found.values():
        report(old, True)
    missing = [claim for claim in claims if claim.id not in kept]
    for record in _tried(missing, partial(_try, source, place, size, made_by), processes):
        found[record["id"]] = record
        report(record, False)
    _write_ledger(folder, sorted({**there, **found}.values(), key=lambda record: int(record["id"][1:])))
    return [found[claim.id] for claim in claims]


def _tried(
    claims: Sequence[Claim], attempt: Callable[[str], dict[str, Any]], processes: int
) -> Iterator[dict[str, Any]]:
    if processes == 1 or len(claims) < 2:
        yield from (attempt(claim.id) for claim in claims)
        return
    with ProcessPoolExecutor(min(processes, len(claims)), multiprocessing.get_context("spawn"), _begin) as pool:
        try:
            yield from (task.result() for task in as_completed([pool.submit(attempt, claim.id) for claim in claims]))
        except BrokenProcessPool:
            raise InputError(
                "a process that tried a claim was killed (too little memory?); the same command goes on, --processes 1 "
                "needs less"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """A process that ends when the one that started it does, even by kill −9."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _try(source: Path, place: Path, size: Size, made_by: dict[str, str], name: str) -> dict[str, Any]:
    claim = load_claims(source)[name]
    with jax.enable_x64(True):
        return keep(place, claim, claim.function(size), made_by)


def _write_ledger(folder: Path, records: list[dict[str, Any]]) -> None:
    with whole_file(folder / "ledger.json") as unfinished:
        unfinished.write_text(to_json(records), "utf-8")
    with whole_file(folder / "ledger.md") as unfinished:
        unfinished.write_text(ledger(records), "utf-8")
