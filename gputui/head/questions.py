"""Questions that only a user can answer, sent to every attached screen.

The first answer counts, and the question is then withdrawn from the others. Where no screen is
attached or on its way, the answer is no.
"""

import asyncio
import itertools
from collections.abc import Callable

from gputui.fleet.stages import Question
from gputui.protocol.frontend import Answer, Asked, ToFrontend


class Questions:
    """The open questions of one cluster."""

    def __init__(self, broadcast: Callable[[ToFrontend], None], someone_there: Callable[[], bool]):
        self._broadcast = broadcast
        self._someone_there = someone_there
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Asked, asyncio.Future[str | None]]] = {}

    @property
    def open(self) -> tuple[Asked, ...]:
        """What a frontend that attaches now is to be asked."""
        return tuple(asked for asked, _ in self._open.values())

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask, and return the answer; None for no."""
        if not self._someone_there():
            return None
        number = next(self._numbers)
        asked = Asked(number, host, question.kind, question.text, question.secret)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._open[number] = (asked, answer)
        self._broadcast(asked)
        try:
            return await answer
        finally:
            del self._open[number]
            self._broadcast(
                Asked(number, host, question.kind, question.text, question.secret, withdrawn=True)
            )

    def take(self, answer: Answer) -> None:
        """Take a user's answer; one that comes too late is ignored."""
        if answer.question in self._open:
            _, waiting = self._open[answer.question]
            if not waiting.done():
                waiting.set_result(answer.text)
