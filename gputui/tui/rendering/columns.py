"""Columns whose cells are styled parts of any width, and which of them fit, how wide. Pure.

Columns are ranked: a narrow terminal leaves out the highest ranks first, never those of rank 0;
bars grow where there is room, and one column takes what is left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gputui.tui.widgets.pane import Line, fitted

Value = TypeVar("Value")
SortValue = float | str | None
Cell = Callable[[Value, int], Line]


@dataclass(frozen=True, slots=True)
class Column(Generic[Value]):
    """One column."""

    key: str
    title: str
    width: int
    """Cells that it wants at least."""
    rank: int
    """0 is always shown; the highest goes first where room is short."""
    cell: Cell[Value]
    """Returns parts of exactly the width that it is given."""
    sort: Callable[[Value], SortValue]
    does: str
    """What it says, for the list of columns."""
    right: bool = True
    falling: bool = True
    """Whether the largest comes first when it is sorted by."""
    least: int = 0
    """To what it is cut before a column of rank 0 would not fit; 0 is not at all."""
    most: int = 0
    """To what it grows where there is room."""
    rest: int = 0
    """Where it takes what the others leave: how wide it is before higher ranks come in."""

    def heading(self, width: int, mark: str = "") -> str:
        """Return the title as wide as the column, with the mark of the order."""
        title = self.title[: max(0, width - len(mark))] + mark
        return fitted(title, width, self.right)

    def arrow(self, sorted_by: "Column[Value] | None", backwards: bool) -> str:
        """Return the mark of the order, where it is sorted by this column."""
        if sorted_by is not self:
            return ""
        return "▼" if self.falling != backwards else "▲"


@dataclass(frozen=True, slots=True)
class Fitted(Generic[Value]):
    """A column that is shown, and the cells that it is given."""

    column: Column[Value]
    width: int


def fitting(columns: Sequence[Column[Value]], room: int) -> tuple[Fitted[Value], ...]:
    """Return those columns, in their order, that fit `room` cells with a space before each."""
    widths: dict[str, int] = {}
    kept = 0
    for column in sorted(columns, key=lambda column: column.rank):
        if column.rank and room - column.width - 1 < kept:
            continue
        widths[column.key] = column.width
        room -= column.width + 1
        kept = max(kept, column.rest - column.width if column.rest else 0)
    chosen = [column for column in columns if column.key in widths]
    if room < 0:
        _cut(chosen, widths, -room)
    else:
        _grow(chosen, widths, room)
    return tuple(Fitted(column, widths[column.key]) for column in chosen)


def _cut(columns: Iterable[Column[Value]], widths: dict[str, int], surplus: int) -> None:
    for column in columns:
        less = min(surplus, column.width - column.least) if column.least else 0
        widths[column.key] -= less
        surplus -= less


def _grow(columns: Sequence[Column[Value]], widths: dict[str, int], room: int) -> None:
    """Share out what is left: a part evenly to those that grow, all else to one that takes it."""
    rest = next((column for column in columns if column.rest), None)
    left = room if rest is None else max(0, room - rest.rest + rest.width) // 3
    room -= left
    growing = [column for column in columns if column.most]
    while left and any(widths[column.key] < column.most for column in growing):
        for column in growing:
            if left and widths[column.key] < column.most:
                widths[column.key] += 1
                left -= 1
    if rest is not None:
        widths[rest.key] += room + left


def ordered(
    values: Iterable[Value], column: Column[Value] | None, backwards: bool = False
) -> list[Value]:
    """Return values sorted by a column; those without one to sort by come last either way."""
    if column is None:
        return list(values)
    known: list[tuple[float | str, Value]] = []
    unknown: list[Value] = []
    for value in values:
        key = column.sort(value)
        if key is None:
            unknown.append(value)
        else:
            known.append((key, value))
    known.sort(key=lambda pair: pair[0], reverse=column.falling != backwards)
    return [value for _, value in known] + unknown
