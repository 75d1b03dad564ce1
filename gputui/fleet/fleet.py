"""The hosts of a cluster and their workers: wanted against running, and what turns one into the
other.

Hosts tell of themselves, the scheduler counts, people ask; each time `reconcile` compares and
has agents start workers, or has the scheduler retire some and their agents stop them. Called by
the head only; nothing here knows of faces.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from gputui.fleet import capacity, demand
from gputui.fleet.addresses import Listening, Way
from gputui.fleet.demand import Demand, Fleetwide
from gputui.fleet.host import ManagedHost
from gputui.fleet.listener import FleetListener
from gputui.fleet.opening import Shared
from gputui.fleet.roster import Roster
from gputui.fleet.settings import FleetSettings
from gputui.fleet.stages import Question
from gputui.fleet.workforce import GRACE_S, Workforce
from gputui.hosts import Host
from gputui.plan import Changes, HostCapacity, WorkerSpec
from gputui.protocol.agent import (
    Credentials,
    Facts,
    FollowLogs,
    FromAgent,
    Telemetry,
    Trouble,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.scheduler import Counts
from gputui.protocol.shared import LogLines
from gputui.snapshot import HostState, HostStatus, Severity, WorkerStatus

ON_THE_WAY = (
    HostState.RESOLVING,
    HostState.CONNECTING,
    HostState.AUTHENTICATING,
    HostState.PROBING,
    HostState.REACHING,
)


class Fleet:
    """All hosts of one cluster."""

    def __init__(self, settings: FleetSettings, wanted: Demand, listener: FleetListener) -> None:
        self.demand = wanted
        self.roster = Roster()
        self._settings = settings
        self._shared = Shared(settings)
        self._listener = listener
        self._hosts: dict[str, ManagedHost] = {}
        self._refused: dict[str, HostStatus] = {}
        """Second lines for one machine."""
        self._leaving: set[str] = set()
        self._credentials: Credentials | None = None
        self._scheduler_port: int | None = None
        self._logs_followed = False
        self._workforce = Workforce(self._hosts, self.roster, listener)
        self._listening = Listening(settings.scheduler_host or "", self._reconcile_soon)
        self._reconciling = False
        self._stopping = False
        self._last_states: dict[str, HostState] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts, in the order of their lines."""
        return tuple(managed.host for managed in self._hosts.values())

    @property
    def host_statuses(self) -> tuple[HostStatus, ...]:
        """Every host as it is now."""
        return tuple(
            self._refused.get(name) or managed.status for name, managed in self._hosts.items()
        )

    @property
    def worker_statuses(self) -> tuple[WorkerStatus, ...]:
        """Every worker as it is now."""
        readings: dict[str, WorkerReading] = {}
        for managed in self._hosts.values():
            if managed.telemetry is not None:
                readings |= {reading.name: reading for reading in managed.telemetry.workers}
        return self.roster.statuses(readings)

    @property
    def settled(self) -> bool:
        """Whether every host and every worker has come to an end of its start."""
        states = [status.state for status in self.host_statuses]
        if self.roster.coming or any(state in ON_THE_WAY for state in states):
            return False
        return not self.preview(self.demand).starts

    def preview(self, wanted: Demand, hosts: tuple[Host, ...] | None = None) -> Changes:
        """Return what a demand would start and stop now, with these hosts or those there are."""
        return demand.decide(self._fleetwide(hosts), wanted)

    def slots(self) -> tuple[WorkerSpec, ...]:
        """Return every worker that could run now."""
        return demand.slots(self._fleetwide(), demand.Demand())

    def want(self, wanted: Demand) -> Changes:
        """Want another number of workers, and begin to bring it about."""
        self.demand = wanted
        return self.reconcile()

    def add_hosts(self, hosts: Iterable[Host]) -> None:
        """Begin to reach these, and start workers on them once they are ready."""
        for host in hosts:
            managed = ManagedHost(host, self._settings, self._shared, self)
            self._hosts[host.name] = managed
            if self._scheduler_port is not None:
                managed.scheduler_listens(self._scheduler_port)
            managed.start()

    def remove_hosts(self, names: Iterable[str]) -> None:
        """Retire the workers of these, then let the hosts go."""
        for name in names:
            self._spawn(self._remove_host(name))

    def restart(self, names: Iterable[str]) -> None:
        """End workers and start them anew."""
        self._workforce.restart(names)

    def retry(self, names: Iterable[str]) -> tuple[str, ...]:
        """Try hosts again that are refused or not reached; returns which."""
        tried = []
        for name in names:
            managed = self._hosts[name]
            if name in self._refused:
                del self._refused[name]
                self.add_hosts([managed.host])
            elif managed.state in (HostState.REFUSED, HostState.RECONNECTING):
                managed.retry()
            else:
                continue
            tried.append(name)
        return tuple(tried)

    def follow_logs(self, on: bool) -> None:
        """Have the agents send what workers print, or not any more."""
        if on or self._logs_followed:
            self._logs_followed = on
            for managed in self._hosts.values():
                managed.send(FollowLogs(on))

    def give_credentials(self, credentials: Credentials) -> None:
        """Give agents what their workers join with; those met already get it now."""
        self._credentials = credentials
        for managed in self._hosts.values():
            if managed.facts is not None:
                managed.send(credentials)

    def scheduler_listens(self, port: int) -> None:
        """Tell every host where the scheduler is."""
        self._scheduler_port = port
        for managed in self._hosts.values():
            managed.scheduler_listens(port)

    def count(self, counts: Counts) -> None:
        """Take the scheduler's counts."""
        self.roster.count(counts)

    async def stop(self, grace_s: float = GRACE_S) -> tuple[str, ...]:
        """Stop every worker and agent; returns the hosts where something may be left a while."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        names = list(self._hosts)
        ended = await asyncio.gather(*(self._hosts[name].stop(grace_s) for name in names))
        await self._shared.close()
        left = {name for name, gone in zip(names, ended, strict=True) if not gone}
        return tuple(left - self._refused.keys())

    def host_changed(self, host: ManagedHost) -> None:
        """Take note of another state: a host that is ready gets workers, a lost one loses them."""
        if self._hosts.get(host.name) is not host or host.name in self._refused:
            return
        if self._last_states.get(host.name) is not host.state:
            self._last_states[host.name] = host.state
            self._tell_state(host)
            if host.state is HostState.READY:
                self._workforce.catch_up(host, self._addresses().get(host.name, ""))
                if self._logs_followed:
                    host.send(FollowLogs(True))
        if host.lease_over and (lost := self.roster.of_host(host.name)):
            self._workforce.lose(lost, "its host has not been reached for longer than the lease")
        self._reconcile_soon()
        self._listener.fleet_changed()

    def message_received(self, host: ManagedHost, message: FromAgent) -> None:
        """Take what an agent tells."""
        match message:
            case Telemetry():
                return
            case LogLines():
                self._listener.logs_printed(message)
                return
            case Facts():
                if self._credentials is not None:
                    host.send(self._credentials)
                self._workforce.meet(host, message)
                self._refuse_same_machines()
            case Trouble(text):
                self._listener.tell(Severity.WARNING, host.name, "trouble", text)
            case WorkerStarted():
                self._workforce.started(message)
            case WorkerReady():
                self._workforce.ready(message)
            case WorkerExited():
                self._workforce.exited(message)
                self._reconcile_soon()
        self._listener.fleet_changed()

    async def ask(self, host: ManagedHost, question: Question) -> str | None:
        """Ask a person."""
        return await self._listener.ask(host.name, question)

    def reconcile(self) -> Changes:
        """Have started what is wanted and does not run, and stopped what runs and is not."""
        changes = self.preview(self.demand)
        if changes.starts:
            self._workforce.start(changes.starts, self._addresses())
        if changes.stops:
            self.roster.retiring(changes.stops)
            self._spawn(self._retire(changes.stops))
        return changes

    def _reconcile_soon(self) -> None:
        """Compare once for all that happens at once."""
        if not self._reconciling:
            self._reconciling = True
            asyncio.get_running_loop().call_soon(self._reconcile_now)

    def _reconcile_now(self) -> None:
        self._reconciling = False
        if not self._stopping:
            self.reconcile()

    def _fleetwide(self, hosts: tuple[Host, ...] | None = None) -> Fleetwide:
        hosts = self.hosts if hosts is None else hosts
        return Fleetwide(
            hosts=hosts,
            capacities=self._capacities({host.name for host in hosts}),
            running=self.roster.staying,
            ranked=self.roster.ranked,
            leaving=self.roster.leaving,
        )

    def _capacities(self, names: set[str]) -> dict[str, HostCapacity]:
        """Return what those hosts give that are ready, or lost for less than their lease."""
        found = {}
        for name in (names & self._hosts.keys()) - self._refused.keys() - self._leaving:
            managed = self._hosts[name]
            usable = managed.state not in (*ON_THE_WAY, HostState.REFUSED)
            if usable and not managed.lease_over and managed.facts is not None:
                found[name] = capacity.capacity(managed.host, managed.facts, self._settings)
        return found

    def _addresses(self) -> dict[str, str]:
        """Return host → where its workers listen, of those that can start any now."""
        return self._listening.addresses(
            Way(
                name,
                managed.local_address,
                managed.far_address,
                given_up=managed.state is HostState.REFUSED or name in self._refused,
            )
            for name, managed in self._hosts.items()
        )

    async def _retire(self, names: tuple[str, ...]) -> None:
        kept = await self._workforce.retire(names)
        self.demand = demand.keep(self.demand, kept)
        self._reconcile_soon()

    async def _remove_host(self, name: str) -> None:
        self._leaving.add(name)
        stayed = await self._workforce.retire(self.roster.of_host(name))
        managed = self._hosts.pop(name)
        self._leaving.discard(name)
        self._refused.pop(name, None)
        await managed.stop(GRACE_S)
        self._workforce.lose(self.roster.of_host(name), f"{name} was removed")
        lost = f"; lost with it: what {', '.join(stayed)} held" if stayed else ""
        self._listener.tell(Severity.INFO, name, "removed", f"no longer of this cluster{lost}")
        self._listener.fleet_changed()

    def _refuse_same_machines(self) -> None:
        """Refuse every host that is the same machine as one before it in the file."""
        found = [
            (managed.host, managed.facts)
            for name, managed in self._hosts.items()
            if managed.facts is not None and name not in self._refused
        ]
        for name, reason in capacity.same_machines(found).items():
            managed = self._hosts[name]
            self._refused[name] = HostStatus(
                name=name,
                state=HostState.REFUSED,
                state_since=managed.status.state_since,
                reason=reason,
                remedy="remove one of the two lines",
                failed_stage=HostState.PROBING,
                address=managed.far_address,
            )
            self._workforce.lose(self.roster.of_host(name), reason)
            self._listener.tell(Severity.ERROR, name, "refused", reason)
            self._spawn(managed.stop(GRACE_S))

    def _tell_state(self, host: ManagedHost) -> None:
        """Record what a person would want to know of a host's state."""
        status = host.status
        severity = {
            HostState.READY: Severity.INFO,
            HostState.SILENT: Severity.WARNING,
            HostState.RECONNECTING: Severity.WARNING,
            HostState.REFUSED: Severity.ERROR,
        }.get(host.state)
        if severity is not None:
            text = status.reason or "; ".join(status.warnings) or host.far_address
            self._listener.tell(severity, host.name, host.state, text)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
