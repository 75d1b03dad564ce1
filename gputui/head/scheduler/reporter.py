"""Send the scheduler's counts to the head, and carry out the head's requests.

Runs in the scheduler's own loop, over its stdin and stdout: while the loop is busy nothing is
reported, and that is how the head knows.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

from gputui.head.scheduler.cluster_scheduler import Scheduler
from gputui.head.scheduler.counts import count
from gputui.process.background import Background
from gputui.protocol.scheduler import (
    Aim,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    StopScheduler,
    ToScheduler,
)
from gputui.protocol.typed_codec import TypedChannel

logger = logging.getLogger(__name__)

HeadChannel = TypedChannel[FromScheduler, ToScheduler]

HELD_UP_S = 1.0
"""A loop that was busy for longer has read no heartbeat in that time."""


class Reporter:
    """The scheduler's end of the channel to its head."""

    def __init__(self, scheduler: Scheduler, channel: HeadChannel) -> None:
        self._scheduler = scheduler
        self._channel = channel
        scheduler.tell_head = channel.send
        self._tasks = Background(self._failed)
        self._stopped = asyncio.Event()

    async def report(self, interval_s: float) -> None:
        """Send the counts until cancelled."""
        listening_since = 0.0
        while True:
            self._report(listening_since)
            due = time.monotonic() + interval_s
            await asyncio.sleep(interval_s)
            if time.monotonic() - due > HELD_UP_S:
                listening_since = time.time()

    def _report(self, listening_since: float) -> None:
        """Send the counts; a mistake in counting is logged, and never the scheduler's end."""
        try:
            self._channel.send(count(self._scheduler, listening_since))
        except Exception:
            logger.exception("the scheduler could not be counted")

    async def obey(self) -> None:
        """Carry out the head's orders until it stops or disconnects; raises ProtocolError for an
        invalid one.
        """
        serving = self._tasks.start(self._channel.serve(self._take, self._tasks), "serve")
        stopped = self._tasks.start(self._stopped.wait(), "stop")
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
        finally:
            await self._tasks.close()

    def _take(self, message: ToScheduler) -> Coroutine[Any, Any, FromScheduler] | None:
        match message:
            case Retire():
                return self._retire(message)
            case Remove():
                self._tasks.start(self._remove(message), "removing workers")
            case Aim(target_duration_s):
                self._scheduler.target_duration_s = target_duration_s
            case StopScheduler():
                self._stopped.set()
        return None

    def _failed(self, name: str, error: Exception) -> None:
        """Continue: a failed order does not end the scheduler."""

    async def _retire(self, order: Retire) -> Retired:
        """Move workers' results elsewhere; answered even if Dask fails."""
        names = {state.address: str(state.name) for state in self._scheduler.workers.values()}
        error = ""
        try:
            await self._scheduler.retire_workers(names=list(order.names), close_workers=False)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        there = {names.get(address) for address in self._scheduler.workers}
        gone = tuple(name for name in order.names if name not in there)
        return Retired(order.request, gone, error)

    async def _remove(self, order: Remove) -> None:
        """Forget workers; one that Dask fails to forget is logged."""
        names = set(order.names)
        gone = [state.address for state in self._scheduler.workers.values() if state.name in names]
        for address in gone:
            try:
                await self._scheduler.remove_worker(address, stimulus_id=f"gputui: {order.reason}")
            except Exception:
                logger.exception("the scheduler could not forget %s", address)


async def close_quickly(scheduler: Scheduler, bound_s: float = 1.0) -> None:
    """Close the scheduler; anything left ends with the process."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bound_s):
            await scheduler.close(reason="the cluster stops")
