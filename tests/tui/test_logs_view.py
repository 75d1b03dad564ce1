"""The logs view: merged lines that stay where they are read, and what is kept of them."""

import re
from datetime import datetime

import pytest

from gputui.model.snapshot import Severity
from gputui.protocol.shared import LogLines
from gputui.tui.rendering.detail import beneath
from gputui.tui.widgets.logbook import LogBook, LogLine, level_of
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still

HOSTS = (host("h", device(0), device(1)),)
WORKERS = (worker(0), worker(1))


def still(lines: int = 0) -> Still:
    """Return a screen that was told some lines of two workers."""
    screen = Still(snapshot(*HOSTS, workers=WORKERS))
    for number in range(lines):
        screen.log(f"h:gpu{number % 2}", f"line {number:03}.")
    return screen


def lines_seen(on: Still) -> list[str]:
    """Return the lines of the log that are in sight."""
    return re.findall(r"(?:line|new|newer) [0-9]{3}[.]", on.text)


async def test_lines_of_all_workers_are_merged_and_followed() -> None:
    async with still(100).showing("line 099.", "h:gpu0", "h:gpu1", "following", keys="4") as screen:
        screen.log("h:gpu0", "the newest")
        await screen.sees("the newest")


async def test_scrolling_up_stops_following_until_it_is_asked_for_again() -> None:
    async with still(100).showing("line 099.", keys="4") as screen:
        await screen.press(["k", "k", "k"], "line 096.", "stopped")
        screen.log("h:gpu0", *(f"new {number}" for number in range(50)))
        await screen.sees("53 below")
        assert "line 096." in screen.text and "new" not in screen.text
        await screen.press("G", "new 49", "following")


async def test_lines_that_are_let_go_do_not_move_those_that_are_read() -> None:
    async with still().showing() as screen:
        await screen.until(lambda: screen.app.watched.snapshot.name)
        screen.app.watched.logs = LogBook(200)
        screen.log("h:gpu0", *(f"line {number:03}." for number in range(150)))
        await screen.press("4", "line 149.")
        await screen.pilot.press("k", "k")
        before = lines_seen(screen)
        screen.log("h:gpu0", *(f"new {number:03}." for number in range(100)))
        await screen.sees("102 below")
        assert lines_seen(screen) == before
        screen.log("h:gpu0", *(f"newer {number:03}." for number in range(250)))
        await screen.sees("newer 050.")  # the oldest that is left
        await screen.pilot.press("pagedown", "G", "k", "j", "j")
        screen.log("h:gpu0", "the very newest")
        await screen.sees("1 below")
        assert "newer 249." in screen.text and "very newest" not in screen.text


async def test_a_filter_that_is_let_go_leaves_the_place() -> None:
    async with still(100).showing("line 099.", keys="4") as on:
        await on.pilot.press("g", "pagedown", "slash", *"gpu0", "enter")
        await on.sees_not("line 019.")
        top = lines_seen(on)[0]
        await on.press(["escape", "escape"], "line 019.")
        assert lines_seen(on)[0] == top


async def test_one_workers_lines_are_shown_by_its_name() -> None:
    async with still(20).showing("line 019.", keys="4") as screen:
        await screen.press([*":logs h:gpu1", "enter"], "h:gpu1 · 10 lines")
        await screen.press(["escape"], "all workers · 20 lines")


async def test_a_filter_that_is_let_go_leaves_its_matches_to_step_through() -> None:
    async with still(100).showing("line 099.", keys="4") as on:
        await on.pilot.press("slash", *"048", "enter")
        await on.sees_not("line 099.")
        await on.press(["escape", "N"], "line 048.", "line 049.", "search 048")
        await on.press(["G", "N"], "line 048.")
        await on.pilot.press("escape")
        await on.sees_not("search 048")


async def test_where_no_match_is_left_it_says_so() -> None:
    async with still(10).showing("line 009.", keys="4") as screen:
        await screen.press("n", "nothing to search for")
        await screen.press(["slash", *"009", "enter", "escape", "n", "n"], "no more matches below")


async def test_long_lines_are_wrapped() -> None:
    screen = still()
    screen.log("h:gpu0", "a" * 70 + "the end of it")
    async with screen.showing("aaaa", "the end of it", keys="4"):
        pass


async def test_control_sequences_are_shown_and_not_obeyed() -> None:
    screen = still()
    screen.log("h:gpu0", "\x1b[32mgreen\x1b[0m \x1b[2J\x1b]0;title\x07 end\u202e")
    async with screen.showing():
        await screen.press("4", "green ␛[2J␛]0;title␇ end�")


async def test_a_logger_s_prefix_is_folded_away_and_can_be_filtered_by() -> None:
    screen = still()
    stamp = "2026-11-21 08:08:12,204 - distributed.worker.memory"
    screen.log("h:gpu0", f"{stamp} - WARNING - 71% held", "INFO:mine:step 3", "plain")
    async with screen.showing():
        await screen.press("4", "h:gpu0 ▴ 71% held", "h:gpu0   step 3", "h:gpu0   plain")
        assert "distributed" not in screen.text and "WARNING" not in screen.text
        await screen.pilot.press("slash", *"logger:mine", "enter")
        await screen.sees_not("71% held", "plain")
        await screen.sees("step 3")


LOGGED = "2026-01-02 03:04:05,678 - distributed.worker - INFO - "
RULES = (f"{LOGGED}-----", "-----")


@pytest.mark.parametrize(
    ("printed", "dropped", "kept"),
    [
        (tuple(map(str, range(3000))), 0, [*map(str, range(2000, 3000))]),
        (("next",), 1200, ["[1,200 lines left out: too many came at once]", "next"]),
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
