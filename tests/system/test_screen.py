"""The screen in real terminals, on a cluster of this machine's own CPU workers."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.tui.terminal import QUIET_S
from tests.system.conftest import Command
from tests.system.lab import HERE, running_lab
from tests.terminals import Emulated

shared_lab = running_lab
SLACK_S = 2.0
"""What a busy machine may take on top."""


def attached(lab: Command) -> Emulated:
    """Return a terminal with a screen on a cluster whose workers are up."""
    screen = lab.open("attach")
    screen.sees("workers 2/2", "cpu0", "cpu1")
    return screen


def left_running(screen: Emulated) -> None:
    screen.press("q", "leave it running")
    screen.press("l")
    assert screen.exit_status == 0


def stopped(screen: Emulated) -> None:
    screen.press("q", "stop it")
    screen.press("s")
    assert screen.exit_status == 0
    assert " is stopped; nothing is left of it." in screen.text


@pytest.mark.slow
def test_a_session_from_its_start_over_a_run_and_another_terminal_to_its_end(
    gputui: Command,
) -> None:
    first = gputui.open(HERE, "--name", "lab")
    first.sees("workers 2/2", "cpu0", "cpu1")
    first.press("\x10", "find a command")
    first.press("run", "Run a preset")
    first.press("\x1b")
    first.sees_not("find a command")
    first.press(":run svd\r", "gputui --attach lab --run svd")
    first.press("\r", "rows: rows of the matrix")
    first.press("2000", "-p rows=2000")
    first.press("\t", "cols: columns of the matrix")
    first.press("20", "--run svd -p rows=2000 -p cols=20")
    first.press("\x12", "✔ done", "svd", "condition")
    left_running(first)
    assert listed(gputui)["workers"] == 2
    second = attached(gputui)
    second.press("6", "✔ done", "svd")
    stopped(second)
    assert gputui("ls").stdout == ""
    gputui.assert_nothing_left()


@pytest.fixture
def lab(shared_lab: Command, tmp_path: Path) -> Iterator[Command]:
    """A cluster of two workers that runs without a screen, and whose tests leave it so."""
    own = {"XDG_STATE_HOME": str(tmp_path)}
    command = Command(shared_lab.folder, shared_lab.runtime, shared_lab.env | own)
    yield command
    command.end()


@pytest.fixture
def own_lab(gputui: Command) -> Command:
    """A cluster like it, to do with as a test likes."""
    gputui.env["DASK_GPUTUI__LEASE"] = "2"
    gputui.ok("up", HERE, "--name", "lab")
    return gputui


def listed(gputui: Command) -> dict[str, Any]:
    (cluster,) = json.loads(gputui("ls", "--json").stdout)
    return dict(cluster)


@pytest.mark.slow
def test_a_hang_up_ends_the_screen_and_leaves_the_cluster(lab: Command) -> None:
    screen = attached(lab)
    status = screen.close()
    assert status in (0, 1, 129, -signal.SIGHUP)
    assert listed(lab)["workers"] == 2


@pytest.mark.slow
def test_a_reader_that_stalls_stops_nothing_and_sees_on(lab: Command) -> None:
    stalled, other = attached(lab), attached(lab)
    for _ in range(200):
        stalled.resize(200, 60), stalled.resize(80, 24)
        stalled.type(b"1Z3z2")
    lab.ok("--attach", "lab", "--run", "svd", "-p", "rows=2000", "-p", "cols=20")
    other.type(b"6")
    other.sees("done", "svd")
    stalled.resize(100, 30)
    stalled.type(b"6")
    stalled.sees("done", "svd")


@pytest.mark.slow
def test_a_storm_of_sizes_down_to_three_lines_is_weathered(lab: Command) -> None:
    screen = attached(lab)
    for columns, lines in [(10, 3), (200, 60), (1, 1), (60, 15), (300, 100)] * 20:
        screen.resize(columns, lines)
        screen.read()
    screen.resize(10, 3)
    screen.sees("lab")
    screen.resize(100, 30)
    screen.sees("cpu0", "cpu1")


def test_two_screens_see_each_other_and_what_the_other_does(lab: Command) -> None:
    one, two = attached(lab), attached(lab)
    one.sees("attached 2")
    one.press("-", "1 worker", "stop 1")
    one.press("y", "workers 1/1")
    two.sees("workers 1/1")
    one.press("+", "start 1")
    one.press("y", "workers 2/2")
    two.sees("workers 2/2")
    left_running(one), left_running(two)


@pytest.mark.slow
def test_a_head_that_dies_is_a_banner_until_another_is_started_or_the_screen_is_left(
    own_lab: Command,
) -> None:
    screen = attached(own_lab)
    os.kill(listed(own_lab)["pid"], signal.SIGKILL)
    screen.sees("has not answered since", "has ended", "q quit")
    screen.press("R", "the head does not answer")
    own_lab.ok("up", HERE, "--name", "lab")
    screen.sees_not("has not answered")
    screen.sees("workers 2/2")
    os.kill(listed(own_lab)["pid"], signal.SIGKILL)
    screen.sees("has ended", "q quit")
    screen.press("q")
    assert screen.exit_status == 3


def test_a_head_that_stands_still_is_said_within_three_seconds_until_it_goes_on(
    lab: Command,
) -> None:
    screen, head = attached(lab), listed(lab)["pid"]
    os.kill(head, signal.SIGSTOP)
    began = time.monotonic()
    try:
        screen.sees("has not answered since", f"kill -CONT {head}", "q quit")
        assert time.monotonic() - began < 3.0 + SLACK_S
    finally:
        os.kill(head, signal.SIGCONT)
    screen.sees_not("has not answered")


@pytest.mark.slow
def test_two_screens_that_are_opened_at_once_are_of_one_cluster(gputui: Command) -> None:
    one, two = gputui.open(HERE), gputui.open(HERE)
    one.sees("workers 2/2", "attached 2"), two.sees("workers 2/2", "attached 2")
    left_running(two)
    one.sees_not("attached 2")
    stopped(one)


@pytest.mark.slow
def test_a_screen_says_where_its_hosts_file_has_changed_since_the_start(gputui: Command) -> None:
    file = gputui.folder / "ch.txt"
    file.write_text(HERE)
    gputui.ok("up", str(file))
    same = gputui.open(str(file))
    same.sees("workers 2/2")
    assert "changed" not in same.text
    file.write_text(f"{HERE}\n# another line")
    other = gputui.open(str(file))
    other.sees("the hosts of ch have changed since its start", "gputui down ch")
    gputui.ok("down", "ch")


def test_a_paste_in_the_body_does_nothing_whatever_bytes_it_holds(lab: Command) -> None:
    screen = attached(lab)
    for bytes_ in (b"q\x1bRy", b"\xff\xfe\x1b[201~qs", b"R\x1b\x1by", b"Ry\r" * 200):
        screen.type(b"\x1b[200~" + bytes_ + b"\x1b[201~")
    time.sleep(4 * QUIET_S)  # what comes right behind a paste is part of it
    screen.type(b"?")
    screen.sees("esc closes")
    assert "Restart" not in screen.text and "Leave" not in screen.text


@pytest.mark.slow
def test_without_colour_there_is_none(gputui: Command) -> None:
    screen = gputui.open("--demo", "2x2", NO_COLOR="1")
    screen.sees("node-01", "gpu0", "SIMULATED")
    screen.press("\x10", "find a command")
    cells = [cell for line in screen.screen.buffer.values() for cell in line.values()]
    assert {colour for cell in cells for colour in (cell.fg, cell.bg)} == {"default"}


def test_a_run_is_cancelled_from_the_screen_and_the_cluster_stays(lab: Command) -> None:
    screen = attached(lab)
    screen.press(":run random-sum size=400000\r", "STATE", "● running   random-sum")
    screen.press("x", "Cancel random-sum")
    screen.press("y", "cancelled")
    screen.press("1", "workers 2/2")
    left_running(screen)


def test_an_unknown_theme_is_refused_before_anything_starts(gputui: Command) -> None:
    terminal = gputui.open("--theme", "nope")
    terminal.sees("known: ", "and Textual's own")
    assert terminal.exit_status == 2
    assert gputui("ls").stdout == ""


def test_a_wrong_setting_ends_the_screen_in_words(gputui: Command) -> None:
    screen = gputui.open(HERE, DASK_GPUTUI__LEESE="3")
    assert screen.exit_status == 2
    assert "setting gputui.leese: unknown" in screen.text
    assert "Traceback" not in screen.text
