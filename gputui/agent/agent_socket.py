"""What an agent is on its host: a socket with a lock next to it, a folder, and the command that
starts another; and what agents that were killed left of theirs.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputui.folders import SCRATCH_PREFIX, read_own_file, runtime_folder, write_whole
from gputui.process.procfs import own_machine, own_place, process_stat
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
class AgentSocket:
    """Where one cluster's agent is on this host: a socket, and a lock next to it."""

    path: Path

    @classmethod
    def of(cls, cluster_id: str, host: str) -> "AgentSocket":
        """Return where a host's agent is; raises FolderError where no folder is usable."""
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
                noted, other = _noted(path), AgentSocket(path.with_suffix(".sock"))
                if noted.cluster and noted.cluster_id != cluster_id and other._listens():
                    found.add(noted.cluster)
        return tuple(sorted(found))

    def sweep_others(self) -> None:
        """Remove what agents of this machine left that were killed, in this folder.

        It may be on NFS, where the socket of another machine's agent answers nobody here.
        """
        for path in self.path.parent.glob("agent-*.lock"):
            other = AgentSocket(path.with_suffix(".sock"))
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


OWNER = "owner.json"


def own_scratch(scratch: Path) -> None:
    """Note in the folder that it is this process's, for `sweep_scratch`.

    A folder without a note is never swept: the disk is full, or /proc is not of this namespace.
    """
    pid = os.getpid()
    with contextlib.suppress(OSError):
        if (stat := process_stat(pid)) is not None:
            owner = {**asdict(own_place()), "machine": own_machine()}
            owner |= {"pid": pid, "ticks": stat.start_ticks}
            write_whole(scratch / OWNER, json.dumps(owner).encode())


def sweep_scratch(parent: Path) -> None:
    """Remove the folders of this user's agents that are gone: killed, or when the power was.

    What workers spilled lies there. Folders that may be of another machine's agents, or of another
    container's, are left alone: a pid means nothing there.
    """
    for folder in parent.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            own_dir = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if own_dir and _is_left(json.loads(read_own_file(folder / OWNER))):
                shutil.rmtree(folder)


def _is_left(owner: dict[str, Any]) -> bool:
    """Return whether an owner has ended: with its machine's last boot, or as a process here."""
    here = own_place()
    if owner["machine"] != own_machine():
        return False
    if owner["boot"] != here.boot:
        return True
    if owner["pids"] != here.pids:
        return False
    if (stat := process_stat(owner["pid"])) is not None:
        return bool(stat.start_ticks != owner["ticks"])
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    return False  # there, and hidden
