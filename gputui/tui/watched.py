"""A cluster as the screen has seen it: the newest snapshot, and what came before.

It keeps no truth of its own: everything here came from the head, and another head begins another.
A snapshot older than the newest is not taken.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from gputui.model.alarms import AlarmKind, Alarms
from gputui.model.frozen import frozen
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.series import MB, Row, of_device, of_host, of_worker, percent
from gputui.model.slots import Slot, on_gpus, slots_of
from gputui.model.snapshot import (
    ClusterState,
    Event,
    HostState,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerStatus,
)
from gputui.tui.widgets.logbook import LogBook

if TYPE_CHECKING:
    from gputui.model.history import History
    from gputui.protocol.frontend import Asked
    from gputui.runs.playback import RecordedRun

Value = TypeVar("Value", int, float)
EVENTS_KEPT = 5_000
LOGIN = 0
"""The number of a question of the head's machine; a head counts its own from 1."""
FINE_KEPT, COARSE_KEPT = 240, 480
"""Readings kept: those of a graph, and as much again for a wide one and for steps not whole."""
SHORTEST_STEP_S = 0.8
"""Snapshots that come closer to each other add nothing to the histories."""
FLEET = ""
"""The fleet's key in the histories; its power is in percent of what it may draw."""


@frozen
class Total:
    """All GPUs together at one moment, or hosts without any; None is not known."""

    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    network_bytes_per_s: float | None = None
    """Of hosts without GPUs."""
    tasks_per_s: float | None = None

    @property
    def row(self) -> Row:
        """Its row of the histories."""
        memory = percent(self.memory_used_bytes, self.memory_total_bytes)
        power, network = percent(self.power_w, self.power_limit_w), self.network_bytes_per_s
        network = None if network is None else network / MB
        return self.utilization_percent, memory, power, None, network, self.tasks_per_s


def total_of(
    devices: Sequence[DeviceReading], hosts: Sequence[HostReading], rates: Iterable[float | None]
) -> Total:
    """Return GPUs taken together, hosts without any GPU, and the rates of task groups."""
    used = _known([device.utilization_percent for device in devices])
    used = used or _known([host.cpu_percent for host in hosts])
    return Total(
        fmean(used) if used else None,
        _sum(each.memory_used_bytes for each in devices or hosts),
        _sum(each.memory_total_bytes for each in devices or hosts),
        _sum(device.power_w for device in devices),
        _sum(device.power_limit_w for device in devices),
        _sum(host.network_bytes_per_s for host in hosts),
        _sum(rates),
    )


def _known(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[Value | None]) -> Value | None:
    known = _known(values)
    return sum(known) if known else None


WINDOW_S = 20.0
SHORTEST_S = 1.5
"""A rate of less time than this would be noise."""
STANDSTILL_S = 10.0
"""How long no task has finished before the rate is 0, and not unknown."""


class Throughput:
    """The finished tasks of each group at the moments of the last `WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def look(self, groups: Iterable[TaskGroupStatus], at: float) -> None:
        """Take in the counts of this moment; groups that are gone are forgotten."""
        self._seen = {group.name: self._seen.get(group.name, deque()) for group in groups}
        for group in groups:
            moments = self._seen[group.name]
            moments.append((at, group.finished))
            while moments[0][0] < at - WINDOW_S:
                moments.popleft()

    def rate(self, group: TaskGroupStatus) -> float | None:
        """Return the tasks of a group that finish in a second, None where it is not known yet."""
        if not (moments := self._seen.get(group.name)):
            return None
        (begin, before), (end, after) = moments[0], moments[-1]
        known = after > before or group.finished == group.total
        if end - begin < (SHORTEST_S if known else STANDSTILL_S):
            return None
        return max(0, after - before) / (end - begin)

    def left_s(self, groups: Sequence[TaskGroupStatus]) -> float | None:
        """Return how long all groups together take at their present rate."""
        tasks = sum(group.total - group.finished for group in groups)
        rate = sum(self.rate(group) or 0.0 for group in groups)
        return tasks / rate if tasks and rate else None


KEPT = 256
"""Seconds that are kept of every worker: more than any screen has columns."""
IDLE, ERRED, FIRST_PREFIX = 0, 1, 2
"""Codes of a second: nothing ran, a task failed, and from 2 on the place in the legend."""
MOST_PREFIXES = 250


class TaskStream:
    """What each worker did in each of the last seconds."""

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        """The legend: prefixes in the order in which they were first seen."""
        self._lanes: dict[str, bytearray] = {}
        """By worker, the code of each second."""
        self._now = 0

    def add(self, spans: Iterable[TaskSpan], at: float) -> None:
        """Add tasks that ended, and move on to this second."""
        passed, self._now = int(at) - self._now, int(at)
        if passed < 0:  # the clock was put back
            self._lanes.clear()
        for lane in self._lanes.values():
            del lane[:passed]
            lane.extend(bytes(KEPT - len(lane)))
        for span in spans:
            self._fill(span)

    def _fill(self, span: TaskSpan) -> None:
        """Put a task into the seconds in which it ran; one that failed stays there."""
        if span.prefix not in self.prefixes:
            self.prefixes.append(span.prefix)
        code = FIRST_PREFIX + min(self.prefixes.index(span.prefix), MOST_PREFIXES)
        lane, now = self._lanes.setdefault(span.worker, bytearray(KEPT)), self._now
        begin, end = int(span.started_at), int(span.started_at + span.duration_s)
        for second in range(max(begin, now - KEPT + 1), min(end, now) + 1):
            if lane[second - now - 1] != ERRED:
                lane[second - now - 1] = ERRED if span.erred else code

    def row(self, worker: str, width: int) -> bytes:
        """Return the code of each of the last `width` seconds."""
        return bytes(self._lanes.get(worker, b"")[-width:]).rjust(width, b"\0")

    def keep(self, workers: Collection[str]) -> None:
        """Forget the lanes of workers that are gone."""
        self._lanes = {name: lane for name, lane in self._lanes.items() if name in workers}


NOTHING_YET = Snapshot(
    -1, 0.0, "", ClusterState.STARTING, 0.0, SchedulerStatus(SchedulerState.NONE)
)
"""A cluster before the head has said anything of it; it alone has no name."""


@dataclass
class Watched:
    """The cluster as it was last seen."""

    snapshot: Snapshot = NOTHING_YET
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    questions: "dict[int, Asked]" = field(default_factory=dict)
    """Open questions to a person, by number."""
    total: Total = field(default_factory=Total)
    """What all GPUs together do."""
    last_task_at: dict[str, float] = field(default_factory=dict)
    """When each worker was last seen to run a task."""
    logs: LogBook = field(default_factory=LogBook)
    """What workers printed since somebody asked for it."""
    stream: TaskStream = field(default_factory=TaskStream)
    """What each worker did in the last minutes."""
    throughput: Throughput = field(default_factory=Throughput)
    slots: list[Slot] = field(default_factory=list)
    """The places of the newest snapshot that a worker can have."""
    workers: Sequence[WorkerStatus] = ()
    """Every worker, host by host and GPU by GPU."""
    alarms: Alarms = field(default_factory=Alarms)
    by_subject: Mapping[str, list[AlarmKind]] = field(default_factory=dict)
    """The kinds of alarms of each slot and host, the serious ones first."""
    _remembered_at: float = 0.0

    @cached_property
    def history(self) -> "History":
        """What each GPU, CPU worker and host of those did in the last hour."""
        from gputui.model.history import History  # NumPy, for which the first frame does not wait

        return History(FINE_KEPT, COARSE_KEPT)

    def take(self, snapshot: Snapshot) -> bool:
        """Set the snapshot; return whether it is newer than the last."""
        if snapshot.sequence <= self.snapshot.sequence:
            return False
        self.snapshot = snapshot
        self.slots = slots_of(snapshot)
        placed = {worker.name: worker for slot in self.slots for worker in slot.workers}
        others = {worker.name: worker for worker in snapshot.workers if worker.name not in placed}
        self.workers = [*placed.values(), *others.values()]
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
        self.stream.keep({worker.name for worker in snapshot.workers})
        for worker in snapshot.workers:
            if worker.current_task or worker.executing:
                self.last_task_at[worker.name] = at
        ready = {host.name: host for host in snapshot.hosts if host.state is HostState.READY}
        devices = [device for host in ready.values() for device in host.devices]
        on_cpus = [
            worker
            for slot in self.slots
            if slot.device is None and slot.host.name in ready
            for worker in slot.workers
        ]
        hosts = {worker.host: ready[worker.host].reading for worker in on_cpus}
        rates = [self.throughput.rate(group) for group in snapshot.groups]
        self.total = total_of(devices, () if devices else [*hosts.values()], rates)
        read = {device.uuid: of_device(device) for device in devices}
        read |= {worker.name: of_worker(worker) for worker in on_cpus}
        read |= {name: of_host(reading) for name, reading in hosts.items()}
        read[FLEET] = self.total.row
        self.history.add(at, tuple(read), [*read.values()], len(devices) or len(on_cpus))

    @property
    def on_gpus(self) -> bool:
        """Whether any slot is a GPU, or no slot is known yet; otherwise they are CPU workers."""
        return on_gpus(self.slots)

    @property
    def watching(self) -> bool:
        """Whether no worker is wanted: there is no scheduler."""
        return self.snapshot.state is ClusterState.WATCHING


LOOK_BACK_S = 240
"""How much of a recording the graphs and the task stream show after a step back."""
MOST_LOOKED_BACK = 25_000
"""Readings of GPUs that are taken for a move, at 10 µs each: of large fleets less is shown."""


class Playback:
    """A run's recording, with a cursor in time."""

    def __init__(self, recorded: "RecordedRun") -> None:
        self.recorded = recorded
        self.second = 0
        """The cursor: seconds since the first reading."""
        self.watched = Watched()
        """The cluster as it would have been seen then."""
        self._take(0, -math.inf)

    @property
    def step_s(self) -> float:
        """The seconds between two of its readings."""
        return max(1.0, self.recorded.step_s)

    def move(self, by_s: float) -> None:
        """Move the cursor, no further than the recording goes."""
        before, self.second = self.second, self.second + round(by_s)
        self.second = max(0, min(self.second, self.recorded.seconds))
        look_back = min(LOOK_BACK_S, MOST_LOOKED_BACK // (1 + len(self.watched.slots)))
        if 0 <= self.second - before <= look_back:
            self._take(before + 1, before)
        else:
            self.watched = Watched()
            self._take(max(0, self.second - look_back), -math.inf)

    def _take(self, first: int, printed_after: float) -> None:
        """Take in what was seen from a second on, and what was printed since another."""
        for second in range(first, self.second + 1):
            self.watched.take(self.recorded.snapshot(second))
        for lines in self.recorded.printed(printed_after, self.second):
            self.watched.logs.add(lines)
