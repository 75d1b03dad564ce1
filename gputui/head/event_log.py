"""What happened in a cluster, kept for those who attach later, and written to the head's log."""

import logging
import time
from collections import deque
from collections.abc import Callable

from gputui.snapshot import Event, Severity

logger = logging.getLogger(__name__)

KEPT = 10_000
LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


class EventLog:
    """The newest events, numbered from 1."""

    def __init__(self, recorded: Callable[[Event], None]) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._recorded = recorded
        self._sequence = 0

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event now."""
        self._sequence += 1
        event = Event(self._sequence, time.time(), severity, subject, kind, text)
        self._events.append(event)
        logger.log(LEVELS[severity], "%s: %s: %s", subject, kind, text)
        self._recorded(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events)
