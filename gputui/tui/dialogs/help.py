"""The help: every command that is to be had in a view, its keys and how it is typed; filters.

It is made from the registry; `layout` is pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from gputui.tui.commands.command_registry import Command, key_name
from gputui.tui.dialogs.modal import Modal
from gputui.tui.filter import Fields
from gputui.tui.rendering.lines import Line, fitted
from gputui.tui.widgets.pane import Pane

WIDEST = 100
KEYS, CALL = 7, 28
"""Cells of the keys, and of how a command is typed."""
NARROWEST_TEXT = 12
STEPS = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": 10, "space": 10, "pageup": -10}
ENDS = {"home": 0, "g": 0, "end": 1, "G": 1}
"""Keys that move the text: by so many lines; to its beginning or its end."""
MOVING = (
    ("j k ↑ ↓", "Move, as the wheel does; g and G to either end"),
    ("enter", "Open what is under the cursor, as a second click does"),
)


Entry = Sequence[Line]
"""A title, or a row with what goes on below it; empty for a line without any text."""


def layout(
    commands: Iterable[Command], view: str, width: int, filtered: Fields[Any] | None = None
) -> list[Entry]:
    """Return the help for a view, in lines of that width: its own commands, then the others.

    `filtered` is what its filter can ask for.

    >>> quit = Command("quit", "Leave the screen", print, "q")
    >>> [part for part, _ in layout([quit], "logs", 120)[5][0]]
    ['q      ', ':quit                       ', 'Leave the screen']
    """
    commands = list(commands)
    own = [command for command in commands if command.view == view]
    general = [command for command in commands if not command.view]
    entries = [_title(f"In the {view} view")]
    entries += [_command(each, width) for each in own]
    entries += [_entry(keys, "", does, width) for keys, does in MOVING]
    entries += [BLANK, _title("Everywhere")]
    entries += [_command(each, width) for each in general]
    if filtered is not None:
        entries += [BLANK, _title("Filters, after /")]
        entries += [_entry("", *each, width) for each in _filters(filtered)]
    return entries


def _filters(fields: Fields[Any]) -> Iterator[tuple[str, str]]:
    """Give each kind of term of a filter, and what it asks for."""
    yield "idle !node-02", "with idle anywhere in its row, and node-02 nowhere"
    yield "node-0?:gpu*", "by its name"
    if fields.words:
        yield f"{next(iter(fields.words))}:TEXT", f"by a word: {' '.join(fields.words)}"
    if fields.numbers:
        first, last = next(iter(fields.numbers)), list(fields.numbers)[-1]
        yield f"{first}<20 {last}>=2", f"by a number: {' '.join(fields.numbers)}"


BLANK: Entry = ((),)


def _title(text: str) -> Entry:
    return ([(text, "title")],)


def _command(command: Command, width: int) -> Entry:
    call = f":{command.name} {command.usage}".rstrip()
    return _entry(key_name(command.key), call, command.does, width)


def _entry(keys: str, call: str, does: str, width: int) -> Entry:
    """Return a row of three columns; what is too long for its own goes on below itself."""
    name, _, usage = call.partition(" ")
    calls: Sequence[str] = (call,) if len(call) < CALL else (name, f" {usage}")
    texts = wrap(does, max(NARROWEST_TEXT, width - KEYS - CALL))
    lines: list[Line] = []
    for typed, text in zip_longest(calls, texts, fillvalue=""):
        wide = max(KEYS, len(keys) + 1)
        shown = fitted(typed, KEYS + CALL - wide)
        lines.append([(fitted(keys, wide), "key"), (shown, "accent"), (text, "")])
        keys = ""
    return lines


def searched(entries: Iterable[Entry], wanted: str) -> list[Entry]:
    """Return the entries that hold these words, under their titles.

    >>> entries = layout([Command("quit", "Leave", print, "q")], "logs", 120)
    >>> [["".join(text for text, _ in line).split() for line in entry]
    ...     for entry in searched(entries, "leave")]
    [[['Everywhere']], [['q', ':quit', 'Leave']]]
    """
    words = wanted.lower().split()
    found: list[Entry] = []
    title: Entry = ()
    for entry in entries:
        text = " ".join(text for line in entry for text, _ in line).lower()
        if entry[0] and entry[0][0][1] == "title":
            title = entry
        elif text and all(word in text for word in words):
            found += [title, entry] if title else [entry]
            title = ()
    return found


class Help(Modal[None]):
    """The keys and commands; `/` searches them, any key that does not move the page closes it."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = f"""
    Help > Vertical {{ width: 96%; max-width: {WIDEST}; height: 90%; padding: 0 2; }}
    Help VerticalScroll {{ height: 1fr; scrollbar-size-vertical: 1; }}
    Help Input {{ display: none; }}
    Help .note {{ color: $text-muted; }}
    """

    def __init__(
        self, commands: Sequence[Command], view: str, filtered: Fields[Any] | None
    ) -> None:
        super().__init__()
        self._commands, self._view, self._filtered = commands, view, filtered
        self._pane = Pane()
        self._pane.can_focus = False
        self._search = Input(placeholder="/ search", compact=True, max_length=40)

    def compose(self) -> ComposeResult:
        """Lay out the text, which may be longer than the screen."""
        with Vertical():
            with VerticalScroll(can_focus=False):
                yield self._pane
            yield self._search
            yield Static("↑ ↓ more   / search   esc closes", classes="note", markup=False)

    def on_mount(self) -> None:
        """Write the help as wide as there is room."""
        self._write()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what holds the text."""
        event.stop()
        self._write()

    def on_resize(self) -> None:
        """Write it again for another width."""
        self._write()

    def _write(self) -> None:
        width = min(WIDEST, self.app.size.width * 96 // 100) - 7  # frame, padding and scroll bar
        entries = layout(self._commands, self._view, width, self._filtered)
        if wanted := self._search.value.strip():
            entries = searched(entries, wanted) or [([("nothing found", "dim")],)]
        lines = [line for entry in entries for line in entry]
        self._pane.styles.height = len(lines)
        self._pane.put(lines)

    def on_key(self, event: events.Key) -> None:
        """Move through the text, or close it."""
        event.stop()
        scroll = self.query_one(VerticalScroll)
        searching = self._search.has_focus
        if event.key == "slash" and not searching:
            self._search.display = True
            self.set_focus(self._search)
            event.prevent_default()
        elif searching and event.key not in ("escape", "enter", "up", "down"):
            return
        elif event.key in STEPS:
            scroll.scroll_relative(y=STEPS[event.key], animate=False)
        elif event.key in ENDS:
            scroll.scroll_to(y=ENDS[event.key] * scroll.max_scroll_y, animate=False)
        else:
            self.dismiss(None)

    def on_click(self, event: events.Click) -> None:
        """Close with a click outside it."""
        if event.widget is self:
            self.dismiss(None)
