"""The command palette, made from the registry.

Textual's own lists what it finds some time after it was typed: a name and enter typed at once would
call nothing, or the command before.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gputui.tui.commands.command_registry import Command, key_name
from gputui.tui.dialogs.modal import Modal
from gputui.tui.rendering.lines import fitted

WIDTH = 78
NAME_CELLS, KEY_CELLS = 15, 5


def score(wanted: str, command: Command) -> int:
    """Return how well a command matches the typed text; 0 is no match.

    >>> run = Command("run", "Run a preset: choose it and set its parameters", print)
    >>> [score(wanted, run) for wanted in ("run", "r", "preset", "rn", "reset", "xyz")]
    [4, 3, 2, 1, 1, 0]
    """
    wanted, name, does = wanted.lower().strip(), command.name, command.does.lower()
    if wanted == name:
        return 4
    if any(word.startswith(wanted) for word in name.replace("-", " ").split()):
        return 3
    if any(word.startswith(wanted) for word in does.split()):
        return 2
    letters = iter(name)
    return int(wanted in does or wanted in name or all(letter in letters for letter in wanted))


def found(
    commands: Iterable[Command], wanted: str, why_not: Callable[[Command], str]
) -> list[Command]:
    """Return the commands that match the typed text: available ones first, then by score.

    With nothing typed they are in their own order.
    """
    scored = [(score(wanted, each) if wanted else 1, each) for each in commands]
    order = sorted(scored, key=lambda pair: (bool(why_not(pair[1])), -pair[0]))
    return [command for points, command in order if points]


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
    Finder {{ align: center top; }}
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
        """Show what fits."""
        self._narrow(event.value)

    def _narrow(self, wanted: str) -> None:
        self._found = found(self._commands, wanted, self._why_not)
        self._options.clear_options()
        self._options.add_options([self._option(command) for command in self._found])
        self._options.highlighted = 0 if self._found else None
        self._tell()

    def _option(self, command: Command) -> Option:
        room = WIDTH - NAME_CELLS - KEY_CELLS - 6
        name, does = fitted(command.name, NAME_CELLS), fitted(command.does, room)
        text = Content.assemble(
            (name, "bold"), f" {does} ", (fitted(key_name(command.key), KEY_CELLS), "bold")
        )
        return Option(text.stylize("dim") if self._why_not(command) else text)

    @property
    def _highlighted(self) -> Command | None:
        place = self._options.highlighted
        return None if place is None else self._found[place]

    def _tell(self) -> None:
        """Say of the one that is highlighted how it is typed, or why it cannot be called."""
        if (command := self._highlighted) is None:
            self._note.update("no command matches")
        elif why_not := self._why_not(command):
            self._note.update(f"not now: {why_not}")
        else:
            self._note.update(f":{command.name} {command.usage}".rstrip())

    def action_move(self, how: str) -> None:
        """Move among what fits."""
        getattr(self._options, f"action_{how}")()

    def on_option_list_option_highlighted(self) -> None:
        """Tell of another command."""
        self._tell()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End with the command that is highlighted."""
        event.stop()
        self.dismiss(self._highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """End with the command that was clicked."""
        event.stop()
        self.dismiss(self._found[event.option_index])
