"""A command in a pty whose other end counts what arrives and shows it, as a terminal would."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyte

from tests.terminals import Pty

CELLS = (120, 40)
TICKS = os.sysconf("SC_CLK_TCK")
SYNC_ASKED, SYNC_KNOWN = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""Whether frames can be marked is asked, and answered as today's terminals do."""


@dataclass
class Watched:
    """A command in a terminal."""

    pty: Pty
    begun_at: float
    """By the monotonic clock."""
    screen: pyte.Screen = field(default_factory=lambda: pyte.Screen(*CELLS))
    sent: int = 0
    """Bytes so far."""

    def __post_init__(self) -> None:
        self._stream = pyte.ByteStream(self.screen)

    @classmethod
    def start(cls, *command: str, env: Mapping[str, str] = {}) -> "Watched":
        begun_at = time.monotonic()
        return cls(Pty.start(*command, env=env, cells=CELLS), begun_at)

    def take(self, seconds: float) -> float | None:
        """Take in what arrives next; return when it came, None where nothing did."""
        fresh = self.pty.read(max(0.0, seconds))
        at = time.monotonic()
        if not fresh:
            return None
        self.pty.taken.clear()
        self.sent += len(fresh)
        if SYNC_ASKED in fresh:
            self.type(SYNC_KNOWN)
        self._stream.feed(fresh)
        return at

    def rest(self, seconds: float) -> int:
        """Take in what arrives in so many seconds; return how many bytes those were."""
        before, end = self.sent, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.take(left)
        return self.sent - before

    def until(self, holds: Callable[[], object], seconds: float = 30.0) -> float:
        """Take in what arrives until a condition holds; return when that came."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            at = self.take(left)
            if at is not None and holds():
                return at
        raise TimeoutError("\n".join(self.screen.display))

    def shows(self, *texts: str) -> bool:
        """Return whether all these texts are seen."""
        seen = "\n".join(self.screen.display)
        return all(text in seen for text in texts)

    def type(self, keys: bytes) -> None:
        """Type keys."""
        self.pty.type(keys)

    def marked(self) -> list[tuple[int, int]]:
        """Return the cells in reverse or on a paper of their own, such as those of the cursor."""
        cells = [(y, x, cell) for y, line in self.screen.buffer.items() for x, cell in line.items()]
        (paper, _), *_ = Counter(cell.bg for _, _, cell in cells).most_common(1)
        return sorted((y, x) for y, x, cell in cells if cell.reverse or cell.bg != paper)

    def cpu_s(self) -> float:
        """Return the CPU time that the command has used."""
        return cpu_s([self.pty.pid])

    def end(self) -> None:
        """End the command."""
        self.pty.kill()


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time that processes, and those of their children that ended, have used."""
    return sum(_ticks(pid) for pid in pids) / TICKS


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))
