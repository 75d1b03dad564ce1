"""The palette: what is found, in what order, and why a command is not to be had."""

from gputui.tui.commands import Command
from gputui.tui.dialogs.pages import found
from gputui.tui.dialogs.run import RunDialog
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still, press, sees, sees_not, showing, until


def command(name: str, does: str = "") -> Command:
    return Command(name, does, print)


def names(wanted: str, *commands: Command, missing: str = "") -> list[str]:
    def why_not(each: Command) -> str:
        return "not here" if each.name == missing else ""

    return [each.name for each in found(commands, wanted, why_not)]


def test_a_name_goes_before_a_word_of_what_it_does() -> None:
    commands = command("fewer", "Take a worker away"), command("workers", "Go there")
    assert names("wor", *commands) == ["workers", "fewer"]


def test_what_is_not_to_be_had_comes_last() -> None:
    commands = command("retry"), command("retire")
    assert names("ret", *commands, missing="retry") == ["retire", "retry"]


def test_letters_scattered_over_a_description_find_nothing() -> None:
    assert names("wkr", command("add", "Want a king's ransom")) == []


def still() -> Still:
    return Still(snapshot(host("h", device()), workers=(worker(),)))


async def test_the_palette_says_why_a_command_is_not_to_be_had() -> None:
    async with showing(still(), "h:gpu0") as pilot:
        await press(pilot, ["ctrl+p", *"retry"], "not now: no host has failed or is silent")


async def test_a_preset_in_the_palette_opens_its_form() -> None:
    on = still()
    async with showing(on, "h:gpu0", size=(100, 30)) as pilot:
        await pilot.press("ctrl+p", *"run svd", "enter")
        await until(pilot, lambda: isinstance(on.app.screen, RunDialog))
        await sees(pilot, "rows", "gputui --attach lab --run svd")


async def test_a_command_with_nothing_it_needs_is_called_at_once() -> None:
    async with showing(still(), "h:gpu0", size=(100, 30)) as pilot:
        await press(pilot, ["ctrl+p", *"columns", "enter"], "temperature in °C")


async def test_the_palette_closes_with_its_own_key() -> None:
    async with showing(still(), "h:gpu0", size=(100, 30)) as pilot:
        await press(pilot, ["ctrl+p"], "find a command")
        await pilot.press("ctrl+p")
        await sees_not(pilot, "find a command")
