"""A row per GPU under its host: alarm, name, and the columns that fit.

Pure but for the histories, which the watched cluster keeps.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from rich.cells import cell_len

from gputui.model.readings import Owner
from gputui.model.series import Metric, Span
from gputui.model.slots import Slot
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import MARK, Cell, Column, fitting, row, texts, titles
from gputui.tui.rendering.gauges import spark
from gputui.tui.rendering.lines import Line, Part, faded, fitted
from gputui.tui.rendering.marks import slot_state, state_cell
from gputui.tui.views.fleet.gpu_columns import HISTORY, STATE, TASK, of_cpu_workers
from gputui.tui.views.fleet.heat_cells import HeatLook
from gputui.tui.views.fleet.host_rows import group_row
from gputui.tui.views.fleet.selection import Selection, alarm_role
from gputui.tui.watched import Watched

NAME_MOST = 24


class GpuRows:
    """The rows of one drawing."""

    def __init__(
        self,
        selection: Selection,
        watched: Watched,
        look: HeatLook,
        columns: Sequence[Column[Slot]],
        width: int,
    ) -> None:
        self._selection, self._watched, self._look = selection, watched, look
        self._grouped = not selection.order.chosen
        names = (self._name(slot) for slot in selection.slots.values())
        least = 4 if selection.on_gpus else 6
        self._name_width = min(NAME_MOST, max([least, *map(cell_len, names)]))
        self._width = width
        if not selection.on_gpus:
            columns = of_cpu_workers(columns)
        cells: dict[str, Cell[Slot]] = {
            STATE: self._state, TASK: self._task, HISTORY: self._history
        }  # fmt: skip
        columns = [replace(each, cell=cells.get(each.key, each.cell)) for each in columns]
        self.columns = fitting(columns, width - self._name_width - 2)

    def _name(self, slot: Slot) -> str:
        """Return a slot's name: without its host if that stands above it."""
        return slot.label if self._grouped else slot.key

    @property
    def heading(self) -> Line:
        """The titles, with an arrow at the one that is sorted by."""
        first = fitted("GPU" if self._selection.on_gpus else "WORKER", self._name_width)
        return self._selection.order.heading(self.columns, "  " + first)

    @property
    def headings(self) -> tuple[tuple[str, int], ...]:
        """The order that each title stands for, and its cells."""
        columns = ((each.column.key, each.width) for each in self.columns)
        return (("host", self._name_width + 1), *columns)

    def keys(self) -> list[str]:
        """Return the slots, and the hosts over them, in their order."""
        return self._selection.keys()

    def texts(self, slot: Slot) -> list[str]:
        """Return a slot as a file has it."""
        return [slot.key, *texts(self._written, slot)]

    @property
    def titles(self) -> list[str]:
        """The first line of a file."""
        return ["name", *titles(self._written)]

    @property
    def _written(self) -> list[Column[Slot]]:
        return [each.column for each in self.columns if each.column.key != HISTORY]

    def row(self, key: str) -> Line:
        """Return the row of a slot, or the heading over a host's slots."""
        slot = self._selection.slots.get(key)
        if slot is None:
            return self._host(key)
        parts = [*self._name_of(slot), *row(self.columns, slot)]
        return faded(parts) if slot.dead else parts

    def _state(self, slot: Slot, width: int) -> Line:
        return state_cell(slot_state(slot, self._selection.now), width)

    def _task(self, slot: Slot, width: int) -> Line:
        text, role = self._what(slot)
        return [(fitted(text, width), role)]

    def _what(self, slot: Slot) -> Part:
        """Describe the trouble with a slot, else the task that runs on it."""
        kinds = self._selection.alarms.get(slot.key, ())
        if slot.foreign and slot.device is not None:
            other = next(each for each in slot.device.processes if each.owner is not Owner.OURS)
            return fmt.safe(f"{other.user or '?'}: {other.command or '?'}"), "warn"
        reason = next((worker.reason for worker in slot.workers if worker.reason), "")
        if reason and not slot.host_silent:  # then it is the host that does not answer
            return fmt.safe(reason), alarm_role(kinds) or "warn"
        if kinds:
            return kinds[0].value, alarm_role(kinds)
        return fmt.safe(next((w.current_task for w in slot.workers if w.current_task), "")), ""

    def _host(self, name: str) -> Line:
        selection = self._selection
        return group_row(
            selection.hosts[name],
            selection.by_host[name],
            self._look,
            self._width,
            folded=name in selection.folded,
            marked=name in selection.marked,
            alarm=alarm_role(selection.alarms.get(name, ())),
        )

    def _name_of(self, slot: Slot) -> Line:
        role = alarm_role(self._selection.alarms.get(slot.key, ()))
        marked = slot.key in self._selection.marked
        first = (MARK, "accent") if marked else ("!", role) if role else (" ", "")
        return first, (" ", ""), (fitted(fmt.safe(self._name(slot)), self._name_width), role)

    def _history(self, slot: Slot, width: int) -> Line:
        key = slot.device.uuid if slot.device else slot.key
        steps = self._watched.history.steps(key, Metric.UTILIZATION, Span.MINUTES_2, 2 * width)
        return [_spark(tuple(steps), width)]


@lru_cache(maxsize=1024)
def _spark(percents: tuple[float | None, ...], width: int) -> Part:
    """Return a history, which stays as it is until its next step."""
    return spark(fmt.shares(percents), width)
