"""The one command that is run on a host over SSH, what is sent to it on stdin, and the pack.

The command is a constant: neither the hosts file nor a secret is ever in it. It has no backslash,
exclamation mark or newline, and no single quote inside its single quotes, so that sh, bash, zsh,
ksh, csh and fish read it alike. On stdin follow: some empty lines, for a login shell that reads
before the command does; a line that begins; the cluster's id, for an agent; the line of `setup=`,
which the login shell runs; interpreters, a line each; the script for the first that is there, and
its order.

The pack is gputui for a host: the modules that agent and workers need, as one zip named by its
hash, compiled for this minor version of Python, which a host must have anyway. The same sources
give the same bytes. It is kept in the user's cache, so that only the first start after a change
packs.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import marshal
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from gputui.errors import FolderError
from gputui.folders import cache_folders, own_folder, read_own_file, sweep, write_whole

GREETING = b"gputui-loader-1"
"""The line on which `loader.py` answers begins so; a word that only this connection knows follows,
so that no login shell can print it."""

TOOK = b"gputui-loader-took"
"""The line on which it says that another `PIECE_BYTES` of the pack have arrived."""
PIECE_BYTES = 2**15

BOOTSTRAP_ENVIRONMENT = "~/.local/share/gputui/env"
"""Where `gputui bootstrap` makes a host's environment."""

NO_PYTHON = 79
"""The command's exit status where none of the interpreters is there; a shim that finds no Python
has the shell's own, 127, and its own words."""

BEGIN = "gputui-begin"
READ_BY_A_SHELL = 8
"""Empty lines before the beginning."""

CODE = (
    "gputui = True; import sys; "
    "sys.path = [p for p in sys.path if p]; exec(eval(sys.stdin.readline()))"
)
"""What every Python from 2.6 understands, without a quote; by its first word `ps` names gputui.

Nothing follows the order until it is answered, so reading ahead loses nothing.
"""

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
    '[ -z "$GPUTUI_ID" ] || export GPUTUI_CLUSTER="$GPUTUI_ID"; '
    f'exec "$found" -c "{CODE}" ${{GPUTUI_ID:+relay}}'
)

# Not yet GPUTUI_CLUSTER, the mark of the cluster's processes: what `setup=` starts is none.
START = (
    f'line=; until [ "$line" = {BEGIN} ]; do IFS= read -r line || exit 1; done; '
    'IFS= read -r GPUTUI_ID; [ -z "$GPUTUI_ID" ] || export GPUTUI_ID; '
    "IFS= read -r setup; "
    '[ -n "$setup" ] || eval "$1"; '
    "GPUTUI_FIND=$1; export GPUTUI_FIND; shell=${SHELL:-/bin/sh}; "
    'case $shell in *csh) exec "$shell" -c "$setup";; esac; '
    'exec "$shell" -l -c "$setup"'
)

COMMAND = f"exec sh -c '{START}' gputui '{FIND}'"

LEFT_OUT = tuple(
    f"gputui/{name}"
    for name in (
        "__main__.py",
        "cli/",
        "client/remote_head.py",
        "client/there.py",
        "demo/",
        "fleet/",
        "head/",
        "tui/",
    )
)
"""What stays at home: the rest is the agent, and what tasks import (presets, runs, client)."""

UNCHECKED_HASH = (1).to_bytes(4, "little")
"""The flags of a .pyc that is not compared with its source. Source: PEP 552."""

MARSHAL_WITHOUT_REFERENCES = 2
"""Later formats share objects by how often they are referred to, which differs by process."""

KEPT_S = 30 * 86400
"""A pack that no start has read for so long is removed."""

MAIN = b"from gputui.agent.__main__ import main\n\nmain()\n"


def first_lines(
    interpreters: Sequence[str],
    script: str,
    order: Mapping[str, object],
    *,
    setup: str = "",
    cluster: str = "",
) -> bytes:
    """Return the command's stdin: interpreters to try, a script as one line of ASCII, its order.

    `cluster` is the id of an agent's cluster, "" for other scripts. Raises ValueError for an
    interpreter or a `setup` that is no single line.
    """
    if any(not python or set(python) & set("\n\0") for python in interpreters):
        raise ValueError("an interpreter is a path or a name")
    if set(setup) & set("\n\0"):
        raise ValueError("setup is one line")
    if setup:
        setup += ' && exec sh -c "$GPUTUI_FIND"'
    lines = [
        *[""] * READ_BY_A_SHELL,
        BEGIN,
        cluster,
        setup,
        *interpreters,
        "",
        script,
        json.dumps(order),
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


@cache
def script(name: str) -> str:
    """Return a script next to this module that runs on hosts: its source as one line of ASCII."""
    return ascii(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Pack:
    """A packed agent."""

    data: bytes
    path: Path
    """Its path on this machine: a host without SSH starts it from there."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the bytes, in hex: the same for every host."""
        return hashlib.sha256(self.data).hexdigest()


def load_pack() -> Pack:
    """Return the pack of this gputui, from the cache where it is there.

    Raises FolderError when there is no folder to write it to.
    """
    sources = tuple(_sources())
    name = f"pack-{_fingerprint(sources)}.pyz"
    for folder in cache_folders():
        with contextlib.suppress(OSError):
            return Pack(read_own_file(folder / name), folder / name)
    return _write(name, build(sources))


def build(sources: tuple[tuple[str, Path], ...]) -> bytes:
    """Return the zip of (name in it, file), each module as source and compiled."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _add(archive, "__main__.py", MAIN)
        for name, path in sources:
            source = path.read_bytes()
            _add(archive, name, source)
            _add(archive, f"{name}c", _compiled(source, name))
    return buffer.getvalue()


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield (name in the zip, file), sorted, for gputui's modules and pynvml."""
    yield from _modules(Path(__file__).parents[2], "gputui", LEFT_OUT)
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    if origin.name == "__init__.py":
        yield from _modules(origin.parent, "pynvml")
    else:
        yield "pynvml.py", origin


def _modules(
    root: Path, package: str, left_out: tuple[str, ...] = ()
) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*.py")):
        name = f"{package}/{path.relative_to(root).as_posix()}"
        if not name.startswith(left_out):
            yield name, path


def _fingerprint(sources: tuple[tuple[str, Path], ...]) -> str:
    """Return a hash that changes whenever a source or the interpreter's bytecode does."""
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER + MAIN)
    for name, path in sources:
        state = path.stat()
        digest.update(f"{name}\0{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _compiled(source: bytes, name: str) -> bytes:
    """Return the .pyc of a module."""
    code = compile(source, f"gputui-agent/{name}", "exec", dont_inherit=True, optimize=0)
    header = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
    return header + marshal.dumps(code, MARSHAL_WITHOUT_REFERENCES)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file with nothing in it that depends on when or where it was made."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = (stat.S_IFREG | 0o600) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def _write(name: str, data: bytes) -> Pack:
    """Write the pack to the first folder that takes it, and sweep old ones from there."""
    problems = []
    for folder in cache_folders():
        try:
            sweep(own_folder(folder), "*pack-*.pyz*", KEPT_S)
            write_whole(folder / name, data)
            return Pack(data, folder / name)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
    raise FolderError(f"no folder to keep the agent in: {'; '.join(problems)}")
