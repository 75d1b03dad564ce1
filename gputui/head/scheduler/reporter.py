"""Tells the head what the scheduler counts, and does for it what only the scheduler can.

Runs in the scheduler's own loop, over its stdin and stdout: while the loop is busy nothing is
reported, and that is how the head knows.
"""

import asyncio
import contextlib
import logging
import os
import time

from gputui.head.scheduler.counts import count
from gputui.head.scheduler.scheduler import ClusterScheduler
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode
from gputui.protocol.scheduler import (
    FromScheduler,
    Remove,
    Retire,
    Retired,
    StopScheduler,
    ToScheduler,
)

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 2**20
"""No counts are added for a head that has not read this much."""
HELD_UP_S = 1.0
"""A loop that was busy for longer has read no heartbeat meanwhile."""


class Reporter:
    """The scheduler's link to its head."""

    def __init__(self, scheduler: ClusterScheduler, output: asyncio.WriteTransport) -> None:
        self._scheduler = scheduler
        self._output = output
        self._retiring: set[asyncio.Task[None]] = set()

    def send(self, message: FromScheduler) -> None:
        """Send a message without waiting."""
        self._output.write(encode(message))

    async def report(self, interval_s: float) -> None:
        """Send the counts for ever."""
        listening_since = 0.0
        while True:
            if self._output.get_write_buffer_size() < MAX_UNREAD_BYTES:
                self._report(listening_since)
            due = time.monotonic() + interval_s
            await asyncio.sleep(interval_s)
            if time.monotonic() - due > HELD_UP_S:
                listening_since = time.time()

    def _report(self, listening_since: float) -> None:
        """Send the counts; a mistake in counting is logged, and never the scheduler's end."""
        try:
            self.send(count(self._scheduler, listening_since))
        except Exception:
            logger.exception("the scheduler could not be counted")

    async def obey(self, orders: asyncio.StreamReader) -> None:
        """Carry out what the head asks, until it says stop or is gone."""
        while line := await orders.readline():
            match decode(line, ToScheduler):
                case Retire() as order:
                    task = asyncio.create_task(self._retire(order))
                    self._retiring.add(task)
                    task.add_done_callback(self._retiring.discard)
                case Remove() as order:
                    await self._remove(order)
                case StopScheduler():
                    return

    async def _retire(self, order: Retire) -> None:
        """Have workers give up what they hold; answered also when Dask fails at it."""
        names = {state.address: str(state.name) for state in self._scheduler.workers.values()}
        error = ""
        try:
            await self._scheduler.retire_workers(names=list(order.names), close_workers=False)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        there = {names.get(address) for address in self._scheduler.workers}
        gone = tuple(name for name in order.names if name not in there)
        self.send(Retired(order.request, gone, error))

    async def _remove(self, order: Remove) -> None:
        """Forget workers; one that Dask fails to forget is logged."""
        names = set(order.names)
        gone = [state.address for state in self._scheduler.workers.values() if state.name in names]
        for address in gone:
            try:
                await self._scheduler.remove_worker(address, stimulus_id=f"gputui: {order.reason}")
            except Exception:
                logger.exception("the scheduler could not forget %s", address)


async def open_output(descriptor: int) -> asyncio.WriteTransport:
    """Return a transport that writes to a file descriptor without ever blocking the loop."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(descriptor, "wb"))
    return transport


async def open_input(descriptor: int) -> asyncio.StreamReader:
    """Return a reader of a file descriptor."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    file = os.fdopen(descriptor, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    return reader


async def close_quickly(scheduler: ClusterScheduler, bound_s: float = 1.0) -> None:
    """Close the scheduler; what is left of it after that ends with the process."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bound_s):
            await scheduler.close(reason="the cluster stops")
