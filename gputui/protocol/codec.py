"""Messages on and off the wire: a frozen dataclass ↔ one JSON line, `["Name", field, field, …]`.

Nested values are arrays of their fields in order. `encode` and `decode` are the only way.
"""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any

from gputui.errors import ProtocolError

MAX_LINE_BYTES = 64 * 2**20
"""No line may be longer; a stream that sends one is broken."""


def encode(message: object) -> bytes:
    """Return the message as one line, newline included."""
    kind: Any = type(message)
    row = [kind.__name__, *_encoder(kind)(message)]
    return (json.dumps(row, separators=(",", ":")) + "\n").encode()


def decode(line: bytes, messages: Any) -> Any:
    r"""Return the message that a line holds: one of these dataclasses, given as their union.

    Raises ProtocolError when it is none of them as this version has them.

    >>> from gputui.protocol.agent import Ping, Pong
    >>> decode(encode(Ping(7)), Ping | Pong)
    Ping(number=7)
    >>> decode(b'["Nonsense", 1]\n', Ping | Pong)
    Traceback (most recent call last):
    gputui.errors.ProtocolError: not a message of this version: ["Nonsense", 1]
    """
    try:
        name, *values = json.loads(line)
        return _decoder(_by_name(messages)[name])(values)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        shown = line[:80].decode("utf-8", "replace").strip()
        raise ProtocolError(f"not a message of this version: {shown}") from error


@cache
def _by_name(messages: Any) -> dict[str, type]:
    """Return the classes of a union by their names on the wire."""
    return {kind.__name__: kind for kind in typing.get_args(messages) or (messages,)}


Encoder = Callable[[Any], list[Any]]
Decoder = Callable[[Any], Any]


@cache
def _encoder(kind: Any) -> Encoder:
    """Return a function from a value of this dataclass to the list of its fields."""
    names = [field.name for field in fields(kind)]
    hints = typing.get_type_hints(kind)
    nested = [(i, convert) for i, name in enumerate(names) if (convert := _outward(hints[name]))]
    if not names:
        return lambda value: []
    get = attrgetter(*names) if len(names) > 1 else None
    first = names[0]

    def encode_fields(value: Any) -> list[Any]:
        row = list(get(value)) if get else [getattr(value, first)]
        for i, convert in nested:
            if row[i] is not None:
                row[i] = convert(row[i])
        return row

    return encode_fields


def _outward(hint: Any) -> Callable[[Any], Any] | None:
    """Return how a field of this type is made JSON, None where it already is."""
    hint = _without_none(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _encoder(hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if is_dataclass(inner) and isinstance(inner, type):
            convert = _encoder(inner)
            return lambda values: [convert(value) for value in values]
    return None


@cache
def _decoder(kind: Any) -> Decoder:
    """Return a function from the list of its fields to a value of this dataclass."""
    names = [field.name for field in fields(kind)]
    hints = typing.get_type_hints(kind)
    nested = [(i, convert) for i, name in enumerate(names) if (convert := _inward(hints[name]))]

    def decode_fields(values: list[Any]) -> Any:
        if len(values) != len(names):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        for i, convert in nested:
            if values[i] is not None:
                values[i] = convert(values[i])
        return kind(*values)

    return decode_fields


def _inward(hint: Any) -> Decoder | None:
    """Return how a field of this type is made from JSON, None where it already is."""
    hint = _without_none(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {member.value: member for member in hint}.__getitem__
    if is_dataclass(hint) and isinstance(hint, type):
        return _decoder(hint)
    if typing.get_origin(hint) is tuple:
        inner = _inward(typing.get_args(hint)[0]) if typing.get_args(hint)[-1] is ... else None
        if inner is None:
            return tuple
        return lambda values: tuple([inner(value) for value in values])
    return None


def _without_none(hint: Any) -> Any:
    """Return X for X | None."""
    if isinstance(hint, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint
