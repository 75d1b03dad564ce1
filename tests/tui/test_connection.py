"""A screen whose head goes away says so, keeps what it showed, and looks for it again.

Also on another machine, which asks when it is logged in to again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from gputui.errors import HeadError
from gputui.model.snapshot import Snapshot
from gputui.protocol.frontend import Asked, SnapshotTaken
from gputui.protocol.shared import FollowLogs
from gputui.tui import attachment
from gputui.tui.app import ScreenApp
from gputui.tui.commands import person
from gputui.tui.dialogs import QuestionDialog
from tests.tui.build import EPOCH, device, host, snapshot
from tests.tui.still import Driven, StillLink

GONE = "has ended; what it started ends by itself"


class Heads(Driven):
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
    async with Heads(first).showing("a:gpu0", size=(100, 20)) as heads:
        assert heads.app.query_one("#crumbs").opacity == 1.0
        first.cut()
        await heads.sees("has not answered since", "q quit", "a:gpu0")
        shown = heads.app.query("#crumbs, #totals, ContentSwitcher")
        assert [each.opacity for each in shown] == [0.4, 0.4, 0.4]


async def test_why_no_head_is_met_is_said_as_long_as_none_is() -> None:
    async with Heads(*[HeadError("no head answers")] * 1000).showing(size=(100, 20)) as on:
        await on.sees("no head answers; trying again")


async def test_a_head_that_began_anew_takes_the_banner_away_and_may_count_from_one() -> None:
    first, second = StillLink(), head_of("a", "b")
    first.put(SnapshotTaken(replace(fleet("a"), sequence=99)))
    heads = Heads(first, HeadError("no head answers"), second)
    async with heads.showing("a:gpu0", size=(100, 20)):
        first.cut()
        await heads.sees("a:gpu0", "▾b")
        await heads.sees_not(GONE)


async def test_a_change_asked_of_a_head_that_is_gone_is_refused() -> None:
    first = head_of("a")
    heads = Heads(first, *[HeadError("no head answers")] * 1000)
    async with heads.showing("a:gpu0", size=(100, 20)):
        first.cut()
        await heads.sees(GONE)
        for keys in (("colon", *"scale 3", "enter"), ("R",), ("minus",)):
            await heads.press([*keys], "the head does not answer")
            run = heads.app.registry.by_key("c", "")
            assert run is not None and heads.app.why_not(run)
            assert len(heads.app.screen_stack) == 1
        await heads.press("q", then=lambda: not heads.app.is_running)
        assert GONE in heads.app.closing_text


async def test_a_lost_cluster_is_started_again_with_one_key() -> None:
    first, second, started = head_of("a"), head_of("b"), list[bool]()
    heads = Heads(first)
    heads.app.head._start_again = lambda: (started.append(True), heads._opened.insert(0, second))
    heads._opened += [HeadError("no head answers")] * 30
    async with heads.showing("a:gpu0", size=(100, 20)):
        await heads.press(["ctrl+n"], "the cluster is not lost")
        first.cut()
        await heads.sees("^n start it again")
        await heads.press(["ctrl+n"], "▾b")
        assert started == [True] and not heads.app.has_class("-lost")


async def test_the_logs_of_every_head_that_is_met_are_asked_for() -> None:
    first, second = head_of("a"), head_of("a")
    async with Heads(first, second).showing("a:gpu0", size=(100, 20)) as on:
        assert first.sent == [FollowLogs(True)]
        first.cut()
        await on.until(lambda: FollowLogs(True) in second.sent)


PASSWORD = Asked(0, "login", "password", "Password of alice@login", secret=True)
HOST_KEY = Asked(0, "login", "host-key", "ED25519 SHA256:abc", secret=False)


class LostLogin(Driven):
    """A head that was met once, on a machine that asks before it is reached again."""

    def __init__(self, question: Asked, answer: str, *, readonly: bool = False) -> None:
        self.answers: list[str | None] = []
        self._question, self._right = question, answer
        self._ask: Callable[[Asked], Coroutine[Any, Any, str | None]] | None = None
        self._opened = 0
        self.app = ScreenApp(
            self._open,
            clock=lambda: EPOCH,
            login="login",
            ask_on_screen=self.ask_on_screen,
            readonly=readonly,
        )

    def ask_on_screen(self, ask: Callable[[Asked], Coroutine[Any, Any, str | None]]) -> None:
        """Keep how to ask."""
        self._ask = ask

    @property
    def asks(self) -> bool:
        return isinstance(self.app.screen, QuestionDialog)

    async def _open(self) -> StillLink:
        self._opened += 1
        if self._opened > 1:
            assert self._ask
            self.answers.append(await self._ask(self._question))
            if self.answers[-1] != self._right:
                raise HeadError("login: denied")
        link = StillLink()
        link.where = "login"
        link.put(SnapshotTaken(snapshot(host("a" if self._opened == 1 else "b", device()))))
        if self._opened == 1:
            link.cut()
        return link


@pytest.mark.parametrize("readonly", [False, True])
async def test_what_the_login_asks_again_is_answered_on_the_screen(readonly: bool) -> None:
    lost = LostLogin(PASSWORD, "secret", readonly=readonly)
    async with lost.showing("login: password", "Password of alice@login", "[enter] answer"):
        await lost.press([*"secret", "enter"], "b:gpu0")
        await lost.sees_not("has not answered", "Password")
        assert lost.answers == ["secret"]


async def test_a_wrong_password_is_asked_for_again() -> None:
    async with LostLogin(PASSWORD, "secret").showing() as lost:
        for typed in "wrong", "secret":
            await lost.sees("[enter] answer")
            await lost.pilot.press(*typed, "enter")
            await lost.until(lambda typed=typed: lost.answers[-1:] == [typed])
        await lost.sees("b:gpu0")


@pytest.mark.parametrize(("question", "key"), [(PASSWORD, "escape"), (HOST_KEY, "n")])
async def test_a_question_put_off_or_denied_comes_back_on_request_only(
    question: Asked, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person, "PUT_OFF_S", 0.2)
    lost = LostLogin(question, "yes")
    async with lost.showing("[escape] later" if question.secret else "[n] no"):
        await lost.press([key], then=lambda: not lost.asks)
        tried = len(lost.answers)
        await lost.until(lambda: len(lost.answers) >= tried + 3)  # tried again without a word
        assert not lost.asks and set(lost.answers) == {None}
        await lost.sees("A answers what its machine asks")
        while not lost.asks:  # between two tries no question is open
            await lost.pilot.press("A")
        await lost.sees("[enter] answer" if question.secret else "[y] yes, and remember it")


async def test_a_login_that_gives_up_asking_takes_its_question_away() -> None:
    async with LostLogin(PASSWORD, "secret").showing() as lost:
        await lost.until(lambda: lost.asks)
        assert lost._ask
        asking = asyncio.create_task(lost._ask(PASSWORD))
        await asyncio.sleep(0)
        asking.cancel()
        await lost.until(lambda: not lost.asks)
