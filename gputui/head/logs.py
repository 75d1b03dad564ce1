"""What workers print, passed on to the frontends that want it; followed only while one does."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from gputui.head.server import FrontendConnection
from gputui.protocol.outgoing import Prepared
from gputui.protocol.shared import LogLines

KEPT = 1_000
"""Messages, for a frontend that begins to follow while another one does."""


class LogRelay:
    """Passes `LogLines` on."""

    def __init__(
        self, frontends: Collection[FrontendConnection], follow: Callable[[bool], None]
    ) -> None:
        self._frontends = frontends
        self._follow = follow
        self._kept: deque[LogLines] = deque(maxlen=KEPT)

    def subscribe(self, frontend: FrontendConnection, on: bool) -> None:
        """Send a frontend what workers print from now on, and what is kept; or stop."""
        followed = self._followed
        if on and followed and not frontend.logs:
            for lines in self._kept:
                frontend.send(replace(lines, earlier=True))
        frontend.logs = on
        self._settle(followed)

    def frontend_left(self, frontend: FrontendConnection) -> None:
        """Stop following when no frontend follows any more."""
        if frontend.logs:
            frontend.logs = False
            self._settle(True)

    def printed(self, lines: LogLines) -> None:
        """Pass lines on."""
        prepared = Prepared(lines)
        self._kept.append(lines)
        for frontend in self._frontends:
            if frontend.logs:
                frontend.send(prepared)

    @property
    def _followed(self) -> bool:
        return any(frontend.logs for frontend in self._frontends)

    def _settle(self, before: bool) -> None:
        if self._followed != before:
            self._kept.clear()
            self._follow(not before)
