"""The command palette and the help, both made from the registry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from gputui.tui.commands import Command, key_name


def score(wanted: str, text: str) -> int:
    """Return how well a text fits what was typed; 0 is not at all.

    >>> score("run", "run"), score("run", "runs"), score("wrk", "Add a worker"), score("z", "run")
    (150, 100, 10, 0)
    """
    wanted, text = wanted.lower(), text.lower()
    if text == wanted:
        return 150
    if text.startswith(wanted):
        return 100
    if wanted in text:
        return 50
    letters = iter(text)
    return 10 if all(letter in letters for letter in wanted if letter != " ") else 0


def found(commands: Iterable[Command], wanted: str) -> list[Command]:
    """Return the commands that fit what was typed, the best first."""
    scored = [
        (max(2 * score(wanted, command.name), score(wanted, command.does)), command)
        for command in commands
    ]
    return [each for points, each in sorted(scored, key=lambda pair: -pair[0]) if points]


class Finder(ModalScreen[Command | None]):
    """All commands, narrowed by typing; its result is the one chosen.

    `why_not` says why a command is not to be had now; such ones are shown with the reason.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Finder { align: center top; background: $background 40%; }
    Finder > Vertical {
        width: 76; max-width: 95%; height: auto; margin-top: 2;
        border: round $primary; background: $surface; padding: 0 1;
    }
    Finder OptionList { height: auto; max-height: 14; border: none; padding: 0; }
    """

    def __init__(self, commands: Sequence[Command], why_not: Callable[[Command], str]) -> None:
        super().__init__()
        self._commands = commands
        self._why_not = why_not
        self._found: list[Command] = []

    def compose(self) -> ComposeResult:
        """Lay out the line to type into and what fits."""
        with Vertical():
            yield Input(placeholder="what to do", compact=True, max_length=80)
            options = OptionList(compact=True)
            options.can_focus = False
            yield options

    def on_mount(self) -> None:
        """Show all commands."""
        self._narrow("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what fits."""
        self._narrow(event.value)

    def _narrow(self, wanted: str) -> None:
        self._found = found(self._commands, wanted)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([self._option(command) for command in self._found])
        options.highlighted = 0 if self._found else None

    def _option(self, command: Command) -> Option:
        keys = " ".join(map(key_name, command.keys))
        text = Content.assemble((f"{command.name:<14}", "bold"), f"{command.does:<44}", f" {keys}")
        why_not = self._why_not(command)
        return Option(
            Content.assemble(text, (f" {why_not}", "italic")).stylize("dim") if why_not else text
        )

    def action_move(self, rows: int) -> None:
        """Move among what fits."""
        options = self.query_one(OptionList)
        if self._found:
            options.highlighted = ((options.highlighted or 0) + rows) % len(self._found)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End with the command that is highlighted."""
        event.stop()
        highlighted = self.query_one(OptionList).highlighted
        self.dismiss(None if highlighted is None else self._found[highlighted])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """End with the command that was clicked."""
        event.stop()
        self.dismiss(self._found[event.option_index])


MOVING = (
    ("j k ↑ ↓", "Move; g and G to either end"),
    ("enter", "Look closer at what is under the cursor"),
)
FILTERS = (
    "Filters: plain words, !not, util<20, mem>=95, state:idle, host:gpu0*",
    "Numbers of the fleet: util mem temp power clock cpu ready restarts ecc",
)


def help_lines(commands: Iterable[Command], view: str) -> Iterator[str]:
    """Give the help for a view: its own commands, then those to be had everywhere."""
    commands = list(commands)
    own = [command for command in commands if command.view == view]
    yield from _section(f"In the {view} view", own)
    for keys, does in MOVING:
        yield f"  {keys:<29} {does}"
    yield ""
    yield from _section("Everywhere", [command for command in commands if not command.view])
    yield ""
    yield from FILTERS


def _section(title: str, commands: Sequence[Command]) -> Iterator[str]:
    if commands:
        yield title
    for command in commands:
        keys = " ".join(map(key_name, command.keys))
        called = f":{command.name} {command.usage}".rstrip()
        yield f"  {keys:<6} {called:<22} {command.does}"
