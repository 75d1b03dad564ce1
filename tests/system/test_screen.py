"""The screen in real terminals, on a cluster of this machine's own CPU workers."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.tui.terminal import QUIET_S
from tests.sshd import SshHosts
from tests.system.conftest import Command
from tests.system.lab import HERE, running_lab
from tests.terminals import Emulated, Tmux, Window, new_tmux, wait

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")

shared_lab = running_lab
Attach = Callable[[], Emulated]
SLACK_S = 2.0
"""What a busy machine may take on top."""


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    server = new_tmux()
    yield server
    server.end()


def started(tmux: Tmux, gputui: Command) -> Window:
    """Return a terminal with a screen in which both workers are up."""
    screen = tmux.open(HERE, "--name", "lab", env=gputui.env)
    screen.sees("workers 2/2", "cpu0", "cpu1")
    return screen


def attached_in(tmux: Tmux, lab: Command) -> Window:
    """Return a terminal with a screen on a cluster whose workers are up."""
    screen = tmux.open("attach", env=lab.env)
    screen.sees("workers 2/2", "cpu1")
    return screen


def left_running(screen: Window) -> None:
    screen.press("q", "leave it running")
    screen.press("l")
    assert screen.exit_status == 0


def stopped(screen: Window) -> None:
    screen.press("q", "stop it")
    screen.press("s")
    assert screen.exit_status == 0


def answer(screen: Window, key: str, question: str) -> None:
    """Press the key of a choice, and wait until the question is gone."""
    screen.press(key)
    wait(lambda: question not in screen.text, "the question gone in\n", lambda: screen.text)


@pytest.mark.slow
def test_a_session_from_its_start_over_a_run_and_another_terminal_to_its_end(
    gputui: Command, tmux: Tmux
) -> None:
    first = started(tmux, gputui)
    first.press("C-p")
    first.sees("find a command")
    first.type("run")
    first.sees("Run a preset")
    first.press("Escape")
    first.type(":run svd")
    first.press("Enter")
    first.sees("gputui --attach lab --run svd")
    first.press("Enter")
    first.sees("rows: rows of the matrix")
    first.type("2000")
    first.sees("-p rows=2000")
    first.press("Tab")
    first.sees("cols: columns of the matrix")
    first.type("20")
    first.sees("--run svd -p rows=2000 -p cols=20")
    first.press("C-r")
    first.sees("✔ done", "svd", "condition")
    left_running(first)
    assert listed(gputui)["workers"] == 2
    second = tmux.open("attach", env=gputui.env)
    second.sees("workers 2/2")
    second.press("6", "✔ done", "svd")
    stopped(second)
    assert gputui("ls").stdout == ""
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_a_lost_terminal_leaves_the_cluster_as_it_is(gputui: Command, tmux: Tmux) -> None:
    first = started(tmux, gputui)
    first.close()
    second = tmux.open("attach", "lab", env=gputui.env)
    second.sees("workers 2/2")
    stopped(second)


@pytest.fixture
def lab(shared_lab: Command, tmp_path: Path) -> Iterator[Command]:
    """A cluster of two workers that runs without a screen, and whose tests leave it so."""
    own = {"XDG_STATE_HOME": str(tmp_path)}
    command = Command(shared_lab.folder, shared_lab.runtime, shared_lab.env | own)
    yield command
    command.end()


@pytest.fixture
def attached(lab: Command) -> Iterator[Callable[[], Emulated]]:
    """A function that returns a terminal in which a screen on the lab shows its workers."""
    screens: list[Emulated] = []

    def attach() -> Emulated:
        screens.append(Emulated.start(sys.executable, "-m", "gputui", "attach", env=lab.env))
        screens[-1].sees("cpu0", "cpu1")
        return screens[-1]

    yield attach
    for screen in screens:
        screen.kill()


@pytest.fixture
def own_lab(gputui: Command) -> Command:
    """A cluster like it, to do with as a test likes."""
    gputui.env["DASK_GPUTUI__LEASE"] = "2"
    gputui.ok("up", HERE, "--name", "lab")
    return gputui


@pytest.mark.slow
def test_a_screen_takes_up_a_cluster_that_is_started_again_elsewhere(
    own_lab: Command, tmux: Tmux
) -> None:
    screen = attached_in(tmux, own_lab)
    pid = listed(own_lab)["pid"]
    os.kill(pid, signal.SIGKILL)
    screen.sees("has not answered since")
    assert own_lab("up", HERE, "--name", "lab").returncode == 0
    wait(lambda: "has not answered" not in screen.text, "the new cluster in\n", lambda: screen.text)
    screen.sees("workers 2/2")
    assert listed(own_lab)["pid"] != pid


def listed(gputui: Command) -> dict[str, Any]:
    (cluster,) = json.loads(gputui("ls", "--json").stdout)
    return dict(cluster)


@pytest.mark.slow
def test_a_hang_up_ends_the_screen_and_leaves_the_cluster(lab: Command, attached: Attach) -> None:
    screen = attached()
    status = screen.close()
    assert status in (0, 1, 129, -signal.SIGHUP)
    assert listed(lab)["workers"] == 2


@pytest.mark.slow
def test_a_reader_that_stalls_stops_nothing_and_sees_on(lab: Command, attached: Attach) -> None:
    stalled, other = attached(), attached()
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
def test_a_storm_of_sizes_down_to_three_lines_is_weathered(attached: Attach) -> None:
    screen = attached()
    for columns, lines in [(10, 3), (200, 60), (1, 1), (60, 15), (300, 100)] * 20:
        screen.resize(columns, lines)
        screen.read()
    screen.resize(10, 3)
    screen.sees("lab")
    screen.resize(100, 30)
    screen.sees("cpu0", "cpu1")


def test_two_screens_see_each_other_and_what_the_other_does(lab: Command, tmux: Tmux) -> None:
    one, two = tmux.open("attach", env=lab.env), tmux.open("attach", env=lab.env)
    one.sees("attached 2")
    one.type("-", "1 worker", "stop 1")
    one.type("y")
    for screen in (one, two):
        screen.sees("workers 1/1")
    one.press("+", "start 1")
    one.type("y")
    two.sees("workers 2/2")
    left_running(one), left_running(two)


def test_a_read_only_screen_takes_away_what_changes_things(lab: Command, tmux: Tmux) -> None:
    screen = tmux.open("attach", "--readonly", env=lab.env)
    screen.sees("read-only", "workers 2/2")
    screen.type("x", "this screen is read-only")
    screen.type("q", "leave it running")
    assert "stop it" not in screen.text
    screen.type("l")
    assert screen.exit_status == 0


@pytest.mark.slow
def test_a_head_that_dies_is_a_banner_and_the_screen_can_be_left(
    own_lab: Command, tmux: Tmux
) -> None:
    screen = attached_in(tmux, own_lab)
    os.kill(listed(own_lab)["pid"], signal.SIGKILL)
    screen.sees("has not answered since", "has ended", "q quit")
    screen.type("R", "the head does not answer")
    screen.type("q")
    assert screen.exit_status == 3
    assert "its workers end by themselves" in screen.everything


def test_a_head_that_stands_still_is_said_within_three_seconds_until_it_goes_on(
    lab: Command, tmux: Tmux
) -> None:
    screen, head = tmux.open("attach", env=lab.env), listed(lab)["pid"]
    screen.sees("workers 2/2")
    os.kill(head, signal.SIGSTOP)
    began = time.monotonic()
    try:
        screen.sees("has not answered since", f"kill -CONT {head}", "q quit")
        assert time.monotonic() - began < 3.0 + SLACK_S
    finally:
        os.kill(head, signal.SIGCONT)
    wait(lambda: "has not answered" not in screen.text, "an answer in\n", lambda: screen.text)


@pytest.mark.slow
def test_two_screens_that_are_opened_at_once_are_of_one_cluster(
    gputui: Command, tmux: Tmux
) -> None:
    one, two = tmux.open(HERE, env=gputui.env), tmux.open(HERE, env=gputui.env)
    one.sees("workers 2/2", "attached 2"), two.sees("workers 2/2", "attached 2")
    left_running(two)
    wait(lambda: "attached 2" not in one.text, "one screen in\n", lambda: one.text)
    stopped(one)


@pytest.mark.slow
def test_a_stop_is_said_on_the_other_persons_terminal_after_its_screen_has_closed(
    own_lab: Command, tmux: Tmux
) -> None:
    one = tmux.open("attach", env=own_lab.env | {"SSH_CONNECTION": "10.0.0.9 1 10.0.0.1 22"})
    two = tmux.open("attach", env=own_lab.env | {"SSH_CONNECTION": ""})
    one.sees("attached 2"), two.sees("attached 2")
    one.type("q", "attached: ", "stop it")
    one.type("s", "Stop lab?")
    one.type("y")
    assert (one.exit_status, two.exit_status) == (0, 0)
    assert "lab is stopped; nothing is left of it." in one.everything
    assert "(ssh from 10.0.0.9)" in two.everything and "lab ended at" in two.everything


def test_a_paste_in_the_body_does_nothing_whatever_bytes_it_holds(attached: Attach) -> None:
    screen = attached()
    for bytes_ in (b"q\x1bRy", b"\xff\xfe\x1b[201~qs", b"R\x1b\x1by", b"Ry\r" * 200):
        screen.type(b"\x1b[200~" + bytes_ + b"\x1b[201~")
    time.sleep(4 * QUIET_S)  # what comes right behind a paste is part of it
    screen.type(b"?")
    screen.sees("esc closes")
    assert "Restart" not in screen.text and "Leave" not in screen.text


@pytest.mark.slow
def test_a_worker_is_restarted_and_retired_from_its_row(lab: Command, tmux: Tmux) -> None:
    screen = attached_in(tmux, lab)
    screen.type("jR", "Restart localhost:cpu0?")
    answer(screen, "y", "Restart localhost:cpu0?")
    screen.press("5", "restarted", "localhost:cpu0")
    screen.press("1", "workers 2/2")
    screen.type("x", "Retire localhost", "stop 1")
    answer(screen, "y", "Retire localhost")
    screen.sees("workers 1/1")
    screen.press("+", "start 1")
    answer(screen, "y", "start 1")
    screen.sees("workers 2/2")
    left_running(screen)


@pytest.mark.slow
def test_without_colour_there_is_none(gputui: Command, tmux: Tmux) -> None:
    screen = tmux.open("--demo", "2x2", env={**gputui.env, "NO_COLOR": "1"})
    screen.sees("node-01", "gpu0", "SIMULATED")
    screen.press("C-p", "find a command")
    codes = re.findall(r"\x1b\[([\d;]*)m", tmux.run("capture-pane", "-e", "-p", "-t", screen.name))
    used = {code for each in codes for code in each.split(";")}
    assert used <= {"", "0", "1", "2", "7", "39", "49"}


@pytest.mark.slow
def test_in_ascii_the_terminal_gets_nothing_else(gputui: Command, tmux: Tmux) -> None:
    screen = tmux.open("--demo", "2x2", "--ascii", env=gputui.env)
    screen.sees("node-01", "gpu0")
    for view in "23456":
        screen.press(view)
        screen.sees("SIMULATED")
    screen.press("1 ?", "esc closes")
    assert screen.text.isascii()


@pytest.mark.slow
def test_a_seed_makes_the_same_cluster_again(gputui: Command, tmux: Tmux) -> None:
    arguments = ("--demo", "2x2", "--seed", "7")
    screens = [tmux.open(*arguments, env=gputui.env, cells=(200, 50)) for _ in range(2)]
    seen = []
    for screen in screens:
        screen.sees("node-01", "gpu0")
        screen.press("j Enter", "PID")
        screen.press("y")
        seen.append(screen.finds(r"GPU-[0-9a-f-]{36}"))
    assert seen[0] == seen[1]


def test_a_run_is_cancelled_from_the_screen_and_the_cluster_stays(lab: Command, tmux: Tmux) -> None:
    screen = attached_in(tmux, lab)
    screen.type(":run random-sum size=400000")
    screen.press("Enter", "STATE", "● running   random-sum")
    screen.type("x", "Cancel random-sum")
    answer(screen, "y", "Cancel random-sum")
    screen.sees("cancelled")
    screen.press("1", "workers 2/2")
    left_running(screen)


def test_a_preset_that_raises_is_a_failed_run_with_its_reason(lab: Command, tmux: Tmux) -> None:
    screen = attached_in(tmux, lab)
    screen.type(":run matmul size=30000")
    screen.press("Enter", "✖ failed", "matmul would take", "on each worker")
    left_running(screen)


def test_a_host_is_refused_where_the_cluster_is_on_loopback(lab: Command, tmux: Tmux) -> None:
    screen = attached_in(tmux, lab)
    screen.type(":add gpu-d gpus=0,1")
    screen.press("Enter", "loopback only")
    left_running(screen)


@pytest.mark.slow
def test_a_host_key_is_accepted_on_the_screen_and_written_to_known_hosts(
    gputui: Command, tmux: Tmux, openssh_hosts: SshHosts
) -> None:
    known = openssh_hosts.known_hosts.read_text()
    openssh_hosts.known_hosts.write_text("")
    host = openssh_hosts.text("gpus=none workers=1 nthreads=1 memory=512MiB").splitlines()[0]
    env = {**gputui.env, "DASK_GPUTUI__SSH__CONFIG": str(openssh_hosts.config)}
    try:
        screen = tmux.open(host, "--name", "far", env=env)
        screen.sees("host key", "SHA256:", "known_hosts?", "yes, and remember it")
        screen.press("y", "workers 1/1")
        assert openssh_hosts.known_hosts.read_text()
        stopped(screen)
    finally:
        openssh_hosts.known_hosts.write_text(known)


def test_a_wrong_setting_ends_the_screen_in_words(gputui: Command, tmux: Tmux) -> None:
    screen = tmux.open(HERE, env={**gputui.env, "DASK_GPUTUI__LEESE": "3"})
    assert screen.exit_status == 2
    assert "setting gputui.leese: unknown" in screen.everything
    assert "Traceback" not in screen.everything
