"""`gputui watch`: the screen on hosts without workers, in real terminals."""

import json

import pytest

from tests.system.conftest import Command, wait_until

pytestmark = pytest.mark.usefixtures("four_gpus")


@pytest.mark.slow
def test_watch_shows_gpus_without_workers_and_ends_with_its_screen(gputui: Command) -> None:
    screen = gputui.open("watch", "--name", "lab")
    screen.sees("watching, no workers", "hosts 1/1", "gpu3")
    assert "✖" not in screen.text and "workers 0" not in screen.text
    assert gputui("ls").stdout.splitlines()[1].endswith("watching, no workers")
    assert json.loads(gputui("ls", "--json").stdout)[0]["state"] == "watching"
    second = gputui.open("--name", "lab")  # attaches, as `watch` does
    second.sees("watching, no workers", "attached 2")
    screen.sees("attached 2")
    second.press("q", "ends with its last screen")
    second.press("l")
    assert second.exit_status == 0
    screen.sees_not("attached 2")
    screen.press("q", "leave")
    screen.press("l")
    assert screen.exit_status == 0
    assert "no cluster runs" in gputui("ls").stderr  # so that its name is free for other hosts


@pytest.mark.slow
def test_a_watching_screen_that_is_killed_leaves_no_head(gputui: Command) -> None:
    screen = gputui.open("--workers", "0", "--name", "lab")
    screen.sees("watching, no workers", "gpu3")
    screen.close()
    wait_until(lambda: "no cluster runs" in gputui("ls").stderr, 30)


@pytest.mark.slow
def test_what_is_kept_goes_on_without_a_screen(gputui: Command) -> None:
    screen = gputui.open("watch", "--name", "lab")
    screen.sees("watching, no workers", "gpu3")
    screen.press("q", "keep watching")
    screen.press("k")
    assert screen.exit_status == 0
    again = gputui.open("watch", "--name", "lab")
    again.sees("watching, no workers", "gpu3")
    again.press("q", "leave it running")
    again.press("l")
    assert again.exit_status == 0
    assert gputui("down", "lab").returncode == 0


@pytest.mark.slow
def test_a_program_and_then_a_cluster_start_from_a_watching_screen(gputui: Command) -> None:
    screen = gputui.open("watch", "--name", "lab")
    screen.sees("watching, no workers", "gpu3")
    program = "exec -n 2 sh -c 'echo $GPUTUI_GPUS of them; sleep 600'"
    screen.press(f":{program}\r", "exec:sh", "2 of them", "running")
    screen.press("1", "· sh -c echo")
    screen.press("jjjj +", "Start workers on localhost:gpu3")
    screen.press("y", "workers 1/1", "● running")
    screen.press("q", "stop it")
    screen.press("s", "is cancelled")
    screen.press("y")
    assert screen.exit_status == 0
    assert "no cluster runs" in gputui("ls").stderr
