"""The flight recorder of a run: snapshots in; its usage, and its telemetry in at most 2 MB, out.

Sums are exact, whatever is thinned out: the telemetry of a GPU is a row a second at first, and with
each halving a row for twice as long (mean utilisation, most memory, mean power); of tasks' spans
every second one goes. Time that no snapshot tells of, and a clock that jumps, count for nothing. It
reads no clock and no file.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputui.model.plain_text import cut
from gputui.model.readings import IDLE_PERCENT, DeviceReading
from gputui.model.snapshot import (
    HostStatus,
    SchedulerState,
    Snapshot,
    TaskSpan,
    WorkerState,
    WorkerStatus,
)
from gputui.model.usage import DeviceUsage, Idle, PrefixUsage, Usage, Way
from gputui.runs.telemetry import MIB, VERSION, DeviceTelemetry, Row, Telemetry

MOST_ROWS = 80_000
"""Of all GPUs together, and of times; each takes up to 17 bytes as JSON."""
MOST_SPANS = 12_000
MOST_NAMES = 2_000
"""Of prefixes and workers that are counted apart; further ones are one, "other"."""
NAME_CHARS = 100
SLOWEST = 10
LONGEST_GAP_S = 30.0
J_PER_WH = 3600.0


@dataclass(slots=True)
class Mean:
    """The mean of a reading over time, and its peak."""

    peak: float | None = None
    _sum: float = 0.0
    _seconds: float = 0.0

    def add(self, value: float | None, for_s: float) -> None:
        """Take in a reading that held for some seconds."""
        if value is not None:
            self._sum += value * for_s
            self._seconds += for_s
            if self.peak is None or value > self.peak:
                self.peak = value

    @property
    def value(self) -> float | None:
        """The mean; None where nothing was read."""
        return self._sum / self._seconds if self._seconds else self.peak


@dataclass(slots=True)
class Energy:
    """A GPU's energy: its counter between two changes of it, its power before and afterwards.

    The counter is read every ten seconds: when it changes it is new, and what it adds is exact.
    """

    _counter_j: float | None = None
    _known: bool = False
    """Whether the counter has changed: the first value may be ten seconds old."""
    _sure_j: float = 0.0
    _since_j: float = 0.0

    def add(self, counter_j: float | None, power_w: float | None, for_s: float) -> None:
        """Take in the readings after some seconds."""
        self._since_j += (power_w or 0.0) * for_s
        before = self._counter_j
        if counter_j is None or counter_j == before:
            return
        if before is not None:
            exact = self._known and counter_j > before  # it begins at 0 with the driver
            self._sure_j += counter_j - before if exact else self._since_j
            self._since_j, self._known = 0.0, True
        self._counter_j = counter_j

    @property
    def total_wh(self) -> float | None:
        """All of it; None without a counter and without power."""
        total_wh = (self._sure_j + self._since_j) / J_PER_WH
        return total_wh if total_wh or self._counter_j is not None else None


@dataclass(slots=True)
class Device:
    """One GPU as it is recorded."""

    name: str
    reading: DeviceReading
    """The first."""
    rows: list[Row | None]
    at: float
    """When it was last read, or became the run's."""
    open: list[Row] = field(default_factory=list)
    """Rows of the step that goes on."""
    utilization: Mean = field(default_factory=Mean)
    memory: Mean = field(default_factory=Mean)
    energy: Energy = field(default_factory=Energy)
    seconds: float = 0.0
    """How long it was the run's."""
    nvlink_bytes: float = 0.0
    idle: dict[Idle, float] = field(default_factory=dict)

    @property
    def usage(self) -> DeviceUsage:
        """What it did."""
        return DeviceUsage(
            self.name,
            self.reading.uuid,
            memory_peak_bytes=_rounded(self.memory.peak, None),
            memory_mean_bytes=_rounded(self.memory.value, None),
            utilization_percent=_rounded(self.utilization.value),
            energy_wh=_rounded(self.energy.total_wh, 3),
            idle_s=round(sum(self.idle.values()), 1),
            idle_why=_longest(self.idle),
        )


class FlightRecorder:
    """Records a run from the snapshots of its cluster; `uuids` are its GPUs, None those of all
    workers."""

    def __init__(self, uuids: Collection[str] | None = None) -> None:
        self.uuids = uuids
        self._at: float | None = None
        self._watched_s = 0.0
        self._step_s = 1.0
        self._row_at = 0.0
        self._times: list[float] = []
        self._devices: dict[str, Device] = {}
        self._host_memory = Mean()
        self._network_bytes = 0.0
        self._prefixes: dict[str, PrefixUsage] = {}
        self._prefixes_before: dict[str, PrefixUsage] | None = None
        self._moved = Counter[Way]()
        self._moved_before: dict[str, dict[Way, int]] = {}
        """The counts of each worker, when it was last seen."""
        self._spans: list[TaskSpan] = []
        self._spans_seen, self._spans_every = 0, 1

    def look(self, snapshot: Snapshot) -> None:
        """Take in what holds in a snapshot."""
        at = snapshot.taken_at
        for_s = 0.0 if self._at is None else at - self._at
        if not 0.0 <= for_s <= LONGEST_GAP_S:
            for_s = 0.0
            for device in self._devices.values():
                device.at = at
        self._at = at
        self._watched_s += for_s
        workers: dict[str | None, list[WorkerStatus]] = {}
        for worker in snapshot.workers:
            workers.setdefault(worker.device_uuid, []).append(worker)
        uuids = workers if self.uuids is None else self.uuids
        why_all = _why_all(snapshot)
        for host in snapshot.hosts:
            found = [device for device in host.devices if device.uuid in uuids]
            for reading in found:
                self._add(host, reading, workers.get(reading.uuid, ()), why_all, at)
            if found or (self.uuids is None and None in workers):
                self._network_bytes += (host.reading.network_receive_bytes_per_s or 0.0) * for_s
        if self.uuids is None:
            self._count_moved(snapshot.workers)
            resident = [each.rss_bytes for each in snapshot.workers if each.rss_bytes is not None]
            self._host_memory.add(sum(resident) if resident else None, for_s)
        self._count_tasks(snapshot.prefixes)
        self._keep_spans(snapshot.spans)
        if at >= self._row_at + self._step_s or at < self._row_at:
            self._end_row(at)

    def _add(
        self,
        host: HostStatus,
        reading: DeviceReading,
        workers: Sequence[WorkerStatus],
        why_all: Idle | None,
        at: float,
    ) -> None:
        """Take in a GPU's reading: it holds from when the one before was read until it was."""
        if reading.uuid not in self._devices:
            name = f"{host.name}:{reading.short_name}"
            self._devices[reading.uuid] = Device(name, reading, [None] * len(self._times), at)
        device = self._devices[reading.uuid]
        read_at = at if host.read_at is None else min(at, host.read_at)
        for_s = max(0.0, read_at - device.at)
        device.at += for_s
        for_s = for_s if for_s <= LONGEST_GAP_S else 0.0
        device.seconds += for_s
        if reading.lost or reading.stale:
            return
        busy, power = reading.utilization_percent, reading.power_w
        used = reading.memory_used_bytes
        device.utilization.add(busy, for_s)
        device.memory.add(used, for_s)
        device.energy.add(reading.energy_j, power, for_s)
        device.nvlink_bytes += (reading.nvlink_bytes_per_s or 0.0) * for_s
        if busy is not None and busy < IDLE_PERCENT:
            why = Idle.UNKNOWN if self.uuids is not None else _why(workers, why_all)
            device.idle[why] = device.idle.get(why, 0.0) + for_s
        device.open.append(
            (
                None if busy is None else round(busy),
                None if used is None else used // MIB,
                None if power is None else round(power),
            )
        )

    def _count_moved(self, workers: Iterable[WorkerStatus]) -> None:
        """Count what came to workers since they were last seen; one that started again is at 0."""
        begun = bool(self._moved_before)
        for worker in workers:
            now = dict(worker.moved)
            before = self._moved_before.get(worker.name, {} if begun else now)
            for way, size in now.items():
                known = before.get(way, 0)
                self._moved[way] += size - known if size >= known else size
            self._moved_before[worker.name] = now or before

    def _count_tasks(self, prefixes: Iterable[PrefixUsage]) -> None:
        """Take in what tasks did so far; before the run, at first."""
        self._prefixes |= {each.prefix: each for each in prefixes}
        if self._prefixes_before is None:
            self._prefixes_before = dict(self._prefixes)

    def _slowest(self) -> tuple[PrefixUsage, ...]:
        """Return the prefixes that computed longest."""
        found = []
        for name, now in self._prefixes.items():
            was = (self._prefixes_before or {}).get(name, PrefixUsage(name, 0, 0.0, 0.0))
            compute_s, transfer_s = now.compute_s - was.compute_s, now.transfer_s - was.transfer_s
            found.append(PrefixUsage(name, now.tasks - was.tasks, compute_s, transfer_s))
        ranked = sorted(found, key=lambda each: -each.compute_s)
        return tuple(each for each in ranked if each.tasks)[:SLOWEST]

    def _end_row(self, at: float) -> None:
        """End a row of every GPU; with too many rows, merge each two."""
        self._row_at = at
        self._times.append(at)
        for device in self._devices.values():
            device.rows.append(_merged(device.open))
            device.open.clear()
        columns = 1 + len(self._devices)
        if len(self._times) * columns > MOST_ROWS and len(self._times) % 2 == 0:
            self._times = self._times[1::2]
            self._step_s *= 2
            for device in self._devices.values():
                pairs = zip(device.rows[::2], device.rows[1::2], strict=True)
                device.rows = [_merged([row for row in pair if row]) for pair in pairs]

    def _keep_spans(self, spans: Iterable[TaskSpan]) -> None:
        for span in spans:
            self._spans_seen += 1
            if self._spans_seen % self._spans_every == 0:
                self._spans.append(span)
        if len(self._spans) > MOST_SPANS:
            self._spans = self._spans[1::2]
            self._spans_every *= 2

    @property
    def usage(self) -> Usage | None:
        """What the run took so far; None before anything was seen."""
        if self._at is None:
            return None
        devices = tuple(device.usage for device in self._devices.values())
        each = self._devices.values()
        idle: dict[Idle, float] = {}
        for device in each:
            for why, seconds in device.idle.items():
                idle[why] = idle.get(why, 0.0) + seconds
        energy_wh = _known(device.energy.total_wh for device in each)
        memory = _known(device.memory.value for device in each)
        busy = _known(device.utilization.value for device in each)
        return Usage(
            watched_s=round(self._watched_s, 1),
            gpus=len(devices),
            gpu_hours=round(sum(device.seconds for device in each) / 3600, 6),
            energy_wh=round(sum(energy_wh), 3) if energy_wh else None,
            utilization_percent=_rounded(sum(busy) / len(busy)) if busy else None,
            device_memory_peak_bytes=_rounded(
                max(_known(device.memory.peak for device in each), default=None), None
            ),
            device_memory_mean_bytes=_rounded(sum(memory) / len(memory), None) if memory else None,
            host_memory_peak_bytes=_rounded(self._host_memory.peak, None),
            host_memory_mean_bytes=_rounded(self._host_memory.value, None),
            # What one sends another receives.
            moved=tuple(self._moved.most_common()),
            nvlink_bytes=_rounded(sum(device.nvlink_bytes for device in each) / 2, None) or None,
            network_bytes=_rounded(self._network_bytes, None) or None,
            idle_s=round(sum(idle.values()), 1),
            idle_why=_longest(idle),
            slowest=self._slowest(),
            devices=devices,
        )

    @property
    def telemetry(self) -> Telemetry:
        """The rows and spans so far."""
        names: dict[str, int] = {}

        def number(name: str) -> int:
            name = cut(name, NAME_CHARS)
            full = len(names) >= MOST_NAMES and name not in names
            return names.setdefault("other" if full else name, len(names))

        spans = [
            (
                number(span.worker),
                number(span.prefix),
                round(span.started_at, 3),
                round(span.duration_s, 3),
                span.erred,
            )
            for span in self._spans
        ]
        devices = [
            DeviceTelemetry(
                each.name,
                uuid,
                each.rows,
                each.reading.name,
                each.reading.memory_total_bytes,
                each.reading.power_limit_w,
            )
            for uuid, each in self._devices.items()
        ]
        times = [round(at, 1) for at in self._times]
        return Telemetry(
            VERSION, self._step_s, times, devices, list(names), spans, self._spans_every
        )


def _why_all(snapshot: Snapshot) -> Idle | None:
    """Return why every worker without a task waits."""
    scheduler = snapshot.scheduler
    if scheduler.state is SchedulerState.BUSY or scheduler.queued:
        return Idle.SCHEDULER
    waiting = any(group.waiting for group in snapshot.groups)
    working = any(worker.tasks for worker in snapshot.workers)
    return Idle.NO_WORK if not waiting else Idle.TASKS if working else None


def _why(workers: Sequence[WorkerStatus], why_all: Idle | None) -> Idle:
    """Return why a GPU with these workers does nothing."""
    if any(worker.executing and not worker.fetching for worker in workers):
        return Idle.CPU
    if any(worker.state is WorkerState.PAUSED for worker in workers):
        return Idle.PAUSED
    if not any(worker.state.up for worker in workers):
        return Idle.NO_WORKER
    if any(worker.fetching or worker.ready for worker in workers):
        return Idle.DATA  # the scheduler gave it tasks, and none can run yet
    return why_all or Idle.UNKNOWN


def _merged(rows: Sequence[Row]) -> Row | None:
    """Return one row for several: mean, most, mean."""
    if len(rows) < 2:
        return rows[0] if rows else None
    busy, memory, power = (_known(column) for column in zip(*rows, strict=True))
    return (
        round(sum(busy) / len(busy)) if busy else None,
        max(memory, default=None),
        round(sum(power) / len(power)) if power else None,
    )


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _longest(idle: dict[Idle, float]) -> tuple[tuple[Idle, float], ...]:
    ranked = sorted(idle.items(), key=lambda item: -item[1])
    return tuple((why, round(seconds, 1)) for why, seconds in ranked if seconds)


def _rounded(value: float | None, digits: int | None = 1) -> Any:
    """Return a number with so many digits, without as an integer; None stays None."""
    return None if value is None else round(value, digits)
