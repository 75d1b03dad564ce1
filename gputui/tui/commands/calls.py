"""Calling commands: by key or name, with what they work on; now or beside the rest, or why not."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gputui.errors import HeadError
from gputui.tui.commands.registry import Command, key_name
from gputui.tui.views.view import View

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp


class Calls:
    """Calls the commands of an app."""

    def __init__(self, app: "ScreenApp") -> None:
        self._app = app

    async def press(self, key: str) -> bool:
        """Carry out what a key calls in the view in sight; returns False where it is nothing."""
        command = self._app.registry.by_key(key, self._app.stage.current)
        if command is not None:
            await self.call(command)
        return command is not None

    async def click(self, key: str) -> None:
        """Carry out what a key calls that was clicked, by the name it is shown under."""
        for command in self._app.registry.in_view(self._app.stage.current):
            if command.keys and key_name(command.keys[0]) == key:
                await self.call(command)
                return

    async def call(self, command: Command, argument: str = "") -> None:
        """Carry out a command, or say why it is not to be had."""
        why_not = self.why_not(command)
        if why_not:
            self._complain(command, why_not)
            return
        self._app.used(command.name)
        try:
            waiting = command.run(self._target(command), argument)
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
        """Return what a command is called with: its view, or the app."""
        return self._app.stage.visited(command.view) if command.view else self._app

    def elsewhere(self, command: Command) -> bool:
        """Whether a command belongs to another view than the one in sight."""
        return bool(command.view) and command.view != self._app.stage.current

    def why_not(self, command: Command) -> str:
        """Return why a command is not to be had now, "" when it is."""
        if command.changes and self._app.readonly:
            return "this screen is read-only"
        if command.changes and self._app.head.lost:
            return "the head does not answer"
        if self.elsewhere(command):
            return f"in the {command.view} view only"
        return command.unavailable(self._target(command))
