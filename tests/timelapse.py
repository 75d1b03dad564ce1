"""A simulated cluster whose time passes as fast as it can be computed, the same each time.

All of a demo lives in one event loop and waits for nothing but time, so that a loop which leaps to
its next timer, in place of waiting for it, lives through minutes in a second.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from unittest.mock import patch

from gputui.client.head_connection import HeadConnection
from gputui.demo.cluster import Demo
from gputui.model.snapshot import Event, Snapshot
from gputui.protocol.frontend import EventHappened, Request, SnapshotTaken, ToFrontend

START = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""
STEP_S = 0.25

Result = TypeVar("Result")


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop that leaps to its next timer, unless it waits for a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._threads = 0

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _future: "asyncio.Future[Any]") -> None:
        self._threads -= 1

    def _run_once(self) -> None:
        if not self._ready and self._scheduled and not self._threads:
            self._now = max(self._now, self._scheduled[0]._when)
        super()._run_once()


class Timelapse:
    """A simulated cluster, lived through in steps, and what its screen received."""

    def __init__(self, shape: tuple[int, int], **options: Any) -> None:
        self.messages: list[ToFrontend] = []
        self.loop = LeapingLoop()
        self._reading: asyncio.Task[None] | None = None
        self.link = self.run(self._open(shape, options))

    async def _open(self, shape: tuple[int, int], options: dict[str, Any]) -> HeadConnection:
        link = await Demo(shape, **options).open()
        self._reading = asyncio.create_task(self._read(link))
        return link

    async def _read(self, link: HeadConnection) -> None:
        async for message in link.messages():
            self.messages.append(message)

    def run(self, work: Awaitable[Result]) -> Result:
        """Run some work on this cluster's own time."""
        with (
            patch.object(time, "time", lambda: START + self.loop.time()),
            patch.object(time, "monotonic", self.loop.time),
        ):
            return self.loop.run_until_complete(work)

    def to(self, second: float) -> "Timelapse":
        """Live until so many seconds after the start."""
        self.run(asyncio.sleep(second - self.loop.time()))
        return self

    def until(self, condition: Callable[[Snapshot], object], bound_s: float = 60.0) -> Snapshot:
        """Live on until a snapshot is as it is to be."""
        for step in itertools.count():
            snapshot = self.snapshot
            if snapshot is not None and condition(snapshot):
                return snapshot
            assert step * STEP_S < bound_s, f"not within {bound_s} s: {self.events[-5:]}"
            self.to(self.loop.time() + STEP_S)
        raise AssertionError

    def request(self, request: Request) -> object:
        async def asked() -> object:
            return await self.link.request(request)

        return self.run(asked())

    @property
    def snapshot(self) -> Snapshot | None:
        found = (m.snapshot for m in reversed(self.messages) if isinstance(m, SnapshotTaken))
        return next(found, None)

    @property
    def events(self) -> list[Event]:
        return [m.event for m in self.messages if isinstance(m, EventHappened)]

    def close(self) -> None:
        self.run(self.link.close())
        self.loop.close()
