"""Picking from a list: one thing (`Chooser`), or several that are on or off (`Picker`)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from gputui.tui.dialogs.modal import Modal, Result


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
        self._title, self._listed, self._told = title, listed, keys

    def compose(self) -> ComposeResult:
        """Lay out the list, and its keys where they are not plain."""
        with Vertical():
            yield Static(self._title, classes="title")
            yield self._listed
            if self._told:
                yield Static(self._told, classes="keys")

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
        """End with what is on."""
        self.dismiss(tuple(self._selections.selected))


class Chooser(ListModal[str | None]):
    """A list of things by key; enter or a click ends with one of them, escape with None."""

    def __init__(self, title: str, items: Sequence[tuple[str, Content]]) -> None:
        self._keys = [key for key, _ in items]
        super().__init__(title, OptionList(*(Option(text) for _, text in items), compact=True))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """End with what was chosen."""
        event.stop()
        self.dismiss(self._keys[event.option_index])
