"""What of Textual's output goes on to the terminal."""

import pytest

from gputui.tui.terminal.driver import SYNC_END, SYNC_START, Sieve

SIZE = (10, 3)
FRAME = "\x1b[1;1Hbusy\x1b[1;1H"
UNREAD = "\x1b[2;1Ha\tb\x1b[1;1H"


def through(sieve: Sieve, *written: str) -> str:
    return "".join(sieve.let_through(data, SIZE) for data in written)


def test_a_frame_is_sent_between_its_marks() -> None:
    sent = through(Sieve(), SYNC_START, FRAME, SYNC_END)
    assert sent.startswith(SYNC_START + "\x1b[") and sent.endswith(SYNC_END)


def test_a_frame_that_changes_nothing_is_not_sent_and_nor_are_its_marks() -> None:
    sieve = Sieve()
    through(sieve, SYNC_START, FRAME, SYNC_END)
    assert through(sieve, SYNC_START, FRAME, SYNC_END) == ""


@pytest.mark.parametrize(
    "data",
    ["\x1b[?1004h", "\x1b[>25u", "\x1b[?2026$p", "\x1b]52;c;Zm9v\x07", "\x1b]2;t\x1b\\", "\x07"],
)
def test_what_shows_nothing_passes_and_changes_nothing(data: str) -> None:
    sieve = Sieve()
    through(sieve, FRAME)
    assert through(sieve, data) == data
    assert through(sieve, FRAME) == ""


@pytest.mark.parametrize("data", [UNREAD, "\x1b[2J", "text"])
def test_after_what_cannot_be_followed_every_cell_is_sent(data: str) -> None:
    sieve = Sieve()
    through(sieve, FRAME)
    assert through(sieve, data) == data
    assert "busy" in through(sieve, FRAME)


def test_another_size_sends_every_cell() -> None:
    sieve = Sieve()
    through(sieve, FRAME)
    assert "busy" in sieve.let_through(FRAME, (9, 3))


def test_a_size_that_came_back_sends_every_cell() -> None:
    sieve = Sieve()
    through(sieve, FRAME)
    sieve.forget()
    assert "busy" in through(sieve, FRAME)
