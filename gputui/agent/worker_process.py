"""One worker of a host: its specification, its process if it has one, and its next start."""

import asyncio
import math
import os
import signal
import time
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

LOOK_S = (0.2, 1.0)
FILLED_BYTES_PER_S = 20e9
"""Faster than that no process comes by memory: the kernel clears each page first."""

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

    def keep_limit(self, share: float) -> float:
        """Kill it if it has come up to a share of its limit; return how many bytes are left."""
        limit = self.spec.memory_limit_bytes
        if self.pid is None or self.over_limit_bytes is not None or not limit:
            return math.inf
        if (stat := procfs.process_stat(self.pid)) is None:
            return math.inf
        left = limit * share - stat.rss_bytes
        if left <= 0:
            limit = memory_limit(limit, self.spec.memory_share)
            left = limit * share - stat.rss_bytes
            if left <= 0:
                self.over_limit_bytes = limit
                self.kill()
        return left

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


def next_look_s(left_bytes: float) -> float:
    """Return in how many seconds to look again where so much is left to the nearest limit.

    >>> next_look_s(100e9), next_look_s(8e9), next_look_s(1e9)
    (1.0, 0.4, 0.2)
    """
    return min(max(left_bytes / FILLED_BYTES_PER_S, LOOK_S[0]), LOOK_S[1])
