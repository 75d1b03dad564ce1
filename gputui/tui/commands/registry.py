"""Commands: one registry feeds the keys, the palette, the `:` line, the help and the README.

A command says what it does and when it is not to be had; what carries it out is called with
the app, or, for a command of a view, with that view, and with what was typed after its name.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

Run = Callable[[Any, str], Awaitable[None] | None]
Unavailable = Callable[[Any], str]


Suggest = Callable[[Any, list[str]], Iterable[str]]
"""Gives what the next word after a command can be; called with the app and the words before it,
of which the last is what is typed of that word."""


def always(_target: Any) -> str:
    """Say of a command that nothing stands against it."""
    return ""


def nothing(_app: Any, _words: list[str]) -> Iterable[str]:
    """Suggest no word."""
    return ()


@dataclass(frozen=True, slots=True)
class Command:
    """Something that a person can ask of the screen."""

    name: str
    """What `:` calls it; one word."""
    does: str
    """A line for palette and help, in the imperative."""
    run: Run
    keys: tuple[str, ...] = ()
    """Textual's names of keys: `plus`, `slash`, `R`."""
    view: str = ""
    """The view that it belongs to; "" for one that is to be had everywhere."""
    usage: str = ""
    """What may be typed after its name."""
    hint: str = ""
    """A word for the line of keys; "" leaves it out there."""
    changes: bool = False
    """Whether it changes the cluster; `--readonly` takes it away."""
    unavailable: Unavailable = always
    """Why it is not to be had now, "" when it is; called with the app or the view."""

    suggest: Suggest = nothing
    """What `tab` completes the words after its name to."""

    at_once: bool = False
    """Whether keys typed behind its own wait until it is carried out, because they are meant for
    what it brings into sight; it then must ask nothing."""

    @property
    def needs_argument(self) -> bool:
        """Whether something must be typed after its name: what its usage has outside brackets.

        >>> Command("scale", "", print, usage="[HOST] N|max").needs_argument
        True
        >>> Command("run", "", print, usage="[PRESET [name=value…]]").needs_argument
        False
        """
        depth = 0
        for character in self.usage:
            depth += (character == "[") - (character == "]")
            if not depth and character not in "[] ":
                return True
        return False


class Registry:
    """All commands, by name, by key and by view."""

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        self._commands: dict[str, Command] = {}
        self.add(commands)

    def add(self, commands: Iterable[Command]) -> None:
        """Take commands in; raises ValueError when a name or a key is taken."""
        for command in commands:
            if command.name in self._commands:
                raise ValueError(f"two commands are called {command.name}")
            for key in command.keys:
                other = self.by_key(key, command.view)
                if other is not None and other.view == command.view:
                    raise ValueError(f"{key} is the key of {other.name} and {command.name}")
            self._commands[command.name] = command

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def by_key(self, key: str, view: str) -> Command | None:
        """Return the command that a key calls in a view: the view's own come first."""
        found = [command for command in self if key in command.keys]
        own = [command for command in found if view and command.view == view]
        return next(iter(own or (command for command in found if not command.view)), None)

    def in_view(self, view: str) -> list[Command]:
        """Return the commands to be had in a view, its own ones first."""
        own = [command for command in self if view and command.view == view]
        return own + [command for command in self if not command.view]

    def parse(self, line: str, view: str = "") -> tuple[Command | None, str]:
        """Return the command that a `:` line names (or the only one so begun) and its argument.

        `sort` means `sort-workers` in the view of that name.

        >>> registry = Registry([Command("scale", "Scale", print), Command("sort", "Sort", print)])
        >>> command, argument = registry.parse("sc 12")
        >>> command.name, argument
        ('scale', '12')
        >>> registry.parse("s")
        (None, '')
        """
        name, _, argument = line.strip().partition(" ")
        exact = self._commands.get(f"{name}-{view}") or self._commands.get(name)
        if exact is not None:
            return exact, argument.strip()
        begun = self.completions(name)
        return (begun[0] if name and len(begun) == 1 else None), argument.strip()

    def not_found(self, line: str) -> str:
        """Return why a `:` line calls nothing, and what may have been meant.

        >>> registry = Registry([Command("scale", "Scale", print), Command("sort", "Sort", print)])
        >>> registry.not_found("s 3"), registry.not_found("sclae 3")
        ('s may be scale, sort', "no command 'sclae'; did you mean scale?")
        """
        name = line.split()[0]
        if begun := self.completions(name):
            return f"{name} may be {', '.join(command.name for command in begun)}"
        near = get_close_matches(name, self._commands, n=1)
        return f"no command {name!r}; " + (f"did you mean {near[0]}?" if near else "^p finds one")

    def completions(self, begun: str) -> list[Command]:
        """Return the commands whose names begin so."""
        return [command for command in self if command.name.startswith(begun)]


KEY_NAMES = {
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "exclamation_mark": "!",
    "plus": "+",
    "minus": "-",
    "space": "space",
    "escape": "esc",
    "asterisk": "*",
    "less_than_sign": "<",
    "greater_than_sign": ">",
}


def key_name(key: str) -> str:
    """Return a key as it is printed on a keyboard.

    >>> key_name("plus"), key_name("ctrl+p"), key_name("R")
    ('+', '^p', 'R')
    """
    return KEY_NAMES.get(key, key.replace("ctrl+", "^"))
