"""The screen in a pty, its bytes interpreted by a terminal that is not the screen's own work."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminals import TERMINAL, Emulated, wait

CELLS = (100, 30)
DEMO = (sys.executable, "-m", "gputui", "--demo", "2x4", "--seed", "1")
LEFT_S = 5.0
"""For how long a screen may stay when its terminal is gone."""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulated]:
    """A screen on a simulated cluster, which each test leaves as it was."""
    env = {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    shown = Emulated.start(*DEMO, env=env, cells=CELLS)
    yield shown
    shown.kill()


def resize(terminal: Emulated, columns: int, lines: int) -> None:
    """Give a terminal another size, and let it show rubbish, as some do then."""
    terminal.screen.resize(lines, columns)
    terminal.stream.feed(b"\x1b[5;5Hrubbish")
    terminal.resize(columns, lines)


def test_what_another_program_wrote_is_drawn_over_on_demand(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0")
    terminal.stream.feed(b"\x1b[3;3Hwall: rubbish")
    terminal.type(b"\x0c")
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0")


def test_a_suspended_screen_is_drawn_again_when_it_goes_on(terminal: Emulated) -> None:
    terminal.sees("node-01:gpu0")
    terminal.type(b"\x1a")
    os.waitid(os.P_PID, terminal.pid, os.WSTOPPED)
    terminal.read()
    terminal.stream.feed(b"\x1b[5;5Hrubbish of the shell's")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.sees_not("rubbish")
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")


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


def test_the_size_is_the_terminals_whatever_the_environment_says(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "COLUMNS": "160", "LINES": "50"}
    shown = Emulated.start(*DEMO, env=env, cells=(90, 24))
    try:
        shown.sees("8 GPUs on 2 hosts", "q quit")
        assert "q quit" in shown.screen.display[23]
        resize(shown, 120, 40)
        wait(lambda: shown.read(0.1) is None or "q quit" in shown.screen.display[39], "40 lines")
    finally:
        shown.kill()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_screen_ends_with_a_terminal_that_sends_no_hang_up(tmp_path: Path, ignored: bool) -> None:
    ours, theirs = os.openpty()
    disposition = signal.SIG_IGN if ignored else signal.SIG_DFL
    command = subprocess.Popen(
        DEMO,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **TERMINAL, "XDG_STATE_HOME": str(tmp_path)},
        start_new_session=True,  # whose terminal this is not
        preexec_fn=lambda: signal.signal(signal.SIGHUP, disposition),
    )
    os.close(theirs)
    try:
        while b"quit" not in os.read(ours, 65536):
            pass
        os.close(ours)
        command.wait(LEFT_S)
    finally:
        command.kill()
        command.wait()
