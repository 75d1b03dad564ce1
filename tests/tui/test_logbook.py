"""Reading logs: the place of a reader is kept, whatever is added or let go."""

from datetime import datetime

from gputui.protocol.shared import LogLines
from gputui.tui.widgets.logbook import Level, LogBook, LogLine, Pager, level_of


def filled(lines: int, kept: int = 20_000) -> LogBook:
    """Return a book with lines `0`, `1`, … of two workers."""
    book = LogBook(kept)
    add(book, 0, lines)
    return book


def add(book: LogBook, begin: int, end: int) -> None:
    for number in range(begin, end):
        book.add(LogLines(f"h:gpu{number % 2}", (str(number),), float(number)))


def pager_of(book: LogBook, height: int = 5) -> Pager:
    pager = Pager(book)
    pager.height = height
    pager.look()
    return pager


def texts(pager: Pager) -> list[str]:
    return [line.text for line in pager.visible()]


def even(line: LogLine) -> bool:
    return int(line.text) % 2 == 0


def test_a_following_pager_shows_the_newest_lines() -> None:
    book = filled(10)
    pager = pager_of(book)
    add(book, 10, 12)
    pager.look()
    assert texts(pager) == ["7", "8", "9", "10", "11"]


def test_scrolling_up_stops_following_and_new_lines_do_not_move_the_view() -> None:
    book = filled(20)
    pager = pager_of(book)
    pager.scroll(-3)
    seen = texts(pager)
    add(book, 20, 60)
    pager.look()
    assert not pager.following
    assert texts(pager) == seen == ["12", "13", "14", "15", "16"]
    assert pager.below == 43


def test_lines_that_are_let_go_do_not_move_the_view() -> None:
    book = filled(3000, kept=2500)
    pager = pager_of(book)
    pager.scroll(-100)
    seen = texts(pager)
    add(book, 3000, 3800)
    pager.look()
    assert book.lines[0].number > 0
    assert texts(pager) == seen


def test_a_reader_whose_lines_were_let_go_sees_the_oldest_that_are_left() -> None:
    book = filled(2000, kept=500)
    pager = pager_of(book)
    pager.go_to(0)
    add(book, 2000, 6000)
    pager.look()
    assert texts(pager)[0] == book.lines[0].text


def test_following_again_goes_to_the_end() -> None:
    pager = pager_of(filled(20))
    pager.go_to(0)
    pager.following = True
    assert texts(pager) == ["15", "16", "17", "18", "19"]


def test_scrolling_down_to_the_end_does_not_follow_by_itself() -> None:
    book = filled(20)
    pager = pager_of(book)
    pager.scroll(-5)
    pager.scroll(500)
    add(book, 20, 21)
    pager.look()
    assert texts(pager)[-1] == "19"


def test_a_filter_shows_matching_lines_at_the_same_place() -> None:
    pager = pager_of(filled(100))
    pager.go_to(0)
    pager.scroll(50)
    pager.filter(even)
    pager.look()
    assert texts(pager) == ["50", "52", "54", "56", "58"]
    pager.filter(None)
    pager.look()
    assert texts(pager)[0] == "50"


def test_a_search_brings_the_next_match_to_the_top() -> None:
    pager = pager_of(filled(100))
    pager.go_to(0)
    assert pager.seek(lambda line: line.text.endswith("7"))
    assert pager.seek(lambda line: line.text.endswith("7"))
    assert texts(pager)[0] == "17"
    assert pager.seek(lambda line: line.text.endswith("3"), forward=False)
    assert texts(pager)[0] == "13"


def test_a_search_without_a_match_stays_where_it_was() -> None:
    pager = pager_of(filled(100))
    assert not pager.seek(lambda line: False)
    assert pager.following


def test_a_book_keeps_its_last_lines_only() -> None:
    book = filled(100_000, kept=1000)
    assert len(book.lines) == 1000


def test_lines_that_were_left_out_are_said() -> None:
    book = LogBook()
    book.add(LogLines("h:gpu0", ("next",), 1.0, dropped=1200))
    assert [line.text for line in book.lines] == [
        "[1,200 lines were left out: they came too fast]",
        "next",
    ]


def test_a_very_long_line_is_cut() -> None:
    book = LogBook()
    book.add(LogLines("h:gpu0", ("x" * 1_000_000,), 1.0))
    assert len(book.lines[0].text) == 4000


def test_levels_are_read_from_the_words() -> None:
    assert level_of("Traceback (most recent call last):") is Level.ERROR
    assert level_of("step 12 loss 0.2") is Level.PLAIN


def test_rules_between_dasks_lines_take_no_line_and_what_a_task_prints_stays() -> None:
    book = LogBook()
    rule = "2026-01-02 03:04:05,678 - distributed.worker - INFO - -----"
    book.add(LogLines("w", (rule, "-----"), 5.0))
    assert [line.text for line in book.lines] == ["-----"]


def test_a_line_bears_the_time_that_logging_gave_it() -> None:
    book = LogBook()
    book.add(LogLines("w", ("2026-01-02 03:04:05,678 - gputui - INFO - up", "plain"), 5.0))
    stamped, plain = book.lines
    assert stamped.text == "up"
    assert f"{datetime.fromtimestamp(stamped.at):%H:%M:%S}" == "03:04:05"
    assert (plain.at, plain.text) == (5.0, "plain")
