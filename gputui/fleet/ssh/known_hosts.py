"""Keys of servers in known_hosts files, as `ssh-keygen -F` finds them, and a new line for one."""

import base64
import errno
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gputui.process.child import run

BOUND_S = 10.0


class Marker(StrEnum):
    """A line's marker: how its key may be used."""

    TRUSTED = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key that a line has for a server."""

    marker: Marker
    kind: str
    """The key's type: `ssh-ed25519`."""
    blob: bytes
    """The public key as SSH sends it."""


async def find(paths: Iterable[str], name: str) -> list[Entry]:
    """Return the files' entries for a server, by its name as `known_name` writes it.

    Files that are not there are passed over, as by ssh. Raises ValueError or OSError where
    ssh-keygen fails: then a key must not count as unknown.
    """
    found: list[Entry] = []
    for path in paths:
        if Path(path).is_file() and os.access(path, os.R_OK):
            ended = await run(["ssh-keygen", "-F", name, "-f", path], BOUND_S)
            if ended.status not in (0, 1):
                said = "; ".join(ended.last_log_lines) or f"took more than {BOUND_S:g} s"
                raise ValueError(f"ssh-keygen -F {name} -f {path}: {said}")
            found += entries(ended.output)
    return found


def entries(output: str) -> Iterator[Entry]:
    """Yield the keys of known_hosts lines; those that cannot be read are passed over, as by ssh.

    >>> [entry.marker.name for entry in entries("# Host a found: line 1\\n@revoked * ssh-x QUJD")]
    ['REVOKED']
    """
    for line in output.splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not line.startswith("#") and marker in list(Marker):
            try:
                yield Entry(Marker(marker), words[1], base64.b64decode(words[2], validate=True))
            except ValueError:
                continue


def known_name(host: str, port: int) -> str:
    """Return a server as known_hosts writes it.

    >>> known_name("gpu-a", 22), known_name("gpu-a", 2222)
    ('gpu-a', '[gpu-a]:2222')
    """
    return host if port == 22 else f"[{host}]:{port}"


def hashed(name: str, salt: bytes) -> str:
    """Return a name as HashKnownHosts writes it."""
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def remember(path: str, names: Iterable[str], key: str, *, hash_names: bool) -> None:
    """Add a server's key to a file, as ssh does; raises OSError, and leaves no half a line."""
    if Path(path).parent.name == ".ssh":
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
    listed = [hashed(name, secrets.token_bytes(20)) for name in names] if hash_names else None
    lines = "".join(f"{each} {key}\n" for each in listed or [",".join(names)]).encode()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        if os.write(handle, lines) < len(lines):
            os.ftruncate(handle, size)  # half a key would be another key
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
