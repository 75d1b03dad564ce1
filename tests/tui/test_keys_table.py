"""A key means one thing in all views, and says so where it has nothing to do."""

import pytest

from gputui.tui.commands import Command, key_name
from gputui.tui.commands.actions import COMMANDS as EVERYWHERE
from gputui.tui.commands.changes import COMMANDS as CHANGES
from gputui.tui.views import VIEWS, load_view
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still, press, seen, showing

KEYS = {
    "/": "filter",
    ":": "command",
    "^p": "find",
    "?": "help",
    "!": "alarms",
    "q": "quit",
    "esc": "back",
    "[": "earlier",
    "]": "later",
    "{": "minute-back",
    "}": "minute",
    "P": "playback",
    "p": "pause",
    "^l": "redraw",
    "^z": "suspend",
    "T": "theme",
    "y": "copy",
    "S": "screenshot",
    "A": "answer",
    "^n": "start-again",
    "c": "run",
    "+": "more",
    "-": "fewer",
    "x": "retire cancel",
    "a": "start",
    "R": "restart",
    "r": "retry-host repeat",
    "e": "edit",
    "=": "compare",
    "s": "sort",
    "v": "reverse",
    "space": "mark",
    "z": "zoom-in",
    "Z": "zoom-out",
    "U": "fold-all",
    "m": "metric",
    "o": "outlier",
    "C": "columns",
    "t": "span device-span times",
    "f": "follow",
    "b": "only",
    "n": "next",
    "N": "previous",
    "w": "wrap",
    "W": "why",
}
"""What each key calls, in whatever view: two commands share one only where they do the same."""


def commands() -> list[Command]:
    own = [command for name in VIEWS for command in load_view(name).COMMANDS]
    return [command for command in (*EVERYWHERE, *CHANGES, *own) if command.key]


def test_every_key_means_what_the_table_says_in_every_view() -> None:
    digits = {key: name for name, (key, _) in VIEWS.items() if key}
    table = {key: set(names.split()) for key, names in {**KEYS, **digits}.items()}
    for command in commands():
        base = command.name.partition("-")[0]
        assert {command.name, base} & table.get(key_name(command.key), set()), command.name


@pytest.mark.parametrize(("view", "key", "said"), [("1", "w", "logs"), ("4", "s", "sort")])
async def test_a_key_of_another_view_says_where_it_does_something(
    view: str, key: str, said: str
) -> None:
    on = Still(snapshot(host("h", device(0)), workers=(worker(0),)))
    async with showing(on, "h:gpu0", size=(100, 24)) as pilot:
        await press(pilot, ["4", view, key], "view only", said)


@pytest.mark.parametrize("view", "123456")
async def test_80_columns_have_a_line_of_views_and_one_of_what_can_be_done(view: str) -> None:
    on = Still(snapshot(host("h", device(0)), workers=(worker(0),)))
    async with showing(on, "h:gpu0") as pilot:
        await press(pilot, [view], "c run : command ? help q quit", "0hosts 1fleet")
        views, actions = seen(pilot).splitlines()[-2:]
        assert views.split()[-1] == "uusers"
        own = {"1": "z zoom", "3": "/ filter", "4": "f follow"}.get(view, "s sort")
        assert own in actions
