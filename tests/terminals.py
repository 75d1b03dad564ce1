"""Real terminals for tests: tmux's, whose screen is read as text; a pty, whose bytes are; and one
whose bytes a terminal interprets that is not the screen's own work.

tmux runs as a server of its own for each test, on a socket in a folder of its own; only that
server is ended.
"""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Self

import pyte

BOUND_S = 60.0
STEP_S = 0.05
KEEP_STATUS = '"$@"; echo $? > "$0"'
"""A shell's: run what follows, and write how it ended. (tmux 3.3 itself loses that at times.)"""
STAYING = (
    *("set-option", "-s", "exit-empty", "off", ";"),
    *("set-option", "-g", "remain-on-exit", "on"),
)
"""What is seen stays when its command has ended, however soon that is."""
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@dataclass
class Tmux:
    """A tmux server; each command runs in a session, that is in a terminal, of its own."""

    folder: Path
    terminals: int = 0

    def run(self, *words: str) -> str:
        """Have the server do something, and return what it prints."""
        command = ["tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *words]
        done = subprocess.run(
            command, env=dict(os.environ), capture_output=True, text=True, timeout=BOUND_S
        )  # with the environment named: readline puts COLUMNS into the one that is inherited
        assert done.returncode == 0, f"tmux {' '.join(words)}: {done.stderr}"
        return done.stdout

    def open(
        self, *arguments: str, env: Mapping[str, str], cells: tuple[int, int] = (100, 30)
    ) -> "Window":
        """Run `gputui` with these arguments in a new terminal of so many columns and lines."""
        self.terminals += 1
        name, (columns, lines) = f"t{self.terminals}", cells
        variables = [word for pair in env.items() for word in ("-e", "=".join(pair))]
        size = ["-x", str(columns), "-y", str(lines)]
        command = [sys.executable, "-m", "gputui", *arguments]
        keeping = ["sh", "-c", KEEP_STATUS, str(self.folder / f"{name}.status")]
        session = ["new-session", "-d", "-s", name, *size, *variables, *keeping, *command]
        self.run("start-server", ";", *STAYING, ";", *session)
        return Window(self, name)

    def end(self) -> None:
        """End the server, and with it all terminals."""
        with contextlib.suppress(AssertionError):
            self.run("kill-server")
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Window:
    """A terminal in tmux with the screen in it."""

    tmux: Tmux
    name: str

    @property
    def text(self) -> str:
        return self.tmux.run("capture-pane", "-p", "-t", self.name)

    @property
    def everything(self) -> str:
        return self.tmux.run("capture-pane", "-p", "-S", "-", "-t", self.name)

    def press(self, keys: str, *texts: str) -> None:
        """Press keys by tmux's names (`Down Enter C-p q`), and wait until all texts are seen."""
        self.tmux.run("send-keys", "-t", self.name, *keys.split())
        self.sees(*texts)

    def type(self, text: str, *texts: str) -> None:
        """Type a text, and wait until all texts are seen."""
        self.tmux.run("send-keys", "-t", self.name, "-l", text)
        self.sees(*texts)

    def sees(self, *texts: str) -> None:
        wait(lambda: all(text in self.text for text in texts), f"{texts} in\n", lambda: self.text)

    def finds(self, pattern: str) -> str:
        found: list[str] = []
        wait(
            lambda: found.extend(re.findall(pattern, self.text)) or found,
            f"{pattern} in\n",
            lambda: self.text,
        )
        return found[0]

    def close(self) -> None:
        """Close the terminal under the screen, as when a connection breaks."""
        self.tmux.run("kill-session", "-t", self.name)

    @property
    def exit_status(self) -> int:
        """How the command ended; waits for that."""
        status = self.tmux.folder / f"{self.name}.status"
        wait(lambda: status.exists() and status.read_text(), "an end in\n", lambda: self.text)
        return int(status.read_text())


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

    @property
    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> int:
        """Close the terminal, and return how the command ended: a status, or a negative signal."""
        os.close(self.terminal)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of the command, and return how it ended."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError, OSError):
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
        return fresh

    def sees(self, *texts: str) -> None:
        self._until(lambda: all(text in self.text for text in texts), f"{texts} in\n")

    def sees_not(self, text: str) -> None:
        self._until(lambda: text not in self.text, f"no {text} in\n")

    def _until(self, holds: Callable[[], object], what: str) -> None:
        def held() -> object:
            self.read(STEP_S)
            return holds()

        wait(held, what, lambda: self.text)


def new_tmux() -> Tmux:
    """Return a server that starts with its first terminal."""
    return Tmux(Path(tempfile.mkdtemp(prefix="gt-")))


def wait(holds: Callable[[], object], what: str, seen: Callable[[], str] = lambda: "") -> None:
    """Wait until a condition holds; fail after a bound, with what was seen instead."""
    end = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < end, f"not within {BOUND_S:.0f} s: {what}{seen()}"
        time.sleep(STEP_S)
