"""The tasks view: progress of every task group, and below it the task stream, a lane per worker."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message

from gputui.model.snapshot import TaskGroupStatus, WorkerStatus
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Matches, parse
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.gauges import axis
from gputui.tui.rendering.lines import Line, Part, fitted, whole_fields
from gputui.tui.rendering.palette import Palette
from gputui.tui.rendering.progress import progress_lines, work_lines
from gputui.tui.totals import ERRED, FIRST_PREFIX, IDLE, KEPT
from gputui.tui.views.view import View
from gputui.tui.views.workers_view import WORKER_FILTER
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import MOVES, Moving, Pane

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
    parts: list[Part] = [(name, "")]
    for code, run in groupby(codes):
        cells = len(list(run))
        if code == IDLE:
            parts.append((" " * cells, ""))
        elif code == ERRED:
            parts.append(("✖" * cells, "bad"))
        else:
            number = code - FIRST_PREFIX
            parts.append((palette.mark(number) * cells, palette.series(number)))
    return parts


class TaskPane(Moving, Pane):
    """Progress above, lanes below; `j` and `k` move through the lanes."""

    BINDINGS = MOVES

    class Moved(Message):
        """Other lanes are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.matches: Matches[WorkerStatus] | None = None
        self.lanes: list[str] = []
        self.top = 0
        self.room = 1
        self._draw_again: Callable[[], None] = lambda: None

    def draw(self, watched: Watched) -> None:
        """Draw the newest snapshot's groups and the lanes of its workers."""
        self._draw_again = lambda: self.draw(watched)
        snapshot, (width, height) = watched.snapshot, self.size
        if snapshot is None or not height:
            return
        most = max(2, min(height // 2, height - LEAST_LANES))
        lines = work_lines(snapshot, watched.throughput, width)
        lines += progress_lines(snapshot.groups, watched.throughput, width, most - len(lines))
        self.lanes = self._chosen(watched)
        self.room = max(0, height - len(lines) - 2)
        self.top = max(0, min(self.top, len(self.lanes) - self.room))
        self.put([*lines, *self._lane_lines(watched, snapshot.taken_at)])

    def _chosen(self, watched: Watched) -> list[str]:
        matches = self.matches
        return [each.name for each in watched.workers if matches is None or matches(each)]

    def _lane_lines(self, watched: Watched, at: float) -> list[Line]:
        """Return the legend, the ruler and the lanes in sight."""
        stream, palette = watched.stream, self.palette
        name_cells = min(24, max(map(len, self.lanes), default=0))
        columns = min(KEPT, max(1, self.size.width - name_cells - 1))
        seen = self.lanes[self.top : self.top + self.room]
        codes = [stream.row(name, at, columns) for name in seen]
        names = [fitted(fmt.safe(name), name_cells) + " " for name in seen]
        return [
            legend(stream.prefixes, {c for row in codes for c in row}, palette, self.size.width),
            [(" " * (name_cells + 1) + axis(columns * stream.column_s, columns), "dim")],
            *(lane_line(name, row, palette) for name, row in zip(names, codes, strict=True)),
        ]

    @property
    def rows_seen(self) -> int:
        """Lanes that are seen at once."""
        return self.room

    def action_move(self, rows: int) -> None:
        """Move through the lanes."""
        self.top = max(0, min(self.top + rows, len(self.lanes) - self.room))
        self._draw_again()
        self.post_message(self.Moved())

    def action_end(self, last: bool) -> None:
        """Go to the first or the last lane."""
        self.action_move(len(self.lanes) if last else -len(self.lanes))

    def on_resize(self) -> None:
        """Draw for the new size."""
        super().on_resize()
        self._draw_again()


class TasksView(View):
    """Progress by group and the task stream."""

    NAME = "tasks"
    FILTER = WORKER_FILTER
    COMMANDS: ClassVar[tuple[Command, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._pane = TaskPane()

    def compose(self) -> ComposeResult:
        """Lay out one pane."""
        yield self._pane

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot."""
        self._pane.draw(watched)

    def cells(self) -> list[list[str]]:
        """Return the task groups with all their counts."""
        snapshot = self.screen_app.watched.snapshot
        names = [field.name for field in fields(TaskGroupStatus)]
        groups = snapshot.groups if snapshot else ()
        return [names, *([str(getattr(group, name)) for name in names] for group in groups)]

    def on_task_pane_moved(self) -> None:
        """Say which lanes are seen."""
        self.screen_app.draw_crumbs()

    def crumbs(self) -> Line:
        """Say which lanes are seen."""
        pane = self._pane
        last = min(pane.top + pane.room, len(pane.lanes))
        text = f"lanes {min(pane.top + 1, last)}–{last} of {len(pane.lanes)}"
        return [(text, "dim"), (f"  /{self.filter_text}" if self.filter_text else "", "accent")]

    def go_to(self, key: str) -> None:
        """Bring a worker's lane into sight."""
        if key in self._pane.lanes:
            self._pane.action_move(self._pane.lanes.index(key) - self._pane.top)

    def narrow(self, text: str) -> None:
        """Show only lanes of workers that match; raises FilterError."""
        self._pane.matches = parse(text, WORKER_FILTER) if text else None
