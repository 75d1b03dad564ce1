"""The man page, written from click's declarations whenever a wheel is built.

Hatch runs this; it is not in the wheel. `python -m gputui.cli.manual` prints the page.
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualHook(BuildHookInterface[Any]):
    """Writes the man page, and has the wheel hold it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the page into a folder that is removed after the build."""
        sys.path.insert(0, self.root)
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name, "gputui.1")
        path.write_text(page(), encoding="utf-8")
        build_data["shared_data"][str(path)] = "share/man/man1/gputui.1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        self.folder.cleanup()


def page() -> str:
    """Return the man page. Source: man(7)."""
    from gputui.cli.commands import UNNAMED_USAGE, gputui
    from gputui.version import __version__

    context = gputui.context_class(gputui, info_name="gputui")
    title, _, description = (gputui.help or "").partition("\n")
    lines = [
        f'.TH GPUTUI 1 "" "gputui {__version__}"',
        *(".SH NAME", rf"gputui \- {_text(title[0].lower() + title[1:].rstrip('.'))}"),
        *(".SH SYNOPSIS", ".B gputui", _text(UNNAMED_USAGE)),
        *(".br", ".B gputui", _text("COMMAND [ARGS]…"), ".SH DESCRIPTION"),
    ]
    for paragraph in description.strip().split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        as_it_is = first == "\b"
        lines += [".PP", ".nf", _text(rest), ".fi"] if as_it_is else [".PP", _text(paragraph)]
    lines += [".SH OPTIONS", *_options(gputui.commands["open"], context), ".SH COMMANDS"]
    lines += _commands(gputui, context)
    topics = _text("gputui help lists the topics of the documentation, and shows them.")
    return "\n".join([*lines, ".SH SEE ALSO", topics, ""])


def _commands(group: Any, context: Any) -> list[str]:
    """Return the commands of a group, each below its usage line."""
    lines = []
    for name, command in group.commands.items():
        if not command.hidden:
            own = command.context_class(command, parent=context, info_name=name)
            usage = " ".join([own.command_path, *command.collect_usage_pieces(own)])
            lines += [f".SS {_text(usage)}", _text(command.help or ""), *_options(command, own)]
            lines += _commands(command, own) if hasattr(command, "commands") else []
    return lines


def _options(command: Any, context: Any) -> list[str]:
    """Return the options of a command, each a tagged paragraph."""
    records = [param.get_help_record(context) for param in command.get_params(context)]
    return [
        line
        for written, meaning in filter(None, records)
        for line in (".TP", f".B {_text(written)}", _text(meaning))
    ]


def _text(words: str) -> str:
    r"""Return words as roff: nothing in them is a request.

    >>> print(_text("--a\\b\n.x"))
    \-\-a\eb
    \&.x
    """
    escaped = words.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    print(page(), end="")
