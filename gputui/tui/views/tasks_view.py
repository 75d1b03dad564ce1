"""The tasks view: progress of every task group, and below it the task stream, a lane per worker."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import groupby

from textual.app import ComposeResult

from gputui.model.snapshot import TaskGroupStatus, WorkerStatus
from gputui.tui.rendering import Line, Part, axis, fitted, whole_fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.palette import Palette
from gputui.tui.rendering.work import progress_lines, work_lines
from gputui.tui.views.lists import WorkersView
from gputui.tui.watched import ERRED, FIRST_PREFIX, IDLE, KEPT, Watched
from gputui.tui.widgets import Pane

NAME_MOST = 24
LEAST_LANES = 3
"""Rows that progress leaves to the task stream, with its heading."""


def legend(prefixes: Sequence[str], seen: Iterable[int], palette: Palette, width: int) -> Line:
    """Return the legend of the marks in sight, each whole."""
    parts: list[Part] = [("TASK STREAM", "heading"), ("  ✖ ", "bad"), ("failed", "dim")]
    for code in sorted(set(seen) - {IDLE, ERRED}):
        number = code - FIRST_PREFIX
        name = fmt.safe(prefixes[number]) if number < len(prefixes) else "others"
        parts += [(f"  {palette.mark(number)} ", palette.series(number)), (name, "")]
    return whole_fields(parts, width)


def lane_line(name: str, codes: bytes, palette: Palette) -> Line:
    """Return one worker's lane."""
    marks = {IDLE: (" ", ""), ERRED: ("✖", "bad")}
    parts: list[Part] = [(name, "")]
    for code, run in groupby(codes):
        number = code - FIRST_PREFIX
        mark, role = marks.get(code) or (palette.mark(number), palette.series(number))
        parts.append((mark * len(list(run)), role))
    return parts


class TasksView(WorkersView):
    """Progress by group, and the task stream: a lane in place of each worker's row."""

    NAME = "tasks"
    COLUMNS = ()
    COMMANDS = ()

    def __init__(self) -> None:
        super().__init__()
        self._pane = Pane()
        self._names = self._cells = 0
        """Cells of a worker's name, and of its lane."""

    def compose(self) -> ComposeResult:
        """Lay out progress above the lanes."""
        yield from (self._pane, self.table)

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot's groups and the lanes of its workers."""
        snapshot, (width, height) = watched.snapshot, self.size
        if not height:
            return
        most = max(2, min(height // 2, height - LEAST_LANES))
        lines = work_lines(snapshot, watched.throughput, width)
        lines += progress_lines(snapshot.groups, watched.throughput, width, most - len(lines))
        self.show_rows(self.matching(watched))
        seen = {code for name in self.table.keys_seen for code in self._lane(name)}
        if len(lines) + 1 != len([*self._pane.lines]):  # the lanes will have another height
            self.call_after_refresh(self.screen_app.redraw)
        self._pane.put_whole(
            [*lines, legend(watched.stream.prefixes, seen, self.table.palette, width)]
        )

    def show_rows(self, values: Iterable[WorkerStatus]) -> None:
        """Draw the lanes of these workers under a ruler."""
        self._values = {value.name: value for value in values}
        self._names = min(NAME_MOST, max(map(len, self._values), default=0)) + 1
        self._cells = min(KEPT, max(1, self.table.scrollable_content_region.width - self._names))
        ruler = axis(self._cells, self._cells)
        self.table.show([(" " * self._names + ruler, "dim")], list(self._values), self.line)

    def line(self, key: str) -> Line:
        """Return a worker's lane."""
        name = fitted(fmt.safe(key), self._names - 1) + " "
        return lane_line(name, self._lane(key), self.table.palette)

    def _lane(self, name: str) -> bytes:
        return self.screen_app.watched.stream.row(name, self._cells)

    def cells(self) -> list[list[str]]:
        """Return the task groups with all their counts."""
        groups = self.screen_app.watched.snapshot.groups
        names = [field.name for field in fields(TaskGroupStatus)]
        return [names, *([str(getattr(group, name)) for name in names] for group in groups)]

    def moved(self) -> None:
        """Name the lanes that came into sight, and their tasks."""
        self.call_after_refresh(self.screen_app.redraw)

    def crumbs(self) -> Line:
        """Say which lanes are seen."""
        top, lanes = self.table.scroll_offset.y, len(self._values)
        last = min(top + self.table.rows_seen, lanes)
        return [(f"lanes {min(top + 1, last)}–{last} of {lanes}", "dim"), *self.narrowed()]
