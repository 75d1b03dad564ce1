"""The one command that is run on a host over SSH, and what is sent to it on stdin.

The command is a constant: neither the hosts file nor a secret is ever in it. It has no quote,
backslash, exclamation mark or newline inside its single quotes, so that sh, bash, zsh, csh and
fish read it alike. Interpreters, the script for them and its order follow on stdin, a line each.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

GREETING = b"gputui-loader-1"
"""The line on which `loader.py` answers."""

BOOTSTRAP_ENVIRONMENT = "~/.local/share/gputui/env"
"""Where `gputui bootstrap` makes a host's environment."""

NO_PYTHON = 127
"""The command's exit status where none of the interpreters is there."""

COMMAND = (
    "exec sh -c '"
    "found=; "
    'while IFS= read -r python && [ -n "$python" ]; do '
    'case $python in "~/"*) python=$HOME/${python#??};; esac; '
    "case $python in "
    '*/*) [ -z "$found" ] && [ -f "$python" ] && [ -x "$python" ] && found=$python;; '
    '*) [ -z "$found" ] && command -v "$python" >/dev/null 2>&1 && found=$python;; '
    "esac; "
    "done; "
    f'[ -n "$found" ] || exit {NO_PYTHON}; '
    'exec "$found" -c "import sys; sys.path = [p for p in sys.path if p]; '
    'exec(eval(sys.stdin.buffer.raw.readline()))"'
    "'"
)


def opening(interpreters: Sequence[str], script: str, order: Mapping[str, object]) -> bytes:
    """Return what the command wants on stdin: interpreters to try, a script, its order.

    Raises ValueError for an interpreter that is no single line.
    """
    if any(not python or set(python) & set("\n\0") for python in interpreters):
        raise ValueError("an interpreter is a path or a name")
    lines = [*interpreters, "", ascii(script), json.dumps(order)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def script(name: str) -> str:
    """Return the source of a script beside this module that runs on hosts."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
