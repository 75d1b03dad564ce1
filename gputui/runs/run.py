"""A run from its request to its end: on a cluster, recorded, reported to the head, shown.

`recorded_run` holds every run of a preset or a script: whatever happens to it becomes a state in
its record and, with `--json`, an object on stdout. Its progress goes to the head, so that every
frontend sees the run and any of them may cancel it, to the terminal and to the log. From the head
come crashed workers, restarts, and its own end.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gputui.client.head_connection import HeadConnection
from gputui.client.start import check_enough, failures, workers_up
from gputui.errors import GputuiError, HeadError, RunError, StoppedError
from gputui.model.frozen import frozen
from gputui.model.plain_text import many, safe_lines
from gputui.model.snapshot import AWAY, Event, RunState, Snapshot
from gputui.presets import RunCancelledError, RunProgress, located
from gputui.presets.definition import json_text
from gputui.protocol.frontend import (
    RUN_VARIABLE,
    AwaitWorkers,
    Cancelled,
    EventHappened,
    ReportRun,
    SchedulerReady,
    Settled,
    SnapshotTaken,
    Stopped,
    Stopping,
    ToFrontend,
)
from gputui.protocol.programs import is_program
from gputui.protocol.shared import FollowLogs, LogLines
from gputui.runs.output import write_over
from gputui.runs.progress import Bar, Progress, TaskCounts
from gputui.runs.recorder import FlightRecorder
from gputui.runs.records import Recording, is_script, new_record, status_of
from gputui.runs.telemetry import chrome_trace
from gputui.version import __version__

REPORT_EVERY_S = 0.5
"""How often the run reports its progress to the head."""
TELEMETRY_EVERY_S = 60.0
"""How often the telemetry is written at first; a run that is killed loses a twentieth at most."""
CAUSE_S = 5.0
"""How long the head may take to report why tasks were lost, or how a worker ended."""
LAST_LINES = 8
LONGEST = 1_000
MOST_CRASHES = 5
"""Ends of workers that an error names."""

Result = TypeVar("Result")

OpenCluster = Callable[[], Awaitable[HeadConnection]]
"""Attaches to a cluster, started or found."""


@frozen
class RunRequest:
    """A preset or a script with its parameters, and its requirements of a cluster."""

    name: str
    """The preset or the script, as it was typed."""
    parameters: Mapping[str, Any]
    backend: str
    hosts: str
    """As they were given, for the record."""
    workers: int | None
    min_workers: int
    as_json: bool = False
    quiet: bool = False
    trace: Path | None = None
    """Where to write a Chrome trace."""


def warn(problem: str) -> None:
    """Print a warning on stderr."""
    print(f"gputui: {safe_lines(problem)}", file=sys.stderr)


def print_out(text: str) -> None:
    """Print on stdout; raises RunError if that is full, nothing if its reader is gone."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return
    except OSError as error:
        raise RunError(f"standard output: {error.strerror}") from error


def print_failure(request: RunRequest, error: GputuiError) -> None:
    """Print the `--json` object of a failure, where stdout can be written."""
    message = "\n".join((str(error), *getattr(error, "__notes__", ())))
    printed = {
        "preset": request.name,
        "parameters": dict(request.parameters),
        "backend": request.backend,
        "error": {"type": type(error).__name__, "message": message},
        "version": __version__,
    }
    with contextlib.suppress(RunError):
        print_out(json_text(printed))


def print_object(
    request: RunRequest, printed: Mapping[str, Any], error: GputuiError | None
) -> None:
    """Print the `--json` object of a run that ended, where it was asked for."""
    if request.as_json and error:
        print_failure(request, error)
    elif request.as_json:
        print_out(json_text(printed))


class OngoingRun:
    """A run that goes on, on the cluster behind `connection`."""

    def __init__(
        self,
        request: RunRequest,
        connection: HeadConnection,
        settled: Settled,
        recording: Recording,
        shown: Progress,
    ) -> None:
        self.request = request
        self.connection = connection
        self.settled = settled
        self.recording = recording
        self.restarts = 0
        """Of workers during it."""
        self.snapshot: Snapshot | None = None
        """The newest."""
        self.recorder = FlightRecorder(() if is_program(request.name) else None)
        self._began_at = self._written_at = self._looked_at = time.monotonic()
        self._shown = shown
        self._joined = connection.attached.started_at < recording.record.started_at
        """Whether the cluster ran before: what its workers printed then is not this run's."""
        self._tasks = TaskCounts()
        self._step = RunProgress("", 0, 0)
        self._reported_at = 0.0
        self._crashes: dict[str, tuple[str, ...]] = {}
        """By the name of a worker."""
        self._printed: dict[str, tuple[str, ...]] = {}
        """The last lines of workers, as the newest of them printed last."""
        self._crashed = asyncio.Event()
        self._fewer = asyncio.Event()

    @property
    def crashes(self) -> list[str]:
        """How workers ended that should not have; the last is the newest."""
        return [f"{name} {line}" for name, lines in self._crashes.items() for line in lines]

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
            return await task
        except RunError as error:
            # The head says why tasks were lost, or how a worker ended.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CAUSE_S):
                    if error.lost:
                        await listening
                    while error.killed and error.worker not in self._crashes:
                        self._crashed.clear()
                        await self._crashed.wait()
            raise
        finally:
            listening.cancel()
            counting.cancel()

    def progressed(self, step: RunProgress) -> None:
        """Show how far the run is."""
        if step.stage != self._step.stage:
            self.recording.stage(step.stage)
            self._tasks.begin()
        self._step = step
        self._shown.show(self._tasks.shown(step))
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self.report()

    def quieten(self) -> None:
        """Leave the terminal to another writer from now on."""
        self._shown.close()

    def report(self) -> None:
        """Report to the head how the run is."""
        self._reported_at = time.monotonic()
        step, name = self._tasks.shown(self._step), self.request.name
        run = replace(
            status_of(self.recording.record),
            preset=_found_everywhere(name),
            stage=step.stage,
            done=step.done,
            total=step.total,
        )
        self.connection.send(ReportRun(run))

    def end(self, error: BaseException | None, **more: Any) -> None:
        """Record how the run ended, then report it to the head.

        `more` are fields of the record: result, saved, summary. How workers ended stands in the
        message of an error from now on.
        """
        if isinstance(error, GputuiError):
            worker = getattr(error, "worker", "")
            worker = worker or next(reversed([*self._printed, *self._crashes]), "")
            log = (*self._crashes.get(worker, ()), *self._printed.get(worker, ()))
            more["failure"] = error.failure(worker, log)
        if (last := self.snapshot) is not None:  # its readings hold until now
            ended_at = last.taken_at + time.monotonic() - self._looked_at
            hosts = tuple(replace(host, read_at=None) for host in last.hosts)
            self.recorder.look(replace(last, taken_at=ended_at, hosts=hosts, spans=()))
        self.recording.took(self.recorder.usage, telemetry := self.recorder.telemetry)
        self.recording.end(
            _state(error), restarts=self.restarts, workers=self.settled.workers, **more
        )
        if self.request.trace:
            trace = chrome_trace(status_of(self.recording.record), telemetry)
            try:
                write_over("--trace", self.request.trace, trace)
            except RunError as failed:
                warn(str(failed))
        self.report()
        if type(error) is RunError:
            new = [each for each in self.crashes if each.partition(" ")[2] not in error.message]
            error.args = ("\n  ".join([error.message, *new[-MOST_CRASHES:]]),)

    def end_process(
        self,
        status: int,
        error: GputuiError | None,
        workers: list[dict[str, Any]],
        elapsed_s: float,
    ) -> int:
        """End a run that was a process with this status; returns the command's exit code."""
        code = status if status >= 0 else 128 - status
        printed = self.printed(workers, elapsed_s, {"exit_code": code})
        print_object(self.request, printed, error)
        self.end(error, result=printed, summary="" if error else f"{elapsed_s:.2f} s")
        return code

    def printed(
        self, workers: list[dict[str, Any]], elapsed_s: float, result: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the object that `--json` prints of a run that ended."""
        return {
            "preset": self.request.name,
            "parameters": dict(self.request.parameters),
            "backend": self.request.backend,
            "workers": workers,
            "failed_hosts": [
                {"host": host.name, "stage": host.failed_stage, "reason": host.reason}
                for host in self.settled.failed_hosts
            ],
            "elapsed_s": elapsed_s,
            "result": dict(result),
            "restarts": self.restarts,
            "version": __version__,
        }

    def _record(self, snapshot: Snapshot) -> None:
        """Record a snapshot, and write the telemetry now and then."""
        self.recorder.look(snapshot)
        now = self._looked_at = time.monotonic()
        if now - self._written_at > max(TELEMETRY_EVERY_S, (now - self._began_at) / 20):
            self._written_at = now
            self.recording.took(self.recorder.usage, self.recorder.telemetry)

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
            if not settled.workers:
                hosts = self.snapshot.hosts if self.snapshot else ()
                away = [f"{host.name}: {host.reason}" for host in hosts if host.state in AWAY]
                raise RunError("\n  ".join(["no worker is left", *away, *failures(settled)]))

    def _take(self, message: ToFrontend) -> None:
        match message:
            case EventHappened(event):
                self._take_event(event)
            case LogLines(worker, lines, at) if not (message.earlier and self._joined):
                noted = (*message.left_out, *lines)
                self.recording.note(*(f"{worker} | {line}" for line in noted), at=at)
                _keep(self._printed, worker, lines)
            case SnapshotTaken(snapshot):
                self.snapshot = snapshot
                self._record(snapshot)
                self._tasks.looked(snapshot)
                if self._step.stage:
                    self.progressed(self._step)
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
            self.restarts += 1
        # A scheduler that is lost takes its workers along: they are not to blame.
        kinds = ("crashed", "crash loop", "given up", "lost")
        if event.kind in kinds and "scheduler" not in self._crashes:
            _keep(self._crashes, event.subject, (f"{event.kind}: {event.text}",))
            self._crashed.set()
        gone = event.kind in ("crash loop", "given up", "lost", "failed")
        if gone and not is_program(self.request.name):
            self._fewer.set()


def _keep(lines: dict[str, tuple[str, ...]], worker: str, new: Iterable[str]) -> None:
    """Add to the last lines of a worker, which is the newest then."""
    kept = (*lines.pop(worker, ()), *(line[:LONGEST] for line in new))
    lines[worker] = tuple(dict.fromkeys(kept))[-LAST_LINES:]


@contextlib.asynccontextmanager
async def recorded_run(request: RunRequest, open_cluster: OpenCluster) -> AsyncIterator[OngoingRun]:
    """Hold a run on a cluster: attached, recorded, and reported to the head.

    A head that started this process has chosen its id. Raises each GputuiError after it was
    recorded and, with `--json`, printed.
    """
    id, _, asked_at = os.environ.pop(RUN_VARIABLE, "").partition(" ")
    record = new_record(
        request.name,
        request.parameters,
        backend=request.backend,
        hosts=request.hosts,
        version=__version__,
        id=id,
    )
    recording = Recording(replace(record, started_at=float(asked_at or record.started_at)), warn)
    try:
        on_terminal = sys.stderr.isatty() and not request.quiet
        with contextlib.closing(Bar() if on_terminal else Progress(quiet=request.quiet)) as shown:
            shown.show(RunProgress("starting", 0, 0))
            recording.stage("starting")
            async with await open_cluster() as connection:
                connection.send(FollowLogs(True))
                also = ", --min-workers asks for them"
                settled = await workers_up(connection, request.workers, warn, also)
                recording.note(f"{many(len(settled.workers), 'worker')} up", *failures(settled))
                check_enough(settled, request.min_workers, reported=True)
                if connection.dashboard and not request.quiet:
                    warn(f"dashboard at {connection.dashboard}")
                if connection.attached.metrics and not request.quiet:
                    there = f" on {connection.where}" if connection.where else ""
                    warn(f"metrics{there} at {connection.attached.metrics}")
                ongoing = OngoingRun(request, connection, settled, recording, shown)
                ongoing.report()
                try:
                    yield ongoing
                except (asyncio.CancelledError, GputuiError) as error:
                    ongoing.end(error)
                    raise
    except asyncio.CancelledError as error:
        recording.end(_state(error))
        raise
    except Exception as error:
        known = error
        if not isinstance(known, GputuiError):
            said = f"{type(error).__name__}: {error}"
            known = RunError(f"{request.name} failed unexpectedly: {said}")
            known.__cause__ = error
        recording.end(_state(known), failure=known.failure())
        print_object(request, {}, known)
        raise known from known.__cause__


def _found_everywhere(name: str) -> str:
    """Return the name by which the same is found from every working directory."""
    if is_program(name):
        return name
    return str(Path(name).expanduser().resolve()) if is_script(name) else located(name)


def _state(error: BaseException | None) -> RunState:
    """Return how a run ended that raised this."""
    if error is None:
        return RunState.DONE
    cancelled = isinstance(error, asyncio.CancelledError | RunCancelledError | StoppedError)
    return RunState.CANCELLED if cancelled else RunState.FAILED
