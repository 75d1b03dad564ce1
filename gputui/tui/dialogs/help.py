"""The help: every command that can be called in a view, its keys and how it is typed; filters.

It is made from the registry.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from gputui.tui.commands.command_registry import Command, key_name
from gputui.tui.dialogs.modal import STEPS, Modal
from gputui.tui.filter import Fields
from gputui.tui.rendering.palette import Palette

KEYS, CALL = 7, 28
"""Cells of the keys, and of how a command is typed."""
ENDS = {"home": 0, "g": 0, "end": 1, "G": 1}
MOVING = (
    ("j k ↑ ↓", "", "Move, as the wheel does; g and G to either end"),
    ("enter", "", "Open what is under the cursor, as a second click does"),
)

Row = tuple[str, str, str]
"""Keys, how it is typed, and what it does."""
Section = tuple[str, Sequence[Row]]


def sections(
    commands: Iterable[Command], view: str, filtered: Fields[Any] | None = None
) -> list[Section]:
    """Return the help for a view: its own commands, then the others, then what filters ask for.

    >>> quit = Command("quit", "Leave the screen", print, "q")
    >>> sections([quit], "logs")[1]
    ('Everywhere', [('q', ':quit', 'Leave the screen')])
    """
    rows: dict[str, list[Row]] = {view: [], "": []}
    for each in commands:
        if each.view in rows:
            call = f":{each.name} {each.usage}".rstrip()
            rows[each.view].append((key_name(each.key), call, each.does))
    found: list[Section] = [(f"In the {view} view", [*rows[view], *MOVING])]
    found.append(("Everywhere", rows[""]))
    return [*found, ("Filters, after /", [*_filters(filtered)])] if filtered else found


def _filters(fields: Fields[Any]) -> Iterator[Row]:
    """Yield each kind of term of a filter, and what it asks for."""
    yield "", "idle !node-02", "with idle anywhere in its row, and node-02 nowhere"
    yield "", "node-0?:gpu*", "by its name"
    if fields.words:
        yield "", f"{next(iter(fields.words))}:TEXT", f"by a word: {' '.join(fields.words)}"
    if fields.numbers:
        first, last = next(iter(fields.numbers)), list(fields.numbers)[-1]
        yield "", f"{first}<20 {last}>=2", f"by a number: {' '.join(fields.numbers)}"


def searched(found: Iterable[Section], wanted: str) -> list[Section]:
    """Return the sections with those rows that hold these words.

    >>> searched(sections([Command("quit", "Leave", print, "q")], "logs"), "leave")
    [('Everywhere', [('q', ':quit', 'Leave')])]
    """
    words = wanted.lower().split()
    kept = [
        (title, [row for row in rows if all(word in " ".join(row).lower() for word in words)])
        for title, rows in found
    ]
    return [(title, rows) for title, rows in kept if rows]


def page(found: Iterable[Section], palette: Palette) -> Group:
    """Return sections as Rich lays them out, a table each."""
    parts: list[Text | Table] = []
    for title, rows in found:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(style=palette.style("key"), min_width=KEYS)
        table.add_column(style=palette.style("accent"), width=CALL)
        table.add_column()
        for row in rows:
            table.add_row(*map(Text, row))
        parts += [Text(title, palette.style("title")), table, Text()]
    return Group(*(parts or [Text("nothing found", "dim")]))


class Help(Modal[None]):
    """The keys and commands; `/` searches them, any key that does not move the page closes it."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Help > Vertical { width: 96%; max-width: 100; height: 90%; padding: 0 2; }
    Help VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    Help Input { display: none; }
    Help .note { color: $text-muted; }
    """

    def __init__(
        self, commands: Sequence[Command], view: str, filtered: Fields[Any] | None
    ) -> None:
        super().__init__()
        self._sections = sections(commands, view, filtered)
        self._text = Static()
        self._search = Input(placeholder="/ search", compact=True, max_length=40)

    def compose(self) -> ComposeResult:
        """Lay out the text, which may be longer than the screen."""
        with Vertical():
            with VerticalScroll(can_focus=False):
                yield self._text
            yield self._search
            yield Static("↑ ↓ more   / search   esc closes", classes="note", markup=False)

    def on_mount(self) -> None:
        """Show the help."""
        self._write("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what holds the text."""
        event.stop()
        self._write(event.value)

    def _write(self, wanted: str) -> None:
        self._text.update(page(searched(self._sections, wanted), Palette.of(self.app)))

    async def on_key(self, event: events.Key) -> None:
        """Move through the text, or close it."""
        searching = self._search.has_focus
        if searching and event.key not in ("escape", "enter", "up", "down"):
            return
        event.stop()
        event.prevent_default()
        scroll = self.query_one(VerticalScroll)
        if event.key == "slash":
            self._search.display = True
            self.set_focus(self._search)
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
