"""The marks of a slot's state: shape, word and role, each of them enough alone."""

from dataclasses import dataclass

from gputui.model.slots import Slot, SlotState, state_of_worker
from gputui.model.snapshot import HostState, HostStatus, WorkerState, WorkerStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.lines import Part, fitted


@dataclass(frozen=True, slots=True)
class SlotMark:
    """A state's letter, shape and role."""

    shape: str
    role: str
    word: str = ""
    """Its label, if not the state's own value."""


MARKS = {
    SlotState.LOST: SlotMark("✖", "bad", "lost"),
    SlotState.SILENT: SlotMark("◌", "warn", "silent"),
    SlotState.CRASHED: SlotMark("✖", "bad", "crashed"),
    SlotState.CRASH_LOOP: SlotMark("■", "bad", "crash loop"),
    SlotState.WRONG_DEVICE: SlotMark("◆", "bad", "wrong GPU"),
    SlotState.BUSY: SlotMark("●", "", "busy"),
    SlotState.IDLE: SlotMark("○", "dim", "idle"),
    SlotState.PAUSED: SlotMark("‖", "warn", "paused"),
    SlotState.STARTING: SlotMark("◔", "accent", "starting"),
    SlotState.RETIRING: SlotMark("▾", "accent", "retiring"),
    SlotState.FOREIGN: SlotMark("◆", "", "others"),
    SlotState.FREE: SlotMark("·", "dim", "free"),
    SlotState.EXCLUDED: SlotMark("–", "dim", "excluded"),
}

HOST_MARKS = {
    HostState.READY: SlotMark("●", ""),
    HostState.FAILED: SlotMark("✖", "bad", "failed"),
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
    if slot.state is not SlotState.SILENT:
        return f"{mark.shape} {mark.word}", mark.role
    if slot.host_silent:
        age = None if slot.host.read_at is None else now - slot.host.read_at
        return f"{mark.shape} {mark.word} {fmt.age(age)}", mark.role
    silent = max(slot.workers, key=lambda worker: worker.silent_for_s)
    return f"{mark.shape} {silence(silent)}", mark.role


def silence(worker: WorkerStatus) -> str:
    """Return in a word or two how a worker does not answer, and for how long.

    >>> silence(WorkerStatus("a", "h", WorkerState.SILENT, silent_for_s=12.3))
    'silent 12s'
    >>> silence(WorkerStatus("a", "h", WorkerState.SILENT, stopped=True))
    'stopped'
    """
    age = fmt.age(worker.silent_for_s) if worker.silent_for_s else ""
    return f"{'stopped' if worker.stopped else 'silent'} {age}".rstrip()


def state_cell(state: tuple[str, str], width: int) -> list[Part]:
    """Return a state in a cell of a table; where it is too long its age stays whole.

    >>> state_cell(("◌ stopped 12s", "warn"), 10)
    [('◌ sto… 12s', 'warn')]
    """
    text, role = state
    word, _, age = text.rpartition(" ")
    if len(text) > width and age[:1].isdigit():
        text = f"{fitted(word, width - len(age) - 1)} {age}"
    return [(fitted(text, width), role)]


def worker_state(worker: WorkerStatus) -> tuple[str, str]:
    """Return a worker's state for people and its role."""
    mark = MARKS[state_of_worker(worker)]
    word = silence(worker) if worker.state is WorkerState.SILENT else mark.word
    return f"{mark.shape} {word}", mark.role
