"""ConnectionFile files: which clusters run here, one file in the runtime folder for each.

A head writes its file and holds a lock on it as long as it lives; whoever looks sweeps the files
that nobody holds. Nothing secret is in them: the TLS material goes over the socket.
"""

import fcntl
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gputui.errors import HeadError, UsageError
from gputui.folders import runtime_folder, scheduler_scratch_folder

MAX_NAME_BYTES = 100


@dataclass(frozen=True, slots=True)
class ConnectionFile:
    """A running cluster, as its connection file describes it."""

    name: str
    cluster_id: str
    pid: int
    socket: str
    started_at: float
    version: str
    hosts_source: str = ""
    """The absolute path of its hosts file, or ""."""
    address: str = ""
    """`tls://host:port` of the scheduler, "" before it listens."""


class NameLock:
    """A cluster's name, held by a lock until `release` or the end of this process.

    `numbered` takes `NAME-2`, `NAME-3` and so on where the name is in use. What dead clusters left
    is swept. Raises HeadError when a running cluster has it, UsageError when it is none.
    """

    def __init__(self, name: str, *, numbered: bool = False) -> None:
        folder = runtime_folder()
        _sweep(folder)
        names = [check_name(name), *(f"{name}-{number}" for number in range(2, 1000) if numbered)]
        for self.name in names:
            self._path = folder / f"{self.name}.json"
            self._descriptor = _lock(self._path)
            if self._descriptor is not None:
                return
        raise HeadError(
            f"a cluster named {name!r} runs already; attach to it, or give another --name"
        )

    def publish(self, connection_file: ConnectionFile) -> None:
        """Write the connection file; raises HeadError where the disk does not take it."""
        assert self._descriptor is not None
        data = json.dumps(asdict(connection_file)).encode()
        try:
            os.pwrite(self._descriptor, data, 0)
            os.ftruncate(self._descriptor, len(data))
        except OSError as error:
            raise HeadError(f"{self._path}: {error.strerror}") from error

    def release(self) -> None:
        """Remove the connection file, and let the name go."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def running_clusters() -> tuple[ConnectionFile, ...]:
    """Return the clusters of this user on this machine by name, and sweep what dead ones left."""
    return tuple(sorted(_sweep(runtime_folder()), key=lambda connection_file: connection_file.name))


def find_cluster(name: str) -> ConnectionFile | None:
    """Return the running cluster of this name."""
    return next(
        (connection_file for connection_file in running_clusters() if connection_file.name == name),
        None,
    )


def check_name(name: str) -> str:
    """Return a cluster's name; raises UsageError where it cannot name a file.

    >>> check_name("gpu hosts")
    'gpu hosts'
    >>> check_name("../x")
    Traceback (most recent call last):
    gputui.errors.UsageError: '../x' cannot name a cluster: no slash, no control character, \
at most 100 bytes, and no dot in front
    """
    bad = not name or name.startswith(".") or re.search(r"[/\x00-\x1f\x7f]", name)
    if bad or len(name.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
        raise UsageError(
            f"{name!r} cannot name a cluster: no slash, no control character, "
            f"at most {MAX_NAME_BYTES} bytes, and no dot in front"
        )
    return name


def _sweep(folder: Path) -> list[ConnectionFile]:
    """Return the contacts of those that run, and remove what the others left."""
    running = []
    for path in folder.glob("*.json"):
        connection_file = _read(path)
        descriptor = _lock(path)
        if descriptor is None:
            running += [replace(connection_file, name=path.stem)] if connection_file else []
            continue
        if connection_file is not None:
            Path(connection_file.socket).unlink(missing_ok=True)
            shutil.rmtree(scheduler_scratch_folder(connection_file.cluster_id), ignore_errors=True)
        path.unlink(missing_ok=True)
        os.close(descriptor)
    return running


def _read(path: Path) -> ConnectionFile | None:
    """Return what a connection file says; None where its head is just writing it, or ended."""
    try:
        return ConnectionFile(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _lock(path: Path) -> int | None:
    """Return a descriptor that locks the file at this path; None where another process does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
        os.close(descriptor)  # it was swept between the opening and the lock
