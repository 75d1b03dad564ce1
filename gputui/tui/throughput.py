"""How fast task groups finish: what a snapshot counts, followed over the last seconds."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gputui.snapshot import TaskGroupStatus

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
        """Return a group's pace, None where it cannot be told yet."""
        moments = self._seen.get(group.name)
        if not moments or moments[-1][0] - moments[0][0] < SHORTEST_S:
            return Pace(None, None)
        (begin, before), (end, after) = moments[0], moments[-1]
        rate = max(0, after - before) / (end - begin)
        left = group.total - group.finished
        return Pace(rate, left / rate if rate and left else (0.0 if not left else None))
