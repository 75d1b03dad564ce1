"""A screen whose head is on another machine, which asks when it is logged in to again."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gputui.errors import HeadError
from gputui.protocol.frontend import Asked, SnapshotTaken
from gputui.tui import attachment
from gputui.tui.app import ScreenApp
from gputui.tui.commands import person
from gputui.tui.dialogs import QuestionDialog
from tests.tui.build import EPOCH, device, host, snapshot
from tests.tui.still import StillLink, press, sees, sees_not, showing, until

PASSWORD = Asked(0, "login", "password", "Password of alice@login", secret=True)
HOST_KEY = Asked(0, "login", "host-key", "ED25519 SHA256:abc", secret=False)


class LostLogin:
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


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "RECONNECT_S", 0.05)


@pytest.mark.parametrize("readonly", [False, True])
async def test_what_the_login_asks_again_is_answered_on_the_screen(readonly: bool) -> None:
    lost = LostLogin(PASSWORD, "secret", readonly=readonly)
    async with lost.app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "login: password", "Password of alice@login", "[enter] answer")
        await press(pilot, [*"secret", "enter"], "b:gpu0")
        await sees_not(pilot, "has not answered", "Password")
        assert lost.answers == ["secret"]


async def test_a_wrong_password_is_asked_for_again() -> None:
    lost = LostLogin(PASSWORD, "secret")
    async with lost.app.run_test(size=(80, 24)) as pilot:
        for typed in "wrong", "secret":
            await sees(pilot, "[enter] answer")
            await pilot.press(*typed, "enter")
            await until(pilot, lambda typed=typed: lost.answers[-1:] == [typed])
        await sees(pilot, "b:gpu0")


@pytest.mark.parametrize(("question", "key"), [(PASSWORD, "escape"), (HOST_KEY, "n")])
async def test_a_question_put_off_or_denied_comes_back_on_request_only(
    question: Asked, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person, "PUT_OFF_S", 0.2)
    lost = LostLogin(question, "yes")
    async with showing(lost, "[escape] later" if question.secret else "[n] no") as pilot:
        await press(pilot, [key], then=lambda: not lost.asks)
        tried = len(lost.answers)
        await until(pilot, lambda: len(lost.answers) >= tried + 3)  # tried again without a word
        assert not lost.asks and set(lost.answers) == {None}
        await sees(pilot, "A answers what its machine asks")
        while not lost.asks:  # between two tries no question is open
            await pilot.press("A")
        await sees(pilot, "[enter] answer" if question.secret else "[y] yes, and remember it")


async def test_a_login_that_gives_up_asking_takes_its_question_away() -> None:
    lost = LostLogin(PASSWORD, "secret")
    async with lost.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: lost.asks)
        assert lost._ask
        asking = asyncio.create_task(lost._ask(PASSWORD))
        await asyncio.sleep(0)
        asking.cancel()
        await until(pilot, lambda: not lost.asks)
