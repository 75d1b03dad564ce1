"""A scheduler and workers of Dask's own over TLS, each a process: no head, no agent, no telemetry.

What gputui's clusters are held against where the settings are to be the same.
"""

import asyncio
import contextlib
import logging
import multiprocessing
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from typing import Any

from distributed.security import Security

from gputui.engine import dask_settings


@dataclass(frozen=True, slots=True)
class Plain:
    """Where it is, how a client joins it, and its processes."""

    address: str
    security: Security
    pids: tuple[int, ...]


@contextlib.contextmanager
def running(workers: int) -> Iterator[Plain]:
    """Run a scheduler and so many workers of one thread each, with gputui's Dask settings."""
    context = multiprocessing.get_context("spawn")
    security = Security.temporary()
    addresses: Queue[str] = context.Queue()
    processes = [context.Process(target=_scheduler, args=(security, addresses), daemon=True)]
    processes[0].start()
    address = addresses.get(timeout=60)
    for _ in range(workers):
        worker = context.Process(target=_worker, args=(security, address), daemon=True)
        worker.start()
        processes.append(worker)
    try:
        yield Plain(address, security, tuple(process.pid or 0 for process in processes))
    finally:
        for process in processes:
            process.kill()
            process.join()


def _scheduler(security: Security, addresses: "Queue[str]") -> None:
    from distributed import Scheduler

    async def serve() -> None:
        scheduler = await Scheduler(
            host="127.0.0.1", port=0, protocol="tls", security=security, dashboard_address=":0"
        )
        addresses.put(scheduler.address)
        await scheduler.finished()

    _run(serve)


def _worker(security: Security, address: str) -> None:
    from distributed import Worker

    async def serve() -> None:
        worker = await Worker(address, nthreads=1, security=security, memory_limit="2 GiB")
        await worker.finished()

    _run(serve)


def _run(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    logging.getLogger("distributed").setLevel(logging.WARNING)
    dask_settings.apply("{}")
    asyncio.run(serve())
