"""The frame, driven by its keys on a simulated cluster."""

import gc
import re
import subprocess
import sys
from typing import NoReturn

import pytest
from textual.events import Paste
from textual.pilot import Pilot

from gputui.demo import cluster as simulated
from gputui.errors import UsageError
from gputui.tui.app import ScreenApp
from gputui.tui.dialogs import Dialog
from tests.tui.still import press, seen, sees, showing, until


class Demo:
    """A screen on a simulated cluster that takes no time to come up."""

    def __init__(self) -> None:
        self.app = ScreenApp(simulated.Demo((2, 4), troubles=False, pace=0.0).open)


async def up(pilot: "Pilot[int]") -> None:
    await sees(pilot, "node-01:gpu0")


def in_dialog(pilot: "Pilot[int]") -> bool:
    return isinstance(pilot.app.screen, Dialog)


async def test_the_fleet_shows_every_gpu_with_its_state() -> None:
    async with showing(Demo(), "node-01:gpu0") as pilot:
        rows = [f"gpu{gpu}" for gpu in range(4)] * 2
        await until(pilot, lambda: re.findall(r"(?m)^  (gpu\d) [●○◐] ", seen(pilot)) == rows)
        assert "SIMULATED" in seen(pilot)


async def test_a_view_asked_for_as_the_screen_closes_is_dropped_without_a_word() -> None:
    demo = Demo()
    async with showing(demo, "node-01:gpu0") as pilot:
        demo.app.go_to("hosts")
        demo.app.workers.cancel_all()
        await pilot.pause()
        assert "node-01:gpu0" in seen(pilot)
    gc.collect()  # a coroutine that was never awaited would fail the test here


async def test_leaving_asks_and_a_simulated_cluster_ends_with_its_screen() -> None:
    demo = Demo()
    async with showing(demo, "node-01:gpu0") as pilot:
        await press(pilot, "q", "ends with this screen")
        assert "leave it running" not in seen(pilot) and "attach" not in seen(pilot)
        await press(pilot, "l", then=lambda: not demo.app.is_running)
    assert demo.app.return_value == 0


async def test_a_link_that_can_never_open_ends_the_screen_at_once() -> None:
    async def refuse() -> NoReturn:
        raise UsageError("never")

    app = ScreenApp(refuse)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not app.is_running)
    assert str(app.failure) == "never"


async def test_zooming_leads_from_gpus_over_hosts_to_cells_and_says_where_it_ends() -> None:
    async with showing(Demo(), "node-01:gpu0") as pilot:
        await press(pilot, "Z", "host zoom")
        await press(pilot, "Z", "heat zoom")
        await press(pilot, "Z", "this is the widest zoom: z zooms in")
        await press(pilot, ["z", "z"], "GPU ")
        await press(pilot, "z", "this is the closest zoom: Z zooms out")


async def test_a_command_with_an_argument_is_begun_by_the_palette() -> None:
    demo = Demo()
    async with showing(demo, "node-01:gpu0") as pilot:
        await press(pilot, ["ctrl+p", *"remove", "enter"], then=lambda: demo.app.prompt.active)
        await press(pilot, [*"node-02", "enter"], "Remove node-02")
        await press(pilot, "y", "hosts 1/1")


async def test_every_theme_can_be_had() -> None:
    demo = Demo()
    async with showing(demo, "node-01:gpu0") as pilot:
        themes = set()
        for _ in range(5):
            await pilot.press("T")
            themes.add(demo.app.theme)
        assert {"okabe-ito", "ansi-dark", "textual-light"} <= themes
        assert "node-01:gpu0" in seen(pilot)


async def test_a_megabyte_pasted_into_the_filter_is_cut() -> None:
    demo = Demo()
    async with showing(demo, "node-01:gpu0") as pilot:
        await pilot.press("slash")
        demo.app.prompt.post_message(Paste("x\x1b" * 500_000))
        await until(pilot, lambda: demo.app.prompt.value)
        assert len(demo.app.prompt.value) <= 500
        assert "\x1b" not in demo.app.prompt.value


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
