"""The log of a process that has no terminal: a file that its stderr goes to, which stays small."""

import asyncio
import os
import time
from pathlib import Path

FILE_BYTES = 1_000_000
FILE_S = 7 * 86400.0
"""A file holds so much, and so long, at most; the one before is kept as `.1`."""
LOOK_S = 1.0
TAIL_LINES = 20
LINE_BYTES = 4000


class StderrLog:
    """A file, 0600, that whatever this process and its libraries write to stderr goes to."""

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES, file_s: float = FILE_S) -> None:
        """Begin the file; raises OSError."""
        self.path = path
        self._file_bytes = file_bytes
        self._file_s = file_s
        self._begin()

    async def keep_small(self) -> None:
        """Begin a new file whenever this one is full or old; raises OSError, and stays with it."""
        while True:
            old = time.monotonic() - self._begun_at > self._file_s
            if old or os.fstat(2).st_size >= self._file_bytes:
                self._begin()
            await asyncio.sleep(LOOK_S)

    def tail(self, count: int = TAIL_LINES) -> tuple[str, ...]:
        """Return the last lines; none where they cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, self.path.stat().st_size - count * LINE_BYTES))
                return tuple(file.read().decode("utf-8", "replace").splitlines()[-count:])
        except OSError:
            return ()

    def _begin(self) -> None:
        draft = self.path.with_name(f"{self.path.name}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if self.path.exists():
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            draft.replace(self.path)
            os.dup2(descriptor, 2)
        finally:
            os.close(descriptor)
        self._begun_at = time.monotonic()
