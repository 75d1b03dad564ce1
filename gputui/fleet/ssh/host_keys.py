"""Host keys as OpenSSH keeps them: what known_hosts says of a key, and adding one to it."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
SSH_PORT = 22


@dataclass(slots=True)
class HostKeys:
    """The files of one connection, and what the server showed when it was not in them."""

    user_files: tuple[Path, ...]
    system_files: tuple[Path, ...]
    known: bool = False
    """Whether the files have any key or authority for this server."""
    offered: asyncssh.SSHKey | None = None
    """The server's key, where the files do not have it."""
    name: str = field(default="")
    """The server as known_hosts writes it: `gpu-a`, `[gpu-a]:2222`."""

    @classmethod
    def of(cls, config: asyncssh.config.SSHConfig) -> "HostKeys":
        """Return the files that an SSH configuration names."""
        return cls(
            _paths(config.get("UserKnownHostsFile"), USER_FILES),
            _paths(config.get("GlobalKnownHostsFile"), SYSTEM_FILES),
        )

    def match(self, host: str, address: str, port: int | None) -> Sequence[object]:
        """Return what the files have for a server, as asyncssh wants it."""
        self.name = known_name(host, port)
        entries = asyncssh.SSHKnownHosts()
        for line in _lines((*self.user_files, *self.system_files)):
            # OpenSSH passes over a line that it cannot read; asyncssh 2.24 raises ValueError.
            with contextlib.suppress(ValueError):
                entries.load(line)
        found = entries.match(host, address, port)
        self.known = bool(found[0] or found[1])
        return found

    def remember(self) -> None:
        """Write the offered key into the first user file, as ssh does; raises OSError."""
        assert self.offered
        path = self.user_files[0]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = self.offered.export_public_key().decode().split()[:2]
        line = " ".join((self.name, *key)) + "\n"
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "rb+") as file:
            if file.seek(0, os.SEEK_END) and _last_byte(file.fileno()) != b"\n":
                line = "\n" + line
            os.write(file.fileno(), line.encode())

    def fingerprint(self) -> str:
        """Return the offered key's kind and fingerprint: `ED25519 SHA256:…`."""
        assert self.offered
        kind = self.offered.get_algorithm().removeprefix("ssh-").removeprefix("ecdsa-sha2-")
        return f"{kind.upper()} {self.offered.get_fingerprint()}"


def known_name(host: str, port: int | None) -> str:
    """Return a server as known_hosts writes it.

    >>> known_name("gpu-a", None), known_name("gpu-a", 2222)
    ('gpu-a', '[gpu-a]:2222')
    """
    return host if port in (None, SSH_PORT) else f"[{host}]:{port}"


def _paths(configured: object, default: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of an option; `none` and nothing mean what they mean to ssh."""
    names = configured if isinstance(configured, list) else list(default)
    return tuple(Path(name).expanduser() for name in names if name.lower() != "none")


def _lines(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def _last_byte(handle: int) -> bytes:
    return os.pread(handle, 1, os.fstat(handle).st_size - 1)
