"""Pass on to frontends: events, the workers' output, and questions.

Events are kept for those who attach later, and written to the head's log. What workers print is
followed only while a frontend wants it. A question goes to every attached screen: the first answer
counts, and the question is then withdrawn from the others; where no screen is attached or on its
way, the answer is no.
"""

import asyncio
import itertools
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from gputui.fleet.stages import Question
from gputui.head.server import FrontendConnection
from gputui.model.bounds import KEPT_BYTES
from gputui.model.plain_text import cut, safe_lines
from gputui.model.snapshot import Event, Severity
from gputui.process.background import words
from gputui.protocol.frontend import Answer, Asked, EventHappened, ToFrontend
from gputui.protocol.shared import LogLines

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


class Kept(Generic[Item]):
    """Items, oldest first, each of a source.

    >>> kept = Kept[str](max_bytes=6, bytes_each=4)
    >>> for source, item in [("a", "12"), ("b", "3"), ("a", "45"), ("a", "6"), ("c", "7")]:
    ...     kept.add(source, len(item), item)
    >>> list(kept)
    ['3', '45', '6', '7']
    """

    def __init__(self, *, max_bytes: int, bytes_each: int) -> None:
        self._max_bytes, self._bytes_each = max_bytes, bytes_each
        self._numbers = itertools.count()
        self._of: defaultdict[str, deque[tuple[int, int, Item]]] = defaultdict(deque)
        """Source → its items, each with a number and its size."""
        self._bytes: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Item]:
        return (item for *_, item in sorted(itertools.chain(*self._of.values())))

    def add(self, source: str, size: int, item: Item) -> None:
        """Add an item of so many bytes, and drop the oldest that the budgets have no room for."""
        self._of[source].append((next(self._numbers), size, item))
        self._bytes[source] += size
        while self._bytes[source] > self._bytes_each:
            self._drop(source)
        while self._bytes.total() > self._max_bytes:
            self._drop(min(self._of, key=lambda each: self._of[each][0][0]))

    def clear(self) -> None:
        """Drop all."""
        self._of.clear()
        self._bytes.clear()

    def _drop(self, source: str) -> None:
        """Drop the oldest item of a source."""
        _, size, _ = self._of[source].popleft()
        self._bytes[source] -= size
        if not self._of[source]:
            del self._of[source], self._bytes[source]


EVENTS_BYTES = 2**22
"""Of all events that are kept: about 20,000, all of which a frontend is sent first."""
EVENTS_BYTES_EACH = KEPT_BYTES["events"]
"""Of those of one host, of a worker, or of the cluster itself."""
EVENT_CHARS = 4_000
EVENT_BYTES = 200
"""Of an event without its texts."""
LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


class EventLog:
    """The newest events, numbered from 1."""

    def __init__(self, happened: Callable[[EventHappened], None]) -> None:
        self._events = Kept[Event](max_bytes=EVENTS_BYTES, bytes_each=EVENTS_BYTES_EACH)
        self._happened = happened
        self._sequence = 0

    def tell(self, severity: Severity, subject: str, kind: str, text: str, alarm: str = "") -> None:
        """Record an event now."""
        self._sequence += 1
        text = safe_lines(cut(text, EVENT_CHARS))
        event = Event(self._sequence, time.time(), severity, subject, kind, text, alarm)
        size = EVENT_BYTES + len(f"{subject}{kind}{text}".encode("utf-8", "replace"))
        self._events.add(host_of(subject), size, event)
        logger.log(LEVELS[severity], "%s: %s: %s", subject, kind, text)
        self._happened(EventHappened(event))

    def failed(self, what: str, error: Exception) -> None:
        """Record that something failed which the cluster can do without."""
        self.tell(Severity.ERROR, "cluster", "failed", f"{what}: {words(error)}")

    @property
    def events(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events)


def host_of(subject: str) -> str:
    """Return the host of a worker by the worker's name; of anything else, its own name.

    >>> host_of("gpu-a:gpu0.1"), host_of("gpu-a"), host_of("scheduler")
    ('gpu-a', 'gpu-a', 'scheduler')
    """
    return subject.rpartition(":")[0] or subject


LOGS_BYTES = 2**24
"""Of what workers printed, for a frontend that begins to follow while another one does."""
LOGS_BYTES_EACH = KEPT_BYTES["log lines"]
"""Of that of one host's workers."""
LINE_BYTES = 100
"""Of a line without its text."""


class LogRelay:
    """Passes `LogLines` on, and has them sent to the head only while a frontend wants them."""

    def __init__(self, follow: Callable[[bool], None]) -> None:
        self._follow = follow
        self._following: set[FrontendConnection] = set()
        self._kept = Kept[LogLines](max_bytes=LOGS_BYTES, bytes_each=LOGS_BYTES_EACH)

    def subscribe(self, frontend: FrontendConnection, on: bool) -> None:
        """Start sending a frontend the workers' output, the kept lines first, or stop."""
        followed = bool(self._following)
        if on and frontend not in self._following:
            for lines in self._kept:
                frontend.send(replace(lines, earlier=True))
            self._following.add(frontend)
        elif not on:
            self._following.discard(frontend)
        if bool(self._following) != followed:
            self._kept.clear()
            self._follow(on)

    def printed(self, lines: LogLines) -> None:
        """Pass lines on."""
        size = sum(LINE_BYTES + len(line) for line in lines.lines) + LINE_BYTES
        self._kept.add(host_of(lines.worker), size, lines)
        for frontend in self._following:
            frontend.send(lines)


class Questions:
    """The open questions of one cluster."""

    def __init__(self, broadcast: Callable[[ToFrontend], None], someone_there: Callable[[], bool]):
        self._broadcast = broadcast
        self._someone_there = someone_there
        self._numbers = itertools.count(1)
        self.open: dict[int, tuple[Asked, asyncio.Future[str | None]]] = {}
        """By number, each with its answer to come."""

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask, and return the answer; None for no."""
        if not self._someone_there():
            return None
        number = next(self._numbers)
        asked = Asked(number, host, question.kind, question.text, question.secret)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.open[number] = (asked, answer)
        self._broadcast(asked)
        try:
            return await answer
        finally:
            del self.open[number]
            self._broadcast(replace(asked, withdrawn=True))

    def take(self, answer: Answer) -> None:
        """Take a user's answer; one that comes too late is ignored."""
        if answer.question in self.open:
            _, waiting = self.open[answer.question]
            if not waiting.done():
                waiting.set_result(answer.text)
