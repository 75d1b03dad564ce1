"""The fleet as rows and cells: which are in sight, how they are drawn, what strays. Pure.

A row is a GPU or a host, a cell of the heat map is a GPU. What each says comes from the tables of
`metrics`. Outliers are what has an alarm, then what strays farthest from its own kind: busy GPUs of
one model and one power limit are compared by their means over a minute, with a robust z-score, the
distance from the median in median distances. One that is in the list stays there until it has
clearly come back, so that the list is still when nothing changes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from statistics import median
from typing import NamedTuple

from rich.cells import cell_len

from gputui.model import series
from gputui.model.alarms import SERIOUS, AlarmKind
from gputui.model.frozen import frozen
from gputui.model.readings import Owner, users
from gputui.model.slots import PLACES, Slot, SlotState
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.filter import Fields, Matches
from gputui.tui.rendering import Line, Part, fitted, merged, spark, whole_fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, Order
from gputui.tui.rendering.detail import LEAST_LINES
from gputui.tui.rendering.metrics import (
    GRAPHED,
    HEAT,
    HOST_MARKS,
    LAST_TASK,
    MARKS,
    MEM,
    METRICS,
    OF_CPU_HOSTS,
    OF_HOSTS,
    OLDEST_TASK_S,
    UTIL,
    Metric,
    host_state,
    slot_state,
    state_cell,
)
from gputui.tui.rendering.owners import owner_part
from gputui.tui.watched import Watched

CELL, IDLE, ABSENT = "▇", "□", "·"
HANGS: Part = ("≈", "accent")
"""A GPU that looks busy at the power of an idle one."""
LEAST = 0.01
"""Below which a cell is an outline, except where a task runs."""
FILLED = (SlotState.IDLE, SlotState.BUSY, SlotState.FOREIGN)
"""The states that a cell's colour, not a mark, stands for."""
GENEROUS_HISTORY = 37
"""Cells of history from which on bars grow, and columns that are less asked for come in."""
NAME_MOST = 24


def alarm_role(kinds: Sequence[AlarmKind]) -> str:
    """Return the role of what has these alarms, the serious first.

    >>> alarm_role([]), alarm_role([AlarmKind.IDLE]), alarm_role([AlarmKind.ECC, AlarmKind.IDLE])
    ('', 'warn', 'bad')
    """
    if not kinds:
        return ""
    if kinds[0] is AlarmKind.HANGS:
        return "accent"
    return "bad" if kinds[0] in SERIOUS else "warn"


class Zoom(StrEnum):
    """The zooms of the fleet."""

    GPU = "gpu"
    HOST = "host"
    HEAT = "heat"


@frozen
class Look:
    """What rows and cells are drawn from, apart from hosts and slots."""

    watched: Watched = field(default_factory=Watched)
    metric: Metric = UTIL
    """What the cells show."""
    flat: bool = False
    """Whether the ramp's colours do not say enough: the height of a cell then speaks."""

    @property
    def now(self) -> float:
        """When that was read."""
        return self.watched.snapshot.taken_at

    @property
    def alarms(self) -> Mapping[str, Sequence[AlarmKind]]:
        """The kinds of alarms of each slot and host."""
        return self.watched.by_subject

    def fraction(self, slots: Sequence[Slot]) -> float | None:
        """Return where on the ramp slots are, None where it cannot be said."""
        if self.metric is not LAST_TASK:
            return self.metric.fraction(slots)
        workers = (worker for slot in slots for worker in slot.workers)
        ran = [at for each in workers if (at := self.watched.last_task_at.get(each.name))]
        return 1 - (self.now - max(ran)) / OLDEST_TASK_S if ran else None

    def cell(self, slot: Slot) -> Part:
        """Return a slot's cell: one character and its role."""
        shape, _, role = MARKS[slot.state]
        if slot.state not in FILLED:
            return shape, role
        if kinds := self.alarms.get(slot.key):
            return HANGS if AlarmKind.HANGS in kinds else ("!", alarm_role(kinds))
        fraction = self.fraction([slot])
        if fraction is not None and slot.state is SlotState.BUSY:
            fraction = max(fraction, LEAST)
        return self.on_ramp(fraction)

    def on_ramp(self, fraction: float | None) -> Part:
        """Return a cell of the ramp: an outline of nothing, a dash for what is missing."""
        if fraction is None:
            return fmt.MISSING, "dim"
        if fraction < LEAST:
            return IDLE, "dim"
        step = min(fmt.HEATS - 1, int(fraction * fmt.HEATS))
        return fmt.EIGHTHS[step + 1] if self.flat else CELL, f"heat{step}"

    def host_cell(self, host: HostStatus, slots: Sequence[Slot]) -> Part:
        """Return a whole host as one cell: the worst that holds, else its mean.

        >>> Look().host_cell(HostStatus("h", HostState.FAILED, 0.0), [])
        ('✖', 'bad')
        """
        if not slots:
            shape, _, role = HOST_MARKS[host.state]
            return (ABSENT, "dim") if host.state is HostState.READY else (shape, role)
        first = min(slots, key=lambda slot: PLACES[slot.state])
        if MARKS[first.state][2] in ("warn", "bad"):
            return self.cell(first)
        alarmed = next((slot for slot in slots if slot.key in self.alarms), None)
        return self.cell(alarmed) if alarmed else self.on_ramp(self.fraction(slots))

    def legend(self) -> Line:
        """Return the legend of the cells."""
        after = HEAT[(HEAT.index(self.metric) + 1) % len(HEAT)]
        low, high = self.metric.ends
        return [
            (f" {self.metric.name} ", "title"),
            (f" {low} ", "dim"),
            *(self.on_ramp((step + 0.5) / fmt.HEATS) for step in range(fmt.HEATS)),
            (f" {high}", "dim"),
            ("  m", "key"),
            (f" {after.name.lower()}", "dim"),
            (f"  {IDLE} idle", "dim"),
            (f"  {HANGS[0]}", HANGS[1]),
            (" idle power", "dim"),
            ("  ✖", "bad"),
            (" broken", "dim"),
            ("  ◌", "warn"),
            (" silent", "dim"),
            ("  !", "warn"),  # the status line has one, too
            (" alarm", "dim"),
            (f"  {ABSENT} no worker", "dim"),
            ("  ◆", "bad"),
            (" wrong GPU", "dim"),
        ]


class Row(NamedTuple):
    """A slot, or a host with its slots; a tuple, as thousands are made."""

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
    def own_role(self) -> str:
        """The role of its alarms."""
        return alarm_role(self.look.alarms.get(self.key, ()))

    @property
    def role(self) -> str:
        """The role of its alarms; amber for a host whose GPUs have some."""
        return self.own_role or ("warn" if _alarmed(self) and not self.slot else "")

    @property
    def state(self) -> Part:
        """Its state for people, and the role of that."""
        now = self.look.now
        if AlarmKind.HANGS in self.look.alarms.get(self.key, ()):
            return f"{HANGS[0]} idle power", HANGS[1]
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


def _task(row: Row, width: int) -> Line:
    """Describe the trouble with a slot, else the task that runs on it."""
    slot = row.slots[0]
    kinds = row.look.alarms.get(slot.key, ())
    reason = next((worker.reason for worker in slot.workers if worker.reason), "")
    text, role = row.current_task or "", ""
    if slot.state is SlotState.FOREIGN and slot.device is not None and not slot.foreign:
        text, role = owner_part(slot.device, row.look.now)
    elif slot.foreign and slot.device is not None:
        other = next(each for each in slot.device.processes if each.owner is not Owner.OURS)
        text, role = f"{other.user or '?'}: {other.command or '?'}", "warn"
    elif reason and not slot.host_silent:  # then it is the host that does not answer
        text, role = reason, alarm_role(kinds) or "warn"
    elif kinds:
        text, role = kinds[0].value, alarm_role(kinds)
    return [(fitted(fmt.safe(text), width), role)]


def _owner(row: Row, width: int) -> Line:
    device = row.slots[0].device
    text, role = owner_part(device, row.look.now) if device else ("", "")
    return [(fitted(text, width), role)]


def _users(row: Row) -> str:
    """Return the users of a GPU, a line each."""
    device = row.slot.device if row.slot else None
    return "\n".join(users(device)) if device else ""


def _history(row: Row, width: int) -> Line:
    slot, history = row.slots[0], row.look.watched.history
    key, span = slot.device.uuid if slot.device else slot.key, series.Span.MINUTES_2
    return [spark(history.steps(key, series.Metric.UTILIZATION, span, 2 * width), width, 100.0)]


def _glyphs(row: Row, width: int) -> Line:
    slots = row.slots if len(row.slots) <= width else row.slots[: width - 1]
    more = "…" if len(row.slots) > width else ""
    return [*merged(map(row.look.cell, slots)), (more.ljust(width - len(slots)), "dim")]


def _free(row: Row) -> int:
    return sum(slot.state is SlotState.FREE for slot in row.slots)


def _alarmed(row: Row) -> float | None:
    return sum(slot.key in row.look.alarms for slot in row.slots) or None


def _column(metric: Metric) -> Column[Row]:
    def read(row: Row) -> Sequence[Slot | HostStatus]:
        return (row.host,) if metric.host else row.slots

    return Column(
        metric.key, metric.title, metric.width, metric.rank,
        lambda row, width: metric.cell(read(row), width), lambda row: metric.amount(read(row)),
        least=metric.least, most=metric.most,
    )  # fmt: skip


def name_column(names: Mapping[str, str], title: str) -> Column[Row]:
    """Return the first column, wide enough for these names of rows by their keys."""
    width = min(NAME_MOST, max(4, len(title), *map(cell_len, set(names.values())), 0))

    def cell(row: Row, cells: int) -> Line:
        role = row.role or ("" if row.slot else "title")
        return [(" " + fitted(fmt.safe(names.get(row.key, row.key)), cells - 1), role)]

    return Column("host", f" {title}", width + 1, 0, cell, right=False)


STATE: Column[Row] = Column(
    "state", "STATE", 12, 0, lambda row, width: state_cell(row.state, width),
    lambda row: row.urgency, False, False, least=8,
)  # fmt: skip
TASK: Column[Row] = Column(
    "task", "TASK", 14, 1, _task, lambda row: row.current_task,
    False, False, most=30,
)  # fmt: skip
USER: Column[Row] = Column(
    "user", "USER/CLAIM", 17, 7, _owner, lambda row: _users(row) or None,
    False, False, least=9, most=46,
)  # fmt: skip
HISTORY: Column[Row] = Column(
    "history", "UTIL, 2 MIN", 14, 6, _history, right=False, rest=GENEROUS_HISTORY, saved=False,
)  # fmt: skip
_OF_SLOTS = [_column(metric) for metric in METRICS]
COLUMNS: tuple[Column[Row], ...] = (
    STATE, *_OF_SLOTS[:4], USER, *_OF_SLOTS[4:8], TASK, HISTORY, *_OF_SLOTS[8:]
)  # fmt: skip
BY_KEY = {column.key: column for column in COLUMNS}
GLYPHS: Column[Row] = Column(
    "gpus", "GPUS", 8, 0, _glyphs, lambda row: len(row.slots), False, least=4
)
GLYPHS_LEAST = 8
FREE: Column[Row] = Column(
    "free", "FREE", 4, 0, lambda row, width: [(str(_free(row) or fmt.MISSING).rjust(width), "")],
    lambda row: _free(row) or None,
)  # fmt: skip
HOST_COLUMNS: tuple[Column[Row], ...] = (
    replace(STATE, width=16, least=9),
    GLYPHS,
    FREE,
    *map(_column, GRAPHED),
    Column(
        "alarms", "!", 2, 1, lambda row, width: [(str(_alarmed(row) or "").rjust(width), "warn")],
        _alarmed,
    ),
    *map(_column, OF_HOSTS),
)  # fmt: skip
CPU_HOST_COLUMNS: tuple[Column[Row], ...] = (
    *HOST_COLUMNS[:2],
    *map(_column, OF_CPU_HOSTS),
    *(column for column in HOST_COLUMNS if column.key in ("alarms", "load", "receive", "send")),
)
OF_GPUS = {USER.key, *(metric.key for metric in METRICS if not metric.worker)}
"""Columns that CPU workers do not have."""
OF_WORKERS = {TASK.key, *(metric.key for metric in METRICS if not metric.device)}
"""Columns that GPUs without workers do not have."""
SAME = {"cpu": "util", "rss": "mem"}
"""Columns that say of CPU workers what another says."""
ON_CPUS = {"UTIL": "CPU", "GPUS": "WORKERS", "UTIL, 2 MIN": "CPU, 2 MIN"}
"""Titles of columns of GPUs → those of CPU workers."""


def columns_named(names: Iterable[str]) -> tuple[Column[Row], ...]:
    """Return the columns of these names, or all columns if no name is known."""
    return tuple(BY_KEY[name] for name in dict.fromkeys(names) if name in BY_KEY) or COLUMNS


def host_columns(most: int, *, on_gpus: bool, watching: bool) -> Sequence[Column[Row]]:
    """Return the columns of hosts of at most so many slots; free GPUs where only watched."""
    glyphs = replace(GLYPHS, width=max(4, min(GLYPHS_LEAST, most)), most=most)
    columns = HOST_COLUMNS if on_gpus else CPU_HOST_COLUMNS
    columns = tuple(
        glyphs if each is GLYPHS else each for each in columns if each is not FREE or watching
    )
    return columns if on_gpus else on_cpus(columns)


def without_workers(columns: Sequence[Column[Row]], room: int) -> list[Column[Row]]:
    """Return those columns that say something where no worker is wanted; users have more room."""
    width = max(USER.width, min(USER.most, room // 4))
    shown = [each for each in columns if each.key not in OF_WORKERS]
    return [replace(each, rank=0, width=width) if each is USER else each for each in shown]


def on_cpus(columns: Sequence[Column[Row]]) -> list[Column[Row]]:
    """Return those columns that say something of CPU workers, each thing once."""
    keys = {column.key for column in columns}
    shown = [c for c in columns if c.key not in OF_GPUS and SAME.get(c.key) not in keys]
    titles = [ON_CPUS.get(column.title, column.title) for column in shown]
    return [
        replace(column, title=title, width=max(column.width, len(title)))
        for column, title in zip(shown, titles, strict=True)
    ]


def group_line(row: Row, sign: Part, width: int) -> Line:
    """Return the line over a host's GPUs: its state, its name, its readings that fit."""
    host, alarm = row.host, row.own_role
    name = fitted(fmt.safe(host.name), min(NAME_MOST, cell_len(host.name)))
    text, role = row.state
    state = "" if host.state is HostState.READY else f"{text}  "
    parts: list[Part] = [sign, ("▾", alarm), (state, role), (name, alarm or "title")]
    if host.reason:
        return [*parts, (f"  {fmt.safe(host.cause)}", "warn")]
    return whole_fields([*parts, *((text, "dim") for text in host_facts(host))], width)


def host_facts(host: HostStatus) -> Iterator[str]:
    """Yield a host's GPUs, by model, and its readings, each after two spaces.

    >>> "".join(host_facts(HostStatus("h", HostState.READY, 0.0)))
    '  cpu –  mem –  load –  net –↓ –↑'
    """
    read, counts = host.reading, Counter(device.name for device in host.devices)
    if models := [f"{count}×{name.removeprefix('NVIDIA ')}" for name, count in counts.items()]:
        yield fmt.safe(f"  {' + '.join(models)}")
    yield f"  cpu {fmt.percent(read.cpu_percent)}"
    yield f"  mem {fmt.memory(read.memory_used_bytes, read.memory_total_bytes)}"
    yield f"  load {fmt.number(read.load_1m, 1)}"
    received, sent = read.network_receive_bytes_per_s, read.network_send_bytes_per_s
    yield f"  net {fmt.size(received)}↓ {fmt.size(sent)}↑"


def _everything(row: Row) -> str:
    """Return all that a plain word is looked for in."""
    words = [row.key, row.host.state.value, row.host.reason]
    if (slot := row.slot) is not None:
        words = [slot.key, slot.state.value, _model(row)]
        processes = slot.device.processes if slot.device else ()
        words += [f"{each.user} {each.command}" for each in processes]
        if slot.device is not None and slot.device.claim is not None:
            words += [_users(row), slot.device.claim.note.text]
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
        "user": _users,
        "alarm": _alarm,
    },
    numbers={metric.asked_as or metric.key: partial(_amount, metric) for metric in METRICS},
    sizes={"mem": lambda row: MEM.value(row.slots)},
    times=("idle",),
    choices={"state": (*SlotState, *HostState)},
)

PAGES = 2
"""Pages of GPUs that are looked at as rows rather than from farther away."""


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


class Selection:
    """The slots that are shown now, and the outliers among them."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.by_host: dict[str, list[Slot]] = {}
        self.hosts: dict[str, HostStatus] = {}
        self.look = Look()
        self._strayed: dict[str, str] = {}
        """Why each outlier is one."""
        self._looked_at = 0.0

    def take(self, look: Look, matches: Matches[Row] | None = None) -> None:
        """Take in what matches of the newest snapshot."""
        self.look, watched = look, look.watched
        self.hosts = {host.name: host for host in watched.snapshot.hosts}
        slots: Sequence[Slot] = watched.slots
        if matches is not None:
            slots = [slot for slot in slots if matches(Row(slot.host, (slot,), look, slot))]
        self.slots = {slot.key: slot for slot in slots}
        self.by_host = {name: [] for name in self.hosts}
        for slot in slots:
            self.by_host[slot.host.name].append(slot)
        if matches is not None:
            with_slots = {slot.host.name for slot in watched.slots}
            for name, shown in list(self.by_host.items()):
                if not shown and (name in with_slots or not matches(self.row(name))):
                    del self.by_host[name]

    def row(self, key: str) -> Row:
        """Return a slot, or a host with its slots."""
        if slot := self.slots.get(key):
            return Row(slot.host, (slot,), self.look, slot)
        return Row(self.hosts[key], self.by_host.get(key, ()), self.look)

    def rows(self, zoom: Zoom, order: Order[Row]) -> Iterator[Row]:
        """Yield hosts, or slots in an order, or hosts and the slots of each."""
        if zoom is Zoom.HOST or order.chosen:
            keys = self.by_host if zoom is Zoom.HOST else self.slots
            yield from order.sorted(map(self.row, keys))
            return
        for name, slots in self.by_host.items():
            yield self.row(name)
            yield from (self.row(slot.key) for slot in slots)

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
        if slot := self.slots.get(key):
            return self.look.cell(slot)
        return self.look.host_cell(self.hosts[key], self.by_host[key])

    def described(self, key: str | None) -> Line:
        """Describe the slot or host under the cursor: its state, and what the cells show."""
        if key is None or key not in self.slots | self.hosts:
            return []
        row = self.row(key)
        return [
            (f"  {fmt.safe(key)}", "title"),
            (f" {row.state[0]}", row.state[1]),
            (f" {self.look.metric.say(self.look.metric.value(row.slots))}", ""),
        ]

    @property
    def size(self) -> Part:
        """The number of GPUs, and of CPU workers that are up, in sight."""
        total = Counter(slot.on_gpu for slot in self.look.watched.slots)
        shown = Counter(
            slot.on_gpu
            for slot in self.slots.values()
            if slot.on_gpu or any(worker.state.up for worker in slot.workers)
        )
        nouns = {True: "GPU", False: "CPU worker" if total[True] else "worker"}
        counts = [
            (f"{shown[kind]} of " if shown[kind] < total[kind] else "")
            + fmt.many(total[kind], noun)
            for kind, noun in nouns.items()
            if total[kind]
        ]
        slots = ", ".join(counts) or "0 GPUs"
        return (f"  {slots} on {fmt.many(len(self.by_host), 'host')}", "dim")

    @property
    def outliers(self) -> dict[str, Part]:
        """Why each slot stands out, and the role of that: by its alarms, else as it strays."""
        look, before = self.look, self._strayed
        if not self._looked_at <= look.now < self._looked_at + HOLD_S:
            self._looked_at = look.now
            strayed = {
                key: (-round(score), key, why)
                for key, (score, why) in strays(self.slots.values(), look).items()
                if score > (RETURNED if key in before else STRAYED)
            }
            self._strayed = {key: why for _, key, why in sorted(strayed.values())}
        alarmed = {k: (", ".join(kinds), alarm_role(kinds)) for k, kinds in look.alarms.items()}
        return alarmed | {k: (why, "") for k, why in self._strayed.items() if k not in alarmed}

    def outlier_lines(self, *, filtered: bool = False) -> list[Line]:
        """Return the list of outliers, of what is shown only where some are `filtered` out."""
        lines: list[Line] = [
            ((f"{fmt.safe(key)} ", "" if role else "dim"), (why, role))
            for key, (why, role) in self.outliers.items()
            if not filtered or key in self.slots
        ]
        if len(lines) > MOST:
            more = (f"+{len(lines) - MOST + 1} more", "dim")
            lines[MOST - 1 :] = [(more, ("  o", "key"), (" reaches all", "dim"))]
        title: Line = (("ALARMS AND OUTLIERS  ", "heading"), ("o", "key"), (" next", "dim"))
        return [title, *(lines or [(("none", "dim"),)])]

    def outlier_after(self, key: str | None) -> str | None:
        """Return the key of the outlier after this one; the first after the last."""
        keys = list(self.outliers)
        place = keys.index(key) + 1 if key in keys else 0
        return keys[place % len(keys)] if keys else None


def strays(slots: Iterable[Slot], look: Look) -> dict[str, tuple[float, str]]:
    """Return how far each busy GPU without an alarm is from its like at most, and in what."""
    alike: dict[tuple[str, float | None], dict[str, str]] = defaultdict(dict)
    for slot in slots:
        if slot.device and slot.state is SlotState.BUSY and slot.key not in look.alarms:
            kind = slot.device.name, slot.device.power_limit_w
            alike[kind][slot.key] = slot.device.uuid
    farthest: dict[str, tuple[float, str]] = {}
    for metric in GRAPHED:
        if not metric.spread or metric.kept is None:
            continue
        means = look.watched.history.minute(metric.kept)
        for uuids in alike.values():
            values = {key: means[uuid] for key, uuid in uuids.items() if uuid in means}
            if len(values) < FEWEST:
                continue
            middle = median(values.values())
            spread = max(metric.spread, median(abs(each - middle) for each in values.values()))
            for key, value in values.items():
                why = f"{metric.name.lower()} {metric.say(value)}, others {fmt.number(middle)}"
                score = TO_Z * abs(value - middle) / spread
                farthest[key] = max(farthest.get(key, (0.0, "")), (score, why))
    return farthest


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
