"""The hosts of a cluster and their workers: desired against actual, and what turns one into the
other.

Hosts report, the scheduler counts, users request; each time `reconcile` compares and has agents
start workers, or has the scheduler retire some and their agents stop them. Called by the head
only; nothing here knows of frontends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from gputui.fleet.checks import chosen_devices
from gputui.fleet.deploy.start_agent import AgentOpener, Opener
from gputui.fleet.desired import Actual, Desired, decide, free_slots, keep
from gputui.fleet.free_gpus import FreeGpus
from gputui.fleet.host import ON_THE_WAY, FleetHost
from gputui.fleet.programs import Programs
from gputui.fleet.reachability import Ways
from gputui.fleet.stages import FleetSettings, Question
from gputui.fleet.worker_table import GRACE_S, Retire, Tell, WorkerTable
from gputui.model.examination import ExaminedHost
from gputui.model.hosts import Host
from gputui.model.plan import Changes, WorkerSpec
from gputui.model.snapshot import (
    AWAY,
    RETRIED,
    HostState,
    HostStatus,
    Severity,
    WorkerState,
    WorkerStatus,
)
from gputui.process.background import Background, words
from gputui.protocol.agent import (
    Facts,
    FromAgent,
    KnowFrontends,
    Telemetry,
    Trouble,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.programs import BytesTaken, ProgramExited, ProgramOutput, ProgramStarted
from gputui.protocol.shared import Credentials, FollowLogs, LogLines

START_WATCH_S = 1.0
REST = 4
"""A comparison of thousands of workers takes some 50 ms: the next one waits four times as long."""
SEVERITIES = {
    HostState.READY: Severity.INFO,
    HostState.SILENT: Severity.WARNING,
    HostState.RECONNECTING: Severity.WARNING,
    HostState.FAILED: Severity.ERROR,
}
"""The states of a host that are worth an event."""


class Fleet:
    """All hosts of one cluster, in the order of their lines, and all their workers."""

    def __init__(
        self,
        settings: FleetSettings,
        wanted: Desired,
        opener: Opener | None = None,
        *,
        retire: Retire,
        remove: Callable[[tuple[str, ...], str], None],
        tell: Tell,
        changed: Callable[[], None],
        need_scheduler: Callable[[], None],
        restarted: Callable[[], None],
        printed: Callable[[LogLines], None],
        ask: Callable[[str, Question], Awaitable[str | None]],
    ) -> None:
        """Reach hosts through `opener`, by default over SSH.

        `retire` and `remove` have the scheduler move what workers hold, and forget workers at
        once; `tell` records an event; `changed` is called when a state changed, `need_scheduler`
        when the first worker is desired, `restarted` when a worker that had ended was started
        again, `printed` with what workers print, and `ask` with a question for a user about a host.
        """
        self.desired = wanted
        self._hosts: dict[str, FleetHost] = {}
        self.worker_table = WorkerTable(
            self._hosts,
            lambda host: self._ways.listen_host(host),
            retire=retire,
            remove=remove,
            tell=tell,
            changed=changed,
            restarted=restarted,
        )
        self.programs = Programs(self._hosts, settings)
        self._settings = settings
        self._opener = opener or AgentOpener(settings)
        self._tell, self._changed, self._printed, self._ask = tell, changed, printed, ask
        self._owners: dict[str, str] = {}
        """GPU → the host that it is chosen on."""
        self._scheduler_port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The next scheduler listens on the same port."""
        self.scheduler_wanted = asyncio.Event()
        """Set when a scheduler is started; before that, hosts are only watched."""
        self._need_scheduler = need_scheduler
        self.free_gpus = FreeGpus(
            self._hosts, settings, self.scheduler_wanted, self._reconcile_soon
        )
        self._leaving: set[str] = set()
        self._credentials: Credentials | None = None
        self._ways = Ways(self._hosts, settings.scheduler_host or "")
        self._reconciling = False
        self._reconciled_in_s = 0.0
        self._starts_due = True
        """Whether something is to be started that could not be yet."""
        self._stopping = False
        self._logs_followed = False
        self._tasks = Background(
            lambda what, error: tell(Severity.ERROR, "cluster", "failed", f"{what}: {words(error)}")
        )
        self._tasks.every(START_WATCH_S, self._watch_starts, "the watch for late workers")
        self._tasks.keep(self.free_gpus.run, "the claims on free GPUs")

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts, in the order of their lines."""
        return tuple(fleet_host.host for fleet_host in self._hosts.values())

    @property
    def host_statuses(self) -> tuple[HostStatus, ...]:
        """Every host as it is now, each GPU on one of them.

        Containers of one machine may share its GPUs out: a GPU is left to the host that it is
        chosen on, else to the first line that reports it.
        """
        seen: set[str] = set()
        found = []
        for status in [each.status for each in self._hosts.values()]:
            own = tuple(
                device
                for device in status.devices
                if self._owners.get(device.uuid, status.name) == status.name
                and device.uuid not in seen
            )
            seen |= {device.uuid for device in own}
            found.append(
                status if len(own) == len(status.devices) else replace(status, devices=own)
            )
        return tuple(found)

    @property
    def worker_statuses(self) -> tuple[WorkerStatus, ...]:
        """Every worker as it is now: silent with its host where that does not answer."""
        now = time.time()
        away = {
            each.name: now - (each.status.read_at or now)
            for each in self._hosts.values()
            if each.state in AWAY
        }
        return tuple(
            replace(
                worker,
                state=WorkerState.SILENT,
                silent_for_s=max(worker.silent_for_s, away[worker.host]),
            )
            if worker.host in away and worker.state.up
            else worker
            for worker in self.worker_table.statuses(self._readings())
        )

    @property
    def cpu_workers(self) -> tuple[WorkerStatus, ...]:
        """Every worker without a GPU as it is now."""
        return self.worker_table.statuses(self._readings(), cpus_only=True)

    def _readings(self) -> dict[str, WorkerReading]:
        """Return the last reading of each worker."""
        return {
            reading.name: reading
            for fleet_host in self._hosts.values()
            if fleet_host.telemetry is not None
            for reading in fleet_host.telemetry.workers
        }

    @property
    def settled(self) -> bool:
        """Whether every host and every worker has come to an end of its start."""
        table, taking = self.worker_table, self.free_gpus.under_way
        busy = table.coming or table.leaving or self._reconciling or taking
        on_the_way = any(each.state in ON_THE_WAY for each in self._hosts.values())
        return not (busy or on_the_way or self._starts_due)

    def preview(self, desired: Desired, hosts: tuple[Host, ...] | None = None) -> Changes:
        """Return the workers that would start and stop, with these hosts or the present ones."""
        return decide(self._actual(hosts), desired)

    def slots(self) -> tuple[WorkerSpec, ...]:
        """Return every worker that could run now."""
        return free_slots(self._actual())

    def set_desired(self, desired: Desired) -> Changes:
        """Set the desired workers, and begin to start and stop them."""
        self.desired = desired
        return self.reconcile()

    def add_hosts(self, hosts: Iterable[Host]) -> None:
        """Begin to reach these, and start workers on them once they are ready."""
        for host in hosts:
            self._disown(host.name)
            self._hosts[host.name] = FleetHost(
                host,
                self._settings,
                self._opener,
                self._owners,
                self._scheduler_port,
                self.scheduler_wanted,
                changed=self._host_changed,
                received=self._received,
                find_ways=self._ways.find,
                ask=self._ask,
            )
            self.free_gpus.look(self._hosts[host.name])

    def remove_hosts(self, names: Iterable[str]) -> None:
        """Retire these hosts' workers, then remove the hosts."""
        for name in names:
            if name not in self._leaving:
                self._leaving.add(name)
                self._tasks.start(self._remove_host(name), f"removing {name}")

    def retry(self, names: Iterable[str]) -> tuple[str, ...]:
        """Try hosts again that failed or are not reached; returns which."""
        hosts = [self._hosts[name] for name in names]
        tried = [each for each in hosts if each.state in RETRIED]
        for fleet_host in tried:
            fleet_host.retry()
        return tuple(fleet_host.name for fleet_host in tried)

    async def examine(self, bound_s: float) -> tuple[ExaminedHost, ...]:
        """Have all agents examine their workers; those that do not answer in time are left out."""
        found = await asyncio.gather(*(each.examine(bound_s) for each in self._hosts.values()))
        return tuple(filter(None, found))

    def follow_logs(self, on: bool) -> None:
        """Have the agents begin or stop to send what workers print."""
        self._logs_followed = on
        for fleet_host in self._hosts.values():
            fleet_host.send(FollowLogs(on))

    def frontends_changed(self) -> None:
        """Have this machine's agent know whose processes are the cluster's own."""
        for fleet_host in self._hosts.values():
            if fleet_host.host.is_local:
                fleet_host.send(KnowFrontends(self._settings.frontends()))

    def give_credentials(self, credentials: Credentials) -> None:
        """Give agents of hosts that are ready what their workers join with; others get it then."""
        self._credentials = credentials
        for fleet_host in self._hosts.values():
            if fleet_host.was_ready:
                fleet_host.send(credentials)

    def scheduler_listens(self, port: int) -> None:
        """Give every present and future host the scheduler's port.

        Workers start again where a scheduler listens there that knows none of them; those that
        are starting wait for it.
        """
        self.scheduler_wanted.set()
        if self._scheduler_port.done():
            self.worker_table.restart(self.worker_table.staying.keys() - self.worker_table.starting)
        else:
            self._scheduler_port.set_result(port)

    async def stop(self, grace_s: float = GRACE_S) -> tuple[str, ...]:
        """Stop every worker and agent; returns the hosts where something may be left a while."""
        self._stopping = True
        await self._tasks.close()
        hosts = tuple(self._hosts.values())
        ended = await asyncio.gather(*(each.stop(grace_s) for each in hosts))
        await self._opener.close()
        return tuple(each.name for each, gone in zip(hosts, ended, strict=True) if not gone)

    def _host_changed(self, host: FleetHost, another_state: bool) -> None:
        """Handle another state: a host that is ready gets workers, a lost one loses them."""
        if self._hosts.get(host.name) is not host:
            return
        if self.free_gpus.look(host):
            self._lose(host, "its agent has ended, and with it its claims on GPUs")
        if another_state:
            if severity := SEVERITIES.get(host.state):
                text = host.status.reason or "; ".join(host.status.warnings) or host.far_address
                self._tell(severity, host.name, host.state, text)
            if host.state is HostState.READY:
                if self._credentials is not None:
                    host.send(self._credentials)
                self.worker_table.catch_up(host)
                host.send(FollowLogs(self._logs_followed))
                self.programs.back(host.name)
        if host.state is HostState.FAILED:
            self._disown(host.name)
        if host.lease_over or host.state is HostState.FAILED:
            self.programs.lose(host.name, host.status.reason)
        if host.lease_over:
            self._lose(host, "its host has not been reached for longer than the lease")
        self.programs.host_changed.set()
        self._reconcile_soon()

    def _received(self, host: FleetHost, message: FromAgent) -> None:
        """Handle a message of an agent."""
        match message:
            case Telemetry():
                self.worker_table.stop_unknown([each.name for each in message.workers])
                return
            case LogLines():
                self._printed(message)
                return
            case ProgramStarted() | ProgramOutput() | BytesTaken() | ProgramExited():
                self.programs.heard(host.name, message)
                return
            case Facts():
                self.worker_table.met(host, message)
                self._disown(host.name)
                devices = chosen_devices(host.host, message.devices)
                self._owners |= {device.uuid: host.name for device in devices}
            case Trouble(text):
                self._tell(Severity.WARNING, host.name, "trouble", text)
                host.warn(text)
            case WorkerStarted():
                self.worker_table.started(message)
            case WorkerReady():
                self.worker_table.ready(message)
            case WorkerExited():
                self.worker_table.exited(message)
                self._reconcile_soon()
        self._changed()

    def reconcile(self) -> Changes:
        """Start desired workers that do not run; stop running ones that are not desired."""
        self._reconciling = False
        if self._stopping:
            return Changes((), ())
        began = time.monotonic()
        changes = decide(self._actual(), self.desired)
        if changes.starts and not self.scheduler_wanted.is_set():
            self._need_scheduler()
        elif changes.starts:
            self.worker_table.start(changes.starts)
        self._starts_due = any(spec.name not in self.worker_table for spec in changes.starts)
        if changes.stops:
            retiring = self.worker_table.retire(changes.stops)
            self._tasks.start(self._retired(retiring), "retiring workers")
        self._reconciled_in_s = time.monotonic() - began
        self._changed()
        return changes

    def _reconcile_soon(self) -> None:
        """Show what changed, and reconcile once for all events of a moment.

        That takes a fifth of the time at most.
        """
        if not self._reconciling:
            self._reconciling = True
            asyncio.get_running_loop().call_later(REST * self._reconciled_in_s, self.reconcile)
        self._changed()

    def _actual(self, hosts: tuple[Host, ...] | None = None) -> Actual:
        """Return the actual hosts and workers; a lost host counts until its lease is over."""
        hosts = self.hosts if hosts is None else hosts
        names = {host.name for host in hosts} - self._leaving
        capacities = {
            name: capacity
            for name, each in self._hosts.items()
            if name in names and not each.lease_over
            if (capacity := self.free_gpus.capacity(each)) is not None
            if each.state not in (*ON_THE_WAY, HostState.FAILED)
        }
        table = self.worker_table
        return Actual(hosts, capacities, table.staying, table.ranked, table.leaving)

    async def _retired(self, retiring: Awaitable[tuple[str, ...]]) -> None:
        kept = await retiring  # what is desired may change meanwhile
        self.desired = keep(self.desired, kept)
        self._reconcile_soon()

    async def _remove_host(self, name: str) -> None:
        there = self.worker_table.of_host(name)
        stayed = await self.worker_table.retire(there)
        fleet_host = self._hosts.pop(name)
        self._disown(name)
        self.free_gpus.look(fleet_host)
        self._leaving.discard(name)
        self.worker_table.forget(set(there) - set(stayed))
        self.worker_table.lose(stayed, f"{name} was removed")
        await fleet_host.stop(GRACE_S)
        self.programs.lose(name, "it was removed")
        lost = f"; lost with it: what {', '.join(stayed)} held" if stayed else ""
        self._tell(Severity.INFO, name, "removed", f"no longer of this cluster{lost}")
        self._reconcile_soon()

    def _lose(self, host: FleetHost, why: str) -> None:
        self.worker_table.lose(self.worker_table.of_host(host.name), why)

    def _disown(self, name: str) -> None:
        for uuid in [uuid for uuid, owner in self._owners.items() if owner == name]:
            del self._owners[uuid]

    def _watch_starts(self) -> None:
        """Look whether a worker takes too long to register."""
        if self.worker_table.coming:
            self.worker_table.give_up_late(self._settings.start_timeout_s)
            self._changed()
