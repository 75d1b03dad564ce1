"""`--spec`: commands, presets, settings and host-file options, for programs."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from gputui.cli.listing import preset_object
from gputui.errors import PresetError
from gputui.model.hosts import OPTIONS
from gputui.model.plain_text import safe_lines
from gputui.model.settings import Settings
from gputui.presets import get, names
from gputui.settings import BOUNDS, KEYS, WORKER_KEYS
from gputui.version import __version__


def print_specification(group: click.Group) -> None:
    """Print all as one JSON object; presets that cannot be imported are named on stderr."""
    presets = []
    for name in names():
        try:
            presets.append(preset_object(get(name)))
        except PresetError as error:
            print(f"gputui: {safe_lines(str(error))}", file=sys.stderr)
    settings = [
        {
            "key": key,
            "takes": BOUNDS[field][0] if field in BOUNDS else kind.__name__,
            "default": getattr(Settings(), field),
        }
        for key, (field, kind) in KEYS.items()
    ]
    settings += [
        {"key": key, "takes": takes, "default": None} for key, (takes, _) in WORKER_KEYS.items()
    ]
    found = {
        "version": __version__,
        "commands": list(_commands(group, click.Context(group, info_name="gputui"))),
        "presets": presets,
        "settings": settings,
        "host_options": [*OPTIONS, "env.X"],
    }
    print(json.dumps(found, indent=1))


def _commands(group: click.Group, context: click.Context) -> Iterator[dict[str, Any]]:
    """Yield every command, the unnamed one as `gputui`."""
    for name, command in group.commands.items():
        own = command.context_class(command, parent=context, info_name=name)
        yield {
            "name": own.command_path,
            "help": command.help or "",
            "arguments": [_words(each, own) for each in command.params if not _is_option(each)],
            "options": [_words(each, own) for each in command.params if _is_option(each)],
        }
        if isinstance(command, click.Group):
            yield from _commands(command, own)


def _is_option(param: click.Parameter) -> bool:
    return isinstance(param, click.Option)


def _words(param: click.Parameter, context: click.Context) -> dict[str, Any]:
    """Describe an argument or an option."""
    is_flag = getattr(param, "is_flag", False)
    return {
        "names": list(param.opts),
        "value": "" if is_flag else param.make_metavar(context),
        "choices": list(getattr(param.type, "choices", ())),
        "required": param.required,
        "repeated": param.multiple or param.nargs < 0,
        "help": getattr(param, "help", None) or "",
    }
