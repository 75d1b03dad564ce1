"""Messages on and off the wire: a frozen dataclass ↔ one JSON line, `["Name", field, field, …]`.

Nested values are arrays of their fields in order. `encode` and `decode` are the only way. What
arrives is checked, field by field, against the types that the message declares: nothing behind
`decode` meets a list where a name should be.
"""

import json
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, make_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from gputui.errors import ProtocolError

LARGEST_INT = 2**63
LARGEST_FLOAT = 1e100
"""Finite in any sum and product that is taken of it."""
LONG, LONG_WHOLE = b"0" * 19, re.compile(rb"(?<![.0])0{19}")
EXPONENT, LARGE_EXPONENT = b"e000", re.compile(rb"e0{3,}(?:[,\]}\s]|\Z)")
"""A line whose digits, as zeros, show neither has no larger integer, and no infinite float: `1e999`
is one to `json`, and what is encoded of it nobody takes. UUIDs are full of `e123`, but only what a
number ends with follows it in a number; and a long fraction makes nothing large."""
DIGITS_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
ESCAPE, SURROGATE = b"\\u", re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a pair, escaped: `encode` writes none, and half a pair alone cannot be printed."""

MAX_KNOWN_SHAPES = 256
"""How many combinations of field types are remembered for each kind of message."""


def encode(message: object) -> bytes:
    """Return the message as one line, newline included."""
    kind: Any = type(message)
    return to_line([kind.__name__, *_encoder(kind)(message)])


def to_line(row: list[Any]) -> bytes:
    """Return a JSON array as one line."""
    return JSON.encode(row).encode("utf-8", "replace") + b"\n"


def decode(line: bytes, messages: Any) -> Any:
    r"""Return the message that a line holds: one of these dataclasses, given as their union.

    Raises ProtocolError when this version has no such message.

    >>> from gputui.protocol.agent import Ping, Pong
    >>> decode(encode(Ping(7)), Ping | Pong)
    Ping(number=7)
    >>> decode(b'["Nonsense", 1]\n', Ping | Pong)
    Traceback (most recent call last):
    gputui.errors.ProtocolError: not a message of this version: ["Nonsense", 1]
    >>> decode(b'["Ping", ["seven"]]\n', Ping | Pong)
    Traceback (most recent call last):
    gputui.errors.ProtocolError: Ping.number is list, not int: ["Ping", ["seven"]]
    """
    try:
        name, *values = parse(line)
        return _decoder(by_name(messages)[name])(values)
    except WrongTypeError as error:
        raise ProtocolError(f"{error}: {shown(line)}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError(f"not a message of this version: {shown(line)}") from error


class WrongTypeError(Exception):
    """A field that is not of the type which its message declares."""


def parse(line: bytes) -> Any:
    """Return the JSON value of a line; raises ValueError for numbers and text out of bounds."""
    # Given bytes, json.loads would take half of a surrogate pair.
    value = (BOUNDED if _may_be_large(line) else PLAIN).decode(line.decode())
    if ESCAPE in line and SURROGATE.search(line):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _may_be_large(line: bytes) -> bool:
    """Return whether a number of a line may be out of bounds: each then is looked at.

    >>> _may_be_large(b'["x", 1e999]'), _may_be_large(b'["x", 1234567890123456789]')
    (True, True)
    >>> _may_be_large(b'["GPU-7e123456-0e99-1e77-e123-0123456789ae", 0.00034093856811523438]')
    False
    """
    zeros = line.translate(DIGITS_AS_ZEROS, b"+")
    return bool(
        (EXPONENT in zeros and LARGE_EXPONENT.search(zeros))
        or (LONG in zeros and LONG_WHOLE.search(zeros))
    )


def _bounded_int(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) > LARGEST_INT:
        raise ValueError(f"an integer of {len(digits)} digits")
    return number


def _bounded_float(digits: str) -> float:
    if abs(number := float(digits)) > LARGEST_FLOAT:
        raise ValueError("a float out of range")
    return number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")


JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""Made once, as the next two: `json` with an option makes one for each line."""
PLAIN = json.JSONDecoder(parse_constant=_refuse)
BOUNDED = json.JSONDecoder(
    parse_constant=_refuse, parse_int=_bounded_int, parse_float=_bounded_float
)


def shown(line: bytes) -> str:
    return line[:80].decode("utf-8", "replace").strip()


@cache
def by_name(messages: Any) -> dict[str, type]:
    """Return the classes of a union by their names on the wire."""
    return {kind.__name__: kind for kind in typing.get_args(messages) or (messages,)}


Value = TypeVar("Value")
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
    hint = without_none(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _encoder(hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if is_dataclass(inner) and isinstance(inner, type):
            convert = _encoder(inner)
            return lambda values: [convert(value) for value in values]
    return None


def learn(kind: type) -> None:
    """Make the decoder of a message class now, not as the first of them comes."""
    _decoder(kind)


@cache
def _decoder(kind: Any) -> Decoder:
    """Return a function from the list of its fields to a value of this dataclass.

    Plain fields are checked all at once, by the combination of their types: after the first
    message of a shape that is one look-up. `inward` checks the others as it makes them.
    """
    names = [field.name for field in fields(kind)]
    hints = typing.get_type_hints(kind)
    nested = [
        (i, name, convert, may_be_none(hints[name]))
        for i, name in enumerate(names)
        if (convert := inward(hints[name]))
    ]
    converted = {i for i, *_ in nested}
    plain = {i: plain_types(hints[n]) for i, n in enumerate(names) if i not in converted}
    known: set[tuple[type, ...]] = set()
    make = _maker(kind)

    def decode_fields(values: list[Any]) -> Any:
        if type(values) is not list:
            raise TypeError
        shape = tuple(map(type, values))
        if shape not in known:
            if len(values) != len(names):
                raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
            for i, allowed in plain.items():
                if shape[i] not in allowed:
                    raise wrong_type(kind, names[i], values[i], hints[names[i]])
            if len(known) < MAX_KNOWN_SHAPES:
                known.add(shape)
        for i, name, convert, optional in nested:
            if values[i] is None and optional:
                continue
            try:
                values[i] = convert(values[i])
            except (TypeError, KeyError, ValueError):
                raise wrong_type(kind, name, values[i], hints[name]) from None
        return make(values)

    return decode_fields


def _maker(kind: Any) -> Decoder:
    """Return a function from all fields to a value of this dataclass, without its `__init__`."""
    if hasattr(kind, "__post_init__"):  # it checks what the fields' types do not say
        return lambda values: kind(*values)
    twin = unfrozen(kind)

    def make(values: list[Any]) -> Any:
        made = twin(*values)
        made.__class__ = kind
        return made

    return make


@cache
def unfrozen(kind: type[Value]) -> type[Value]:
    """Return a twin of a frozen dataclass; what it makes is to be given the class itself.

    The `__init__` of a frozen one calls `object.__setattr__` for each field: a twin that has the
    same slots, no defaults, and is not frozen is filled in a fifth of the time.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return make_dataclass(kind.__name__, names, slots=True)


def row_maker(kind: Any) -> Callable[[Iterable[Iterable[Any]]], tuple[Any, ...]]:
    """Return a function from all values of each field to values of this dataclass.

    It does not check their types.
    """
    if hasattr(kind, "__post_init__"):
        return lambda columns: tuple(map(kind, *columns))
    twin = unfrozen(kind)

    def rows_of(columns: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
        rows = tuple(map(twin, *columns))
        for row in rows:
            row.__class__ = kind
        return rows

    return rows_of


def inward(hint: Any) -> Decoder | None:
    """Return how a field of this type is made from JSON, None where it already is.

    What it returns raises TypeError, KeyError or ValueError for a value that does not fit.
    """
    hint = without_none(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {member.value: member for member in hint}.__getitem__
    if is_dataclass(hint) and isinstance(hint, type):
        return _decoder(hint)
    if typing.get_origin(hint) is tuple:
        return _tuple_of(typing.get_args(hint))
    return None


def _tuple_of(parts: tuple[Any, ...]) -> Decoder:
    """Return the decoder of a tuple: `X, ...` for any number, or one type for each item."""
    length = None if parts[-1] is ... else len(parts)
    inner, allowed = inward(parts[0]), plain_types(parts[0])
    if len({part for part in parts if part is not ...}) > 1:
        raise TypeError(f"a field cannot be a tuple of several types: {parts}")

    def decode_items(values: list[Any]) -> Any:
        if type(values) is not list:
            raise TypeError
        if not values and length is None:
            return ()
        if length is not None and len(values) != length:
            raise ValueError
        if inner is not None:
            return tuple([inner(value) for value in values])
        if not allowed.issuperset(map(type, values)):
            raise TypeError
        return tuple(values)

    return decode_items


def plain_types(hint: Any) -> frozenset[type]:
    """Return the types that JSON may give for a field of a plain type."""
    allowed = {float, int} if (plain := without_none(hint)) is float else {plain}
    return frozenset(allowed | ({type(None)} if may_be_none(hint) else set()))


def may_be_none(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def wrong_type(kind: type, name: str, value: Any, hint: Any) -> WrongTypeError:
    expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("gputui.", "")
    found = type(value).__name__ if value is not None else "null"
    return WrongTypeError(f"{kind.__name__}.{name} is {found}, not {expected}")


def without_none(hint: Any) -> Any:
    """Return X for X | None."""
    if isinstance(hint, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint
