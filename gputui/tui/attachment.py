"""The screen's connection to the head: opened, opened again when it was lost, spoken over.

It is a `client.HeadConnection`, to a head or, in a demo, to one in this process.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from gputui.errors import HeadError

if TYPE_CHECKING:
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.frontend import FromFrontend, Request, ToFrontend


OpenConnection = Callable[[], Awaitable["HeadConnection"]]
"""Attaches to a head; called again when it was lost. Raises HeadError when there is no head."""


RECONNECT_S = 1.0
LATE_S = 2.5
"""A head without a message for so long is silent; snapshots come every second."""
LOOK_S = 0.5


class Attachment:
    """A connection while there is one."""

    def __init__(
        self,
        open_connection: OpenConnection,
        start_again: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.connection: HeadConnection | None = None
        self.lost = False
        """Whether the head that was met last does not answer now."""
        self.open_connection = open_connection
        self.clock = clock
        self._start_again = start_again
        self._stopped = False
        self._heard_at = 0.0
        self._met: HeadConnection | None = None
        """The connection to the head that was met last."""
        self._problem = ""
        """Why the head could not be reached again."""

    async def messages(self) -> "AsyncIterator[ToFrontend | HeadError | None]":
        """Yield None for each head that is met, then its messages, until it stops.

        A head that is lost is looked for again; why none was met is yielded, too.
        """
        while not self._stopped:
            try:
                async for message in self._messages_of(await self.open_connection()):
                    yield message
            except HeadError as error:
                self._problem = str(error).partition("\n")[0]
                if self._met is None:
                    yield error
            if not self._stopped:
                await asyncio.sleep(RECONNECT_S)

    async def _messages_of(
        self, connection: "HeadConnection"
    ) -> "AsyncIterator[ToFrontend | None]":
        """Yield a connection's messages until it ends, and close it."""
        from gputui.protocol.frontend import Stopped
        from gputui.protocol.shared import FollowLogs

        self.connection = self._met = connection
        self._problem, self._heard_at = "", self.clock()
        try:
            yield None
            connection.send(FollowLogs(True))
            async for message in connection.messages():
                self._stopped = self._stopped or isinstance(message, Stopped)
                self._heard_at = self.clock()
                yield message
        finally:
            self.connection = None
            await connection.close()

    def loss(self) -> str:
        """Return since when the head has not answered; "" while it does."""
        if self._stopped or self._met is None:
            return ""
        silent_s = self.clock() - self._heard_at
        self.lost = self.connection is None or silent_s >= LATE_S
        if not self.lost:
            return ""
        then = time.strftime("%H:%M:%S", time.localtime(self._heard_at))
        return f"{self._met.attached.name} has not answered since {then} ({silent_s:.0f} s)"

    def sentence(self) -> str:
        """Return a sentence about a head that does not answer."""
        if self._met is None:
            return "no cluster was reached"
        name, pid, where = self._met.attached.name, self._met.attached.pid, self._met.where
        if where:
            why = f" ({self._problem})" if self._problem else ""
            return f"no answer from {where}; {name} goes on there, reconnecting{why}"
        head = f"the head of {name} (process {pid})"
        if self.connection is None:
            return f"{head} has ended; what it started ends by itself within seconds"
        from gputui.process.procfs import is_stopped

        if is_stopped(pid):
            return f"{head} is stopped; resume it with: kill -CONT {pid}"
        return f"{head} runs but does not answer; this machine may be overloaded"

    @property
    def can_start_again(self) -> bool:
        """Whether the cluster that was lost can be started again from here."""
        return self.lost and self._start_again is not None and self.connection is None

    def start_again(self) -> str:
        """Start the lost cluster again, on the hosts that it was started on; return its name."""
        assert self._start_again is not None and self._met is not None, "it can be started again"
        name = self._met.attached.name
        self._start_again()
        self.lost, self._met = False, None
        return name

    async def request(self, message: "Request") -> Any:
        """Have the head carry out a request, and return its answer; raises HeadError."""
        if self.connection is None:
            raise HeadError("the head does not answer")
        return await self.connection.request(message)

    def send(self, message: "FromFrontend") -> None:
        """Send a message that asks for no answer; lost where there is no head."""
        if self.connection is not None:
            self.connection.send(message)
