"""The frame, driven by its keys on a simulated cluster."""

import gc
import re
from dataclasses import replace
from typing import NoReturn

import pytest
from textual.events import Key, Paste

from gputui.demo import cluster as simulated
from gputui.errors import UsageError
from gputui.protocol.frontend import SnapshotTaken
from gputui.tui.app import ScreenApp
from tests.tui.still import Driven, Still


class Demo(Driven):
    """A screen on a simulated cluster that takes no time to come up."""

    def __init__(self) -> None:
        self.app = ScreenApp(simulated.Demo((2, 4), troubles=False, pace=0.0).open)


async def test_the_fleet_shows_every_gpu_with_its_state() -> None:
    async with Demo().showing("node-01:gpu0") as on:
        rows = [f"gpu{gpu}" for gpu in range(4)] * 2
        await on.until(lambda: re.findall(r"(?m)^  (gpu\d) [●○◐] ", on.text) == rows)
        assert "SIMULATED" in on.text


async def test_a_view_asked_for_as_the_screen_closes_is_dropped_without_a_word() -> None:
    async with Demo().showing("node-01:gpu0") as demo:
        demo.app.go_to("hosts")
        demo.app.workers.cancel_all()
        await demo.pilot.pause()
        assert "node-01:gpu0" in demo.text
    gc.collect()  # a coroutine that was never awaited would fail the test here


async def test_leaving_asks_and_a_simulated_cluster_ends_with_its_screen() -> None:
    async with Demo().showing("node-01:gpu0") as demo:
        await demo.press("q", "ends with this screen")
        assert "leave it running" not in demo.text and "attach" not in demo.text
        await demo.press("l", then=lambda: not demo.app.is_running)
    assert demo.app.return_value == 0


async def test_a_link_that_can_never_open_ends_the_screen_at_once() -> None:
    async def refuse() -> NoReturn:
        raise UsageError("never")

    on = Driven()
    on.app = ScreenApp(refuse)
    async with on.showing():
        await on.until(lambda: not on.app.is_running)
    assert str(on.app.failure) == "never"


async def test_zooming_leads_from_gpus_over_hosts_to_cells_and_says_where_it_ends() -> None:
    async with Demo().showing("node-01:gpu0") as on:
        await on.press("Z", "host zoom")
        await on.press("Z", "heat zoom")
        await on.press("Z", "this is the widest zoom: z zooms in")
        await on.press(["z", "z"], "GPU ")
        await on.press("z", "this is the closest zoom: Z zooms out")


@pytest.mark.parametrize(
    ("key", "text"), [("z", "closest zoom"), ("question_mark", "IN THE FLEET")]
)
async def test_a_key_that_comes_with_a_snapshot_is_drawn_before_it_is_taken_in(
    key: str, text: str
) -> None:
    async with Still().showing("h:gpu0") as on:
        seen, take = list[str](), on.app.live.take
        on.app.live.take = lambda taken: (seen.append(on.text), take(taken))[1]  # type: ignore[method-assign]
        assert text not in on.text
        on.link.put(SnapshotTaken(replace(on.snapshot, sequence=on.snapshot.sequence + 1)))
        on.app.post_message(Key(key, None))
        await on.until(lambda: seen)
        assert text in seen[0]


async def test_a_command_with_an_argument_is_begun_by_the_palette() -> None:
    async with Demo().showing("node-01:gpu0") as demo:
        await demo.press(["ctrl+p", *"remove", "enter"], then=lambda: demo.app.prompt.active)
        await demo.press([*"node-02", "enter"], "Remove node-02")
        await demo.press("y", "hosts 1/1")


async def test_every_theme_can_be_had() -> None:
    async with Demo().showing("node-01:gpu0") as demo:
        themes = set()
        for _ in range(5):
            await demo.pilot.press("T")
            themes.add(demo.app.theme)
        assert {"okabe-ito", "ansi-dark", "textual-light"} <= themes
        assert "node-01:gpu0" in demo.text


async def test_a_megabyte_pasted_into_the_filter_is_cut() -> None:
    async with Demo().showing("node-01:gpu0") as demo:
        await demo.pilot.press("slash")
        demo.app.prompt.post_message(Paste("x\x1b" * 500_000))
        await demo.until(lambda: demo.app.prompt.value)
        assert len(demo.app.prompt.value) <= 500
        assert "\x1b" not in demo.app.prompt.value
