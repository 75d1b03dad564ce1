"""Take the snapshots for frontends: once a second, sooner when a state changes."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from gputui.head.server import FrontendServer
from gputui.model.snapshot import Snapshot
from gputui.protocol.frontend import SnapshotTaken
from gputui.protocol.outgoing import Prepared

INTERVAL_S = 1.0
CLOSEST_S = 0.2
"""However much changes, snapshots are at least so far apart."""
REST = 8
"""Pause after a snapshot of thousands of GPUs, in multiples of the time that it took to make;
encoding it is part of that pause."""


class ClusterView:
    """Takes snapshots, and sends them to the frontends that look."""

    def __init__(self, snapshot: Callable[[int], Snapshot], server: FrontendServer) -> None:
        self._snapshot = snapshot
        self._server = server
        self._sequence = 0
        self._taken: tuple[float, Snapshot] | None = None
        """When the last one was taken, by the clock that is never set, and it."""
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()

    def changed(self) -> None:
        """Note that a state is another now."""
        self._changed.set()

    def wanted(self, on: bool) -> None:
        """Note whether anybody looks; one who begins to gets a snapshot at once."""
        if on:
            self._wanted.set()
            self._changed.set()
        else:
            self._wanted.clear()

    async def run(self) -> None:
        """Take and send snapshots until cancelled."""
        while True:
            await self._wanted.wait()
            self._changed.clear()
            began = time.monotonic()
            self.show()
            rest_s = min(INTERVAL_S, max(CLOSEST_S, REST * (time.monotonic() - began)))
            await asyncio.sleep(rest_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S - rest_s):
                    await self._changed.wait()

    def show(self) -> None:
        """Take a snapshot now, and send it."""
        looking = [frontend for frontend in self._server.frontends if frontend.snapshots]
        if looking:
            prepared = Prepared(SnapshotTaken(self._take()))
            for frontend in looking:
                frontend.send(prepared)

    def recent(self, age_s: float) -> Snapshot:
        """Return the last snapshot, or one of now where that is older than so many seconds."""
        if self._taken is None or time.monotonic() - self._taken[0] > age_s:
            return self._take()
        return self._taken[1]

    def _take(self) -> Snapshot:
        self._sequence += 1
        taken = self._snapshot(self._sequence)
        self._taken = time.monotonic(), taken
        return taken
