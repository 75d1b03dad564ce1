"""The hosts of a cluster and their workers: wanted against running, and what turns one into the
other.

Hosts tell of themselves, the scheduler counts, people ask; each time `reconcile` compares and
has agents start workers, or has the scheduler retire some and their agents stop them. Called by
the head only; nothing here knows of faces.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from gputui.errors import GputuiError
from gputui.fleet import capacity, demand
from gputui.fleet.addresses import Way, listen_addresses, outward_address
from gputui.fleet.demand import Demand, Fleetwide
from gputui.fleet.host import ManagedHost
from gputui.fleet.opening import Shared
from gputui.fleet.roster import Roster
from gputui.fleet.settings import FleetSettings
from gputui.fleet.stages import Question
from gputui.hosts import Host
from gputui.plan import Changes, HostCapacity, WorkerSpec
from gputui.protocol import (
    Counts,
    Credentials,
    Facts,
    FollowLogs,
    LogLines,
    Message,
    RestartWorkers,
    StartWorkers,
    StopWorkers,
    Telemetry,
    Trouble,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.snapshot import HostState, HostStatus, Severity, WorkerStatus

logger = logging.getLogger(__name__)

GRACE_S = 3.0
"""What a worker that is stopped may take to say goodbye."""
PATIENCE_S = 2.0
"""How long a host that is this machine waits to learn how the others reach it."""
ON_THE_WAY = (
    HostState.RESOLVING,
    HostState.CONNECTING,
    HostState.AUTHENTICATING,
    HostState.PROBING,
    HostState.REACHING,
)


class FleetListener(Protocol):
    """What the fleet needs of the head."""

    def fleet_changed(self) -> None:
        """Some state is another now."""

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event."""

    def worker_restarted(self, name: str) -> None:
        """A worker that had ended was started again."""

    def logs_printed(self, lines: LogLines) -> None:
        """Workers printed something."""

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask a person; None for no."""

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Have the scheduler move what workers hold; returns those that could leave.

        Raises HeadError when there is no scheduler.
        """

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        """Have the scheduler forget workers at once."""


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
        self._credentials: Credentials | None = None
        self._scheduler_port: int | None = None
        self._logs_followed = False
        self._patient = True
        self._reconciling = False
        self._stopping = False
        self._last_states: dict[str, HostState] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    # What there is

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

    # What people ask for

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
        for host, there in self._by_host(names).items():
            self._hosts[host].send(RestartWorkers(there))

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

    # What the head tells

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
        return tuple(name for name, gone in zip(names, ended, strict=True) if not gone)

    # What hosts tell

    def host_changed(self, host: ManagedHost) -> None:
        """Take note of another state: a host that is ready gets workers, a lost one loses them."""
        if self._hosts.get(host.name) is not host or host.name in self._refused:
            return
        if self._last_states.get(host.name) is not host.state:
            self._last_states[host.name] = host.state
            self._tell_state(host)
            if host.state is HostState.READY:
                self._catch_up(host)
        if host.lease_over and (lost := self.roster.of_host(host.name)):
            self._lose(lost, f"{host.name} has not been reached for longer than its lease")
        self._reconcile_soon()
        self._listener.fleet_changed()

    def message_received(self, host: ManagedHost, message: Message) -> None:
        """Take what an agent tells."""
        match message:
            case Telemetry():
                return
            case LogLines():
                self._listener.logs_printed(message)
                return
            case Facts():
                self._meet(host, message)
            case Trouble(text):
                self._listener.tell(Severity.WARNING, host.name, "trouble", text)
            case WorkerStarted(name):
                if self.roster.started(message):
                    self._listener.worker_restarted(name)
            case WorkerReady(name, address):
                if self.roster.ready(message):
                    self._listener.tell(Severity.INFO, name, "registered", address)
            case WorkerExited():
                self._exited(message)
                self._reconcile_soon()
        self._listener.fleet_changed()

    async def ask(self, host: ManagedHost, question: Question) -> str | None:
        """Ask a person."""
        return await self._listener.ask(host.name, question)

    # Wanted against running

    def reconcile(self) -> Changes:
        """Have started what is wanted and does not run, and stopped what runs and is not."""
        changes = self.preview(self.demand)
        addresses = self._listen_addresses()
        starts: dict[str, list[WorkerSpec]] = {}
        for spec in changes.starts:
            if spec.host in addresses:
                starts.setdefault(spec.host, []).append(spec)
        for name, specs in starts.items():
            self._start(self._hosts[name], tuple(specs), addresses[name])
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
        )

    def _capacities(self, names: set[str]) -> dict[str, HostCapacity]:
        """Return what those hosts give that are ready, or lost for less than their lease."""
        found = {}
        for name, managed in self._hosts.items():
            usable = managed.state not in (*ON_THE_WAY, HostState.REFUSED)
            if usable and not managed.lease_over and name not in self._refused and name in names:
                assert managed.facts
                found[name] = capacity.capacity(managed.host, managed.facts, self._settings)
        return found

    def _listen_addresses(self) -> dict[str, str]:
        ways = [
            Way(
                name,
                managed.local_address,
                managed.far_address,
                given_up=managed.state is HostState.REFUSED or name in self._refused,
            )
            for name, managed in self._hosts.items()
        ]
        own = self._settings.scheduler_host or ""
        found = listen_addresses(ways, own)
        if len(found) < sum(bool(way.far_address) for way in ways if not way.given_up):
            if not self._patient:
                return listen_addresses(ways, own or outward_address())
            asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)
        return found

    def _lose_patience(self) -> None:
        if self._patient:
            self._patient = False
            self._reconcile_soon()

    def _start(self, managed: ManagedHost, specs: tuple[WorkerSpec, ...], address: str) -> None:
        if managed.state is not HostState.READY:
            return
        sent = managed.send(StartWorkers(specs, managed.scheduler_address, address))
        for spec in specs:
            self.roster.start(spec, sent=sent)

    async def _retire(self, names: tuple[str, ...]) -> None:
        """Have workers give up what they hold, and stop those that could."""
        up = self.roster.registered(names)
        left = set(names) - set(up)
        try:
            if up:
                left |= set(await self._listener.retire(up))
        except GputuiError as error:
            self._listener.tell(Severity.ERROR, "cluster", "kept", f"{', '.join(up)}: {error}")
        kept = tuple(name for name in up if name not in left)
        if kept:
            self.demand = demand.keep(self.demand, kept)
            self.roster.retiring(kept, on=False)
            text = "it holds results that fit on no other worker"
            for name in kept:
                self._listener.tell(Severity.WARNING, name, "kept", text)
        self._stop_workers(name for name in names if name in left)
        self._listener.fleet_changed()

    def _stop_workers(self, names: Iterable[str]) -> None:
        for host, there in self._by_host(names).items():
            if not self._hosts[host].send(StopWorkers(there, GRACE_S)):
                self.roster.forget(there)
            for name in there:
                self._listener.tell(Severity.INFO, name, "retired", "")

    async def _remove_host(self, name: str) -> None:
        there = self.roster.of_host(name)
        self.roster.retiring(there)
        await self._retire(there)
        stayed = [worker for worker in there if worker in self.demand.kept]
        managed = self._hosts.pop(name)
        self._refused.pop(name, None)
        await managed.stop(GRACE_S)
        self._lose(self.roster.of_host(name), f"{name} was removed")
        lost = f"; lost with it: what {', '.join(stayed)} held" if stayed else ""
        self._listener.tell(Severity.INFO, name, "removed", f"no longer of this cluster{lost}")
        self._listener.fleet_changed()

    def _lose(self, names: tuple[str, ...], why: str) -> None:
        """Forget workers that are gone with their host."""
        self.roster.forget(names)
        if names:
            self._listener.remove(names, why)
            for name in names:
                self._listener.tell(Severity.ERROR, name, "lost", why)

    def _meet(self, host: ManagedHost, facts: Facts) -> None:
        """Take an agent in, new or met again."""
        if self._credentials is not None:
            host.send(self._credentials)
        if unknown := tuple(w.name for w in facts.running if w.name not in self.roster):
            host.send(StopWorkers(unknown, GRACE_S))
        gone = self.roster.facts(host.name, facts)
        if gone:
            self._listener.remove(gone, f"their agent on {host.name} is another one now")
        self._refuse_same_machines()

    def _catch_up(self, host: ManagedHost) -> None:
        """Have an agent that was met again tell how its workers are now."""
        there = [self.roster.spec(name) for name in self.roster.of_host(host.name)]
        if there:
            address = self._listen_addresses().get(host.name, host.far_address)
            host.send(StartWorkers(tuple(there), host.scheduler_address, address))
        if self._logs_followed:
            host.send(FollowLogs(True))

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
            self._lose(self.roster.of_host(name), reason)
            self._listener.tell(Severity.ERROR, name, "refused", reason)
            self._spawn(managed.stop(GRACE_S))

    def _exited(self, message: WorkerExited) -> None:
        retiring = message.name not in self.roster.staying
        self.roster.exited(message)
        if retiring or message.kind == "stopped":
            return
        kind = "parked" if message.parked else "crashed"
        severity = Severity.ERROR if message.parked else Severity.WARNING
        self._listener.tell(severity, message.name, kind, message.reason)

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

    def _by_host(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            if name in self.roster and (host := self.roster.spec(name).host) in self._hosts:
                found[host] = (*found.get(host, ()), name)
        return found

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
