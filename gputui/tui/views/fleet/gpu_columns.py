"""The columns of the fleet's GPU rows: what each shows of a slot, how it sorts, what fits.

A cell is a part (text, role) of exactly the column's width. Columns are ranked: a narrow
terminal leaves out the highest ranks first. Pure but for nothing: values in, parts out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gputui.slots import PLACES, Slot
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.marks import MARKS
from gputui.tui.widgets.pane import Part, fitted

SortValue = float | str | None
HOT_C = 85.0
MEMORY_ALARM = 0.95


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the GPU rows."""

    key: str
    title: str
    width: int
    rank: int
    """0 is always shown; the highest goes first where room is short."""
    cell: Callable[[Slot], Part]
    sort: Callable[[Slot], SortValue]
    right: bool = True
    falling: bool = True
    """Whether the largest comes first when it is sorted by."""

    def heading(self, mark: str = "") -> str:
        """Return the title as wide as the column, with the mark of the order."""
        title = self.title[: self.width - len(mark)] + mark
        return fitted(title, self.width, self.right)


def _device(slot: Slot, name: str) -> float | None:
    value: float | None = None if slot.device is None else getattr(slot.device, name)
    return value


def _right(text: str, width: int, role: str = "") -> Part:
    return (text.rjust(width), role)


def _state(slot: Slot) -> Part:
    mark = MARKS[slot.state]
    return (f"{mark.shape} {slot.state.value:<9}", mark.role)


def _utilization(slot: Slot) -> Part:
    value = _device(slot, "utilization_percent")
    if value is None:
        return ("  – ", "")
    return (f"{value:3.0f}{fmt.level(value / 100)}", "busy" if value >= 1 else "dim")


def _memory_fraction(slot: Slot) -> float | None:
    used, total = _device(slot, "memory_used_bytes"), _device(slot, "memory_total_bytes")
    return None if used is None or not total else used / total


def _memory(slot: Slot) -> Part:
    device = slot.device
    used, total = (
        (device.memory_used_bytes, device.memory_total_bytes)
        if device
        else (slot.total("rss_bytes"), slot.total("memory_limit_bytes"))
    )
    text = fmt.memory(_whole(used), _whole(total))
    full = (_memory_fraction(slot) or 0) > MEMORY_ALARM
    return _right(text, 10, "bad" if full else "")


def _temperature(slot: Slot) -> Part:
    value = _device(slot, "temperature_c")
    role = "warn" if value is not None and value >= HOT_C else ""
    return _right(fmt.number(value), 4, role)


def _power(slot: Slot) -> Part:
    drawn, limit = _device(slot, "power_w"), _device(slot, "power_limit_w")
    return _right(fmt.number(drawn) + (f"/{limit:.0f}" if limit is not None else ""), 7)


def _clock(slot: Slot) -> Part:
    throttled = bool(slot.device and slot.device.throttle_reasons)
    text = fmt.number(_device(slot, "sm_clock_mhz"))
    return _right(text + ("▾" if throttled else ""), 5, "warn" if throttled else "")


def _ecc(slot: Slot) -> Part:
    errors = slot.device.ecc_errors if slot.device else None
    return _right(fmt.count(errors), 4, "bad" if errors else "")


def _tasks(slot: Slot) -> Part:
    names = ("executing", "ready", "in_memory")
    return _right("/".join(fmt.count(_whole(slot.total(name))) for name in names), 10)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def others(slot: Slot, width: int = 16) -> Part:
    """Return whose processes are on a slot's device beside this cluster's, and which."""
    device = slot.device
    found = [each for each in device.processes if each.owner != "ours"] if device else []
    if not found:
        return (" " * width, "")
    text = f"{found[0].user or '?'} {found[0].command or '?'}"
    return (fitted(fmt.safe(text), width), "warn")


def _of_workers(name: str, width: int, show: Callable[[float | None], str]) -> Callable[..., Part]:
    return lambda slot: _right(show(slot.total(name)), width)


COLUMNS: tuple[Column, ...] = (
    Column("state", "STATE", 11, 0, _state, lambda s: PLACES[s.state], False, False),
    Column("util", "UTIL", 4, 0, _utilization, lambda s: _device(s, "utilization_percent")),
    Column("mem", "MEM", 10, 1, _memory, _memory_fraction),
    Column("temp", "TEMP", 4, 2, _temperature, lambda s: _device(s, "temperature_c")),
    Column("power", "PWR", 7, 3, _power, lambda s: _device(s, "power_w")),
    Column("clock", "CLOCK", 5, 9, _clock, lambda s: _device(s, "sm_clock_mhz")),
    Column(
        "cpu",
        "CPU",
        4,
        5,
        _of_workers("cpu_percent", 4, fmt.number),
        lambda s: s.total("cpu_percent"),
    ),
    Column(
        "rss", "RSS", 5, 10, _of_workers("rss_bytes", 5, fmt.size), lambda s: s.total("rss_bytes")
    ),
    Column("tasks", "EX/RDY/MEM", 10, 4, _tasks, lambda s: s.total("executing")),
    Column(
        "spill",
        "SPILL",
        5,
        6,
        _of_workers("spilled_bytes", 5, fmt.size),
        lambda s: s.total("spilled_bytes"),
    ),
    Column(
        "restarts",
        "RST",
        3,
        12,
        _of_workers("restarts", 3, lambda n: fmt.count(_whole(n))),
        lambda s: s.total("restarts"),
    ),
    Column("ecc", "ECC", 4, 13, _ecc, lambda s: _device(s, "ecc_errors")),
    Column("owner", "OTHERS", 16, 7, others, lambda s: s.foreign, False),
)
OF_WORKERS_ALONE = frozenset({"cpu", "rss", "tasks", "spill", "restarts"})
"""The columns, side by side, that say nothing of a GPU without a worker."""
BY_KEY = {column.key: column for column in COLUMNS}
DOES = {
    "state": "what the worker on it does, or what is the matter",
    "util": "share of time in which the GPU computed",
    "mem": "GPU memory used and there; of a CPU worker, its own",
    "temp": "temperature in °C",
    "power": "power drawn and its cap, in W",
    "clock": "clock of its multiprocessors in MHz; ▾ is throttled",
    "cpu": "CPU of its workers; 100 is one core",
    "rss": "host memory of its workers",
    "tasks": "tasks executing, ready, and results in memory",
    "spill": "what its workers wrote to disk for want of memory",
    "restarts": "restarts of its workers",
    "ecc": "uncorrected memory errors",
    "owner": "processes on it that are not this cluster's",
}
"""What each column says."""
HISTORY_CELLS = 12
HISTORY_RANK = 8


def fitting(columns: Sequence[Column], room: int) -> tuple[Column, ...]:
    """Return those columns, in their order, that fit `room` cells with a space before each.

    >>> [column.key for column in fitting(COLUMNS, 35)]
    ['state', 'util', 'mem', 'temp']
    """
    chosen: set[str] = set()
    for column in sorted(columns, key=lambda column: column.rank):
        room -= column.width + 1
        if room < 0 and column.rank:
            break
        chosen.add(column.key)
    return tuple(column for column in columns if column.key in chosen)


def ordered(slots: Iterable[Slot], column: Column, backwards: bool = False) -> list[Slot]:
    """Return slots sorted by a column; those without a value come last either way."""
    known, unknown = [], []
    for slot in slots:
        value = column.sort(slot)
        if value is None:
            unknown.append(slot)
        else:
            known.append((value, slot))
    known.sort(key=lambda pair: pair[0], reverse=column.falling != backwards)
    return [slot for _, slot in known] + unknown
