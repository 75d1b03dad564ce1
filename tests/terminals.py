"""Real terminals for tests: a pty whose bytes are read, or one whose bytes a terminal interprets
that is not the screen's own work.
"""

import contextlib
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from typing import Any, Self

import pyte

BOUND_S = 60.0
STEP_S = 0.05
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@dataclass
class Pty:
    """A command in a pty, whose other end is read only when the test does."""

    pid: int
    terminal: int

    @classmethod
    def start(
        cls, *command: str, env: Mapping[str, str], cells: tuple[int, int] = (100, 30)
    ) -> Self:
        """Start a command in a terminal of so many columns and lines."""
        read, written = os.pipe()
        pid, terminal = pty.fork()
        if pid == 0:
            os.read(read, 1)
            os.execve(command[0], command, {**os.environ, **TERMINAL, **env})
        screen = cls(pid, terminal)
        screen.resize(*cells)
        os.write(written, b"!")
        os.close(read), os.close(written)
        return screen

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the command gets SIGWINCH."""
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def read(self, seconds: float = 0.0) -> bytes:
        """Return what has arrived, or what does within so many seconds."""
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        try:
            return os.read(self.terminal, 65536) if ready else b""
        except OSError:
            return b""

    def close(self) -> int:
        """Close the terminal, and return how the command ended: a status, or a negative signal."""
        os.close(self.terminal)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of the command, and return how it ended."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            self.close()


@dataclass
class Emulated(Pty):
    """A command in a pty whose bytes are interpreted, and read on only while something is awaited.

    Only the cells that changed are sent: a text may be seen that never arrived as a whole.
    """

    def __post_init__(self) -> None:
        self.screen = pyte.Screen(1, 1)
        self.stream = pyte.ByteStream(self.screen)
        self.sent = bytearray()

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the command gets SIGWINCH."""
        self.screen.resize(lines, columns)
        super().resize(columns, lines)

    def read(self, seconds: float = 0.0) -> bytes:
        """Take in, and return, what has arrived, or what does within so many seconds."""
        fresh = super().read(seconds)
        self.stream.feed(fresh)
        self.sent += fresh
        return fresh

    def sees(self, *texts: str) -> None:
        self._until(lambda: all(text in self.text for text in texts), f"{texts} in\n")

    def press(self, keys: str, *texts: str) -> None:
        """Send what a terminal sends for some keys, and wait until all texts are seen."""
        self.type(keys.encode())
        self.sees(*texts)

    @property
    def exit_status(self) -> int:
        """How the command ended; waits for that, and shows what it printed last."""
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        self._until(lambda: os.waitid(os.P_PID, self.pid, ended), "an end in\n")
        while self.read():
            pass
        return self.close()

    def sees_not(self, text: str) -> None:
        self._until(lambda: text not in self.text, f"no {text} in\n")

    def _until(self, holds: Callable[[], object], what: str) -> None:
        def held() -> object:
            self.read(STEP_S)
            return holds()

        wait(held, what, lambda: self.text)


def wait(holds: Callable[[], Any], what: str, seen: Callable[[], str] = lambda: "") -> Any:
    """Return what holds as soon as it does; fail after a bound, with what was seen instead."""
    end = time.monotonic() + BOUND_S
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {BOUND_S:.0f} s: {what}{seen()}"
        time.sleep(STEP_S)
    return found
