"""Picking from a list: one thing (`Chooser`), or several that are on or off (`Picker`)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection


class Picker(ModalScreen[tuple[str, ...] | None]):
    """A list of things by key; enter ends with those that are on, escape with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("enter", "done", show=False, priority=True),
        Binding("a", "toggle_all", show=False),
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
    ]
    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 40%; }
    Picker > Vertical {
        width: 72; max-width: 95%; height: auto; max-height: 90%;
        padding: 0 1; border: round $primary; background: $surface;
    }
    Picker .title { text-style: bold; }
    Picker SelectionList { height: auto; max-height: 70vh; border: none; padding: 0; }
    Picker .keys { color: $text-muted; margin-top: 1; }
    """

    def __init__(self, title: str, items: Mapping[str, str], chosen: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._choices = [
            Selection(Content.assemble((f"{key:<10}", "bold"), does), key, key in chosen)
            for key, does in items.items()
        ]

    def compose(self) -> ComposeResult:
        """Lay out the list and its keys."""
        with Vertical():
            yield Static(self._title, classes="title")
            yield SelectionList[str](*self._choices, compact=True)
            yield Static("space on or off   a all   enter done   esc cancel", classes="keys")

    @property
    def _list(self) -> "SelectionList[str]":
        return self.query_one(SelectionList)

    def action_move(self, action: str) -> None:
        """Move as the arrows do."""
        getattr(self._list, f"action_{action}")()

    def action_toggle_all(self) -> None:
        """Have all on; all off where they are."""
        everything = len(self._list.selected) == len(self._choices)
        (self._list.deselect_all if everything else self._list.select_all)()

    def action_done(self) -> None:
        """End with what is on."""
        self.dismiss(tuple(self._list.selected))


class Chooser(ModalScreen[str | None]):
    """A list of things by key; enter or a click ends with one of them, escape with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
    ]
    DEFAULT_CSS = """
    Chooser { align: center middle; background: $background 40%; }
    Chooser > Vertical {
        width: 72; max-width: 95%; height: auto; max-height: 90%;
        padding: 0 1; border: round $primary; background: $surface;
    }
    Chooser .title { text-style: bold; }
    Chooser OptionList { height: auto; max-height: 70vh; border: none; padding: 0; }
    """

    def __init__(self, title: str, items: Sequence[tuple[str, Content]]) -> None:
        super().__init__()
        self._title = title
        self._keys = [key for key, _ in items]
        self._options = OptionList(*(Option(text) for _, text in items), compact=True)

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        with Vertical():
            yield Static(self._title, classes="title")
            yield self._options

    def action_move(self, action: str) -> None:
        """Move as the arrows do."""
        getattr(self._options, f"action_{action}")()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """End with what was chosen."""
        event.stop()
        self.dismiss(self._keys[event.option_index])
