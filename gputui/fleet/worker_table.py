"""The workers of a cluster: what agents and the scheduler report of each, joined by its name.

The one owner of that truth. Agents' messages change a worker's state; the scheduler's counts and
the agents' telemetry are looked up when a status is asked for.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import UP, WorkerState, WorkerStatus
from gputui.protocol.agent import Facts, WorkerExited, WorkerReading, WorkerReady, WorkerStarted
from gputui.protocol.scheduler import Counts, WorkerCounts

BUSY, IDLE, PAUSED = WorkerState.BUSY, WorkerState.IDLE, WorkerState.PAUSED
NOT_READ = WorkerReading("", None, None, None)
"""In place of a reading that has not come yet."""
COMING = (WorkerState.WANTED, WorkerState.STARTING, WorkerState.CRASHED)


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
    """Every worker that runs, or should."""

    def __init__(self) -> None:
        self._workers: dict[str, WorkerRecord] = {}
        self._by_host: dict[str, dict[str, WorkerRecord]] = {}
        self._cpu_workers: dict[str, WorkerRecord] = {}
        self._in_state: Counter[WorkerState] = Counter()
        self._counts: dict[str, WorkerCounts] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._workers

    def unknown(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that are none of these."""
        workers = self._workers
        return tuple([name for name in names if name not in workers])

    def unwanted(self, name: str) -> bool:
        """Return whether an agent that has a worker of this name is to stop it."""
        worker = self._workers.get(name)
        return worker is None or worker.stopped

    def stays(self, name: str) -> bool:
        """Return whether a worker is one of these, and not being stopped."""
        worker = self._workers.get(name)
        return worker is not None and worker.state is not WorkerState.RETIRING

    @property
    def staying(self) -> dict[str, str]:
        """Worker → its host, of those that are not being stopped."""
        return {
            name: worker.spec.host
            for name, worker in self._workers.items()
            if worker.state is not WorkerState.RETIRING
        }

    @property
    def leaving(self) -> frozenset[str]:
        """The workers that are being stopped."""
        return frozenset(self._in(WorkerState.RETIRING))

    @property
    def up(self) -> tuple[str, ...]:
        """The workers that the scheduler can give tasks."""
        return tuple(name for name, worker in self._workers.items() if worker.state.up)

    @property
    def up_count(self) -> int:
        """The number of workers that the scheduler can give tasks."""
        return sum(number for state, number in self._in_state.items() if state.up)

    @property
    def coming(self) -> bool:
        """Whether any is about to come up; one that crashed and is started again is."""
        return any(self._in_state[state] for state in COMING)

    @property
    def ranked(self) -> tuple[str, ...]:
        """The workers that stay, the cheapest to stop first."""
        return tuple(sorted(self.staying, key=self._worth))

    def late(self, bound_s: float) -> tuple[str, ...]:
        """Return those that have been starting for longer than they may."""
        since = time.monotonic() - bound_s
        return tuple(
            name
            for name in self._in(WorkerState.STARTING)
            if self._workers[name].starting_since < since
        )

    def of_host(self, host: str) -> tuple[str, ...]:
        """The workers of a host."""
        return tuple(self._by_host.get(host, ()))

    def spec(self, name: str) -> WorkerSpec:
        """Return the spec of the worker of this name."""
        return self._workers[name].spec

    def given_up(self, name: str) -> bool:
        """Return whether a worker is not started again by itself."""
        return self._workers[name].state is WorkerState.CRASH_LOOP

    def registered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that the scheduler knows."""
        return tuple(n for n in names if n in self._workers and self._workers[n].address)

    def held(self, names: Iterable[str]) -> tuple[int, int]:
        """Return (results, bytes) that these workers hold, as last counted."""
        counts = [self._counts[name] for name in names if name in self._counts]
        return sum(c.in_memory for c in counts), sum(c.managed_bytes for c in counts)

    def start(self, spec: WorkerSpec, *, sent: bool) -> None:
        """Note that a worker is to run; `sent` when its agent has the order."""
        worker = self._workers.get(spec.name)
        if worker is None:
            worker = self._workers[spec.name] = WorkerRecord(spec)
            self._by_host.setdefault(spec.host, {})[spec.name] = worker
            if spec.device_uuid is None:
                self._cpu_workers[spec.name] = worker
            self._in_state[worker.state] += 1
        worker.spec, worker.starting_since, worker.reason = spec, time.monotonic(), ""
        worker.stopped = False
        self._become(worker, WorkerState.STARTING if sent else WorkerState.WANTED)

    def give_up(self, name: str, reason: str) -> None:
        """Note that a worker did not come up, and is not to be started again by itself."""
        worker = self._workers[name]
        worker.reason = reason
        self._become(worker, WorkerState.CRASH_LOOP)

    def stop(self, names: Iterable[str]) -> None:
        """Note that the agent was asked to stop workers."""
        for name in names:
            self._workers[name].stopped = True

    def retiring(self, names: Iterable[str], *, on: bool = True) -> None:
        """Note that workers are being stopped, or stay after all."""
        for name in names:
            if (worker := self._workers.get(name)) is not None:
                self._become(worker, WorkerState.RETIRING if on else WorkerState.REGISTERED)

    def forget(self, names: Iterable[str]) -> None:
        """Note that workers are gone for good."""
        for name in names:
            if (worker := self._workers.pop(name, None)) is not None:
                self._in_state[worker.state] -= 1
                self._cpu_workers.pop(name, None)
                there = self._by_host[worker.spec.host]
                del there[name]
                if not there:
                    del self._by_host[worker.spec.host]

    def count(self, counts: Counts) -> None:
        """Take the scheduler's counts."""
        self._counts = {worker.name: worker for worker in counts.workers}

    def restarted(self, facts: Facts) -> tuple[str, ...]:
        """Return the workers that were started again while the agent was out of reach."""
        return tuple(
            found.name
            for found in facts.running
            if (worker := self._workers.get(found.name)) is not None
            and found.restarts > worker.restarts
        )

    def facts(self, host: str, facts: Facts) -> tuple[str, ...]:
        """Set the workers of an agent that connects; returns those that it no longer has."""
        running = {worker.name: worker for worker in facts.running}
        for name, found in running.items():
            if (worker := self._workers.get(name)) is not None:
                worker.pid, worker.restarts = found.pid, found.restarts
                worker.deaths = max(worker.deaths, found.restarts)
                if worker.pid is None and worker.state.up:
                    worker.address = None
                    self._become(worker, WorkerState.CRASHED)
        missing = tuple(
            name for name in self.of_host(host) if name not in running and not self.given_up(name)
        )
        self.forget(missing)
        return missing

    def started(self, message: WorkerStarted) -> bool:
        """Note that a process was forked; returns whether it is one that was started again."""
        worker = self._workers.get(message.name)
        if worker is None:
            return False
        again = message.restarts > worker.restarts
        worker.pid, worker.restarts = message.pid, message.restarts
        if worker.state not in (WorkerState.RETIRING, WorkerState.CRASH_LOOP):
            worker.starting_since = time.monotonic()
            self._become(worker, WorkerState.STARTING)
        return again

    def ready(self, message: WorkerReady) -> bool:
        """Note that a worker registered, or its GPU; returns whether it just came up."""
        worker = self._workers.get(message.name)
        if worker is None:
            return False
        worker.address = message.address
        worker.seen_device_uuid = message.device_uuid or worker.seen_device_uuid
        if worker.state.up or worker.state is WorkerState.RETIRING:
            return False
        worker.reason = ""
        self._become(worker, WorkerState.REGISTERED)
        return True

    def exited(self, message: WorkerExited) -> None:
        """Note that a worker's process ended; it is forgotten unless it crashed."""
        worker = self._workers.get(message.name)
        if worker is None:
            return
        self._counts.pop(message.name, None)
        worker.pid, worker.address = None, None
        if worker.state is WorkerState.CRASH_LOOP and message.kind == "stopped":
            return
        worker.reason = message.reason
        worker.deaths += message.kind != "stopped"
        if message.crash_loop:
            self._become(worker, WorkerState.CRASH_LOOP)
        elif message.restart_in_s is None or worker.state is WorkerState.RETIRING:
            self.forget([message.name])
        else:
            self._become(worker, WorkerState.CRASHED)

    def statuses(self, readings: Mapping[str, WorkerReading]) -> tuple[WorkerStatus, ...]:
        """Return all workers, with what their agents read of them."""
        counts = self._counts
        return tuple(
            [
                _status(worker, counts.get(name), readings.get(name))
                for name, worker in self._workers.items()
            ]
        )

    def on_cpus(self, readings: Callable[[], Mapping[str, WorkerReading]]) -> list[WorkerStatus]:
        """Return the workers that have no GPU; `readings` is called where there are any."""
        read = readings() if self._cpu_workers else {}
        return [
            _status(worker, self._counts.get(name), read.get(name))
            for name, worker in self._cpu_workers.items()
        ]

    def _become(self, worker: WorkerRecord, state: WorkerState) -> None:
        self._in_state[worker.state] -= 1
        self._in_state[state] += 1
        worker.state = state

    def _in(self, state: WorkerState) -> list[str]:
        """Return those in a state, at no cost where none is."""
        if not self._in_state[state]:
            return []
        return [name for name, worker in self._workers.items() if worker.state is state]

    def _worth(self, name: str) -> tuple[bool, int, int, int]:
        """Return the cost of stopping a worker: least for one that is not up."""
        counts = self._counts.get(name)
        if counts is None:
            return (self._workers[name].state.up, 0, 0, 0)
        held = counts.managed_bytes + counts.spilled_bytes
        return (True, counts.executing + counts.ready, held, counts.in_memory)


def _status(
    worker: WorkerRecord, counts: WorkerCounts | None, reading: WorkerReading | None
) -> WorkerStatus:
    """Join all that is known of a worker."""
    spec, reading, state, reason = worker.spec, reading or NOT_READ, worker.state, worker.reason
    if state in UP and counts is not None:
        state = PAUSED if counts.status == "paused" else BUSY if counts.executing else IDLE
    silent_s = counts.silent_s if counts else 0.0
    if (reading.stopped or silent_s) and worker.address is not None:
        state = WorkerState.SILENT
        reason = _why_silent(worker, silent_s, stopped=reading.stopped)
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
        stopped=reading.stopped,
    )


def _why_silent(worker: WorkerRecord, silent_s: float, *, stopped: bool) -> str:
    """Describe how a registered worker does not answer."""
    if stopped:
        return (
            f"its process is stopped: kill -CONT {worker.pid} on {worker.spec.host} lets it go on"
        )
    return f"no heartbeat for {silent_s:.0f} s"
