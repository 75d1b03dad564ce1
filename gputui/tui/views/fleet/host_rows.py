"""A host and its slots → a row: the line over its GPUs, or the whole host in one line. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gputui.slots import Slot
from gputui.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, Fitted, fitting
from gputui.tui.rendering.marks import host_state
from gputui.tui.views.fleet.heat_cells import HeatLook
from gputui.tui.views.fleet.host_columns import GLYPHS, HOST_COLUMNS, HostRow
from gputui.tui.views.fleet.selection import Selection, alarm_role
from gputui.tui.widgets.pane import Line, Part, fitted, merged, whole_fields

MARK = "▌"
NAME_MOST = 24
GLYPHS_LEAST = 8


class HostRows:
    """The rows of one drawing."""

    def __init__(self, selection: Selection, look: HeatLook, width: int) -> None:
        self._selection, self._look = selection, look
        self._names = min(NAME_MOST, max([4, *map(len, selection.by_host)]))
        most = max((len(slots) for slots in selection.by_host.values()), default=1)
        columns = [
            replace(column, width=max(4, min(GLYPHS_LEAST, most)), most=most)
            if column.key == GLYPHS
            else column
            for column in HOST_COLUMNS
        ]
        self.columns: tuple[Fitted[HostRow], ...] = fitting(columns, width - self._names - 2)

    @property
    def heading(self) -> Line:
        """The titles, with an arrow at the one that is sorted by."""
        selection = self._selection
        titles = [
            each.column.heading(each.width, _arrow(each.column, selection)) for each in self.columns
        ]
        return ((" ".join(["  " + fitted("HOST", self._names), *titles]), "heading"),)

    @property
    def headings(self) -> tuple[tuple[str, int], ...]:
        """The order that each title stands for, and its cells."""
        columns = ((each.column.key, each.width) for each in self.columns)
        return (("host", self._names + 1), *columns)

    def row(self, name: str) -> Line:
        """Return a host in one line."""
        selection = self._selection
        host, slots = selection.hosts[name], selection.by_host[name]
        alarms = sum(slot.key in selection.alarms for slot in slots)
        role = alarm_role(selection.alarms.get(name, ())) or ("warn" if alarms else "")
        marked = name in selection.marked
        first: Part = (MARK, "accent") if marked else ("!", role) if role else (" ", "")
        title = fitted(fmt.safe(name), self._names)
        parts: list[Part] = [first, (" ", ""), (title, role or "title")]
        value = HostRow(host, slots, self._look, alarms)
        if host.reason and not slots:
            text, mark_role = host_state(host, self._look.now)
            return [*parts, (f" {text}  ", mark_role), (fmt.safe(host.reason), "warn")]
        for each in self.columns:
            parts += [(" ", ""), *each.column.cell(value, each.width)]
        return parts


def _arrow(column: Column[HostRow], selection: Selection) -> str:
    by = selection.hosts_sorted_by
    if by is None or by.key != column.key:
        return ""
    return by.arrow(by, selection.hosts_backwards)


def group_row(
    host: HostStatus,
    slots: Sequence[Slot],
    look: HeatLook,
    width: int,
    *,
    folded: bool,
    marked: bool = False,
    alarm: str = "",
) -> Line:
    """Return the line over a host's GPUs: its name, what they are, its readings that fit."""
    arrow = "▸" if folded else "▾"
    gutter: Part = (MARK, "accent") if marked else ("!", alarm) if alarm else (" ", "")
    parts: list[Part] = [gutter, (f"{arrow}{fmt.safe(host.name)}", alarm or "title")]
    if host.state is not HostState.READY:
        text, role = host_state(host, look.now)
        parts.append((f"  {text}", role))
    if host.reason:
        return [*parts, (f"  {fmt.safe(host.reason)}", "warn")]
    if folded:
        parts += [("  ", ""), *merged([look.cell(slot) for slot in slots])]
    read = host.reading
    fields = (
        models(slots),
        f"  cpu {fmt.number(read.cpu_percent)}%",
        f"  mem {fmt.memory(read.memory_used_bytes, read.memory_total_bytes)}",
        f"  load {fmt.number(read.load_1m, 1)}",
        f"  net {fmt.size(read.network_receive_bytes_per_s)}↓"
        f" {fmt.size(read.network_send_bytes_per_s)}↑",
    )
    return whole_fields([*parts, *((field, "dim") for field in fields if field)], width)


def models(slots: Sequence[Slot]) -> str:
    """Return what GPUs these are, each model once.

    >>> models([])
    ''
    """
    counts = Counter(slot.device.name for slot in slots if slot.device is not None)
    short = (f"{count}×{name.removeprefix('NVIDIA ')}" for name, count in counts.items())
    return fmt.safe("  " + " + ".join(short)) if counts else ""
