"""The fleet as rows and cells: a GPU, a host over its GPUs, a host in one line, a cell of the map.

The readings are those of `metrics`. Pure but for the histories, which the watched cluster keeps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len

from gputui.model import series
from gputui.model.alarms import SERIOUS, AlarmKind
from gputui.model.readings import Owner
from gputui.model.slots import PLACES, Slot, SlotState
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column
from gputui.tui.rendering.format import HEATS
from gputui.tui.rendering.lines import Line, Part, fitted, merged, spark, whole_fields
from gputui.tui.rendering.marks import MARKS, host_mark, host_state, slot_state, state_cell
from gputui.tui.rendering.metrics import GRAPHED, METRICS, OF_CPU_HOSTS, OF_HOSTS, Metric

if TYPE_CHECKING:
    from gputui.model.history import History

CELL, IDLE, ABSENT = "▇", "□", "·"
LEAST = 0.01
"""Below which a cell is an outline, except where a task runs."""
OLDEST_S = 60.0
"""From which age on a last task is as old as any."""
FILLED = (SlotState.IDLE, SlotState.BUSY, SlotState.FOREIGN)
"""The states that a cell's colour, not a mark, stands for."""
GENEROUS_HISTORY = 37
"""Cells of history from which on bars grow, and columns that are less asked for come in."""
NAME_MOST = 24
HEAT = (*GRAPHED, None)
"""The metrics that cells can show; None is the age of the last task."""
ENDS = {"temp": ("30", "90 °C"), "power": ("0", "limit")}


def alarm_role(kinds: Sequence[AlarmKind]) -> str:
    """Return the role of what has these alarms, the serious first.

    >>> alarm_role([]), alarm_role([AlarmKind.IDLE]), alarm_role([AlarmKind.ECC, AlarmKind.IDLE])
    ('', 'warn', 'bad')
    """
    if not kinds:
        return ""
    return "bad" if kinds[0] in SERIOUS else "warn"


class Zoom(StrEnum):
    """The zooms of the fleet."""

    GPU = "gpu"
    HOST = "host"
    HEAT = "heat"


@dataclass(frozen=True, slots=True)
class Look:
    """What rows and cells are drawn from, apart from hosts and slots."""

    now: float = 0.0
    alarms: Mapping[str, Sequence[AlarmKind]] = field(default_factory=dict)
    last_task_at: Mapping[str, float] = field(default_factory=dict)
    history: "History | None" = None
    metric: Metric | None = GRAPHED[0]
    """What the cells show."""
    flat: bool = False
    """Whether the ramp's colours do not say enough: the height of a cell then speaks."""

    def fraction(self, slots: Sequence[Slot]) -> float | None:
        """Return where on the ramp slots are, None where it cannot be said."""
        if self.metric is not None:
            return self.metric.fraction(slots)
        workers = (worker for slot in slots for worker in slot.workers)
        ran = [at for each in workers if (at := self.last_task_at.get(each.name))]
        return 1 - (self.now - max(ran)) / OLDEST_S if ran else None

    def cell(self, slot: Slot) -> Part:
        """Return a slot's cell: one character and its role."""
        mark = MARKS[slot.state]
        if slot.state not in FILLED:
            return (mark.shape, mark.role)
        if kinds := self.alarms.get(slot.key):
            return ("!", alarm_role(kinds))
        fraction = self.fraction([slot])
        if fraction is not None and slot.state is SlotState.BUSY:
            fraction = max(fraction, LEAST)
        return self.on_ramp(fraction)

    def on_ramp(self, fraction: float | None) -> Part:
        """Return a cell of the ramp: an outline of nothing, a dash for what is missing."""
        if fraction is None:
            return (fmt.MISSING, "dim")
        if fraction < LEAST:
            return (IDLE, "dim")
        step = min(HEATS - 1, max(0, int(fraction * HEATS)))
        return (fmt.EIGHTHS[step + 1] if self.flat else CELL, f"heat{step}")

    def host_cell(self, host: HostStatus, slots: Sequence[Slot]) -> Part:
        """Return a whole host as one cell: the worst that holds, else its mean.

        >>> Look().host_cell(HostStatus("h", HostState.FAILED, 0.0), [])
        ('✖', 'bad')
        """
        if not slots:
            mark = host_mark(host)
            return (ABSENT, "dim") if host.state is HostState.READY else (mark.shape, mark.role)
        first = min(slots, key=lambda slot: PLACES[slot.state])
        alarmed = next((slot for slot in slots if slot.key in self.alarms), None)
        if MARKS[first.state].role in ("warn", "bad"):
            return self.cell(first)
        return self.cell(alarmed) if alarmed else self.on_ramp(self.fraction(slots))

    def legend(self) -> Line:
        """Return the legend of the cells."""
        after = HEAT[(HEAT.index(self.metric) + 1) % len(HEAT)]
        low, high = (f"{OLDEST_S:.0f} s ago", "now")
        if self.metric is not None:
            low, high = ENDS.get(self.metric.key, ("0", "100 %"))
        return [
            (f" {_heat_name(self.metric)} ", "title"),
            (f" {low} ", "dim"),
            *(self.on_ramp((step + 0.5) / HEATS) for step in range(HEATS)),
            (f" {high}", "dim"),
            ("  m", "key"),
            (f" {_heat_name(after).lower()}", "dim"),
            (f"  {IDLE} idle", "dim"),
            ("  !", "warn"),
            (" alarm", "dim"),
            ("  ✖", "bad"),
            (" broken", "dim"),
            ("  ◌", "warn"),
            (" silent", "dim"),
            (f"  {ABSENT} no worker", "dim"),
        ]


def _heat_name(metric: Metric | None) -> str:
    return metric.name if metric else "LAST TASK"


@dataclass(frozen=True, slots=True)
class Row:
    """A slot, or a host with its slots."""

    host: HostStatus
    slots: Sequence[Slot]
    look: Look
    slot: Slot | None = None
    """None for a host."""

    @property
    def key(self) -> str:
        """The slot's or the host's name."""
        return self.slot.key if self.slot else self.host.name

    @property
    def role(self) -> str:
        """The role of its alarms; amber for a host whose GPUs have some."""
        below = self.slot is None and any(slot.key in self.look.alarms for slot in self.slots)
        return alarm_role(self.look.alarms.get(self.key, ())) or ("warn" if below else "")

    @property
    def state(self) -> tuple[str, str]:
        """Its state for people, and the role of that."""
        now = self.look.now
        return slot_state(self.slot, now) if self.slot else host_state(self.host, now)

    @property
    def urgency(self) -> float:
        """Its place among the states, the worst first."""
        return PLACES[self.slot.state] if self.slot else _URGENCY.get(self.host.state, 3)

    @property
    def current_task(self) -> str | None:
        """The task group that runs."""
        return next((w.current_task for slot in self.slots for w in slot.workers), None)


_URGENCY = {
    HostState.FAILED: 0,
    HostState.SILENT: 1,
    HostState.RECONNECTING: 2,
    HostState.READY: 4,
}


def _what(row: Row) -> Part:
    """Describe the trouble with a slot, else the task that runs on it."""
    slot = row.slots[0]
    kinds = row.look.alarms.get(slot.key, ())
    if slot.foreign and slot.device is not None:
        other = next(each for each in slot.device.processes if each.owner is not Owner.OURS)
        return fmt.safe(f"{other.user or '?'}: {other.command or '?'}"), "warn"
    reason = next((worker.reason for worker in slot.workers if worker.reason), "")
    if reason and not slot.host_silent:  # then it is the host that does not answer
        return fmt.safe(reason), alarm_role(kinds) or "warn"
    if kinds:
        return kinds[0].value, alarm_role(kinds)
    return fmt.safe(row.current_task or ""), ""


def _task(row: Row, width: int) -> Line:
    text, role = _what(row)
    return [(fitted(text, width), role)]


def _history(row: Row, width: int) -> Line:
    slot = row.slots[0]
    key, span = slot.device.uuid if slot.device else slot.key, series.Span.MINUTES_2
    if row.look.history is None:
        return [(" " * width, "")]
    steps = row.look.history.steps(key, series.Metric.UTILIZATION, span, 2 * width)
    return [_spark(tuple(steps), width)]


@lru_cache(maxsize=1024)
def _spark(percents: tuple[float | None, ...], width: int) -> Part:
    """Return a history, which stays as it is until its next step."""
    return spark(percents, width, 100.0)


def _glyphs(row: Row, width: int) -> Line:
    slots = row.slots if len(row.slots) <= width else row.slots[: width - 1]
    more = "…" if len(row.slots) > width else ""
    return [*merged(map(row.look.cell, slots)), (more.ljust(width - len(slots)), "dim")]


def _alarmed(row: Row) -> float | None:
    return sum(slot.key in row.look.alarms for slot in row.slots) or None


def _alarm_count(row: Row, width: int) -> Line:
    return [(str(_alarmed(row) or "").rjust(width), "warn")]


def _column(metric: Metric) -> Column[Row]:
    def read(row: Row) -> Sequence[Slot | HostStatus]:
        return (row.host,) if metric.host else row.slots

    return Column(
        metric.key, metric.title, metric.width, metric.rank,
        lambda row, width: metric.cell(read(row), width), lambda row: metric.amount(read(row)),
        metric.does, least=metric.least, most=metric.most,
    )  # fmt: skip


def name_column(names: Iterable[str], title: str, name: Callable[[Row], str]) -> Column[Row]:
    """Return the first column, wide enough for these names; `name` is that of a row."""
    width = min(NAME_MOST, max(4, len(title), *map(cell_len, set(names)), 0))

    def cell(row: Row, cells: int) -> Line:
        role = row.role if row.slot else row.role or "title"
        return [(" " + fitted(fmt.safe(name(row)), cells - 1), role)]

    return Column("host", f" {title}", width + 1, 0, cell, right=False)


STATE: Column[Row] = Column(
    "state", "STATE", 12, 0, lambda row, width: state_cell(row.state, width),
    lambda row: row.urgency, "what the worker on it does, or what is wrong", False, False, least=8,
)  # fmt: skip
TASK: Column[Row] = Column(
    "task", "TASK", 14, 1, _task, lambda row: row.current_task,
    "the task group that runs; in its place what is wrong", False, False, most=30,
)  # fmt: skip
HISTORY: Column[Row] = Column(
    "history", "UTIL, 2 MIN", 14, 6, _history, does="utilisation of the last minutes",
    right=False, rest=GENEROUS_HISTORY, saved=False,
)  # fmt: skip
_OF_SLOTS = [_column(metric) for metric in METRICS]
COLUMNS: tuple[Column[Row], ...] = (STATE, *_OF_SLOTS[:8], TASK, HISTORY, *_OF_SLOTS[8:])
BY_KEY = {column.key: column for column in COLUMNS}
GLYPHS: Column[Row] = Column(
    "gpus", "GPUS", 8, 0, _glyphs, lambda row: len(row.slots), "a cell per GPU", False, least=4
)
GLYPHS_LEAST = 8
HOST_COLUMNS: tuple[Column[Row], ...] = (
    replace(STATE, width=16, least=9),
    GLYPHS,
    *map(_column, GRAPHED),
    Column("alarms", "!", 2, 1, _alarm_count, _alarmed, "alarms"),
    *map(_column, OF_HOSTS),
)
CPU_HOST_COLUMNS: tuple[Column[Row], ...] = (
    *HOST_COLUMNS[:2],
    *map(_column, OF_CPU_HOSTS),
    *(column for column in HOST_COLUMNS if column.key in ("alarms", "load", "receive", "send")),
)
OF_GPUS = frozenset(metric.key for metric in METRICS if not metric.worker)
"""Columns that CPU workers do not have."""
SAME = {"cpu": "util", "rss": "mem"}
"""Columns that say of CPU workers what another says."""
ON_CPUS = {"UTIL": "CPU", "GPUS": "WORKERS"}


def columns_named(names: Iterable[str]) -> tuple[Column[Row], ...]:
    """Return the columns of these names, or all columns if no name is known."""
    return tuple(BY_KEY[name] for name in dict.fromkeys(names) if name in BY_KEY) or COLUMNS


def host_columns(most: int, *, on_gpus: bool) -> Sequence[Column[Row]]:
    """Return the columns of hosts of at most so many slots."""
    glyphs = replace(GLYPHS, width=max(4, min(GLYPHS_LEAST, most)), most=most)
    columns = HOST_COLUMNS if on_gpus else CPU_HOST_COLUMNS
    columns = tuple(glyphs if each is GLYPHS else each for each in columns)
    return columns if on_gpus else on_cpus(columns)


def on_cpus(columns: Sequence[Column[Row]]) -> list[Column[Row]]:
    """Return those columns that say something of CPU workers, each thing once."""
    keys = {column.key for column in columns}
    found: list[Column[Row]] = []
    for column in columns:
        if column.key not in OF_GPUS and SAME.get(column.key) not in keys:
            first, comma, rest = column.title.partition(",")
            title = ON_CPUS.get(first, first) + comma + rest
            found.append(replace(column, title=title, width=max(column.width, len(title))))
    return found


def group_line(row: Row, sign: Part, width: int, *, folded: bool) -> Line:
    """Return the line over a host's GPUs: its state, its name, its readings that fit."""
    host, look = row.host, row.look
    alarm = alarm_role(look.alarms.get(host.name, ()))
    name = fitted(fmt.safe(host.name), min(NAME_MOST, cell_len(host.name)))
    text, role = row.state
    state = "" if host.state is HostState.READY else f"{text}  "
    parts: list[Part] = [sign, ("▸" if folded else "▾", alarm), (state, role)]
    parts.append((name, alarm or "title"))
    if host.reason:
        return [*parts, (f"  {fmt.reason(host)}", "warn")]
    if folded:
        parts += [("  ", ""), *merged(map(look.cell, row.slots))]
    read = host.reading
    fields = (
        models(row.slots),
        f"  cpu {fmt.percent(read.cpu_percent)}",
        f"  mem {fmt.memory(read.memory_used_bytes, read.memory_total_bytes)}",
        f"  load {fmt.number(read.load_1m, 1)}",
        f"  net {fmt.size(read.network_receive_bytes_per_s)}↓"
        f" {fmt.size(read.network_send_bytes_per_s)}↑",
    )
    return whole_fields([*parts, *((text, "dim") for text in fields if text)], width)


def models(slots: Sequence[Slot]) -> str:
    """Name the models of these GPUs, each once with its number.

    >>> models([])
    ''
    """
    counts = Counter(slot.device.name for slot in slots if slot.device is not None)
    short = (f"{count}×{name.removeprefix('NVIDIA ')}" for name, count in counts.items())
    return fmt.safe("  " + " + ".join(short)) if counts else ""
