"""The hosts of a cluster and their workers: desired against actual, and what turns one into the
other.

Hosts report, the scheduler counts, users request; each time `reconcile` compares and has agents
start workers, or has the scheduler retire some and their agents stop them. Called by the head
only; nothing here knows of frontends.
"""

import asyncio
import time
from collections.abc import Collection, Iterable

from gputui.fleet import reachability
from gputui.fleet.addresses import Listening, is_loopback
from gputui.fleet.deploy.opening import AgentOpener, Opener
from gputui.fleet.desired import Desired, keep
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.host import FleetHost
from gputui.fleet.host_table import HostTable
from gputui.fleet.reachability import End
from gputui.fleet.reconcile import Actual, decide, free_slots
from gputui.fleet.stages import Question
from gputui.fleet.worker_actions import GRACE_S, FleetListener, WorkerActions
from gputui.fleet.worker_table import WorkerTable
from gputui.model.hosts import Host
from gputui.model.plan import Changes, WorkerSpec
from gputui.model.snapshot import HostState, HostStatus, Severity, WorkerStatus
from gputui.process.background import Background, words
from gputui.protocol.agent import (
    Credentials,
    Facts,
    FollowLogs,
    FromAgent,
    KnowFrontends,
    Listen,
    Telemetry,
    Trouble,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.scheduler import Counts
from gputui.protocol.shared import LogLines

START_WATCH_S = 1.0
REST = 4
"""A comparison of thousands of workers takes some 50 ms: the next one waits four times as long."""


class Fleet:
    """All hosts of one cluster."""

    def __init__(
        self,
        settings: FleetSettings,
        wanted: Desired,
        listener: FleetListener,
        opener: Opener | None = None,
    ) -> None:
        """Reach hosts through `opener`, by default over SSH."""
        self.desired = wanted
        self.worker_table = WorkerTable()
        self._settings = settings
        self._opener = opener or AgentOpener(settings)
        self._listener = listener
        self._hosts = HostTable()
        self._scheduler_port: int | None = None
        self._leaving: set[str] = set()
        self._checked: dict[FleetHost, str] = {}
        """The hosts in the order in which they were checked, and where their workers listen."""
        self._credentials: Credentials | None = None
        self._logs_followed = False
        self._worker_actions = WorkerActions(self._hosts, self.worker_table, listener)
        self._listening = Listening(settings.scheduler_host or "", self._reconcile_soon)
        self._reconciling = False
        self._reconciled_in_s = 0.0
        self._starts_due = True
        """Whether something is to be started that could not be yet."""
        self._stopping = False
        self._last_states: dict[str, HostState] = {}
        self._followed: set[str] = set()
        """The hosts that have sent what their workers printed before."""
        self._watching_starts = False
        self._start_timeout_s = settings.start_timeout_s
        self._frontends = settings.frontends
        self._tasks = Background(self._task_failed)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts, in the order of their lines."""
        return tuple(fleet_host.host for fleet_host in self._hosts.values())

    @property
    def host_statuses(self) -> tuple[HostStatus, ...]:
        """Every host as it is now."""
        return self._hosts.statuses

    @property
    def worker_statuses(self) -> tuple[WorkerStatus, ...]:
        """Every worker as it is now."""
        return self.worker_table.statuses(self._hosts.readings)

    @property
    def cpu_workers(self) -> list[WorkerStatus]:
        """Every worker without a GPU as it is now."""
        return self.worker_table.on_cpus(lambda: self._hosts.readings)

    @property
    def settled(self) -> bool:
        """Whether every host and every worker has come to an end of its start."""
        if self.worker_table.coming or self.worker_table.leaving:
            return False
        if self._reconciling or self._hosts.coming:
            return False
        return not self._starts_due

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
            fleet_host = FleetHost(host, self._settings, self._opener, self)
            if self._scheduler_port is not None:
                fleet_host.scheduler_listens(self._scheduler_port)
            self._hosts.add(fleet_host)
            fleet_host.start()

    def remove_hosts(self, names: Iterable[str]) -> None:
        """Retire these hosts' workers, then remove the hosts."""
        for name in names:
            self._tasks.start(self._remove_host(name), f"removing {name}")

    def restart(self, names: Collection[str]) -> None:
        """End workers and start them again."""
        self._worker_actions.restart(names, self._addresses())
        self._watch_starts()

    def retry(self, names: Iterable[str]) -> tuple[str, ...]:
        """Try hosts again that failed or are not reached; returns which."""
        tried = []
        for name in names:
            fleet_host = self._hosts[name]
            if self._hosts.is_double(name):
                self.add_hosts([fleet_host.host])
            elif fleet_host.state in (HostState.FAILED, HostState.RECONNECTING):
                fleet_host.retry()
            else:
                continue
            tried.append(name)
        return tuple(tried)

    def follow_logs(self, on: bool) -> None:
        """Have the agents send what workers print, or not any more."""
        if on or self._logs_followed:
            self._logs_followed = on
            self._followed.clear()
            for fleet_host in self._hosts.values():
                self._follow_logs(fleet_host)

    def frontends_changed(self) -> None:
        """Have this machine's agent know whose processes are the cluster's own."""
        for fleet_host in self._hosts.values():
            if fleet_host.host.is_local:
                fleet_host.send(KnowFrontends(self._frontends()))

    def give_credentials(self, credentials: Credentials) -> None:
        """Give agents of hosts that are ready what their workers join with; others get it then."""
        self._credentials = credentials
        for fleet_host in self._hosts.values():
            if fleet_host.was_ready:
                fleet_host.send(credentials)

    def scheduler_listens(self, port: int) -> None:
        """Give every present and future host the scheduler's address."""
        self._scheduler_port = port
        for fleet_host in self._hosts.values():
            fleet_host.scheduler_listens(port)

    def count(self, counts: Counts) -> None:
        """Take the scheduler's counts."""
        self.worker_table.count(counts)

    async def stop(self, grace_s: float = GRACE_S) -> tuple[str, ...]:
        """Stop every worker and agent; returns the hosts where something may be left a while."""
        self._stopping = True
        await self._tasks.close()
        left = await self._hosts.stop(grace_s)
        await self._opener.close()
        return left

    def host_changed(self, host: FleetHost) -> None:
        """Handle another state: a host that is ready gets workers, a lost one loses them."""
        if not self._hosts.belongs(host):
            return
        if self._last_states.get(host.name) is not host.state:
            self._last_states[host.name] = host.state
            self._tell_state(host)
            if host.state is HostState.READY:
                if self._credentials is not None:
                    host.send(self._credentials)
                if self.worker_table.of_host(host.name):
                    self._worker_actions.catch_up(host, self._addresses().get(host.name, ""))
                if self._logs_followed:
                    self._follow_logs(host)
        if host.lease_over and (lost := self.worker_table.of_host(host.name)):
            self._worker_actions.lose(
                lost, "its host has not been reached for longer than the lease"
            )
        self._reconcile_soon()
        self._listener.fleet_changed()

    def workers_elsewhere(self, host: FleetHost) -> tuple[str, str]:
        """Return (whose, address) of workers that the host is to reach, ("", "") for none."""
        if is_loopback(host.record.far_address) or not any(each.is_local for each in self.hosts):
            return self._hosts.workers_elsewhere(host)
        return "this machine's workers", self._listening.own_address(host.record.local_address)

    async def blocked(self, host: FleetHost, address: str, port: int) -> str:
        """Return which way to or from a host's workers is closed; "" where all are open.

        It is tried with the hosts that were checked before it, this machine included.
        """
        there = {each: at for each, at in self._checked.items() if self._hosts.belongs(each)}
        there.pop(host, None)
        self._checked = {**there, host: address}
        ways = [host, *there][: reachability.MOST_OTHERS]
        remote = next((each for each in ways if not is_loopback(self._checked[each])), None)
        if remote is None:
            return ""
        here = self._listening.own_address(remote.record.local_address)
        ends = [
            End(
                each.name,
                here if is_loopback(self._checked[each]) else self._checked[each],
                each.ask_agent,
            )
            for each in ways
            if each.state is not HostState.FAILED
        ]
        if is_loopback(address):
            port = (await host.ask_agent(Listen(here))).port
        return await reachability.blocked(port, ends[0], ends[1:], host.record.local_address)

    def overreach(self, host: FleetHost, message: FromAgent) -> str:
        """Return why a message is refused, such as for another host's worker; "" if it is not."""
        return self._hosts.overreach(host, message)

    def message_received(self, host: FleetHost, message: FromAgent) -> None:
        """Handle a message of an agent."""
        match message:
            case Telemetry():
                self._worker_actions.read(host, message)
                return
            case LogLines():
                self._listener.logs_printed(message)
                return
            case Facts():
                self._worker_actions.meet(host, message)
                self._take_gpus(host)
            case Trouble(text):
                self._listener.tell(Severity.WARNING, host.name, "trouble", text)
            case WorkerStarted():
                self._worker_actions.started(host, message)
            case WorkerReady():
                self._worker_actions.ready(host, message)
            case WorkerExited():
                self._worker_actions.exited(host, message)
                self._reconcile_soon()
        self._listener.fleet_changed()

    async def ask(self, host: FleetHost, question: Question) -> str | None:
        """Ask a user."""
        return await self._listener.ask(host.name, question)

    def reconcile(self) -> Changes:
        """Start desired workers that do not run; stop running ones that are not desired."""
        self._reconciling = False
        if self._stopping:
            return Changes((), ())
        began = time.monotonic()
        changes = decide(self._actual(), self.desired)
        if changes.starts:
            self._worker_actions.start(changes.starts, self._addresses())
            self._watch_starts()
        self._starts_due = any(spec.name not in self.worker_table for spec in changes.starts)
        if changes.stops:
            self.worker_table.retiring(changes.stops)
            self._tasks.start(self._retire(changes.stops), "retiring workers")
        self._reconciled_in_s = time.monotonic() - began
        self._listener.fleet_changed()
        return changes

    def _reconcile_soon(self) -> None:
        """Compare once for all that happens at once, and no more than a part of the time."""
        if not self._reconciling:
            self._reconciling = True
            loop = asyncio.get_running_loop()
            loop.call_later(REST * self._reconciled_in_s, self.reconcile)

    def _actual(self, hosts: tuple[Host, ...] | None = None) -> Actual:
        hosts = self.hosts if hosts is None else hosts
        return Actual(
            hosts=hosts,
            capacities=self._hosts.capacities({host.name for host in hosts} - self._leaving),
            running=self.worker_table.staying,
            ranked=self.worker_table.ranked,
            leaving=self.worker_table.leaving,
        )

    def _addresses(self) -> dict[str, str]:
        """Return host → where its workers listen, of those that can start any now."""
        return self._listening.addresses(self._hosts.host_addresses())

    async def _retire(self, names: tuple[str, ...]) -> None:
        kept = await self._worker_actions.retire(names)
        self.desired = keep(self.desired, kept)
        self._reconcile_soon()

    async def _remove_host(self, name: str) -> None:
        self._leaving.add(name)
        there = self.worker_table.of_host(name)
        stayed = await self._worker_actions.retire(there)
        fleet_host = self._hosts.remove(name)
        self._leaving.discard(name)
        self.worker_table.forget(set(there) - set(stayed))
        self._worker_actions.lose(stayed, f"{name} was removed")
        await fleet_host.stop(GRACE_S)
        lost = f"; lost with it: what {', '.join(stayed)} held" if stayed else ""
        self._listener.tell(Severity.INFO, name, "removed", f"no longer of this cluster{lost}")
        self._reconcile_soon()
        self._listener.fleet_changed()

    def _take_gpus(self, host: FleetHost) -> None:
        """Assign a host's GPUs; a second line for the same machine is refused."""
        if (failed := self._hosts.take_gpus(host)) is not None:
            double, reason = failed
            self._worker_actions.lose(self.worker_table.of_host(double.name), reason)
            self._listener.tell(Severity.ERROR, double.name, "failed", reason)
            self._tasks.start(double.stop(GRACE_S), f"stopping {double.name}")

    def _tell_state(self, host: FleetHost) -> None:
        """Record a host's state where it is worth knowing."""
        status = host.status
        severity = {
            HostState.READY: Severity.INFO,
            HostState.SILENT: Severity.WARNING,
            HostState.RECONNECTING: Severity.WARNING,
            HostState.FAILED: Severity.ERROR,
        }.get(host.state)
        if severity is not None:
            text = status.reason or "; ".join(status.warnings) or host.record.far_address
            self._listener.tell(severity, host.name, host.state, text)

    def _follow_logs(self, host: FleetHost) -> None:
        """Subscribe to the output of a host's workers; earlier lines are sent once."""
        if not self._logs_followed:
            host.send(FollowLogs(False))
        elif host.name in self._followed:
            host.send(FollowLogs(True, history=0))
        elif host.send(FollowLogs(True)):
            self._followed.add(host.name)

    def _watch_starts(self) -> None:
        """Look once a second whether a worker takes too long to register, while any has to."""
        if not self._watching_starts:
            self._watching_starts = True
            asyncio.get_running_loop().call_later(START_WATCH_S, self._look_at_starts)

    def _look_at_starts(self) -> None:
        self._watching_starts = False
        if self._stopping:
            return
        if late := self.worker_table.late(self._start_timeout_s):
            self._worker_actions.give_up(late, self._start_timeout_s)
            self._listener.fleet_changed()
        if self.worker_table.coming:
            self._watch_starts()

    def _task_failed(self, what: str, error: Exception) -> None:
        self._listener.tell(Severity.ERROR, "cluster", "failed", f"{what}: {words(error)}")
