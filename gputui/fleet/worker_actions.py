"""Start workers through the agents of their hosts, and retire them without losing a result.

The fleet decides which; the worker table keeps what becomes of them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from gputui.errors import GputuiError
from gputui.fleet.host import FleetHost
from gputui.fleet.stages import Question
from gputui.fleet.worker_table import WorkerTable
from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import HostState, Severity
from gputui.protocol.agent import (
    Facts,
    RestartWorkers,
    StartWorkers,
    StopWorkers,
    Telemetry,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import LogLines


class FleetListener(Protocol):
    """Called for what happens in the fleet; reaches the scheduler and the user for it."""

    def fleet_changed(self) -> None:
        """A state has changed."""

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event."""

    def worker_restarted(self, name: str) -> None:
        """A worker that had ended was started again."""

    def logs_printed(self, lines: LogLines) -> None:
        """Workers printed something."""

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask a user; None for no."""

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Have the scheduler move what workers hold; returns those that could leave.

        Raises HeadError when there is no scheduler.
        """

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        """Have the scheduler forget workers at once."""


GRACE_S = 3.0
"""How long a stopping worker may take to leave the scheduler."""


class WorkerActions:
    """The workers of a fleet, on these hosts."""

    def __init__(
        self, hosts: Mapping[str, FleetHost], worker_table: WorkerTable, listener: FleetListener
    ) -> None:
        self._hosts = hosts
        self._worker_table = worker_table
        self._listener = listener

    def start(self, specs: Iterable[WorkerSpec], addresses: Mapping[str, str]) -> None:
        """Start these on the hosts that are ready; `addresses` is where each host's listen."""
        by_host: dict[str, list[WorkerSpec]] = {}
        for spec in specs:
            if spec.host in addresses and self._hosts[spec.host].state is HostState.READY:
                by_host.setdefault(spec.host, []).append(spec)
        for name, there in by_host.items():
            host = self._hosts[name]
            order = StartWorkers(tuple(there), host.scheduler_address, addresses[name])
            sent = host.send(order)
            for spec in there:
                self._worker_table.start(spec, sent=sent)

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Stop workers once their results have moved; returns those that could not."""
        self._worker_table.retiring(names)
        registered = self._worker_table.registered(names)
        left = set(names) - set(registered)
        try:
            if registered:
                left |= set(await self._listener.retire(registered))
        except GputuiError as error:
            text = f"{', '.join(registered)}: {error}"
            self._listener.tell(Severity.ERROR, "cluster", "kept", text)
        kept = tuple(name for name in registered if name not in left)
        self._worker_table.retiring(kept, on=False)
        for name in kept:
            text = "it holds results that fit on no other worker"
            self._listener.tell(Severity.WARNING, name, "kept", text)
        self._stop([name for name in names if name in left])
        self._listener.fleet_changed()
        return kept

    def restart(self, names: Collection[str], addresses: Mapping[str, str]) -> None:
        """Restart workers; those that were given up are only started."""
        given_up = [name for name in names if self._worker_table.given_up(name)]
        for host, there in self._by_host(set(names) - set(given_up)).items():
            self._hosts[host].send(RestartWorkers(there))
        self.start([self._worker_table.spec(name) for name in given_up], addresses)

    def give_up(self, names: tuple[str, ...], bound_s: float) -> None:
        """Stop workers that did not register in time."""
        for name in names:
            reason = f"it did not register with the scheduler within {bound_s:g} s"
            self._listener.tell(Severity.ERROR, name, "given up", reason)
            self._worker_table.give_up(name, reason)
        for host, there in self._by_host(names).items():
            self._worker_table.stop(there)
            self._hosts[host].send(StopWorkers(there, GRACE_S))

    def lose(self, names: tuple[str, ...], why: str) -> None:
        """Forget workers that are gone with their host."""
        self._worker_table.forget(names)
        if names:
            self._listener.remove(names, why)
            for name in names:
                self._listener.tell(Severity.ERROR, name, "lost", why)

    def meet(self, host: FleetHost, facts: Facts) -> None:
        """Compare the workers that an agent has with those it should have."""
        self._stop_unwanted(host, [worker.name for worker in facts.running])
        for name in self._worker_table.restarted(facts):
            self._listener.worker_restarted(name)
        if gone := self._worker_table.facts(host.name, facts):
            self._listener.remove(gone, f"their agent on {host.name} has them no more")

    def catch_up(self, host: FleetHost, address: str) -> None:
        """Have an agent that connected again report its workers."""
        table = self._worker_table
        names = [name for name in table.of_host(host.name) if not table.unwanted(name)]
        there = tuple(table.spec(name) for name in names if not table.given_up(name))
        if there:
            host.send(StartWorkers(there, host.scheduler_address, address))

    def read(self, host: FleetHost, telemetry: Telemetry) -> None:
        """Stop workers that an agent reports and that are not desired."""
        self._stop_unknown(host, [worker.name for worker in telemetry.workers])

    def started(self, host: FleetHost, message: WorkerStarted) -> None:
        """Handle a process that was forked."""
        self._stop_unknown(host, [message.name])
        if self._worker_table.started(message):
            self._listener.worker_restarted(message.name)

    def ready(self, host: FleetHost, message: WorkerReady) -> None:
        """Handle a worker that registered."""
        self._stop_unknown(host, [message.name])
        if self._worker_table.ready(message):
            self._listener.tell(Severity.INFO, message.name, "registered", message.address)

    def exited(self, host: FleetHost, message: WorkerExited) -> None:
        """Handle the end of a worker's process."""
        if message.restart_in_s is not None:
            self._stop_unknown(host, [message.name])
        expected = not self._worker_table.stays(message.name) or message.kind == "stopped"
        self._worker_table.exited(message)
        if not expected:
            kind = "crash loop" if message.crash_loop else "crashed"
            severity = Severity.ERROR if message.crash_loop else Severity.WARNING
            self._listener.tell(severity, message.name, kind, message.reason)

    def _stop_unwanted(self, host: FleetHost, names: Iterable[str]) -> None:
        """Have a reconnected agent stop workers that were stopped meanwhile."""
        if unwanted := tuple(name for name in names if self._worker_table.unwanted(name)):
            host.send(StopWorkers(unwanted, GRACE_S))

    def _stop_unknown(self, host: FleetHost, names: Iterable[str]) -> None:
        """Have an agent stop what it reports and should not have, however it came to have it."""
        if unknown := self._worker_table.unknown(names):
            host.send(StopWorkers(unknown, GRACE_S))

    def _stop(self, names: Iterable[str]) -> None:
        for host, there in self._by_host(names).items():
            self._worker_table.stop(there)
            if not self._hosts[host].send(StopWorkers(there, GRACE_S)):
                self._worker_table.forget(there)
            for name in there:
                self._listener.tell(Severity.INFO, name, "retired", "")

    def _by_host(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            if (
                name in self._worker_table
                and (host := self._worker_table.spec(name).host) in self._hosts
            ):
                found[host] = (*found.get(host, ()), name)
        return found
