"""The first minute: whose GPUs to look at, and what to press next."""

import subprocess
import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gputui.client.head_connection import HeadConnection
from gputui.demo.cluster import Demo
from gputui.errors import UsageError
from gputui.tui.app import ScreenApp
from gputui.tui.attachment import OpenConnection
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still, seen, sees, showing, until


class Started:
    """A screen that offers what to start; what was started is kept."""

    def __init__(self, choices: Path | None = None) -> None:
        self.begun: list[tuple[str, str]] = []
        self.app = ScreenApp(self._never, first=self._begin, choices=choices)

    def _begin(self, kind: str, text: str) -> OpenConnection:
        if text.endswith("wrong.txt"):
            raise UsageError("wrong.txt: no such file")
        self.begun.append((kind, text))

        async def open_connection() -> HeadConnection:
            return await Demo((2, 4), pace=0.0).open()

        return open_connection

    async def _never(self) -> HeadConnection:
        raise AssertionError("nothing was chosen yet")


async def comes_up(started: Started, pilot: Pilot[int], *begun: tuple[str, str]) -> None:
    await sees(pilot, "node-01")
    assert started.begun == list(begun)


async def test_this_machine_is_chosen_with_one_key() -> None:
    started = Started()
    async with started.app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "No GPU was found here", "this machine", "a hosts file", "the demo")
        await pilot.press("enter")
        await comes_up(started, pilot, ("here", ""))


async def test_a_hosts_file_is_typed_with_tab_and_a_wrong_one_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.txt").write_text("gpu-a\n")
    started = Started()
    async with showing(started, "a hosts file") as pilot:
        await press(pilot, ["j", "enter"], "Which hosts file, or hosts?")
        await press(pilot, [*"wrong.txt", "enter"], "no such file", "a hosts file")
        await press(pilot, ["j", "enter"], "Which hosts file, or hosts?")
        await press(pilot, ["c", "tab"], "cluster.txt")
        await pilot.press("enter")
        await comes_up(started, pilot, ("file", "cluster.txt"))


async def test_escape_leaves_without_anything_started() -> None:
    started = Started()
    async with showing(started, "the demo") as pilot:
        await press(pilot, ["escape"], then=lambda: not started.app.is_running)
    assert started.app.return_value == 0 and not started.begun


async def test_the_demo_asks_nothing_and_keeps_its_choices_to_itself(tmp_path: Path) -> None:
    file = tmp_path / "screen.json"
    started = Started(file)
    async with showing(started, "the demo") as pilot:
        await pilot.press("G", "down", "down", "enter")
        await comes_up(started, pilot, ("demo", ""))
        assert not started.app.watched.questions
        await press(pilot, "T", then=lambda: (tmp_path / "demo.json").exists())
    assert not file.exists()


def test_the_hosts_that_an_ssh_configuration_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu-c gpu-d # not a comment for OpenSSH\n")
    config = tmp_path / "config"
    config.write_text(
        f'Host gpu-a "gpu-b"\n HostName 10.0.0.1\nHost *.lab !web gpu-?\nHost=gpu-a\n'
        f"Include {tmp_path}/mor*\nHost *\n"
    )
    assert named_hosts(config)[:4] == ("gpu-a", "gpu-b", "gpu-c", "gpu-d")
    assert named_hosts(tmp_path / "none") == ()


ENDS = dict.fromkeys((60, 80, 200), "c run : command ? help q quit")


@pytest.mark.parametrize("width", ENDS)
async def test_the_line_of_keys_always_ends_with_run_command_help_and_quit(width: int) -> None:
    on = Still(snapshot(host("h", device()), workers=(worker(),)))
    async with on.app.run_test(size=(width, 24)) as pilot:
        for key in "123456":
            await press(pilot, [key], ENDS[width])
            assert seen(pilot).splitlines()[-1].rstrip().endswith(ENDS[width])


SCREEN = "gputui.tui.app, gputui.tui.views.lists"
LATER = (
    "gputui.protocol",
    "gputui.client.head_connection",
    "gputui.tui.dialogs",
    "gputui.tui.commands.changes",
    "gputui.tui.commands.person",
    "gputui.presets",
    "gputui.folders",
    "importlib.metadata",
)


@pytest.mark.parametrize(
    ("imported", "later"),
    [(SCREEN, (*LATER, "gputui.process.procfs")), (f"gputui.cli.open, {SCREEN}", LATER)],
)
def test_the_first_frame_waits_for_no_message_dialog_or_change(
    imported: str, later: tuple[str, ...]
) -> None:
    code = f"import sys, {imported}\nprint([m for m in sys.modules if m.startswith({later})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
