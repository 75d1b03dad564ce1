"""A run from its request to its end: on a cluster, recorded, reported to the head, shown.

`recorded_run` holds every run of a preset or a script: whatever happens to it becomes a state in
its record and, with `--json`, an object on stdout. How far it is goes to the head, so that every
frontend sees the run and any of them may cancel it, to the terminal and to the log. From the head
come crashed workers, restarts, and its own end.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gputui.client.head_connection import HeadConnection
from gputui.client.start import check_enough, failures, workers_up
from gputui.errors import ExitCode, GputuiError, HeadError, RunError, StoppedError
from gputui.model.failure import Failure
from gputui.model.snapshot import Event, RunState, Snapshot
from gputui.presets.job import RunCancelledError
from gputui.process.background import Background
from gputui.protocol.frontend import (
    AwaitWorkers,
    Cancelled,
    EventHappened,
    ReportRun,
    SchedulerReady,
    Settled,
    SnapshotTaken,
    Stopped,
    Stopping,
    SubscribeLogs,
    ToFrontend,
)
from gputui.protocol.shared import LogLines
from gputui.runs.output import print_failure
from gputui.runs.progress import Progress, progress
from gputui.runs.recording import Recording
from gputui.runs.records import RUN_VARIABLE, RunRecord, new_record, status_of
from gputui.runs.request import RunRequest
from gputui.version import __version__

REPORT_EVERY_S = 0.5
"""How often the run reports its progress to the head."""

CAUSE_S = 5.0
"""How long the head may take to report why tasks were lost, or how a worker ended."""

LAST_LINES = 8
LONGEST = 1_000
MOST_WORKERS = 256
"""Whose last lines are kept."""

Result = TypeVar("Result")


OpenCluster = Callable[[], contextlib.AbstractAsyncContextManager[HeadConnection]]
"""Attaches to a cluster, started or found, and detaches from it."""

MOST_CRASHES = 5
"""Ends of workers that an error names."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run's end."""

    kept: Mapping[str, Any]
    """The object that `--json` prints, and the record's additions."""
    summary: str = ""
    saved: tuple[str, ...] = ()
    exit_code: int = ExitCode.DONE
    state: RunState = RunState.DONE
    error: GputuiError | None = None
    """Of a run that failed and has said so itself."""


@dataclass(frozen=True, slots=True)
class RunStage:
    """A run's progress; a `total` of 0 is not known."""

    name: str
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class RunEvents:
    """Counts what happened in the cluster during a run."""

    restarts: int = 0
    crashes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """How workers ended that should not have, by name; the last is the newest."""
    printed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The last lines of workers, as the newest of them printed last."""
    snapshot: Snapshot | None = None
    """The newest."""


class OngoingRun:
    """A run that goes on, on the cluster behind `connection`."""

    def __init__(
        self,
        request: RunRequest,
        connection: HeadConnection,
        settled: Settled,
        recording: Recording,
        bars: Progress,
    ) -> None:
        self.request = request
        self.connection = connection
        self.settled = settled
        self.recording = recording
        self.events = RunEvents()
        self.looked: Callable[[Snapshot], None] = lambda snapshot: None
        """Called with each snapshot."""
        self._bars = bars
        self._joined = connection.attached.started_at < recording.record.started_at
        """Whether the cluster was there before: what its workers printed then is not this run's."""
        self._stage = RunStage("")
        self._reported_at = 0.0
        self._tasks = Background(lambda what, error: None)  # the next report says more
        self._crashed = asyncio.Event()
        self._fewer = asyncio.Event()

    async def attend(self, work: Awaitable[Result]) -> Result:
        """Return the result of `work`, and handle the cluster's messages until then.

        Raises RunCancelledError where a frontend cancels the run, StoppedError where somebody stops
        the cluster, HeadError where it is lost, RunError where its scheduler is lost or no worker
        is left; `work` goes on then. It also goes on when this is cancelled.
        """
        task = asyncio.ensure_future(work)
        listening = asyncio.create_task(self._listen())
        counting = asyncio.create_task(self._count_workers())
        try:
            await asyncio.wait({task, listening, counting}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (listening, counting):
                if ended.done() and not task.done():
                    ended.result()
            try:
                return await task
            except RunError as error:
                await _raise_cause(listening, error)
                if error.killed:
                    await self._until_its_end_is_known(error.worker)
                raise
        finally:
            listening.cancel()
            counting.cancel()

    def progressed(self, stage: RunStage) -> None:
        """Show how far the run is."""
        self._bars.show(stage.name, stage.done, stage.total)
        if stage.name != self._stage.name:
            self.recording.stage(stage.name)
        self._stage = stage
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = time.monotonic()
            self._tasks.start(self.report(), "reporting progress")

    def quieten(self) -> None:
        """Leave the terminal to another writer from now on."""
        self._bars.stop()
        self._bars = Progress()

    async def report(self) -> None:
        """Report to the head how the run is."""
        status = status_of(self.recording.record)
        run = replace(
            status,
            preset=self.request.located,
            parameters=self.request.given,
            stage=self._stage.name,
            done=self._stage.done,
            total=self._stage.total,
        )
        await self.connection.send(ReportRun(run))

    async def end(self, state: RunState, error: GputuiError | None = None, **more: Any) -> None:
        """Record how the run ended, then report it to the head.

        `more` are fields of the record: result, saved, summary.
        """
        self.recording.end(
            state,
            failure=self.failure(error) if error else None,
            restarts=self.events.restarts,
            workers=self.settled.workers,
            **more,
        )
        await self.report()

    async def finish(self, end: RunEnd) -> int:
        """Record and report the end of a run that has said how it went; returns the exit code."""
        await self.end(end.state, end.error, result=end.kept, saved=end.saved, summary=end.summary)
        return int(end.exit_code)

    def failure(self, error: GputuiError) -> Failure:
        """Return how the run failed, with the end and the last lines of the worker behind it."""
        crashed, printed = self.events.crashes, self.events.printed
        worker = getattr(error, "worker", "") or next(iter(reversed((*printed, *crashed))), "")
        return error.failure(worker, (*crashed.get(worker, ()), *printed.get(worker, ())))

    async def _until_its_end_is_known(self, worker: str) -> None:
        """Wait until the head reports how a worker ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CAUSE_S):
                while worker not in self.events.crashes:
                    self._crashed.clear()
                    await self._crashed.wait()

    async def _listen(self) -> None:
        """Wait until the run is cancelled or loses its cluster, and raise."""
        started = bool(self.connection.attached.address)
        async for message in self.connection.messages():
            if isinstance(message, SchedulerReady):
                if started:
                    raise RunError("the scheduler was lost, and with it what it had computed")
                started = True
            self._take(message)
        raise HeadError(self.connection.why_gone)

    async def _count_workers(self) -> None:
        """Wait until no worker is left and none will come, and raise."""
        while True:
            await self._fewer.wait()
            self._fewer.clear()
            settled = await self.connection.request(AwaitWorkers(0, 1))
            assert isinstance(settled, Settled)
            if not settled.workers:
                raise RunError("\n  ".join(["no worker is left", *failures(settled)]))

    def _take(self, message: ToFrontend) -> None:
        match message:
            case EventHappened(event):
                self._take_event(event)
            case LogLines(worker, lines, at, earlier=earlier) if not (earlier and self._joined):
                self.recording.note(*(f"{worker} | {line}" for line in lines), at=at)
                _keep(self.events.printed, worker, lines)
            case SnapshotTaken(snapshot):
                self.events.snapshot = snapshot
                self.looked(snapshot)
            case Cancelled(id=id_) if id_ == self.recording.record.id:
                raise RunCancelledError("cancelled from a screen")
            case Stopping(reason, failed) | Stopped(reason, failed):
                if failed:
                    raise HeadError(f"the cluster failed: {reason}")
                raise StoppedError(f"the cluster was stopped: {reason}")

    def _take_event(self, event: Event) -> None:
        if event.subject.startswith("run ") or event.at < self.recording.record.started_at:
            return
        self.recording.note(f"{event.subject} {event.kind} {event.text}".rstrip(), at=event.at)
        if event.kind == "restarted" and event.subject != "cluster":
            self.events.restarts += 1
        if event.kind in ("crashed", "crash loop", "given up", "lost"):
            _keep(self.events.crashes, event.subject, (f"{event.kind}: {event.text}",))
            self._crashed.set()
        if event.kind in ("crash loop", "given up", "lost", "failed"):
            self._fewer.set()


def _keep(lines: dict[str, tuple[str, ...]], worker: str, new: Iterable[str]) -> None:
    """Add to the last lines of a worker, which is the newest then; of some workers only."""
    kept = (*lines.pop(worker, ()), *(line[:LONGEST] for line in new))
    lines[worker] = tuple(dict.fromkeys(kept))[-LAST_LINES:]
    if len(lines) > MOST_WORKERS:
        del lines[next(iter(lines))]


async def _raise_cause(listening: "asyncio.Task[None]", error: RunError) -> None:
    """Raise the cluster's reason for lost tasks, if it has one."""
    if error.lost:
        await asyncio.wait({listening}, timeout=CAUSE_S)
        if listening.done():
            listening.result()


@contextlib.asynccontextmanager
async def recorded_run(request: RunRequest, open_cluster: OpenCluster) -> AsyncIterator[OngoingRun]:
    """Hold a run on a cluster: attached, recorded, and reported to the head.

    Raises GputuiError as it comes, after it was recorded and, where asked, printed as JSON.
    """
    recording = Recording(_begun(request), _warn)
    try:
        with progress(request.quiet) as bars:
            bars.show("starting", 0, 0)
            recording.stage("starting")
            async with open_cluster() as connection:
                await connection.send(SubscribeLogs(True))
                settled = await _settled(request, connection, recording)
                ongoing = OngoingRun(request, connection, settled, recording, bars)
                async with _reported(ongoing):
                    yield ongoing
    except asyncio.CancelledError:
        recording.end(RunState.CANCELLED)
        raise
    except Exception as error:
        known = error if isinstance(error, GputuiError) else _unexpected(request, error)
        recording.end(_state(known), failure=known.failure())
        if request.as_json:
            print_failure(request, known)
        raise known from known.__cause__


def _begun(request: RunRequest) -> RunRecord:
    id, _, started_at = os.environ.pop(RUN_VARIABLE, "").partition(" ")
    return new_record(
        request.name,
        request.parameters,
        backend=request.backend,
        hosts=request.hosts,
        version=__version__,
        id=id,
        started_at=float(started_at) if started_at else None,
    )


async def _settled(
    request: RunRequest, connection: HeadConnection, recording: Recording
) -> Settled:
    """Wait for the workers and report missing ones; raises ClusterError if too few came up."""
    settled = await workers_up(connection, request.workers, _warn)
    recording.note(f"{len(settled.workers)} workers up", *failures(settled))
    check_enough(settled, request.min_workers, reported=True)
    if connection.dashboard and not request.quiet:
        _warn(f"dashboard at {connection.dashboard}")
    return settled


@contextlib.asynccontextmanager
async def _reported(ongoing: OngoingRun) -> AsyncIterator[None]:
    """Have record and head know how a run ended that raises."""
    await ongoing.report()
    try:
        yield
    except asyncio.CancelledError:
        await ongoing.end(RunState.CANCELLED)
        raise
    except GputuiError as error:
        await ongoing.end(_state(error), error)
        raise _with_crashes(error, ongoing) from error


def _with_crashes(error: GputuiError, ongoing: OngoingRun) -> GputuiError:
    """Return the error of a run, with how its workers ended behind it."""
    ends = [f"{w} {line}" for w, lines in ongoing.events.crashes.items() for line in lines]
    crashes = [end for end in ends if end.partition(": ")[2] not in str(error)][-MOST_CRASHES:]
    if not crashes or type(error) is not RunError:
        return error
    known = RunError("\n  ".join([str(error), *crashes]))
    known.__cause__ = error.__cause__
    return known


def _unexpected(request: RunRequest, error: Exception) -> RunError:
    """Return the error of a run that a mistake of ours has ended; its log has the traceback."""
    known = RunError(f"{request.name} failed unexpectedly: {type(error).__name__}: {error}")
    known.__cause__ = error
    return known


def _state(error: GputuiError) -> RunState:
    """Return how a run ended that raised this."""
    return RunState.CANCELLED if isinstance(error, RunCancelledError) else RunState.FAILED


def _warn(problem: str) -> None:
    print(f"gputui: {problem}", file=sys.stderr)
