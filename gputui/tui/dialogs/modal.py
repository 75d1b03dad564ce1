"""The frame of all that is shown over the screen, its choices, and its plainest kind: a list."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

Result = TypeVar("Result")

STANDS_S = 2.0
"""For how long keys are kept for a dialog that is being drawn, or carries out an earlier key."""


STEPS = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": 10, "space": 10, "pageup": -10}
"""Keys that move a long text, and by how many lines."""


class Modal(ModalScreen[Result]):
    """A framed box in the middle; its contents stand in one `Vertical`, of the kind's own size.

    It is seen before it is filled in; keys that are typed until then are kept for it: `stands`
    says when it takes them. It carries out its keys itself, one after the other, so that the one
    behind the key that closes it is for what comes into sight. (Textual hands a key from the widget
    in focus up to the app, which may have handed on the next one by then.)
    """

    DEFAULT_CSS = """
    Modal { align: center middle; background: $background 40%; }
    Modal > Vertical {
        height: auto; padding: 0 1; border: round $primary; background: $surface;
    }
    Modal .title { text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._stands = asyncio.Event()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Fill it in once it is seen, and take keys then.

        Textual 8.2 gives a new screen its styles twice: as its widgets come, and here.
        """
        event.refresh_styles = self._stands.is_set()
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        if not self._stands.is_set():
            await self.fill()
            self._stands.set()

    async def fill(self) -> None:
        """Add what its first frame does not wait for."""

    async def stands(self) -> None:
        """Wait, for a bound, until it takes keys, and has carried out those before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STANDS_S):
                await self._stands.wait()
                for _ in range(2):  # a key may be followed by a message, such as that of a choice
                    await self._idle()

    async def _idle(self) -> None:
        """Wait until the widgets from that in focus upwards have handled their messages."""
        for node in (self.focused or self).ancestors_with_self:
            handled = asyncio.Event()
            if node.call_later(handled.set):
                await handled.wait()
            if node is self:
                return

    async def on_key(self, event: events.Key) -> None:
        """Carry out what a key is bound to; each kind's own handler comes first."""
        event.stop()
        if (bound := self.active_bindings.get(event.key)) is not None:
            await self.app.run_action(bound.binding.action, bound.node)


class Choice(Static, can_focus=True):
    """One way to answer a dialog, taken by its key, with enter and with a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "app.focus_next", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("enter", "choose", show=False),
    ]
    DEFAULT_CSS = """
    Choice { width: auto; margin-right: 2; text-style: bold; }
    Choice.dangerous { color: $text-error; }
    Choice:focus { text-style: bold reverse; }
    """

    class Chosen(Message):
        """A choice was taken, by what is pressed for it."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, key: str, label: str, *, dangerous: bool = False) -> None:
        super().__init__(f" [{key}] {label} ", markup=False, classes="dangerous" * dangerous)
        self.key = key

    def action_choose(self) -> None:
        """Take this choice."""
        self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        """Take this choice."""
        event.stop()
        self.action_choose()


class Choices(Horizontal):
    """The choices that a dialog ends with, in a line."""

    DEFAULT_CSS = "Choices { width: auto; height: 1; margin-top: 1; }"


class ListModal(Modal[Result]):
    """A title and a list, which `j` and `k` move in as the arrows do; escape ends with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
    ]
    DEFAULT_CSS = """
    ListModal > Vertical { width: 72; max-width: 95%; max-height: 90%; }
    ListModal OptionList { height: auto; max-height: 70vh; border: none; padding: 0; }
    ListModal .keys { color: $text-muted; margin-top: 1; }
    """

    def __init__(self, title: str, listed: OptionList, keys: str = "") -> None:
        super().__init__()
        self._title, self._listed, self._note = title, listed, keys

    def compose(self) -> ComposeResult:
        """Lay out the list, and its keys where they are not plain."""
        with Vertical():
            yield Static(self._title, classes="title")
            yield self._listed
            if self._note:
                yield Static(self._note, classes="keys")

    def action_move(self, action: str) -> None:
        """Move as the arrows do."""
        getattr(self._listed, f"action_{action}")()


class Picker(ListModal[tuple[str, ...] | None]):
    """A list of things by key; enter ends with those that are on, escape with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "done", show=False, priority=True),
        Binding("a", "toggle_all", show=False),
    ]

    def __init__(self, title: str, items: Mapping[str, str], chosen: Sequence[str]) -> None:
        choices = [
            Selection(Content.assemble((f"{key:<10}", "bold"), does), key, key in chosen)
            for key, does in items.items()
        ]
        self._selections = SelectionList[str](*choices, compact=True)
        super().__init__(
            title, self._selections, "space on or off   a all   enter done   esc cancel"
        )

    def action_toggle_all(self) -> None:
        """Have all on; all off where they are."""
        listed = self._selections
        everything = len(listed.selected) == listed.option_count
        (listed.deselect_all if everything else listed.select_all)()

    def action_done(self) -> None:
        """Return the chosen items."""
        self.dismiss(tuple(self._selections.selected))


class Chooser(ListModal[str | None]):
    """A list of things by key; enter or a click ends with one of them, escape with None."""

    def __init__(self, title: str, items: Sequence[tuple[str, Content]]) -> None:
        self._keys = [key for key, _ in items]
        super().__init__(title, OptionList(*(Option(text) for _, text in items), compact=True))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the choice."""
        event.stop()
        self.dismiss(self._keys[event.option_index])
