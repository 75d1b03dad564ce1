"""A frontend's connection to a head: requests with answers, and unsolicited messages.

A channel over the head's Unix socket. The screen, `--run` and `GPUCluster` all use it; it
holds no truth of its own.
"""

import asyncio
import contextlib
import os
import pwd
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from gputui.errors import HeadError, OtherVersionError, ProtocolError
from gputui.model.snapshot import Session
from gputui.process.background import Background, within, words
from gputui.protocol.channel import TRUSTED_LINE_BYTES
from gputui.protocol.frontend import (
    HELLO,
    Attach,
    Attached,
    AwaitWorkers,
    FromFrontend,
    Reply,
    Request,
    SchedulerReady,
    SnapshotTaken,
    Stopped,
    ToFrontend,
    why_refused,
)
from gputui.protocol.shared import Refused
from gputui.protocol.streams import ByteStream, SocketStream
from gputui.protocol.typed_codec import TypedChannel, decode, encode

GONE = "the cluster's head is gone"
OTHER_VERSION = "use the gputui that started the cluster, or start it again with this one"
PARTING_S = 2.0
"""How long a head elsewhere may take to answer before its connection closes."""

Message = TypeVar("Message")
HeadChannel = TypedChannel[FromFrontend, ToFrontend]


class HeadConnection(contextlib.AbstractAsyncContextManager["HeadConnection"]):
    """A connection to a head; `attached` says whose cluster it is and how a client joins it."""

    def __init__(self, channel: HeadChannel, attached: Attached) -> None:
        self.socket = ""
        """The path of the head's socket, as seen from here."""
        self.where = ""
        """The machine of the head; "" for this one."""
        self.attached = attached
        self.address = attached.address
        """`tls://host:port` of the scheduler; "" until it listens."""
        self.dashboard = attached.dashboard
        self._channel = channel
        self.send = channel.send
        """Sends a message that has no answer; it is lost if the head is gone."""
        self._unasked: deque[ToFrontend] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self.heard: Callable[[ToFrontend], None] | None = None
        """Called with each message as it arrives."""
        self.why_gone = ""
        """Why the head is gone, once `messages` has ended."""
        self.forward: Callable[[str], Awaitable[str]] | None = None
        """Returns the address here that leads to one of the head's, of a head elsewhere."""
        self.why_cut: Callable[[], str] = str
        """Returns why the connection ended before the head did; "" where it did not."""
        self.at_close: Callable[[], Awaitable[None]] | None = None
        """Ends what the connection stands on: a head started for it, an SSH connection."""
        self._tasks = Background(self._reading_failed)
        self._tasks.start(self._read(), name="reading what the head sends")

    @classmethod
    async def open(
        cls,
        head: str | Path,
        *,
        frontend: str,
        snapshots: bool = False,
        compressed: bool = False,
    ) -> Self:
        """Attach to the head behind a socket.

        `frontend` is screen, run, program, python or command; `compressed` is whether to compress
        what the head sends. Raises HeadError when there is no head, or one of another version.
        """
        socket_path = str(head)
        try:
            stream = await SocketStream.connect(socket_path)
        except OSError as error:
            raise HeadError(f"no head answers at {socket_path}: {error.strerror}") from error
        connection = await cls.over(
            stream, frontend=frontend, snapshots=snapshots, compressed=compressed
        )
        connection.socket = socket_path
        return connection

    @classmethod
    async def over(
        cls, stream: ByteStream, *, frontend: str, snapshots: bool, compressed: bool = False
    ) -> Self:
        """Attach to the head at the other end of a stream; raises HeadError."""
        channel = HeadChannel(stream, ToFrontend, line_bytes=TRUSTED_LINE_BYTES)
        try:
            # In one: a head of another version reads the first line only, and closes.
            stream.write(HELLO + encode(Attach(_session(frontend), snapshots, compressed)))
            answer = await channel.read_line()
            if answer is None:
                raise HeadError(GONE)
            if reason := why_refused(answer):
                raise OtherVersionError(reason)
            attached = decode(answer, Attached)
            if frontend in ("run", "python"):
                _check_versions(attached)
            if compressed:
                channel.decompress()
            return cls(channel, attached)
        except ProtocolError as error:
            await channel.close()
            raise OtherVersionError(f"{error}: {OTHER_VERSION}") from error
        except BaseException:
            await channel.close()
            raise

    def request(self, message: Request) -> "asyncio.Future[Any]":
        """Send a request at once, with its number filled in, and return its answer to come.

        That is the `Reply` which the request's docstring names, else `Done`. It raises HeadError
        with the reason when the head refuses, and when it is gone.
        """
        reply = self._channel.ask(message)
        if self._ended:
            reply.set_exception(HeadError(self.why_gone))
        return reply

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield unsolicited messages until the head is gone; of snapshots, only the newest."""
        while True:
            while self._unasked:
                yield self._unasked.popleft()
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()

    def hear(self, heard: Callable[[ToFrontend], None]) -> None:
        """Call this with each message that waits, and with each later one as it arrives."""
        for message in self._unasked:
            heard(message)
        self.heard = heard

    async def received(self, kind: type[Message]) -> Message:
        """Return the next message of this class; raises HeadError when the head is gone before."""
        async for message in self.messages():
            if isinstance(message, kind):
                return message
        raise HeadError(self.why_gone)

    async def close(self) -> None:
        """Detach from the cluster; `messages` ends."""
        try:
            await self._channel.flush()
            if self.forward is not None:
                # SSH drops what it has not passed on yet; an answer shows that all has arrived.
                with contextlib.suppress(HeadError):
                    await within(PARTING_S, self.request(AwaitWorkers(0, 0)))
            await self._tasks.close()
            await self._channel.close()
        finally:
            if self.at_close is not None:
                await self.at_close()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _read(self) -> None:
        try:
            async for message in self._channel:
                if isinstance(message, Refused):
                    self._channel.answered(message, HeadError(message.reason))
                elif isinstance(message, Reply):
                    self._channel.answered(message)
                else:
                    await self._keep(message)
        except ProtocolError as error:
            self.why_gone = str(error)
        finally:
            self.why_gone = self.why_gone or self.why_cut() or GONE
            self._ended = True
            self._channel.leave_unanswered(HeadError(self.why_gone))
            self._arrived.set()

    def _reading_failed(self, name: str, error: Exception) -> None:
        """Say why; `_read` has failed everything that waits."""
        self.why_gone = f"{name} failed: {words(error)}"

    async def _keep(self, message: ToFrontend) -> None:
        """Queue a message; a snapshot takes the place of one that is still unread."""
        match message:
            case SchedulerReady():
                self.address, self.dashboard = message.address, message.dashboard
                if self.forward is not None:
                    self.address = await self.forward(self.address)
                    self.dashboard = await self.forward(self.dashboard)
            case Stopped():
                self.why_gone = f"the cluster was stopped: {message.reason}"
                await self._channel.close()
            case SnapshotTaken():
                self._unasked = deque(
                    one for one in self._unasked if not isinstance(one, SnapshotTaken)
                )
        if self.heard is not None:
            self.heard(message)
        self._unasked.append(message)
        self._arrived.set()


def _session(frontend: str) -> Session:
    """Describe this process as a session: its user, and where that is."""
    terminal = ""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            terminal = terminal or os.ttyname(descriptor).removeprefix("/dev/")
    user = str(os.getuid())
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(os.getuid()).pw_name
    client = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    return Session(frontend, os.getpid(), user, terminal, client)


def _check_versions(attached: Attached) -> None:
    """Raise HeadError where the cluster could not read what this Python and its Dask send."""
    from importlib.metadata import version

    here, there = f"{sys.version_info.major}.{sys.version_info.minor}", attached.python_version
    if there and there != here:
        raise HeadError(
            f"{attached.name} runs on Python {there}, and this is {here}: functions do not travel "
            f"between minor versions\n  use the cluster's own: {attached.python} -m gputui"
        )
    differing = [each for each in attached.packages if version(each[0]) != each[1]]
    if differing:
        differ = ", ".join(f"{name} {has} there, {version(name)} here" for name, has in differing)
        pins = " ".join(f"{name}=={has}" for name, has in differing)
        raise HeadError(
            f"{attached.name} has another Dask: {differ}\n  pip install {pins} here, or use the "
            f"cluster's own: {attached.python} -m gputui"
        )


def security(connection: HeadConnection) -> Any:
    """Return the cluster's TLS for a Dask client, its `Security`; imports distributed."""
    from gputui.engine import tls

    credentials = connection.attached.credentials
    return tls.security(credentials.certificate_pem, credentials.key_pem)
