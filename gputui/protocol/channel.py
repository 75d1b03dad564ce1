"""One channel for every connection: messages to and from a peer, over any stream.

A channel frames, decodes and sends. What arrives is one JSON line a message, checked by the codec
and bounded in length and, where wanted, in rate. What is sent waits in a queue that `send` never
blocks on, and each class of message declares how (`Delivery`): state is never dropped, the latest
telemetry takes the place of the older, floods of log lines are thinned and counted. A peer that
reads nothing for so long that state fills the queue is hung up on.

Every connection of gputui is one, `Channel(stream, FromAgent)`, also between two ends in one
process, which carry the same encoded bytes (`streams.memory_streams`):

    to_agent.send(Ping(1))
    assert await to_head.receive() == Ping(1)

`await channel.close()` ends it in order, with what waits sent first; `channel.abort()` cuts it, as
a lost network would. Either way the peer's `receive` returns None, and what it sends is dropped.
"""

import asyncio
import itertools
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

from gputui.errors import GputuiError, ProtocolError
from gputui.model.bounds import LAST_LINE_CHARS, LAST_LINES
from gputui.process.background import Background, within, words
from gputui.protocol import codec
from gputui.protocol.shared import Delivery, LogLines, Numbered, Refused
from gputui.protocol.streams import ByteStream, Lines, deflating

logger = logging.getLogger(__name__)

LINE_BYTES = 2**20
"""No line may be longer, unless the channel says so; a peer that sends one is hung up on."""

TRUSTED_LINE_BYTES = 2**26
"""For what our own processes on this machine send: a snapshot of 8,000 GPUs takes 9 MB."""

QUEUE_BYTES = 2**24
"""State that may wait for a peer to read."""

MAX_FLOODS = 1000
"""Messages that may be left out, and wait."""

FLUSH_S = 1.0

Encode = Callable[[object], bytes]
Sent = TypeVar("Sent")
Received = TypeVar("Received")


class Channel(Generic[Sent, Received]):
    """Messages to and from one peer: `Sent` goes out, `Received` comes in.

    It belongs to the running event loop, and begins to send at once. Its codec is an agent's; heads
    and frontends use a `TypedChannel`.
    """

    encode = staticmethod(codec.encode)
    decode = staticmethod(codec.decode)

    def __init__(
        self,
        stream: ByteStream,
        receives: Any,
        *,
        line_bytes: int = LINE_BYTES,
        queue_bytes: int = QUEUE_BYTES,
        bytes_per_s: float = math.inf,
    ) -> None:
        """Take messages of the union `receives`, and no more of them in a second than given."""
        self.stream = stream
        self.banner: deque[str] = deque(maxlen=LAST_LINES)
        """The text before the marker: often the reason why the marker is missing."""
        self._receives = receives
        self._lines = Lines(stream, line_bytes, bytes_per_s)
        self.allow = self._lines.allow
        self._outgoing = Outgoing(self.encode, queue_bytes, MAX_FLOODS)
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        """Answers to come, by the number of the request."""
        self._deflate: Callable[[bytes], bytes] = bytes
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.broken = ""
        """Why nothing is sent any more; "" while it is."""
        # A message that cannot be encoded is a mistake of ours, not a lost message.
        self._tasks = Background(lambda name, error: self._end(words(error)))
        self._tasks.start(self._write(), name="channel")

    def send(self, message: Sent) -> None:
        """Send a message without waiting; dropped when the channel has ended."""
        if self.broken:
            return
        try:
            self._outgoing.put(message)
        except ProtocolError as error:
            self._end(str(error))
            logger.warning("hung up on a peer: %s", error)
            return
        self._idle.clear()
        self._wake.set()

    def ask(self, request: Any) -> "asyncio.Future[Any]":
        """Send a request at once, with its number filled in, and return its answer to come."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._asked.pop(number))
        self.send(replace(request, request=number))
        return answer

    def answered(self, answer: Numbered, error: Exception | None = None) -> None:
        """Give an answer, or the error that it stands for, to who asked."""
        asked = self._asked.get(answer.request)
        if asked is not None and not asked.done():
            asked.set_exception(error) if error else asked.set_result(answer)

    def leave_unanswered(self, error: Exception) -> None:
        """Fail what was asked, as its peer is gone."""
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(error)

    async def receive(self) -> Received | None:
        """Return the next message; None when the peer is gone.

        Raises ProtocolError for a line that is no message; after one too long nothing comes.
        """
        line = await self.read_line()
        message: Received | None = None if line is None else self.decode(line, self._receives)
        return message

    def compress(self) -> None:
        """Compress all later messages; the peer must call `decompress`."""
        self._deflate = deflating()

    def decompress(self) -> None:
        """Decompress everything after the last line read."""
        self._lines.decompress()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def serve(
        self, take: Callable[[Received], Coroutine[Any, Any, Sent] | None], tasks: Background
    ) -> None:
        """Take messages until the peer is gone; every request is answered, by `Refused` if need be.

        `take` carries a message out and returns None or, for a request, the work whose result is
        the answer. That work belongs to `tasks`, and goes on when the peer is gone.
        """
        async for message in self:
            request: int | None = getattr(message, "request", None)
            name = type(message).__name__
            try:
                work = take(message)
            except Exception as error:
                work = _fail(error)
            if work is not None:
                answer = work if request is None else self._answer(work, request, name)
                tasks.start(answer, name)

    async def skip_to(self, marker: bytes) -> bytes | None:
        """Skip to the line that has the marker; return the rest of that line, None at the end."""
        while (line := await self.read_line()) is not None:
            before, found, after = line.partition(marker)
            if found:
                return after
            self.banner.append(before[:LAST_LINE_CHARS].decode("utf-8", "replace").strip())
        return None

    async def read_line(self) -> bytes | None:
        """Return the next line as it came; None when the peer is gone."""
        return await self._lines.next()

    async def flush(self, bound_s: float | None = FLUSH_S) -> bool:
        """Wait until all that waits was written; False when the peer did not take it in time."""
        return await within(bound_s, self._idle.wait()) and not self.broken

    async def close(self, flush_s: float = FLUSH_S) -> None:
        """Send what waits, for so long at most, and end the connection."""
        try:
            await self.flush(flush_s)
            self._end("closed", abort=False)
            await self._tasks.close()
        finally:  # a task that is cancelled closes, too
            await self.stream.close()

    def abort(self) -> None:
        """Cut the connection at once."""
        self._end("aborted")

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (line := self._outgoing.pop()) is not None:
                self.stream.write(self._deflate(line))
                try:
                    await self.stream.drain()
                except OSError as error:
                    self._end(str(error) or type(error).__name__, abort=False)
                    return
            self._idle.set()

    def _end(self, reason: str, *, abort: bool = True) -> None:
        """Send nothing any more; what waits is dropped."""
        self.broken = self.broken or reason
        self._outgoing.clear()
        self._idle.set()
        if abort:
            self.stream.abort()

    async def _answer(self, work: Coroutine[Any, Any, Sent], request: int, name: str) -> None:
        try:
            self.send(await work)
        except GputuiError as error:
            self.send(Refused(request, str(error)))  # type: ignore[arg-type]
        except Exception as error:
            logger.exception("%s failed", name)
            why = f"{name} failed: {words(error)}"
            self.send(Refused(request, why))  # type: ignore[arg-type]


async def _fail(error: Exception) -> Any:
    raise error


class Outgoing:
    """A queue of messages; `put` never waits, `pop` gives the lines to send."""

    def __init__(self, encode: Encode, max_bytes: int, max_floods: int) -> None:
        """Hold at most so many bytes of state, and so many messages that may be left out."""
        self._encode = encode
        self._max_bytes = max_bytes
        self._max_floods = max_floods
        self._bytes = 0
        self._put = 0
        self._waiting: OrderedDict[Any, object] = OrderedDict()
        """Lines of state by number, log lines, too, and the latest of a class by it and its key."""
        self._floods: deque[int] = deque()
        """The numbers of the messages that may be left out."""
        self._left_out: dict[str, LogLines] = {}
        """By worker: without lines, which are counted."""

    def put(self, message: object) -> None:
        """Queue a message; raises ProtocolError when the peer stopped reading."""
        delivery, waiting = getattr(message, "delivery", Delivery.STATE), message
        self._put += 1
        key: Any = self._put
        if delivery is Delivery.STATE:
            waiting = line = self._encode(message)
            if self._bytes and self._bytes + len(line) > self._max_bytes:
                raise ProtocolError(f"peer stopped reading ({self._bytes} bytes queued)")
            self._bytes += len(line)
        elif delivery is Delivery.LATEST:
            key = type(message), getattr(message, "delivery_key", None)
        else:
            self._floods.append(key)
        self._waiting[key] = waiting
        if len(self._floods) > self._max_floods:
            self._leave_out(self._waiting.pop(self._floods.popleft()))

    def pop(self) -> bytes | None:
        """Return the next line; None when nothing waits."""
        if not self._waiting:
            return self._encode(self._left_out.popitem()[1]) if self._left_out else None
        waiting = self._waiting.popitem(last=False)[1]
        if isinstance(waiting, bytes):
            self._bytes -= len(waiting)
            return waiting
        if isinstance(waiting, LogLines):
            self._floods.popleft()
            if left_out := self._left_out.pop(waiting.worker, None):
                waiting = replace(waiting, dropped=waiting.dropped + left_out.dropped)
        return self._encode(waiting)

    def clear(self) -> None:
        """Forget all that waits."""
        self.__init__(self._encode, self._max_bytes, self._max_floods)  # type: ignore[misc]

    def _leave_out(self, lines: object) -> None:
        assert isinstance(lines, LogLines)
        before = self._left_out.get(lines.worker)
        dropped = lines.dropped + len(lines.lines) + (before.dropped if before else 0)
        self._left_out[lines.worker] = replace(lines, lines=(), dropped=dropped)
