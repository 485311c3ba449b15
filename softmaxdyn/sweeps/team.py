"""Several processes, on one host or many, on one sweep: each computes every n-th block, the first makes the table."""

from __future__ import annotations

from typing import NamedTuple

import jax

from softmaxdyn.errors import InputError, check_integer


class Team(NamedTuple):
    """The place of this process among `size`; number 0 holds the folder's lock and makes the table."""

    rank: int = 0
    size: int = 1

    def owns(self, place: int) -> bool:
        """Whether the block at that place of the layout is this process's."""
        return place % self.size == self.rank

    def meet(self, name: str) -> None:
        """Waits until all processes of the team are here."""
        if self.size > 1:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices(name)


def join(coordinator: str, size: int, rank: int) -> Team:
    """Joins the processes that meet at `coordinator`, "host:port" on the host of process 0, by `jax.distributed`.

    To be called before JAX computes anything. All see one file system. Raises InputError for a rank that is none of the
    size and for a coordinator that cannot be reached.
    """
    check_integer("--processes", size, 1)
    if check_integer("--process-id", rank, 0) >= size:
        raise InputError(f"--process-id is {rank}; wanted 0 … {size - 1}, one for each of {size} processes")
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise InputError(f"--coordinator is {coordinator!r}; wanted HOST:PORT of process 0, e.g. 10.0.0.1:12345")
    try:
        jax.distributed.initialize(coordinator, size, rank)
    except RuntimeError as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"the processes did not meet at {coordinator} ({reason})") from None
    return Team(rank, size)


def leave() -> None:
    """Ends `join`; the others, who wait for it, end then."""
    jax.distributed.shutdown()
