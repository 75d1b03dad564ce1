"""HOSTS, as people give it: a file, stdin, or the text itself → what a cluster is made of."""

import sys
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import UsageError
from gputui.hosts import Host, parse_hosts

MAX_HOSTS_BYTES = 2**20
"""A hosts file past this is some other file."""


@dataclass(frozen=True, slots=True)
class HostsInput:
    """The hosts of a cluster and where they came from."""

    text: str
    hosts: tuple[Host, ...]
    source: str
    """The absolute path of the file; "" where there is none."""
    name: str
    """What a cluster of them is called: the file's stem, or `local`."""


LOCAL = "localhost"


def read_hosts(given: str | None) -> HostsInput:
    """Return the hosts that the argument HOSTS means; None is this machine.

    An existing path, and anything with a `/` or ending in `.txt`, is a file; `-` is stdin;
    anything else is the text of such a file, with `;` between lines.

    Raises UsageError, and HostsError with every bad line.
    """
    if given is None:
        return HostsInput(LOCAL, parse_hosts(LOCAL), "", "local")
    if given == "-":
        text = _decoded(sys.stdin.buffer.read(MAX_HOSTS_BYTES + 1), "stdin")
        return HostsInput(text, parse_hosts(text, "stdin"), "", "stdin")
    path = Path(given)
    if "/" in given or given.endswith(".txt") or _exists(path):
        text = _decoded(_content(path), given)
        return HostsInput(text, parse_hosts(text, given), str(path.resolve()), path.stem)
    text = given.replace(";", "\n")
    return HostsInput(text, parse_hosts(text, "HOSTS"), "", "local")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _content(path: Path) -> bytes:
    """Return what is in a file; raises UsageError in words."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_HOSTS_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory; name a file with one host a line") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _decoded(data: bytes, source: str) -> str:
    """Return the text of a hosts file; raises UsageError for what is none."""
    if len(data) > MAX_HOSTS_BYTES:
        raise UsageError(f"{source}: over 1 MiB; this is no hosts file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{source}: not text in UTF-8; is it a hosts file?") from None
    if "\0" in text:
        raise UsageError(f"{source}: binary data; is it a hosts file?")
    return text
