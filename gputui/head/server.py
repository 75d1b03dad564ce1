"""The head's server: a Unix socket for frontends, 0600 in a 0700 folder; a channel with each.

A frontend that stops reading delays no other: a snapshot takes the place of the one before, log
lines are left out and counted, and past all bounds it is disconnected.
"""

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gputui.errors import ProtocolError
from gputui.process.background import Background, within
from gputui.protocol.frontend import Attach, Attached, FromFrontend, ToFrontend, refusal, refused
from gputui.protocol.streams import ByteStream, SocketStream
from gputui.protocol.typed_codec import TypedChannel, decode

logger = logging.getLogger(__name__)

ATTACH_S = 10.0
"""How long a connection may take to say who it is."""
LINE_BYTES = 3 * 2**19
"""Largest message of a frontend: a hosts file, the result of a run."""

PEER = struct.Struct("3i")
"""A process id, its user, its group."""

FrontendChannel = TypedChannel[ToFrontend, FromFrontend]
Answering = Coroutine[Any, Any, ToFrontend] | None
"""The work whose result answers a request; None for a message without an answer."""


class FrontendConnection:
    """One attached frontend."""

    def __init__(self, attach: Attach, channel: FrontendChannel, pid: int | None) -> None:
        self.pid = pid
        """Of the process at the other end, by the kernel; None where that is no socket."""
        self.session = replace(attach.session, attached_at=time.time())
        self.snapshots = attach.snapshots
        self.channel = channel
        self.send = channel.send
        self.gone = asyncio.Event()

    async def part(self, last: ToFrontend, bound_s: float) -> None:
        """Send the last message, and close once the frontend has, or after `bound_s`.

        If the head closed first, a frontend that is writing would lose unread messages.
        """
        self.send(last)
        await within(bound_s, self.gone.wait())
        await self.channel.close(0.0)


class FrontendServer:
    """Listens for frontends, and keeps those that are attached."""

    def __init__(
        self,
        path: Path,
        *,
        attached: Callable[[FrontendConnection], Attached],
        settled: Callable[[FrontendConnection], None],
        left: Callable[[FrontendConnection], None],
    ) -> None:
        """Listen at `path`.

        `attached` takes a frontend in, and returns its first message; `settled` sends it the
        history that it needs after that; `left` is called when it is gone.
        """
        self.path = path
        self._attached, self._settled, self._left = attached, settled, left
        self.received: Callable[[FrontendConnection, FromFrontend], Answering]
        self.frontends: set[FrontendConnection] = set()
        self._server: asyncio.Server | None = None
        self._tasks = Background(lambda name, error: None)  # it is logged

    async def open(self) -> None:
        """Begin to listen."""
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, self.path)
        finally:
            os.umask(before)

    async def close(self, last: ToFrontend, bound_s: float = 1.0) -> None:
        """Send every frontend the last message and close its connection."""
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)
        await asyncio.gather(*(frontend.part(last, bound_s) for frontend in self.frontends))
        await self._tasks.close()

    def broadcast(self, message: ToFrontend) -> None:
        """Send a message to every frontend but commands, which ask one thing and go."""
        for frontend in self.frontends:
            if frontend.snapshots or frontend.session.frontend != "command":
                frontend.send(message)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accept(SocketStream(reader, writer), _peer(writer.get_extra_info("socket")))

    def accept(self, stream: ByteStream, pid: int | None = None) -> None:
        """Serve the frontend at the other end of a stream."""
        channel = FrontendChannel(stream, FromFrontend, line_bytes=LINE_BYTES)
        self._tasks.start(self._serve(channel, pid), "serving a frontend")

    async def _serve(self, channel: FrontendChannel, pid: int | None) -> None:
        """Serve a frontend until it disconnects; its requests continue."""
        try:
            async with asyncio.timeout(ATTACH_S):
                if why := refusal(await channel.read_line() or b""):
                    channel.stream.write(refused(why))
                    return
                attach = decode(await channel.read_line() or b"", Attach)
                frontend = FrontendConnection(attach, channel, pid)
                frontend.send(self._attached(frontend))
                if attach.compressed:
                    await channel.flush(None)
                    channel.compress()
            self.frontends.add(frontend)
            try:
                self._settled(frontend)
                await channel.serve(partial(self.received, frontend), self._tasks)
            finally:
                self.frontends.discard(frontend)
                frontend.gone.set()
                self._left(frontend)
        except ProtocolError as error:
            logger.warning("a frontend sent what is no message: %s", error)
        except TimeoutError:
            logger.info("a frontend did not say who it is")
        finally:
            await channel.close()


def _peer(connected: socket.socket) -> int:
    """Return the pid of the process at the other end. Source: unix(7), SO_PEERCRED."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    return int(PEER.unpack(credentials)[0])
