"""A disk that fills up, or loses its power, at the n-th thing that is asked of it.

Every call that takes room under some folders is counted: opening a file that is new, writing,
syncing, setting room aside, renaming, making a folder. Up to `fails_at` they are the real ones.
"""

import errno
import io
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CALLS = ("open", "write", "pwrite", "fsync", "posix_fallocate", "rename", "replace", "mkdir")


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Have the kernel refuse longer files, to what writes past Python, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class PowerLostError(BaseException):
    """The machine is off; what was not synced is gone."""


class Disk:
    """What is asked of the disk of some folders from now on, until the test ends."""

    def __init__(self, patch: pytest.MonkeyPatch, *folders: Path) -> None:
        self.fails_at: int | None = None
        """The number of the first call that fails; None for a disk with room."""
        self.stays_full = False
        """Whether all later calls fail, too."""
        self.loses_power = False
        self.calls: list[str] = []
        self._folders = folders
        self._unsynced: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in CALLS}
        self._io_open = io.open
        for name in CALLS:
            patch.setattr(os, name, getattr(self, f"_{name}", None) or self._by_path(name))
        patch.setattr("io.open", self._open_file)
        patch.setattr("builtins.open", self._open_file)

    def fail_at(self, number: int | None, *, stays_full: bool = False, power: bool = False) -> None:
        self.fails_at, self.stays_full, self.loses_power = number, stays_full, power
        self.calls.clear()

    def lose_unsynced(self) -> None:
        """Empty the files whose data the disk had not been made to take."""
        for inode in list(self._unsynced):
            for folder, _, names in itertools.chain(*map(os.walk, self._folders)):
                for path in (Path(folder, name) for name in names):
                    if path.lstat().st_ino == inode:
                        os.truncate(path, 0)
        self._unsynced.clear()

    def takes(self, call: str) -> bool:
        """Count a call; False where the disk is full, PowerLostError where it is off."""
        number = len(self.calls)
        self.calls.append(call)
        at = self.fails_at
        if at is None or not (number == at or (number > at and self.stays_full)):
            return True
        if self.loses_power:
            raise PowerLostError(call)
        return False

    def _ask(self, call: str) -> None:
        if not self.takes(call):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _holds(self, path: Any) -> bool:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        return any(map(Path(path).absolute().is_relative_to, self._folders))

    def _by_path(self, name: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            if self._holds(path):
                self._ask(name)
            return self._real[name](path, *args, **more)

        return call

    def _open(self, path: Any, flags: int, *args: Any, **more: Any) -> int:
        new = flags & os.O_CREAT and not os.path.lexists(path)
        if new and self._holds(path):
            self._ask("open")
        return int(self._real["open"](path, flags, *args, **more))

    def _write(self, descriptor: int, data: Any) -> int:
        """Write half of what does not fit, as the kernel does, then nothing."""
        if self._holds(descriptor):
            data = memoryview(data)
            self._unsynced[os.fstat(descriptor).st_ino] = ""
            if not self.takes("write"):
                data = data[: len(data) // 2]
                if not data or (self.stays_full and len(self.calls) - 1 > (self.fails_at or 0)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._real["write"](descriptor, data))

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        if self._holds(descriptor) and not self.takes("pwrite"):
            data = data[: len(data) // 2]
        return int(self._real["pwrite"](descriptor, data, offset))

    def _fsync(self, descriptor: int) -> None:
        if self._holds(descriptor):
            self._ask("fsync")
            self._unsynced.pop(os.fstat(descriptor).st_ino, None)
        self._real["fsync"](descriptor)

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        """Open a file whose writes go through `os.write`."""
        if not set(mode) & set("wax+") or not self._holds(file):
            return self._io_open(file, mode, *args, **more)
        if not isinstance(file, int) and set(mode) & set("wax") and not os.path.lexists(file):
            self._ask("open")
        raw = _Raw(file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, more.get("encoding") or "utf-8", more.get("errors"))


class _Raw(io.FileIO):
    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)
