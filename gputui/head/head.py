"""One cluster as its head holds it: fleet, scheduler, runs, events and frontends together.

`run` brings it up, keeps it until it is to end, and leaves nothing. It learns of changes as the
listener of its parts, and never waits for any of them: a busy scheduler, a dead host or a slow
frontend delays nothing else. What frontends ask for is carried out in `requests`.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gputui.agent.packages import installed
from gputui.engine import dask_settings
from gputui.errors import HeadError
from gputui.fleet import desired
from gputui.fleet.addresses import LOOPBACK
from gputui.fleet.deploy.start_agent import Opener
from gputui.fleet.desired import Desired
from gputui.fleet.fleet import Fleet
from gputui.fleet.stages import FleetSettings
from gputui.folders import runtime_folder
from gputui.groups import members
from gputui.head.broadcasts import EventLog, LogRelay, Questions
from gputui.head.cluster_view import AlarmWatch, ClusterView, RecentHistory
from gputui.head.metrics import MetricsServer, exposition
from gputui.head.notices import Notices
from gputui.head.runs import Runs, StartChild, start_run
from gputui.head.scheduler_process import (
    SchedulerProcess,
    StartScheduler,
    make_certificate,
    start_scheduler,
)
from gputui.head.server import FrontendConnection, FrontendServer
from gputui.model.hosts import parse_hosts
from gputui.model.snapshot import ClusterState, Session, Severity, Snapshot, TaskSpan
from gputui.process.background import RETRY_S, Background, within, words
from gputui.protocol.connection_file import ConnectionFile, NameLock, digest_of
from gputui.protocol.frontend import (
    Attached,
    EventHappened,
    SchedulerReady,
    SnapshotTaken,
    Stopped,
    Stopping,
)
from gputui.protocol.programs import is_program
from gputui.protocol.scheduler import (
    ClosedWhenIdle,
    Counts,
    Remove,
    RetiredByClient,
    SchedulerStarted,
)
from gputui.protocol.shared import Credentials
from gputui.protocol.starter import SCREEN_IDLE_S, ConfigureHead
from gputui.version import __version__

logger = logging.getLogger(__name__)

OF_ONE_VERSION = ("dask", "distributed")
"""What clients, scheduler and workers must have in the same version."""
WATCHING_S = 10.0
"""How long a cluster without workers outlives its last screen, which may come back meanwhile."""
DETACHED_S = 60.0
"""How long it outlives the program that it was started for."""
MEETING_S = 5.0
"""How long a cluster that failed at its start waits for its starter, to say why."""


class Head:
    """One cluster, from its start to its end: its parts, and what happens to them."""

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
        self.started_at = time.time()
        self.kept = False
        """Whether it outlives its last screen also without workers."""
        self._hosts = parse_hosts(config.hosts_text, config.hosts_source or "hosts", members)
        self.local_only = all(host.is_local for host in self._hosts)
        self.any_local = any(host.is_local for host in self._hosts)
        self._name_lock = (
            None
            if simulated
            else NameLock(config.name, config.cluster_id, numbered=config.numbered)
        )
        self.name = self._name_lock.name if self._name_lock else config.name
        self.server = FrontendServer(
            runtime_folder() / f"{config.cluster_id}.sock",
            attached=self.attached,
            settled=self._settled,
            left=self._left,
        )
        self.event_log = EventLog(self._happened)
        self.tell = self.event_log.tell
        self.notices = Notices(
            config.notify or "", self.name, lambda id: self.runs.by_id.get(id), self.tell
        )
        self.questions = Questions(self.server.broadcast, self._someone_there)
        self.runs = Runs(
            partial(run, self.name, config.cluster_id), self.event_log, self.fleet_changed
        )
        self.scheduler = SchedulerProcess(
            config,
            host=LOOPBACK if self.local_only else "",
            start=scheduler,
            tell=self.tell,
            took=self.scheduler_took,
            ended=self.scheduler_ended,
        )
        self.logs = LogRelay(lambda on: self.fleet.follow_logs(on))
        self.fleet = Fleet(
            replace(_fleet_settings(config, self.name), frontends=self._frontend_pids),
            Desired(config.workers),
            opener,
            retire=self.scheduler.retire,
            remove=lambda names, reason: self.scheduler.send(Remove(names, reason)),
            tell=self.tell,
            changed=self.fleet_changed,
            need_scheduler=self.need_scheduler,
            restarted=self.runs.worker_restarted,
            printed=self.logs.printed,
            ask=self.questions.ask,
        )
        self._credentials = Credentials("", "", config.dask_config_json)
        """Without a certificate as long as no scheduler was needed."""
        self._work = Background(
            lambda what, error: self.stop(f"{what} failed: {words(error)}", failed=True)
        )
        """Ends the cluster where it fails: it cannot do without."""
        self._came_up = False
        self._met = asyncio.Event()
        """Set when a frontend has attached, or none will."""
        self._change = asyncio.Event()
        self._ending: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._spans: tuple[TaskSpan, ...] = ()
        """The sampled tasks that no snapshot has yet."""
        self.view = ClusterView(self.snapshot, self.server, AlarmWatch(self.tell))
        self.metrics = MetricsServer(self.metrics_text)
        self.history = RecentHistory(
            lambda: self.fleet.host_statuses, lambda: self.fleet.cpu_workers
        )
        self._sending = Background(self.event_log.failed)
        self._recorded: set[str] = set()
        """What failed, and is begun again."""

    def _happened(self, message: EventHappened) -> None:
        """Pass an event on."""
        self.server.broadcast(message)
        self.notices.happened(message.event)

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

    def scheduler_took(
        self, message: SchedulerStarted | Counts | RetiredByClient | ClosedWhenIdle
    ) -> None:
        """Handle what the scheduler reports."""
        match message:
            case SchedulerStarted(port=port):
                self.fleet.scheduler_listens(port)
                self._publish()
                ready = SchedulerReady(self.scheduler.address, self.scheduler.dashboard)
                for frontend in self.server.frontends:
                    frontend.send(ready)
                self.fleet_changed()
            case Counts():
                self.fleet.worker_table.count(message)
                self._spans = message.spans
            case RetiredByClient(names):
                text = f"a Dask client retired {', '.join(names)}"
                self.tell(Severity.INFO, "cluster", "scaled", text)
                self.fleet.set_desired(desired.retire(self.fleet.desired, names))
            case ClosedWhenIdle():
                self.stop("it was idle for longer than Dask's distributed.scheduler.idle-timeout")

    def scheduler_ended(self, reason: str, closed: bool) -> None:
        """End the cluster: there will be no other scheduler."""
        self.stop("a Dask client shut it down" if closed else reason, failed=not closed)

    @property
    def state(self) -> ClusterState:
        """The cluster as a whole."""
        if self._ending.done():
            failed = self._ending.result().failed
            return ClusterState.FAILED if failed else ClusterState.STOPPING
        if not self.fleet.scheduler_wanted.is_set():
            return ClusterState.WATCHING
        return ClusterState.RUNNING if self._came_up else ClusterState.STARTING

    @property
    def end_reason(self) -> str:
        """Why it ends; "" while it does not."""
        return self._ending.result().reason if self._ending.done() else ""

    def fleet_changed(self) -> None:
        """Wake everything that waits for a change."""
        self._came_up = self._came_up or bool(self.fleet.worker_table.up)
        self._change.set()
        self._change = asyncio.Event()
        self.view.changed.set()

    def need_scheduler(self) -> None:
        """Have a scheduler from now on, for the first worker or the first Dask client."""
        if not self.fleet.scheduler_wanted.is_set():
            self.fleet.scheduler_wanted.set()
            self._work.start(self.scheduler.start(), "the start of the scheduler")
            self.trust(make_certificate(self.config.dask_config_json))
            self.fleet_changed()

    def trust(self, credentials: Credentials) -> None:
        """Give all parts the certificate that Dask's connections are made with."""
        self._credentials = credentials
        self.scheduler.configure(credentials)
        self.fleet.give_credentials(credentials)

    def attached(self, frontend: FrontendConnection) -> Attached:
        """Return a new frontend's first message: the cluster, its certificate, where it is."""
        self._met.set()
        packages: tuple[tuple[str, str], ...] = ()
        if frontend.session.frontend in ("run", "python"):
            self.need_scheduler()
            packages = installed(names=OF_ONE_VERSION)
        return Attached(
            name=self.name,
            cluster_id=self.config.cluster_id,
            pid=os.getpid(),
            address=self.scheduler.address,
            credentials=self._credentials,
            hosts_source=self.config.hosts_source,
            started_at=self.started_at,
            dashboard=self.scheduler.dashboard,
            metrics=self.metrics.url,
            python=sys.executable,
            python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
            packages=packages,
        )

    def _someone_there(self) -> bool:
        return self.config.interactive or any(
            frontend.session.frontend == "screen" for frontend in self.server.frontends
        )

    def _publish(self) -> None:
        """Write what others may know into the connection file."""
        if self._name_lock is None:
            return
        self._name_lock.publish(
            ConnectionFile(
                name=self.name,
                cluster_id=self.config.cluster_id,
                pid=os.getpid(),
                socket=str(self.server.path),
                started_at=self.started_at,
                version=__version__,
                hosts_digest=digest_of(self.config.hosts_text),
                hosts_source=self.config.hosts_source,
                address=self.scheduler.address,
            )
        )

    def snapshot(self, sequence: int) -> Snapshot:
        """Return the cluster at this moment; each sampled task is in one snapshot."""
        counts = self.scheduler.counts
        spans, self._spans = self._spans, ()
        return Snapshot(
            sequence=sequence,
            taken_at=time.time(),
            name=self.name,
            state=self.state,
            started_at=self.started_at,
            scheduler=self.scheduler.status,
            hosts=self.fleet.host_statuses,
            workers=self.fleet.worker_statuses,
            groups=counts.groups if counts else (),
            prefixes=counts.prefixes if counts else (),
            runs=tuple(self.runs.by_id.values()),
            spans=spans,
            wanted_workers=self.fleet.desired.workers,
            sessions=tuple(sorted(self.sessions, key=lambda each: each.attached_at)),
            reason=self.end_reason,
            lacking=self.fleet.free_gpus.lacking,
            simulated=self.simulated,
            ends_with_screens=self.ends_with_screens,
        )

    @property
    def ends_with_screens(self) -> bool:
        """Whether it only watches for screens; one that somebody keeps goes on without."""
        return self.config.interactive and not self.kept and self.state is ClusterState.WATCHING

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
            for asked, _ in self.questions.open.values():
                frontend.send(asked)
            frontend.send(SnapshotTaken(self.view.take()))
            self.view.changed.set()
            self._sending.start(self.history.send_to(frontend), "sending the history")

    def _left(self, frontend: FrontendConnection) -> None:
        """Forget the frontend's subscriptions."""
        self.runs.frontend_left(frontend)
        self.logs.subscribe(frontend, False)
        self.fleet.programs.left(frontend.send)
        self.fleet.frontends_changed()

    def metrics_text(self) -> str:
        """Return the newest snapshot as text."""
        snapshot = self.view.newest or self.view.take()
        runs = self.fleet.programs.gpus
        on_dask = [r for r in snapshot.runs if not (r.state.ended or is_program(r.preset))]
        if len(on_dask) == 1:  # of several, nobody knows which task is whose
            runs |= {w.device_uuid: on_dask[0].id for w in snapshot.workers if w.device_uuid}
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
            *others, left = await asyncio.gather(
                self.scheduler.stop(),
                self.runs.stop(),
                self.notices.close(),
                self.fleet.stop(),
                return_exceptions=True,
            )
            for failure in (*others, left):
                if isinstance(failure, BaseException):
                    raise failure
            if left and isinstance(left, tuple):
                text = "could not be reached to stop them; they end by themselves within"
                text = f"{', '.join(left)} {text} {self.config.lease_s:g} s"
                self.tell(Severity.WARNING, "cluster", "stopping", text)
        finally:
            if stopped.failed:
                await within(MEETING_S, self._met.wait())
            if self._name_lock is not None:
                self._name_lock.release()
            await self.server.close(stopped)

    async def _watch_idleness(self) -> None:
        """End a cluster that stays, once it has been idle for long enough."""
        used_at = time.monotonic()
        while self.config.stays and (limit_s := self.idle_limit_s) is not None:
            counts = self.scheduler.counts
            if self.server.frontends or self.runs.under_way or (counts and counts.clients):
                used_at = time.monotonic()
            if time.monotonic() - used_at > limit_s:
                self.stop(f"unused for {limit_s:g} s")
                return
            await asyncio.sleep(min(1.0, limit_s / 4))

    @property
    def idle_limit_s(self) -> float | None:
        """How long it may be idle; one without workers ends soon after its screen or program."""
        if self.config.watch and self.config.idle_timeout_s is None:
            return DETACHED_S if self.state is ClusterState.WATCHING else SCREEN_IDLE_S
        return WATCHING_S if self.ends_with_screens else self.config.idle_timeout_s


def _fleet_settings(config: ConfigureHead, name: str) -> FleetSettings:
    return FleetSettings(
        cluster_id=config.cluster_id,
        cluster=name,
        wanted=config.wanted,
        promised_until=config.promised_s and time.time() + config.promised_s,
        ping_interval_s=min(1.0, config.lease_s / 10),
        silence_s=min(5.0, config.lease_s / 2),
        cpu_fallback=config.cpu_fallback,
        environ=dask_settings.worker_environment(config.dask_config_json),
        temporary_directory=dask_settings.temporary_directory(config.dask_config_json),
        **config.keywords(),
    )
