"""What an agent has on its host: a socket, a lock that it holds, a scratch folder with its log.

Also the command that starts another agent, and the removal of what killed agents left.
"""

import contextlib
import fcntl
import hashlib
import os
import socket
import sys
from pathlib import Path

from gputui.folders import (
    SCRATCH_PREFIX,
    locked_file,
    read_own_file,
    remove_folder,
    runtime_folder,
)
from gputui.model.frozen import frozen
from gputui.process.procfs import is_locked, own_machine
from gputui.process.search_path import own_python

OWNER = "owner"
LOG = "agent.log"
LOG_BYTES = 1_000_000
"""A log that holds so much begins again."""
TAIL_LINES = 20

_packed = __file__.partition(".pyz")
PACK = Path(_packed[0] + _packed[1]) if _packed[1] else None
"""The zipapp that this agent runs from."""


def own_command(*options: str) -> list[str]:
    """Return the command that starts this very agent; packed, with options of Python."""
    return [sys.executable, *options, str(PACK)] if PACK else own_python("gputui.agent")


@frozen
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

        None where one has it.
        """
        return locked_file(self._lock)

    def wait(self) -> None:
        """Return once no agent has the lock."""
        with contextlib.suppress(FileNotFoundError), self._lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)

    def listen(self) -> socket.socket:
        """Return a listening socket, 0600, in place of any that an agent left behind."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        self.path.chmod(0o600)  # its folder is this user's alone
        listener.listen(8)
        return listener

    def note(self, lock: int) -> None:
        """Note in the lock on which machine this agent is, for `sweep_others`."""
        with contextlib.suppress(OSError):  # a full disk: it is not swept
            os.pwrite(lock, own_machine().encode(), 0)

    def sweep_others(self) -> None:
        """Remove what agents of this machine left that were killed, in this folder.

        It may be on NFS, where the locks of another machine's agents may not be seen.
        """
        for lock in self.path.parent.glob("agent-*.held"):
            with contextlib.suppress(OSError):
                if lock.read_text(errors="replace") == own_machine():
                    AgentSocket(lock.with_suffix(".sock")).sweep()

    def sweep(self) -> bool:
        """Remove the socket and the lock, unless an agent has it; True when none does."""
        if (lock := self.hold()) is None:
            return False
        self.remove()
        os.close(lock)
        return True

    def remove(self) -> None:
        """Remove the socket, the lock and what workers take turns by; under the lock."""
        for path in (self.path, self._lock, self.turn):
            path.unlink(missing_ok=True)

    @property
    def turn(self) -> Path:
        """The file by which the workers of a host make their CUDA contexts in turn.

        It is locked: in the folder of workers, which may be on NFS, there may be no locks.
        """
        return self.path.with_suffix(".turn")

    @property
    def _lock(self) -> Path:
        """Not `.lock`, which agents of earlier releases did not hold for long."""
        return self.path.with_suffix(".held")


def own_scratch(scratch: Path) -> None:
    """Lock a note in the folder, for as long as this process lives, for `sweep_scratch`.

    A folder without a note is never swept: the disk is full, or its file system has no locks.
    """
    with contextlib.suppress(OSError):
        if (owner := locked_file(scratch / OWNER)) is not None:
            os.write(owner, own_machine().encode())


def sweep_scratch(parent: Path) -> None:
    """Remove the folders of this user's agents that are gone: killed, or when the power was.

    What workers spilled lies there. Folders of another machine's agents, whose locks may not be
    seen here, are left alone.
    """
    for folder in parent.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            note = folder / OWNER
            own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if own and read_own_file(note) == own_machine().encode() and not is_locked(note):
                remove_folder(folder)


def begin_log(scratch: Path) -> None:
    """Have what this process and its libraries write to stderr go to a file; raises OSError."""
    (scratch / LOG).touch(0o600)
    with (scratch / LOG).open("ab") as log:
        os.dup2(log.fileno(), 2)


def keep_log_small() -> None:
    """Empty the log when it is full."""
    if os.fstat(2).st_size >= LOG_BYTES:
        os.ftruncate(2, 0)


def log_tail(scratch: Path) -> tuple[str, ...]:
    """Return the last lines of the log; none where they cannot be read."""
    with contextlib.suppress(OSError):
        return tuple((scratch / LOG).read_text(errors="replace").splitlines()[-TAIL_LINES:])
    return ()
