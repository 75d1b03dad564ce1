"""Streams of bytes in both directions, over any transport, for channels.

`SocketStream` is an asyncio reader and writer (Unix socket, pipes); `memory_streams` gives two
ends in one process, with the same bounds as a socket.

One direction of a channel that leaves the machine is compressed with zlib. All its lines are one
stream, which is flushed after each: what a line repeats of those before it costs next to nothing.
What comes is expanded piece by piece, as its reader asks for it, so that the bounds of a channel
hold for what a few bytes expand to.
"""

import asyncio
import os
import socket
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gputui.errors import ProtocolError

READ_BYTES = 2**16
MEMORY_BYTES = 2**16
"""How much a memory stream takes before `drain` waits, as a socket does."""
CLOSE_S = 1.0
LEVEL = 1
WINDOW_BITS = 14
"""A host's telemetry before this one is within 16 kB; a head keeps as much for each host."""
PIECE_BYTES = 2**16
LEAST_BYTES = 2**10
"""As which a shorter line counts, too: to take it in is as much work."""
LINES_AT_ONCE = 64
"""After so many lines that were there already, other tasks get a turn."""


class ByteStream(Protocol):
    """A stream of bytes in both directions."""

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end, however it came about."""

    def write(self, data: bytes) -> None:
        """Send without waiting; a broken stream drops the data."""

    async def drain(self) -> None:
        """Wait until most of the written bytes are sent; raises OSError if the stream is broken."""

    async def close(self) -> None:
        """Give the stream up; never waits long."""

    def abort(self) -> None:
        """Close the stream at once and drop unsent data."""


class SocketStream:
    """A connection of asyncio's."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.BaseTransport | None = None,
    ) -> None:
        """Use both directions; `source` is the pipe to read from, if it is another one."""
        self._reader = reader
        self._writer = writer
        self._source = source

    @classmethod
    async def connect(cls, path: str | Path) -> "SocketStream":
        """Connect to a Unix socket; raises OSError."""
        return cls(*await asyncio.open_unix_connection(path))

    @classmethod
    async def of_pipes(cls, input_descriptor: int, output_descriptor: int) -> "SocketStream":
        """Read one pipe and write another; both descriptors belong to the stream from now on."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        source = os.fdopen(input_descriptor, "rb", buffering=0)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, source)
        target = os.fdopen(output_descriptor, "wb", buffering=0)
        transport, flow = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), target
        )
        return cls(reader, asyncio.StreamWriter(transport, flow, None, loop), reading)

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end."""
        try:
            return await self._reader.read(READ_BYTES)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Send without waiting."""
        if not self._writer.is_closing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until most of the written bytes are sent."""
        await self._writer.drain()

    async def close(self) -> None:
        """Send written data and close; unsent data is dropped after a while."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except TimeoutError:
            self.abort()
        except OSError:  # nobody reads it any more
            pass
        if self._source is not None:
            self._source.close()

    def abort(self) -> None:
        """Close at once."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()
        if self._source is not None:
            self._source.close()


async def try_port(host: str, port: int, bound_s: float) -> tuple[str, str]:
    """Try a connection; return why it cannot be made, or "", and the address of this end."""
    try:
        async with asyncio.timeout(bound_s):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return "", str(writer.get_extra_info("sockname")[0])
    except TimeoutError:
        return f"no answer within {bound_s:g} s", ""
    except (socket.gaierror, UnicodeError) as error:
        why = getattr(error, "strerror", "not a name that DNS allows")
        return f"{host} does not resolve: {why}", ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error), ""


class MemoryStream:
    """One end of a stream within this process; `memory_streams` makes both."""

    def __init__(self) -> None:
        self.peer: MemoryStream
        self.arrived: deque[bytes] = deque()
        self.closed = False
        self._changed = asyncio.Event()
        """Set whenever either end or its received data changes."""

    async def read(self) -> bytes:
        """Return the bytes that have arrived; b"" once the other end is closed and all is read."""
        await self._until(lambda: self.arrived or self.closed or self.peer.closed)
        if self.closed or not self.arrived:
            return b""
        self._wake()
        return self.arrived.popleft()

    def write(self, data: bytes) -> None:
        """Hand bytes to the other end."""
        if not (self.closed or self.peer.closed):
            self.peer.arrived.append(data)
            self._wake()

    async def drain(self) -> None:
        """Wait until the other end has read most of it; raises ConnectionError when it closed."""
        await self._until(
            lambda: (
                sum(map(len, self.peer.arrived)) <= MEMORY_BYTES or self.closed or self.peer.closed
            )
        )
        if self.closed or self.peer.closed:
            raise ConnectionResetError("the other end is closed")

    async def close(self) -> None:
        """Close; the other end reads the remaining data, then the end."""
        self.closed = True
        self._wake()

    def abort(self) -> None:
        """Cut the connection: the other end reads nothing more."""
        self.closed = True
        self.peer.arrived.clear()
        self._wake()

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _wake(self) -> None:
        for end in (self, self.peer):
            end._changed.set()


def memory_streams() -> tuple[MemoryStream, MemoryStream]:
    """Return the two ends of a connection within this process."""
    one, other = MemoryStream(), MemoryStream()
    one.peer, other.peer = other, one
    return one, other


def deflating() -> Callable[[bytes], bytes]:
    """Return a function that compresses line after line."""
    stream = zlib.compressobj(LEVEL, wbits=WINDOW_BITS)
    return lambda line: stream.compress(line) + stream.flush(zlib.Z_SYNC_FLUSH)


class Lines:
    """The lines of a stream, however its bytes are cut."""

    def __init__(self, stream: ByteStream, max_bytes: int, bytes_per_s: float) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._bytes_per_s = bytes_per_s
        self._came = bytearray()
        self._inflate: Any = None
        """A `zlib.decompressobj`, once what comes is compressed."""
        self._compressed = b""
        """What has come and is not expanded yet."""
        self._ended = False
        self._taken = 0
        self._second = 0.0
        self._bytes_this_second = 0

    async def next(self) -> bytes | None:
        """Return the next line without its newline; None at the end of the stream.

        Raises ProtocolError for one that is too long, which ends the stream, too.
        """
        await self._give_turns()
        searched = 0
        while (end := self._came.find(b"\n", searched)) < 0 and len(self._came) <= self._max_bytes:
            chunk = b"" if self._ended else await self._read()
            if not chunk:
                return None
            searched = len(self._came)
            self._came += chunk
        if not 0 <= end <= self._max_bytes:
            self._ended = True
            self._came.clear()
            raise ProtocolError(f"a line of more than {self._max_bytes} bytes")
        line = bytes(self._came[:end])
        del self._came[: end + 1]
        self._bytes_this_second += max(len(line), LEAST_BYTES)
        return line

    def allow(self, count: int) -> None:
        """Take so many bytes more in this second."""
        self._bytes_this_second -= count

    def decompress(self) -> None:
        """Take all bytes after the last line as compressed."""
        self._inflate = zlib.decompressobj(wbits=WINDOW_BITS)
        self._compressed = bytes(self._came)
        self._came.clear()

    async def _read(self) -> bytes:
        """Return some bytes, b"" at the end; raises ProtocolError."""
        while self._inflate is None or not (piece := self._expanded()):
            came = await self._stream.read()
            if self._inflate is None or not came:
                return came
            self._compressed += came
        return piece

    def _expanded(self) -> bytes:
        """Return the next piece, b"" when nothing more has come."""
        try:
            piece: bytes = self._inflate.decompress(self._compressed, PIECE_BYTES)
        except zlib.error as error:
            raise ProtocolError(f"what came is not compressed as it should be: {error}") from error
        self._compressed = self._inflate.unconsumed_tail
        return piece

    async def _give_turns(self) -> None:
        """Let other tasks run while a peer sends without end, and keep to the rate."""
        self._taken += 1
        if self._taken % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
        now = asyncio.get_running_loop().time()
        if now < self._second + 1.0 and self._bytes_this_second >= self._bytes_per_s:
            await asyncio.sleep(self._second + 1.0 - now)
            now = self._second + 1.0
        if now >= self._second + 1.0:
            self._second, self._bytes_this_second = now, 0
