"""Whoever starts a thing keeps it alive: death signals, process groups, private folders."""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, ends.

    Called in the main thread, right after the fork. Ends this process if the parent is gone.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def kill_group(group: int) -> None:
    """Kill every process of a group; nothing if there is none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def own_command() -> list[str]:
    """Return the command that starts this very agent, packed or installed."""
    packed = __file__.partition(".pyz")
    if packed[1]:
        return [sys.executable, packed[0] + packed[1]]
    return [sys.executable, "-m", "gputui.agent"]


def runtime_folder() -> Path:
    """Return this user's folder for sockets, 0700; raises OSError where it cannot be had."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = Path(tempfile.gettempdir()) / f"gputui-{os.getuid()}"
    candidates = [Path(runtime) / "gputui"] * bool(runtime and len(runtime) < 60) + [own]
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            folder.chmod(0o700)
            return folder
    raise OSError(f"no folder for sockets: neither XDG_RUNTIME_DIR nor {own} can be used")


class Place:
    """Where the agent of one host of one cluster is found: a socket, and a lock beside it."""

    def __init__(self, cluster_id: str, host: str) -> None:
        name = hashlib.sha256(f"{cluster_id}\0{host}".encode()).hexdigest()[:16]
        folder = runtime_folder()
        self.socket = folder / f"agent-{name}.sock"
        self._lock = folder / f"agent-{name}.lock"

    def connect(self) -> socket.socket | None:
        """Return a connection to the agent; None where there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        return connection

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Hold the lock, a descriptor, under which an agent is looked for and started."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def listen(self) -> socket.socket:
        """Return a listening socket, 0600, in place of any that an agent left behind."""
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(self.socket))
        finally:
            os.umask(before)
        listener.listen(8)
        return listener

    def remove(self) -> None:
        """Remove the socket and the lock."""
        self.socket.unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)
