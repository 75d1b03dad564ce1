"""A command in a pty whose other end counts what arrives, and what the command costs."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.processes import status_of
from tests.terminals import Pty

CELLS = (120, 40)
TICKS = os.sysconf("SC_CLK_TCK")
SYNC_ASKED, SYNC_KNOWN = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""Whether frames can be marked is asked, and answered as today's terminals do."""


@dataclass
class Counted:
    """A command in a terminal that counts bytes."""

    pty: Pty
    begun_at: float
    """By the monotonic clock."""
    cells: tuple[int, int] = CELLS
    """Columns and lines."""
    sent: int = 0
    """Bytes so far."""
    last: bytes = b""
    """What arrived last."""

    @classmethod
    def start(
        cls, *command: str, env: Mapping[str, str] = {}, cells: tuple[int, int] = CELLS
    ) -> Self:
        """Start a command."""
        begun_at = time.monotonic()
        return cls(Pty.start(*command, env=env, cells=cells), begun_at, cells)

    def take(self, seconds: float) -> float | None:
        """Take in what arrives next; return when it came, None where nothing did."""
        fresh = self.pty.read(max(0.0, seconds))
        at = time.monotonic()
        if not fresh:
            return None
        self.sent += len(fresh)
        self.last = fresh
        if SYNC_ASKED in fresh:
            self.type(SYNC_KNOWN)
        self.see(fresh)
        return at

    def see(self, fresh: bytes) -> None:
        """Do with what arrived what a terminal would: nothing, where it only counts."""

    def rest(self, seconds: float) -> int:
        """Take in what arrives in so many seconds; return how many bytes those were."""
        before, end = self.sent, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.take(left)
        return self.sent - before

    def type(self, keys: bytes) -> None:
        """Type keys."""
        self.pty.type(keys)

    @property
    def ended(self) -> bool:
        """Whether the command has ended by itself."""
        return status_of(self.pty.pid)[0] == "Z"

    def end(self) -> None:
        """End the command."""
        self.pty.kill()


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time that processes, and those of their children that ended, have used."""
    return sum(sum(map(int, status_of(pid)[11:15])) for pid in pids) / TICKS


def resident_mb(pids: Iterable[int]) -> float:
    """Return how much memory processes hold."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
