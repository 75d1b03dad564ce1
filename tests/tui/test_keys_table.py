"""A key means one thing in all views, and the line of keys offers what can be done now."""

import pytest

from gputui.model.snapshot import HostState, Snapshot
from gputui.tui.commands import Command, key_name
from gputui.tui.commands.actions import COMMANDS as EVERYWHERE
from gputui.tui.commands.changes import COMMANDS as CHANGES
from gputui.tui.views import VIEWS, load_view
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still

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
    "r": "retry repeat",
    "e": "edit",
    "s": "sort",
    "v": "reverse",
    "space": "mark",
    "z": "zoom-in",
    "Z": "zoom-out",
    "m": "metric",
    "o": "outlier",
    "C": "columns",
    "t": "span device-span",
    "n": "next",
    "N": "previous",
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


@pytest.mark.parametrize(
    ("view", "key", "said"),
    [
        ("1", "n", "next: in the logs view only"),
        ("4", "s", "users views only"),
        ("2", "space", "mark: in the fleet and runs views only"),
    ],
)
async def test_a_key_of_another_view_says_where_it_does_something(
    view: str, key: str, said: str
) -> None:
    async with Still().showing("h:gpu0", size=(100, 24)) as on:
        await on.press(["4", view, key], said)


END = "c run : command ? help q quit"
OWN = {"1": "z zoom", "3": "/ filter", "4": "/ filter"}


@pytest.mark.parametrize("width", [60, 80, 200])
async def test_the_line_of_keys_has_what_can_be_done_and_ends_with_run_command_help_and_quit(
    width: int,
) -> None:
    async with Still().showing(size=(width, 24)) as on:
        for key in "123456":
            own = OWN.get(key, "s sort") if width > 60 else ""
            await on.press([key], END, own, "0hosts" if width == 80 else "")
            views, actions = on.text.splitlines()[-2:]
            assert actions.rstrip().endswith(END) and own in actions
            assert width != 80 or views.split()[-1] == "uusers"


STARTING = snapshot(host("h", state=HostState.CONNECTING))
FAILED = snapshot(host("h", state=HostState.FAILED, reason="no route"))
RUNNING = snapshot(host("h", device(0), device(1)), workers=(worker(0),))
WIDE = (200, 30)


def offered(on: Still) -> str:
    return on.text.splitlines()[-1]


def is_dim(on: Still, key: str) -> bool:
    """Return whether a key is drawn as one that cannot be pressed."""
    return any((f" {key}", "off") in line for line in on.app.bottom._keys.lines)


@pytest.mark.parametrize("state", [STARTING, FAILED])
@pytest.mark.parametrize("view", "0123456")
async def test_without_workers_nothing_is_offered_that_needs_one(
    state: Snapshot, view: str
) -> None:
    async with Still(state).showing("workers 0/0", size=WIDE) as on:
        await on.press([view], "+ scale", "q quit")
        assert "retire" not in offered(on) and "restart" not in offered(on)
        assert is_dim(on, "c") and not is_dim(on, "q")
        await on.press("c", "run: no worker is up yet")


async def test_workers_are_retired_where_the_cursor_is_on_one_or_on_their_host() -> None:
    async with Still(RUNNING).showing("x retire R restart", "h ● ready", size=WIDE) as on:
        assert not is_dim(on, "c")
        await on.press("j", "x retire R restart", "h:gpu0 ○ idle")
        await on.press("j", "h:gpu1 · free")
        await on.sees_not("x retire")
        await on.press("2", "1 worker", "x retire")
        await on.pilot.press("6")
        await on.sees_not("x retire", "r repeat", "x cancel")


async def test_a_screen_that_only_reads_offers_no_change() -> None:
    async with Still(RUNNING, readonly=True).showing("read-only", "/ filter", size=WIDE) as on:
        for text in ("retire", "restart", "scale", "c run"):
            assert text not in offered(on)
