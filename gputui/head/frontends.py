"""Serve frontends: accept them, send them the history, answer requests."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gputui.head.cluster_view import INTERVAL_S
from gputui.head.requests import carry_out
from gputui.head.server import FrontendConnection
from gputui.model.snapshot import Severity
from gputui.process.background import Background, words
from gputui.protocol.frontend import (
    Answer,
    Attached,
    EventHappened,
    FromFrontend,
    Reply,
    ReportRun,
    Request,
    SnapshotTaken,
    SubscribeLogs,
)
from gputui.protocol.shared import Refused

if TYPE_CHECKING:
    from gputui.head.head import Head

HISTORY_AFTER_S = 0.2
"""Delay before the history: the frontend draws the present state first."""

logger = logging.getLogger(__name__)


class Frontends:
    """The server's listener."""

    def __init__(self, head: "Head") -> None:
        self._head = head
        self._tasks = Background(self._failed)

    def frontend_attached(self, frontend: FrontendConnection) -> Attached:
        """Send a frontend the address and credentials of the scheduler."""
        return self._head.attached()

    def frontend_settled(self, frontend: FrontendConnection) -> None:
        """Send a watching frontend the present state, then past events."""
        head = self._head
        head.fleet.frontends_changed()
        if frontend.snapshots:
            for event in head.event_log.events:
                frontend.send(EventHappened(event))
            for asked in head.questions.open:
                frontend.send(asked)
            frontend.send(SnapshotTaken(head.view.recent(INTERVAL_S)))
            head.view.wanted(True)
            self._tasks.start(self._send_history(frontend), "sending the history")

    def frontend_left(self, frontend: FrontendConnection) -> None:
        """Forget the frontend's subscriptions."""
        head = self._head
        head.runs.frontend_left(frontend)
        head.logs.frontend_left(frontend)
        head.fleet.frontends_changed()
        head.view.wanted(any(frontend.snapshots for frontend in head.server.frontends))

    def message_taken(
        self, frontend: FrontendConnection, message: FromFrontend
    ) -> Coroutine[Any, Any, Reply | Refused] | None:
        """Handle a frontend's message; return the coroutine whose result answers a request."""
        head = self._head
        match message:
            case ReportRun():
                head.runs.report(frontend, message)
            case SubscribeLogs(on):
                head.logs.subscribe(frontend, on)
            case Answer():
                head.questions.take(message)
            case _ if isinstance(message, Request):
                return carry_out(head, message, frontend.session)
            case _:
                logger.warning("a frontend sent %s", type(message).__name__)
        return None

    async def _send_history(self, frontend: FrontendConnection) -> None:
        """Send the history, a host at a time, no faster than the frontend reads."""
        await asyncio.sleep(HISTORY_AFTER_S)
        for taken in self._head.history.taken():
            if frontend.gone.is_set():
                return
            frontend.send(taken)
            await frontend.flush()
            await asyncio.sleep(0)  # a channel that has ended holds nothing up

    def _failed(self, what: str, error: Exception) -> None:
        self._head.tell(Severity.ERROR, "cluster", "failed", f"{what}: {words(error)}")
