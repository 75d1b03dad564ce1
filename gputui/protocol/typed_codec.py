"""Messages on and off the wire at heads and frontends, by msgspec: the form of `codec`, checked.

What arrives is refused, as a ProtocolError, unless every field is of its type and within its
bounds (`gputui.model.bounds`), so that no peer can make work or fill memory by a number alone.
Agents have the standard library only: nothing that travels to a host imports this.
"""

import typing
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any

import msgspec

from gputui.errors import ProtocolError
from gputui.model.bounds import Length
from gputui.model.plain_text import cut
from gputui.protocol import codec
from gputui.protocol.channel import Channel, Received, Sent
from gputui.protocol.codec import apart, by_name, hints_of, shown

ENCODER = msgspec.json.Encoder()
WORDS = 200
"""Of an error: msgspec quotes what it refuses."""


def encode(message: object) -> bytes:
    """Return the message as one line, newline included."""
    name = type(message).__name__
    try:
        return b'["%b",%b]\n' % (name.encode(), ENCODER.encode(message))
    except UnicodeEncodeError:  # half of a surrogate pair, as in the name of a file
        return codec.encode(message)


def decode(line: bytes, messages: Any) -> Any:
    r"""Return the message that a line holds: one of these dataclasses, given as their union.

    Raises ProtocolError for anything else.

    >>> from gputui.protocol.agent import Ping, Pong
    >>> decode(encode(Ping(7)), Ping | Pong)
    Ping(number=7)
    >>> decode(b'["Ping",{"number":-1}]\n', Ping | Pong)
    Traceback (most recent call last):
    gputui.errors.ProtocolError: no Ping of this version: Expected `int` >= 0 - at `$.number`
    """
    start, _, rest = line.rstrip().partition(b",")
    kind = _kinds(messages).get(start)
    if kind is None or not rest.endswith(b"]"):
        raise ProtocolError(f"not a message of this version: {shown(line)}")
    try:
        return _decoder(kind).decode(memoryview(rest)[:-1])
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:  # a ValueError since 0.21
        name = start[2:-1].decode()
        raise ProtocolError(f"no {name} of this version: {cut(str(error), WORDS)}") from error


class TypedChannel(Channel[Sent, Received]):
    """A channel of a head or a frontend."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


@cache
def _kinds(messages: Any) -> dict[bytes, type]:
    """Return the class of each message by how its line starts."""
    return {b'["%b"' % name.encode(): kind for name, kind in by_name(messages).items()}


@cache
def _decoder(kind: type) -> "msgspec.json.Decoder[Any]":
    """Return the decoder of a message, made when the first one comes."""
    return msgspec.json.Decoder(_bounded(kind))


@cache
def _bounded(hint: Any) -> Any:
    """Return a type with its bounds as msgspec reads them, in those of its fields, too."""
    hint, bounds, optional = apart(hint)
    has_fields = is_dataclass(hint)
    if has_fields:
        hint.__annotations__ = {
            **hint.__annotations__,
            **{name: _bounded(part) for name, part in hints_of(hint).items()},
        }
    elif typing.get_origin(hint) is tuple:
        parts = [part if part is ... else _bounded(part) for part in typing.get_args(hint)]
        hint = tuple.__class_getitem__(tuple(parts))
    if isinstance(bounds, Length):
        hint = Annotated[hint, bounds, msgspec.Meta(max_length=bounds.most)]
    elif bounds is not None:
        hint = Annotated[hint, bounds, msgspec.Meta(ge=bounds.least, le=bounds.most)]
    return hint | None if optional else hint
