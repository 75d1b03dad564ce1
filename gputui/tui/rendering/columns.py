"""Columns whose cells are styled parts of any width, and which of them fit, how wide. Pure.

Columns are ranked: those of rank 0 are always shown, then lower ranks choose first; one that does
not fit is skipped, and a narrower one of a higher rank may take the room. Bars grow where there is
room, and one column takes the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from gputui.errors import HeadError
from gputui.model.frozen import frozen
from gputui.tui.filter import no_such
from gputui.tui.rendering import Line, Part, fitted

MARK = "▌"
"""Stands before a row that is marked."""
UNCUT = 1000
"""Cells in which any text is whole."""
Value = TypeVar("Value")
SortValue = float | str | None
Cell = Callable[[Value, int], Line]


@frozen
class Column(Generic[Value]):
    """One column."""

    key: str
    title: str
    width: int
    """Cells that it takes where all fit."""
    rank: int
    """0 is always shown; of the others a lower one chooses first."""
    cell: Cell[Value]
    """Returns parts of exactly the width that it is given."""
    sort: Callable[[Value], SortValue] | None = None
    """What it is sorted by; None for a column that is not."""
    right: bool = True
    falling: bool = True
    """Whether the largest comes first when it is sorted by."""
    least: int = 0
    """The narrowest it is cut to, so that all of rank 0 fit; 0 is never cut."""
    most: int = 0
    """The widest it grows to."""
    rest: int = 0
    """Of the one that takes what others leave: its width before higher ranks come in."""
    saved: bool = True
    """Whether files have it."""


def text_column(
    title: str,
    width: int,
    rank: int,
    show: Callable[[Value], str],
    role: Callable[[Value], str] = lambda value: "",
    sort: Callable[[Value], SortValue] | None = None,
    *,
    right: bool = False,
    rest: int = 0,
) -> Column[Value]:
    """Return a column of plain texts in one role; numbers stand at the right, the largest first."""

    def cell(value: Value, cells: int) -> Line:
        return [(fitted(show(value), cells, right), role(value))]

    key = title.lower()
    return Column(key, title, width, rank, cell, sort, right=right, falling=right, rest=rest)


Shown = tuple[Column[Value], int]
"""A column that is shown, and the cells that it is given."""


def fitting(columns: Sequence[Column[Value]], room: int) -> tuple[Shown[Value], ...]:
    """Return those columns, in their order, that fit `room` cells with a space before each."""
    widths: dict[int, int] = {}
    kept = 0
    for place in sorted(range(len(columns)), key=lambda place: columns[place].rank):
        column = columns[place]
        if column.rank and room - column.width - 1 < kept:
            continue
        widths[place] = column.width
        room -= column.width + 1
        kept = max(kept, column.rest - column.width)
    chosen = {place: columns[place] for place in sorted(widths)}
    if room < 0:
        _cut(chosen, widths, -room)
    else:
        _grow(chosen, widths, room)
    return tuple((column, widths[place]) for place, column in chosen.items())


def _cut(columns: dict[int, Column[Value]], widths: dict[int, int], surplus: int) -> None:
    for place, column in columns.items():
        less = min(surplus, column.width - column.least) if column.least else 0
        widths[place] -= less
        surplus -= less


def _grow(columns: dict[int, Column[Value]], widths: dict[int, int], room: int) -> None:
    """Share out what is left: a part evenly to those that grow, all else to one that takes it."""
    rest = next((place for place, column in columns.items() if column.rest), None)
    left = room
    if rest is not None:
        left = max(0, room - columns[rest].rest + columns[rest].width) // 3
    room -= left
    while left and any(widths[place] < column.most for place, column in columns.items()):
        for place, column in columns.items():
            if left and widths[place] < column.most:
                widths[place] += 1
                left -= 1
    if rest is not None:
        widths[rest] += room + left


def row(columns: Iterable[Shown[Value]], value: Value) -> list[Part]:
    """Return a value's cells, a space before each."""
    return [part for column, width in columns for part in ((" ", ""), *column.cell(value, width))]


def saved(columns: Iterable[Column[Value]], values: Iterable[Value]) -> list[list[str]]:
    """Return values as a file has them, titles first: numbers whole, all else as it is shown."""
    columns = [column for column in columns if column.saved]

    def text(column: Column[Value], value: Value) -> str:
        number = column.sort(value) if column.sort is not None and column.right else None
        whole = "".join(text for text, _ in column.cell(value, UNCUT)).strip()
        return whole if number is None else str(number)

    titles = [column.key or "level" for column in columns]
    return [titles, *([text(column, value) for column in columns] for value in values)]


class Order(Generic[Value]):
    """An order that a person chose.

    >>> order = Order([Column("util", "UTIL", 4, 0, lambda v, w: [], float)], unsorted="host")
    >>> order.sort("", order.names), order.key, order.sort("", order.names), order.key
    (None, 'util', None, 'host')
    >>> order.sort("u", order.names), order.key, order.sorted([1, 3, 2])
    (None, 'util', [3, 2, 1])
    """

    def __init__(self, columns: Iterable[Column[Value]], unsorted: str = "") -> None:
        """`unsorted` is what the order without a column is called."""
        self._columns = {each.key: each for each in columns if each.sort is not None}
        self._unsorted = unsorted
        self._by: Column[Value] | None = None
        self._backwards = False

    @property
    def names(self) -> tuple[str, ...]:
        """All orders that can be named."""
        return (*filter(None, (self._unsorted,)), *self._columns)

    @property
    def key(self) -> str:
        """The column that is sorted by, or what is said of none."""
        return self._by.key if self._by else self._unsorted

    @property
    def chosen(self) -> bool:
        """Whether it is sorted by a column."""
        return self._by is not None

    def sort(self, name: str, shown: Sequence[str]) -> None:
        """Sort by the column whose name begins so; without one by the next of those shown.

        Raises HeadError.
        """
        if not name:
            names = [self._unsorted, *(key for key in shown if key in self._columns)]
            place = names.index(self.key) + 1 if self.key in names else 0
            chosen = names[place % len(names)]
        else:
            begun = [each for each in self.names if each.startswith(name.lower())]
            if not begun:
                raise HeadError(no_such("column", name, self.names))
            chosen = name if name in begun else begun[0]
        self._by, self._backwards = self._columns.get(chosen), False

    def reverse(self) -> None:
        """Turn the order around."""
        self._backwards = not self._backwards

    def sorted(self, values: Iterable[Value]) -> list[Value]:
        """Return values in this order; those without anything to sort by come last either way."""
        column = self._by
        if column is None or column.sort is None:
            return list(values)[:: -1 if self._backwards else 1]
        keys = [(column.sort(value), value) for value in values]
        known = [(key, value) for key, value in keys if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=column.falling != self._backwards)
        return [value for _, value in known] + [value for key, value in keys if key is None]

    def heading(self, columns: Iterable[Shown[Value]]) -> Line:
        """Return the titles, that of this order with an arrow."""
        titles = [""]
        for column, width in columns:
            arrow = ""
            if self.chosen and self.key == column.key:
                arrow = "▼" if column.falling != self._backwards else "▲"
            title = column.title[: max(0, width - len(arrow))] + arrow
            titles.append(fitted(title, width, column.right))
        return ((" ".join(titles), "heading"),)
