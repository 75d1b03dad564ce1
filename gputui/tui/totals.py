"""What all GPUs together did in the last minutes, and how fast the task groups finish."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gputui.readings import DeviceReading
from gputui.snapshot import TaskGroupStatus

KEPT = 120


@dataclass(frozen=True, slots=True)
class Total:
    """All GPUs together at one moment; None is not known."""

    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
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

    def add(self, devices: Sequence[DeviceReading], rates: Iterable[float | None]) -> None:
        """Take in the readings of all GPUs, and at what rate each group's tasks finish."""
        self.past.append(total_of(devices, rates))


def total_of(devices: Sequence[DeviceReading], rates: Iterable[float | None] = ()) -> Total:
    """Return some GPUs taken together."""
    busy = [d.utilization_percent for d in devices if d.utilization_percent is not None]
    used = [d.memory_used_bytes for d in devices if d.memory_used_bytes is not None]
    there = [d.memory_total_bytes for d in devices if d.memory_total_bytes is not None]
    drawn = [d.power_w for d in devices if d.power_w is not None]
    limit = [d.power_limit_w for d in devices if d.power_limit_w is not None]
    known = [rate for rate in rates if rate is not None]
    return Total(
        sum(busy) / len(busy) if busy else None,
        sum(used) if used else None,
        sum(there) if there else None,
        sum(drawn) if drawn else None,
        sum(limit) if limit else None,
        sum(known) if known else None,
    )


WINDOW_S = 20.0
SHORTEST_S = 1.5
"""A rate of less time than this would be noise."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a group goes on, and how long it will take at that."""

    tasks_per_s: float | None
    left_s: float | None


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

    def pace(self, group: TaskGroupStatus) -> Pace:
        """Return a group's pace, None where it is not known yet."""
        moments = self._seen.get(group.name)
        if not moments or moments[-1][0] - moments[0][0] < SHORTEST_S:
            return Pace(None, None)
        (begin, before), (end, after) = moments[0], moments[-1]
        rate = max(0, after - before) / (end - begin)
        left = group.total - group.finished
        return Pace(rate, left / rate if rate and left else (0.0 if not left else None))
