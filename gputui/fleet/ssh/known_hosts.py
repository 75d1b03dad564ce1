"""The lines of known_hosts files, and which keys they have for a server. Source: sshd(8). Pure."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Line:
    """A line, taken apart: all hosts of a fleet are looked up in the same ones."""

    marker: Marker
    patterns: str
    """Which servers it is about."""
    kind: str
    encoded: str


def parse(lines: Iterable[str]) -> tuple[Line, ...]:
    """Return the lines that can be read; others are passed over, as ssh does."""
    found = []
    for line in lines:
        words = line.split()
        marker = Marker.TRUSTED
        if words and words[0].startswith("@"):
            try:
                marker = Marker(words.pop(0))
            except ValueError:
                continue
        if len(words) >= 3 and not words[0].startswith("#"):
            found.append(Line(marker, *words[:3]))
    return tuple(found)


def entries(lines: Iterable[Line], name: str) -> Iterator[Entry]:
    """Yield what lines have for a server, by its name as `known_name` writes it.

    >>> key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"
    >>> lines = parse([f"gpu-*,!gpu-c {key}", f"@revoked * {key}", "@unknown * x y"])
    >>> [entry.marker for entry in entries(lines, "gpu-a")]
    [<Marker.TRUSTED: ''>, <Marker.REVOKED: '@revoked'>]
    """
    name = name.lower()
    for line in lines:
        if _is_about(line.patterns, name) and (blob := _decoded(line.encoded)):
            yield Entry(line.marker, line.kind, blob)


def known_name(host: str, port: int) -> str:
    """Return a server as known_hosts writes it.

    >>> known_name("gpu-a", 22), known_name("gpu-a", 2222)
    ('gpu-a', '[gpu-a]:2222')
    """
    return host if port == 22 else f"[{host}]:{port}"


def hashed(name: str, salt: bytes) -> str:
    """Return a name as HashKnownHosts writes it.

    >>> _is_about(hashed("gpu-a", b"salt"), "gpu-a"), _is_about(hashed("gpu-a", b"salt"), "gpu-b")
    (True, False)
    """
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _is_about(patterns: str, name: str) -> bool:
    """Return whether the first field of a line means a server."""
    if patterns.startswith("|"):
        salt = _decoded(patterns.split("|")[2]) if patterns.count("|") == 3 else b""
        return bool(salt) and hashed(name, salt) == patterns
    if not any(each in patterns for each in "*?!"):
        return name in patterns.lower().split(",")
    found = False
    for pattern in patterns.lower().split(","):
        if _matches(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _matches(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in pattern)
    return re.fullmatch("".join(parts), name) is not None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
