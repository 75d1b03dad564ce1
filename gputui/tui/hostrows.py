"""A host and its slots → a row: the heading over its GPUs, or the whole host in one line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gputui.slots import Slot, SlotState
from gputui.snapshot import HostState, HostStatus
from gputui.tui import format as fmt
from gputui.tui.marks import MARKS, SlotMark
from gputui.tui.pane import Line, Part, fitted, merged, whole_fields

STATES = {
    HostState.READY: SlotMark("●", "good"),
    HostState.REFUSED: SlotMark("✖", "bad"),
    HostState.SILENT: SlotMark("◌", "warn"),
    HostState.RECONNECTING: SlotMark("◌", "warn"),
}
COMING_UP = SlotMark("◔", "accent")
STATE_WIDTH = 18
READINGS = (
    ("CPU%", 5),
    ("MEMORY", 11),
    ("LOAD", 6),
    ("RECV/s", 7),
    ("SEND/s", 7),
)
OF_GPUS = (
    ("UTIL%", 5),
    ("GPU MEM", 11),
    ("POWER", 6),
)
"""What is said of all GPUs of a host together, where there is room."""
MARK = "▌"
FEWEST_GLYPHS = 4


@dataclass(frozen=True, slots=True)
class HostLayout:
    """How host rows are laid out: the same for all, so that columns stand below each other."""

    name: int
    glyphs: int
    of_gpus: bool

    @classmethod
    def fitting(cls, names: int, glyphs: int, width: int) -> "HostLayout":
        """Return the layout for names and glyphs of so many cells in rows of this width."""
        taken = names + STATE_WIDTH + 4 + sum(cells + 1 for _, cells in READINGS)
        more = sum(cells + 1 for _, cells in OF_GPUS)
        of_gpus = width - taken - more >= glyphs
        room = width - taken - (more if of_gpus else 0)
        return cls(names, max(FEWEST_GLYPHS, min(glyphs, room)), of_gpus)

    @property
    def columns(self) -> tuple[tuple[str, int], ...]:
        """The titles and widths of the readings."""
        return (*OF_GPUS, *READINGS) if self.of_gpus else READINGS

    @property
    def heading(self) -> str:
        """The titles over the rows."""
        titles = [fitted(title, width, right=True) for title, width in self.columns]
        parts = [" " + fitted("HOST", self.name), fitted("STATE", STATE_WIDTH)]
        return " ".join([*parts, fitted("GPUS", self.glyphs), *titles])


def glyph(slot: Slot) -> Part:
    """Return a slot in one cell: how busy it is, or the shape of what is the matter."""
    mark = MARKS[slot.state]
    if slot.state is SlotState.BUSY and slot.device is not None:
        percent = slot.device.utilization_percent
        if percent is not None:
            return (fmt.coarse_level(percent / 100), mark.role)
    return (mark.shape, mark.role)


def state_part(host: HostStatus, now: float) -> Part:
    """Return a host's state with the age of what is known of a silent one."""
    mark = STATES.get(host.state, COMING_UP)
    text = f"{mark.shape} {host.state.value}"
    if host.state is not HostState.READY:
        text += f" {fmt.age(now - (host.read_at or host.state_since))}"
    return (fitted(text, STATE_WIDTH), mark.role)


def readings(host: HostStatus) -> tuple[str, ...]:
    """Return a host's own readings, in the order of `READINGS`."""
    reading = host.reading
    return (
        fmt.number(reading.cpu_percent),
        fmt.memory(reading.memory_used_bytes, reading.memory_total_bytes),
        fmt.number(reading.load_1m, 1),
        fmt.size(reading.network_receive_bytes_per_s),
        fmt.size(reading.network_send_bytes_per_s),
    )


def gpu_readings(slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return what all GPUs of a host come to, in the order of `OF_GPUS`.

    >>> gpu_readings([])
    ('–', '–', '–')
    """
    devices = [slot.device for slot in slots if slot.device is not None]
    busy = [d.utilization_percent for d in devices if d.utilization_percent is not None]
    used = [d.memory_used_bytes for d in devices if d.memory_used_bytes is not None]
    total = [d.memory_total_bytes for d in devices if d.memory_total_bytes is not None]
    drawn = [d.power_w for d in devices if d.power_w is not None]
    return (
        fmt.number(fmean(busy) if busy else None),
        fmt.memory(sum(used) if used else None, sum(total) if total else None),
        f"{sum(drawn) / 1000:.1f}kW" if drawn else fmt.MISSING,
    )


def group_row(
    host: HostStatus,
    slots: Sequence[Slot],
    name_width: int,
    now: float,
    width: int,
    *,
    folded: bool,
    marked: bool = False,
) -> Line:
    """Return the heading over a host's GPUs, with those of its readings that fit."""
    arrow = MARK if marked else "▸" if folded else "▾"
    name = fitted(f"{arrow}{fmt.safe(host.name)}", name_width + 2)
    cpu, memory, load, receive, send = readings(host)
    parts: list[Part] = [(name, "title"), state_part(host, now)]
    if host.reason:
        return [*parts, (fmt.safe(host.reason), "warn")]
    fields = (f"cpu {cpu}%", f"  mem {memory}", f"  load {load}", f"  net {receive}↓ {send}↑ ")
    parts = whole_fields([*parts, *((field, "dim") for field in fields)], width)
    return [*parts, *merged([glyph(slot) for slot in slots])] if folded else parts


def host_row(
    host: HostStatus, slots: Sequence[Slot], layout: HostLayout, now: float, *, marked: bool = False
) -> Line:
    """Return a host in one line, a glyph for each GPU."""
    first = (MARK, "accent") if marked else (" ", "")
    parts: list[Part] = [first, (fitted(fmt.safe(host.name), layout.name) + " ", "title")]
    parts += [state_part(host, now), (" ", "")]
    shown = slots if len(slots) <= layout.glyphs else slots[: layout.glyphs - 1]
    parts += merged([glyph(slot) for slot in shown])
    parts.append(("…" if len(slots) > len(shown) else " " * (layout.glyphs - len(shown)), "dim"))
    if host.reason:
        return [*parts, ("  " + fmt.safe(host.reason), "warn")]
    texts = (*(gpu_readings(slots) if layout.of_gpus else ()), *readings(host))
    cells = [
        fitted(text, width, right=True)
        for text, (_, width) in zip(texts, layout.columns, strict=True)
    ]
    return [*parts, (" " + " ".join(cells), "" if host.state.final else "dim")]
