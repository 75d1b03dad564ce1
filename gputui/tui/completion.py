"""Complete a line by `tab`: presets, parameters, hosts, workers, columns, files, fields."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gputui.errors import PresetError
from gputui.tui.commands.command_registry import Suggest
from gputui.tui.filter import Fields
from gputui.tui.rendering.palette import THEMES
from gputui.tui.widgets.prompt import Candidates, files, fitting, last_word

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp


def of_filter(fields: Fields[object]) -> Candidates:
    """Return the completions of a filter's terms: fields, and the values of words.

    >>> fields = Fields(str, {"state": str}, {"util": len}, choices={"state": ("busy", "idle")})
    >>> of_filter(fields)("u"), of_filter(fields)("gpu0 !state:b")
    (['util>'], ['!state:busy'])
    """

    def candidates(line: str) -> Sequence[str]:
        word = last_word(line)
        no, name = ("!", word[1:]) if word.startswith("!") else ("", word)
        field_, colon, _ = name.partition(":")
        if colon:
            known = [f"{field_}:{choice}" for choice in fields.choices.get(field_, ())]
        else:
            known = [f"{each}:" for each in fields.words] + [f"{each}>" for each in fields.numbers]
        return [no + each for each in fitting(name, known)]

    return candidates


def hosts(app: "ScreenApp", _words: list[str]) -> Iterable[str]:
    """Suggest the cluster's hosts."""
    snapshot = app.watched.snapshot
    return [host.name for host in snapshot.hosts] if snapshot else ()


def workers(app: "ScreenApp", words: list[str]) -> Iterable[str]:
    """Suggest hosts and workers."""
    return [*hosts(app, words), *(worker.name for worker in app.watched.workers)]


def slots(app: "ScreenApp", words: list[str]) -> Iterable[str]:
    """Suggest hosts, and places for a worker that have none."""
    return [*hosts(app, words), *(slot.key for slot in app.watched.slots if not slot.workers)]


def columns(app: "ScreenApp", _words: list[str]) -> Iterable[str]:
    """Suggest the columns of the view in sight."""
    return app.view.column_names if app.view else ()


def gpu_columns(_app: "ScreenApp", _words: list[str]) -> Iterable[str]:
    """Suggest all columns that rows of GPUs can have."""
    from gputui.tui.rendering.fleet import BY_KEY

    return ["all", *BY_KEY]


def themes(_app: "ScreenApp", _words: list[str]) -> Iterable[str]:
    """Suggest the themes."""
    return THEMES


def any_file(_app: "ScreenApp", words: list[str]) -> Iterable[str]:
    """Suggest files and folders."""
    return files(words[-1])


def runs(_app: "ScreenApp", words: list[str]) -> Iterable[str]:
    """Suggest presets and files of presets, then the preset's parameters and their choices."""
    from gputui import presets  # the first frame does not wait for them

    if len(words) == 1:
        return [*presets.names(), *(f for f in files(words[0], (".py",)) if words[0] or "/" in f)]
    try:
        preset = presets.get(words[0])
    except (PresetError, ImportError):
        return ()
    given = {word.partition("=")[0] for word in words[1:-1]}
    found: list[str] = []
    for parameter in preset.parameters:
        choices = ("false", "true") if parameter.type is bool else parameter.choices
        if parameter.name not in given and choices and "=" in words[-1]:
            found += [f"{parameter.name}={choice}" for choice in choices]
        elif parameter.name not in given:
            found.append(f"{parameter.name}=")
    return found


def either(*words: str, then: Suggest = lambda app, words: ()) -> Suggest:
    """Suggest these words, and what another suggests."""
    return lambda app, typed: [*words, *then(app, typed)]


def of_line(app: "ScreenApp") -> Candidates:
    """Return the completions of the last word of a `:` line."""

    def candidates(line: str) -> Sequence[str]:
        name, space, rest = line.lstrip().partition(" ")
        if not space:
            names = (each.name for each in app.registry if not app.calls.elsewhere(each))
            return fitting(name, names)
        command, _ = app.registry.parse(line, app.stage.current)
        if command is None:
            return ()
        words = [*rest.split(), ""] if rest.endswith(" ") or not rest else rest.split()
        return fitting(words[-1], command.suggest(app, words))

    return candidates


def of_filter_line(app: "ScreenApp") -> Candidates:
    """Return the completions of a filter's last word in the view in sight."""
    fields = app.view.FILTER if app.view else None
    return of_filter(fields) if fields else lambda line: ()
