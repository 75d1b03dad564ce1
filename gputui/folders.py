"""The folders that gputui keeps files in: runtime, cache and scratch, for every process.

Each is this user's own. A folder that exists is opened without following a link, and its owner and
mode are checked on the open descriptor, so that nobody can swap it in between. Where one cannot be
used, the next is tried; when none can, the error names each with its reason.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path

from gputui.errors import FolderError

MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""Source: unix(7), and unix(4) of macOS, without the NUL at the end."""

LONGEST_SOCKET_NAME = "/agent-0123456789abcdef.sock"

DRAFT_S = 3600.0
"""A draft of a file that is older was left by a process that was killed."""


def runtime_folder() -> Path:
    """Return this user's folder for sockets, locks and connection files.

    Where others hold the usual names, it is `/tmp/gputui-UID-…`, made once and found again. Raises
    FolderError where there is no usable one.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    short = Path("/tmp") / _temporary().name
    usual = [runtime / "gputui"] * runtime.is_absolute() + [_temporary(), short]
    problems = []
    for path in (*usual, *_replacements(short)):
        try:
            return _for_sockets(path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    try:
        made = Path(tempfile.mkdtemp(prefix=f"{short.name}-", dir=short.parent))
    except OSError as error:
        problems.append(f"{short}-…: {error.strerror}")
        raise FolderError(f"no folder can be used: {'; '.join(problems)}") from error
    first = _replacements(short)[0]
    if first != made:  # another process was quicker
        made.rmdir()
    print(f"gputui: {problems[-1]}; {first} is used instead", file=sys.stderr)
    return first


def cache_folders() -> tuple[Path, ...]:
    """Return the folders for packed agents, the user's cache first; not made and not checked.

    `fleet/deploy/loader.py`, which runs on a host before anything of gputui is there, has the same.
    """
    return _base("XDG_CACHE_HOME", "~/.cache") / "gputui", _temporary()


def state_folder() -> Path:
    """Return the folder of records, logs and a person's choices: $XDG_STATE_HOME/gputui."""
    return _base("XDG_STATE_HOME", "~/.local/state") / "gputui"


def runs_dir() -> Path:
    """Return the folder of all records."""
    return state_folder() / "runs"


SCRATCH_PREFIX = "gputui-"


def make_scratch_folder(parent: str | None) -> Path:
    """Make a new folder for what an agent and its workers write, in `parent` or the usual place.

    Raises OSError.
    """
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent))


def scheduler_scratch_folder(cluster_id: str) -> Path:
    """Return where a cluster's scheduler keeps what clients upload; it is made when one does.

    Source: distributed 2026.8 wants these words in the name of such a folder.
    """
    return runtime_folder() / f"{cluster_id}.dask-scratch-space"


def own_folder(path: Path, *, parents: bool = True) -> Path:
    """Make a folder that only this user may enter, or check that it is one.

    Raises OSError for a link, for another user's folder, and where it cannot be made.
    """
    path.mkdir(mode=0o700, parents=parents, exist_ok=True)
    # With O_NOFOLLOW a link is "Not a directory".
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            raise OSError(0, f"it belongs to user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return path


def read_own_file(path: Path) -> bytes:
    """Read a file, and note that it was used.

    Raises OSError for a link, and for a file that another user has or may write.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise OSError(0, f"{path} is not a file of this user")
        if status.st_mode & 0o022:
            raise OSError(0, f"{path} may be written by others")
        os.utime(file.fileno())
        return file.read()


def locked_file(path: Path) -> int | None:
    """Open a file, 0600, and lock it with flock(2); return the descriptor that holds the lock.

    None where another process holds it. A file that was removed meanwhile does not count. Raises
    OSError.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder, as far as that is possible; also what its owner made read-only."""
    for root, names, _ in os.walk(folder):
        for inner in (Path(root, name) for name in names):
            with contextlib.suppress(OSError):
                if not inner.is_symlink():
                    inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(folder: Path, pattern: str, kept_s: float) -> None:
    """Remove the files of a pattern that nothing has written or read for so long."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > kept_s:
                path.unlink()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, 0600, in place of the one that is there; raises OSError, and leaves that one.

    A reader sees one or the other as a whole, after a loss of power too.
    """
    prefix = f".{path.name}."
    sweep(path.parent, f"{glob.escape(prefix)}*", DRAFT_S)
    descriptor, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)  # else the new name may outlive what was written
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _base(variable: str, usual: str) -> Path:
    """Return a base folder of this user; a relative path is ignored.

    Source: XDG Base Directory Specification.
    """
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path(usual).expanduser()


def _temporary() -> Path:
    """Return this user's folder in TMPDIR, or in /tmp."""
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"gputui-{os.getuid()}"


def _for_sockets(path: Path) -> Path:
    """Return a folder whose sockets have paths that the kernel takes; raises OSError."""
    if len(os.fsencode(path)) + len(LONGEST_SOCKET_NAME) > MAX_SOCKET_PATH_BYTES:
        raise OSError(0, "its path is too long for a socket")
    return own_folder(path, parents=False)


def _replacements(usual: Path) -> list[Path]:
    """Return the folders of this user that stand in for one that another user holds."""
    found = []
    for path in sorted(usual.parent.glob(f"{glob.escape(usual.name)}-*")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                found.append(path)
    return found
