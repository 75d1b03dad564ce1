"""The screen's connection to the head: opened, opened again when it was lost, spoken over.

It is a `client.HeadConnection`, to a head or, in a demo, to one in this process.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, HeadError

if TYPE_CHECKING:
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.frontend import FromFrontend, Reply, Request
    from gputui.tui.app import ScreenApp


OpenConnection = Callable[[], Awaitable["HeadConnection"]]
"""Attaches to a head; called again when it was lost. Raises HeadError when there is no head."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a person without hosts and without a GPU here can choose from."""

    ssh_hosts: Sequence[str]
    """Of ~/.ssh/config."""
    begin: Callable[[str, str], OpenConnection]
    """Returns the function that opens a cluster: `here`, on the hosts of a text (`ssh`) or of a
    path (`file`), or the `demo`. Raises GputuiError for hosts that cannot be read."""


RECONNECT_S = 1.0
LATE_S = 2.5
"""A head without a message for so long is silent; snapshots come every second."""
LOOK_S = 0.5


class Attachment:
    """A connection while there is one; the app takes what comes over it."""

    def __init__(
        self,
        app: "ScreenApp",
        open_connection: OpenConnection,
        start_again: Callable[[], None] | None = None,
    ) -> None:
        self.connection: HeadConnection | None = None
        self.lost = False
        """Whether the head that was met last does not answer now."""
        self._app = app
        self.open_connection = open_connection
        self._start_again = start_again
        self._starting = asyncio.Event()
        self._wants_logs = False
        self._stopped = False
        self._heard_at = 0.0
        self._met: HeadConnection | None = None
        """The connection to the head that was met last."""
        self._problem = ""
        """Why the head could not be reached again."""

    async def listen(self) -> None:
        """Process the head's messages until it stops; reconnect when it is lost."""
        while not self._stopped:
            try:
                await self._listen_to(await self.open_connection())
            except HeadError as error:
                self._problem = str(error).partition("\n")[0]
                if self._met is None:
                    self._app.warn(f"{error}; trying again")
            except GputuiError as error:
                self._app.failure = error
                self._app.exit()
                return
            if not self._stopped:
                self._starting.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._starting.wait(), RECONNECT_S)

    async def _listen_to(self, connection: "HeadConnection") -> None:
        """Process a connection's messages until it ends, and close it."""
        from gputui.protocol.frontend import Stopped, SubscribeLogs

        self.connection = self._met = connection
        self._problem, self._heard_at = "", self._app.clock()
        try:
            self._app.met_head()
            self.look()
            if self._wants_logs:
                connection.send(SubscribeLogs(True))
            async for message in connection.messages():
                self._stopped = self._stopped or isinstance(message, Stopped)
                self._heard_at = self._app.clock()
                if self.lost:
                    self.look()
                self._app.take(message)
        finally:
            self.connection = None
            await connection.close()
            self.look()

    def look(self) -> None:
        """Note whether the head answers, and have the app say so while it does not."""
        if self._stopped or self._met is None:
            return
        silent_s = self._app.clock() - self._heard_at
        was_lost, self.lost = self.lost, self.connection is None or silent_s >= LATE_S
        if self.lost:
            then = time.strftime("%H:%M:%S", time.localtime(self._heard_at))
            name, silence = self._met.attached.name, f"{then} ({silent_s:.0f} s)"
            self._app.show_loss(f"{name} has not answered since {silence}", self.sentence())
        elif was_lost:
            self._app.show_loss("", "")

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
            return f"{head} has ended; its workers end by themselves within seconds"
        from gputui.process.procfs import is_stopped

        if is_stopped(pid):
            return f"{head} is stopped; resume it with: kill -CONT {pid}"
        return f"{head} runs but does not answer; this machine may be overloaded"

    @property
    def can_start_again(self) -> bool:
        """Whether the cluster that was lost can be started again from here."""
        return self.lost and self._start_again is not None and self.connection is None

    def start_again(self) -> None:
        """Start the lost cluster again, on the hosts that it was started on."""
        if self._start_again is not None and self._met is not None:
            self._start_again()
            self._app.show_loss("", "")
            self._app.warn(f"starting {self._met.attached.name} again …")
            self.lost, self._met = False, None
            self._starting.set()

    async def request(self, message: "Request") -> "Reply":
        """Have the head carry out a request; raises HeadError when it cannot."""
        if self.connection is None:
            raise HeadError("the head does not answer")
        return await self.connection.request(message)

    def send(self, message: "FromFrontend") -> None:
        """Send a message that asks for no answer; lost where there is no head."""
        if self.connection is not None:
            self.connection.send(message)

    def follow_logs(self) -> None:
        """Have the head send what workers print, from now on and from any head met later."""
        from gputui.protocol.frontend import SubscribeLogs

        if not self._wants_logs:
            self._wants_logs = True
            self.send(SubscribeLogs(True))
