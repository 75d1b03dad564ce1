"""The last lines that all workers printed, each with its number, time and level. Pure."""

import re
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING

from gputui.model.frozen import frozen
from gputui.model.plain_text import safe
from gputui.model.snapshot import Severity

if TYPE_CHECKING:
    from gputui.protocol.shared import LogLines


LINES_KEPT = 20_000
LONGEST_LINE = 4_000
"""Characters of a line that are kept; more of one cannot be read on a screen."""


@frozen
class LogLine:
    """One line that a worker printed."""

    number: int
    at: float
    worker: str
    text: str
    level: Severity = Severity.INFO
    """How serious it sounds, by its words."""
    logger: str = ""
    """The logger that wrote it; "" where it was printed."""


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


def folded(text: str) -> tuple[str, Severity, str]:
    """Return the logger of a line, how serious it is, and the line without its logger's prefix.

    >>> folded("distributed.worker - WARNING - gc.collect() took 1.2 s")
    ('distributed.worker', <Severity.WARNING: 'warning'>, 'gc.collect() took 1.2 s')
    >>> folded("INFO:root:ready")[2], folded("loss 0.41")[2]
    ('ready', 'loss 0.41')
    """
    prefix = _PREFIX.match(text)
    if prefix is None:
        return "", level_of(text), text
    return prefix[1] or prefix[4], level_of(prefix[2] or prefix[3]), text[prefix.end() :]


def message_of(raw: str) -> str:
    """Return a line as it is read by a person: without colours, its time and its logger.

    >>> message_of("2026-11-21 08:08:12,204 - distributed.worker - INFO - ready")
    'ready'
    """
    return folded(stamped(as_printed(raw))[1])[2]


def level_of(text: str) -> Severity:
    """Return how serious a line sounds, by the words that Python's logging and errors use.

    >>> level_of("ValueError: operands could not be broadcast").value
    'error'
    """
    head = text[:160]
    if "ERROR" in head or "CRITICAL" in head or "Traceback (" in head or "Killed" in head:
        return Severity.ERROR
    if "Error: " in head or "Exception: " in head or "Error(" in head:
        return Severity.ERROR
    return Severity.WARNING if "WARN" in head else Severity.INFO


class LogBook:
    """The last lines of all workers, in the order in which they came."""

    def __init__(self, kept: int = LINES_KEPT) -> None:
        self.lines: deque[LogLine] = deque(maxlen=kept)
        self._added = 0
        self.widest_name = 0
        """Cells of the longest name of a worker that printed."""

    def add(self, message: "LogLines") -> None:
        """Keep the lines of a message, and say so where lines before them were left out."""
        for text in message.left_out:
            self._keep(message.at, message.worker, text, Severity.WARNING)
        for raw in message.lines:
            at, text = stamped(safe(as_printed(raw)[:LONGEST_LINE]))
            logger, level, text = folded(text)
            if logger and not text.strip("-"):  # a rule between Dask's lines
                continue
            self._keep(message.at if at is None else at, message.worker, text, level, logger)

    def _keep(self, at: float, worker: str, text: str, level: Severity, logger: str = "") -> None:
        self.widest_name = max(self.widest_name, len(worker))
        self.lines.append(LogLine(self._added, at, worker, text, level, logger))
        self._added += 1

    def last(self, worker: str, number: int) -> list[LogLine]:
        """Return the last lines of a worker."""
        return [line for line in self.lines if line.worker == worker][-number:]
