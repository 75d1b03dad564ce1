"""A frontend's hold on a head: requests and their answers, and what the head sends unasked.

JSON lines over the head's Unix socket. The screen, `--run` and `GPUCluster` all use it; it
holds no truth of its own.
"""

import asyncio
import contextlib
import itertools
import os
import pwd
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import HeadError, ProtocolError
from gputui.protocol import VERSION
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode
from gputui.protocol.frontend import (
    Attach,
    Attached,
    FromFrontend,
    Reply,
    Request,
    SchedulerReady,
    SnapshotTaken,
    Stopped,
    ToFrontend,
)
from gputui.protocol.shared import Refused

if TYPE_CHECKING:
    from distributed.security import Security

GONE = "the cluster's head is gone"
LONG_LINE_BYTES = 2**20
"""A line of so much is decoded in a thread, so that keys are answered in the meantime."""


class HeadLink:
    """A connection to a head; `attached` says whose cluster it is and how a client joins it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, attached: Attached
    ) -> None:
        self.socket = ""
        """The path of the head's socket."""
        self.attached = attached
        self.address = attached.address
        """`tls://host:port` of the scheduler; "" until it listens."""
        self.dashboard = attached.dashboard
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._unasked: deque[ToFrontend] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._why_gone = GONE
        self._task = asyncio.create_task(self._read(), name="head link")

    @classmethod
    async def open(
        cls, socket_path: str | Path, *, frontend: str, snapshots: bool = False
    ) -> "HeadLink":
        """Attach to the head behind a socket.

        `frontend` is screen, run, python or command. Raises HeadError when there is no head, or one
        of another version.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(socket_path, limit=MAX_LINE_BYTES)
        except OSError as error:
            raise HeadError(f"no head answers at {socket_path}: {error.strerror}") from error
        try:
            writer.write(encode(_attach(frontend, snapshots)))
            answer = await _read_message(reader)
            if isinstance(answer, Attached) and answer.version == VERSION:
                link = cls(reader, writer, answer)
                link.socket = str(socket_path)
                return link
            raise HeadError(_why_turned_away(answer))
        except BaseException:
            writer.close()
            raise

    async def request(self, message: Request) -> Reply:
        """Have a request carried out, and return the answer.

        The request's number is filled in here. Raises HeadError with the reason when the head
        refuses, and when it is gone.
        """
        if self._ended:
            raise HeadError(self._why_gone)
        number = next(self._numbers)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            numbered = replace(message, request=number)
            await self.send(numbered)
            return await reply
        finally:
            self._waiting.pop(number, None)

    async def send(self, message: FromFrontend) -> None:
        """Send a message that asks for no answer; what a head that is gone cannot take is lost."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(encode(message))
            await self._writer.drain()

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what comes unasked, of snapshots the newest only, until the head is gone."""
        while True:
            while self._unasked:
                yield self._unasked.popleft()
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()

    async def close(self) -> None:
        """Let go of the cluster; `messages` ends."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        reason = ""
        try:
            while (message := await _read_message(self._reader)) is not None:
                self._take(message)
        except ProtocolError as error:
            reason = str(error)
        finally:
            self._end(HeadError(reason or self._why_gone))

    def _take(self, message: ToFrontend) -> None:
        if not isinstance(message, Reply | Refused):
            self._keep(message)
            return
        reply = self._waiting.get(message.request)
        if reply is None or reply.done():
            return
        if isinstance(message, Refused):
            reply.set_exception(HeadError(message.reason))
        else:
            reply.set_result(message)

    def _keep(self, message: ToFrontend) -> None:
        """Queue a message; a snapshot takes the place of one that nobody has read yet."""
        if isinstance(message, SchedulerReady):
            self.address, self.dashboard = message.address, message.dashboard
        if isinstance(message, Stopped):
            self._why_gone = f"the cluster was stopped: {message.reason}"
        if isinstance(message, SnapshotTaken):
            self._unasked = deque(
                one for one in self._unasked if not isinstance(one, SnapshotTaken)
            )
        self._unasked.append(message)
        self._arrived.set()

    def _end(self, error: HeadError) -> None:
        self._ended = True
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)
        self._arrived.set()


def _attach(frontend: str, snapshots: bool) -> Attach:
    """Return the first message: who this is, and where."""
    terminal = ""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            terminal = terminal or os.ttyname(descriptor).removeprefix("/dev/")
    user = str(os.getuid())
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(os.getuid()).pw_name
    client = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    return Attach(VERSION, frontend, snapshots, os.getpid(), user, terminal, client)


async def _read_message(reader: asyncio.StreamReader) -> ToFrontend | None:
    """Return the next message; None at the end. Raises ProtocolError for a line that is none."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return None
    except ValueError as error:
        raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes") from error
    if not line.endswith(b"\n"):
        return None
    if len(line) < LONG_LINE_BYTES:
        message: ToFrontend = decode(line, ToFrontend)
    else:
        message = await asyncio.to_thread(decode, line, ToFrontend)
    return message


def _why_turned_away(answer: ToFrontend | None) -> str:
    """Return why a head did not let a frontend in."""
    if isinstance(answer, Refused):
        return answer.reason
    if isinstance(answer, Attached):
        return f"the head speaks version {answer.version} of the protocol, this gputui {VERSION}"
    return "the head ended the connection"


def security(link: HeadLink) -> "Security":
    """Return the cluster's TLS for a Dask client; imports distributed."""
    from gputui import tls

    return tls.security(link.attached.certificate_pem, link.attached.key_pem)
