"""Take the snapshots for frontends: once a second, sooner when a state changes."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from gputui.head.server import FrontendServer
from gputui.model.snapshot import Snapshot, TaskSpan, silent_with_their_hosts
from gputui.protocol.frontend import SnapshotTaken
from gputui.protocol.outgoing import Prepared

if TYPE_CHECKING:
    from gputui.head.head import Head

INTERVAL_S = 1.0
CLOSEST_S = 0.2
"""However much changes, snapshots are at least so far apart."""
REST = 8
"""Pause after a snapshot of thousands of GPUs, in multiples of the time that it took to make;
encoding it is part of that pause."""


class ClusterView:
    """Takes snapshots, and sends them to the frontends that look."""

    def __init__(self, head: "Head", server: FrontendServer) -> None:
        self._head = head
        self._server = server
        self._sequence = 0
        self._taken: tuple[float, Snapshot] | None = None
        """When the last one was taken, by the clock that is never set, and it."""
        self._spans_from: float | None = None
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
        head = self._head
        self._sequence += 1
        counts = head.scheduler_runner.process.counts
        now, hosts = time.time(), head.fleet.host_statuses
        taken = Snapshot(
            sequence=self._sequence,
            taken_at=now,
            name=head.name,
            state=head.state,
            started_at=head.started_at,
            scheduler=head.scheduler_runner.status,
            hosts=hosts,
            workers=silent_with_their_hosts(head.fleet.worker_statuses, hosts, now),
            groups=counts.groups if counts else (),
            runs=head.runs.statuses,
            spans=self._new_spans(),
            wanted_workers=head.fleet.desired.workers,
            adaptive=head.adaptive.bounds if head.adaptive else None,
            sessions=tuple(sorted(head.sessions, key=lambda each: each.attached_at)),
            reason=head.end_reason,
            simulated=head.simulated,
        )
        self._taken = time.monotonic(), taken
        return taken

    def _new_spans(self) -> tuple[TaskSpan, ...]:
        """Return the sampled tasks of the last counts, once."""
        counts = self._head.scheduler_runner.process.counts
        if counts is None or counts.at == self._spans_from:
            return ()
        self._spans_from = counts.at
        return counts.spans
