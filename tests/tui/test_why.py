"""The page of `why`: it stands at once, says what it waits for, and how a silent head does."""

from dataclasses import replace

import pytest

from gputui.model.examination import ExaminedHost, ExaminedScheduler, ExaminedWorker
from gputui.model.snapshot import ClusterState
from gputui.protocol.frontend import Examine, Examined
from gputui.protocol.shared import Refused
from gputui.tui.dialogs.pages import Why
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still

STOPPED = ExaminedHost("h", (ExaminedWorker("h:gpu0", 4711, "T"),))
SAID = "worker h:gpu0 is stopped by a signal: kill -CONT 4711"


def screen(**more: object) -> Still:
    on = Still(replace(snapshot(host("h", device(0)), workers=(worker(0),)), **more))
    on.link.reply = Examined(0, (STOPPED,), ExaminedScheduler(1, "S"))
    return on


@pytest.mark.parametrize("keys", [["W"], ["colon", *"why", "enter"]])
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
async def test_the_page_says_the_verdicts_copies_them_and_asks_again(
    keys: list[str], size: tuple[int, int]
) -> None:
    async with screen().showing("h:gpu0", size=size) as on:
        await on.pilot.press(*keys)
        await on.sees("worker h:gpu0 is stopped", "pid 4711, state T", "y copy", "esc closes")
        await on.pilot.press("y")
        assert on.app.clipboard.startswith(f"{SAID}\n    pid 4711, state T")
        on.link.reply = Examined(0, (), ExaminedScheduler(1, "T"))
        await on.press("r", "the scheduler's process is stopped")
        await on.press(["escape"], then=lambda: not isinstance(on.app.screen, Why))
    assert [type(each) for each in on.link.asked] == [Examine, Examine]


async def test_the_page_stands_at_once_and_says_what_it_waits_for() -> None:
    on = screen()
    on.link.answers.clear()
    async with on.showing("h:gpu0", size=(100, 24)):
        await on.press("W", "waits for the head, the scheduler and 1 agent:", "3 s at most")
        on.link.answers.set()
        await on.sees(SAID)


async def test_a_head_that_does_not_answer_is_said_on_the_page() -> None:
    on = screen()
    on.link.reply = Refused(0, "gone")
    async with on.showing("h:gpu0", size=(100, 24)):
        await on.press("W", "the head of lab (process 1)")
        await on.pilot.press("j", "k", "G", "g", "escape")
        await on.sees_not("the head of lab (process 1)")


async def test_hosts_that_are_only_watched_are_accused_of_nothing() -> None:
    async with screen(state=ClusterState.WATCHING, workers=()).showing(
        "h:gpu0", size=(100, 24)
    ) as on:
        await on.press("W", "nothing: no worker is wanted here")
