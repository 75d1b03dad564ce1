"""What a simulated cluster tells beside its snapshots: events, log lines and questions.

Kept for whoever attaches later, as a head does; what is new since the last look is taken once.
"""

from collections import deque
from collections.abc import Iterable

from gputui.protocol.frontend import Asked, EventHappened, ToFrontend
from gputui.protocol.shared import LogLines
from gputui.snapshot import Event, Severity

EVENTS_KEPT = 5_000
LOG_MESSAGES_KEPT = 2_000


class EventLog:
    """Events, log lines and open questions of one simulated cluster."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.logs: deque[LogLines] = deque(maxlen=LOG_MESSAGES_KEPT)
        self.questions: dict[int, Asked] = {}
        self._sequence = 0
        self._fresh: list[ToFrontend] = []

    def tell(self, at: float, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Keep an event."""
        self._sequence += 1
        event = Event(self._sequence, at, severity, subject, kind, text)
        self.events.append(event)
        self._fresh.append(EventHappened(event))

    def log(self, at: float, worker: str, lines: Iterable[str]) -> None:
        """Keep lines that a worker printed."""
        message = LogLines(worker, tuple(lines), at)
        self.logs.append(message)
        self._fresh.append(message)

    def ask(self, question: Asked) -> None:
        """Put a question to whoever is attached."""
        self.questions[question.question] = question
        self._fresh.append(question)

    def withdraw(self, number: int) -> Asked | None:
        """Take a question back, because it was answered; None if there is none such."""
        question = self.questions.pop(number, None)
        if question is not None:
            self._fresh.append(
                Asked(
                    number,
                    question.host,
                    question.kind,
                    question.text,
                    question.secret,
                    withdrawn=True,
                )
            )
        return question

    def kept(self) -> tuple[ToFrontend, ...]:
        """Return what a frontend that attaches now is told first: events and open questions."""
        return (*map(EventHappened, self.events), *self.questions.values())

    def take(self) -> tuple[ToFrontend, ...]:
        """Return what is new since the last call."""
        fresh, self._fresh = self._fresh, []
        return tuple(fresh)
