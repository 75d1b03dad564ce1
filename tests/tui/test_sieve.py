"""What of Textual's output goes on to the terminal."""

import pytest

from gputui.tui.terminal.cells import SYNC_END, SYNC_START, Cells

SIZE = (10, 3)
FRAME = "\x1b[1;1Hbusy\x1b[1;1H"
UNREAD = "\x1b[2;1Ha\tb\x1b[1;1H"


def through(cells: Cells, *written: str) -> str:
    return "".join(cells.let_through(data, SIZE) for data in written)


def test_a_frame_is_sent_between_its_marks() -> None:
    sent = through(Cells(), SYNC_START, FRAME, SYNC_END)
    assert sent.startswith(SYNC_START + "\x1b[") and sent.endswith(SYNC_END)


def test_a_frame_that_changes_nothing_is_not_sent_and_nor_are_its_marks() -> None:
    cells = Cells()
    through(cells, SYNC_START, FRAME, SYNC_END)
    assert through(cells, SYNC_START, FRAME, SYNC_END) == ""


@pytest.mark.parametrize(
    "data",
    ["\x1b[?1004h", "\x1b[>25u", "\x1b[?2026$p", "\x1b]52;c;Zm9v\x07", "\x1b]2;t\x1b\\", "\x07"],
)
def test_what_shows_nothing_passes_and_changes_nothing(data: str) -> None:
    cells = Cells()
    through(cells, FRAME)
    assert through(cells, data) == data
    assert through(cells, FRAME) == ""


@pytest.mark.parametrize("data", [UNREAD, "\x1b[2J", "text"])
def test_after_what_cannot_be_followed_every_cell_is_sent(data: str) -> None:
    cells = Cells()
    through(cells, FRAME)
    assert through(cells, data) == data
    assert "busy" in through(cells, FRAME)


def test_another_size_sends_every_cell() -> None:
    cells = Cells()
    through(cells, FRAME)
    assert "busy" in cells.let_through(FRAME, (9, 3))


def test_a_size_that_came_back_sends_every_cell() -> None:
    cells = Cells()
    through(cells, FRAME)
    cells.forget()
    assert "busy" in through(cells, FRAME)
