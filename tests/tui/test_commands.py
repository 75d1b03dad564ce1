"""The registry, and every command in it called on a simulated cluster."""

from collections import Counter
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.worker import Worker

from gputui.tui.commands import Command, Registry
from gputui.tui.commands.actions import COMMANDS as EVERYWHERE
from gputui.tui.commands.changes import COMMANDS as CHANGES
from gputui.tui.views import VIEWS, load_view
from tests.tui.still import until
from tests.tui.test_app import Demo, up

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
    "search": "step",
}
ENDING = ("quit", "stop")


def registry_of_all() -> Registry:
    app = Demo().app
    for name in VIEWS:
        app.know(name)
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


async def escape(pilot: "Pilot[int]", others: frozenset[Worker[object]]) -> None:
    """Press escape whenever something is asked, until no other than these workers goes on."""
    app = pilot.app

    def asks() -> bool:
        return len(app.screen_stack) > 1 or app.prompt.active

    await pilot.press("escape")
    while asks() or not others.issuperset(app.workers):
        await until(pilot, lambda: asks() or others.issuperset(app.workers))
        if asks():
            await pilot.press("escape")


@pytest.mark.parametrize("view", ["", *VIEWS])
async def test_every_command_can_be_called(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo = Demo()
    app = demo.app
    async with app.run_test(size=(120, 40)) as pilot:
        await up(pilot)
        others = frozenset(app.workers)
        for command in [each for each in registry_of_all() if each.view == view]:
            if view and app.view is not app.visited.get(view):
                await app.show_view(view)
            if command.name in ENDING:
                continue
            await app.call(command, ARGUMENTS.get(command.name, ""))
            await escape(pilot, others)
        assert app.is_running
