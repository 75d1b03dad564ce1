"""`presets`: what can be computed, and with which parameters."""

import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputui.errors import PresetError, UsageError
from gputui.model.plain_text import safe_lines
from gputui.presets import Parameter, Preset, Value, get, names

WIDTH = 80

MORE = """
gputui presets NAME             its parameters, and what comes of it
gputui presets new NAME         write NAME.py to begin with, and its test
gputui --run NAME               run it
gputui --run mine.py            run a script of your own; its Client() finds the cluster
gputui --run mine.py:PRESET     run a preset of your own"""


def presets(words: tuple[str, ...], as_json: bool) -> int:
    """Print all presets, or one with its parameters, or write a new one.

    Raises PresetError for an unknown name, or one that cannot be written.
    """
    if words[:1] == ("new",):
        return _new(words[1:], as_json)
    chosen = words[1:] if words[:1] == ("show",) else words
    if len(chosen) > 1 or (words and not chosen):
        raise UsageError("gputui presets NAME shows one preset")
    found = [get(each) for each in chosen] if chosen else _every()
    if as_json:
        print(json.dumps([preset_object(preset) for preset in found], indent=1))
    elif chosen:
        print(
            described(found[0], f"{chosen[0]}:PRESET" if chosen[0].endswith(".py") else chosen[0])
        )
    else:
        print(listed(found))
        print(MORE, file=sys.stderr)
    return 0


def _every() -> list[Preset]:
    """Return all presets that import; those that do not are named on stderr."""
    found = []
    for name in names():
        try:
            found.append(get(name))
        except PresetError as error:
            print(f"gputui: {safe_lines(str(error))}", file=sys.stderr)
    return found


def _new(words: tuple[str, ...], as_json: bool) -> int:
    from gputui.presets.registry import write_new

    if len(words) != 1:
        raise UsageError("gputui presets new NAME writes NAME.py and test_NAME.py")
    preset, test = write_new(words[0], Path())
    if as_json:
        print(json.dumps({"preset": str(preset), "test": str(test)}))
        return 0
    print(preset, test, sep="\n")
    print(f"\ngputui --run ./{preset}:PRESET\npython -m pytest {test}", file=sys.stderr)
    return 0


def preset_object(preset: Preset) -> dict[str, Any]:
    """Describe a preset for `presets --json`."""
    return {
        "name": preset.name,
        "summary": preset.summary,
        "parameters": [
            {**asdict(parameter), "type": parameter.type.__name__}
            for parameter in preset.parameters
        ],
        "arrays": list(preset.arrays),
        "draws": preset.draws,
        "requires": [asdict(library) for library in preset.requires],
    }


def listed(found: list[Preset]) -> str:
    """Return a table of presets with their summaries."""
    width = max(len(preset.name) for preset in found)
    return "\n".join(_hanging(preset.name, width, preset.summary) for preset in found)


def described(preset: Preset, name: str) -> str:
    """Return a preset, called `name` on the command line, with its parameters and needs."""
    written = [f"  -p {each.name}={_default(each)}" for each in preset.parameters]
    width = max(map(len, written), default=0)
    lines = [_hanging(f"{preset.name}:", len(preset.name), preset.summary), ""]
    for shown, parameter in zip(written, preset.parameters, strict=True):
        lines += [_hanging(shown, width, parameter.help), _hanging("", width, _takes(parameter))]
    lines += [""] * bool(written)
    for library in preset.requires:
        where = "" if len(library.backends) > 1 else f" of {library.backends[0]}"
        needs = f"needs {library.module} on every worker{where}: {library.install}"
        lines.append(textwrap.fill(needs, WIDTH, subsequent_indent="  "))
    lines.append(_hanging("gives", 5, preset.offers))
    return "\n".join([*lines, f"gputui --run {name}"])


def _hanging(left: str, width: int, right: str) -> str:
    """Return a text wrapped with a hanging indent after `left`."""
    first = f"{left:<{width}}".ljust(width + 2)
    return textwrap.fill(right, WIDTH, initial_indent=first, subsequent_indent=" " * (width + 2))


def _default(parameter: Parameter) -> str:
    """Return the default, as it would be typed."""
    if parameter.default is None:
        return "auto"
    if isinstance(parameter.default, bool):
        return str(parameter.default).lower()
    return _number(parameter.default)


def _takes(parameter: Parameter) -> str:
    """Return a parameter's bounds, and its default on CPUs if that differs."""
    on_cpu = parameter.cpu_default
    return parameter.bounds + ("" if on_cpu is None else f"; {_number(on_cpu)} on CPUs")


def _number(value: Value) -> str:
    """Return a value as it may be typed, an integer with its thousands apart."""
    return f"{value:_}" if isinstance(value, int) else str(value)
