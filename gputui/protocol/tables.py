"""A message as tables: one for itself, and one for all values of each dataclass nested in it.

The values stand in their order, every GPU of every host. A table has a column for each field; that
of a nested field says how many values each row has. Both ends number columns alike, from the types
of the message.
"""

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any

from gputui.protocol.codec import (
    inward,
    may_be_none,
    plain_types,
    row_maker,
    without_none,
    wrong_type,
)


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """The check of all values of a field that come from JSON."""

    check: Callable[[Any], Sequence[Any]]
    """Returns them as they are to be; raises WrongTypeError, TypeError, KeyError or ValueError."""
    text: bool
    """Whether there is text in it."""


def column_of(kind: Any, name: str, hint: Any) -> ColumnCheck:
    """Return how a field that holds no dataclass is taken."""
    allowed, convert = plain_types(hint), inward(hint)

    def plain(values: Any) -> Sequence[Any]:
        if type(values) is not list:
            raise TypeError
        if not allowed.issuperset(map(type, values)):
            wrong = next(value for value in values if type(value) not in allowed)
            raise wrong_type(kind, name, wrong, hint)
        return values

    def converted(values: Any) -> Sequence[Any]:
        assert convert is not None
        if type(values) is not list:
            raise TypeError
        if may_be_none(hint):
            return [None if value is None else convert(value) for value in values]
        return list(map(convert, values))

    check = converted if convert else plain
    return ColumnCheck(check, text=without_none(hint) not in (int, float, bool))


@dataclass(frozen=True, slots=True)
class Nested:
    """A field with values of a dataclass: they are rows of another table."""

    place: int
    """Which of the fields it is."""
    table: int
    """Which of the layout's tables has its values."""
    many: bool
    """Whether it is a tuple of them."""
    optional: bool
    """Whether it may be None."""

    @property
    def counted(self) -> bool:
        """Whether a row may have any number of values but one."""
        return self.many or self.optional


@dataclass(frozen=True, slots=True)
class MessageTable:
    """A dataclass in a message: where it stands among the tables, and what its fields are."""

    kind: Any
    parent: int
    first: int
    """The number of its first column."""
    getters: tuple[Callable[[Sequence[Any]], list[Any]], ...]
    """Each returns a field of all values."""
    rows_of: Callable[[Sequence[Sequence[Any]]], tuple[Any, ...]]
    """Returns values, given those of each field."""
    plain: dict[int, ColumnCheck]
    """Place of a field → how its column is checked."""
    nested: list[Nested] = field(default_factory=list)

    @property
    def sent(self) -> Iterable[int]:
        """Which fields have a column that is sent."""
        return chain(self.plain, (each.place for each in self.nested if each.counted))

    def columns(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of each field: one by one, as rows of tuples would be garbage soon."""
        return [get(rows) for get in self.getters]


def getter(name: str) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function from values of a dataclass to a field of each.

    Each field has a function of its own, which learns where the field is: that takes 20 ns a value,
    and `attrgetter` 40.

    >>> getter("real")([1, 2])
    [1, 2]
    """
    assert name.isidentifier()
    function: Callable[[Sequence[Any]], list[Any]]
    function = eval(f"lambda rows: [row.{name} for row in rows]")
    return function


@cache
def layout(kind: Any) -> list[MessageTable]:
    """Return the tables of a message, each after the one that it is nested in."""
    tables: list[MessageTable] = []
    _lay_out(kind, 0, tables)
    return tables


def _lay_out(kind: Any, parent: int, tables: list[MessageTable]) -> int:
    hints = typing.get_type_hints(kind)
    names = [each.name for each in fields(kind)]
    first = tables[-1].first + len(tables[-1].getters) if tables else 0
    getters = tuple(map(getter, names))
    table, index = MessageTable(kind, parent, first, getters, row_maker(kind), {}), len(tables)
    tables.append(table)
    for place, name in enumerate(names):
        hint = without_none(hints[name])
        many = typing.get_origin(hint) is tuple and is_dataclass(typing.get_args(hint)[0])
        inner = typing.get_args(hint)[0] if many else hint
        if is_dataclass(inner):
            at = _lay_out(inner, index, tables)
            table.nested.append(Nested(place, at, many, may_be_none(hints[name])))
        else:
            table.plain[place] = column_of(kind, name, hints[name])
    return index


def _counts(values: Any) -> Sequence[int]:
    if type(values) is not list or not {int}.issuperset(map(type, values)):
        raise TypeError
    if values and min(values) < 0:
        raise ValueError
    return values


COUNTS = ColumnCheck(_counts, text=False)
"""How many values of a nested field each row has."""


@cache
def places(kind: Any) -> dict[int, tuple[int, int, ColumnCheck]]:
    """Return number of a column → its table, which field it is there, and how it is checked."""
    return {
        table.first + place: (index, place, table.plain.get(place, COUNTS))
        for index, table in enumerate(layout(kind))
        for place in table.sent
    }
