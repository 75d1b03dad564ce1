"""What the screen keeps over time, next to the histories: the fleet's totals, the pace of the task
groups, and the task stream. Pure.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

from gputui.model.readings import DeviceReading, HostReading
from gputui.model.series import MB, Row, percent
from gputui.model.snapshot import TaskGroupStatus, TaskSpan

Number = TypeVar("Number", int, float)
FLEET = ""
"""The fleet's key in the histories; its power is in percent of what it may draw."""


@dataclass(frozen=True, slots=True)
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


def total_of(devices: Sequence[DeviceReading], rates: Iterable[float | None]) -> Total:
    """Return some GPUs taken together, and all task groups by the rates at which tasks finish."""
    return Total(
        _mean(device.utilization_percent for device in devices),
        _sum(device.memory_used_bytes for device in devices),
        _sum(device.memory_total_bytes for device in devices),
        _sum(device.power_w for device in devices),
        _sum(device.power_limit_w for device in devices),
        tasks_per_s=_sum(rates),
    )


def total_of_hosts(hosts: Sequence[HostReading], rates: Iterable[float | None]) -> Total:
    """Return the CPUs and the memory of some hosts taken together."""
    return Total(
        _mean(host.cpu_percent for host in hosts),
        _sum(host.memory_used_bytes for host in hosts),
        _sum(host.memory_total_bytes for host in hosts),
        network_bytes_per_s=_sum(host.network_bytes_per_s for host in hosts),
        tasks_per_s=_sum(rates),
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


WINDOW_S = 20.0
SHORTEST_S = 1.5
"""A rate of less time than this would be noise."""
STANDSTILL_S = 10.0
"""How long no task has finished before the rate is 0, and not unknown."""


@dataclass(slots=True)
class Throughput:
    """The finished tasks of each group at the moments of the last `WINDOW_S` seconds."""

    _seen: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, groups: Iterable[TaskGroupStatus], at: float) -> None:
        """Take in the counts of this moment; groups that are gone are forgotten."""
        seen: dict[str, deque[tuple[float, int]]] = {}
        for group in groups:
            moments = self._seen.get(group.name, deque())
            if not moments or moments[-1][0] < at:
                moments.append((at, group.finished))
            while moments[0][0] < at - WINDOW_S:
                moments.popleft()
            seen[group.name] = moments
        self._seen = seen

    def rate(self, group: TaskGroupStatus) -> float | None:
        """Return the tasks of a group that finish in a second, None where it is not known yet."""
        moments = self._seen.get(group.name)
        if not moments:
            return None
        (begin, before), (end, after) = moments[0], moments[-1]
        known = after > before or group.finished == group.total
        if end - begin < (SHORTEST_S if known else STANDSTILL_S):
            return None
        return max(0, after - before) / (end - begin)

    def left_s(self, groups: Iterable[TaskGroupStatus]) -> float | None:
        """Return how long all groups together take at their present rate."""
        left = [(group.total - group.finished, self.rate(group) or 0.0) for group in groups]
        tasks, rate = map(sum, zip(*left, strict=True)) if left else (0, 0.0)
        return tasks / rate if tasks and rate else None


KEPT = 256
"""Columns (of `column_s` each) that are kept of every lane: more than any screen is wide."""
IDLE, ERRED, FIRST_PREFIX = 0, 1, 2
"""Codes of a column: nothing ran, a task failed, and from 2 on the place in the legend."""
MOST_PREFIXES = 250


@dataclass(slots=True)
class Lane:
    """One worker's activity, by column of time modulo `KEPT`."""

    codes: bytearray = field(default_factory=lambda: bytearray(KEPT))
    filled: bytearray = field(default_factory=lambda: bytearray(KEPT))
    """How much of a column its task filled, of 255; one that fills more replaces it."""


class TaskStream:
    """The lanes of all workers."""

    def __init__(self, column_s: float = 1.0) -> None:
        self.column_s = column_s
        self.prefixes: list[str] = []
        """The legend: prefixes in the order in which they were first seen."""
        self._lanes: dict[str, Lane] = {}
        self._codes: dict[str, int] = {}
        self._swept: int | None = None

    def add(self, spans: Iterable[TaskSpan], at: float) -> None:
        """Add tasks that ended; ignore those older than the oldest column."""
        now = int(at // self.column_s)
        self._sweep(now)
        for span in spans:
            self._fill(span, now)

    def _sweep(self, now: int) -> None:
        """Wipe the columns that time has come to since the last time."""
        last = now - KEPT if self._swept is None else max(self._swept, now - KEPT)
        places = [column % KEPT for column in range(last + 1, now + 1)]
        for lane in self._lanes.values():
            for place in places:
                lane.codes[place] = lane.filled[place] = 0
        self._swept = max(now, last)

    def _fill(self, span: TaskSpan, now: int) -> None:
        lane = self._lanes.get(span.worker)
        if lane is None:
            lane = self._lanes[span.worker] = Lane()
        begin = span.started_at / self.column_s
        end = begin + span.duration_s / self.column_s
        first, last = int(begin), int(end)
        code = ERRED if span.erred else self._code(span.prefix)
        for column in range(max(first, now - KEPT + 1), min(last, now) + 1):
            share = (end if column == last else column + 1) - (begin if column == first else column)
            filled = 255 if span.erred else int(254 * share)
            place = column % KEPT
            if filled >= lane.filled[place]:
                lane.codes[place], lane.filled[place] = code, filled

    def _code(self, prefix: str) -> int:
        code = self._codes.get(prefix)
        if code is None:
            code = self._codes[prefix] = FIRST_PREFIX + min(len(self.prefixes), MOST_PREFIXES)
            self.prefixes.append(prefix)
        return code

    def row(self, worker: str, at: float, width: int) -> bytes:
        """Return the code in each of `width` columns, the last of which is the moment `at`."""
        lane = self._lanes.get(worker)
        if lane is None:
            return bytes(width)
        shown = min(width, KEPT)
        end = int(at // self.column_s) % KEPT + 1
        turned = lane.codes[end:] + lane.codes[:end]
        return bytes(width - shown) + bytes(turned[KEPT - shown :])

    def keep(self, workers: Iterable[str]) -> None:
        """Forget the lanes of workers that are gone."""
        known = set(workers)
        for name in [name for name in self._lanes if name not in known]:
            del self._lanes[name]
