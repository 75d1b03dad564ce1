"""A host and its slots → a row: the line over its GPUs, or the whole host in one line. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from gputui.model.slots import Slot
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.order import Order
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import (
    MARK,
    Cell,
    Column,
    Fitted,
    SortValue,
    fitting,
    row,
    texts,
)
from gputui.tui.rendering.gauges import gauge
from gputui.tui.rendering.lines import Line, Part, fitted, merged, whole_fields
from gputui.tui.rendering.marks import host_state, state_cell
from gputui.tui.totals import Total, total_of, total_of_hosts
from gputui.tui.views.fleet.gpu_columns import HOT_C, share
from gputui.tui.views.fleet.heat_cells import HeatLook
from gputui.tui.views.fleet.selection import Selection, alarm_role

STATE_WIDTH = 16
STATE, GLYPHS = "state", "gpus"
_URGENCY = {
    HostState.FAILED: 0.0,
    HostState.SILENT: 1.0,
    HostState.RECONNECTING: 2.0,
    HostState.READY: 4.0,
}
_COMING_UP = 3.0


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host and its slots, with their readings and history."""

    host: HostStatus
    slots: Sequence[Slot]
    look: HeatLook
    alarms: int = 0

    @property
    def total(self) -> Total:
        """Its GPUs taken together; without any, its CPUs and memory."""
        devices = [slot.device for slot in self.slots if slot.device is not None]
        return total_of(devices) if devices else total_of_hosts([self.host.reading])

    @property
    def hottest_c(self) -> float | None:
        """The temperature of its hottest GPU."""
        readings = [slot.device.temperature_c for slot in self.slots if slot.device is not None]
        return max((each for each in readings if each is not None), default=None)


def _state(row: HostRow, width: int) -> Line:
    return state_cell(host_state(row.host, row.look.now), width)


def _glyphs(row: HostRow, width: int) -> Line:
    slots = row.slots if len(row.slots) <= width else row.slots[: width - 1]
    parts = merged(row.look.cell(slot) for slot in slots)
    more = "…" if len(row.slots) > width else ""
    return [*parts, (more.ljust(width - len(slots)), "dim")]


def _utilization(row: HostRow, width: int) -> Line:
    value = row.total.utilization_percent
    return gauge(share(value, 100), fmt.MISSING if value is None else f"{value:.0f}%", width)


def _memory(row: HostRow, width: int) -> Line:
    total = row.total
    text = fmt.memory(total.memory_used_bytes, total.memory_total_bytes)
    return gauge(total.memory_share, text, width)


def _power(row: HostRow, width: int) -> Line:
    drawn = row.total.power_w
    text = fmt.MISSING if drawn is None else f"{drawn / 1000:.1f}kW"
    return gauge(row.total.power_share, text, width)


def _hottest(row: HostRow, width: int) -> Line:
    value = row.hottest_c
    return [(fmt.number(value).rjust(width), "warn" if (value or 0) >= HOT_C else "")]


def _alarms(row: HostRow, width: int) -> Line:
    return [(str(row.alarms or "").rjust(width), "warn")]


def _of_host(name: str, show: Callable[[float | None], str]) -> Cell[HostRow]:
    return lambda row, width: [(show(getattr(row.host.reading, name)).rjust(width), "dim")]


def _host_reading(name: str) -> Callable[[HostRow], SortValue]:
    def read(row: HostRow) -> SortValue:
        value: float | None = getattr(row.host.reading, name)
        return value

    return read


def _host_memory(row: HostRow, width: int) -> Line:
    reading = row.host.reading
    text = fmt.memory(reading.memory_used_bytes, reading.memory_total_bytes)
    return [(text.rjust(width), "dim")]


def _host_memory_share(row: HostRow) -> float | None:
    return share(row.host.reading.memory_used_bytes, row.host.reading.memory_total_bytes)


HOST_COLUMNS: tuple[Column[HostRow], ...] = (
    Column(
        STATE, "STATE", STATE_WIDTH, 0, _state,
        lambda r: _URGENCY.get(r.host.state, _COMING_UP), "how the host is", False, False, least=9,
    ),
    Column(GLYPHS, "GPUS", 8, 0, _glyphs, lambda r: len(r.slots), "a cell per GPU", False, least=4),
    Column(
        "util", "UTIL", 10, 0, _utilization, lambda r: r.total.utilization_percent,
        "mean utilisation of its GPUs", least=6, most=22,
    ),
    Column(
        "mem", "MEM", 12, 0, _memory, lambda r: r.total.memory_share,
        "GPU memory used and total", least=6, most=22,
    ),
    Column(
        "power", "PWR", 8, 0, _power, lambda r: r.total.power_w, "power drawn", least=6, most=16
    ),
    Column("temp", "°C", 3, 0, _hottest, lambda r: r.hottest_c, "its hottest GPU"),
    Column("alarms", "!", 2, 1, _alarms, lambda r: r.alarms or None, "alarms"),
    Column(
        "cpu", "CPU", 4, 2, _of_host("cpu_percent", fmt.number), _host_reading("cpu_percent"),
        "CPU of the host in percent",
    ),
    Column("memory", "HOST MEM", 11, 3, _host_memory, _host_memory_share, "memory of the host"),
    Column(
        "load", "LOAD", 5, 4, _of_host("load_1m", lambda value: fmt.number(value, 1)),
        _host_reading("load_1m"), "load of a minute",
    ),
    Column(
        "receive", "RECV/s", 7, 5, _of_host("network_receive_bytes_per_s", fmt.size),
        _host_reading("network_receive_bytes_per_s"), "network, received",
    ),
    Column(
        "send", "SEND/s", 7, 6, _of_host("network_send_bytes_per_s", fmt.size),
        _host_reading("network_send_bytes_per_s"), "network, sent",
    ),
)  # fmt: skip


ON_CPUS = {
    GLYPHS: "WORKERS", "util": "CPU", "mem": "MEM", "power": "", "temp": "", "cpu": "", "memory": ""
}  # fmt: skip
"""What columns are called where there is no GPU; "" says nothing more there."""


def of_cpu_hosts(columns: Iterable[Column[HostRow]]) -> list[Column[HostRow]]:
    """Return those columns that say something of hosts without GPUs."""
    titles = [(each, ON_CPUS.get(each.key, each.title)) for each in columns]
    return [
        replace(each, title=title, width=max(each.width, len(title)))
        for each, title in titles
        if title
    ]


NAME_MOST = 24
GLYPHS_LEAST = 8


class HostRows:
    """The rows of one drawing."""

    def __init__(
        self, selection: Selection, order: Order[HostRow], look: HeatLook, width: int
    ) -> None:
        self._selection, self._order, self._look = selection, order, look
        self._names = min(NAME_MOST, max([4, *map(cell_len, selection.by_host)]))
        most = max((len(slots) for slots in selection.by_host.values()), default=1)
        columns = [
            replace(column, width=max(4, min(GLYPHS_LEAST, most)), most=most)
            if column.key == GLYPHS
            else column
            for column in HOST_COLUMNS
        ]
        if not selection.on_gpus:
            columns = of_cpu_hosts(columns)
        self.columns: tuple[Fitted[HostRow], ...] = fitting(columns, width - self._names - 2)

    @property
    def heading(self) -> Line:
        """The titles, with an arrow at the one that is sorted by."""
        return self._order.heading(self.columns, "  " + fitted("HOST", self._names))

    @property
    def headings(self) -> tuple[tuple[str, int], ...]:
        """The order that each title stands for, and its cells."""
        columns = ((each.column.key, each.width) for each in self.columns)
        return (("host", self._names + 1), *columns)

    def keys(self) -> list[str]:
        """Return the hosts in their order."""
        rows = map(self._value, self._selection.by_host)
        return [row.host.name for row in self._order.sorted(rows)]

    def _value(self, name: str) -> HostRow:
        slots, alarms = self._selection.by_host[name], self._selection.alarms
        alarmed = sum(slot.key in alarms for slot in slots)
        return HostRow(self._selection.hosts[name], slots, self._look, alarmed)

    def texts(self, name: str) -> list[str]:
        """Return a host as a file has it."""
        return [name, *texts(HOST_COLUMNS, self._value(name))]

    def row(self, name: str) -> Line:
        """Return a host in one line."""
        selection = self._selection
        value = self._value(name)
        host = value.host
        role = alarm_role(selection.alarms.get(name, ())) or ("warn" if value.alarms else "")
        marked = name in selection.marked
        first: Part = (MARK, "accent") if marked else ("!", role) if role else (" ", "")
        title = fitted(fmt.safe(name), self._names)
        parts: list[Part] = [first, (" ", ""), (title, role or "title")]
        if host.reason and not value.slots:
            text, mark_role = host_state(host, self._look.now)
            return [*parts, (f" {text}  ", mark_role), (fmt.safe(host.reason), "warn")]
        return [*parts, *row(self.columns, value)]


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
    """Return the line above a host's GPUs: name, models, and the readings that fit."""
    arrow = "▸" if folded else "▾"
    gutter: Part = (MARK, "accent") if marked else ("!", alarm) if alarm else (" ", "")
    name = fitted(fmt.safe(host.name), min(NAME_MOST, cell_len(host.name)))
    parts: list[Part] = [gutter, (arrow, alarm or "title"), (name, alarm or "title")]
    if host.state is not HostState.READY:
        text, role = host_state(host, look.now)
        parts.insert(2, (f"{text}  ", role))
    if host.reason:
        return [*parts, (f"  {fmt.safe(host.reason)}", "warn")]
    if folded:
        parts += [("  ", ""), *merged([look.cell(slot) for slot in slots])]
    read = host.reading
    fields = (
        models(slots),
        f"  cpu {fmt.percent(read.cpu_percent)}",
        f"  mem {fmt.memory(read.memory_used_bytes, read.memory_total_bytes)}",
        f"  load {fmt.number(read.load_1m, 1)}",
        f"  net {fmt.size(read.network_receive_bytes_per_s)}↓"
        f" {fmt.size(read.network_send_bytes_per_s)}↑",
    )
    return whole_fields([*parts, *((field, "dim") for field in fields if field)], width)


def models(slots: Sequence[Slot]) -> str:
    """Name the models of these GPUs, each once with its number.

    >>> models([])
    ''
    """
    counts = Counter(slot.device.name for slot in slots if slot.device is not None)
    short = (f"{count}×{name.removeprefix('NVIDIA ')}" for name, count in counts.items())
    return fmt.safe("  " + " + ".join(short)) if counts else ""
