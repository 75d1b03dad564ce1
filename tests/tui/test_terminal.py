"""The screen in a pty, its bytes interpreted by a terminal that is not the screen's own work."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from tests.terminals import Pty, wait

CELLS = (100, 30)


class Terminal:
    """A simulated cluster on a screen, and what is seen of it."""

    def __init__(self, folder: Path) -> None:
        env = {"XDG_STATE_HOME": str(folder)}
        command = [sys.executable, "-m", "gputui", "--demo", "2x4", "--seed", "1"]
        self.pty = Pty.start(*command, env=env, cells=CELLS)
        self.screen = pyte.Screen(*CELLS)
        self.stream = pyte.ByteStream(self.screen)

    def sees(self, *texts: str) -> None:
        """Wait until all texts are seen."""
        self._until(lambda seen: all(text in seen for text in texts), f"{texts}")

    def sees_not(self, text: str) -> None:
        """Wait until a text is not seen."""
        self._until(lambda seen: text not in seen, f"no {text}")

    def _until(self, holds, what: str) -> None:  # type: ignore[no-untyped-def]
        def held() -> object:
            self.stream.feed(self.pty.read(0.05))
            self.pty.taken.clear()
            return holds("\n".join(self.screen.display))

        wait(held, what, lambda: "\n".join(self.screen.display))

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size, and let it show rubbish, as some do then."""
        self.screen.resize(lines, columns)
        self.stream.feed(b"\x1b[5;5Hrubbish")
        self.pty.resize(columns, lines)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shown = Terminal(tmp_path)
    yield shown
    shown.pty.kill()


def test_the_cells_that_are_sent_add_up_to_the_screen(terminal: Terminal) -> None:
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")
    terminal.pty.type(b"?")
    terminal.sees("Help")
    terminal.pty.type(b"c")
    terminal.sees_not("Help")
    terminal.sees("node-01:gpu0", "node-02:gpu3")


def test_what_another_program_wrote_is_drawn_over_on_demand(terminal: Terminal) -> None:
    terminal.sees("node-01:gpu0")
    terminal.stream.feed(b"\x1b[3;3Hwall: rubbish")
    terminal.pty.type(b"\x0c")
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0")


def test_a_size_that_comes_back_draws_everything_again(terminal: Terminal) -> None:
    terminal.sees("node-01:gpu0")
    terminal.resize(70, 20)
    terminal.resize(*CELLS)
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")


def test_a_paused_screen_sends_nothing(terminal: Terminal) -> None:
    terminal.sees("node-01:gpu0")
    terminal.pty.type(b"p")
    terminal.sees("PAUSED")
    wait(lambda: not terminal.pty.read(1.0), "a second of silence")
    assert terminal.pty.read(2.0) == b""
