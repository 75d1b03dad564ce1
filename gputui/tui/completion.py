"""Complete a line by `tab`: presets, parameters, hosts, workers, columns, files, fields."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import PresetError
from gputui.tui.commands.command_registry import Suggest
from gputui.tui.filter import Fields
from gputui.tui.rendering.palette import THEMES

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp


Candidates = Callable[[str], Sequence[str]]
"""All texts that the last word of a line can become."""
KEPT = 200
"""Lines that are remembered."""


def fitting(word: str, known: Iterable[str]) -> list[str]:
    """Return the completions of a word, in order, each once.

    >>> fitting("s", ["scale", "svd", "run", "svd"])
    ['scale', 'svd']
    """
    lowered = word.lower()
    return sorted({each for each in known if each.lower().startswith(lowered)})


def last_word(line: str) -> str:
    """Return the word at the end of a line, "" behind a space."""
    return "" if line.endswith(" ") else (line.split() or [""])[-1]


def completed(line: str, candidates: Sequence[str]) -> str:
    """Return a line whose last word is completed as far as all candidates agree.

    One candidate is completed whole, with a space behind it unless more is to be typed there.

    >>> completed("run sv", ["svd"]), completed("run svd r", ["rows=", "rank="])
    ('run svd ', 'run svd r')
    >>> completed("scale no", ["node-01", "node-02"])
    'scale node-0'
    """
    word = last_word(line)
    if not candidates:
        return line
    begun = _common(candidates)
    if len(begun) < len(word):
        return line
    whole = len(candidates) == 1 and begun[-1:] not in "=:<>/"
    return line[: len(line) - len(word)] + begun + (" " if whole else "")


def _common(texts: Sequence[str]) -> str:
    """Return how all texts begin."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))]


def files(word: str, suffixes: tuple[str, ...] = ()) -> list[str]:
    """Return the files and folders whose names begin so; those with other suffixes are left out."""
    folder, _, begun = word.rpartition("/")
    base = folder + "/" if "/" in word else ""
    try:
        found = sorted(Path(base or ".").expanduser().iterdir())
    except OSError:
        return []
    return [
        f"{base}{path.name}{'/' if path.is_dir() else ''}"
        for path in found
        if path.name.startswith(begun)
        and (begun or not path.name.startswith("."))
        and (path.is_dir() or not suffixes or path.suffix in suffixes)
    ]


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


@dataclass
class Past:
    """The lines that were typed before, and where among them a person is."""

    lines: Sequence[str] = ()
    place: int = 0
    """How many lines back; 0 is the line being typed."""
    typed: str = field(default="")

    def move(self, back: int, now: str) -> str:
        """Return an earlier line that begins like the one being typed.

        >>> past = Past(["scale 3", "run svd", "run mean"])
        >>> past.move(1, "run"), past.move(1, "run mean"), past.move(1, ""), past.move(-1, "")
        ('run mean', 'run svd', 'run svd', 'run mean')
        >>> past.move(-1, "run mean")
        'run'
        """
        if self.place == 0:
            self.typed = now
        fitting_ = [line for line in reversed(self.lines) if line.startswith(self.typed)]
        self.place = max(0, min(self.place + back, len(fitting_)))
        return fitting_[self.place - 1] if self.place else self.typed


def remembered(lines: Sequence[str], line: str) -> tuple[str, ...]:
    """Return the lines with another one typed; each is kept once, the newest last."""
    return (*(each for each in lines if each != line), line)[-KEPT:] if line else tuple(lines)


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
