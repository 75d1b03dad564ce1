"""`gputui watch`: the screen on hosts without workers, in real terminals."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fakes
from tests.system.conftest import Command, wait_until
from tests.terminals import Tmux, new_tmux

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


@pytest.fixture
def gputui(gputui: Command) -> Command:
    """The command on a machine with four made-up GPUs."""
    gputui.env["PYTHONPATH"] = str(Path(fakes.__file__).parent)
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 4})
    return gputui


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    server = new_tmux()
    yield server
    server.end()


@pytest.mark.slow
def test_watch_shows_gpus_without_workers_and_ends_with_its_screen(
    gputui: Command, tmux: Tmux
) -> None:
    screen = tmux.open("watch", "--name", "lab", env=gputui.env)
    screen.sees("watching, no workers", "hosts 1/1", "gpu3")
    assert "✖" not in screen.text and "workers 0" not in screen.text
    assert gputui("ls").stdout.splitlines()[1].endswith("watching, no workers")
    assert json.loads(gputui("ls", "--json").stdout)[0]["state"] == "watching"
    second = tmux.open("--name", "lab", env=gputui.env)  # attaches, as `watch` does
    second.sees("watching, no workers", "attached 2")
    second.press("q", "ends with its last screen")
    second.press("l")
    assert second.exit_status == 0
    screen.press("q l")
    assert screen.exit_status == 0
    wait_until(lambda: "no cluster runs" in gputui("ls").stderr, 30)


@pytest.mark.slow
def test_a_watching_screen_that_is_killed_leaves_no_head(gputui: Command, tmux: Tmux) -> None:
    screen = tmux.open("--workers", "0", "--name", "lab", env=gputui.env)
    screen.sees("watching, no workers", "gpu3")
    screen.close()
    wait_until(lambda: "no cluster runs" in gputui("ls").stderr, 30)


@pytest.mark.slow
def test_what_is_kept_goes_on_without_a_screen(gputui: Command, tmux: Tmux) -> None:
    screen = tmux.open("watch", "--name", "lab", env=gputui.env)
    screen.sees("watching, no workers", "gpu3")
    screen.press("q", "keep watching")
    screen.press("k")
    assert screen.exit_status == 0
    again = tmux.open("watch", "--name", "lab", env=gputui.env)
    again.sees("watching, no workers", "gpu3")
    again.press("q", "leave it running")
    again.press("l")
    assert again.exit_status == 0
    assert gputui("down", "lab").returncode == 0


@pytest.mark.parametrize("words", [("up", "--workers", "0"), ("--run", "svd", "--workers", "0")])
def test_what_needs_workers_does_not_take_none(gputui: Command, words: tuple[str, ...]) -> None:
    done = gputui(*words)
    assert done.returncode == 2 and "--workers 0" in done.stderr


@pytest.mark.slow
def test_a_program_and_then_a_cluster_start_from_a_watching_screen(
    gputui: Command, tmux: Tmux
) -> None:
    screen = tmux.open("watch", "--name", "lab", env=gputui.env)
    screen.sees("watching, no workers", "gpu3")
    screen.type(":")
    screen.type("exec -n 2 sh -c 'echo $GPUTUI_GPUS of them; sleep 600'")
    screen.press("Enter", "exec:sh", "2 of them", "running")
    screen.press("1", "· sh -c echo")
    screen.press("Down Down Down Down Space +", "Start workers on localhost:gpu3")
    screen.press("y", "workers 1/1", "● running")
    screen.press("q", "stop it")
    screen.press("s", "is cancelled")
    screen.press("y")
    assert screen.exit_status == 0
    assert "no cluster runs" in gputui("ls").stderr
