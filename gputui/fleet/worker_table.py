"""The workers of a cluster: what agents and the scheduler report of each, joined by its name.

The one owner of that truth, and what is done about it: workers are started through the agents of
their hosts, and retired without losing a result. The fleet decides which.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gputui.errors import GputuiError
from gputui.fleet.host import FleetHost
from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import UP, HostState, Severity, WorkerState, WorkerStatus
from gputui.protocol.agent import (
    Facts,
    RestartWorkers,
    StopWorkers,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.scheduler import Counts, WorkerCounts

NOT_READ = WorkerReading("")
"""In place of a reading that has not come yet."""
BUSY, IDLE, PAUSED = WorkerState.BUSY, WorkerState.IDLE, WorkerState.PAUSED
COMING = (WorkerState.WANTED, WorkerState.STARTING, WorkerState.CRASHED)
GRACE_S = 3.0
"""How long a stopping worker may take to leave the scheduler."""


Tell = Callable[[Severity, str, str, str], None]
"""Records an event: how serious it is, what it is about, its kind, its text."""


Retire = Callable[[tuple[str, ...]], Awaitable[tuple[str, ...]]]
"""Has the scheduler move what workers hold; returns those that could leave.

Raises HeadError when there is no scheduler.
"""


@dataclass(slots=True)
class WorkerRecord:
    """One worker as it is now."""

    spec: WorkerSpec
    state: WorkerState = WorkerState.WANTED
    pid: int | None = None
    address: str | None = None
    restarts: int = 0
    deaths: int = 0
    """Of its processes, also where the next one is not started yet."""
    reason: str = ""
    seen_device_uuid: str | None = None
    stopped: bool = False
    """Whether its agent was asked to stop it; the message may be lost with its connection."""
    starting_since: float = 0.0
    """When it was asked for or forked, by the monotonic clock."""


class WorkerTable:
    """Every worker that runs, or should, on these hosts."""

    def __init__(
        self,
        hosts: Mapping[str, FleetHost],
        listen_host: Callable[[FleetHost], str],
        *,
        retire: Retire,
        remove: Callable[[tuple[str, ...], str], None],
        tell: Tell,
        changed: Callable[[], None],
        restarted: Callable[[], None],
    ) -> None:
        """Start workers at `listen_host`; "" for a host that must wait."""
        self._hosts, self._listen_host = hosts, listen_host
        self._retire_there, self._remove = retire, remove
        self._tell, self._changed, self._restarted = tell, changed, restarted
        self._workers: dict[str, WorkerRecord] = {}
        self._counts: dict[str, WorkerCounts] = {}
        self._deaths: dict[str, int] = {}
        """Of workers that were lost, until they are started again."""

    def __contains__(self, name: object) -> bool:
        return name in self._workers

    @property
    def staying(self) -> dict[str, str]:
        """Worker → its host, of those that are not being stopped."""
        return {
            name: worker.spec.host
            for name, worker in self._workers.items()
            if worker.state is not WorkerState.RETIRING
        }

    @property
    def starting(self) -> frozenset[str]:
        """The workers whose processes have not registered with the scheduler yet."""
        return frozenset(
            name for name, worker in self._workers.items() if worker.state is WorkerState.STARTING
        )

    @property
    def leaving(self) -> frozenset[str]:
        """The workers that are being stopped."""
        return frozenset(self._workers.keys() - self.staying.keys())

    @property
    def up(self) -> tuple[str, ...]:
        """The workers that the scheduler can give tasks."""
        return tuple(name for name, worker in self._workers.items() if worker.state.up)

    @property
    def coming(self) -> bool:
        """Whether any is about to come up; one that crashed and is started again is."""
        return any(worker.state in COMING for worker in self._workers.values())

    @property
    def ranked(self) -> tuple[str, ...]:
        """The workers that stay, the cheapest to stop first."""
        return tuple(sorted(self.staying, key=self._worth))

    def of_host(self, host: str) -> tuple[str, ...]:
        """The workers of a host."""
        return tuple(name for name, each in self._workers.items() if each.spec.host == host)

    def held(self, names: Iterable[str]) -> tuple[int, int]:
        """Return (results, bytes) that these workers hold, as last counted."""
        counts = [self._counts[name] for name in names if name in self._counts]
        return sum(c.in_memory for c in counts), sum(c.managed_bytes for c in counts)

    def start(self, specs: Iterable[WorkerSpec]) -> None:
        """Start these on the hosts that are ready."""
        by_host: dict[str, list[WorkerSpec]] = {}
        for spec in specs:
            if self._hosts[spec.host].state is HostState.READY:
                by_host.setdefault(spec.host, []).append(spec)
        for name, there in by_host.items():
            if address := self._listen_host(self._hosts[name]):
                sent = self._hosts[name].start_workers(tuple(there), address)
                for spec in there:
                    self.expect(spec, sent=sent)

    def expect(self, spec: WorkerSpec, *, sent: bool) -> None:
        """Note that a worker is to run; `sent` when its agent has the order."""
        if spec.name not in self._workers:
            deaths = self._deaths.pop(spec.name, 0)
            again = -1 if deaths else 0  # its first process is a restart
            self._workers[spec.name] = WorkerRecord(spec, restarts=again, deaths=deaths)
        worker = self._workers[spec.name]
        worker.spec, worker.starting_since, worker.reason = spec, time.monotonic(), ""
        worker.stopped = False
        worker.state = WorkerState.STARTING if sent else WorkerState.WANTED

    def catch_up(self, host: FleetHost) -> None:
        """Have an agent that connected again report its workers."""
        there = tuple(
            worker.spec
            for worker in map(self._workers.__getitem__, self.of_host(host.name))
            if not worker.stopped and worker.state is not WorkerState.CRASH_LOOP
        )
        if there:
            host.start_workers(there, self._listen_host(host))

    def restart(self, names: Collection[str]) -> None:
        """Restart workers; those that were given up are only started."""
        given_up = {n for n in names if self._workers[n].state is WorkerState.CRASH_LOOP}
        for host, there in self._by_hosts(set(names) - given_up).items():
            self._hosts[host].send(RestartWorkers(there))
        self.start([self._workers[name].spec for name in given_up])

    def retire(self, names: tuple[str, ...]) -> Coroutine[Any, Any, tuple[str, ...]]:
        """Begin to retire workers; the returned coroutine stops them once their results have moved.

        Its result is those that could not be stopped.
        """
        for name in names:
            if (worker := self._workers.get(name)) is not None:
                worker.state = WorkerState.RETIRING
        return self._retire(names)

    async def _retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        registered = tuple(n for n in names if n in self._workers and self._workers[n].address)
        left = set(names) - set(registered)
        try:
            if registered:
                left |= set(await self._retire_there(registered))
        except GputuiError as error:
            self._tell(Severity.ERROR, "cluster", "kept", f"{', '.join(registered)}: {error}")
        kept = tuple(name for name in registered if name not in left)
        for name in kept:
            if (worker := self._workers.get(name)) is not None:
                worker.state = WorkerState.REGISTERED
            text = "it holds results that fit on no other worker"
            self._tell(Severity.WARNING, name, "kept", text)
        for host, there in self._by_hosts(name for name in names if name in left).items():
            if not self._stop(host, there):
                self.forget(there)
            for name in there:
                self._tell(Severity.INFO, name, "retired", "")
        self._changed()
        return kept

    def give_up_late(self, bound_s: float) -> None:
        """Stop workers that have been starting for longer than they may."""
        since = time.monotonic() - bound_s
        late = {
            name: worker
            for name, worker in self._workers.items()
            if worker.state is WorkerState.STARTING and worker.starting_since < since
        }
        for name, worker in late.items():
            worker.reason = f"it did not register with the scheduler within {bound_s:g} s"
            worker.state = WorkerState.CRASH_LOOP
            self._tell(Severity.ERROR, name, "given up", worker.reason)
        for host, there in self._by_hosts(late).items():
            self._stop(host, there)

    def lose(self, names: tuple[str, ...], why: str) -> None:
        """Forget workers that are gone with their host."""
        self._lose(names)
        if names:
            self._remove(names, why)
            for name in names:
                self._tell(Severity.ERROR, name, "lost", why)

    def forget(self, names: Iterable[str]) -> None:
        """Note that workers are gone for good."""
        for name in names:
            self._workers.pop(name, None)

    def count(self, counts: Counts) -> None:
        """Take the scheduler's counts."""
        self._counts = {worker.name: worker for worker in counts.workers}

    def met(self, host: FleetHost, facts: Facts) -> None:
        """Compare the workers that an agent has with those it should have."""
        workers, running = self._workers, {worker.name: worker for worker in facts.running}
        stop = [name for name in running if name not in workers or workers[name].stopped]
        if stop:
            host.send(StopWorkers(tuple(stop), GRACE_S))
        for name, found in running.items():
            if (worker := workers.get(name)) is not None:
                self._runs(worker, found.pid, found.restarts)
                if worker.pid is None and worker.state.up:
                    worker.address, worker.state = None, WorkerState.CRASHED
        gone = tuple(
            name
            for name in self.of_host(host.name)
            if name not in running and workers[name].state is not WorkerState.CRASH_LOOP
        )
        self._lose(gone)
        if gone:
            self._remove(gone, f"their agent on {host.name} has them no more")

    def stop_unknown(self, names: Iterable[str]) -> None:
        """Have an agent stop workers that it reports and should not have."""
        unknown = tuple(name for name in names if name not in self._workers)
        if unknown and (host := self._hosts.get(unknown[0].rpartition(":")[0])) is not None:
            host.send(StopWorkers(unknown, GRACE_S))

    def started(self, message: WorkerStarted) -> None:
        """Handle a process that was forked."""
        if (worker := self._workers.get(message.name)) is None:
            return
        self._runs(worker, message.pid, message.restarts)
        if worker.state not in (WorkerState.RETIRING, WorkerState.CRASH_LOOP):
            worker.starting_since, worker.state = time.monotonic(), WorkerState.STARTING

    def ready(self, message: WorkerReady) -> None:
        """Handle a worker that registered, or its GPU."""
        if (worker := self._workers.get(message.name)) is None:
            return
        worker.address = message.address
        worker.seen_device_uuid = message.device_uuid or worker.seen_device_uuid
        if not (worker.state.up or worker.state is WorkerState.RETIRING):
            worker.reason, worker.state = "", WorkerState.REGISTERED
            self._tell(Severity.INFO, message.name, "registered", message.address)

    def exited(self, message: WorkerExited) -> None:
        """Handle the end of a worker's process; it is forgotten unless it crashed."""
        if (worker := self._workers.get(message.name)) is None:
            return
        if worker.state is not WorkerState.RETIRING and message.kind != "stopped":
            kind = "crash loop" if message.crash_loop else "crashed"
            severity = Severity.ERROR if message.crash_loop else Severity.WARNING
            self._tell(severity, message.name, kind, message.reason)
        self._counts.pop(message.name, None)
        worker.pid, worker.address = None, None
        if worker.state is WorkerState.CRASH_LOOP and message.kind == "stopped":
            return
        worker.reason = message.reason
        worker.deaths += message.kind != "stopped"
        if message.crash_loop:
            worker.state = WorkerState.CRASH_LOOP
        elif message.restart_in_s is None or worker.state is WorkerState.RETIRING:
            self.forget([message.name])
        else:
            worker.state = WorkerState.CRASHED

    def statuses(
        self, readings: Mapping[str, WorkerReading], *, cpus_only: bool = False
    ) -> tuple[WorkerStatus, ...]:
        """Return the workers, with what their agents read of them; or those without a GPU."""
        return tuple(
            [
                _status(worker, self._counts.get(name), readings.get(name, NOT_READ))
                for name, worker in self._workers.items()
                if not (cpus_only and worker.spec.device_uuid)
            ]
        )

    def _stop(self, host: str, names: tuple[str, ...]) -> bool:
        """Have an agent stop workers; returns whether it has the order."""
        for name in names:
            self._workers[name].stopped = True
        return self._hosts[host].send(StopWorkers(names, GRACE_S))

    def _lose(self, names: Iterable[str]) -> None:
        """Forget workers that nobody stopped."""
        for name in names:
            if (worker := self._workers.pop(name, None)) is not None and not worker.stopped:
                self._deaths[name] = worker.deaths + (worker.pid is not None)

    def _by_hosts(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return host → those of its workers, of hosts that are there."""
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            worker = self._workers.get(name)
            if worker is not None and worker.spec.host in self._hosts:
                found[worker.spec.host] = (*found.get(worker.spec.host, ()), name)
        return found

    def _runs(self, worker: WorkerRecord, pid: int | None, restarts: int) -> None:
        """Note a worker's process, and that it was started again."""
        again = restarts > worker.restarts
        worker.pid, worker.restarts = pid, restarts
        worker.deaths = max(worker.deaths, restarts)
        if again:
            self._tell(Severity.INFO, worker.spec.name, "restarted", "")
            self._restarted()

    def _worth(self, name: str) -> tuple[bool, int, int, int]:
        """Return the cost of stopping a worker: least for one that is not up."""
        counts = self._counts.get(name)
        if counts is None:
            return (self._workers[name].state.up, 0, 0, 0)
        held = counts.managed_bytes + counts.spilled_bytes
        return (True, counts.executing + counts.ready, held, counts.in_memory)


def _status(
    worker: WorkerRecord, counts: WorkerCounts | None, reading: WorkerReading
) -> WorkerStatus:
    """Join a worker's record, counts and reading."""
    spec, state, reason = worker.spec, worker.state, worker.reason
    if state in UP and counts is not None:
        state = PAUSED if counts.status == "paused" else BUSY if counts.executing else IDLE
    silent_s = counts.silent_s if counts else 0.0
    if (reading.stopped or silent_s) and worker.address is not None:
        state, reason = WorkerState.SILENT, f"no heartbeat for {silent_s:.0f} s"
        if reading.stopped:
            go_on = f"kill -CONT {worker.pid} on {spec.host}"
            reason = f"its process is stopped: {go_on} lets it go on"
    return WorkerStatus(
        name=spec.name,
        host=spec.host,
        state=state,
        device_uuid=spec.device_uuid,
        seen_device_uuid=(counts and counts.device_uuid) or worker.seen_device_uuid,
        pid=worker.pid,
        address=worker.address,
        reason=reason,
        cpu_percent=reading.cpu_percent,
        rss_bytes=reading.rss_bytes,
        memory_limit_bytes=spec.memory_limit_bytes or None,
        open_files=reading.open_files,
        executing=counts.executing if counts else None,
        ready=counts.ready if counts else None,
        in_memory=counts.in_memory if counts else None,
        managed_bytes=counts.managed_bytes if counts else None,
        device_managed_bytes=counts.device_managed_bytes if counts else None,
        spilled_bytes=counts.spilled_bytes if counts else None,
        restarts=worker.deaths,
        nthreads=spec.nthreads,
        current_task=counts.current_task if counts else None,
        task_since=counts.task_since if counts else None,
        silent_for_s=silent_s,
        fetching=counts is not None and counts.fetching,
        moved=counts.moved if counts else (),
        stopped=reading.stopped,
    )
