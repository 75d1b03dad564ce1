"""Commands: one registry feeds the keys, the palette, the `:` line, the help and the README.

A command has a summary and a reason why it is unavailable; its function is called with the app or,
for a view's command, with that view, and with the typed argument if it has a `usage`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gputui.errors import HeadError

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp
    from gputui.tui.views import View


Run = Callable[..., Awaitable[None] | None]
Unavailable = Callable[[Any], str]


Suggest = Callable[[Any, list[str]], Iterable[str]]
"""Completions of a command's next word; called with the app and the typed words, the last of which
is incomplete."""


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
    key: str = ""
    """Textual's name of its key: `plus`, `slash`, `R`."""
    usage: str = ""
    """What may be typed after its name."""
    hint: str = ""
    """A word for the line of keys; "" leaves it out there."""
    changes: bool = False
    """Whether it changes the cluster; `--readonly` takes it away."""
    unavailable: Unavailable = always
    """Why it is unavailable now, or ""; called with the app or the view."""
    pointless: Unavailable = always
    """Why it does not apply to the row under the cursor; its key is then not offered, but `:` with
    a name works."""
    suggest: Suggest = nothing
    """What `tab` completes the words after its name to."""
    at_once: bool = False
    """Whether later keys wait until it is done, because they are meant for the view that it opens;
    it must not ask."""
    view: str = ""
    """Its view; "" for a command of all views."""

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

    def add(self, commands: Iterable[Command], view: str = "") -> None:
        """Take the commands of a view in; raises ValueError when a name or a key is taken."""
        for command in commands:
            if command.name in self._commands:
                raise ValueError(f"two commands are called {command.name}")
            other = self.by_key(command.key, view) if command.key else None
            if other is not None and other.view == view:
                raise ValueError(f"{command.key} is the key of {other.name} and {command.name}")
            self._commands[command.name] = replace(command, view=view)

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
    "equals_sign": "=",
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


class Calls:
    """Calls the commands of an app."""

    def __init__(self, app: "ScreenApp") -> None:
        self._app = app

    async def press(self, key: str) -> bool:
        """Carry out a key's command in the present view; return False if it has none. A key of
        another view shows where it applies.
        """
        registry = self._app.registry
        command = registry.by_key(key, self._app.stage.current)
        if command is not None:
            await self.call(command)
        elif others := [each for each in registry if each.key == key]:
            views = ", ".join(each.view for each in others)
            self._complain(others[0], f"in the {views} view only")
        return command is not None

    async def click(self, key: str) -> None:
        """Carry out the command of a key that was clicked, by the key's label."""
        for command in self._app.registry.in_view(self._app.stage.current):
            if key_name(command.key) == key:
                await self.call(command)
                return

    async def call(self, command: Command, argument: str = "") -> None:
        """Carry out a command, or show why it is unavailable."""
        why_not = self.why_not(command)
        if why_not:
            self._complain(command, why_not)
            return
        self._app.used(command.name)
        typed = (argument,) if command.usage else ()
        try:
            waiting = command.run(self._target(command), *typed)
        except HeadError as error:
            self._complain(command, str(error))
            return
        if waiting is not None and command.at_once:
            await self._settle(command, waiting)
        elif waiting is not None:
            self._app.run_worker(self._settle(command, waiting))
            await asyncio.sleep(0)  # its dialog stands before the next key is looked at

    async def _settle(self, command: Command, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except HeadError as error:
            self._complain(command, str(error))

    def _complain(self, command: Command, text: str) -> None:
        self._app.say(f"{command.name}: {text}", bad=True)

    def _target(self, command: Command) -> "ScreenApp | View":
        """Return a command's first argument: its view, or the app."""
        return self._app.stage.visited(command.view) if command.view else self._app

    def elsewhere(self, command: Command) -> bool:
        """Whether a command belongs to another view than the one in sight."""
        return bool(command.view) and command.view != self._app.stage.current

    def why_not(self, command: Command) -> str:
        """Return why a command is unavailable now, or ""."""
        if command.changes and self._app.readonly:
            return "this screen is read-only"
        if command.changes and self._app.head.lost:
            return "the head does not answer"
        if self.elsewhere(command):
            return f"in the {command.view} view only"
        return command.unavailable(self._target(command))

    def offered(self, command: Command) -> bool:
        """Whether a command's key does something now."""
        return not self.why_not(command) and not command.pointless(self._target(command))
