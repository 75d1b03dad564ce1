"""One worker of a host: its specification, its process if it has one, and its next start."""

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gputui.agent.exits import Exit
from gputui.agent.worker_output import WorkerOutput
from gputui.model.plan import WorkerSpec
from gputui.process import procfs
from gputui.process.cgroups import memory_limit
from gputui.process.lifetime import Handle
from gputui.protocol.agent import StartWorkers

BACKOFF_S = (0.5, 1.0, 2.0, 4.0)
"""Before the second, third… start of a worker that keeps failing."""

LIVED_S = 60.0
"""A worker that lived so long is started again as soon as the first time."""

CRASH_LOOP_AFTER = 5
"""Starts in a row that failed; one that came up is started again however often tasks end it."""


@dataclass(slots=True)
class WorkerProcess:
    """One worker, over all its processes."""

    spec: WorkerSpec
    order: StartWorkers
    output: WorkerOutput
    process: Handle | None = None
    pipes: list[int] = field(default_factory=list)
    """The reading ends of the pipes for its output and its reports, until it was forked."""
    forking: bool = False
    """Whether it was ordered from the forkserver, which has not reported its pid yet."""
    waiting: bool = False
    """Whether it is to be forked as soon as the forkserver is ready."""
    restarts: int = 0
    failures: int = 0
    """In a row, since it last lived for long."""
    failed_starts: int = 0
    """In a row."""
    started_at: float = 0.0
    stopping: bool = False
    again: StartWorkers | None = None
    """What to start under this name once it has stopped."""
    over_limit_bytes: int | None = None
    """The memory limit that it was ended at."""
    oom_kills: int = 0
    """How many processes the kernel had ended for memory when it was forked."""
    crash_loop: bool = False
    address: str = ""
    device_uuid: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    restart: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Its process, None while it has none."""
        return self.process.pid if self.process else None

    @property
    def came_up(self) -> bool:
        """Whether its process, or the last one, registered and opened its device."""
        return bool(self.address and (self.device_uuid or not self.spec.device_uuid))

    def begin(self, oom_kills: int) -> None:
        """Forget the process before, and open the pipes of the next; raises OSError."""
        self.ended = asyncio.Event()
        self.address, self.device_uuid, self.over_limit_bytes = "", None, None
        self.oom_kills, self.started_at = oom_kills, time.monotonic()
        while len(self.pipes) < 2:
            reads, writes = os.pipe()
            os.close(writes)
            self.pipes.append(reads)

    def ask_to_end(self) -> None:
        """Send its process SIGTERM."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its process, and all that this started."""
        if self.process is not None:
            self.process.kill_group()

    def kill_after(self, grace_s: float) -> None:
        """Kill its process where that has not ended by then."""
        asyncio.get_running_loop().call_later(grace_s, self._kill_if_still, self.process)

    def _kill_if_still(self, process: Handle | None) -> None:
        if self.process is process:
            self.kill()

    def cancel_restart(self) -> None:
        """Cancel a start that is due."""
        if self.restart is not None:
            self.restart.cancel()
            self.restart = None

    def next_start(self, end: Exit) -> float | None:
        """Return in how many seconds to start it again after this end; None stops it for good."""
        if not end.failed:
            return 0.0 if end.kind == "closed" else BACKOFF_S[1]
        if time.monotonic() - self.started_at > LIVED_S:
            self.failures = 0
        self.failures += 1
        self.failed_starts = 0 if self.came_up else self.failed_starts + 1
        if self.failed_starts >= CRASH_LOOP_AFTER or end.kind == "address":
            self.crash_loop = True
            return None
        return BACKOFF_S[min(self.failures, len(BACKOFF_S)) - 1]


LOOK_S = (0.2, 1.0)
FILLED_BYTES_PER_S = 20e9
"""Faster than that no process comes by memory: the kernel clears each page first."""


async def keep_limits(
    workers: Mapping[str, WorkerProcess], share: Callable[[], float | None]
) -> None:
    """Watch the memory of these workers until cancelled, whichever they are by then.

    `share` says at how much of its limit a worker is ended; None is never.
    """
    while True:
        of_limit = share()
        left = [_keep_limit(worker, of_limit) for worker in workers.values() if of_limit]
        await asyncio.sleep(next_look_s(min(left, default=math.inf)))


def next_look_s(left_bytes: float) -> float:
    """Return in how many seconds to look again where so much is left to the nearest limit.

    >>> next_look_s(100e9), next_look_s(8e9), next_look_s(1e9)
    (1.0, 0.4, 0.2)
    """
    return min(max(left_bytes / FILLED_BYTES_PER_S, LOOK_S[0]), LOOK_S[1])


def _keep_limit(worker: WorkerProcess, share: float) -> float:
    """End a worker that has come up to its limit; returns the bytes that are left to it."""
    spec = worker.spec
    if worker.pid is None or worker.over_limit_bytes is not None or not spec.memory_limit_bytes:
        return math.inf
    stat = procfs.process_stat(worker.pid)
    if stat is None:
        return math.inf
    left = spec.memory_limit_bytes * share - stat.rss_bytes
    if left <= 0:
        limit = memory_limit(spec.memory_limit_bytes, spec.memory_share)
        left = limit * share - stat.rss_bytes
        if left <= 0:
            worker.over_limit_bytes = limit
            worker.kill()
    return left
