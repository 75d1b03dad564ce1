"""The head of one cluster: `run` brings it up, keeps it until it is to end, and leaves nothing."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputui.head.certificate import make_certificate
from gputui.head.cluster import Cluster
from gputui.head.cluster_view import AlarmWatch, ClusterView, RecentHistory
from gputui.head.metrics import MetricsServer, exposition
from gputui.head.requests import HANDLERS, start_run, stop
from gputui.head.server import Answering, FrontendConnection
from gputui.model.snapshot import Severity
from gputui.process.background import RETRY_S, Background, words
from gputui.protocol.agent import Credentials
from gputui.protocol.frontend import (
    Answer,
    Attached,
    Done,
    EventHappened,
    FromFrontend,
    ReadMetrics,
    ReportRun,
    Request,
    SnapshotTaken,
    StartRun,
    Stop,
    Stopped,
    SubscribeLogs,
)
from gputui.protocol.programs import (
    EndRun,
    OutputTaken,
    ProgramInput,
    ResizeTerminal,
    RunPrograms,
    SignalProgram,
    is_program,
)
from gputui.protocol.starter import ConfigureHead

logger = logging.getLogger(__name__)

WATCHING_S = 10.0
"""How long a cluster without workers outlives its last screen, which may come back meanwhile."""
MEETING_S = 5.0
"""How long a cluster that failed at its start waits for its starter, to say why."""


class Head(Cluster):
    """One cluster, from its start to its end."""

    def __init__(self, config: ConfigureHead, **parts: Any) -> None:
        """Take the cluster's name; as `Cluster`."""
        super().__init__(config, **parts)
        self.view = ClusterView(self.snapshot, self.server, AlarmWatch(self.tell))
        self.metrics = MetricsServer(self._metrics_text)
        self.history = RecentHistory(
            lambda: self.fleet.host_statuses, lambda: self.fleet.cpu_workers
        )
        self.server.attached, self.server.received = self.attached, self._received
        self.server.settled, self.server.left = self._settled, self._left
        self._sending = Background(self.event_log.failed)
        self._recorded: set[str] = set()
        """What failed, and is begun again."""

    async def run(self, opened: Callable[[str], None]) -> None:
        """Bring the cluster up, call `opened` with the server's socket, and stay until the end."""
        try:
            await self._start()
            opened(str(self.server.path))
            for name, work in (("snapshots", self.view.run), ("history", self.history.run)):
                self._work.keep(work, name, self._failing)
            self._work.keep(self._watch_idleness, "the watch for idleness")
            stopped = await asyncio.shield(self._ending)
        except BaseException:
            self._met.set()
            await self._end(Stopped("the head failed", failed=True))
            raise
        await self._end(stopped)

    def _settled(self, frontend: FrontendConnection) -> None:
        """Send a watching frontend the present state, then past events."""
        self.fleet.frontends_changed()
        if frontend.snapshots:
            for event in self.event_log.events:
                frontend.send(EventHappened(event))
            for asked in self.questions.open:
                frontend.send(asked)
            frontend.send(SnapshotTaken(self.view.take()))
            self.view.changed.set()
            self._sending.start(self.history.send_to(frontend), "sending the history")

    def attached(self, frontend: FrontendConnection) -> Attached:
        """Return a new frontend's first message, with where the metrics are."""
        return replace(super().attached(frontend), metrics=self.metrics.url)

    def _left(self, frontend: FrontendConnection) -> None:
        """Forget the frontend's subscriptions."""
        self.runs.frontend_left(frontend)
        self.logs.subscribe(frontend, False)
        self.fleet.programs.left(frontend.send)
        self.fleet.frontends_changed()

    def _received(self, frontend: FrontendConnection, message: FromFrontend) -> Answering:
        """Handle a frontend's message; return the coroutine whose result answers a request."""
        match message:
            case ReportRun():
                self.runs.report(frontend, message)
            case SubscribeLogs(on):
                self.logs.subscribe(frontend, on)
            case Answer():
                self.questions.take(message)
            case ProgramInput() | OutputTaken() | SignalProgram() | ResizeTerminal():
                self.fleet.programs.said(message)
            case EndRun(run, grace_s):
                self.fleet.programs.end(run, grace_s)
            case RunPrograms():
                return self.fleet.programs.start(message, frontend.send)
            case Stop():
                return stop(self, message, frontend.session)
            case ReadMetrics(request):
                return self._read_metrics(request)
            case StartRun():
                return start_run(self, message, frontend.session)
            case _ if isinstance(message, Request):
                return HANDLERS[type(message)](self, message)
            case _:
                logger.warning("a frontend sent %s", type(message).__name__)
        return None

    async def _read_metrics(self, request: int) -> Done:
        return Done(request, self._metrics_text())

    def _metrics_text(self) -> str:
        """Return the newest snapshot as text."""
        snapshot = self.view.newest or self.view.take()
        runs = self.fleet.programs.gpus
        on_dask = [each for each in snapshot.runs if not each.state.ended]
        on_dask = [each for each in on_dask if not is_program(each.preset)]
        if len(on_dask) == 1:  # of several, nobody knows which task is whose
            uuids = (worker.device_uuid for worker in snapshot.workers)
            runs |= {uuid: on_dask[0].id for uuid in uuids if uuid is not None}
        return exposition(snapshot, runs)

    def _failing(self, what: str, error: Exception) -> None:
        """Record once that work fails which is begun again."""
        text = f"{what}: {words(error)}; tried again every {RETRY_S:g} s"
        if text not in self._recorded:
            self._recorded.add(text)
            logger.error("%s failed", what, exc_info=error)
            self.tell(Severity.ERROR, "cluster", "failed", text)

    async def _start(self) -> None:
        """Start everything at once: what waits for something else waits there."""
        made = None
        if not self.config.watch:
            made = self._work.start(self._make_credentials(), "its certificate")
            self.fleet.scheduler_wanted.set()
            await self.scheduler.start()
        self.fleet.add_hosts(self._hosts)
        if made is not None:
            self.trust(await made)
        if self.config.metrics_port is not None:
            await self.metrics.open(self.config.metrics_port)
        if not self.simulated:
            await self.server.open()
        self._publish()

    async def _make_credentials(self) -> Credentials:
        if self.simulated:
            return Credentials("", "", "{}")
        return await asyncio.to_thread(make_certificate, self.config.dask_config_json)

    async def _end(self, stopped: Stopped) -> None:
        """End agents, scheduler and runs at the same time, then tell the frontends.

        Where one of them cannot be ended the others are, and the name is free afterwards. An agent
        that could not be reached ends by its lease.
        """
        try:
            await self._work.close()
            self.metrics.close()
            self.view.show()
            fleet = asyncio.ensure_future(self.fleet.stop())
            others = self.scheduler.stop(), self.runs.stop(), self.notices.close()
            parts = [*map(asyncio.ensure_future, others), fleet]
            await asyncio.wait(parts)
            for part in parts:
                part.result()
            if left := fleet.result():
                text = "could not be reached to stop them; they end by themselves within"
                text = f"{', '.join(left)} {text} {self.config.lease_s:g} s"
                self.tell(Severity.WARNING, "cluster", "stopping", text)
        finally:
            if stopped.failed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._met.wait(), MEETING_S)
            if self._name_lock is not None:
                self._name_lock.release()
            await self.server.close(stopped)

    async def _watch_idleness(self) -> None:
        """End a cluster that stays, once it has been idle for long enough."""
        used_at = time.monotonic()
        while self.config.stays and (limit_s := self._idle_limit_s) is not None:
            counts = self.scheduler.counts
            if self.server.frontends or self.runs.under_way or (counts and counts.clients):
                used_at = time.monotonic()
            if time.monotonic() - used_at > limit_s:
                self.stop(f"unused for {limit_s:g} s")
                return
            await asyncio.sleep(min(1.0, limit_s / 4))

    @property
    def _idle_limit_s(self) -> float | None:
        """How long it may be idle; one that only watches for a screen ends soon after that."""
        return WATCHING_S if self.ends_with_screens else self.config.idle_timeout_s

    def fleet_changed(self) -> None:
        """Wake everything that waits for a change, and have it seen."""
        super().fleet_changed()
        self.view.changed.set()
