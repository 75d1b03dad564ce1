"""The queue of a channel: in order and within bounds, by each message's `Delivery`."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputui.errors import ProtocolError
from gputui.protocol.shared import Delivery, Flood, delivery_of

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


@dataclass(slots=True)
class QueuePlace:
    """One place in the queue."""

    prepared: Prepared | None
    """None when the message was left out."""
    delivery: Delivery
    key: Any = None


class Outgoing:
    """A queue of messages; `put` never waits, `pop` gives the lines to send."""

    def __init__(self, encode: Encode, max_bytes: int, max_floods: int) -> None:
        """Hold at most so many bytes of state, and so many messages that may be left out."""
        self._encode = encode
        self._max_bytes = max_bytes
        self._max_floods = max_floods
        self._bytes = 0
        self._places: deque[QueuePlace] = deque()
        self._latest: dict[Any, QueuePlace] = {}
        self._floods: deque[QueuePlace] = deque()
        self._left_out: dict[Any, Flood] = {}

    def put(self, message: object) -> None:
        """Queue a message, or a `Prepared` one.

        Raises ProtocolError when the peer stopped reading.
        """
        prepared = message if isinstance(message, Prepared) else Prepared(message)
        match delivery_of(prepared.message):
            case Delivery.STATE:
                self._put_state(prepared)
            case Delivery.LATEST:
                self._put_latest(prepared)
            case Delivery.FLOOD:
                self._put_flood(prepared)

    def pop(self) -> bytes | None:
        """Return the next line; None when nothing waits."""
        while self._places:
            place = self._places.popleft()
            prepared, place.prepared = place.prepared, None
            if prepared is None:
                continue
            if place.delivery is Delivery.LATEST:
                del self._latest[place.key]
            elif place.delivery is Delivery.FLOOD:
                self._floods.popleft()
                if left_out := self._left_out.pop(place.key, None):
                    assert isinstance(prepared.message, Flood)
                    return self._encode(prepared.message.after(left_out))
            else:
                self._bytes -= len(prepared.line(self._encode))
            return prepared.line(self._encode)
        if self._left_out:
            return self._encode(self._left_out.popitem()[1])
        return None

    def clear(self) -> None:
        """Forget all that waits."""
        self.__init__(self._encode, self._max_bytes, self._max_floods)  # type: ignore[misc]

    def _put_state(self, prepared: Prepared) -> None:
        size = len(prepared.line(self._encode))
        if self._bytes and self._bytes + size > self._max_bytes:
            raise ProtocolError(f"peer stopped reading ({self._bytes} bytes queued)")
        self._bytes += size
        self._places.append(QueuePlace(prepared, Delivery.STATE))

    def _put_latest(self, prepared: Prepared) -> None:
        message = prepared.message
        key = type(message), getattr(message, "delivery_key", None)
        if (place := self._latest.get(key)) is not None:
            place.prepared = prepared
            return
        place = self._latest[key] = QueuePlace(prepared, Delivery.LATEST, key)
        self._places.append(place)

    def _put_flood(self, prepared: Prepared) -> None:
        assert isinstance(prepared.message, Flood)
        place = QueuePlace(prepared, Delivery.FLOOD, prepared.message.delivery_key)
        self._places.append(place)
        self._floods.append(place)
        if len(self._floods) > self._max_floods:
            self._leave_out(self._floods.popleft())

    def _leave_out(self, place: QueuePlace) -> None:
        assert place.prepared is not None
        message = place.prepared.message
        assert isinstance(message, Flood)
        place.prepared = None
        left_out = message.left_out()
        before = self._left_out.get(place.key)
        self._left_out[place.key] = left_out.after(before) if before else left_out
