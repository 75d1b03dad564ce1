"""The head's server: a Unix socket for frontends, 0600 in a 0700 folder; JSON lines both ways.

Each frontend has a queue of its own, so that one that stops reading holds up nobody: a snapshot
takes the place of the one before, log lines are left out, and past all bounds it is let go.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import Protocol

from gputui.errors import ProtocolError
from gputui.protocol import VERSION
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode
from gputui.protocol.frontend import Attach, Attached, FromFrontend, ToFrontend
from gputui.protocol.shared import Refused
from gputui.snapshot import Session

logger = logging.getLogger(__name__)

ATTACH_S = 10.0
"""How long a connection may take to say who it is."""
MAX_WAITING = 20_000
"""Messages that a frontend may leave unread: all events kept, twice."""
MAX_LOGS_WAITING = 1_000


class FrontendListener(Protocol):
    """What the head does for frontends."""

    def frontend_attached(self, frontend: "FrontendConnection") -> Attached:
        """Take a frontend in, and return what it needs to know first."""

    def frontend_settled(self, frontend: "FrontendConnection") -> None:
        """Send a frontend what it must see of the past: it has been told it is attached."""

    def message_taken(self, frontend: "FrontendConnection", message: FromFrontend) -> None:
        """Begin to carry out what a frontend asks."""

    def frontend_left(self, frontend: "FrontendConnection") -> None:
        """A frontend is gone."""


class FrontendConnection:
    """One attached frontend, and what is yet to be sent to it."""

    def __init__(self, attach: Attach, writer: asyncio.StreamWriter) -> None:
        self.kind = attach.frontend
        self.session = Session(
            attach.frontend, attach.pid, attach.user, attach.terminal, attach.client, time.time()
        )
        self.snapshots = attach.snapshots
        self.logs = False
        self._writer = writer
        self._waiting: deque[bytes] = deque()
        self._snapshot: bytes | None = None
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._ending = False
        self._task = asyncio.create_task(self._write(), name=f"frontend {self.kind}")

    def send(self, message: ToFrontend) -> None:
        """Send a message without waiting."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """Send an encoded message without waiting."""
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("a frontend (%s) reads nothing any more: let go", self.kind)
            self._writer.transport.abort()
            return
        self._waiting.append(line)
        self._work.set()

    def send_log(self, line: bytes) -> None:
        """Send encoded log lines, unless it has many unread already."""
        if len(self._waiting) < MAX_LOGS_WAITING:
            self.send_line(line)

    def send_snapshot(self, line: bytes) -> None:
        """Send an encoded snapshot in place of one that has not gone out yet."""
        self._snapshot = line
        self._work.set()

    async def flush(self) -> None:
        """Wait until what waits has gone out, or the frontend is gone."""
        if self._waiting and not self._task.done():
            self._idle.clear()
            await self._idle.wait()

    async def finish(self, bound_s: float) -> None:
        """Send what waits, and close."""
        self._ending = True
        self._work.set()
        await asyncio.wait({self._task}, timeout=bound_s)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._task.cancel()
        self._writer.close()

    async def _write(self) -> None:
        try:
            while not (self._ending and not self._waiting and self._snapshot is None):
                await self._work.wait()
                self._work.clear()
                with contextlib.suppress(ConnectionError):
                    while line := self._next():
                        self._writer.write(line)
                        await self._writer.drain()
                self._idle.set()
        finally:
            self._idle.set()

    def _next(self) -> bytes | None:
        if self._waiting:
            return self._waiting.popleft()
        line, self._snapshot = self._snapshot, None
        return line


class FrontendServer:
    """Listens for frontends, and keeps those that are attached."""

    def __init__(self, path: Path, listener: FrontendListener) -> None:
        self.path = path
        self.frontends: set[FrontendConnection] = set()
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to listen."""
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self.path, limit=MAX_LINE_BYTES
            )
        finally:
            os.umask(before)

    async def close(self, last: ToFrontend, bound_s: float = 1.0) -> None:
        """Send every frontend the last message, and let all go."""
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)
        for frontend in self.frontends:
            frontend.send(last)
        await asyncio.gather(*(frontend.finish(bound_s) for frontend in self.frontends))

    def broadcast(self, message: ToFrontend) -> None:
        """Send a message to every frontend that looks on, or has a run that it happens to."""
        line: bytes | None = None
        for frontend in self.frontends:
            if frontend.snapshots or frontend.kind == "run":
                line = line or encode(message)
                frontend.send_line(line)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frontend: FrontendConnection | None = None
        try:
            async with asyncio.timeout(ATTACH_S):
                first = await reader.readline()
            if refusal := _refusal(first):
                writer.write(encode(Refused(0, refusal)))
                await writer.drain()
                return
            frontend = FrontendConnection(decode(first, Attach), writer)
            attached = self._listener.frontend_attached(frontend)
            frontend.send(attached)
            self.frontends.add(frontend)
            self._listener.frontend_settled(frontend)
            while line := await reader.readline():
                self._listener.message_taken(frontend, decode(line, FromFrontend))
        except (ProtocolError, ValueError) as error:
            logger.warning("a frontend sent what is no message: %s", error)
        except (ConnectionError, TimeoutError):
            logger.info("a frontend went away")
        finally:
            self._let_go(frontend, writer)

    def _let_go(self, frontend: FrontendConnection | None, writer: asyncio.StreamWriter) -> None:
        if frontend in self.frontends:
            assert frontend is not None
            self.frontends.remove(frontend)
            self._listener.frontend_left(frontend)
            frontend.abort()
        else:
            writer.close()


def _refusal(line: bytes) -> str:
    """Return why a frontend is turned away by its first line; "" when it is not.

    That line begins alike in every version: its name, and the version.
    """
    match json.loads(line or b"null"):
        case ["Attach", int(version), *_]:
            if version == VERSION:
                return ""
            return (
                f"this cluster's head speaks version {VERSION} of the protocol, and this frontend "
                f"{version}: use the gputui that started the cluster, or start it anew"
            )
    return "the first message must be Attach"
