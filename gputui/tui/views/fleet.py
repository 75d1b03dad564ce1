"""The fleet at three zooms: a row per GPU under its host, a row per host, a cell per GPU.

The zoom that fits is chosen by itself until a person chooses one. Order, filter, marks, folded
hosts and columns hold for all that is shown.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from textual.app import ComposeResult

from gputui.snapshot import HostStatus
from gputui.tui import format as fmt
from gputui.tui.alarms import SERIOUS, AlarmKind
from gputui.tui.columns import BY_KEY, COLUMNS, HISTORY_CELLS, Column, fitting, ordered
from gputui.tui.commands import Command
from gputui.tui.device_panel import DevicePanel
from gputui.tui.filter import FilterError, Matches, parse
from gputui.tui.heat import Block, HeatPane, Outlier, outliers, worst
from gputui.tui.hostrows import READINGS, STATE_WIDTH, glyph, group_row, host_heading, host_row
from gputui.tui.pane import Line, Part, fitted
from gputui.tui.slotfields import SLOT_FIELDS
from gputui.tui.slots import Slot
from gputui.tui.table import Table
from gputui.tui.view import View
from gputui.tui.views import VIEWS
from gputui.tui.watched import Watched

NAME_MOST = 24
OUTLIERS_HOLD_S = 5.0
"""How long the list of what stands out stays as it is; every change sends whole lines."""
LINES_AROUND = 4
"""Lines of the terminal that are no rows: status, heading, crumbs, keys."""
HISTORY_FROM = 108
"""Columns of the terminal from which there is room for a history."""


RAIL_CELLS = 68
"""Columns that the GPU under the cursor takes beside the rows, where the terminal is wide."""
RAIL_FROM = 190


class Zoom(StrEnum):
    """How close the fleet is looked at."""

    GPU = "gpu"
    HOST = "host"
    HEAT = "heat"


class FleetView(View):
    """Every GPU of the cluster."""

    NAME = "fleet"
    DEFAULT_CSS = f"""
    FleetView {{ layout: horizontal; }}
    FleetView HeatPane {{ display: none; }}
    FleetView #rail {{ display: none; width: {RAIL_CELLS}; border-left: solid $panel; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self.table, self.heat, self.rail = Table(), HeatPane(), DevicePanel(id="rail")
        self.rail.processes.can_focus = False
        self.chosen_zoom: Zoom | None = None
        self.sorted_by: Column | None = None
        self.backwards = False
        self.columns: tuple[Column, ...] = COLUMNS
        self.marked: set[str] = set()
        self.folded: set[str] = set()
        self._filter_text = ""
        self._matches: Matches[Slot] | None = None
        self._slots: dict[str, Slot] = {}
        self._by_host: dict[str, list[Slot]] = {}
        self._hosts: dict[str, HostStatus] = {}
        self._alarms: dict[str, list[AlarmKind]] = {}
        self._name_width = 8
        self._fitting: tuple[Column, ...] = ()
        self._now = 0.0
        self._outliers: list[Outlier] = []
        self._outliers_at = 0.0

    def compose(self) -> ComposeResult:
        """Lay out the table and the cells, one of them in sight, and beside them the rail."""
        yield self.table
        yield self.heat
        yield self.rail

    # What is drawn

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot at the present zoom."""
        snapshot = watched.snapshot
        if snapshot is None:
            return
        self._now = snapshot.taken_at
        self._alarms = watched.alarms.by_subject()
        self._hosts = {host.name: host for host in snapshot.hosts}
        self._choose_slots(watched.slots)
        self.marked &= self._slots.keys() | self._hosts.keys()
        zoom = self.zoom
        moved = self.table.display == (zoom is Zoom.HEAT)
        had_focus = self.table.has_focus or self.heat.has_focus
        self.heat.display, self.table.display = zoom is Zoom.HEAT, zoom is not Zoom.HEAT
        {Zoom.GPU: self._show_gpus, Zoom.HOST: self._show_hosts, Zoom.HEAT: self._show_heat}[zoom]()
        if moved and had_focus:
            self.focus_body()
        self._show_rail()

    def _show_rail(self) -> None:
        """Show the GPU under the cursor in full, where there is room beside the rows."""
        key = self.table.cursor
        wide = self.zoom is Zoom.GPU and self.size.width >= RAIL_FROM and key is not None
        if self.rail.display != wide:
            self.rail.display = wide
        if wide and key is not None:
            slots = self._by_host.get(key)
            self.screen_app.head.follow_logs()
            self.rail.show(self.screen_app.watched, slots[0].key if slots else key)

    def _choose_slots(self, slots: Sequence[Slot]) -> None:
        matches = self._matches
        chosen = slots if matches is None else [slot for slot in slots if matches(slot)]
        self._slots = {slot.key: slot for slot in chosen}
        self._by_host = {} if matches else {name: [] for name in self._hosts}
        for slot in chosen:
            self._by_host.setdefault(slot.host.name, []).append(slot)

    @property
    def zoom(self) -> Zoom:
        """The zoom that a person chose, else the closest one that fits."""
        if self.chosen_zoom is not None:
            return self.chosen_zoom
        room = self.screen_app.size.height - LINES_AROUND
        if len(self._by_host) == 1 or len(self._slots) + len(self._by_host) <= room:
            return Zoom.GPU
        return Zoom.HOST if len(self._by_host) <= room else Zoom.HEAT

    def _show_gpus(self) -> None:
        self._name_width = min(NAME_MOST, max(map(len, self._slots), default=8))
        width = self.table.scrollable_content_region.width
        history = HISTORY_CELLS + 1 if width >= HISTORY_FROM else 0
        self._fitting = fitting(self.columns, width - self._name_width - 1 - history)
        titles = [column.heading(self._arrow(column)) for column in self._fitting]
        if history:
            titles.append(fitted("HISTORY", HISTORY_CELLS))
        heading = " ".join([" " + fitted("GPU", self._name_width), *titles])
        self.table.show(((heading, "title"),), self._gpu_keys(), self._gpu_row)

    def _arrow(self, column: Column) -> str:
        if self.sorted_by is not column:
            return ""
        return "▼" if column.falling != self.backwards else "▲"

    def _gpu_keys(self) -> list[str]:
        if self.sorted_by is not None:
            return [s.key for s in ordered(self._slots.values(), self.sorted_by, self.backwards)]
        keys: list[str] = []
        for name, slots in self._by_host.items():
            keys.append(name)
            if name not in self.folded:
                keys += [slot.key for slot in slots]
        return keys

    def _gpu_row(self, key: str) -> Line:
        slot = self._slots.get(key)
        if slot is None:
            host, slots = self._hosts[key], self._by_host[key]
            folded = key in self.folded
            line = group_row(host, slots, self._name_width, self._now, folded=folded)
            return [("▸", "accent"), *line] if key in self.marked else line
        parts: list[Part] = [*self._name_of(slot)]
        for column in self._fitting:
            parts += [(" ", ""), column.cell(slot)]
        if self.table.size.width >= HISTORY_FROM:
            parts += [(" ", ""), (self._history(slot), "busy")]
        return [(text, "dim") for text, _ in parts] if slot.dead else parts

    def _name_of(self, slot: Slot) -> tuple[Part, Part]:
        alarms = self._alarms.get(slot.key)
        mark = ("▸", "accent") if slot.key in self.marked else (" ", "")
        role = ("bad" if alarms[0] in SERIOUS else "warn") if alarms else ""
        return mark, (fitted(fmt.safe(slot.key), self._name_width), role)

    def _history(self, slot: Slot) -> str:
        watched = self.screen_app.watched
        steps = watched.history_steps(slot.device.uuid) if slot.device else ()
        return fmt.braille([None if v < 0 else v / 100 for v in steps], HISTORY_CELLS)

    def _show_hosts(self) -> None:
        self._name_width = min(NAME_MOST, max(map(len, self._by_host), default=4))
        taken = self._name_width + STATE_WIDTH + 4 + sum(width + 1 for _, width in READINGS)
        most = max((len(slots) for slots in self._by_host.values()), default=0)
        glyphs = max(4, min(most, self.table.scrollable_content_region.width - taken))

        def row(name: str) -> Line:
            host, slots = self._hosts[name], self._by_host[name]
            line = host_row(host, slots, self._name_width, glyphs, self._now)
            return (
                [("▸", "accent"), (line[0][0][1:], "title"), *line[1:]]
                if (name in self.marked)
                else line
            )

        heading = ((host_heading(self._name_width, glyphs), "title"),)
        self.table.show(heading, list(self._by_host), row)

    def _show_heat(self) -> None:
        blocks = [Block(n, tuple(s.key for s in slots)) for n, slots in self._by_host.items()]
        if not self._outliers_at <= self._now < self._outliers_at + OUTLIERS_HOLD_S:
            self._outliers_at = self._now
            self._outliers = outliers(list(self._slots.values()), self._alarms)
        found = [
            each for each in self._outliers if self._filter_text == "" or each.key in self._slots
        ]
        beside: list[Line] = [(("stands out", "title"),)]
        beside += [((f"{fmt.safe(o.key)} ", ""), (o.why, o.role or "dim")) for o in found]
        self.heat.draw(blocks, self._cell, beside if found else ())

    def _cell(self, key: str) -> Part:
        slot = self._slots.get(key)
        return worst(self._by_host[key]) if slot is None else glyph(slot)

    def crumbs(self) -> Line:
        """Say what is shown, in what order, what is marked and what calls for a person."""
        parts: list[Part] = [(f"{self.zoom.value} zoom", "dim")]
        parts.append((f"  {len(self._slots):,} GPUs on {len(self._by_host):,} hosts", "dim"))
        if self._filter_text:
            parts.append((f"  /{self._filter_text}", "accent"))
        if self.marked:
            parts.append((f"  {len(self.marked)} marked", "accent"))
        if self._alarms:
            subject, kinds = next(iter(self._alarms.items()))
            more = f" and {len(self._alarms) - 1} more" if len(self._alarms) > 1 else ""
            role = "bad" if kinds[0] in SERIOUS else "warn"
            parts.append((f"  {fmt.safe(subject)}: {kinds[0].value}{more}", role))
        return parts

    # What is under the cursor

    @property
    def cursor(self) -> str | None:
        """The key of the slot or host under the cursor."""
        return self.heat.cursor if self.zoom is Zoom.HEAT else self.table.cursor

    def targets(self) -> tuple[str, ...]:
        """Return what is marked, else what is under the cursor."""
        if self.marked:
            return tuple(sorted(self.marked))
        return (self.cursor,) if self.cursor else ()

    def go_to(self, key: str) -> None:
        """Put the cursor on a slot, or on a host."""
        if key in self._slots and self.zoom is Zoom.HOST:
            self.chosen_zoom = Zoom.GPU
            self.folded.discard(self._slots[key].host.name)
            self.show(self.screen_app.watched)
        self.table.select(key)

    def focus_body(self) -> None:
        """Put the focus on what is in sight."""
        (self.heat if self.zoom is Zoom.HEAT else self.table).focus()

    def on_table_moved(self, event: Table.Moved) -> None:
        """Show the GPU that the cursor came to in the rail."""
        event.stop()
        if event.table is self.table:
            self._show_rail()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Look closer at a host; at a GPU, at what is on it."""
        event.stop()
        if event.table is not self.table:
            return
        if event.key in self._slots:
            self._open(event.key)
        elif self.zoom is Zoom.HOST:
            self.zoom_to(Zoom.GPU, event.key)
        else:
            self.folded ^= {event.key}
            self.screen_app.draw()

    def on_heat_pane_chosen(self, event: HeatPane.Chosen) -> None:
        """Look closer at a cell."""
        event.stop()
        self.zoom_to(Zoom.GPU, event.key)

    def _open(self, key: str) -> None:
        if any(kind.name == "device" for kind in VIEWS):
            self.screen_app.go_to("device", key)

    # What a person changes

    def zoom_to(self, zoom: Zoom, key: str | None = None) -> None:
        """Look from so far, with the cursor where it was."""
        key = key or self.cursor
        self.chosen_zoom = zoom
        self.screen_app.draw()
        self.focus_body()
        if key is not None:
            self.table.select(key)

    def zoom_by(self, steps: int) -> None:
        """Look from farther, or closer."""
        zooms = list(Zoom)
        place = zooms.index(self.zoom) + steps
        self.zoom_to(zooms[max(0, min(place, len(zooms) - 1))])

    def filter(self, text: str) -> str:
        """Show only what matches; return what is wrong with the filter, or ""."""
        try:
            self._matches = parse(text, SLOT_FIELDS) if text.strip() else None
        except FilterError as error:
            return str(error)
        self._filter_text = text.strip()
        self.screen_app.redraw()
        return ""

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self._filter_text

    def back(self) -> bool:
        """Let go of the marks, then of the filter, then of the zoom."""
        if self.marked:
            self.marked.clear()
        elif self._filter_text:
            self.filter("")
        elif self.chosen_zoom is not None:
            self.chosen_zoom = None
        else:
            return False
        self.screen_app.draw()
        self.focus_body()
        return True

    def mark(self) -> None:
        """Mark what is under the cursor, or unmark it, and go on to the next."""
        if (key := self.cursor) is not None:
            self.marked ^= {key}
            if self.zoom is not Zoom.HEAT:
                self.table.action_move(1)
            self.screen_app.draw()

    def sort(self, name: str) -> None:
        """Sort by a column, by the next one without a name, by host with `host`."""
        if name and name not in (*BY_KEY, "host"):
            self.screen_app.say(f"sort by {', '.join(BY_KEY)} or host", bad=True)
            return
        keys = ["host", *(column.key for column in self._fitting or self.columns)]
        now = self.sorted_by.key if self.sorted_by else "host"
        following = keys[(keys.index(now) + 1) % len(keys)] if now in keys else "host"
        self.sorted_by = BY_KEY.get(name or following)
        self.backwards = False
        self.chosen_zoom = Zoom.GPU
        self.screen_app.draw()

    def reverse(self) -> None:
        """Turn the order around."""
        self.backwards = not self.backwards
        self.screen_app.draw()

    def choose_columns(self, names: str) -> None:
        """Show these columns, or all without a name."""
        unknown = [name for name in names.split() if name not in BY_KEY]
        if unknown:
            self.screen_app.say(f"no column {unknown[0]}; there are {', '.join(BY_KEY)}", bad=True)
            return
        chosen = names.split() or list(BY_KEY)
        self.columns = tuple(column for column in COLUMNS if column.key in chosen)
        self.screen_app.draw()


def _unsorted(view: Any) -> str:
    return "" if view.sorted_by else "it is sorted by host"


FleetView.COMMANDS = (
    Command("closer", "Look closer", lambda v, _: v.zoom_by(-1), ("z",), "fleet", hint="zoom"),
    Command("farther", "Look from farther", lambda v, _: v.zoom_by(1), ("Z",), "fleet"),
    Command("mark", "Mark or unmark", lambda v, _: v.mark(), ("space",), "fleet", hint="mark"),
    Command("sort", "Sort by a column", FleetView.sort, ("s",), "fleet", "[COLUMN]", "sort"),
    Command(
        "reverse",
        "Turn the order around",
        lambda v, _: v.reverse(),
        ("r",),
        "fleet",
        unavailable=_unsorted,
    ),
    Command(
        "columns", "Choose the columns", FleetView.choose_columns, view="fleet", usage="[COLUMN…]"
    ),
)
