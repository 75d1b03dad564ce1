"""What stands out: what has an alarm, then what differs most from the busy GPUs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.slots import Slot, SlotState
from gputui.tui.rendering import format as fmt
from gputui.tui.views.fleet.selection import Selection
from gputui.tui.widgets.pane import Line

OUTLIERS = 10
HOLD_S = 5.0
"""How long the list of what stands out stays as it is; every change sends whole lines."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A slot that stands out, and in what."""

    key: str
    why: str
    role: str


def outliers(slots: Sequence[Slot], alarms: Mapping[str, Sequence[str]]) -> list[Outlier]:
    """Return those that stand out: what has an alarm, then what differs most from the busy."""
    found = [Outlier(key, ", ".join(kinds), "warn") for key, kinds in alarms.items()]
    busy = [slot for slot in slots if slot.state is SlotState.BUSY and slot.key not in alarms]
    found += [
        Outlier(slot.key, why, "")
        for far, slot, why in sorted(_strayed(busy), key=lambda each: -each[0])
        if far > 4
    ]
    return found[:OUTLIERS]


def _strayed(slots: Sequence[Slot]) -> list[tuple[float, Slot, str]]:
    """Return for each slot how many spreads it is from the middle, in what it is farthest."""
    farthest: dict[str, tuple[float, Slot, str]] = {}
    for name, title in _COMPARED.items():
        values = [
            (slot, value)
            for slot in slots
            if slot.device and (value := getattr(slot.device, name)) is not None
        ]
        if len(values) < 4:
            continue
        middle = median(value for _, value in values)
        spread = median(abs(value - middle) for _, value in values) or max(1.0, middle * 0.02)
        for slot, value in values:
            far = abs(value - middle) / spread
            if far > farthest.get(slot.key, (0.0,))[0]:
                why = f"{title} {value:.0f}, others {middle:.0f}"
                farthest[slot.key] = (far, slot, why)
    return list(farthest.values())


_COMPARED = {
    "utilization_percent": "util",
    "temperature_c": "temp",
    "power_w": "power",
    "sm_clock_mhz": "clock",
}


class Outliers:
    """The list of what stands out, made anew now and then."""

    def __init__(self) -> None:
        self._found: list[Outlier] = []
        self._found_at = 0.0

    def lines(self, selection: Selection) -> list[Line]:
        """Return the list, of what is shown only."""
        if not self._found_at <= selection.now < self._found_at + HOLD_S:
            self._found_at = selection.now
            self._found = outliers(list(selection.slots.values()), selection.alarms)
        lines: list[Line] = [
            ((f"{fmt.safe(each.key)} ", ""), (each.why, each.role or "dim"))
            for each in self._found
            if not selection.filter_text or each.key in selection.slots
        ]
        return [(("stands out", "title"),), *lines] if lines else []
