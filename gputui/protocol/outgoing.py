"""The queue of a channel: in order and within bounds, by each message's `Delivery`."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputui.errors import ProtocolError
from gputui.protocol.shared import Delivery, LogLines

Encode = Callable[[object], bytes]


class Prepared:
    """A message for several channels: its line is made once, when the first of them sends it."""

    __slots__ = ("_line", "message")

    def __init__(self, message: object) -> None:
        self.message = message
        self._line = b""

    def line(self, encode: Encode) -> bytes:
        """Return the message as a line."""
        self._line = self._line or encode(self.message)
        return self._line


class Outgoing:
    """A queue of messages; `put` never waits, `pop` gives the lines to send."""

    def __init__(self, encode: Encode, max_bytes: int, max_floods: int) -> None:
        """Hold at most so many bytes of state, and so many messages that may be left out."""
        self._encode = encode
        self._max_bytes = max_bytes
        self._max_floods = max_floods
        self._bytes = 0
        self._put = 0
        self._waiting: OrderedDict[Any, Prepared] = OrderedDict()
        """Messages by number, or those of which only the latest counts by their class and key."""
        self._floods: deque[int] = deque()
        """The numbers of the messages that may be left out."""
        self._left_out: dict[str, LogLines] = {}
        """By worker: without lines, which are counted."""

    def put(self, message: object) -> None:
        """Queue a message, or a `Prepared` one.

        Raises ProtocolError when the peer stopped reading.
        """
        prepared = message if isinstance(message, Prepared) else Prepared(message)
        message = prepared.message
        delivery = getattr(message, "delivery", Delivery.STATE)
        self._put += 1
        key: Any = self._put
        if delivery is Delivery.STATE:
            size = len(prepared.line(self._encode))
            if self._bytes and self._bytes + size > self._max_bytes:
                raise ProtocolError(f"peer stopped reading ({self._bytes} bytes queued)")
            self._bytes += size
        elif delivery is Delivery.LATEST:
            key = type(message), getattr(message, "delivery_key", None)
        else:
            self._floods.append(key)
        self._waiting[key] = prepared
        if len(self._floods) > self._max_floods:
            self._leave_out(self._waiting.pop(self._floods.popleft()).message)

    def pop(self) -> bytes | None:
        """Return the next line; None when nothing waits."""
        if not self._waiting:
            return self._encode(self._left_out.popitem()[1]) if self._left_out else None
        key, prepared = self._waiting.popitem(last=False)
        if isinstance(message := prepared.message, LogLines):
            self._floods.popleft()
            if left_out := self._left_out.pop(message.worker, None):
                dropped = message.dropped + left_out.dropped
                return self._encode(replace(message, dropped=dropped))
        elif isinstance(key, int):
            self._bytes -= len(prepared.line(self._encode))
        return prepared.line(self._encode)

    def clear(self) -> None:
        """Forget all that waits."""
        self.__init__(self._encode, self._max_bytes, self._max_floods)  # type: ignore[misc]

    def _leave_out(self, lines: object) -> None:
        assert isinstance(lines, LogLines)
        before = self._left_out.get(lines.worker)
        dropped = lines.dropped + len(lines.lines) + (before.dropped if before else 0)
        self._left_out[lines.worker] = replace(lines, lines=(), dropped=dropped)
