"""The command that starts runs: from a form, or at once with all that it takes typed after it.

Presets, messages and dialogs are imported where they are used: the first frame does not wait for
them.
"""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gputui.errors import HeadError, PresetError
from gputui.tui.commands.command_registry import Command
from gputui.tui.completion import runs

if TYPE_CHECKING:
    from gputui.protocol.frontend import StartRun
    from gputui.tui.app import ScreenApp


def parse_run(argument: str) -> "StartRun":
    """Parse `svd rows=20000` as a run request; raises HeadError for a mistake.

    >>> parse_run("svd rows=20000 cols=100").parameters
    (('rows', '20000'), ('cols', '100'))
    """
    from gputui import presets
    from gputui.protocol.frontend import StartRun

    try:
        name, *words = shlex.split(argument)
        pairs = [tuple(word.split("=", 1)) for word in words]
        if not all(len(pair) == 2 for pair in pairs):
            raise HeadError("write parameters as name=value")
        parameters = {pair[0]: pair[1] for pair in pairs}
        presets.parse(presets.get(name), parameters).refuse_mistakes()
    except (ValueError, PresetError) as error:
        raise HeadError(str(error)) from error
    return StartRun(0, presets.located(name), tuple(parameters.items()))


async def start_run(app: "ScreenApp", request: "StartRun") -> None:
    """Have the head start a run, remember its form, and go where it is seen."""
    from gputui.protocol.frontend import Done

    done = await app.head.request(request)
    app.prefer(forms={**app.remembered.now.forms, request.preset: dict(request.parameters)})
    key = done.text if isinstance(done, Done) else ""
    await app.show_view("runs", key)
    app.say(f"{request.preset} started")


async def _run(app: "ScreenApp", argument: str) -> None:
    if len(argument.split()) > 1:
        await start_run(app, parse_run(argument))
        return
    await edit_run(app, argument.strip())


async def edit_run(app: "ScreenApp", preset: str, texts: Mapping[str, str] | None = None) -> None:
    """Open the form with these values or those of the last run, and start the run."""
    from gputui.tui.dialogs.form import machine_of
    from gputui.tui.dialogs.run import RunDialog

    snapshot = app.watched.snapshot
    assert snapshot is not None
    forms = app.remembered.now.forms
    forms = forms if texts is None else {**forms, preset: texts}
    machine, editing = machine_of(snapshot), texts is not None
    dialog = RunDialog(snapshot.name, machine, preset, forms, editing=editing)
    request = await app.ask(dialog)
    if request is not None:
        await start_run(app, request)


def _no_workers(app: "ScreenApp") -> str:
    snapshot = app.watched.snapshot
    return "" if snapshot and snapshot.workers_up else "no worker is up yet"


def preset_commands() -> list[Command]:
    """Return a command for each preset, for the palette: it opens the preset's form."""
    from gputui import presets

    return [_preset_command(name) for name in presets.names()]


def _preset_command(name: str) -> Command:
    from gputui import presets

    try:
        does = presets.get(name).summary
    except (PresetError, ImportError) as error:
        does = str(error)
    return Command(
        f"run {name}",
        does,
        lambda app: _run(app, name),
        changes=True,
        unavailable=_no_workers,
    )


COMMANDS = (
    Command(
        "run", "Run a preset: choose it and set its parameters", _run, "c",
        "[PRESET [name=value…]]", "run", changes=True, unavailable=_no_workers, suggest=runs,
    ),
)  # fmt: skip
