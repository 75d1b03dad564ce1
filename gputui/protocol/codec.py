"""Messages on and off the wire with the standard library: a dataclass ↔ `["Name", {field: value}]`.

One JSON line each. This is the agents' half, which read what their own head and workers send;
`typed_codec` is that of heads and frontends, in the same form. `decode` checks types, `encode`
keeps to the bounds that the fields declare (`gputui.model.bounds`): a reading out of them is
missing, a text is cut, so that no peer refuses an honest host.
"""

import json
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from gputui.errors import ProtocolError
from gputui.model.bounds import Length
from gputui.model.plain_text import cut

JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(message: object) -> bytes:
    """Return the message as one line, newline included."""
    kind = type(message)
    return to_line([kind.__name__, _outward(message, kind)])


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
        return inward(value, by_name(messages)[name])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"not a message of this version: {shown(line)}") from error


def shown(line: bytes) -> str:
    """Return the beginning of a line, for an error's message."""
    return line[:80].decode("utf-8", "replace").strip()


@cache
def by_name(messages: Any) -> dict[str, type]:
    """Return the classes of a union by their names on the wire."""
    return {kind.__name__: kind for kind in typing.get_args(messages) or (messages,)}


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass, with its bounds."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
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


def _outward(value: Any, hint: Any) -> Any:
    """Return a value of this type as JSON, within the type's bounds."""
    kind, bounds, optional = apart(hint)
    has_fields, has_items = is_dataclass(kind), typing.get_origin(kind) is tuple
    if value is None or not (bounds or has_fields or has_items):
        return value
    if has_fields:
        parts = hints_of(kind).items()
        return {name: _outward(getattr(value, name), part) for name, part in parts}
    if has_items:
        items = value[: bounds.most] if bounds else value
        return [_outward(*each) for each in _with_types(items, kind)]
    if isinstance(bounds, Length):
        return cut(value, bounds.most)
    if bounds.least <= value <= bounds.most:
        return value
    return None if optional else min(max(value, bounds.least), bounds.most)


def _with_types(items: Sequence[Any], kind: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a tuple, each with its type; ValueError where their number differs."""
    parts = typing.get_args(kind)
    return zip(items, parts[:1] * len(items) if ... in parts else parts, strict=True)


def inward(value: Any, hint: Any) -> Any:
    """Return JSON as a value of this type; TypeError, KeyError or ValueError where it is none."""
    kind, _, optional = apart(hint)
    if value is None and optional:
        return None
    has_fields = is_dataclass(kind)
    if has_fields:
        parts = hints_of(kind)
        return kind(**{name: inward(each, parts[name]) for name, each in value.items()})
    if typing.get_origin(kind) is tuple:
        if type(value) is not list:
            raise TypeError
        return tuple([inward(*each) for each in _with_types(value, kind)])
    if issubclass(kind, StrEnum):
        return kind(value)
    if type(value) not in ((float, int) if kind is float else (kind,)):
        raise TypeError
    return value
