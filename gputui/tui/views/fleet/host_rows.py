"""A host and its slots → a row: the heading over its GPUs, or the whole host in one line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.slots import Slot, SlotState
from gputui.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.marks import MARKS, SlotMark
from gputui.tui.views.fleet.host_columns import OF_GPUS, READINGS, STATE, STATE_WIDTH, HostColumn
from gputui.tui.widgets.pane import Line, Part, fitted, merged, whole_fields

STATES = {
    HostState.READY: SlotMark("●", "good"),
    HostState.REFUSED: SlotMark("✖", "bad"),
    HostState.SILENT: SlotMark("◌", "warn"),
    HostState.RECONNECTING: SlotMark("◌", "warn"),
}
COMING_UP = SlotMark("◔", "accent")
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
        taken = names + STATE_WIDTH + 4 + sum(column.width + 1 for column in READINGS)
        more = sum(column.width + 1 for column in OF_GPUS)
        of_gpus = width - taken - more >= glyphs
        room = width - taken - (more if of_gpus else 0)
        return cls(names, max(FEWEST_GLYPHS, min(glyphs, room)), of_gpus)

    @property
    def columns(self) -> tuple[HostColumn, ...]:
        """The readings that there is room for."""
        return (*OF_GPUS, *READINGS) if self.of_gpus else READINGS

    def heading(self, sorted_by: HostColumn | None, backwards: bool) -> str:
        """Return the titles over the rows, with an arrow at the one that is sorted by."""

        def arrow(column: HostColumn) -> str:
            return column.mark(backwards) if column is sorted_by else ""

        parts = [" " + fitted("HOST", self.name), STATE.heading(arrow(STATE), right=False)]
        titles = [column.heading(arrow(column)) for column in self.columns]
        return " ".join([*parts, fitted("GPUS", self.glyphs), *titles])

    @property
    def headings(self) -> tuple[tuple[str, int], ...]:
        """The order that each title stands for, "" for none, and its cells."""
        columns = ((column.key, column.width) for column in self.columns)
        return (("host", self.name), (STATE.key, STATE.width), ("", self.glyphs), *columns)


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
    cpu, memory, load, receive, send = (column.show(host, slots) for column in READINGS)
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
    cells = [fitted(each.show(host, slots), each.width, right=True) for each in layout.columns]
    return [*parts, (" " + " ".join(cells), "" if host.state.final else "dim")]
