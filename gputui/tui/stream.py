"""The task stream as text: a lane per worker, a cell per moment, drawn like an oscilloscope.

Time runs to the right and begins again at the left, so that each second only the cells under
the cursor change and the rest of a lane stays as it was: a stream that scrolled would send all
of every lane to the terminal each second.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gputui.snapshot import TaskSpan

EMPTY = ""
ERRED = "!"


@dataclass(slots=True)
class Lane:
    """What one worker did, by column: the prefix of the task that filled most of it."""

    prefixes: list[str]
    filled_s: list[float]
    """How long the task in that column filled it; a longer one replaces it."""


@dataclass(slots=True)
class Stream:
    """The lanes of all workers over the last `columns * column_s` seconds."""

    columns: int
    column_s: float = 1.0
    lanes: dict[str, Lane] = field(default_factory=dict)
    prefixes: dict[str, int] = field(default_factory=dict)
    """Prefix → its place in the legend, in the order in which they were first seen."""
    _swept: int | None = None
    """The last column in time that was wiped for new tasks."""

    def cursor(self, at: float) -> int:
        """Return the column of this moment."""
        return int(at // self.column_s) % self.columns

    def add(self, spans: Iterable[TaskSpan], at: float) -> None:
        """Take in the tasks that ended; those longer ago than the screen is wide are let be."""
        self._sweep(at)
        for span in spans:
            self.prefixes.setdefault(span.prefix, len(self.prefixes))
            self._fill(span, at)

    def _sweep(self, at: float) -> None:
        """Wipe the columns that time has come to since the last time."""
        now = int(at // self.column_s)
        last = now - self.columns if self._swept is None else self._swept
        for column in range(max(last, now - self.columns) + 1, now + 1):
            place = column % self.columns
            for lane in self.lanes.values():
                lane.prefixes[place] = EMPTY
                lane.filled_s[place] = 0.0
        self._swept = now

    def _fill(self, span: TaskSpan, at: float) -> None:
        lane = self.lanes.get(span.worker)
        if lane is None:
            lane = Lane([EMPTY] * self.columns, [0.0] * self.columns)
            self.lanes[span.worker] = lane
        width, ended_at = self.column_s, span.started_at + span.duration_s
        now = int(at // width)
        first = max(int(span.started_at // width), now - self.columns + 1)
        for column in range(first, min(int(ended_at // width), now) + 1):
            place = column % self.columns
            begin = max(span.started_at, column * width)
            filled_s = min(ended_at, (column + 1) * width) - begin
            if span.erred:
                lane.prefixes[place], lane.filled_s[place] = ERRED, width
            elif filled_s >= lane.filled_s[place]:
                lane.prefixes[place], lane.filled_s[place] = span.prefix, filled_s

    def lane(self, worker: str) -> list[str]:
        """Return the prefix in each column of a worker, EMPTY where it did nothing."""
        lane = self.lanes.get(worker)
        return lane.prefixes if lane else [EMPTY] * self.columns

    def keep(self, workers: Iterable[str]) -> None:
        """Forget the lanes of workers that are gone."""
        known = set(workers)
        for name in [name for name in self.lanes if name not in known]:
            del self.lanes[name]
