"""A screen whose head goes away says so, keeps what it showed, and looks for it again."""

from dataclasses import replace

import pytest

from gputui.errors import HeadError
from gputui.model.snapshot import Snapshot
from gputui.protocol.frontend import SnapshotTaken, SubscribeLogs
from gputui.tui import app, attachment
from gputui.tui.app import ScreenApp
from tests.tui.build import EPOCH, device, host, snapshot
from tests.tui.still import StillLink, press, sees, sees_not, showing, until

GONE = "has ended; its workers end by themselves"


class Heads:
    """Heads one after the other: links, or errors where none is to be had."""

    def __init__(self, *opened: StillLink | HeadError) -> None:
        self._opened = list(opened)
        self.app = ScreenApp(self.open, clock=lambda: EPOCH)

    async def open(self) -> StillLink:
        opened = self._opened.pop(0)
        if isinstance(opened, HeadError):
            raise opened
        return opened


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "RECONNECT_S", 0.2)


def head_of(*names: str) -> StillLink:
    link = StillLink()
    link.put(SnapshotTaken(fleet(*names)))
    return link


def fleet(*names: str) -> Snapshot:
    return snapshot(*(host(name, device(0, name)) for name in names))


async def test_a_head_that_is_gone_is_a_banner_over_what_was_shown_last_dim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachment, "RECONNECT_S", 60.0)
    first = head_of("a")
    heads = Heads(first)
    async with showing(heads, "a:gpu0", size=(100, 20)) as pilot:
        assert heads.app.query_one("#crumbs").opacity == 1.0
        first.cut()
        await sees(pilot, "has not answered since", "q quit", "a:gpu0")
        shown = heads.app.query("#crumbs, #totals, ContentSwitcher")
        assert [each.opacity for each in shown] == [0.4, 0.4, 0.4]


async def test_a_head_that_falls_silent_is_a_banner_until_it_speaks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "LOOK_S", 0.02)
    now = [EPOCH]
    first = head_of("a")
    heads = Heads(first)
    heads.app.head.clock = lambda: now[0]
    async with showing(heads, "a:gpu0", size=(100, 20)) as pilot:
        now[0] += 9
        await sees(pilot, "has not answered since", "(9 s)", "a:gpu0")
        first.put(SnapshotTaken(replace(fleet("a", "b"), sequence=2)))
        await sees(pilot, "▾b")
        await sees_not(pilot, "has not answered")
        assert not heads.app.has_class("-lost")


async def test_why_no_head_is_met_is_said_as_long_as_none_is() -> None:
    async with Heads(*[HeadError("no head answers")] * 1000).app.run_test(size=(100, 20)) as pilot:
        await sees(pilot, "no head answers; trying again")


async def test_a_head_that_began_anew_takes_the_banner_away_and_may_count_from_one() -> None:
    first, second = StillLink(), head_of("a", "b")
    first.put(SnapshotTaken(replace(fleet("a"), sequence=99)))
    heads = Heads(first, HeadError("no head answers"), second)
    async with showing(heads, "a:gpu0", size=(100, 20)) as pilot:
        first.cut()
        await sees(pilot, "a:gpu0", "▾b")
        await sees_not(pilot, GONE)


async def test_a_change_asked_of_a_head_that_is_gone_is_refused() -> None:
    first = head_of("a")
    heads = Heads(first, *[HeadError("no head answers")] * 1000)
    async with showing(heads, "a:gpu0", size=(100, 20)) as pilot:
        first.cut()
        await sees(pilot, GONE)
        for keys in (("colon", *"scale 3", "enter"), ("R",), ("minus",)):
            await press(pilot, [*keys], "the head does not answer")
            run = heads.app.registry.by_key("c", "")
            assert run is not None and heads.app.why_not(run)
            assert len(heads.app.screen_stack) == 1
        await press(pilot, "q", then=lambda: not heads.app.is_running)
        assert GONE in heads.app.closing_text


async def test_a_lost_cluster_is_started_again_with_one_key() -> None:
    first, second, started = head_of("a"), head_of("b"), list[bool]()
    heads = Heads(first)
    heads.app.head._start_again = lambda: (started.append(True), heads._opened.insert(0, second))
    heads._opened += [HeadError("no head answers")] * 30
    async with showing(heads, "a:gpu0", size=(100, 20)) as pilot:
        await press(pilot, ["ctrl+n"], "the cluster is not lost")
        first.cut()
        await sees(pilot, "^n start it again")
        await press(pilot, ["ctrl+n"], "▾b")
        assert started == [True] and not heads.app.has_class("-lost")


async def test_the_logs_of_every_head_that_is_met_are_asked_for() -> None:
    first, second = head_of("a"), head_of("a")
    async with showing(Heads(first, second), "a:gpu0", size=(100, 20)) as pilot:
        assert first.sent == [SubscribeLogs(True)]
        first.cut()
        await until(pilot, lambda: SubscribeLogs(True) in second.sent)
