"""The screen in a pty, its bytes interpreted by a terminal that is not the screen's own work.

Terminals that can do less get less. The differ reads all that this version of Textual writes.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyte
import pytest

from gputui.tui.terminal.cells import SHOWS_NOTHING, Cells
from tests.terminals import BOUND_S, TERMINAL, Emulated, Pty, wait

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


@pytest.mark.parametrize(
    ("keys", "seen"),
    [(b"", "8 GPUs on 2 hosts"), (b"c", "[esc] cancel"), (b":wor", ":wor"), (b"?", "esc closes")],
    ids=["views", "the form of a run", "the line", "help"],
)
def test_a_suspended_screen_is_drawn_again_when_it_goes_on(
    terminal: Emulated, keys: bytes, seen: str
) -> None:
    terminal.sees("node-01:gpu0", "workers 6/6")  # before, there is nothing to run on
    terminal.type(keys)
    terminal.sees(seen)
    terminal.type(b"\x1a")
    wait(lambda: stopped(terminal.pid), "the stop")
    terminal.read()
    terminal.stream.feed(b"\x1b[5;5Hrubbish of the shell's")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.sees_not("rubbish")
    terminal.sees(seen)
    terminal.type(b"\x1b" * bool(keys))
    terminal.sees("node-01:gpu0", "8 GPUs on 2 hosts")


def stopped(pid: int) -> bool:
    """Return whether a child has stopped since it was asked last."""
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None


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


COLOURS = re.compile(rb"\x1b\[([\d;]*)m")
Show = Callable[[Mapping[str, str]], Emulated]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Show]:
    """A function that returns a terminal of these variables, in which a demo is up."""
    screens: list[Emulated] = []

    def show(variables: Mapping[str, str]) -> Emulated:
        unset = dict.fromkeys(("LC_ALL", "LC_CTYPE", "LANG", "COLORTERM", "NO_COLOR"), "")
        env = {**unset, "XDG_STATE_HOME": str(tmp_path), **variables}
        screens.append(Emulated.start(*DEMO, env=env))
        screens[-1].sees("workers 6/6", "8 GPUs on 2 hosts")
        return screens[-1]

    yield show
    for screen in screens:
        screen.kill()


def test_a_dumb_terminal_is_told_in_a_line_to_use_run(tmp_path: Path) -> None:
    screen = Pty.start(*DEMO, env={"TERM": "dumb", "XDG_STATE_HOME": str(tmp_path)})
    said, end = b"", time.monotonic() + BOUND_S
    while b"\n" not in said and time.monotonic() < end:
        said += screen.read(0.1)
    assert screen.ended() == 2
    said += screen.read(0.1)
    assert said.startswith(b"gputui: TERM is dumb") and b"--run" in said
    assert b"\x1b" not in said and said.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LANG": "de_DE.ISO-8859-1"}, {"TERM": "linux"}],
    ids=lambda variables: "=".join(*variables.items()),
)
def test_a_terminal_without_utf_8_gets_ascii_by_itself(
    shown: Show, variables: Mapping[str, str]
) -> None:
    screen = shown(variables)
    for keys, text in ((b"1ZZ", "heat zoom"), (b"3", "TASK STREAM"), (b"c", "copy command")):
        screen.type(keys)
        screen.sees(text)
    assert screen.sent.isascii()


@pytest.mark.slow
@pytest.mark.parametrize(("term", "depth"), [("xterm", 16), ("xterm-256color", 256)])
def test_no_more_colours_are_sent_than_a_terminal_has(shown: Show, term: str, depth: int) -> None:
    screen = shown({"TERM": term, "LANG": "C.UTF-8"})
    styles = b" ".join(COLOURS.findall(screen.sent))
    assert b"38;2;" not in styles and b"48;2;" not in styles
    assert (b"38;5;" in styles) is (depth == 256)


SCREEN = """
import json, runpy, sys
from gputui.tui import terminal as driver

class Noted(driver.Cells):
    def let_through(self, data, size):
        print(json.dumps(data), file=written, flush=True)
        return super().let_through(data, size)

written = open(sys.argv.pop(1), "w")
driver.Cells = Noted
runpy.run_module("gputui", run_name="__main__")
"""


@pytest.mark.slow
def test_the_differ_reads_every_frame_and_shows_what_textual_alone_would(tmp_path: Path) -> None:
    written = tmp_path / "written"
    options = ("--demo", "2x4", "--seed", "1")
    env = {"XDG_STATE_HOME": str(tmp_path)}
    shown = Emulated.start(
        sys.executable, "-c", SCREEN, str(written), *options, env=env, cells=CELLS
    )
    try:
        shown.sees("8 GPUs on 2 hosts")
        shown.type(b"?")
        shown.sees("esc closes")
        shown.type(b"c")
        shown.sees_not("esc closes")
        shown.type(b"p")
        shown.sees("PAUSED")
        wait(lambda: not shown.read(1.0), "a second of silence")
    finally:
        shown.kill()
    outputs = [json.loads(line) for line in written.read_text().splitlines()]
    frames = [data for data in outputs if not SHOWS_NOTHING.fullmatch(data)]
    assert len(frames) > 10
    assert [frame for frame in frames if not Cells(*CELLS).take(frame)] == []
    whole = pyte.Screen(*CELLS)
    pyte.Stream(whole).feed("".join(outputs))
    assert whole.display == shown.screen.display
    assert whole.buffer == shown.screen.buffer
