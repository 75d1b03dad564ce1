"""One agent's stream, whatever carries it: bytes of a relay → messages, and messages → bytes.

What a login shell prints before the stream's marker is skipped. `LocalStream` is the relay as
a child of this process; the one over SSH is in `ssh.py`.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from gputui.errors import ProtocolError
from gputui.protocol.agent import FromAgent, ToAgent
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode

READ_BYTES = 2**16
STDERR_LINES = 20


class Stream(Protocol):
    """Two ways of bytes, and what the other end wrote on stderr."""

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end, however it came about."""

    def write(self, data: bytes) -> None:
        """Send without waiting; what a broken stream cannot take is dropped."""

    async def drain(self) -> None:
        """Wait until what was written has mostly gone out."""

    async def exit_status(self) -> int | None:
        """Return how the command on the other end ended; None where that is not known."""

    async def close(self) -> None:
        """Give the stream up; never waits long."""


class AgentLink:
    """Messages to and from one agent."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.banner: deque[str] = deque(maxlen=STDERR_LINES)
        """What came before the marker: often the reason why it did not come."""
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []

    def send(self, message: ToAgent) -> None:
        """Send a message without waiting."""
        self.stream.write(encode(message))

    async def receive(self) -> FromAgent | None:
        """Return the next message; None at the end of the stream.

        Raises ProtocolError for a line that is none.
        """
        line = await self.read_line()
        return None if line is None else decode(line, FromAgent)

    async def skip_to(self, marker: bytes) -> bytes | None:
        """Skip until a line that has the marker; return what follows it there, None at the end."""
        while (line := await self.read_line()) is not None:
            before, found, after = line.partition(marker)
            if found:
                return after
            self.banner.append(before.decode("utf-8", "replace").strip())
        return None

    async def read_line(self) -> bytes | None:
        """Return the next line without its newline; None at the end of the stream."""
        while not self._lines:
            chunk = await self.stream.read()
            if not chunk:
                return None
            head, *rest = chunk.split(b"\n")
            self._partial.append(head)
            if rest:
                self._lines.append(b"".join(self._partial))
                self._lines.extend(rest[:-1])
                self._partial = [rest[-1]]
            elif sum(map(len, self._partial)) > MAX_LINE_BYTES:
                raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return self._lines.popleft()

    @property
    def last_log_lines(self) -> tuple[str, ...]:
        """What the other end said in place of messages, for a person to read."""
        return (*self.banner, *self.stream.stderr_tail)[-STDERR_LINES:]

    async def close(self) -> None:
        """Give the stream up."""
        await self.stream.close()


class LocalStream:
    """The stdin and stdout of a command on this machine, in a session of its own.

    Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str]) -> "LocalStream":
        """Start the command; raises OSError when it cannot be."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **env},
            start_new_session=True,
        )
        return cls(process)

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""
        return tuple(self._stderr)

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end."""
        assert self._process.stdout
        try:
            return await self._process.stdout.read(READ_BYTES)
        except ConnectionError:
            return b""

    def write(self, data: bytes) -> None:
        """Send without waiting."""
        assert self._process.stdin
        if not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    async def drain(self) -> None:
        """Wait until what was written has mostly gone out."""
        assert self._process.stdin
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()

    async def exit_status(self) -> int | None:
        """Return the exit status once it has ended; None if it goes on for a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._stderr_reader
                return await self._process.wait()
        return None

    async def close(self) -> None:
        """Close stdin, which ends a relay; kill it if it stays."""
        assert self._process.stdin
        self._process.stdin.close()
        if await self.exit_status() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._stderr_reader.cancel()

    async def _read_stderr(self) -> None:
        assert self._process.stderr
        while chunk := await self._process.stderr.read(READ_BYTES):
            self._stderr.extend(chunk.decode("utf-8", "replace").splitlines())
