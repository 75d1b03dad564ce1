"""A cluster as the screen has seen it: the newest snapshot, and what came before.

It keeps no truth of its own: everything here came from the head, and is thrown away when
another head is met. A snapshot older than the newest is not taken.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputui.model.alarms import AlarmKind, Alarms
from gputui.model.series import of_device, of_host, of_worker
from gputui.model.slots import Slot, on_gpus, slots_of
from gputui.model.snapshot import Event, HostState, Snapshot, WorkerStatus
from gputui.tui.rendering.format import safe
from gputui.tui.totals import FLEET, TaskStream, Throughput, Total, total_of, total_of_hosts
from gputui.tui.widgets.logbook import LogBook

if TYPE_CHECKING:
    from gputui.model.history import History
    from gputui.protocol.frontend import Asked

EVENTS_KEPT = 5_000
FINE_KEPT, COARSE_KEPT = 240, 480
"""Readings kept: those of a graph, and as much again for a wide one and for steps not whole."""
SHORTEST_STEP_S = 0.8
"""Snapshots that come closer to each other add nothing to the histories."""


@dataclass(slots=True)
class Watched:
    """The cluster as it was last seen."""

    snapshot: Snapshot | None = None
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    questions: "dict[int, Asked]" = field(default_factory=dict)
    """Open questions to a person, by number."""
    total: Total = field(default_factory=Total)
    """What all GPUs together do."""
    last_task_at: dict[str, float] = field(default_factory=dict)
    """When each worker was last seen to run a task."""
    logs: LogBook = field(default_factory=lambda: LogBook(safe))
    """What workers printed since somebody asked for it."""
    stream: TaskStream = field(default_factory=TaskStream)
    """What each worker did in the last minutes."""
    throughput: Throughput = field(default_factory=Throughput)
    slots: list[Slot] = field(default_factory=list)
    """The places of the newest snapshot that a worker can have."""
    alarms: Alarms = field(default_factory=Alarms)
    by_subject: Mapping[str, list[AlarmKind]] = field(default_factory=dict)
    """The kinds of alarms of each slot and host, the serious ones first."""
    _remembered_at: float = 0.0
    _history: "History | None" = None

    @property
    def history(self) -> "History":
        """What each GPU, CPU worker and host of those did in the last hour."""
        if self._history is None:
            from gputui.model.history import History

            self._history = History(FINE_KEPT, COARSE_KEPT)
        return self._history

    def take(self, snapshot: Snapshot) -> bool:
        """Set the snapshot; return whether it is newer than the last."""
        if self.snapshot is not None and snapshot.sequence <= self.snapshot.sequence:
            return False
        self.snapshot = snapshot
        self.slots = slots_of(snapshot)
        self.alarms.look(snapshot, self.slots)
        self.by_subject = self.alarms.by_subject()
        self.stream.add(snapshot.spans, snapshot.taken_at)
        self.throughput.look(snapshot.groups, snapshot.taken_at)
        if abs(snapshot.taken_at - self._remembered_at) >= SHORTEST_STEP_S:
            self._remembered_at = snapshot.taken_at
            self._remember(snapshot)
        return True

    def _remember(self, snapshot: Snapshot) -> None:
        at = snapshot.taken_at
        self.stream.keep(worker.name for worker in snapshot.workers)
        self.last_task_at = {
            worker.name: at if worker.current_task or worker.executing else seen_at
            for worker in snapshot.workers
            if (seen_at := self.last_task_at.get(worker.name, 0.0))
            or worker.current_task
            or worker.executing
        }
        ready = {host.name: host for host in snapshot.hosts if host.state is HostState.READY}
        devices = [device for host in ready.values() for device in host.devices]
        on_cpus = [
            worker
            for slot in self.slots
            if slot.device is None and slot.host.name in ready
            for worker in slot.workers
        ]
        hosts = [ready[name] for name in dict.fromkeys(worker.host for worker in on_cpus)]
        on_hosts = [host.reading for host in hosts]
        rates = [self.throughput.rate(group) for group in snapshot.groups]
        self.total = total_of(devices, rates) if devices else total_of_hosts(on_hosts, rates)
        read = {device.uuid: of_device(device) for device in devices}
        read |= {worker.name: of_worker(worker) for worker in on_cpus}
        read |= {host.name: of_host(host.reading) for host in hosts} | {FLEET: self.total.row}
        self.history.add(at, tuple(read), [*read.values()], len(devices) or len(on_cpus))

    @property
    def name(self) -> str:
        """The cluster's name, "" before anything is known of it."""
        return self.snapshot.name if self.snapshot else ""

    @property
    def on_gpus(self) -> bool:
        """Whether any slot is a GPU, or no slot is known yet; otherwise they are CPU workers."""
        return on_gpus(self.slots)

    @property
    def workers(self) -> list[WorkerStatus]:
        """Every worker there is, host by host and GPU by GPU."""
        placed = [worker for slot in self.slots for worker in slot.workers]
        names = {worker.name for worker in placed}
        everyone = self.snapshot.workers if self.snapshot else ()
        return placed + [worker for worker in everyone if worker.name not in names]

    def ask(self, question: "Asked") -> None:
        """Keep a question, or forget one that was withdrawn."""
        if question.withdrawn:
            self.questions.pop(question.question, None)
        else:
            self.questions[question.question] = question

    def forget(self) -> None:
        """Begin again, with another head."""
        self.snapshot = None
        self.events.clear()
        self.questions.clear()
        self._history = None
        self.total = Total()
        self.last_task_at = {}
        self.slots = []
        self.alarms = Alarms()
        self.logs = LogBook(safe)
        self.stream = TaskStream()
        self.throughput = Throughput()
        self._remembered_at = 0.0
