"""The head's side of its child, the scheduler: start it, read its counts, know when it is busy or
why it died.

The process is started before its certificate is made, because its imports take most of a start.
"""

import asyncio
import itertools
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gputui.errors import HeadError
from gputui.folders import scheduler_scratch_folder
from gputui.model.snapshot import SchedulerState, SchedulerStatus
from gputui.process.background import Background
from gputui.process.child import Child
from gputui.process.procfs import TICKS_PER_S, process_stat
from gputui.process.search_path import own_python
from gputui.protocol.channel import TRUSTED_LINE_BYTES
from gputui.protocol.scheduler import (
    Aim,
    ConfigureScheduler,
    Counts,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    RetiredByClient,
    SchedulerStarted,
    StopScheduler,
    ToScheduler,
)
from gputui.protocol.streams import ByteStream
from gputui.protocol.typed_codec import TypedChannel

logger = logging.getLogger(__name__)

SSH_AGENT = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID"})
BUSY_AFTER_S = 2.0
STOP_S = 2.0


class SchedulerChild(Protocol):
    """The process, as `SchedulerProcess` needs it: a `Child`, or the demo's in its place."""

    pid: int

    @property
    def status(self) -> int | None:
        """Its exit status."""

    @property
    def reason(self) -> str:
        """How it ended."""

    async def stream(self) -> ByteStream:
        """Return the stream of its messages."""

    async def end(self, grace_s: float) -> int | None:
        """End it, killed after `grace_s`."""


StartScheduler = Callable[[str], SchedulerChild]
"""Starts the scheduler of the cluster with this id."""


def start_scheduler(
    cluster_id: str, command: Sequence[str] = tuple(own_python("gputui.head.scheduler"))
) -> Child:
    """Start a scheduler as a child of this process."""
    return Child(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(cluster_id),
        said=lambda text: logger.info("scheduler: %s", text),
    )


class SchedulerListener(Protocol):
    """Called when something happens to the scheduler: implemented by its runner."""

    def scheduler_started(self, started: SchedulerStarted) -> None:
        """It listens."""

    def counts_taken(self, counts: Counts) -> None:
        """It counted."""

    def workers_retired(self, names: tuple[str, ...]) -> None:
        """A Dask client had it retire these."""

    def scheduler_was_busy(self, seconds: float) -> None:
        """Its loop answers again after so long."""

    def scheduler_ended(self, reason: str, *, closed: bool) -> None:
        """It ended unexpectedly; `closed` when a Dask client closed it."""


class SchedulerProcess:
    """One scheduler, from its start to its end."""

    def __init__(
        self,
        cluster_id: str,
        report_interval_s: float,
        listener: SchedulerListener,
        start: StartScheduler,
    ) -> None:
        self.started: SchedulerStarted | None = None
        self.counts: Counts | None = None
        self._cluster_id = cluster_id
        self._interval_s = report_interval_s
        self._listener = listener
        self._start = start
        self._child: SchedulerChild | None = None
        self._channel: TypedChannel[ToScheduler, FromScheduler] | None = None
        self._heard_at = time.monotonic()
        self._stopping = False
        self._end_reason = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Retired]] = {}
        self._meter = CpuMeter()
        self._tasks = Background(self._failed)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, which imports while it waits for its configuration."""
        self._child = self._start(self._cluster_id)
        self._channel = TypedChannel(
            await self._child.stream(), FromScheduler, line_bytes=TRUSTED_LINE_BYTES
        )
        self._task = self._tasks.start(self._attend(self._child, self._channel), "scheduler")

    def configure(self, message: ConfigureScheduler) -> None:
        """Send it the address to listen on and the certificate."""
        self._send(message)

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Move workers' results elsewhere and retire them; return those retired.

        Raises HeadError when there is no scheduler to do it.
        """
        if self._child is None or self._end_reason:
            raise HeadError("there is no scheduler now")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send(Retire(number, names))
        try:
            retired: Retired = await answer
        finally:
            del self._waiting[number]
        if retired.error:
            logger.warning("retiring %s: %s", ", ".join(names), retired.error)
        return retired.names

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        """Forget workers that are gone, so that their names are free."""
        self._send(Remove(names, reason))

    def aim(self, target_duration_s: float | None) -> None:
        """Ask for as many workers as do the work in that time; None is as Dask is configured."""
        self._send(Aim(target_duration_s))

    async def stop(self) -> None:
        """End it; killed where it does not end by itself."""
        self._stopping = True
        if self._child is None or self._task is None:
            return
        self._send(StopScheduler())
        done, _ = await asyncio.wait({self._task}, timeout=STOP_S)
        if not done:
            await self._child.end(0.0)
            await self._task

    @property
    def busy_s(self) -> float:
        """The time for which its loop has not answered; 0 while it does."""
        quiet_s = time.monotonic() - self._heard_at - self._interval_s
        return quiet_s if self.started and quiet_s > BUSY_AFTER_S else 0.0

    def status(self, address: str) -> SchedulerStatus:
        """Return how it is now."""
        if self._end_reason:
            return SchedulerStatus(SchedulerState.LOST, reason=self._end_reason)
        if self.started is None or self._child is None:
            return SchedulerStatus(SchedulerState.STARTING)
        busy_s, counts = self.busy_s, self.counts
        cpu_percent, rss_bytes = self._meter.read(self._child.pid)
        return SchedulerStatus(
            state=SchedulerState.BUSY if busy_s else SchedulerState.RUNNING,
            address=address,
            pid=self._child.pid,
            busy_s=busy_s,
            tasks=counts.tasks if counts else 0,
            queued=counts.queued if counts else 0,
            clients=counts.clients if counts else 0,
            cpu_percent=cpu_percent,
            rss_bytes=rss_bytes,
        )

    def _send(self, message: ToScheduler) -> None:
        if self._channel is not None:
            self._channel.send(message)

    async def _attend(
        self, child: SchedulerChild, channel: TypedChannel[ToScheduler, FromScheduler]
    ) -> None:
        """Receive its messages until it ends; one that cannot be handled is logged."""
        while True:
            try:
                if (message := await channel.receive()) is None:
                    break
                self._take(message)
            except Exception:
                logger.exception("what the scheduler said could not be taken")
        await channel.close()
        await child.end(STOP_S)
        scratch = scheduler_scratch_folder(self._cluster_id)
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        self._end(child)

    def _take(self, message: FromScheduler) -> None:
        busy_s, self._heard_at = self.busy_s, time.monotonic()
        if busy_s:
            self._listener.scheduler_was_busy(busy_s)
        match message:
            case SchedulerStarted():
                self.started = message
                self._listener.scheduler_started(message)
            case Counts():
                self.counts = message
                self._listener.counts_taken(message)
            case RetiredByClient(names):
                self._listener.workers_retired(names)
            case Retired(request=number) if number in self._waiting:
                self._waiting[number].set_result(message)

    def _end(self, child: SchedulerChild) -> None:
        self._end_reason = f"the scheduler {child.reason or 'could not be ended'}"
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(HeadError(self._end_reason))
        if not self._stopping:
            self._listener.scheduler_ended(self._end_reason, closed=child.status == 0)

    def _failed(self, name: str, error: Exception) -> None:
        """End with the scheduler: its listener failed."""
        if not self._stopping:
            self._listener.scheduler_ended(f"the scheduler was lost: {error}", closed=False)


def environment(cluster_id: str) -> dict[str, str]:
    """Return the environment of a scheduler: not the way to this user's SSH keys.

    Clients can have code run there (`run_on_scheduler`), which needs none of them.
    """
    own = {name: value for name, value in os.environ.items() if name not in SSH_AGENT}
    return {**own, "GPUTUI_CLUSTER": cluster_id}


class CpuMeter:
    """The CPU that a process uses between two readings, and its memory."""

    def __init__(self) -> None:
        self._last = (0.0, 0)

    def read(self, pid: int) -> tuple[float | None, int | None]:
        """Return (percent of one CPU, resident bytes); None where it is not known."""
        stat, now = process_stat(pid), time.monotonic()
        if stat is None:
            return None, None
        before, ticks = self._last
        self._last = (now, stat.cpu_ticks)
        if not before or now <= before:
            return None, stat.rss_bytes
        return 100.0 * (stat.cpu_ticks - ticks) / TICKS_PER_S / (now - before), stat.rss_bytes
