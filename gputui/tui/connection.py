"""The screen's connection to the head: opened, opened again when it was lost, spoken over."""

import asyncio
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, HeadError
from gputui.protocol.frontend import FromFrontend, Reply, Request, Stopped, SubscribeLogs
from gputui.tui.link import Link, OpenLink

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp

RECONNECT_S = 2.0
LATE_S = 5.0
"""For how long a head may say nothing, which tells what it sees once a second."""
LOOK_S = 1.0


class Connection:
    """A link while there is one; what comes over it is for the app to take."""

    def __init__(self, app: "ScreenApp", open_link: OpenLink) -> None:
        self.link: Link | None = None
        self._app = app
        self._open_link = open_link
        self._wants_logs = False
        self._stopped = False
        self._heard_at = 0.0
        self._late = False

    async def listen(self) -> None:
        """Take what the head says until it says that it stopped; look for a lost one again."""
        while not self._stopped:
            try:
                self.link = await self._open_link()
            except HeadError as error:
                self._app.warn(f"{error}; trying again")
            except GputuiError as error:
                self._app.give_up(error)
                return
            else:
                await self._listen_to(self.link)
                self.link = None
                if not self._stopped:
                    self._app.warn("the cluster's head is gone; trying to reach it again")
            await asyncio.sleep(0 if self._stopped else RECONNECT_S)

    async def _listen_to(self, link: Link) -> None:
        self._app.met_head()
        self._heard_at = self._app.clock()
        if self._wants_logs:
            await link.send(SubscribeLogs(True))
        async for message in link.messages():
            self._stopped = self._stopped or isinstance(message, Stopped)
            self._heard_at = self._app.clock()
            self._app.take(message)

    def look(self) -> None:
        """Say how old what is shown is, while a head that is there says nothing."""
        silence_s = self._app.clock() - self._heard_at
        late = self.link is not None and not self._stopped and silence_s >= LATE_S
        if late:
            self._app.warn(f"the head has said nothing for {silence_s:.0f} s; this is how it was")
        elif self._late and self.link is not None:
            self._app.warn("")
        self._late = late

    async def request(self, message: Request) -> Reply:
        """Have the head carry out a request; raises HeadError when it cannot."""
        if self.link is None:
            raise HeadError("the head is not reached now")
        return await self.link.request(message)

    def send(self, message: FromFrontend) -> None:
        """Send a message that asks for no answer; lost where there is no head."""
        if self.link is not None:
            self._app.run_worker(self.link.send(message))

    def follow_logs(self) -> None:
        """Have the head send what workers print, from now on and from any head met later."""
        if not self._wants_logs:
            self._wants_logs = True
            self.send(SubscribeLogs(True))
