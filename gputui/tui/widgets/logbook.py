"""The lines that all workers printed, and a pager over them that never moves by itself.

`LogBook` keeps the last lines under ever-growing numbers; `Pager` holds a place in those that
match a filter. While it does not follow, its place is a line's number, so that neither new lines
nor old ones that are let go shift what is being read. Pure: the logs view draws what it says.
"""

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputui.protocol.shared import LogLines


LINES_KEPT = 20_000
LINES_LET_GO = 1_000
"""How many old lines are dropped at once."""
NEWEST = 2_000
"""Lines in which the end of one worker's log is looked for."""
LONGEST_LINE = 4_000
"""Characters of a line that are kept; more of one cannot be read on a screen."""


class Level(StrEnum):
    """A line's level, by its words."""

    PLAIN = "plain"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a worker printed."""

    number: int
    at: float
    worker: str
    text: str
    level: Level = Level.PLAIN
    logger: str = ""
    """The logger that wrote it; "" where it was printed."""


Matcher = Callable[[LogLine], bool]

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} - ")
_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_PREFIX = re.compile(rf"([\w.]+) - ({_LEVELS}) - |({_LEVELS}):([\w.]+):")
"""What Dask's logging puts before a message, or Python's own."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def as_printed(raw: str) -> str:
    r"""Return a line as a terminal would leave it: without colours, what `\r` wrote over gone.

    >>> as_printed("\x1b[32mINFO\x1b[0m ready"), as_printed(" 10%|#   |\r100%|####|\r")
    ('INFO ready', '100%|####|')
    """
    if "\x1b" in raw:
        raw = _COLOURS.sub("", raw)
    return raw.rstrip("\r").rpartition("\r")[2] if "\r" in raw else raw


def stamped(text: str) -> tuple[float | None, str]:
    """Return the time that Python's logging put before a line, and the line without it.

    The time is as that host's clock showed it, taken as if it were ours.

    >>> stamped("2026-11-21 08:08:12,204 - distributed.worker - INFO - ready")[1]
    'distributed.worker - INFO - ready'
    >>> stamped("ready")
    (None, 'ready')
    """
    stamp = _STAMP.match(text)
    if stamp is None:
        return None, text
    try:
        return datetime.fromisoformat(stamp[1]).timestamp(), text[stamp.end() :]
    except ValueError:
        return None, text


def folded(text: str) -> tuple[str, Level, str]:
    """Return the logger of a line, how serious it is, and the line without its logger's prefix.

    >>> folded("distributed.worker - WARNING - gc.collect() took 1.2 s")
    ('distributed.worker', <Level.WARNING: 'warning'>, 'gc.collect() took 1.2 s')
    >>> folded("INFO:root:ready")[2], folded("loss 0.41")[2]
    ('ready', 'loss 0.41')
    """
    prefix = _PREFIX.match(text)
    if prefix is None:
        return "", level_of(text), text
    level = level_of(prefix[2] or prefix[3])
    return prefix[1] or prefix[4], level, text[prefix.end() :]


def message_of(raw: str) -> str:
    """Return a line as it is read by a person: without colours, its time and its logger.

    >>> message_of("2026-11-21 08:08:12,204 - distributed.worker - INFO - ready")
    'ready'
    """
    return folded(stamped(as_printed(raw))[1])[2]


def level_of(text: str) -> Level:
    """Return how serious a line sounds, by the words that Python's logging and errors use.

    >>> level_of("ValueError: operands could not be broadcast").value
    'error'
    """
    head = text[:160]
    if "ERROR" in head or "CRITICAL" in head or "Traceback (" in head or "Killed" in head:
        return Level.ERROR
    if "Error: " in head or "Exception: " in head or "Error(" in head:
        return Level.ERROR
    return Level.WARNING if "WARN" in head else Level.PLAIN


class LogBook:
    """The last `limit` lines of all workers, in the order in which they came."""

    def __init__(self, clean: Callable[[str], str], limit: int = LINES_KEPT) -> None:
        """`clean` makes a text harmless to a terminal."""
        self._clean = clean
        self._limit = limit
        self._lines: list[LogLine] = []
        self.first = 0
        """The number of the oldest line kept."""
        self.widest_name = 0
        """Cells of the longest name of a worker that printed."""

    @property
    def end(self) -> int:
        """The number that the next line will have."""
        return self.first + len(self._lines)

    def add(self, message: "LogLines") -> None:
        """Keep the lines of a message, and say so where lines before them were left out."""
        if message.dropped:
            text = f"[{message.dropped:,} lines were left out: they came too fast]"
            self._keep(message.at, message.worker, text, Level.WARNING)
        for raw in message.lines:
            at, text = stamped(self._clean(as_printed(raw)[:LONGEST_LINE]))
            logger, level, text = folded(text)
            if logger and not text.strip("-"):  # a rule between Dask's lines
                continue
            self._keep(message.at if at is None else at, message.worker, text, level, logger)
        if len(self._lines) > self._limit + LINES_LET_GO:
            surplus = len(self._lines) - self._limit
            del self._lines[:surplus]
            self.first += surplus

    def _keep(self, at: float, worker: str, text: str, level: Level, logger: str = "") -> None:
        self.widest_name = max(self.widest_name, len(worker))
        self._lines.append(LogLine(self.end, at, worker, text, level, logger))

    def __getitem__(self, number: int) -> LogLine:
        return self._lines[number - self.first]

    def last(self, worker: str, number: int) -> list[LogLine]:
        """Return the last lines of a worker, as far as they are among the newest of all."""
        found: list[LogLine] = []
        for line in reversed(self._lines[-NEWEST:]):
            if line.worker == worker:
                found.append(line)
                if len(found) == number:
                    break
        return found[::-1]

    def since(self, number: int) -> list[LogLine]:
        """Return the lines from this number on."""
        return self._lines[max(0, number - self.first) :]


class Pager:
    """A place in the lines that match; `height` lines of them are seen at a time."""

    def __init__(self, book: LogBook) -> None:
        self._book = book
        self._matches: Matcher | None = None
        self._numbers: list[int] = []
        """The numbers of matching lines, ascending."""
        self._looked_until = 0
        self.following = True
        self.height = 1
        self._top = 0
        """The number of the line at the top, while not following."""

    def filter(self, matches: Matcher | None) -> None:
        """Show matching lines only (all with None), at the same place."""
        self._top = self.top_number
        self._matches = matches
        self._numbers = []
        self._looked_until = 0

    def line(self, index: int) -> LogLine:
        """Return a matching line by its index among them."""
        return self._book[self._numbers[index]]

    def look(self) -> None:
        """Add the book's new lines, and forget those it dropped."""
        first = self._book.first
        if self._numbers and self._numbers[0] < first:
            del self._numbers[: bisect_left(self._numbers, first)]
        matches = self._matches
        self._numbers += [
            line.number
            for line in self._book.since(self._looked_until)
            if matches is None or matches(line)
        ]
        self._looked_until = self._book.end

    @property
    def count(self) -> int:
        """The number of lines that match."""
        return len(self._numbers)

    @property
    def top(self) -> int:
        """The index among the matching lines of the one at the top."""
        last = max(0, len(self._numbers) - self.height)
        return last if self.following else min(bisect_left(self._numbers, self._top), self.count)

    @property
    def top_number(self) -> int:
        """The number of the top line, or of the next one if there is no line."""
        return self._numbers[self.top] if self.top < len(self._numbers) else self._top

    @property
    def below(self) -> int:
        """The number of matching lines below those in sight."""
        return max(0, self.count - self.top - self.height)

    def visible(self) -> list[LogLine]:
        """Return the lines to be seen, from the top."""
        top = self.top
        return [self._book[number] for number in self._numbers[top : top + self.height]]

    def scroll(self, lines: int) -> None:
        """Move down by so many lines, or up; moving up stops following."""
        if self.following and lines >= 0:
            return
        self._go_to(self.top + lines)

    def home(self) -> None:
        """Go to the oldest line."""
        self._go_to(0)

    def follow(self, on: bool = True) -> None:
        """Keep the newest lines in sight, or stay where we are."""
        if not on:
            self._top = self.top_number
        self.following = on

    def seek(self, matches: Matcher, forward: bool = True) -> bool:
        """Bring the next line for which `matches` holds to the top; return whether there is one."""
        top = self.top
        ahead = range(top + 1, self.count) if forward else range(top - 1, -1, -1)
        for index in ahead:
            if matches(self._book[self._numbers[index]]):
                self._go_to(index, to_the_end=True)
                return True
        return False

    def _go_to(self, index: int, to_the_end: bool = False) -> None:
        last = self.count - 1 if to_the_end else self.count - self.height
        index = max(0, min(index, last))
        self.following = False
        self._top = self._numbers[index] if self._numbers else 0
