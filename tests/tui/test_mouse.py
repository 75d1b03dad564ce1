"""The mouse: rows, cells, the command line and the wheel."""

from textual.events import MouseScrollDown

from gputui.tui.widgets import Table
from gputui.tui.widgets.heat import HeatPane
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still


def still(gpus: int = 40) -> Still:
    devices = [device(number) for number in range(gpus)]
    return Still(snapshot(host("h", *devices), workers=tuple(map(worker, range(gpus)))))


async def test_a_click_goes_to_a_row_and_another_one_opens_it() -> None:
    async with still().showing("gpu3", size=(100, 30)) as on:
        await on.pilot.click("FleetView Table", offset=(5, 4))
        await on.until(lambda: on.app.view and on.app.view.targets() == ("h:gpu2",))
        await on.pilot.click("FleetView Table", offset=(5, 4))
        await on.sees("fleet › h › h:gpu2")


async def test_a_click_into_the_command_line_puts_the_cursor_on_the_letter_that_was_hit() -> None:
    async with still().showing("gpu3", size=(100, 30)) as on:
        await on.press(["colon", *"run svd"], ":run svd")
        line = on.app.prompt.region
        shown = on.text.splitlines()[line.y]
        await on.pilot.click(offset=(shown.index("svd"), line.y))
        await on.until(lambda: on.app.prompt.cursor_position == len("run "))
        assert on.app.prompt.cursor_screen_offset.x == shown.index("svd")


async def test_the_wheel_moves_through_the_rows() -> None:
    async with still().showing("gpu3", size=(100, 30)) as on:
        table = on.app.query_one("FleetView Table", Table)
        await on.pilot._post_mouse_events([MouseScrollDown], "FleetView Table", offset=(5, 5))
        await on.until(lambda: table.cursor == "h:gpu2")


async def test_a_click_on_a_cell_leads_to_its_gpu() -> None:
    async with still().showing("gpu3", size=(100, 30)) as on:
        await on.press(["Z", "Z"], "heat zoom")
        heat = on.app.query_one(HeatPane)
        await on.sees("+□□□")
        await on.pilot.click(heat, offset=(9, 0))
        await on.sees("h:gpu2 ○ idle")
        await on.pilot.click(heat, offset=(9, 0))
        await on.sees("gpu zoom")
        await on.until(lambda: on.app.view and on.app.view.targets() == ("h:gpu2",))
