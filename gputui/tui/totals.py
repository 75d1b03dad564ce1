"""The whole fleet in the last minutes, and the pace of the task groups."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gputui.model.readings import DeviceReading, HostReading
from gputui.model.snapshot import TaskGroupStatus

Number = TypeVar("Number", int, float)
KEPT = 120


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
    def memory_share(self) -> float | None:
        """Of all memory, how much is used."""
        used, total = self.memory_used_bytes, self.memory_total_bytes
        return None if used is None or not total else used / total

    @property
    def power_share(self) -> float | None:
        """Of what all may draw, how much they do."""
        drawn, limit = self.power_w, self.power_limit_w
        return None if drawn is None or not limit else drawn / limit


@dataclass(slots=True)
class Totals:
    """The totals of the last two minutes, the newest last."""

    past: deque[Total] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def now(self) -> Total:
        """The newest."""
        return self.past[-1] if self.past else Total()

    def add(self, total: Total, rates: Iterable[float | None]) -> None:
        """Take in the newest, and at what rate each group's tasks finish."""
        self.past.append(replace(total, tasks_per_s=_sum(rates)))


def total_of(devices: Sequence[DeviceReading]) -> Total:
    """Return some GPUs taken together."""
    return Total(
        _mean(device.utilization_percent for device in devices),
        _sum(device.memory_used_bytes for device in devices),
        _sum(device.memory_total_bytes for device in devices),
        _sum(device.power_w for device in devices),
        _sum(device.power_limit_w for device in devices),
    )


def total_of_hosts(readings: Iterable[HostReading]) -> Total:
    """Return the CPUs and the memory of some hosts taken together."""
    hosts = list(readings)
    return Total(
        _mean(host.cpu_percent for host in hosts),
        _sum(host.memory_used_bytes for host in hosts),
        _sum(host.memory_total_bytes for host in hosts),
        network_bytes_per_s=_sum(host.network_bytes_per_s for host in hosts),
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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
