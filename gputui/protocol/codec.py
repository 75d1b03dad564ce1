"""Messages on and off the wire with the standard library: a dataclass ↔ `["Name", {field: value}]`.

One JSON line each. This is the agents' half, which read what their own head and workers send;
`typed_codec` is that of heads and frontends, in the same form. `decode` checks types, `encode`
keeps to the bounds that the fields declare (`gputui.model.bounds`): a reading out of them is
missing, a text is cut, so that no peer refuses an honest host.
"""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from gputui.errors import ProtocolError
from gputui.model.bounds import Bounds, Length
from gputui.model.plain_text import cut

JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
Convert = Callable[[Any], Any]


def encode(message: object) -> bytes:
    """Return the message as one line, newline included."""
    kind: Any = type(message)
    return to_line([kind.__name__, _outward(kind)(message)])


def to_line(value: Any) -> bytes:
    """Return a JSON value as one line."""
    return JSON.encode(value).encode("utf-8", "replace") + b"\n"


def decode(line: bytes, messages: Any) -> Any:
    r"""Return the message that a line holds: one of these dataclasses, given as their union.

    Raises ProtocolError when this version has no such message.

    >>> from gputui.protocol.agent import Ping, Pong
    >>> decode(encode(Ping(7)), Ping | Pong)
    Ping(number=7)
    >>> decode(b'["Nonsense",{}]\n', Ping | Pong)
    Traceback (most recent call last):
    gputui.errors.ProtocolError: not a message of this version: ["Nonsense",{}]
    """
    try:
        name, value = json.loads(line)
        return _inward(by_name(messages)[name])(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"not a message of this version: {shown(line)}") from error


def shown(line: bytes) -> str:
    """Return the beginning of a line, for an error's message."""
    return line[:80].decode("utf-8", "replace").strip()


@cache
def by_name(messages: Any) -> dict[str, type]:
    """Return the classes of a union by their names on the wire."""
    return {kind.__name__: kind for kind in typing.get_args(messages) or (messages,)}


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass, with its bounds."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def apart(hint: Any) -> tuple[Any, Any, bool]:
    """Return (type, its bounds, whether None may stand for it).

    >>> from gputui.model.bounds import Percent
    >>> apart(Percent | None)
    (<class 'float'>, Bounds(least=0, most=100), True)
    """
    optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
    if optional:
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is Annotated:
        hint, bounds, *_ = typing.get_args(hint)
        return hint, bounds, optional
    return hint, None, optional


@cache
def _outward(hint: Any) -> Convert:
    """Return a function from a value of this type to JSON, within the type's bounds."""
    hint, bounds, optional = apart(hint)
    if is_dataclass(hint):
        convert = _fields_outward(hint)
    elif typing.get_origin(hint) is tuple:
        convert = _items_outward(typing.get_args(hint)[0], bounds)
    elif hint in (int, float):
        convert = _number_outward(bounds, optional=optional)
    elif bounds is not None:
        convert = _text_outward(bounds)
    else:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _fields_outward(kind: Any) -> Convert:
    parts = [(name, _outward(hint)) for name, hint in hints_of(kind).items()]
    return lambda value: {name: convert(getattr(value, name)) for name, convert in parts}


def _items_outward(hint: Any, length: Length | None) -> Convert:
    convert, most = _outward(hint), length.most if length else None
    return lambda values: [convert(value) for value in values[:most]]


def _number_outward(bounds: Bounds, *, optional: bool) -> Convert:
    def within(value: float) -> float | None:
        if bounds.least <= value <= bounds.most:
            return value
        if optional:
            return None
        return bounds.most if value > bounds.most else bounds.least

    return within


def _text_outward(length: Length) -> Convert:
    most = length.most
    return lambda text: cut(text, most)


@cache
def _inward(hint: Any) -> Convert:
    """Return a function from JSON to a value of this type.

    It raises TypeError, KeyError or ValueError for one that does not fit.
    """
    hint, _, optional = apart(hint)
    if is_dataclass(hint):
        convert = _fields_inward(hint)
    elif typing.get_origin(hint) is tuple:
        convert = _items_inward(typing.get_args(hint))
    elif issubclass(hint, StrEnum):
        convert = hint
    else:
        convert = _plain_inward(hint)
    return lambda value: None if value is None and optional else convert(value)


def _fields_inward(kind: Any) -> Convert:
    parts = {name: _inward(hint) for name, hint in hints_of(kind).items()}
    return lambda value: kind(**{name: parts[name](inner) for name, inner in value.items()})


def _items_inward(hints: tuple[Any, ...]) -> Convert:
    convert, length = _inward(hints[0]), None if hints[-1] is ... else len(hints)

    def items(values: Any) -> tuple[Any, ...]:
        if type(values) is not list or length not in (None, len(values)):
            raise TypeError
        return tuple([convert(value) for value in values])

    return items


def _plain_inward(kind: type) -> Convert:
    allowed = {float, int} if kind is float else {kind}

    def plain(value: Any) -> Any:
        if type(value) not in allowed:
            raise TypeError
        return value

    return plain
