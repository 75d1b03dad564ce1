"""Connection files: which clusters run here, one file in the runtime folder for each.

A head writes its file and holds a lock on it as long as it lives; a look at them sweeps those
that no head holds, with what their clusters left. Looks and starts take turns, by a lock on the
folder, so that a look never holds the name that a start asks for. Nothing secret is in the files:
the TLS material goes over the socket. A field that another version writes is passed over.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from gputui.errors import HeadError, UsageError
from gputui.folders import locked_file, runtime_folder, scheduler_scratch_folder
from gputui.model.bounds import LAST_MOMENT
from gputui.model.frozen import frozen
from gputui.protocol.codec import hints_of, inward
from gputui.protocol.shared import RunningCluster
from gputui.version import __version__

MAX_NAME_BYTES = 100
ROOM_BYTES = 8192
"""The size reserved for a file, so that a full disk does not truncate it later."""


@frozen
class ConnectionFile(RunningCluster):
    """A running cluster, as its connection file describes it."""

    socket: str
    """The path of its server; "" before that is open."""
    version: str
    hosts_digest: str = field(default="", kw_only=True)
    """Of the text that its hosts were started from; "" where an older release started it."""


def digest_of(hosts_text: str) -> str:
    """Return the digest of a text of hosts, in whatever way it is spaced.

    >>> digest_of("a;b") == digest_of(" a ; b") != digest_of("a; c")
    True
    """
    text = " ".join(hosts_text.replace(";", " ; ").split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class NameLock:
    """A cluster's name, held by a lock until `release` or the end of this process.

    `numbered` takes `NAME-2`, `NAME-3` and so on where the name is in use. What dead clusters left
    is swept. Raises HeadError when a running cluster has it, UsageError when it cannot name one.
    """

    def __init__(self, name: str, cluster_id: str, *, numbered: bool = False) -> None:
        folder = runtime_folder()
        names = [check_name(name), *(f"{name}-{number}" for number in range(2, 1000) if numbered)]
        with _turn(folder):
            _sweep(folder)
            self.name, self._path, self._descriptor = _first_free(folder, names)
        # What is to be swept should this process be killed before it says more.
        started = ConnectionFile(self.name, cluster_id, os.getpid(), time.time(), "", __version__)
        try:
            self.publish(started)
        except HeadError:
            self.release()
            raise

    def publish(self, connection_file: ConnectionFile) -> None:
        """Write the connection file; raises HeadError where the disk does not take it."""
        data = json.dumps(asdict(connection_file)).encode().ljust(ROOM_BYTES)
        try:
            if os.pwrite(self._descriptor, data, 0) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._descriptor, len(data))
        except OSError as error:
            raise HeadError(f"{self._path}: {error.strerror}") from error

    def release(self) -> None:
        """Remove the connection file, and release the name."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def running_clusters() -> tuple[ConnectionFile, ...]:
    """Return the clusters of this user on this machine by name, and sweep what dead ones left."""
    folder = runtime_folder()
    with _turn(folder):
        running = _sweep(folder)
    return tuple(sorted(running, key=lambda each: each.name))


def find_cluster(name: str) -> ConnectionFile | None:
    """Return the running cluster of this name."""
    return next((each for each in running_clusters() if each.name == name), None)


def chosen(found: Sequence[ConnectionFile], name: str | None, there: str = "") -> ConnectionFile:
    """Return the cluster of a name, the only one without a name; raises UsageError.

    `there` is the machine that runs them, "" for this one.
    """
    running = {cluster.name: cluster for cluster in reversed(found)}
    if not name and len(running) == 1:
        return found[0]
    if name in running:
        return running[name]
    on, example = (f" on {there}", f"{there}:NAME") if there else (" here", "NAME")
    listed = f"running{on}: {', '.join(running)}" if running else f"none runs{on}"
    if name:
        hint = "" if there else f"\n  one on the machine {name} is {name}:NAME"
        raise UsageError(f"no cluster is called {name!r}; {listed}{hint}")
    none = f"no cluster runs{on}; gputui up HOSTS starts one"
    raise UsageError(f"say which cluster, {example}; {listed}" if running else none)


def parse(said: Any) -> ConnectionFile | None:
    """Parse a connection file of any version; return None for any other content."""
    known = hints_of(ConnectionFile)
    try:
        found: ConnectionFile = inward(
            {name: value for name, value in said.items() if name in known}, ConnectionFile
        )
    except (AttributeError, TypeError):
        return None
    return found if 0 <= found.started_at <= LAST_MOMENT else None


def check_name(name: str) -> str:
    """Return a cluster's name; raises UsageError where it cannot name a file.

    >>> check_name("gpu hosts")
    'gpu hosts'
    >>> check_name("../x")
    Traceback (most recent call last):
    gputui.errors.UsageError: '../x' cannot name a cluster: no slash, no control character, \
at most 100 bytes, and no dot or dash in front
    """
    bad = not name or name.startswith((".", "-")) or re.search(r"[/\x00-\x1f\x7f]", name)
    if bad or len(name.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
        raise UsageError(
            f"{name!r} cannot name a cluster: no slash, no control character, "
            f"at most {MAX_NAME_BYTES} bytes, and no dot or dash in front"
        )
    return name


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold the lock for looking up and starting clusters."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> list[ConnectionFile]:
    """Return the running clusters, and remove files of ended ones."""
    running = []
    for path in folder.glob("*.json"):
        found = _read(path)
        descriptor = _open_locked(path)
        if descriptor is None:
            running += [replace(found, name=path.stem)] if found and found.socket else []
            continue
        if found is not None:
            (folder / f"{found.cluster_id}.sock").unlink(missing_ok=True)
            shutil.rmtree(scheduler_scratch_folder(found.cluster_id), ignore_errors=True)
        path.unlink(missing_ok=True)
        os.close(descriptor)
    return running


def _read(path: Path) -> ConnectionFile | None:
    """Read a connection file of any version; return None while its head is writing it."""
    try:
        return parse(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None


def _first_free(folder: Path, names: list[str]) -> tuple[str, Path, int]:
    """Return (name, its file, a descriptor that locks it); raises HeadError where all are taken."""
    for name in names:
        path = folder / f"{name}.json"
        descriptor = _open_locked(path)
        if descriptor is not None:
            return name, path, descriptor
    raise HeadError(
        f"a cluster named {names[0]!r} runs already; attach to it with gputui attach, in Python "
        f"with gputui.connect({names[0]!r}), or give another one with --name"
    )


def _open_locked(path: Path) -> int | None:
    """Return a descriptor that locks the file at this path; None where another process does."""
    try:
        return locked_file(path)
    except OSError as error:
        raise HeadError(f"{path}: {error.strerror}") from error
