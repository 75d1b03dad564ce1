"""The commands that are to be had in every view, called with the app."""

from typing import TYPE_CHECKING

from gputui.tui.commands import Command
from gputui.tui.prompt import Asking
from gputui.tui.views import VIEWS, ViewKind

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp


def _visit(kind: ViewKind) -> Command:
    async def run(app: "ScreenApp", argument: str) -> None:
        await app.show_view(kind.name, argument)

    keys = (kind.key,) if kind.key else ()
    return Command(kind.name, f"Go to the {kind.name} view", run, keys)


async def _quit(app: "ScreenApp", _argument: str) -> None:
    await app.action_quit()


def _pause(app: "ScreenApp", _argument: str) -> None:
    if app.paused:
        app.paused = False
        app.draw()
    else:
        app.draw_status(paused=True)
        app.paused = True


def _command_line(app: "ScreenApp", _argument: str) -> None:
    async def submitted(line: str) -> None:
        command, argument = app.registry.parse(line)
        if command is None:
            app.say(f"no command {line.split(' ')[0]!r}" if line.strip() else "", bad=True)
        else:
            await app.call_command(command, argument)

    names = tuple(command.name for command in app.registry)
    app.prompt.ask(Asking(": a command", submitted), "", names, app.focus_view)


COMMANDS = (
    *(_visit(kind) for kind in VIEWS),
    Command("command", "Type a command", _command_line, ("colon",), hint="command"),
    Command("pause", "Stop drawing, or go on", _pause, ("p",), hint="pause"),
    Command("quit", "Leave the screen, or stop the cluster", _quit, ("q",), hint="quit"),
)
