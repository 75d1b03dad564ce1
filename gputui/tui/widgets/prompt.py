"""The line a person types into: a `/` filter or a `:` command, with what would complete it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from textual import events
from textual.suggester import SuggestFromList
from textual.widgets import Input

from gputui.tui.rendering.format import safe

LONGEST = 500
"""Characters; a paste of more is cut."""

Take = Callable[[str], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Asking:
    """What the line is used for now."""

    mark: str
    submitted: Take
    typed: Take | None = None
    cancelled: Callable[[], None] | None = None


class Prompt(Input):
    """One line of input, hidden until `ask`."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0 1; }
    Prompt:focus { border: none; }
    """

    def __init__(self) -> None:
        super().__init__(max_length=LONGEST, compact=True, select_on_focus=False)
        self._asking: Asking | None = None
        self._return_to: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """Whether something is being asked."""
        return self._asking is not None

    def ask(
        self,
        asking: Asking,
        value: str = "",
        known: tuple[str, ...] = (),
        return_to: Callable[[], None] | None = None,
    ) -> None:
        """Show the line with this value; `known` are texts to complete to."""
        self._asking, self._return_to = asking, return_to
        self.placeholder = asking.mark
        self.suggester = SuggestFromList(known) if known else None
        self.value = value
        self.display = True
        self.cursor_position = len(value)
        self.screen.set_focus(self)  # at once: the keys behind the one that called are next

    def _close(self) -> None:
        self._asking = None
        self.display = False
        if self._return_to is not None:
            self._return_to()

    def on_paste(self, event: events.Paste) -> None:
        """Take no more of a paste than fits, and nothing that a terminal would obey."""
        event.prevent_default()
        event.stop()
        room = LONGEST - len(self.value)
        self.insert_text_at_cursor(safe(event.text[:room].replace("\n", " ")))

    async def on_key(self, event: events.Key) -> None:
        """Leave with escape."""
        if event.key == "escape" and self._asking is not None:
            event.stop()
            asking = self._asking
            self._close()
            if asking.cancelled is not None:
                asking.cancelled()

    async def on_input_changed(self, event: Input.Changed) -> None:
        """Tell what was typed so far."""
        event.stop()
        if self._asking is not None and self._asking.typed is not None:
            await _awaited(self._asking.typed(event.value))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Tell what was typed."""
        event.stop()
        asking, value = self._asking, event.value
        self._close()
        if asking is not None:
            await _awaited(asking.submitted(value))


async def _awaited(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
