"""The commands of every view, called with the app; they import their dialogs."""

import csv
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from gputui.errors import HeadError, PresetError
from gputui.tui.commands.command_registry import Command
from gputui.tui.completion import (
    any_file,
    of_filter_line,
    of_line,
    runs,
    themes,
    workers,
)
from gputui.tui.filter import no_such
from gputui.tui.rendering.format import lasted, safe
from gputui.tui.rendering.lines import fitted
from gputui.tui.rendering.palette import THEMES
from gputui.tui.views import VIEWS, ViewKind
from gputui.tui.widgets.prompt import Asking, remembered

if TYPE_CHECKING:
    from gputui.protocol.frontend import StartRun
    from gputui.tui.app import ScreenApp


def _visit(kind: ViewKind) -> Command:
    async def run(app: "ScreenApp", argument: str) -> None:
        await app.show_view(kind.name, argument)

    does = f"Go to the {kind.name} view"
    return Command(kind.name, does, run, kind.key, "[NAME]", at_once=True, suggest=workers)


async def _quit(app: "ScreenApp") -> None:
    await app.action_quit()


async def _alarms(app: "ScreenApp") -> None:
    from gputui.tui.dialogs.modal import Chooser

    now = app.watched.snapshot.taken_at if app.watched.snapshot else 0.0
    items = [
        (
            alarm.subject,
            Content.assemble(
                (fitted(safe(alarm.subject), 26), "bold"),
                (fitted(alarm.kind.value, 26), "$text-error" if alarm.serious else "$text-warning"),
                (f" {lasted(alarm.since, alarm.held_at, now)}", "dim"),
            ),
        )
        for alarm in app.watched.alarms
    ]
    chosen = await app.ask(Chooser[str | None]("Alarms", items))
    if chosen is not None:
        await app.show_view("fleet", chosen)


def _no_alarm(app: "ScreenApp") -> str:
    return "" if any(True for _ in app.watched.alarms) else "no alarms"


def _pause(app: "ScreenApp") -> None:
    if app.paused:
        app.paused = False
        app.draw()
    else:
        app.draw_status(paused=True)
        app.paused = True


def _type_command(app: "ScreenApp", begun: str = "") -> None:
    async def submitted(line: str) -> None:
        app.prefer(lines=remembered(app.remembered.now.lines, line.strip()))
        command, argument = app.registry.parse(line, app.stage.current)
        if command is None:
            app.say(app.registry.not_found(line) if line.strip() else "", bad=True)
        else:
            await app.calls.call(command, argument)

    asking = Asking(
        ": command   tab completes", submitted, candidates=of_line(app), offered=_offer(app)
    )
    app.prompt.ask(asking, begun, app.remembered.now.lines)


def _offer(app: "ScreenApp") -> Callable[[Sequence[str]], None]:
    return lambda found: app.say("  ".join(found))


def _filter_line(app: "ScreenApp", argument: str) -> None:
    view = app.view
    if view is None:
        return
    before = view.filter_text

    def typed(text: str) -> None:
        why_not = view.filter(text)
        if why_not:
            app.say(why_not, bad=True)
        else:
            app.hush()  # of what was wrong with it on the way

    if argument:
        typed(argument)
    else:
        asking = Asking(
            "/ filter   tab completes",
            typed,
            typed,
            lambda: typed(before),
            of_filter_line(app),
            _offer(app),
        )
        app.prompt.ask(asking, before)


def _no_filter(app: "ScreenApp") -> str:
    return "" if app.view is not None and app.view.FILTER else "this view has no filter"


async def _back(app: "ScreenApp") -> None:
    if app.view is None or app.view.back():
        return
    if name := app.stage.way_back():
        await app.show_view(name)


async def _find(app: "ScreenApp") -> None:
    from gputui.tui.dialogs.help import Finder

    commands = [*app.registry, *preset_commands()]
    chosen = await app.ask(Finder(commands, app.calls.why_not))
    if chosen is None:
        return
    if chosen.needs_argument and not app.calls.why_not(chosen):
        _type_command(app, chosen.name + " ")
    else:
        await app.calls.call(chosen)


async def _help(app: "ScreenApp") -> None:
    from gputui.tui.dialogs.help import Help

    if (view := app.view) is not None:
        await app.ask(Help(tuple(app.registry), view.NAME, view.FILTER))


def _redraw(app: "ScreenApp") -> None:
    signal.raise_signal(signal.SIGWINCH)  # after which nothing on the terminal is taken for granted
    app.refresh()


def _theme(app: "ScreenApp", argument: str) -> None:
    if argument and argument not in app.available_themes:
        app.say(no_such("theme", argument, THEMES), bad=True)
        return
    place = THEMES.index(app.theme) if app.theme in THEMES else -1
    app.theme = argument or THEMES[(place + 1) % len(THEMES)]
    app.prefer(theme=app.theme)
    app.say(app.theme)


def _copy(app: "ScreenApp") -> None:
    text = app.view.copied() if app.view else ""
    if text:
        app.copy_to_clipboard(text)
    else:
        app.say("nothing to copy is under the cursor", bad=True)


def _screenshot(app: "ScreenApp", argument: str) -> None:
    path = Path(argument or f"gputui-{time.strftime('%Y%m%d-%H%M%S')}.svg").absolute()
    view = app.view
    try:
        if path.suffix == ".txt" and view is not None:
            path.write_text(view.text(), encoding="utf-8")
        elif path.suffix == ".csv" and view is not None:
            if not (rows := view.cells()):
                app.say(f"{view.NAME} is no table; write .txt or .svg", bad=True)
                return
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows)
        else:
            app.save_screenshot(path.name, str(path.parent))
        app.say(str(path))
    except OSError as error:
        app.say(f"{path}: {error.strerror}", bad=True)


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


def _no_worker_up(app: "ScreenApp") -> str:
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
        unavailable=_no_worker_up,
    )


COMMANDS = (
    Command(
        "run", "Run a preset: choose it and set its parameters", _run, "c",
        "[PRESET [name=value…]]", "run", changes=True, unavailable=_no_worker_up, suggest=runs,
    ),
    *(_visit(kind) for kind in VIEWS),
    Command(
        "filter", "Show only rows that match", _filter_line, "slash", "FILTER", "filter",
        unavailable=_no_filter,
    ),
    Command("command", "Type a command", _type_command, "colon", hint="command"),
    Command("find", "Find a command", _find, "ctrl+p", hint="find"),
    Command("quit", "Quit the screen, or stop the cluster", _quit, "q", hint="quit"),
    Command(
        "alarms", "List the alarms, and go to one", _alarms, "exclamation_mark",
        unavailable=_no_alarm,
    ),
    Command("back", "Clear the filter, or go back", _back, "escape", at_once=True),
    Command("pause", "Pause drawing, or resume", _pause, "p", hint="pause"),
    Command("redraw", "Redraw the terminal", _redraw, "ctrl+l"),
    Command(
        "theme", "Change the colours", _theme, "T", "[NAME]", suggest=themes,
        unavailable=lambda app: "NO_COLOR is set" if app.no_color else "",
    ),
    Command("copy", "Copy what is under the cursor, or marked", _copy, "y", hint="copy"),
    Command(
        "screenshot", "Save the view: FILE.svg, FILE.txt or FILE.csv", _screenshot, "S", "[FILE]",
        suggest=any_file,
    ),
    Command(
        "answer", "Answer questions put off before", lambda app: app.person.ask_again(), "A",
        unavailable=lambda app: "" if app.person.asked else "no question is open",
    ),
    Command(
        "start-again", "Start the lost cluster again, on the same hosts",
        lambda app: app.head.start_again(), "ctrl+n",
        unavailable=lambda app: "" if app.head.can_start_again else "the cluster is not lost",
    ),
    Command("help", "Show all keys and commands", _help, "question_mark", hint="help"),
)  # fmt: skip
