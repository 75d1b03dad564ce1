"""The screen's connection to the head: opened, opened again when it was lost, spoken over.

It is a `cluster.HeadConnection`, to a head or, in a demo, to one in this process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, HeadError

if TYPE_CHECKING:
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.frontend import FromFrontend, Reply, Request
    from gputui.tui.app import ScreenApp


OpenConnection = Callable[[], Awaitable["HeadConnection"]]
"""Attaches to a head; called again when it was lost. Raises HeadError when there is no head."""


RECONNECT_S = 1.0
LATE_S = 2.5
"""A head without a message for so long is silent; snapshots come every second."""
LOOK_S = 0.5


class Attachment:
    """A connection while there is one; what comes over it is for the app to take."""

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
        self._name = ""
        self._pid = 0
        self._where = ""
        self._problem = ""
        """Why the head could not be reached again."""

    async def listen(self) -> None:
        """Process the head's messages until it stops; reconnect when it is lost."""
        while not self._stopped:
            try:
                connection = await self.open_connection()
                await self._listen_to(connection)
            except HeadError as error:
                self._problem = str(error).partition("\n")[0]
                if not self._pid:
                    self._app.warn(f"{error}; trying again")
            except GputuiError as error:
                self._app.give_up(error)
                return
            if not self._stopped:
                await self._wait()

    async def _wait(self) -> None:
        """Wait until it is time to try again."""
        self._starting.clear()
        try:
            async with asyncio.timeout(RECONNECT_S):
                await self._starting.wait()
        except TimeoutError:
            return

    async def _listen_to(self, connection: "HeadConnection") -> None:
        """Process a connection's messages until it ends, and close it."""
        self.connection = connection
        try:
            await self._take_from(connection)
        finally:
            self.connection = None
            await connection.close()
            self.look()

    async def _take_from(self, connection: "HeadConnection") -> None:
        from gputui.protocol.frontend import Stopped, SubscribeLogs

        self._name, self._pid = connection.attached.name, connection.attached.pid
        self._where, self._problem = connection.where, ""
        self._heard_at = self._app.clock()
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

    def look(self) -> None:
        """Note whether the head answers, and have the app say so while it does not."""
        if self._stopped or not self._pid:
            return
        silent_s = self._app.clock() - self._heard_at
        lost = self.connection is None or silent_s >= LATE_S
        if lost or self.lost:
            self.lost = lost
            self._app.show_loss(self.sentence() if lost else "", silent_s)

    def sentence(self) -> str:
        """Show a sentence about a head that does not answer."""
        if not self._pid:
            return "no cluster was reached"
        if self._where:
            why = f" ({self._problem})" if self._problem else ""
            return f"no answer from {self._where}; {self._name} goes on there, reconnecting{why}"
        state = _process_state(self._pid)
        head = f"the head of {self._name} (process {self._pid})"
        if self.connection is None or not state:
            return f"{head} has ended; its workers end by themselves within seconds"
        if state == "T":
            return f"{head} is stopped; resume it with: kill -CONT {self._pid}"
        return f"{head} runs but does not answer; this machine may be overloaded"

    @property
    def clock_then(self) -> str:
        """The time of the head's last message, as a clock shows it."""
        return time.strftime("%H:%M:%S", time.localtime(self._heard_at))

    @property
    def can_start_again(self) -> bool:
        """Whether the cluster that was lost can be started again from here."""
        return self.lost and self._start_again is not None and self.connection is None

    def start_again(self) -> None:
        """Start the lost cluster again, on the hosts that it was started on."""
        if self._start_again is not None:
            self._start_again()
            self._pid = 0
            self.lost = False
            self._app.show_loss("", 0.0)
            self._app.warn(f"starting {self._name} again …")
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


def _process_state(pid: int) -> str:
    """Return a process's state as ps shows it, "" where it has ended."""
    from gputui.process.procfs import read_text

    try:
        state = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if state in "ZX" else state
