"""The commands of every view, called with the app; they import their dialogs."""

import csv
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.content import Content

from gputui.errors import HeadError, PresetError, UsageError, refuse
from gputui.tui.commands import PAST, Command
from gputui.tui.filter import Fields, no_such
from gputui.tui.frame import Frame
from gputui.tui.rendering import fitted
from gputui.tui.rendering.format import lasted, safe
from gputui.tui.rendering.palette import THEMES
from gputui.tui.terminal import draw_again
from gputui.tui.views import VIEWS
from gputui.tui.widgets.prompt import files, fitting, last_word

LINES_KEPT = 200
"""Lines typed after `:` that are remembered."""
NAMELESS = ("events", "users")
"""Views that cannot be asked for one of their rows by its name."""

if TYPE_CHECKING:
    from gputui.presets import Preset
    from gputui.protocol.frontend import StartRun
    from gputui.tui.watched import Playback


def hosts(app: Frame, _words: list[str]) -> Iterable[str]:
    """Suggest the cluster's hosts."""
    return [host.name for host in app.watched.snapshot.hosts]


def workers(app: Frame, words: list[str]) -> Iterable[str]:
    """Suggest hosts and workers."""
    return [*hosts(app, words), *(worker.name for worker in app.watched.workers)]


def _known_in(view: str, app: Frame) -> list[str]:
    """Return the names that a view can be asked for."""
    watched, of_hosts = app.watched, [*hosts(app, [])]
    slots = [slot.key for slot in watched.slots]
    of_workers = [worker.name for worker in watched.workers]
    known = {"hosts": of_hosts, "fleet": of_hosts + slots, "device": slots + of_workers}
    known["logs"] = of_workers + [line.worker for line in watched.logs.lines]
    listed = app.visited["runs"].names if "runs" in app.visited else ()
    known["runs"] = [run.id for run in watched.snapshot.runs] + [*listed]
    return known.get(view, of_workers)


def _visit(view: str, key: str) -> Command:
    def visit(app: Frame, name: str = "") -> Awaitable[None]:
        if name and name not in (known := _known_in(view, app)):
            raise UsageError(no_such("", name, dict.fromkeys(known)))
        return app.show_view(view, name)

    return Command(
        view, f"Go to the {view} view", visit, key, "" if view in NAMELESS else "[NAME]",
        at_once=True, suggest=lambda app, _words: _known_in(view, app),
    )  # fmt: skip


async def _alarms(app: Frame) -> None:
    from gputui.tui.dialogs import Chooser

    now = app.watched.snapshot.taken_at
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


async def _why(app: Frame) -> None:
    from gputui.tui.dialogs.pages import Why

    await app.ask(Why(app.head, app.watched))


def _pause(app: Frame) -> None:
    app.paused = not app.paused
    app.draw()


async def type_command(app: Frame, begun: str = "") -> None:
    """Ask for a command, with a beginning that can be changed, and call it."""

    def candidates(line: str) -> Sequence[str]:
        name, space, rest = line.lstrip().partition(" ")
        if not space:
            return fitting(name, (each.name for each in app.registry.in_view(app.current)))
        command, _ = app.registry.parse(line, app.current)
        words = [*rest.split(), ""] if rest.endswith(" ") or not rest else rest.split()
        return fitting(words[-1], command.suggest(app, words)) if command else ()

    past = app.preferences.lines
    mark = ": command   tab completes"
    line = (await app.prompt.ask(mark, begun, candidates=candidates, past=past) or "").strip()
    if not line:
        return
    app.prefer(lines=(*(each for each in past if each != line), line)[-LINES_KEPT:])
    command, argument = app.registry.parse(line, app.current)
    if command is not None:
        await app.call(command, argument)
    else:
        app.say(app.registry.not_found(line), bad=True)


async def _filter(app: Frame, argument: str) -> None:
    view = app.view
    before, fields = view.filter_text, view.FILTER
    assert fields is not None, "its command is unavailable"

    def typed(text: str) -> None:
        app.say(view.filter(text), bad=True)  # "" clears what was wrong with it on the way

    def candidates(line: str) -> Sequence[str]:
        return filter_terms(fields, last_word(line))

    if argument:
        typed(argument)
        return
    mark = "/ filter   tab completes"
    if await app.prompt.ask(mark, before, candidates=candidates, typed=typed) is None:
        typed(before)


def filter_terms(fields: Fields[Any], word: str) -> Sequence[str]:
    """Return the completions of a filter's term: fields, and the values of words.

    >>> fields = Fields(str, {"state": str}, {"util": len}, choices={"state": ("busy", "idle")})
    >>> filter_terms(fields, "u"), filter_terms(fields, "!state:b")
    (['util>'], ['!state:busy'])
    """
    name = word.removeprefix("!")
    field, colon, _ = name.partition(":")
    known = [f"{each}:" for each in fields.words] + [f"{each}>" for each in fields.numbers]
    if colon:
        known = [f"{field}:{choice}" for choice in fields.choices.get(field, ())]
    return [word[: len(word) - len(name)] + each for each in fitting(name, known)]


async def _back(app: Frame) -> None:
    if await app.leave_playback() or app.view.back():
        return
    if app.current != "fleet":
        await app.show_view(app.trail[-1] if app.trail else "fleet")


def _move(name: str, key: str, does: str, by: Callable[["Playback"], float]) -> Command:
    """Return a command that moves the cursor of a recording."""

    def move(app: Frame) -> None:
        assert app.playback is not None, "its command is unavailable"
        app.playback.move(by(app.playback))
        app.draw()

    return Command(
        name, f"In a recording: go {does}", move, key, at_once=True,
        unavailable=lambda app: "" if app.playback else "P in runs plays a recording back",
    )  # fmt: skip


async def _find(app: Frame) -> None:
    from gputui.tui.dialogs.pages import Finder

    chosen = await app.ask(Finder([*app.registry], app.why_not))
    if chosen is None:
        return
    if chosen.needs_argument and not app.why_not(chosen):
        await type_command(app, chosen.name + " ")
    else:
        await app.call(chosen)


async def _help(app: Frame) -> None:
    from gputui.tui.dialogs import Page
    from gputui.tui.dialogs.pages import help_of

    text = help_of(app.view.NAME, app.registry, app.view.FILTER)
    await app.ask(Page(text, "↑ ↓ more   esc closes"))


def _theme(app: Frame, argument: str) -> None:
    if argument and argument not in app.available_themes:
        raise UsageError(no_such("theme", argument, THEMES))
    place = THEMES.index(app.theme) if app.theme in THEMES else -1
    app.theme = argument or THEMES[(place + 1) % len(THEMES)]
    app.prefer(theme=app.theme)
    app.say(app.theme)


def _copy(app: Frame) -> None:
    if not (text := app.view.copied()):
        raise UsageError("nothing to copy is under the cursor")
    app.copy_to_clipboard(text)


def _screenshot(app: Frame, argument: str) -> None:
    path = Path(argument or f"gputui-{time.strftime('%Y%m%d-%H%M%S')}.svg").absolute()
    refuse(
        (
            path.suffix not in (".svg", ".txt", ".csv"),
            f"{path}: name a file that ends in .svg, .txt or .csv",
        ),
        (path.exists(), f"{path} is there already; choose another name, or move it"),
    )
    view = app.view
    try:
        if path.suffix == ".txt":
            path.write_text(view.text(), encoding="utf-8")
        elif path.suffix == ".csv":
            if not (rows := view.cells()):
                raise UsageError(f"{view.NAME} is no table; write .txt or .svg")
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows)
        else:
            app.save_screenshot(path.name, str(path.parent))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    app.say(str(path))


def _preset(name: str) -> "Preset":
    """Return the preset of a name, which is no script's: it would run as it is imported."""
    from gputui import presets  # the first frame does not wait for them
    from gputui.runs.records import is_script

    if is_script(name):
        text = f"a script runs in a terminal of its own; a preset in it is {name}:PRESET"
        raise HeadError(text)
    try:
        return presets.get(name)
    except (PresetError, ImportError) as error:
        raise HeadError(str(error)) from error


def parse_run(argument: str) -> "StartRun":
    """Parse `svd rows=20000` as a run request; raises HeadError for a mistake.

    >>> parse_run("svd rows=20000 cols=100").parameters
    (('rows', '20000'), ('cols', '100'))
    """
    from gputui import presets
    from gputui.protocol.frontend import StartRun

    try:
        name, *words = shlex.split(argument)
        preset = _preset(name)
        pairs = [word.partition("=") for word in words]
        if not all(sign for _, sign, _ in pairs):
            raise HeadError("write parameters as name=value")
        parameters = {name: text for name, _, text in pairs}
        presets.parse(preset, parameters).refuse_mistakes()
    except (ValueError, PresetError) as error:
        raise HeadError(str(error)) from error
    return StartRun(0, presets.located(name), tuple(parameters.items()))


async def start_run(app: Frame, request: "StartRun") -> None:
    """Have the head start a run, remember its form, and go where it is seen."""
    from gputui.protocol.frontend import Done

    request = replace(request, cwd=request.cwd or str(Path.cwd()))
    done = await app.head.request(request)
    app.prefer(forms={**app.preferences.forms, request.preset: dict(request.parameters)})
    await app.show_view("runs", done.text if isinstance(done, Done) else "")
    app.say(f"{request.preset} started")


async def _run(app: Frame, argument: str) -> None:
    if len(argument.split()) > 1:
        await start_run(app, parse_run(argument))
    else:
        await edit_run(app, parse_run(argument).preset if argument else "")


async def edit_run(
    app: Frame, preset: str, texts: Mapping[str, str] | None = None, backend: str = "auto"
) -> None:
    """Open the form with these values or those of the last run, and start the run."""
    from gputui.tui.dialogs.run import RunDialog, machine_of

    snapshot, forms, editing = app.watched.snapshot, app.preferences.forms, texts is not None
    forms = forms if texts is None else {**forms, preset: texts}
    machine = machine_of(snapshot)
    dialog = RunDialog(snapshot.name, machine, preset, forms, backend, editing=editing)
    request = await app.ask(dialog)
    if request is not None:
        await start_run(app, request)


async def _exec(app: Frame, argument: str) -> None:
    """Have the head run a program on free GPUs, on one where no number is written."""
    from gputui.cli.options import parse_program
    from gputui.protocol.frontend import StartRun
    from gputui.protocol.programs import run_name
    from gputui.runs.records import as_typed

    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise HeadError(str(error)) from error
    given = {name.replace("_", "-"): value for name, value in parse_program(words).items()}
    if not (arguments := given.pop("arguments")):
        raise HeadError("write the program: exec -n 2 python train.py")
    if app.login and "send" in given:
        raise HeadError("--send: the cluster is of another machine, and so is the folder's path")
    parameters = as_typed({**given, "gpus": given.get("gpus", 1), "arguments": arguments})
    await start_run(app, StartRun(0, run_name(arguments[0]), parameters))


def _no_worker_up(app: Frame) -> str:
    return "" if app.watched.snapshot.any_up else "no worker is up yet"


def runs(_app: Frame, words: list[str]) -> Iterable[str]:
    """Suggest presets and files of presets, then the preset's parameters and their choices."""
    from gputui import presets  # the first frame does not wait for them

    if len(words) == 1:
        return [*presets.names(), *(f for f in files(words[0], (".py",)) if words[0] or "/" in f)]
    try:
        preset = _preset(words[0])
    except HeadError:
        return ()
    given = {word.partition("=")[0] for word in words[1:-1]}
    found: list[str] = []
    for parameter in preset.parameters:
        choices = ("false", "true") if parameter.type is bool else parameter.choices
        if parameter.name not in given:
            ends = choices if choices and "=" in words[-1] else ("",)
            found += [f"{parameter.name}={end}" for end in ends]
    return found


COMMANDS = (
    Command(
        "run", "Run a preset: choose it and set its parameters", _run, "c",
        "[PRESET [KEY=VALUE…]]", "run", changes=True, unavailable=_no_worker_up, suggest=runs,
    ),
    Command(
        "exec", "Run any program on free GPUs, without Dask", _exec, "",
        "[-n N …] CMD ARGS", changes=True,
        suggest=lambda _app, words: files(words[-1]),
    ),
    *(_visit(name, key) for name, (key, _) in VIEWS.items()),
    Command(
        "filter", "Show only rows that match", _filter, "slash", "FILTER", "filter",
        unavailable=lambda app: "" if app.view.FILTER else "this view has no filter",
    ),
    Command("command", "Type a command", type_command, "colon", hint="command"),
    Command("find", "Find a command", _find, "ctrl+p", hint="find"),
    Command(
        "quit", "Quit the screen, or stop the cluster", lambda app: app.person.leave(), "q",
        hint="quit",
    ),
    Command(
        "alarms", "List the alarms, and go to one", _alarms, "exclamation_mark",
        unavailable=lambda app: "" if list(app.watched.alarms) else "no alarms",
    ),
    Command(
        "why", "Say why the cluster is stuck", _why, "W",
        unavailable=lambda app: PAST if app.playback else "",
    ),
    Command("back", "Clear the filter, go back, end a playback", _back, "escape", at_once=True),
    _move("earlier", "left_square_bracket", "a step back", lambda played: -played.step_s),
    _move("later", "right_square_bracket", "a step on", lambda played: played.step_s),
    _move("minute-back", "left_curly_bracket", "a minute back", lambda _: -60.0),
    _move("minute", "right_curly_bracket", "a minute on", lambda _: 60.0),
    Command("pause", "Pause drawing, or resume", _pause, "p", hint="pause"),
    Command("redraw", "Redraw the terminal", draw_again, "ctrl+l"),
    Command(
        "suspend", "Suspend the screen until the shell's fg",
        lambda app: app.action_suspend_process(), "ctrl+z",
    ),
    Command(
        "theme", "Change the colours", _theme, "T", "[NAME]", suggest=lambda _app, _words: THEMES,
        unavailable=lambda app: "NO_COLOR is set" if app.no_color else "",
    ),
    Command("copy", "Copy what is under the cursor, or marked", _copy, "y", hint="copy"),
    Command(
        "screenshot", "Save the view: FILE.svg, FILE.txt or FILE.csv", _screenshot, "S", "[FILE]",
        suggest=lambda _app, words: [each for each in files(words[-1]) if each.endswith("/")],
    ),
    Command(
        "answer", "Answer questions put off before", lambda app: app.person.ask_again(), "A",
        unavailable=lambda app: "" if app.person.asked else "no question is open",
    ),
    Command(
        "start-again", "Start the lost cluster again, on the same hosts",
        lambda app: app.start_again(), "ctrl+n",
        unavailable=lambda app: "" if app.head.can_start_again else "the cluster is not lost",
    ),
    Command("help", "Show all keys and commands", _help, "question_mark", hint="help"),
)  # fmt: skip
