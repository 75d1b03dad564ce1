"""The task stream: what each worker did in each of the last seconds, the present at the right.

A lane keeps its columns by time modulo `KEPT`: a second wipes one column and moves none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gputui.model.snapshot import TaskSpan

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
