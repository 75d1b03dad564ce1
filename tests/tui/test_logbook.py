"""What is kept of the lines that workers print, and shown of them next to a worker."""

from datetime import datetime

import pytest

from gputui.model.snapshot import Severity
from gputui.protocol.shared import LogLines
from gputui.tui.rendering.detail import beneath
from gputui.tui.widgets.logbook import LogBook, LogLine, level_of

LOGGED = "2026-01-02 03:04:05,678 - distributed.worker - INFO - "
RULES = (f"{LOGGED}-----", "-----")


@pytest.mark.parametrize(
    ("printed", "dropped", "kept"),
    [
        (tuple(map(str, range(3000))), 0, [*map(str, range(2000, 3000))]),
        (("next",), 1200, ["[1,200 lines were left out: they came too fast]", "next"]),
        (("x" * 1_000_000,), 0, ["x" * 4000]),
        (RULES, 0, ["-----"]),
    ],
    ids=[
        "the last lines only",
        "that lines were left out",
        "a long line cut",
        "no rules of Dask's",
    ],
)
def test_a_book_keeps(printed: tuple[str, ...], dropped: int, kept: list[str]) -> None:
    book = LogBook(1000)
    book.add(LogLines("h:gpu0", printed, 1.0, dropped=dropped))
    assert [line.text for line in book.lines] == kept


def test_levels_are_read_from_the_words() -> None:
    assert level_of("Traceback (most recent call last):") is Severity.ERROR
    assert level_of("step 12 loss 0.2") is Severity.INFO


def test_a_line_bears_the_time_that_logging_gave_it() -> None:
    book = LogBook()
    book.add(LogLines("w", (f"{LOGGED}up", "plain"), 5.0))
    stamped, plain = book.lines
    assert stamped.text == "up"
    assert f"{datetime.fromtimestamp(stamped.at):%H:%M:%S}" == "03:04:05"
    assert (plain.at, plain.text) == (5.0, "plain")


DASK = (
    "        Start worker at:     tls://127.0.0.1:38401",
    "          dashboard at:            127.0.0.1:0",
    "-------------------------------------------------",
    "               Memory:                 125.88 GiB",
    "Starting established connection to tls://127.0.0.1:33679",
)


def test_what_dask_s_worker_says_at_its_start_is_read_without_its_columns_and_rules() -> None:
    lines = beneath([], [LogLine(n, 0.0, "h:cpu0", text) for n, text in enumerate(DASK)], 80, 8)
    said = ["".join(text for text, _ in line[1:]) for line in lines]
    assert said == [
        "Start worker at: tls://127.0.0.1:38401",
        "dashboard at: 127.0.0.1:0",
        "Memory: 125.88 GiB",
        "Starting established connection to tls://127.0.0.1:33679",
    ]
