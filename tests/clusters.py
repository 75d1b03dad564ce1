"""Real clusters on this machine for tests, and what is left of them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from gputui.client.head_connection import HeadConnection
from gputui.client.head_process import HeadProcess
from gputui.client.start import spawn_head
from gputui.model.series import HistoryTaken
from gputui.model.snapshot import Event, Snapshot, WorkerStatus
from gputui.protocol.frontend import Asked, AwaitWorkers, EventHappened, SnapshotTaken, Stopped
from gputui.protocol.shared import LogLines
from gputui.protocol.starter import ConfigureHead

BOUND_S = 30
LEASE_S = 60.0
"""Longer than any wait: what is told to end may not wait for this to be over."""
TWO_WORKERS = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"


async def until(condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.01)


@dataclass
class LiveCluster:
    """A cluster with a frontend that keeps all it is told."""

    head: HeadProcess
    link: HeadConnection
    socket: str
    snapshot: Snapshot | None = None
    events: list[Event] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    logs: list[LogLines] = field(default_factory=list)
    history: list[HistoryTaken] = field(default_factory=list)
    stopped: Stopped | None = None
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        self._task = asyncio.create_task(self._listen())

    @property
    def id(self) -> str:
        return self.link.attached.cluster_id

    @property
    def workers(self) -> dict[str, WorkerStatus]:
        return {worker.name: worker for worker in self.snapshot.workers}

    async def request(self, message: object) -> object:
        async with asyncio.timeout(BOUND_S):
            return await self.link.request(message)

    async def up(self, workers: int | None = None) -> None:
        await self.request(AwaitWorkers(0, workers))
        await self.until(lambda: self.snapshot and self.snapshot.workers_up >= (workers or 1))

    async def until(self, condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
        try:
            async with asyncio.timeout(bound_s):
                while not condition():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"not within {bound_s} s: {self._told}") from None

    @property
    def _told(self) -> str:
        """What explains a condition that did not come about."""
        snapshot = self.snapshot
        hosts = [(h.name, h.state, h.reason) for h in snapshot.hosts] if snapshot else []
        workers = [(w.name, w.state, w.reason) for w in snapshot.workers] if snapshot else []
        events = [(e.subject, e.kind, e.text) for e in self.events[-20:]]
        return "\n".join(map(str, [*hosts, *workers, *events]))

    async def _listen(self) -> None:
        async for message in self.link.messages():
            match message:
                case SnapshotTaken(snapshot):
                    self.snapshot = snapshot
                case EventHappened(event):
                    self.events.append(event)
                case Asked():
                    self.asked.append(message)
                case LogLines():
                    self.logs.append(message)
                case HistoryTaken():
                    self.history.append(message)
                case Stopped():
                    self.stopped = message
            self._heard.set()


@dataclass
class Clusters:
    live: list[LiveCluster] = field(default_factory=list)
    heads: list[HeadProcess] = field(default_factory=list)

    async def start(
        self,
        hosts: str = TWO_WORKERS,
        name: str = "test",
        frontend: str = "screen",
        up: int = 0,
        **settings: object,
    ) -> LiveCluster:
        """Start a cluster, and wait until so many of its workers are up."""
        config = ConfigureHead(name, hosts, **{"lease_s": LEASE_S, **settings})
        head = spawn_head(config)
        self.heads.append(head)
        socket = await asyncio.to_thread(head.opened)
        cluster = await self.attach(head, socket, frontend)
        if up:
            await cluster.up(up)
        return cluster

    async def attach(self, head: HeadProcess, socket: str, frontend: str = "screen") -> LiveCluster:
        cluster = LiveCluster(
            head, await HeadConnection.open(socket, frontend=frontend, snapshots=True), socket
        )
        cluster.listen()
        self.live.append(cluster)
        return cluster

    async def close(self) -> None:
        for cluster in self.live:
            await cluster.link.close()
        for head in self.heads:
            with contextlib.suppress(ProcessLookupError):
                os.kill(head.pid, signal.SIGTERM)
            await asyncio.to_thread(head.end)
