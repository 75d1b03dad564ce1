"""Keys and the wheel, wherever there are rows to move through."""

from textual import events
from textual.binding import Binding, BindingType

WHEEL_LINES = 3
MOVES: list[BindingType] = [
    Binding("down,j", "move(1)", show=False),
    Binding("up,k", "move(-1)", show=False),
    Binding("pagedown,ctrl+f", "page(1)", show=False),
    Binding("pageup,ctrl+b", "page(-1)", show=False),
    Binding("home,g", "end(False)", show=False),
    Binding("end,G", "end(True)", show=False),
]


class Moving:
    """The actions of a widget whose `BINDINGS` are `MOVES`."""

    @property
    def rows_seen(self) -> int:
        """The number of rows in sight."""
        raise NotImplementedError

    def action_move(self, rows: int) -> None:
        """Move by so many rows."""
        raise NotImplementedError

    def action_page(self, pages: int) -> None:
        """Move by a page."""
        self.action_move(pages * max(1, self.rows_seen - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move with the wheel."""
        event.stop()
        self.action_move(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move with the wheel."""
        event.stop()
        self.action_move(-WHEEL_LINES)
