"""How the state of a slot is shown: by shape, word and role together, any one of which will do."""

from dataclasses import dataclass

from gputui.slots import SlotState


@dataclass(frozen=True, slots=True)
class SlotMark:
    """How a state is shown: by letter, shape and role together."""

    shape: str
    role: str


MARKS = {
    SlotState.LOST: SlotMark("✖", "bad"),
    SlotState.SILENT: SlotMark("◌", "warn"),
    SlotState.CRASHED: SlotMark("✖", "bad"),
    SlotState.PARKED: SlotMark("■", "bad"),
    SlotState.MISPLACED: SlotMark("◆", "bad"),
    SlotState.BUSY: SlotMark("●", "good"),
    SlotState.IDLE: SlotMark("○", ""),
    SlotState.PAUSED: SlotMark("‖", "warn"),
    SlotState.STARTING: SlotMark("◔", "accent"),
    SlotState.RETIRING: SlotMark("▾", "accent"),
    SlotState.FOREIGN: SlotMark("◆", "warn"),
    SlotState.FREE: SlotMark("·", "dim"),
    SlotState.BARRED: SlotMark("–", "dim"),
}
