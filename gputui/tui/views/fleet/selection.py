"""The slots in sight, and their order: filter, order, folded hosts, marks.

Pure: it is computed from the watched state, for the fleet's view.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from gputui.model.alarms import SERIOUS, AlarmKind
from gputui.model.slots import Slot, SlotState
from gputui.model.snapshot import HostState, HostStatus
from gputui.tui.filter import Fields, Matches, Row, parse
from gputui.tui.order import Order
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.lines import Line, Part
from gputui.tui.rendering.marks import MARKS, host_state
from gputui.tui.views.fleet.gpu_columns import (
    COLUMNS,
    memory_of,
    memory_share,
    utilization_share,
)
from gputui.tui.watched import Watched
from gputui.tui.widgets.heat import HostCells


def _of_device(name: str) -> Callable[[Slot], float | None]:
    return lambda slot: getattr(slot.device, name, None)


SLOT_FIELDS: Fields[Slot] = Fields(
    everything=lambda slot: " ".join(
        (
            slot.key,
            slot.state.value,
            slot.device.name if slot.device else "",
            *(
                f"{process.user} {process.command}"
                for process in (slot.device.processes if slot.device else ())
            ),
            *(worker.current_task or "" for worker in slot.workers),
        )
    ),
    words={
        "state": lambda slot: slot.state.value,
        "host": lambda slot: slot.host.name,
        "model": lambda slot: slot.device.name if slot.device else "",
        "alarm": lambda slot: "",
    },
    numbers={
        "util": lambda slot: _percent(utilization_share(slot)),
        "temp": _of_device("temperature_c"),
        "power": _of_device("power_w"),
        "clock": _of_device("sm_clock_mhz"),
        "ecc": _of_device("ecc_errors"),
        "mem": lambda slot: _percent(memory_share(slot)),
        "cpu": lambda slot: slot.total("cpu_percent"),
        "rss": lambda slot: slot.total("rss_bytes"),
        "spill": lambda slot: slot.total("spilled_bytes"),
        "executing": lambda slot: slot.total("executing"),
        "ready": lambda slot: slot.total("ready"),
        "restarts": lambda slot: slot.total("restarts"),
    },
    sizes={"mem": lambda slot: memory_of(slot)[0]},
    choices={"state": (*SlotState, *HostState)},
)

HOST_FIELDS: Fields[HostStatus] = Fields(
    everything=lambda host: f"{host.name} {host.state.value} {host.reason}",
    words={
        "state": lambda host: host.state.value,
        "host": lambda host: host.name,
        "model": lambda host: "",
        "alarm": lambda host: "",
    },
    numbers={name: lambda host: None for name in SLOT_FIELDS.numbers},
    choices={"state": (*SlotState, *HostState)},
)


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else fraction * 100


class Zoom(StrEnum):
    """The zooms of the fleet."""

    GPU = "gpu"
    HOST = "host"
    HEAT = "heat"


PAGES = 2
"""Pages of GPUs that are looked at as rows rather than from farther away."""


class Selection:
    """The visible slots, and the marked ones."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.by_host: dict[str, list[Slot]] = {}
        self.hosts: dict[str, HostStatus] = {}
        self.alarms: dict[str, list[AlarmKind]] = {}
        self.now = 0.0
        self.total = 0
        """All slots, also those that the filter hides."""
        self.on_gpus = True
        """Whether any of all slots is a GPU; else they are CPU workers."""
        self.order = Order(COLUMNS, unsorted="host")
        self.marked: set[str] = set()
        self.folded: set[str] = set()
        self.filter_text = ""
        self._matches: Matches[Slot] | None = None
        self._host_matches: Matches[HostStatus] | None = None
        """Of a host that has no slot: it failed, or is on its way."""

    def look(self, watched: Watched) -> bool:
        """Take in the newest snapshot; return whether there is one."""
        snapshot = watched.snapshot
        if snapshot is None:
            return False
        self.now = snapshot.taken_at
        self.alarms = watched.alarms.by_subject()
        self.hosts = {host.name: host for host in snapshot.hosts}
        self.total, self.on_gpus = len(watched.slots), watched.on_gpus
        self._choose(watched.slots)
        self.marked &= self.slots.keys() | self.hosts.keys()
        return True

    def _choose(self, slots: Sequence[Slot]) -> None:
        matches, host_matches = self._matches, self._host_matches
        chosen = slots if matches is None else [slot for slot in slots if matches(slot)]
        self.slots = {slot.key: slot for slot in chosen}
        self.by_host = {name: [] for name in self.hosts}
        for host, of_host in groupby(chosen, key=attrgetter("host.name")):
            self.by_host[host].extend(of_host)
        if host_matches is not None:
            with_slots = {slot.host.name for slot in slots}
            self.by_host = {
                name: of_host
                for name, of_host in self.by_host.items()
                if of_host or (name not in with_slots and host_matches(self.hosts[name]))
            }

    def filter(self, text: str) -> None:
        """Set the filter; raises FilterError."""
        wanted = text.strip()
        slots = self._and_alarms(SLOT_FIELDS, lambda slot: (slot.key, slot.host.name))
        hosts = self._and_alarms(HOST_FIELDS, lambda host: (host.name,))
        self._matches = parse(wanted, slots) if wanted else None
        self._host_matches = parse(wanted, hosts) if wanted else None
        self.filter_text = wanted

    def _and_alarms(
        self, fields: Fields[Row], subjects_of: Callable[[Row], Iterable[str]]
    ) -> Fields[Row]:
        """Return these fields, and a field for the alarms of a row's subjects."""

        def alarm(row: Row) -> str:
            return ", ".join(
                kind for name in subjects_of(row) for kind in self.alarms.get(name, ())
            )

        return Fields(
            lambda row: f"{fields.everything(row)} {alarm(row)}",
            {**fields.words, "alarm": alarm},
            fields.numbers,
        )

    def fitting(self, room: int) -> Zoom:
        """Return the closest zoom: rows of GPUs for two pages of so many lines, else what fits."""
        if len(self.by_host) == 1 or len(self.slots) + len(self.by_host) <= PAGES * room:
            return Zoom.GPU
        return Zoom.HOST if len(self.by_host) <= room else Zoom.HEAT

    def keys(self) -> list[str]:
        """Return the rows of the GPU zoom: hosts over their slots, or slots in another order."""
        if self.order.chosen:
            return [slot.key for slot in self.order.sorted(self.slots.values())]
        return list(self._grouped())

    def _grouped(self) -> Iterable[str]:
        for name, slots in self.by_host.items():
            yield name
            if name not in self.folded:
                yield from (slot.key for slot in slots)

    def blocks(self) -> list[HostCells]:
        """Return the cells of the heat zoom: a host's slots, or one for a host without any."""
        return [
            HostCells(name, tuple(slot.key for slot in slots) or (name,))
            for name, slots in self.by_host.items()
        ]

    def fold(self, key: str) -> str:
        """Fold the host that a row is of, or unfold it; return the host's name."""
        name = self.slots[key].host.name if key in self.slots else key
        self.folded ^= {name}
        return name

    def fold_all(self) -> None:
        """Fold every host, or unfold all when one is folded."""
        self.folded = set() if self.folded else set(self.by_host)

    def described(self, key: str | None) -> Line:
        """Describe the slot or host under the cursor."""
        slot, host = self.slots.get(key or ""), self.hosts.get(key or "")
        if host is not None:
            state, role = host_state(host, self.now)
            return [(f"  {fmt.safe(host.name)}", "title"), (f" {state}", role)]
        if slot is None:
            return []
        used, total = memory_of(slot)
        busy = fmt.number(_percent(utilization_share(slot)))
        return [
            (f"  {fmt.safe(slot.key)}", "title"),
            (f" {MARKS[slot.state].word}", ""),
            (f" {busy}% {fmt.memory(used, total)}", ""),
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

    def crumbs(self) -> Line:
        """Describe the filter and the marks."""
        parts: list[Part] = []
        if self.filter_text:
            parts.append((f"  /{self.filter_text}", "accent"))
        if self.marked:
            parts.append((f"  {len(self.marked)} marked", "accent"))
        return parts


def alarm_role(kinds: Sequence[AlarmKind]) -> str:
    """Return the colour role for these alarms, serious ones first.

    >>> alarm_role([]), alarm_role([AlarmKind.IDLE]), alarm_role([AlarmKind.ECC, AlarmKind.IDLE])
    ('', 'warn', 'bad')
    """
    if not kinds:
        return ""
    return "bad" if kinds[0] in SERIOUS else "warn"
