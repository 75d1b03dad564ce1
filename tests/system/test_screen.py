"""The screen in real terminals, on a cluster of this machine's own CPU workers."""

import shutil
from collections.abc import Iterator

import pytest

from tests.system.conftest import Command
from tests.terminals import Tmux, Window, new_tmux

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")

HOSTS = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"


@pytest.fixture
def tmux(gputui: Command) -> Iterator[Tmux]:
    gputui.env["XDG_CONFIG_HOME"] = str(gputui.folder)
    server = new_tmux()
    yield server
    server.end()


def started(tmux: Tmux, gputui: Command) -> Window:
    """Return a terminal with a screen in which both workers are up."""
    screen = tmux.open(HOSTS, "--name", "lab", env=gputui.env)
    screen.sees("workers 2/2", "localhost:cpu0", "localhost:cpu1")
    return screen


def left_running(screen: Window) -> None:
    """Leave the screen, and the cluster running."""
    screen.press("q")
    screen.sees("leave it running")
    screen.press("l")
    assert screen.exit_status == 0


def stopped(screen: Window) -> None:
    """Leave the screen, and stop the cluster."""
    screen.press("q")
    screen.sees("stop it")
    screen.press("s")
    assert screen.exit_status == 0


def test_a_session_from_its_start_over_a_run_and_another_terminal_to_its_end(
    gputui: Command, tmux: Tmux
) -> None:
    first = started(tmux, gputui)
    first.press("C-p")
    first.sees("what to do")
    first.type("run")
    first.press("Enter")
    first.sees("\nrun\n")
    first.type("svd rows=2000 cols=20")
    first.press("Enter")
    first.sees("✔ done", "singular values", "condition")
    left_running(first)
    assert "2 workers on   1 hosts" in gputui("ls").stdout
    second = tmux.open("attach", env=gputui.env)
    second.sees("workers 2/2")
    second.press("6")
    second.sees("✔ done", "svd")
    stopped(second)
    assert gputui("ls").stdout == ""
    gputui.assert_nothing_left()


def test_a_lost_terminal_leaves_the_cluster_as_it_is(gputui: Command, tmux: Tmux) -> None:
    first = started(tmux, gputui)
    first.close()
    second = tmux.open("attach", "lab", env=gputui.env)
    second.sees("workers 2/2")
    stopped(second)
