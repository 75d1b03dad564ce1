"""Asking for one line, such as a path, which tab completes."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from gputui.tui.completion import Candidates, completed
from gputui.tui.dialogs.modal import Modal


class LineDialog(Modal[str | None]):
    """A line to type; enter ends with it, escape with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]
    DEFAULT_CSS = """
    LineDialog > Vertical { width: 72; max-width: 95%; }
    LineDialog .told { color: $text-muted; height: auto; max-height: 8; }
    """

    def __init__(self, title: str, candidates: Candidates) -> None:
        super().__init__()
        self._title, self._candidates = title, candidates
        self._input = Input(compact=True, max_length=500)
        self._told = Static("tab completes", markup=False, classes="told")

    def compose(self) -> ComposeResult:
        """Lay out the line, and below it what it can become."""
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield self._input
            yield self._told

    async def on_key(self, event: events.Key) -> None:
        """Complete with tab."""
        if event.key == "tab":
            event.stop()
            event.prevent_default()
            found = self._candidates(self._input.value)
            self._input.value = completed(self._input.value, found).rstrip()
            self._input.cursor_position = len(self._input.value)
            self._told.update("  ".join(found) or "nothing begins so")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End with what was typed."""
        event.stop()
        self.dismiss(event.value.strip() or None)
