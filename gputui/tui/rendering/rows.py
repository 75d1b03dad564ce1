"""Tables of anything: columns that say how a value is shown and sorted, and which of them fit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gputui.tui.rendering.format import MISSING
from gputui.tui.widgets.pane import Line, Part, fitted

T = TypeVar("T")
SortValue = float | str | None


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One column of a table of values."""

    title: str
    width: int
    rank: int
    """0 is always shown; the highest goes first where there is little room."""
    show: Callable[[T], str]
    role: Callable[[T], str] = lambda value: ""
    sort: Callable[[T], SortValue] | None = None
    """What it is sorted by; None is not at all."""
    right: bool = False
    falling: bool = False
    """Whether the largest comes first when it is sorted by."""


def fitting(fields: Sequence[Field[T]], room: int, last_grows: bool = False) -> list[Field[T]]:
    """Return those that fit, a space between them; the last one may take what is left."""
    chosen: set[int] = set()
    for index in sorted(range(len(fields)), key=lambda index: fields[index].rank):
        room -= fields[index].width + 1
        if room < -1 and fields[index].rank:
            room += fields[index].width + 1
            continue
        chosen.add(index)
    shown = [field for index, field in enumerate(fields) if index in chosen]
    if last_grows and shown and room > 0:
        shown[-1] = _wider(shown[-1], room)
    return shown


def _wider(field: Field[T], more: int) -> Field[T]:
    return Field(
        field.title,
        field.width + more,
        field.rank,
        field.show,
        field.role,
        field.sort,
        field.right,
        field.falling,
    )


def heading(fields: Iterable[Field[T]], sorted_by: str = "", backwards: bool = False) -> Line:
    """Return the titles, the one that is sorted by with an arrow."""
    titles = []
    for field in fields:
        falling = field.falling != backwards
        mark = ("▼" if falling else "▲") if field.title and field.title == sorted_by else ""
        title = field.title[: field.width - len(mark)] + mark
        titles.append(fitted(title, field.width, field.right))
    return [(" ".join(titles), "title")]


def column_at(widths: Iterable[int], x: int) -> int | None:
    """Return which of the columns, each with a space before it, a cell is in; None for none.

    >>> [column_at((4, 2), x) for x in (0, 1, 4, 5, 7, 8)]
    [0, 0, 0, 1, 1, None]
    """
    end = 0
    for index, width in enumerate(widths):
        end += width + 1
        if x < end:
            return index
    return None


def row(fields: Iterable[Field[T]], value: T) -> Line:
    """Return a value's cells."""
    parts: list[Part] = []
    for field in fields:
        text = fitted(field.show(value), field.width, field.right)
        parts += [(text, field.role(value)), (" ", "")]
    return parts


def ordered(values: Iterable[T], field: Field[T] | None, backwards: bool = False) -> list[T]:
    """Return values sorted by a field; those without a value come last either way."""
    values = list(values)
    if field is None or field.sort is None:
        return values[::-1] if backwards else values
    sort = field.sort
    known = [(key, value) for value in values if (key := sort(value)) is not None]
    unknown = [value for value in values if sort(value) is None]
    known.sort(key=lambda pair: pair[0], reverse=field.falling != backwards)
    return [value for _, value in known] + unknown


def or_missing(text: str | None) -> str:
    """Return a text, or what stands for none."""
    return text if text else MISSING
