"""The bytes that a worker asks of another in one message: more where device memory is lent.

Dask asks a worker for values of 50 MB at a time, and for more once these have come. That bounds
what a message holds where values travel as bytes; between workers of one host handles travel,
and each message is milliseconds in which nothing else comes from that worker.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import dask.config
from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host
from distributed.worker_state_machine import WorkerState

from gputui.engine.overrides import overriding, require

NEAR_BYTES = 2**30
"""Bytes requested at once from a worker of this host: 10 ms over NVLink, as long as a message."""
LIMIT = "distributed.worker.transfer.message-bytes-limit"
USUAL = "50MB"
"""With Dask; another is the user's own, and holds for all workers."""


@overriding(_select_workers_for_gather="self")
class NearFirst(WorkerState):  # type: ignore[misc]
    """Dask's state of a worker, with a limit of its own for workers of the same host."""

    __slots__ = ()

    def _select_workers_for_gather(self) -> Iterator[tuple[str, Any]]:
        near, far = limits()
        here = get_address_host(self.address)
        for worker, tasks in super()._select_workers_for_gather():
            is_near = get_address_host(worker) == here
            self.transfer_message_bytes_limit = near if is_near else far  # type: ignore[misc]
            yield worker, tasks


require(WorkerState, transfer_message_bytes_limit=None)


@cache
def limits() -> tuple[int, int]:
    """Return the most bytes of a message, from a worker of this host and of another."""
    configured = parse_bytes(dask.config.get(LIMIT))
    lent = dask.config.get("gputui.transfers", "auto") != "bytes"
    near = NEAR_BYTES if lent and configured == parse_bytes(USUAL) else configured
    return near, configured
