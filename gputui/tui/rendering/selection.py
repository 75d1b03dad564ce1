"""The slots in sight and their order, the outliers among them, and the room that they leave.

Pure: it takes in what was watched and answers the fleet's view. Outliers are what has an alarm,
then what strays farthest from its own kind: busy GPUs of one model and one power limit are compared
by their means over a minute, with a robust z-score, the distance from the median in median
distances. One that is in the list stays there until it has clearly come back, so that the list is
still when nothing changes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from gputui.model.alarms import AlarmKind
from gputui.model.slots import Slot, SlotState
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.filter import Fields, Matches
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Order
from gputui.tui.rendering.detail import LEAST_LINES
from gputui.tui.rendering.fleet import Look, Row, Zoom, alarm_role
from gputui.tui.rendering.lines import Line, Part
from gputui.tui.rendering.marks import MARKS, host_state
from gputui.tui.rendering.metrics import GRAPHED, MEM, METRICS, UTIL, Metric
from gputui.tui.watched import Watched


def _everything(row: Row) -> str:
    """Return all that a plain word is looked for in."""
    slot = row.slot
    if slot is None:
        words = [row.key, row.host.state.value, row.host.reason]
    else:
        device = slot.device
        words = [slot.key, slot.state.value, device.name if device else ""]
        words += [f"{each.user} {each.command}" for each in (device.processes if device else ())]
        words += [worker.current_task or "" for worker in slot.workers]
    return " ".join((*words, _alarm(row)))


def _alarm(row: Row) -> str:
    names = dict.fromkeys((row.key, row.host.name))
    return ", ".join(kind for name in names for kind in row.look.alarms.get(name, ()))


def _model(row: Row) -> str:
    return row.slot.device.name if row.slot and row.slot.device else ""


def _amount(metric: Metric, row: Row) -> float | None:
    return metric.amount(row.slots)


FLEET_FIELDS: Fields[Row] = Fields(
    everything=_everything,
    words={
        "state": lambda row: row.slot.state.value if row.slot else row.host.state.value,
        "host": lambda row: row.host.name,
        "model": _model,
        "alarm": _alarm,
    },
    numbers={metric.asked_as or metric.key: partial(_amount, metric) for metric in METRICS},
    sizes={"mem": lambda row: MEM.value(row.slots)},
    choices={"state": (*SlotState, *HostState)},
)

PAGES = 2
"""Pages of GPUs that are looked at as rows rather than from farther away."""


class Selection:
    """The slots that are shown now."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.by_host: dict[str, list[Slot]] = {}
        self.hosts: dict[str, HostStatus] = {}
        self.look = Look()
        self.total = 0
        """All slots, also those that the filter hides."""
        self.on_gpus = True
        """Whether any of all slots is a GPU; else they are CPU workers."""
        self.folded: set[str] = set()

    def take(self, watched: Watched, look: Look, matches: Matches[Row] | None = None) -> None:
        """Take in what matches of the newest snapshot."""
        assert watched.snapshot is not None
        self.look = look
        self.hosts = {host.name: host for host in watched.snapshot.hosts}
        self.total, self.on_gpus = len(watched.slots), watched.on_gpus
        slots: Sequence[Slot] = watched.slots
        if matches is not None:
            slots = [slot for slot in slots if matches(Row(slot.host, (slot,), look, slot))]
        self.slots = {slot.key: slot for slot in slots}
        self.by_host = {name: [] for name in self.hosts}
        for name, of_host in groupby(slots, key=attrgetter("host.name")):
            self.by_host[name].extend(of_host)
        if matches is not None:
            with_slots = {slot.host.name for slot in watched.slots}
            for name, shown in list(self.by_host.items()):
                if not shown and (name in with_slots or not matches(self.row(name))):
                    del self.by_host[name]

    def row(self, key: str) -> Row:
        """Return a slot, or a host with its slots."""
        slot = self.slots.get(key)
        if slot is not None:
            return Row(slot.host, (slot,), self.look, slot)
        return Row(self.hosts[key], self.by_host.get(key, ()), self.look)

    def rows(self, zoom: Zoom, order: Order[Row]) -> Iterator[Row]:
        """Yield hosts, or slots in an order, or hosts and the slots of each that is not folded."""
        if zoom is Zoom.HOST or order.chosen:
            keys = self.by_host if zoom is Zoom.HOST else self.slots
            yield from order.sorted(map(self.row, keys))
            return
        for name, slots in self.by_host.items():
            yield self.row(name)
            yield from (self.row(slot.key) for slot in slots if name not in self.folded)

    def fitting(self, room: int) -> Zoom:
        """Return the closest zoom: rows of GPUs for two pages of so many lines, else what fits."""
        if len(self.by_host) == 1 or len(self.slots) + len(self.by_host) <= PAGES * room:
            return Zoom.GPU
        return Zoom.HOST if len(self.by_host) <= room else Zoom.HEAT

    def blocks(self) -> list[tuple[str, list[str]]]:
        """Return the cells of the heat zoom: a host's slots, or one for a host without any."""
        return [
            (name, [slot.key for slot in slots] or [name]) for name, slots in self.by_host.items()
        ]

    def cell(self, key: str) -> Part:
        """Return the cell of a slot, or of a whole host."""
        slot = self.slots.get(key)
        look = self.look
        return look.cell(slot) if slot else look.host_cell(self.hosts[key], self.by_host[key])

    def described(self, key: str | None) -> Line:
        """Describe the slot or host under the cursor."""
        slot, host = self.slots.get(key or ""), self.hosts.get(key or "")
        if host is not None:
            state, role = host_state(host, self.look.now)
            return [(f"  {fmt.safe(host.name)}", "title"), (f" {state}", role)]
        if slot is None:
            return []
        busy, memory = fmt.number(UTIL.amount((slot,))), MEM.cell((slot,), 20)
        used = "".join(text for text, _ in memory).strip()
        return [
            (f"  {fmt.safe(slot.key)}", "title"),
            (f" {MARKS[slot.state].word} {busy}% {used}", ""),
        ]

    @property
    def size(self) -> Part:
        """The number of rows in sight."""
        shown = len(self.slots)
        if not self.on_gpus:
            shown = sum(worker.state.up for slot in self.slots.values() for worker in slot.workers)
        of = f"{shown} of " if shown < self.total else ""
        slots = of + fmt.many(self.total, "GPU" if self.on_gpus else "worker")
        return (f"  {slots} on {fmt.many(len(self.by_host), 'host')}", "dim")


MOST = 12
"""Lines of the list of outliers; all others are counted."""
HOLD_S = 10.0
"""How long the list stays as it is."""
STRAYED, RETURNED = 4.0, 2.5
"""The z-score from which a GPU is an outlier, and below which it is no longer one."""
FEWEST = 4
"""GPUs of a kind that can be compared."""
TO_Z = 0.6745
"""Makes a median distance comparable to a standard deviation."""


class Outlier(NamedTuple):
    """A slot that stands out, and in what."""

    key: str
    why: str
    role: str = ""
    score: float = 0.0


class Outliers:
    """The slots with an alarm, then those that stray; looked at again now and then."""

    def __init__(self) -> None:
        self.found: list[Outlier] = []
        self._alarms: Mapping[str, Sequence[AlarmKind]] = {}
        self._looked_at = 0.0

    def look(self, selection: Selection) -> None:
        """Look again, if it is time or an alarm was raised or cleared."""
        look = selection.look
        due = not self._looked_at <= look.now < self._looked_at + HOLD_S
        if due or look.alarms != self._alarms:
            self._looked_at, self._alarms = look.now, look.alarms
            self.found = [
                *(Outlier(key, ", ".join(of), alarm_role(of)) for key, of in look.alarms.items()),
                *self._strayed(selection),
            ]

    def _strayed(self, selection: Selection) -> list[Outlier]:
        """Return the farthest stray of each slot, those that strayed before until they are back."""
        before = {each.key for each in self.found}
        farthest: dict[str, Outlier] = {}
        for each in scores(selection):
            if each.key not in farthest or each.score > farthest[each.key].score:
                farthest[each.key] = each
        strayed = [
            each
            for each in farthest.values()
            if each.score > (RETURNED if each.key in before else STRAYED)
        ]
        return sorted(strayed, key=lambda each: (-round(each.score), each.key))

    def lines(self, selection: Selection, *, filtered: bool = False) -> list[Line]:
        """Return the list, of what is shown only where some are `filtered` out."""
        lines: list[Line] = [
            ((f"{fmt.safe(each.key)} ", "" if each.role else "dim"), (each.why, each.role))
            for each in self.found
            if not filtered or each.key in selection.slots
        ]
        if len(lines) > MOST:
            more = (f"+{len(lines) - MOST + 1} more", "dim")
            lines[MOST - 1 :] = [(more, ("  o", "key"), (" reaches all", "dim"))]
        title: Line = (("ALARMS AND OUTLIERS  ", "heading"), ("o", "key"), (" next", "dim"))
        return [title, *(lines or [(("none", "dim"),)])]

    def after(self, key: str | None) -> str | None:
        """Return the key of the outlier after this one; the first after the last."""
        keys = [each.key for each in self.found]
        if key not in keys:
            return keys[0] if keys else None
        return keys[(keys.index(key) + 1) % len(keys)]


def scores(selection: Selection) -> Iterator[Outlier]:
    """Yield how far each busy GPU is from its like, in each metric that is compared."""
    alike: dict[tuple[str, float | None], list[Slot]] = defaultdict(list)
    for slot in selection.slots.values():
        if slot.device and slot.state is SlotState.BUSY and slot.key not in selection.look.alarms:
            alike[slot.device.name, slot.device.power_limit_w].append(slot)
    history = selection.look.history
    for metric in GRAPHED:
        if history is None or not metric.spread or metric.kept is None:
            continue
        means = history.minute(metric.kept)
        for slots in alike.values():
            found = ((s.key, means.get(s.device.uuid)) for s in slots if s.device)
            values = [(key, value) for key, value in found if value is not None]
            if len(values) < FEWEST:
                continue
            middle = median(value for _, value in values)
            spread = max(metric.spread, median(abs(value - middle) for _, value in values))
            for key, value in values:
                why = f"{metric.name.lower()} {metric.say(value)}, others {fmt.number(middle)}"
                yield Outlier(key, why, score=TO_Z * abs(value - middle) / spread)


RAIL_FROM = 160
"""Columns from which a rail fits next to rows of GPUs."""
RAIL_LEAST, RAIL_MOST = 56, 76
BELOW_IF_WIDE = 12
"""Free lines from which a wide page has its pane below, not in a rail."""
OUTLIERS_WIDTH = 40
OUTLIERS_FROM = {Zoom.HEAT: 100, Zoom.HOST: 140}
"""Columns from which the outliers stand next to heat and hosts."""


def laid_out(zoom: Zoom, width: int, height: int, lines: int) -> tuple[int, int]:
    """Return the columns of the rail and the lines of the pane below, 0 for none.

    A screen is never blank while GPUs exist: what the rows leave of the lines goes to the GPU under
    the cursor, below them, or in a rail where they fill a wide page.

    >>> laid_out(Zoom.GPU, 80, 21, 4), laid_out(Zoom.GPU, 80, 21, 18)
    ((0, 17), (0, 0))
    >>> laid_out(Zoom.GPU, 200, 57, 55)
    (72, 0)
    """
    free = height - lines
    below = free if free >= LEAST_LINES else 0
    if zoom is not Zoom.GPU:
        return (OUTLIERS_WIDTH if width >= OUTLIERS_FROM[zoom] else 0), below
    if width >= RAIL_FROM and free < BELOW_IF_WIDE:
        return max(RAIL_LEAST, min(RAIL_MOST, width * 36 // 100)), 0
    return 0, below
