"""Outliers: GPUs with an alarm, then those farthest from others of their model. Pure.

Compared are busy GPUs of one model and one power limit, by their means over a minute: a robust
z-score, the distance from the median in median distances. One that is in the list stays there
until it has clearly come back, so that the list is still when nothing changes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gputui.model.alarms import SERIOUS, AlarmKind
from gputui.model.series import Metric
from gputui.model.slots import Slot, SlotState
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.lines import Line
from gputui.tui.views.fleet.selection import Selection

if TYPE_CHECKING:
    from gputui.model.history import History

MOST = 12
"""Lines of the list; all others are counted."""
HOLD_S = 10.0
"""How long the list stays as it is."""
STRAYED, RETURNED = 4.0, 2.5
"""The z-score from which a GPU is an outlier, and below which it is no longer one."""
FEWEST = 4
"""GPUs of a kind that can be compared."""
TO_Z = 0.6745
"""Makes a median distance comparable to a standard deviation."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A reading that is compared, and the least distance that means anything."""

    metric: Metric
    title: str
    unit: str
    least_spread: float


COMPARED = (
    Compared(Metric.UTILIZATION, "util", " %", 3.0),
    Compared(Metric.POWER, "power", " W", 10.0),
    Compared(Metric.TEMPERATURE, "temp", " °C", 2.0),
)


@dataclass(frozen=True, slots=True)
class Outlier:
    """A slot that stands out, and in what."""

    key: str
    why: str
    role: str


def outliers(
    slots: Sequence[Slot],
    alarms: Mapping[str, Sequence[AlarmKind]],
    history: "History",
    before: Collection[str] = (),
) -> list[Outlier]:
    """Return the slots with an alarm, then those that stray; `before` strayed already."""
    found = [
        Outlier(key, ", ".join(kinds), "bad" if kinds[0] in SERIOUS else "warn")
        for key, kinds in alarms.items()
    ]
    busy = [slot for slot in slots if slot.state is SlotState.BUSY and slot.key not in alarms]
    strayed = [
        (far, Outlier(slot.key, why, ""))
        for far, slot, why in _strayed(busy, history)
        if far > (RETURNED if slot.key in before else STRAYED)
    ]
    strayed.sort(key=lambda each: (-round(each[0]), each[1].key))
    return [*found, *(outlier for _, outlier in strayed)]


def _strayed(slots: Iterable[Slot], history: "History") -> list[tuple[float, Slot, str]]:
    """Return each slot's largest z-score and its metric."""
    kinds: dict[tuple[str, float | None], list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.device is not None:
            kinds[slot.device.name, slot.device.power_limit_w].append(slot)
    farthest: dict[str, tuple[float, Slot, str]] = {}
    for compared in COMPARED:
        means = history.minute(compared.metric)
        for alike in kinds.values():
            for far, slot, why in _scores(alike, means, compared):
                if far > farthest.get(slot.key, (0.0,))[0]:
                    farthest[slot.key] = (far, slot, why)
    return list(farthest.values())


def _scores(
    slots: Iterable[Slot], means: Mapping[str, float], compared: Compared
) -> Iterable[tuple[float, Slot, str]]:
    values = [
        (slot, means[slot.device.uuid])
        for slot in slots
        if slot.device is not None and slot.device.uuid in means
    ]
    if len(values) < FEWEST:
        return
    middle = median(value for _, value in values)
    spread = max(compared.least_spread, median(abs(value - middle) for _, value in values))
    for slot, value in values:
        why = f"{compared.title} {value:.0f}{compared.unit}, others {middle:.0f}"
        yield TO_Z * abs(value - middle) / spread, slot, why


class Outliers:
    """The list of outliers, looked at again now and then."""

    def __init__(self) -> None:
        self.found: list[Outlier] = []
        self._alarms: Mapping[str, Sequence[AlarmKind]] = {}
        self._looked_at = 0.0

    def look(self, selection: Selection, history: "History") -> None:
        """Look again, if it is time or an alarm was raised or cleared."""
        due = not self._looked_at <= selection.now < self._looked_at + HOLD_S
        if due or selection.alarms != self._alarms:
            self._looked_at, self._alarms = selection.now, selection.alarms
            before = {each.key for each in self.found}
            slots = list(selection.slots.values())
            self.found = outliers(slots, selection.alarms, history, before)

    def lines(self, selection: Selection) -> list[Line]:
        """Return the list of visible outliers."""
        lines: list[Line] = [
            (
                (f"{fmt.safe(each.key)} ", "dim" if not each.role else ""),
                (each.why, each.role),
            )
            for each in self.found
            if not selection.filter_text or each.key in selection.slots
        ]
        if len(lines) > MOST:
            more = len(lines) - MOST + 1
            lines[MOST - 1 :] = [
                ((f"+{more} more", "dim"), ("  o", "key"), (" reaches all", "dim"))
            ]
        title: Line = (("ALARMS AND OUTLIERS  ", "heading"), ("o", "key"), (" next", "dim"))
        return [title, *(lines or [(("none", "dim"),)])]

    def after(self, key: str | None) -> str | None:
        """Return the key of the outlier after this one; the first after the last."""
        keys = [each.key for each in self.found]
        if not keys:
            return None
        return keys[(keys.index(key) + 1) % len(keys)] if key in keys else keys[0]
