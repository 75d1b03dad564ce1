"""A host and its slots → a row: the heading over its GPUs, or the whole host in one line. Pure."""

from collections.abc import Sequence

from gputui.snapshot import HostState, HostStatus
from gputui.tui import format as fmt
from gputui.tui.pane import Line, Part, fitted
from gputui.tui.slots import MARKS, Slot, SlotMark, SlotState

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
FEWEST_GLYPHS = 8


def glyph(slot: Slot) -> Part:
    """Return a slot in one cell: how busy it is, or the shape of what is the matter."""
    mark = MARKS[slot.state]
    if slot.state is SlotState.BUSY and slot.device is not None:
        percent = slot.device.utilization_percent
        if percent is not None:
            return (fmt.coarse_level(percent / 100), mark.role)
    return (mark.shape, mark.role)


def merged(parts: Sequence[Part]) -> list[Part]:
    """Return parts with neighbours of one role made one.

    >>> merged([("a", "dim"), ("b", "dim"), ("c", "")])
    [('ab', 'dim'), ('c', '')]
    """
    result: list[Part] = []
    for text, role in parts:
        if result and result[-1][1] == role:
            result[-1] = (result[-1][0] + text, role)
        else:
            result.append((text, role))
    return result


def state_part(host: HostStatus, now: float) -> Part:
    """Return a host's state with the age of what is known of a silent one."""
    mark = STATES.get(host.state, COMING_UP)
    text = f"{mark.shape} {host.state.value}"
    if host.state is not HostState.READY:
        text += f" {fmt.age(now - (host.read_at or host.state_since))}"
    return (fitted(text, STATE_WIDTH), mark.role)


def readings(host: HostStatus) -> tuple[str, ...]:
    """Return a host's own readings, as wide as `READINGS` says."""
    reading = host.reading
    texts = (
        fmt.number(reading.cpu_percent),
        fmt.memory(reading.memory_used_bytes, reading.memory_total_bytes),
        fmt.number(reading.load_1m, 1),
        fmt.size(reading.network_receive_bytes_per_s),
        fmt.size(reading.network_send_bytes_per_s),
    )
    return tuple(
        fitted(text, width, right=True) for text, (_, width) in zip(texts, READINGS, strict=True)
    )


def group_row(
    host: HostStatus, slots: Sequence[Slot], name_width: int, now: float, *, folded: bool
) -> Line:
    """Return the heading over a host's GPUs."""
    arrow = "▸" if folded else "▾"
    name = fitted(f"{arrow}{fmt.safe(host.name)}", name_width + 2)
    cpu, memory, load, receive, send = (text.strip() for text in readings(host))
    parts: list[Part] = [(name, "title"), state_part(host, now)]
    if host.reason:
        return [*parts, (fmt.safe(host.reason), "warn")]
    text = f"cpu {cpu}%  mem {memory}  load {load}  net {receive}↓ {send}↑ "
    parts.append((text, "dim"))
    return [*parts, *merged([glyph(slot) for slot in slots])] if folded else parts


def host_heading(name_width: int, glyphs: int) -> str:
    """Return the titles over host rows."""
    titles = [fitted(title, width, right=True) for title, width in READINGS]
    gpus = fitted("GPUS", glyphs)
    return " ".join([" " + fitted("HOST", name_width), fitted("STATE", STATE_WIDTH), gpus, *titles])


def host_row(
    host: HostStatus, slots: Sequence[Slot], name_width: int, glyphs: int, now: float
) -> Line:
    """Return a host in one line, a glyph for each GPU."""
    parts: list[Part] = [(" " + fitted(fmt.safe(host.name), name_width) + " ", "title")]
    parts += [state_part(host, now), (" ", "")]
    shown = slots if len(slots) <= glyphs else slots[: glyphs - 1]
    parts += merged([glyph(slot) for slot in shown])
    parts.append(("…" if len(slots) > glyphs else " " * (glyphs - len(shown)), "dim"))
    if host.reason:
        return [*parts, ("  " + fmt.safe(host.reason), "warn")]
    return [*parts, (" " + " ".join(readings(host)), "" if host.state.final else "dim")]
