"""The screen on terminals that can do less, each a pty whose bytes are looked at."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.terminals import BOUND_S, Emulated, Pty

DEMO = (sys.executable, "-m", "gputui", "--demo", "2x4", "--seed", "1")
COLOURS = re.compile(rb"\x1b\[([\d;]*)m")


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], Emulated]]:
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
    shown: Callable[[Mapping[str, str]], Emulated], variables: Mapping[str, str]
) -> None:
    screen = shown(variables)
    for keys, text in ((b"1ZZ", "heat zoom"), (b"3", "TASK STREAM"), (b"c", "copy command")):
        screen.type(keys)
        screen.sees(text)
    assert screen.sent.isascii()


@pytest.mark.slow
@pytest.mark.parametrize(("term", "depth"), [("xterm", 16), ("xterm-256color", 256)])
def test_no_more_colours_are_sent_than_a_terminal_has(
    shown: Callable[[Mapping[str, str]], Emulated], term: str, depth: int
) -> None:
    screen = shown({"TERM": term, "LANG": "C.UTF-8"})
    styles = b" ".join(COLOURS.findall(screen.sent))
    assert b"38;2;" not in styles and b"48;2;" not in styles
    assert (b"38;5;" in styles) is (depth == 256)
