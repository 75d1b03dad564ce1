"""An agent's place on its host: a socket, a lock, and the command that starts another."""

import contextlib
import fcntl
import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gputui.folders import runtime_folder
from gputui.process.procfs import own_machine
from gputui.process.search_path import own_python

SERVED_S = 0.2
"""An agent that keeps a connection for so long lives."""


def touch_pack() -> None:
    """Have no other agent sweep the pack that this one runs from."""
    packed = __file__.partition(".pyz")
    if packed[1]:
        os.utime(packed[0] + packed[1])


def own_command() -> list[str]:
    """Return the command that starts this very agent, packed or installed."""
    packed = __file__.partition(".pyz")
    if packed[1]:
        return [sys.executable, packed[0] + packed[1]]
    return own_python("gputui.agent")


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """The place of one cluster's agent on this host: a socket, and a lock next to it."""

    path: Path

    @classmethod
    def of(cls, cluster_id: str, host: str) -> "AgentPlace":
        """Return the place of a host's agent; raises FolderError where no folder is usable."""
        name = hashlib.sha256(f"{cluster_id}\0{host}".encode()).hexdigest()[:16]
        return cls(runtime_folder() / f"agent-{name}.sock")

    def connect(self, *, wait: bool = True) -> socket.socket | None:
        """Return a connection to the agent; None where none listens.

        Without `wait`, raises BlockingIOError where more wait than a stopped agent has room for.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(wait)
        try:
            connection.connect(str(self.path))
        except OSError as error:
            connection.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                return None
            raise
        return connection

    @contextlib.contextmanager
    def alone(self, *, wait: bool = True) -> Iterator[int]:
        """Hold the lock, a descriptor, under which an agent is looked for and started.

        Without `wait`, raises BlockingIOError where another process holds it.
        """
        descriptor = self._locked(wait=wait)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def listen(self) -> socket.socket:
        """Return a listening socket, 0600, in place of any that an agent left behind."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(self.path))
        finally:
            os.umask(before)
        listener.listen(8)
        return listener

    def note(self, lock: int, cluster_id: str, cluster: str) -> None:
        """Note in the lock whose agent this is, for `others`."""
        with contextlib.suppress(OSError):  # a full disk: others only miss a warning
            os.pwrite(lock, f"{cluster_id}\n{cluster}\n{own_machine()}".encode(), 0)

    def others(self, cluster_id: str) -> tuple[str, ...]:
        """Return the names of this user's other clusters that have an agent on this host."""
        found = set()
        for path in self.path.parent.glob("agent-*.lock"):
            with contextlib.suppress(OSError):
                noted, other = _noted(path), AgentPlace(path.with_suffix(".sock"))
                if noted.cluster and noted.cluster_id != cluster_id and other._listens():
                    found.add(noted.cluster)
        return tuple(sorted(found))

    def sweep_others(self) -> None:
        """Remove what agents of this machine left that were killed, in this folder.

        It may be on NFS, where the socket of another machine's agent answers nobody here.
        """
        for path in self.path.parent.glob("agent-*.lock"):
            other = AgentPlace(path.with_suffix(".sock"))
            with contextlib.suppress(OSError):  # BlockingIOError, too: an agent is there
                here = _noted(path).machine == own_machine()
                if here and other != self and not other._listens():
                    other.sweep(wait=False)

    def sweep(self, *, wait: bool = True) -> bool:
        """Remove the socket and the lock, unless an agent listens there; True when none does.

        Without `wait`, raises BlockingIOError where another process looks for that agent.
        """
        with self.alone(wait=wait):
            if self._is_served():
                return False
            self.remove()
            return True

    def remove(self) -> None:
        """Remove the socket, the lock and what workers take turns by; under the lock."""
        self.path.unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)
        for turn in self.path.parent.glob(f"{self.turn.name}*"):
            turn.unlink(missing_ok=True)

    @property
    def turn(self) -> Path:
        """The file, and the beginning of others, by which the workers of a host take turns.

        It is locked: in the folder of workers, which may be on NFS, there may be no locks.
        """
        return self.path.with_suffix(".turn")

    def _listens(self) -> bool:
        """Return whether an agent is there, without waiting for it."""
        try:
            connection = self.connect(wait=False)
        except BlockingIOError:
            return True
        if connection is not None:
            connection.close()
        return connection is not None

    def _is_served(self) -> bool:
        """Return whether an agent listens: one that has just ended may take a connection yet."""
        connection = self.connect()
        if connection is None:
            return False
        with connection:
            connection.settimeout(SERVED_S)
            try:
                return bool(connection.recv(1))
            except TimeoutError:
                return True
            except ConnectionError:
                return False

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def _locked(self, *, wait: bool) -> int:
        """Return the lock's descriptor; a lock that was removed while we waited does not count."""
        while True:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                raise
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Noted:
    """The content of an agent's lock; "" for a field that it does not have."""

    cluster_id: str
    cluster: str
    machine: str


def _noted(lock: Path) -> Noted:
    """Read a lock's file; raises OSError."""
    lines = lock.read_text(errors="replace").split("\n")
    return Noted(*[*lines, "", "", ""][:3])
