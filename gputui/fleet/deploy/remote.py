"""The one command that is run on a host over SSH, and what is sent to it on stdin.

The command is a constant: neither the hosts file nor a secret is ever in it. It has no backslash,
exclamation mark or newline, and no single quote inside its single quotes, so that sh, bash, zsh,
ksh, csh and fish read it alike. On stdin follow: some empty lines, for a login shell that reads
before the command does; a line that begins; the line of `setup=`, which the login shell runs;
interpreters, a line each; the script for the first that is there, and its order.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

GREETING = b"gputui-loader-1"
"""The line on which `loader.py` answers begins so; a word that only this connection knows follows,
so that no login shell can print it."""

TOOK = b"gputui-loader-took"
"""The line on which it says that another `PIECE_BYTES` of the pack have arrived."""
PIECE_BYTES = 2**15

SET_UP = b"gputui-set-up"
"""The line that is printed after `setup=`."""

BOOTSTRAP_ENVIRONMENT = "~/.local/share/gputui/env"
"""Where `gputui bootstrap` makes a host's environment."""

NO_PYTHON = 79
"""The command's exit status where none of the interpreters is there; a shim that finds no Python
has the shell's own, 127, and its own words."""

OLDEST = (3, 6)
"""The oldest Python that the scripts run on."""

BEGIN = "gputui-begin"
READ_BY_A_SHELL = 8
"""Empty lines before the beginning."""

CODE = (
    "import sys, os; sys.path = [p for p in sys.path if p]; "
    "gputui = os.fdopen(0, chr(114) + chr(98), 0); exec(eval(gputui.readline()))"
)
"""What every Python from 2.6 understands, without a quote."""

FIND = (
    "found=; first=; "
    'while IFS= read -r python && [ -n "$python" ]; do '
    'case $python in "~/"*) python=$HOME/${python#??};; esac; '
    "first=${first:-$python}; "
    "case $python in "
    '*/*) [ -z "$found" ] && [ -f "$python" ] && [ -x "$python" ] && found=$python;; '
    '*) [ -z "$found" ] && command -v "$python" >/dev/null 2>&1 && found=$python;; '
    "esac; "
    "done; "
    '[ -z "$found" ] && [ -e "$first" ] && found=$first; '
    f'[ -n "$found" ] || exit {NO_PYTHON}; '
    f'exec "$found" -c "{CODE}"'
)

START = (
    f'line=; until [ "$line" = {BEGIN} ]; do IFS= read -r line || exit 1; done; '
    "IFS= read -r setup; "
    '[ -n "$setup" ] || eval "$1"; '
    "GPUTUI_FIND=$1; export GPUTUI_FIND; shell=${SHELL:-/bin/sh}; "
    'case $shell in *csh) exec "$shell" -c "$setup";; esac; '
    'exec "$shell" -l -c "$setup"'
)

COMMAND = f"exec sh -c '{START}' gputui '{FIND}'"


def first_lines(
    interpreters: Sequence[str],
    script: str,
    order: Mapping[str, object],
    *,
    setup: str = "",
    too_old: str = "",
) -> bytes:
    """Return the command's stdin: interpreters to try, a script, its order.

    A Python older than `OLDEST` runs `too_old` instead. Raises ValueError for an interpreter or a
    `setup` that is no single line.
    """
    if any(not python or set(python) & set("\n\0") for python in interpreters):
        raise ValueError("an interpreter is a path or a name")
    if set(setup) & set("\n\0"):
        raise ValueError("setup is one line")
    if setup:
        setup += f' && echo {SET_UP.decode()} && exec sh -c "$GPUTUI_FIND"'
    chosen = f"{script!a} if __import__('sys').version_info >= {OLDEST} else {too_old!a}"
    lines = [
        *[""] * READ_BY_A_SHELL,
        BEGIN,
        setup,
        *interpreters,
        "",
        chosen,
        json.dumps(order),
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def greeting_of_an_old_python(nonce: str) -> str:
    """Return a script for any Python that greets as `loader.py` does, with its version only."""
    rest = {"send": False, "address": "", "client": "", "time": 0}
    return (
        "import json, os, sys\n"
        f"said = json.loads({json.dumps(rest)!r})\n"
        "said.update(python=sys.executable, version=sys.version.split()[0])\n"
        f"said = '{GREETING.decode()} {nonce} ' + json.dumps(said) + '\\n'\n"
        "os.write(1, said.encode('ascii'))\n"
    )


@cache
def script(name: str) -> str:
    """Return the source of a script next to this module that runs on hosts."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
