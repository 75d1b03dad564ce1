"""The ways to answer a dialog: a line with the key of each, which enter and clicks take, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from gputui.tui.rendering.columns import column_at
from gputui.tui.widgets.pane import Pane

GAP = 2
"""Cells between two choices."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer; `key` selects it, and is the dialog's result."""

    key: str
    label: str
    dangerous: bool = False

    @property
    def text(self) -> str:
        """The key and the label, as they are shown."""
        return f" [{self.key}] {self.label} "


class Choices(Pane):
    """Choices in a line: the first has the cursor, which is seen while the line has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,tab", "move(1)", show=False),
        Binding("left,shift+tab", "move(-1)", show=False),
        Binding("enter", "choose", show=False),
    ]
    DEFAULT_CSS = "Choices { width: auto; height: 1; margin-top: 1; }"

    class Chosen(Message):
        """A choice was taken with enter or a click."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._choices = tuple(choices)
        self._at = 0
        self._show()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return how many cells the line takes."""
        return sum(len(text) for text, _ in self._lines[0])

    def _show(self) -> None:
        line = []
        for number, choice in enumerate(self._choices):
            roles = ("bad", "lost") if choice.dangerous else ("title", "found")
            line.append((choice.text, roles[self.has_focus and number == self._at]))
            line.append((" " * GAP, ""))
        self.put([line])

    def on_focus(self) -> None:
        """Show the cursor."""
        self._show()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._show()

    def action_move(self, by: int) -> None:
        """Move the cursor; at either end, leave the key to the parent."""
        if not 0 <= self._at + by < len(self._choices):
            raise SkipAction
        self._at += by
        self._show()

    def action_choose(self) -> None:
        """Take the choice under the cursor."""
        self.post_message(self.Chosen(self._choices[self._at].key))

    def on_click(self, event: events.Click) -> None:
        """Take the choice that was clicked."""
        event.stop()
        index = column_at((len(choice.text) + GAP - 1 for choice in self._choices), event.x)
        if index is not None:
            self.post_message(self.Chosen(self._choices[index].key))
