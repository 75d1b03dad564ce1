"""The line of choices that a dialog ends with: its cursor, keys and clicks."""

import pytest

from gputui.protocol.frontend import Stop
from gputui.tui.dialogs import Modal
from tests.tui.still import Still, press, showing, until


@pytest.mark.parametrize(
    "keys",
    [
        ("right", "enter"),
        ("tab", "enter"),
        ("left", "tab", "tab", "tab", "shift+tab", "enter"),
        ("s",),
    ],
)
async def test_a_choice_is_taken_by_its_key_and_under_the_cursor(keys: tuple[str, ...]) -> None:
    on = Still()
    async with showing(on, "gpu0", size=(100, 30)) as pilot:
        await press(pilot, "q", "[l] leave it running", "[s] stop it", "[c] cancel")
        await press(pilot, [*keys], then=lambda: on.link.asked == [Stop(0)])


@pytest.mark.parametrize("text", ["[c] cancel", "[s] stop it"])
async def test_a_click_takes_the_choice_that_it_hits(text: str) -> None:
    on = Still()
    async with showing(on, "gpu0", size=(100, 30)) as pilot:
        await press(pilot, "q", text)
        await pilot.click(
            ".choices", offset=("[l] leave it running   [s] stop it   [c]".index(text[:3]) + 4, 0)
        )
        await until(pilot, lambda: not isinstance(on.app.screen, Modal))
        assert on.link.asked == ([Stop(0)] if text.startswith("[s]") else [])


async def test_a_form_is_left_and_run_from_its_line_of_choices() -> None:
    on = Still()
    async with showing(on, "gpu0", size=(120, 40)) as pilot:
        await press(pilot, "c", "[^r] run", "on 1 worker (cupy)")
        await pilot.press("shift+tab", "enter")
        await until(pilot, lambda: not isinstance(on.app.screen, Modal))
        assert on.link.asked == []
        await press(pilot, "c", "[^r] run", "on 1 worker (cupy)")
        await pilot.press("shift+tab", "left", "left", "enter")
        await until(pilot, lambda: [type(each).__name__ for each in on.link.asked] == ["StartRun"])
