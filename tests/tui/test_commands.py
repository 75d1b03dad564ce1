"""The registry, the palette and the help of it, and every command called on a demo."""

from collections import Counter
from pathlib import Path

import pytest
from textual.worker import Worker

from gputui.tui.commands import Command, Registry
from gputui.tui.commands.actions import COMMANDS as EVERYWHERE
from gputui.tui.commands.changes import COMMANDS as CHANGES
from gputui.tui.dialogs import Page
from gputui.tui.dialogs.pages import found as matches
from gputui.tui.dialogs.pages import help_of
from gputui.tui.views import VIEWS, load_view
from tests.tui.build import device, host, snapshot
from tests.tui.still import Driven, Still
from tests.tui.test_app import Demo

ARGUMENTS = {
    "scale": "3",
    "retire": "node-01:gpu0",
    "start": "node-01",
    "restart": "all",
    "add": "node-99",
    "remove": "node-02",
    "retry": "node-01",
    "filter": "gpu0",
    "theme": "okabe-ito",
    "columns": "util mem",
    "sort": "temp",
}
ENDING = ("quit", "stop")


def registry_of_all() -> Registry:
    app = Still().app
    for name in VIEWS:
        app.registry.add(load_view(name).COMMANDS, name)
    return app.registry


def test_no_two_commands_share_a_name_or_in_one_view_a_key() -> None:
    own = [(name, each) for name in VIEWS for each in load_view(name).COMMANDS]
    every = [*(("", each) for each in (*EVERYWHERE, *CHANGES)), *own]
    names = Counter(command.name for _, command in every)
    keys = Counter((view, command.key) for view, command in every if command.key)
    assert {*names.values(), *keys.values()} == {1}


def test_a_view_s_own_key_goes_before_one_for_everywhere() -> None:
    registry = Registry([Command("a", "", print, "x")])
    registry.add([Command("b", "", print, "x")], "logs")
    own, general = registry.by_key("x", "logs"), registry.by_key("x", "fleet")
    assert own is not None and own.name == "b"
    assert general is not None and general.name == "a"


def test_every_command_says_what_it_does_in_a_line() -> None:
    assert all(0 < len(command.does) <= 70 for command in registry_of_all())


async def escape(on: Driven, others: frozenset[Worker[object]]) -> None:
    """Press escape whenever something is asked, until no other than these workers goes on."""
    app = on.app

    def asks() -> bool:
        return len(app.screen_stack) > 1 or app.prompt.active

    await on.pilot.press("escape")
    while asks() or not others.issuperset(app.workers):
        await on.until(lambda: asks() or others.issuperset(app.workers))
        if asks():
            await on.pilot.press("escape")


@pytest.mark.parametrize("view", ["", *VIEWS])
async def test_every_command_can_be_called(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Demo().showing("node-01:gpu0", size=(120, 40)) as on:
        app = on.app
        others = frozenset(app.workers)
        for command in [each for each in registry_of_all() if each.view == view]:
            if view and app.view is not app.visited.get(view):
                await app.show_view(view)
            if command.name in ENDING:
                continue
            await app.call(command, ARGUMENTS.get(command.name, ""))
            await escape(on, others)
        assert app.is_running


@pytest.mark.parametrize(
    ("wanted", "does", "found"),
    [
        ("wor", {"fewer": "Take a worker away", "workers": "Go there"}, ["workers", "fewer"]),
        ("ret", {"retry": "", "retire": ""}, ["retire", "retry"]),
        ("wkr", {"add": "Want a king's ransom"}, []),
    ],
    ids=["a name before a description", "what is not to be had last", "no letters far apart"],
)
def test_the_palette_finds(wanted: str, does: dict[str, str], found: list[str]) -> None:
    commands = [Command(name, text, print) for name, text in does.items()]
    seen = matches(commands, wanted, lambda each: "x" if each.name == "retry" else "")
    assert [each.name for each in seen] == found


async def test_the_palette_says_why_a_command_is_not_to_be_had() -> None:
    async with Still().showing("h:gpu0") as on:
        await on.press(["ctrl+p", *"retry"], "not now: no host has failed or is reconnecting")


async def test_a_command_with_nothing_it_needs_is_called_at_once() -> None:
    async with Still().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["ctrl+p", *"columns", "enter"], ":columns state util")


async def test_the_palette_closes_with_its_own_key() -> None:
    async with Still().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["ctrl+p"], "find a command")
        await on.pilot.press("ctrl+p")
        await on.sees_not("find a command")


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
