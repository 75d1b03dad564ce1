"""The head of one cluster: it holds fleet, scheduler, runs, events and frontends together.

`run` brings the cluster up, keeps it until it is to end, and leaves nothing. It learns of changes
as the listener of its parts, and never waits for any of them: a busy scheduler, a dead host or a
slow frontend delays nothing else.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from gputui.engine import dask_settings
from gputui.errors import HeadError
from gputui.fleet import desired
from gputui.fleet.deploy.start_agent import Opener
from gputui.fleet.desired import AdaptiveBounds, Desired
from gputui.fleet.fleet import Fleet
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import Question
from gputui.folders import runtime_folder
from gputui.head.alarm_watch import AlarmWatch
from gputui.head.broadcasts import EventLog, LogRelay, Questions
from gputui.head.certificate import Certificate, make_certificate
from gputui.head.cluster_view import ClusterView
from gputui.head.frontends import Frontends
from gputui.head.recent_history import RecentHistory
from gputui.head.runs import Runs, StartChild, start_run
from gputui.head.scheduler_process import StartScheduler, start_scheduler
from gputui.head.scheduler_runner import SchedulerRunner
from gputui.head.server import FrontendServer
from gputui.model.hosts import parse_hosts
from gputui.model.snapshot import ClusterState, Event, Session, Severity
from gputui.process.background import Background, words
from gputui.protocol.agent import Credentials
from gputui.protocol.connection_file import ConnectionFile, NameLock
from gputui.protocol.frontend import Attached, EventHappened, SchedulerReady, Stopped, Stopping
from gputui.protocol.scheduler import Counts
from gputui.protocol.shared import LogLines
from gputui.protocol.starter import ConfigureHead
from gputui.version import __version__

logger = logging.getLogger(__name__)

AGAIN_S = 1.0
"""How long work that failed rests before it is begun again."""
MEETING_S = 5.0
"""How long a cluster that failed at its start waits for its starter, to say why."""


class Head:
    """One cluster, from its start to its end."""

    def __init__(
        self,
        config: ConfigureHead,
        *,
        opener: Opener | None = None,
        scheduler: StartScheduler = start_scheduler,
        run: StartChild = start_run,
        simulated: bool = False,
    ) -> None:
        """Take the cluster's name; raises HeadError when it is in use, HostsError, UsageError.

        Hosts are reached through `opener`, by default over SSH; `scheduler` and `run` start the
        scheduler and what a frontend asks to be run. A `simulated` cluster takes no name, opens no
        socket and makes no certificate: its frontends come through `server.accept`.
        """
        self.config = config
        self.simulated = simulated
        self.cluster_id = config.cluster_id
        self.started_at = time.time()
        self.adaptive: AdaptiveBounds | None = None
        hosts = parse_hosts(config.hosts_text, config.hosts_source or "hosts")
        self.local_only = all(host.is_local for host in hosts)
        self._hosts = hosts
        self.name = config.name
        self._name_lock: NameLock | None = None
        if not simulated:
            self._name_lock = NameLock(config.name, config.cluster_id, numbered=config.numbered)
            self.name = self._name_lock.name
        self.server = FrontendServer(runtime_folder() / f"{self.cluster_id}.sock", Frontends(self))
        self.event_log = EventLog(self._event_happened)
        self.questions = Questions(self.server.broadcast, self._someone_there)
        start_child = partial(run, self.name, self.cluster_id)
        self.runs = Runs(start_child, self.event_log, self.fleet_changed)
        self.fleet = Fleet(
            replace(_fleet_settings(config, self.name), frontends=self._frontend_pids),
            Desired(config.workers),
            self,
            opener,
        )
        self.logs = LogRelay(self.server.frontends, self.fleet.follow_logs)
        self.scheduler_runner = SchedulerRunner(
            config,
            self.cluster_id,
            local_only=self.local_only,
            listener=self,
            start=scheduler,
        )
        self.view = ClusterView(self, self.server)
        self.history = RecentHistory(
            lambda: self.fleet.host_statuses, lambda: self.fleet.cpu_workers
        )
        self._certificate: Certificate | None = None
        self._came_up = False
        self._met = asyncio.Event()
        """Set when a frontend has attached, or none will."""
        self._change = asyncio.Event()
        self._ending: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._tasks = Background(self._task_failed)

    async def run(self, opened: Callable[[str], None]) -> None:
        """Bring the cluster up, call `opened` with the server's socket, and stay until the end."""
        try:
            await self._start()
            opened(str(self.server.path))
            self._tasks.keep(partial(self._lasting, "snapshots", self.view.run), "snapshots")
            self._tasks.keep(partial(self._lasting, "history", self.history.run), "history")
            self._tasks.keep(partial(self._lasting, "alarms", AlarmWatch(self).run), "alarms")
            self._tasks.keep(self._watch_idleness, "the watch for idleness")
            stopped = await asyncio.shield(self._ending)
        except BaseException:
            self._met.set()
            await self._end(Stopped("the head failed", failed=True))
            raise
        await self._end(stopped)

    def stop(self, reason: str, failed: bool = False) -> None:
        """Begin to stop the cluster."""
        if not self._ending.done():
            severity = Severity.ERROR if failed else Severity.INFO
            self.tell(severity, "cluster", "failed" if failed else "stopping", reason)
            self._ending.set_result(Stopped(reason, failed))
            for frontend in self.server.frontends:
                frontend.send(Stopping(reason, failed))
            self.fleet_changed()

    @property
    def sessions(self) -> list[Session]:
        """The frontends that are attached, without runs that were started here."""
        frontends = self.server.frontends
        return [each.session for each in frontends if not self.runs.runs_one_of_ours(each)]

    def _frontend_pids(self) -> tuple[int, ...]:
        """Return the pids of the cluster's users on this machine; at first, that of its starter."""
        first = () if self._met.is_set() else (self.config.starter_pid,)
        return first + tuple(each.pid for each in self.server.frontends if each.pid)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; raises HeadError when the cluster ends before that."""
        while not condition():
            if self.end_reason:
                raise HeadError(self.end_reason)
            await self._change.wait()

    async def _lasting(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Keep work going: where it fails, record that once and begin again after a while."""
        recorded = ""
        while True:
            try:
                await work()
            except Exception as error:
                if recorded != words(error):
                    recorded = words(error)
                    logger.exception("%s failed", what)
                    text = f"{what}: {recorded}; tried again every {AGAIN_S:g} s"
                    self.tell(Severity.ERROR, "cluster", "failed", text)
            await asyncio.sleep(AGAIN_S)

    def _task_failed(self, what: str, error: Exception) -> None:
        """End the cluster: it cannot do without what failed."""
        self.stop(f"{what} failed: {words(error)}", failed=True)

    async def _start(self) -> None:
        """Start everything at once: what waits for something else waits there."""
        certificate = self._tasks.start(self._make_certificate(), "its certificate")
        await self.scheduler_runner.start()
        self.fleet.add_hosts(self._hosts)
        self._certificate = await certificate
        self.scheduler_runner.configure(self._certificate)
        self.fleet.give_credentials(
            Credentials(
                self._certificate.certificate_pem,
                self._certificate.key_pem,
                self.config.dask_config_json,
            )
        )
        if not self.simulated:
            await self.server.open()
        self._publish()

    async def _make_certificate(self) -> Certificate:
        if self.simulated:
            return Certificate("", "")
        return await asyncio.to_thread(make_certificate)

    async def _end(self, stopped: Stopped) -> None:
        """End agents, scheduler and runs at the same time, then tell the frontends.

        Where one of them cannot be ended the others are, and the name is free afterwards.
        """
        try:
            await self._tasks.close()
            self.view.show()
            await self._end_parts()
        finally:
            if stopped.failed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._met.wait(), MEETING_S)
            if self._name_lock is not None:
                self._name_lock.release()
            await self.server.close(stopped)

    async def _end_parts(self) -> None:
        """End agents, scheduler and runs; raises the first error once all of them came to an end.

        An agent that could not be reached ends by its lease.
        """
        left, scheduler, runs = await asyncio.gather(
            self.fleet.stop(),
            self.scheduler_runner.process.stop(),
            self.runs.stop(),
            return_exceptions=True,
        )
        for failure in (scheduler, runs, left):
            if isinstance(failure, BaseException):
                raise failure
        assert not isinstance(left, BaseException)
        if left:
            lease_s = self.config.lease_s
            text = f"could not be reached to stop them; they end by themselves within {lease_s:g} s"
            self.tell(Severity.WARNING, "cluster", "stopping", f"{', '.join(left)} {text}")

    async def _watch_idleness(self) -> None:
        """End a cluster that stays, once it has been idle for long enough."""
        limit_s = self.config.idle_timeout_s
        used_at = time.monotonic()
        while self.config.stays and limit_s is not None:
            if self.server.frontends or self.runs.under_way or self._has_clients():
                used_at = time.monotonic()
            if time.monotonic() - used_at > limit_s:
                self.stop(f"unused for {limit_s:g} s")
                return
            await asyncio.sleep(min(1.0, limit_s / 4))

    def _has_clients(self) -> bool:
        counts = self.scheduler_runner.process.counts
        return counts is not None and bool(counts.clients)

    def scheduler_listens(self, port: int, *, again: bool) -> None:
        """Send its address to hosts and frontends."""
        self.fleet.scheduler_listens(port)
        self._publish()
        for frontend in self.server.frontends:
            frontend.send(
                SchedulerReady(self.scheduler_runner.address, self.scheduler_runner.dashboard)
            )
        if again:
            self.fleet.restart(self.fleet.worker_table.staying)
        self.fleet_changed()

    def counts_taken(self, counts: Counts) -> None:
        """Pass the counts to the fleet, and adapt the number of workers if enabled."""
        self.fleet.worker_table.count(counts)
        if self.adaptive is not None:
            wanted = self.fleet.desired.workers
            now = len(self.fleet.worker_table.staying) if wanted is None else wanted
            then = self.adaptive.wanted(counts.adaptive_target, now)
            if then != now:
                self.fleet.set_desired(desired.scale(self.fleet.desired, then))

    def workers_retired(self, names: tuple[str, ...]) -> None:
        """Keep workers stopped that a Dask client retired, until they are requested again."""
        self.tell(Severity.INFO, "cluster", "scaled", f"a Dask client retired {', '.join(names)}")
        self.fleet.set_desired(desired.retire(self.fleet.desired, names))

    def scheduler_died(self) -> None:
        """Start another one."""
        self.fleet_changed()
        self._tasks.start(self.scheduler_runner.start(), "the start of another scheduler")

    def scheduler_failed(self, reason: str, *, closed: bool) -> None:
        """End the cluster."""
        if closed:
            self.stop("a Dask client shut the scheduler down")
        else:
            self.stop(reason, failed=True)

    @property
    def state(self) -> ClusterState:
        """The cluster as a whole."""
        if self._ending.done():
            failed = self._ending.result().failed
            return ClusterState.FAILED if failed else ClusterState.STOPPING
        return ClusterState.RUNNING if self._came_up else ClusterState.STARTING

    @property
    def end_reason(self) -> str:
        """Why it ends; "" while it does not."""
        return self._ending.result().reason if self._ending.done() else ""

    def fleet_changed(self) -> None:
        """Wake everything that waits for a change."""
        self._came_up = self._came_up or self.fleet.worker_table.up_count > 0
        self._change.set()
        self._change = asyncio.Event()
        self.view.changed()

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event."""
        self.event_log.tell(severity, subject, kind, text)

    def worker_restarted(self, name: str) -> None:
        """Count it for the runs under way."""
        self.tell(Severity.INFO, name, "restarted", "")
        self.runs.worker_restarted()

    def logs_printed(self, lines: LogLines) -> None:
        """Pass what workers printed on to those who follow."""
        self.logs.printed(lines)

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask the user at a screen."""
        return await self.questions.ask(host, question)

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Have the scheduler move the workers' results."""
        return await self.scheduler_runner.process.retire(names)

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        """Have the scheduler forget workers."""
        self.scheduler_runner.process.remove(names, reason)

    def attached(self) -> Attached:
        """Return a new frontend's first message: the cluster, its certificate, where it is."""
        self._met.set()
        assert self._certificate is not None
        return Attached(
            name=self.name,
            cluster_id=self.cluster_id,
            pid=os.getpid(),
            address=self.scheduler_runner.address,
            certificate_pem=self._certificate.certificate_pem,
            key_pem=self._certificate.key_pem,
            hosts_source=self.config.hosts_source,
            started_at=self.started_at,
            dask_config_json=self.config.dask_config_json,
            dashboard=self.scheduler_runner.dashboard,
            python=sys.executable,
            python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        )

    def _someone_there(self) -> bool:
        return self.config.interactive or any(
            frontend.kind == "screen" for frontend in self.server.frontends
        )

    def _event_happened(self, event: Event) -> None:
        self.server.broadcast(EventHappened(event))

    def _publish(self) -> None:
        """Write what others may know into the connection file."""
        if self._name_lock is None:
            return
        self._name_lock.publish(
            ConnectionFile(
                name=self.name,
                cluster_id=self.cluster_id,
                pid=os.getpid(),
                socket=str(self.server.path),
                started_at=self.started_at,
                version=__version__,
                hosts_source=self.config.hosts_source,
                address=self.scheduler_runner.address,
            )
        )


def _fleet_settings(config: ConfigureHead, name: str) -> FleetSettings:
    return FleetSettings(
        cluster_id=config.cluster_id,
        cluster=name,
        ping_interval_s=min(1.0, config.lease_s / 10),
        silence_s=min(5.0, config.lease_s / 2),
        cpu_fallback=config.cpu_fallback,
        environ=dask_settings.worker_environment(config.dask_config_json),
        temporary_directory=dask_settings.temporary_directory(config.dask_config_json),
        **config.keywords(),
    )
