"""The help: all commands, and how it is read and closed."""

import pytest

from gputui.tui.dialogs import Page
from gputui.tui.dialogs.pages import help_of
from gputui.tui.views import VIEWS
from tests.tui.build import device, host, snapshot
from tests.tui.still import Still
from tests.tui.test_commands import registry_of_all


@pytest.mark.parametrize("view", VIEWS)
def test_every_command_of_a_view_is_in_its_help_whole(view: str) -> None:
    lines = help_of(view, registry_of_all(), None).splitlines()
    for command in registry_of_all().in_view(view):
        assert any(f":{command.name} " in line for line in lines), command.name


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
async def test_the_help_is_read_to_its_end_and_closed_by_its_own_key(size: tuple[int, int]) -> None:
    async with Still(snapshot(host("h", device(0)))).showing("h:gpu0", size=size) as on:
        await on.press(["question_mark"], "IN THE FLEET VIEW", ":zoom-in", "esc closes")
        await on.press("G", "util<20", "restarts")
        await on.press(["j", "k", "pageup", "g"], "IN THE FLEET VIEW")
        await on.press(["question_mark"], then=lambda: not isinstance(on.app.screen, Page))


async def test_the_help_tells_what_the_filter_of_its_view_can_ask_for() -> None:
    async with Still(snapshot(host("h", device(0)))).showing(size=(100, 60)) as on:
        for key, told in (("4", "worker level"), ("2", "pid"), ("1", "model user alarm")):
            await on.press([key, "question_mark", "G"], "FILTERS, AFTER /", told)
            await on.pilot.press("escape")
