"""Commands: one registry feeds the keys, the palette, the `:` line and the help.

A command has a summary and a reason why it is unavailable; its function is called with the app or,
for a view's command, with that view, and with the typed argument if it has a `usage`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from textual.keys import format_key

from gputui.model.frozen import frozen
from gputui.tui.filter import nearest

PAST = "this is the past; esc goes back to now"

Run = Callable[..., Awaitable[None] | None]
Unavailable = Callable[[Any], str]
Suggest = Callable[[Any, list[str]], Iterable[str]]
"""Completions of a command's next word; called with the app and the typed words, the last of which
is incomplete."""


@frozen
class Command:
    """Something that a person can ask of the screen."""

    name: str
    """What `:` calls it; one word."""
    does: str
    """A line for palette and help, in the imperative."""
    run: Run
    key: str = ""
    """Textual's name of its key: `plus`, `slash`, `R`."""
    usage: str = ""
    """What may be typed after its name."""
    hint: str = ""
    """A word for the line of keys; "" leaves it out there."""
    changes: bool = False
    """Whether it changes the cluster; `--readonly` takes it away."""
    unavailable: Unavailable = lambda _target: ""
    """Why it is unavailable now, or ""; called with the app or the view."""
    pointless: Unavailable = lambda _target: ""
    """Why it does not apply to the row under the cursor; its key is then not offered, but `:` with
    a name works."""
    suggest: Suggest = lambda _app, _words: ()
    """What `tab` completes the words after its name to."""
    at_once: bool = False
    """Whether later keys wait until it is done, because they are meant for the view that it opens;
    it must not ask."""
    view: str = ""
    """Its view; "" for a command of all views."""

    @property
    def needs_argument(self) -> bool:
        """Whether something must be typed after its name: what its usage has outside brackets.

        >>> Command("scale", "", print, usage="N|max").needs_argument
        True
        >>> Command("run", "", print, usage="[PRESET [KEY=VALUE…]]").needs_argument
        False
        """
        return bool(re.sub(r"\[.*\]", "", self.usage).strip())


class Registry:
    """All commands, by name, by key and by view."""

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        self._commands: dict[str, Command] = {}
        self.add(commands)

    def add(self, commands: Iterable[Command], view: str = "") -> None:
        """Add the commands of a view."""
        self._commands |= {each.name: replace(each, view=view) for each in commands}

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def by_key(self, key: str, view: str) -> Command | None:
        """Return the command that a key calls in a view: the view's own come first."""
        return next((command for command in self.in_view(view) if command.key == key), None)

    def in_view(self, view: str) -> list[Command]:
        """Return the commands of a view, its own first."""
        own = [command for command in self if view and command.view == view]
        return own + [command for command in self if not command.view]

    def parse(self, line: str, view: str = "") -> tuple[Command | None, str]:
        """Return the command that a `:` line names, and its argument.

        `sort` means `sort-workers` in the view of that name.

        >>> registry = Registry([Command("scale", "Scale", print), Command("sort", "Sort", print)])
        >>> command, argument = registry.parse("scale 12")
        >>> command.name, argument
        ('scale', '12')
        """
        name, _, argument = line.strip().partition(" ")
        command = self._commands.get(f"{name}-{view}") or self._commands.get(name)
        return command, argument.strip()

    def not_found(self, line: str) -> str:
        """Return that a `:` line calls nothing, and what may have been meant.

        >>> registry = Registry([Command("scale", "Scale", print), Command("sort", "Sort", print)])
        >>> registry.not_found("sclae 3"), registry.not_found("x")
        ("no command 'sclae'; did you mean scale?", "no command 'x'; ^p finds one")
        """
        name = line.split()[0]
        return f"no command {name!r}; {nearest(name, self._commands) or '^p finds one'}"


def key_name(key: str) -> str:
    """Return a key as it is printed on a keyboard.

    >>> key_name("plus"), key_name("ctrl+p"), key_name("R")
    ('+', '^p', 'R')
    """
    return format_key(key).replace("ctrl+", "^")
