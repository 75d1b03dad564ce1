"""One GPU as large as the screen: its readings, its worker and the worker's log, its processes.

The cursor is on the processes; enter opens the log of a worker. The fleet shows the same below its
rows, or in a rail next to them (`rendering.detail`).
"""

from collections.abc import Sequence
from typing import ClassVar

from gputui.model.readings import DeviceProcess, Owner
from gputui.model.slots import Slot
from gputui.tui.commands import Command
from gputui.tui.rendering import Line
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.detail import detail_lines
from gputui.tui.views.listing import Listing
from gputui.tui.watched import Watched
from gputui.tui.widgets import HEADING

SPAN = "Graphs of 2 minutes, 10 minutes, 1 hour"
MOST_PROCESSES = 6
"""Processes in sight at once; the list scrolls."""


class DeviceView(Listing[DeviceProcess]):
    """A GPU, its worker, the end of its log, and below them its processes."""

    NAME = "device"
    KEY = "pid"
    COLUMNS: ClassVar[Sequence[Column[DeviceProcess]]] = (
        text_column("PID", 8, 0, lambda p: str(p.pid) if p.pid else fmt.MISSING, right=True),
        text_column(
            "WHOSE",
            8,
            0,
            lambda p: p.owner.value,
            lambda p: "" if p.owner is Owner.OURS else "warn",
        ),
        text_column("USER", 10, 1, lambda p: fmt.safe(p.user) if p.user else fmt.MISSING),
        text_column("MEMORY", 7, 0, lambda p: fmt.size(p.memory_bytes), right=True),
        text_column(
            "COMMAND", 20, 0, lambda p: fmt.safe(p.command) if p.command else fmt.MISSING, rest=20
        ),
    )
    DEFAULT_CSS = """
    DeviceView #about { display: block; border: none; padding: 0; }
    DeviceView Table { dock: bottom; border-top: solid $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._key = ""
        """The slot, or the worker, that was asked for."""
        self.slot: Slot | None = None

    def go_to(self, key: str) -> None:
        """Show the slot, or the worker, of this name."""
        self._key = key
        self.screen_app.draw()

    def values(self, watched: Watched) -> Sequence[DeviceProcess]:
        """Return the processes on the GPU; for a CPU worker, the worker itself."""
        named = ((slot, (slot.key, *(w.name for w in slot.workers))) for slot in watched.slots)
        slot = self.slot = next((slot for slot, names in named if self._key in names), None)
        if slot is None or slot.device is not None:
            return slot.device.processes if slot and slot.device else ()
        return [
            DeviceProcess(worker.pid, Owner.OURS, None, f"worker {worker.name}", worker.rss_bytes)
            for worker in slot.workers
            if worker.pid is not None
        ]

    def _show_about(self) -> None:
        """Show the newest readings above the processes."""
        processes = min(MOST_PROCESSES, max(1, len(self._values))) + HEADING
        self.table.styles.height = processes + 1
        slot, (width, height) = self.slot, self.size
        gone = f"{fmt.safe(self._key)} is gone" if self._key else "write a GPU: :device NAME"
        lines: list[Line] = [[(gone, "dim")]]
        if slot is not None:
            room = height - processes - 1
            watched = self.screen_app.watched
            lines = detail_lines(watched, slot, self.span, width, room, page=self._key)
        self._text.put_whole(lines)

    def open(self, value: DeviceProcess) -> None:
        """Show the log of a worker; another process has none."""
        workers = self.slot.workers if self.slot else ()
        worker = next((worker.name for worker in workers if worker.pid == value.pid), None)
        if worker is not None:
            self.screen_app.go_to("logs", worker)
        else:
            ours = value.owner is Owner.OURS
            what = "has no log of its own" if ours else "is not one of ours"
            self.screen_app.say(f"{value.command or 'the process'} {what}")

    def crumbs(self) -> Line:
        """Say where this is in the drill-down."""
        host = f"{fmt.safe(self.slot.host.name)} › " if self.slot else ""
        return [
            (f"fleet › {host}", "dim"),
            (fmt.safe(self._key), "title"),
            ("   enter: log   esc: back", "dim"),
        ]

    def targets(self) -> tuple[str, ...]:
        """Return the slot that is shown."""
        return (self.slot.key,) if self.slot else ()

    def copied(self) -> str:
        """Return the GPU's UUID; for a CPU worker, its name."""
        slot = self.slot
        return slot.device.uuid if slot and slot.device else super().copied()

    COMMANDS = (Command("device-span", SPAN, Listing.next_span, "t", hint="time"),)
