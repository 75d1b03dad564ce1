"""A row per GPU, under its host: name, chosen columns that fit, and a history where there is room.

Pure but for the histories, which the watched cluster keeps.
"""

from collections.abc import Sequence

from gputui.slots import Slot
from gputui.tui.rendering import format as fmt
from gputui.tui.views.fleet.gpu_columns import (
    HISTORY_CELLS,
    OF_WORKERS_ALONE,
    Column,
    fitting,
    others,
)
from gputui.tui.views.fleet.host_rows import MARK, group_row
from gputui.tui.views.fleet.selection import Selection, alarm_role
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Line, Part, fitted

NAME_MOST = 24
HISTORY_FROM = 108
"""Columns of the terminal from which there is room for a history."""
STEP_READINGS = 5
"""Readings that one dot of the history is the mean of."""
OF_WORKERS = OF_WORKERS_ALONE | {"state", "mem"}
"""The columns that say something of a worker without a GPU."""


class GpuRows:
    """The rows of one drawing."""

    def __init__(
        self, selection: Selection, watched: Watched, columns: Sequence[Column], width: int
    ) -> None:
        self._selection, self._watched = selection, watched
        self._name_width = min(NAME_MOST, max(map(len, selection.slots), default=8))
        self._width = width
        self._history = width >= HISTORY_FROM and selection.on_gpus
        taken = self._name_width + 1 + (HISTORY_CELLS + 1 if self._history else 0)
        if not selection.on_gpus:
            columns = [column for column in columns if column.key in OF_WORKERS]
        self.columns = fitting(columns, width - taken)

    @property
    def heading(self) -> Line:
        """The titles, with an arrow at the one that is sorted by."""
        titles = [column.heading(self._arrow(column)) for column in self.columns]
        if self._history:
            titles.append(fitted("HISTORY", HISTORY_CELLS))
        first = fitted("GPU" if self._selection.on_gpus else "WORKER", self._name_width)
        return ((" ".join([" " + first, *titles]), "title"),)

    @property
    def headings(self) -> tuple[tuple[str, int], ...]:
        """The order that each title stands for, and its cells."""
        columns = ((column.key, column.width) for column in self.columns)
        return (("host", self._name_width), *columns)

    def _arrow(self, column: Column) -> str:
        if self._selection.sorted_by is not column:
            return ""
        return "▼" if column.falling != self._selection.backwards else "▲"

    def row(self, key: str) -> Line:
        """Return the row of a slot, or the heading over a host's slots."""
        slot = self._selection.slots.get(key)
        if slot is None:
            return self._host(key)
        parts: list[Part] = [*self._name_of(slot)]
        for cell in self._cells(slot):
            parts += [(" ", ""), cell]
        if self._history:
            parts += [(" ", ""), (self._history_of(slot), "busy")]
        return [(text, "dim") for text, _ in parts] if slot.dead else parts

    def _cells(self, slot: Slot) -> list[Part]:
        """Return a slot's cells; others' processes in place of those of the worker it lacks."""
        cells = [column.cell(slot) for column in self.columns]
        if slot.workers or not slot.foreign:
            return cells
        keys = [column.key for column in self.columns]
        empty = [place for place, key in enumerate(keys) if key in OF_WORKERS_ALONE]
        if not empty or "owner" in keys:
            return cells
        room = sum(self.columns[place].width + 1 for place in empty) - 1
        return [*cells[: empty[0]], others(slot, room), *cells[empty[-1] + 1 :]]

    def _host(self, name: str) -> Line:
        selection = self._selection
        return group_row(
            selection.hosts[name],
            selection.by_host[name],
            self._name_width,
            selection.now,
            self._width,
            folded=name in selection.folded,
            marked=name in selection.marked,
        )

    def _name_of(self, slot: Slot) -> tuple[Part, Part]:
        mark = (MARK, "accent") if slot.key in self._selection.marked else (" ", "")
        role = alarm_role(self._selection.alarms.get(slot.key, ()))
        return mark, (fitted(fmt.safe(slot.key), self._name_width), role)

    def _history_of(self, slot: Slot) -> str:
        if slot.device is None:
            return fmt.braille((), HISTORY_CELLS)
        steps = self._watched.history.steps(slot.device.uuid, STEP_READINGS, 2 * HISTORY_CELLS)
        return fmt.braille(fmt.shares(steps), HISTORY_CELLS)
