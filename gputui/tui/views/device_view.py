"""One GPU in full: as large as the screen, below the fleet's rows, or in a rail next to them.

As large as the screen it has a cursor on its processes; enter opens the log of a worker.
"""

from collections.abc import Sequence

from textual.app import ComposeResult

from gputui.model.readings import DeviceProcess, Owner
from gputui.model.series import Span
from gputui.model.slots import Slot
from gputui.tui.commands.command_registry import Command
from gputui.tui.frame import View
from gputui.tui.rendering import Line
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, Order, fitting, row, text_column
from gputui.tui.rendering.detail import (
    facts,
    graph_lines,
    head_lines,
    least_graph_lines,
)
from gputui.tui.views.logs_view import LogPane
from gputui.tui.watched import Watched
from gputui.tui.widgets import HEADING, Pane, Table

SPAN = "Graphs of 2 minutes, 10 minutes, 1 hour"


MOST_PROCESSES = 6
"""Processes in sight at once; the list scrolls."""
OWNER_ROLES = {Owner.OURS: "", Owner.OTHER: "warn", Owner.UNKNOWN: "warn"}

PROCESS_COLUMNS: tuple[Column[DeviceProcess], ...] = (
    text_column("PID", 8, 0, lambda p: str(p.pid) if p.pid else fmt.MISSING, right=True),
    text_column("WHOSE", 8, 0, lambda p: p.owner.value, lambda p: OWNER_ROLES[p.owner]),
    text_column("USER", 10, 1, lambda p: fmt.safe(p.user) if p.user else fmt.MISSING),
    text_column("MEMORY", 7, 0, lambda p: fmt.size(p.memory_bytes), right=True),
    text_column(
        "COMMAND", 20, 0, lambda p: fmt.safe(p.command) if p.command else fmt.MISSING, rest=20
    ),
)


def processes_of(slot: Slot) -> Sequence[DeviceProcess]:
    """Return the processes on a slot's device; for a CPU worker, the worker itself."""
    if slot.device is not None:
        return slot.device.processes
    return [
        DeviceProcess(worker.pid, Owner.OURS, None, f"worker {worker.name}", worker.rss_bytes)
        for worker in slot.workers
        if worker.pid is not None
    ]


class DeviceView(View):
    """A GPU, its processes, its worker, and the end of its log."""

    NAME = "device"
    DEFAULT_CSS = """
    DeviceView { layout: vertical; }
    DeviceView Pane { height: auto; box-sizing: content-box; border-bottom: solid $panel; }
    DeviceView Table { height: auto; }
    DeviceView #worker { border-top: solid $panel; }
    DeviceView LogPane { height: 1fr; border: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._key = ""
        self._origin = "fleet"
        self.span = Span.MINUTES_2
        self.slot: Slot | None = None
        self.processes = Table()
        self._listed: dict[str, DeviceProcess] = {}
        self._readings, self._worker, self._log = Pane(), Pane(id="worker"), LogPane()
        self._log.can_focus = False

    def compose(self) -> ComposeResult:
        """Lay out the parts, one below the other."""
        yield from (self._readings, self.processes, self._worker, self._log)

    def go_to(self, key: str) -> None:
        """Show the slot, or the worker, of this name."""
        self._key = key
        if self.screen_app.came_from not in ("", "logs", self.NAME):
            self._origin = self.screen_app.came_from
        self.screen_app.head.follow_logs()
        self.screen_app.draw()

    def show(self, watched: Watched) -> None:
        """Draw the newest readings of the slot, or of the one that the worker is on."""
        key, (width, height) = self._key, self.size
        named = (
            (slot, (slot.key, *(each.name for each in slot.workers))) for slot in watched.slots
        )
        slot = self.slot = next((slot for slot, names in named if key in names), None)
        for part in (self.processes, self._worker, self._log):
            part.display = slot is not None
        if slot is None or watched.snapshot is None:
            self._readings.put_whole([[(f"{fmt.safe(key)} is gone", "dim")]])
            self._listed = {}
            return
        room = max(least_graph_lines(slot, width, height // 2), height // 2)
        graphs = graph_lines(watched, slot, self.span, width, room)
        self._readings.put_whole([*head_lines(watched, slot, self.span, width), *graphs])
        self._worker.put_whole(facts(slot, watched.snapshot.taken_at))
        self._show_processes(slot)
        names = [worker.name for worker in slot.workers]
        name = key if key in names or not names else names[0]
        if self._log.worker != name:
            self._log.choose(name, "")
        self._log.read(watched.logs)

    def _show_processes(self, slot: Slot) -> None:
        self._listed = {str(number): each for number, each in enumerate(processes_of(slot))}
        columns = fitting(PROCESS_COLUMNS, self.size.width - 1)
        self.processes.styles.height = HEADING + min(MOST_PROCESSES, max(1, len(self._listed)))
        self.processes.show(
            Order(PROCESS_COLUMNS).heading(columns),
            list(self._listed),
            lambda key: row(columns, self._listed[key]),
        )

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the log of a worker; another process has none."""
        event.stop()
        slot, process = self.slot, self._listed.get(self.processes.cursor or "")
        if slot is None or process is None:
            return
        worker = next((w.name for w in slot.workers if w.pid == process.pid), None)
        if worker is not None:
            self.screen_app.go_to("logs", worker)
        else:
            ours = process.owner is Owner.OURS
            what = "has no log of its own" if ours else "is not one of ours"
            self.screen_app.say(f"{process.command or 'the process'} {what}")

    def crumbs(self) -> Line:
        """Say where this is in the drill-down."""
        slot = self.slot
        return [
            (f"fleet › {fmt.safe(slot.host.name) if slot else ''} › ", "dim"),
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

    def back(self) -> bool:
        """Go back to where this was reached from."""
        self.screen_app.go_to(self._origin, self._key)
        return True

    def focus_body(self) -> None:
        """Put the focus on the processes."""
        self.take_focus(self.processes)

    def next_span(self) -> None:
        """Show the graphs over the next span."""
        self.span = self.span.next
        self.screen_app.draw()

    COMMANDS = (Command("device-span", SPAN, next_span, "t", hint="time"),)
