"""The screen in a pty, its bytes interpreted by a terminal that is not the screen's own work."""

import sys
from collections.abc import Iterator

import pytest

from tests.terminals import Emulated, wait

CELLS = (100, 30)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulated]:
    """A screen on a simulated cluster, which each test leaves as it was."""
    env = {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    command = [sys.executable, "-m", "gputui", "--demo", "2x4", "--seed", "1"]
    shown = Emulated.start(*command, env=env, cells=CELLS)
    yield shown
    shown.kill()


def resize(terminal: Emulated, columns: int, lines: int) -> None:
    """Give a terminal another size, and let it show rubbish, as some do then."""
    terminal.screen.resize(lines, columns)
    terminal.stream.feed(b"\x1b[5;5Hrubbish")
    terminal.resize(columns, lines)


def test_the_cells_that_are_sent_add_up_to_the_screen(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")
    terminal.type(b"?")
    terminal.sees("esc closes")
    terminal.type(b"c")
    terminal.sees_not("esc closes")
    terminal.sees("node-01", "node-02", "8 GPUs on 2 hosts")


def test_what_another_program_wrote_is_drawn_over_on_demand(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0")
    terminal.stream.feed(b"\x1b[3;3Hwall: rubbish")
    terminal.type(b"\x0c")
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0")


def test_a_size_that_comes_back_draws_everything_again(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0")
    resize(terminal, 70, 20)
    resize(terminal, *CELLS)
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")


def test_a_paused_screen_sends_nothing(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0")
    terminal.type(b"p")
    terminal.sees("PAUSED")
    wait(lambda: not terminal.read(1.0), "a second of silence")
    assert terminal.read(2.0) == b""
    terminal.type(b"p")
    terminal.sees_not("PAUSED")
