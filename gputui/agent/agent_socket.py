"""What an agent is on its host: a socket, a lock that it holds, and the command that starts
another; and what agents that were killed left of theirs.
"""

import contextlib
import fcntl
import hashlib
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from gputui.folders import runtime_folder
from gputui.process.procfs import is_locked, own_machine
from gputui.process.search_path import own_python


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
class AgentSocket:
    """Where one cluster's agent is on this host: a socket, and a lock next to it."""

    path: Path

    @classmethod
    def of(cls, cluster_id: str, host: str) -> "AgentSocket":
        """Return where a host's agent is; raises FolderError where no folder is usable."""
        name = hashlib.sha256(f"{cluster_id}\0{host}".encode()).hexdigest()[:16]
        return cls(runtime_folder() / f"agent-{name}.sock")

    def connect(self) -> socket.socket:
        """Return a connection to the agent; raises OSError where none listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
        except OSError:
            connection.close()
            raise
        return connection

    def hold(self) -> int | None:
        """Return the locked lock, a descriptor that an agent keeps open as long as it lives.

        None where one has it. A lock that was removed meanwhile does not count.
        """
        while True:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if os.fstat(descriptor).st_nlink:
                return descriptor
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
        for path in self.path.parent.glob("agent-*.held"):
            with contextlib.suppress(OSError):
                noted = _noted(path)
                if noted.cluster and noted.cluster_id != cluster_id and is_locked(path):
                    found.add(noted.cluster)
        return tuple(sorted(found))

    def sweep_others(self) -> None:
        """Remove what agents of this machine left that were killed, in this folder.

        It may be on NFS, where the locks of another machine's agents may not be seen.
        """
        for path in self.path.parent.glob("agent-*.held"):
            with contextlib.suppress(OSError):
                if _noted(path).machine == own_machine():
                    AgentSocket(path.with_suffix(".sock")).sweep()

    def sweep(self) -> bool:
        """Remove the socket and the lock, unless an agent has it; True when none does."""
        if (lock := self.hold()) is None:
            return False
        self.remove()
        os.close(lock)
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

    @property
    def _lock(self) -> Path:
        """Not `.lock`, which agents of earlier releases did not hold for long."""
        return self.path.with_suffix(".held")


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
