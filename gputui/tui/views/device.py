"""The drill-down: one GPU as large as the screen; enter on our process goes on to its log."""

from textual.app import ComposeResult

from gputui.tui.commands.fleet import DEVICE_COMMANDS
from gputui.tui.rendering import format as fmt
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.device_panel import DevicePanel
from gputui.tui.widgets.pane import Line
from gputui.tui.widgets.table import Table


class DeviceView(View):
    """A GPU, its processes, its worker, and the end of its log."""

    NAME = "device"
    COMMANDS = DEVICE_COMMANDS

    def __init__(self) -> None:
        super().__init__()
        self._key = ""
        self._origin = "fleet"
        self._panel = DevicePanel()

    def compose(self) -> ComposeResult:
        """Be one panel."""
        yield self._panel

    def go_to(self, key: str) -> None:
        """Show the slot, or the worker, of this name."""
        self._key = key
        if self.screen_app.stage.came_from not in ("", "logs", self.NAME):
            self._origin = self.screen_app.stage.came_from
        self.screen_app.head.follow_logs()
        self.screen_app.draw()

    def show(self, watched: Watched) -> None:
        """Draw the newest readings."""
        self._panel.show(watched, self._key)

    def next_span(self) -> None:
        """Let the graphs go farther back; after the farthest, the nearest again."""
        self._panel.span = self._panel.span.next
        self.screen_app.redraw()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the log of our process; another's has none."""
        event.stop()
        slot, process = self._panel.slot, self._panel.process
        if slot is None or process is None:
            return
        worker = next((w.name for w in slot.workers if w.pid == process.pid), None)
        if worker is not None:
            self.screen_app.go_to("logs", worker)
        else:
            self.screen_app.say(f"{process.command or 'the process'}: not one of ours")

    def crumbs(self) -> Line:
        """Say where this is in the drill-down."""
        slot = self._panel.slot
        return [
            (f"fleet › {fmt.safe(slot.host.name) if slot else ''} › ", "dim"),
            (fmt.safe(self._key), "title"),
            ("   enter: log   esc: back", "dim"),
        ]

    def targets(self) -> tuple[str, ...]:
        """Return the slot that is shown."""
        return (self._panel.slot.key,) if self._panel.slot else ()

    def back(self) -> bool:
        """Go back to where this was reached from."""
        self.screen_app.go_to(self._origin, self._key)
        return True

    def focus_body(self) -> None:
        """Put the focus on the processes."""
        self.take_focus(self._panel.processes)
