"""The palette, which finds a command, and two pages: of all commands, and of why it is stuck.

The palette is not Textual's: that lists matches some time after they were typed, so that a name and
enter typed at once call nothing, or another command (seen in Textual 8.2).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gputui.errors import HeadError
from gputui.model.verdicts import ANSWER_S, Evidence, Verdict, as_lines, verdicts
from gputui.protocol.frontend import Examine, Examined
from gputui.tui.attachment import Attachment
from gputui.tui.commands import Command, key_name
from gputui.tui.dialogs import Modal, Page
from gputui.tui.filter import Fields
from gputui.tui.rendering import fitted
from gputui.tui.rendering.format import many, safe
from gputui.tui.watched import Watched

WIDTH, NAME_CELLS, KEY_CELLS = 78, 15, 5
"""Cells of the palette, of a command's name and of its key."""


def found(
    commands: Iterable[Command], wanted: str, why_not: Callable[[Command], str]
) -> list[Command]:
    """Return the commands whose name matches the typed text, then those whose description holds it.

    Available ones come first. With nothing typed they are in their own order.
    """
    match = Matcher(wanted).match if wanted else lambda _name: 1.0
    scored = [
        (match(each.name) or 0.1 * (wanted.lower() in each.does.lower()), each) for each in commands
    ]
    order = sorted(scored, key=lambda pair: (bool(why_not(pair[1])), -pair[0]))
    return [command for score, command in order if score]


class Finder(Modal[Command | None]):
    """All commands, narrowed by typing; its result is the one chosen.

    `why_not` returns why a command is unavailable; such commands come last, dimmed, and the line
    below the list says the reason.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "dismiss(None)", show=False, priority=True),
        Binding("down", "move('cursor_down')", show=False, priority=True),
        Binding("up", "move('cursor_up')", show=False, priority=True),
        Binding("pagedown", "move('page_down')", show=False, priority=True),
        Binding("pageup", "move('page_up')", show=False, priority=True),
    ]
    DEFAULT_CSS = f"""
    Finder {{ align: center top; background: $background; }}
    Finder > Vertical {{ width: {WIDTH}; max-width: 100%; margin-top: 2; }}
    Finder OptionList {{ height: auto; max-height: 14; border: none; padding: 0; }}
    Finder OptionList > .option-list--option {{ text-wrap: nowrap; text-overflow: ellipsis; }}
    Finder .note {{ height: 1; margin-top: 1; color: $text-muted; }}
    """

    def __init__(self, commands: Sequence[Command], why_not: Callable[[Command], str]) -> None:
        super().__init__()
        self._commands = commands
        self._why_not = why_not
        self._found: list[Command] = []
        self._options = OptionList(compact=True)
        self._options.can_focus = False
        self._note = Static(markup=False, classes="note")

    def compose(self) -> ComposeResult:
        """Lay out the input, the matches and the line about the highlighted one."""
        with Vertical():
            yield Input(placeholder="find a command", compact=True, max_length=80)
            yield self._options
            yield self._note

    def on_mount(self) -> None:
        """Show all commands."""
        self._narrow("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the commands that match."""
        self._narrow(event.value)

    def _narrow(self, wanted: str) -> None:
        self._found = found(self._commands, wanted, self._why_not)
        self._options.set_options(map(self._option, self._found))
        self._options.highlighted = 0 if self._found else None
        self._explain()

    def _option(self, command: Command) -> Option:
        does = fitted(command.does, WIDTH - NAME_CELLS - KEY_CELLS - 6)
        text = Content.assemble(
            (fitted(command.name, NAME_CELLS), "bold"),
            f" {does} ",
            (fitted(key_name(command.key), KEY_CELLS), "bold"),
        )
        return Option(text.stylize("dim") if self._why_not(command) else text)

    @property
    def _highlighted(self) -> Command | None:
        place = self._options.highlighted
        return None if place is None else self._found[place]

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        """Say how the highlighted command is typed, or why it is unavailable."""
        if (command := self._highlighted) is None:
            self._note.update("no command matches")
        elif why_not := self._why_not(command):
            self._note.update(f"not now: {why_not}")
        else:
            self._note.update(f":{command.name} {command.usage}".rstrip())

    def action_move(self, how: str) -> None:
        """Move among the matches."""
        getattr(self._options, f"action_{how}")()

    def on_input_submitted(self) -> None:
        """End with the highlighted command."""
        self.dismiss(self._highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """End with the command that was clicked."""
        self.dismiss(self._found[event.option_index])


MOVING = (
    ("j k ↑ ↓", "", "Move, as the wheel does; g and G to either end"),
    ("tab", "", "Go to the details of a row, if any; pgdn scrolls them"),
    ("enter", "", "Open what is under the cursor, as a second click does"),
)


def help_of(view: str, commands: Iterable[Command], fields: Fields[Any] | None) -> str:
    """Return the help for a view: its own commands, then the others, then what filters ask for."""
    found = list(commands)
    groups = {f"IN THE {view.upper()} VIEW": view, "EVERYWHERE": ""}
    lines: list[str] = []
    for title, of_view in groups.items():
        rows = [
            (key_name(each.key), f":{each.name} {each.usage}", each.does)
            for each in found
            if each.view == of_view
        ]
        lines += [title, *map(_help_line, [*rows, *(MOVING if of_view else ())]), ""]
    return "\n".join([*lines, *([] if fields is None else _filters(fields))])


def _help_line(row: tuple[str, str, str]) -> str:
    key, call, does = row
    return f"{key:<8}{call:<28} {does}"


def _filters(fields: Fields[Any]) -> Iterator[str]:
    """Yield what the terms of a filter can be."""
    yield "FILTERS, AFTER /: idle !node-02 (with a word in its row, without another), node-0?:gpu*"
    if fields.words:
        yield f"by a word, {next(iter(fields.words))}:TEXT: {' '.join(fields.words)}"
    if fields.numbers:
        yield f"by a number, {next(iter(fields.numbers))}<20: {' '.join(fields.numbers)}"


class Why(Page):
    """The verdicts, the likeliest first, each with its evidence."""

    def __init__(self, head: Attachment, watched: Watched) -> None:
        super().__init__("", "↑ ↓ more   r ask again   y copy   esc closes")
        self._head, self._watched = head, watched
        self._found: tuple[Verdict, ...] = ()

    def on_mount(self) -> None:
        """Ask at once."""
        self._ask()

    @work(exclusive=True)
    async def _ask(self) -> None:
        agents = many(len(self._watched.snapshot.hosts), "agent")
        self.text.update(
            f"waits for the head, the scheduler and {agents}: {ANSWER_S:.0f} s at most"
        )
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._head.request(Examine(0))
        except (HeadError, TimeoutError):
            self._found = (Verdict("head-silent", self._head.sentence()),)
        else:
            assert isinstance(found, Examined)
            snapshot, events = self._watched.snapshot, tuple(self._watched.events)
            self._found = verdicts(Evidence(snapshot, found.hosts, found.scheduler, events))
        parts = [
            (safe(line), "" if line.startswith(" ") else "bold") for line in as_lines(self._found)
        ]
        self.text.update(Content("\n").join(Content.styled(*part) for part in parts))

    async def take(self, key: str) -> bool:
        """Ask again, or copy; the rest is every page's."""
        if key == "r":
            self._ask()
        elif key == "y":
            self.app.copy_to_clipboard("\n".join(as_lines(self._found)))
        else:
            return await super().take(key)
        return True
