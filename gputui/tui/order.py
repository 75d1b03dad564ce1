"""By which column the rows of a table are sorted, and which way around; named, cycled, clicked."""

from collections.abc import Iterable, Sequence
from typing import Generic

from gputui.errors import HeadError
from gputui.tui.filter import no_such
from gputui.tui.rendering.columns import Column, Fitted, Value, heading, ordered
from gputui.tui.rendering.lines import Line


class Order(Generic[Value]):
    """An order that a person chose.

    >>> order = Order([Column("util", "UTIL", 4, 0, lambda v, w: [], float)], unsorted="host")
    >>> order.sort("", order.names), order.key, order.sort("", order.names), order.key
    (None, 'util', None, 'host')
    >>> order.sort("u", order.names), order.key, order.sorted([1, 3, 2])
    (None, 'util', [3, 2, 1])
    """

    def __init__(self, columns: Iterable[Column[Value]], unsorted: str = "") -> None:
        """`unsorted` names the order without a column."""
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
        """The sort column, or a placeholder."""
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

    def click(self, key: str) -> None:
        """Sort by the column whose heading was clicked, the other way around on a second click."""
        if self.chosen and key == self.key:
            self.reverse()
        elif key in self.names:
            self.sort(key, ())

    def sorted(self, values: Iterable[Value]) -> list[Value]:
        """Return values in this order."""
        return ordered(values, self._by, self._backwards)

    def heading(self, columns: Iterable[Fitted[Value]], first: str = "") -> Line:
        """Return the titles after `first`, the sort column's with an arrow."""
        return heading(columns, self._by, self._backwards, first)
