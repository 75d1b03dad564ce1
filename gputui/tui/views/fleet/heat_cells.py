"""A slot as one cell: the metric's colour, or the mark of an alarm. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gputui.model.alarms import SERIOUS, AlarmKind
from gputui.model.slots import PLACES, Slot, SlotState
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.format import HEATS
from gputui.tui.rendering.lines import Line, Part
from gputui.tui.rendering.marks import MARKS, host_mark
from gputui.tui.views.fleet.gpu_columns import (
    memory_share,
    reading,
    share,
    utilization_share,
)

LEAST = 0.01
"""Shares below this are an outline, unless a task runs."""
CELL, IDLE, ABSENT = "▇", "□", "·"
COOL_C, HOT_C = 30.0, 90.0
OLDEST_S = 60.0
"""From which age on a last task is as old as any."""
MARKED = (SlotState.IDLE, SlotState.BUSY, SlotState.FOREIGN)
"""The states that a cell's colour, not a mark, stands for."""


class HeatMetric(StrEnum):
    """The metrics that cells can show."""

    UTILIZATION = "UTIL"
    MEMORY = "MEM"
    POWER = "POWER"
    TEMPERATURE = "TEMP"
    AGE = "LAST TASK"

    @property
    def next(self) -> "HeatMetric":
        """The one after this one, the first after the last."""
        every = list(HeatMetric)
        return every[(every.index(self) + 1) % len(every)]


ENDS = {
    HeatMetric.UTILIZATION: ("0", "100 %"),
    HeatMetric.MEMORY: ("0", "100 %"),
    HeatMetric.POWER: ("0", "limit"),
    HeatMetric.TEMPERATURE: (f"{COOL_C:.0f}", f"{HOT_C:.0f} °C"),
    HeatMetric.AGE: (f"{OLDEST_S:.0f} s ago", "now"),
}


@dataclass(frozen=True, slots=True)
class HeatLook:
    """The choices by which cells are drawn, apart from the slots."""

    metric: HeatMetric
    now: float
    last_task_at: Mapping[str, float]
    alarms: Mapping[str, Sequence[AlarmKind]]
    flat: bool = False
    """Whether the ramp's colours do not say enough: the height of a cell then speaks."""

    def fraction(self, slot: Slot) -> float | None:
        """Return where on the ramp a slot is, None where it cannot be said."""
        match self.metric:
            case HeatMetric.UTILIZATION:
                return utilization_share(slot)
            case HeatMetric.MEMORY:
                return memory_share(slot)
            case HeatMetric.POWER:
                return share(reading(slot, "power_w"), reading(slot, "power_limit_w"))
            case HeatMetric.TEMPERATURE:
                value = reading(slot, "temperature_c")
                return None if value is None else (value - COOL_C) / (HOT_C - COOL_C)
            case HeatMetric.AGE:
                known = [at for w in slot.workers if (at := self.last_task_at.get(w.name))]
                return None if not known else 1 - (self.now - max(known)) / OLDEST_S

    def cell(self, slot: Slot) -> Part:
        """Return a slot's cell: one character and its role."""
        mark = MARKS[slot.state]
        if slot.state not in MARKED:
            return (mark.shape, mark.role)
        if kinds := self.alarms.get(slot.key):
            return ("!", "bad" if kinds[0] in SERIOUS else "warn")
        fraction = self.fraction(slot)
        if fraction is not None and slot.state is SlotState.BUSY:
            fraction = max(fraction, LEAST)
        return self.on_ramp(fraction)

    def on_ramp(self, fraction: float | None) -> Part:
        """Return a cell of the ramp: an outline for zero, a dash for a missing reading."""
        if fraction is None:
            return (fmt.MISSING, "dim")
        if fraction < LEAST:
            return (IDLE, "dim")
        step = min(HEATS - 1, max(0, int(fraction * HEATS)))
        return (fmt.EIGHTHS[step + 1] if self.flat else CELL, f"heat{step}")

    def host_cell(self, host: HostStatus, slots: Sequence[Slot]) -> Part:
        """Return a whole host as one cell: the worst that holds, else its mean.

        >>> look = HeatLook(HeatMetric.UTILIZATION, 0.0, {}, {})
        >>> look.host_cell(HostStatus("h", HostState.FAILED, 0.0), [])
        ('✖', 'bad')
        """
        if not slots:
            mark = host_mark(host)
            return (ABSENT, "dim") if host.state is HostState.READY else (mark.shape, mark.role)
        first = min(slots, key=lambda slot: PLACES[slot.state])
        if MARKS[first.state].role in ("warn", "bad"):
            return self.cell(first)
        alarmed = next((slot for slot in slots if slot.key in self.alarms), None)
        if alarmed is not None:
            return self.cell(alarmed)
        known = [each for slot in slots if (each := self.fraction(slot)) is not None]
        return self.on_ramp(sum(known) / len(known) if known else None)

    def legend(self) -> Line:
        """Return the legend of the cells."""
        low, high = ENDS[self.metric]
        ramp: list[Part] = [self.on_ramp((step + 0.5) / HEATS) for step in range(HEATS)]
        return [
            (f" {self.metric.value} ", "title"),
            (f" {low} ", "dim"),
            *ramp,
            (f" {high}", "dim"),
            ("  m", "key"),
            (f" {self.metric.next.value.lower()}", "dim"),
            (f"  {IDLE} idle", "dim"),
            ("  !", "warn"),
            (" alarm", "dim"),
            ("  ✖", "bad"),
            (" broken", "dim"),
            ("  ◌", "warn"),
            (" silent", "dim"),
            (f"  {ABSENT} no worker", "dim"),
        ]
