"""How the state of a slot is shown: by shape, word and role together, any one of which will do."""

from dataclasses import dataclass

from gputui.slots import Slot, SlotState
from gputui.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt


@dataclass(frozen=True, slots=True)
class SlotMark:
    """How a state is shown: by letter, shape and role together."""

    shape: str
    role: str
    word: str = ""
    """What it is called where that is not the state's own value."""


MARKS = {
    SlotState.LOST: SlotMark("✖", "bad", "lost"),
    SlotState.SILENT: SlotMark("◌", "warn", "silent"),
    SlotState.CRASHED: SlotMark("✖", "bad", "crashed"),
    SlotState.PARKED: SlotMark("■", "bad", "crash loop"),
    SlotState.MISPLACED: SlotMark("◆", "bad", "wrong GPU"),
    SlotState.BUSY: SlotMark("●", "", "busy"),
    SlotState.IDLE: SlotMark("○", "dim", "idle"),
    SlotState.PAUSED: SlotMark("‖", "warn", "paused"),
    SlotState.STARTING: SlotMark("◔", "accent", "starting"),
    SlotState.RETIRING: SlotMark("▾", "accent", "retiring"),
    SlotState.FOREIGN: SlotMark("◆", "", "others"),
    SlotState.FREE: SlotMark("·", "dim", "free"),
    SlotState.BARRED: SlotMark("–", "dim", "excluded"),
}

HOST_MARKS = {
    HostState.READY: SlotMark("●", ""),
    HostState.REFUSED: SlotMark("✖", "bad", "failed"),
    HostState.SILENT: SlotMark("◌", "warn"),
    HostState.RECONNECTING: SlotMark("◌", "warn"),
}
COMING_UP = SlotMark("◔", "accent")


def host_mark(host: HostStatus) -> SlotMark:
    """Return how a host's state is shown."""
    return HOST_MARKS.get(host.state, COMING_UP)


def host_state(host: HostStatus, now: float) -> tuple[str, str]:
    """Return a host's state for people and its role; of one that is not ready, since when."""
    mark = host_mark(host)
    text = f"{mark.shape} {mark.word or host.state.value}"
    if host.state is not HostState.READY:
        text += f" {fmt.age(now - (host.read_at or host.state_since))}"
    return text, mark.role


def slot_state(slot: Slot, now: float) -> tuple[str, str]:
    """Return a slot's state for people and its role; of what does not answer, for how long."""
    mark = MARKS[slot.state]
    text = f"{mark.shape} {mark.word}"
    if slot.state is SlotState.SILENT and slot.host.read_at is not None:
        text += f" {fmt.age(now - slot.host.read_at)}"
    return text, mark.role
