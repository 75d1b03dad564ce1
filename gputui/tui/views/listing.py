"""A view that is one table: of GPUs, hosts, workers, events or runs. A subclass gives the values,
their columns, and the details of the one under the cursor, which are shown below the table or next
to it. Order, filter, marks and cursor are here.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from gputui.model.series import Span
from gputui.tui.commands import Command
from gputui.tui.filter import Fields, Matches, parse
from gputui.tui.frame import View
from gputui.tui.rendering import Line, Part, faded
from gputui.tui.rendering.columns import (
    MARK,
    Column,
    Order,
    Shown,
    fitting,
    row,
    saved,
)
from gputui.tui.watched import Watched
from gputui.tui.widgets import HEADING, Pane, Table

T = TypeVar("T")

WIDE = 150
"""Width from which details stand next to the table, not below it."""
ABOUT_WIDTH = 70
ASIDE = 5
"""Of it, the columns of its border, padding and scrollbar."""
LEAST_ROWS = 4
LOW = 12
"""Lines below which there is room for the table alone."""


class Listing(View, Generic[T]):
    """A table of values with a filter and an order, and the details of one."""

    COLUMNS: ClassVar[Sequence[Column[Any]]]
    FILTER: ClassVar[Fields[Any]]
    KEY: ClassVar[str] = "name"
    """The attribute that is a value's key."""
    NOTHING: ClassVar[str] = "nothing yet"
    DEFAULT_CSS = f"""
    Listing {{ layout: vertical; }}
    Listing #about {{ height: 1fr; display: none; border-top: solid $panel; padding: 0 1; }}
    Listing #about Pane {{ height: auto; }}
    Listing.wide {{ layout: horizontal; }}
    Listing.wide #about {{ width: {ABOUT_WIDTH}; border: none; border-left: solid $panel; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self._text = Pane()
        self._about = VerticalScroll(self._text, id="about", can_focus=True)
        self._values: dict[str, T] = {}
        self._total = 0
        self.marked: set[str] = set()
        self._matches: Matches[T] | None = None
        self._order: Order[T] = Order(self.COLUMNS)
        self.span = Span.MINUTES_2
        """How far back its graphs go."""
        self._shown: Sequence[Shown[T]] = ()

    @property
    def columns(self) -> Sequence[Column[T]]:
        """The columns that there are now."""
        return self.COLUMNS

    @property
    def order(self) -> Order[T]:
        """The order of the rows."""
        return self._order

    @abstractmethod
    def values(self, watched: Watched) -> Iterable[T]:
        """Return all values, in the order in which they are shown unsorted."""

    def key(self, value: T) -> str:
        """Return a value's key."""
        return str(attrgetter(self.KEY)(value))

    @abstractmethod
    def open(self, value: T) -> None:
        """Go to what the chosen value is about."""

    def about(self, value: T, width: int, height: int) -> list[Line]:
        """Describe the value under the cursor, in so much room."""
        return []

    def is_old(self, value: T) -> bool:
        """Return whether a value's readings are out of date."""
        return False

    def sign(self, value: T) -> Part:
        """Return the character before a row that is not marked."""
        return (" ", "")

    def compose(self) -> ComposeResult:
        """Lay out the table, and the details of the value under the cursor."""
        yield from (self.table, self._about)

    def show(self, watched: Watched) -> None:
        """Draw the values that match, in their order."""
        self.show_rows(self.order.sorted(self.matching(watched)))
        self._show_about()

    def matching(self, watched: Watched) -> list[T]:
        """Return the values that the filter lets through, in their order unsorted."""
        values = list(self.values(watched))
        self._total = len(values)
        matches = self._matches
        return values if matches is None else [value for value in values if matches(value)]

    def show_rows(self, values: Iterable[T]) -> None:
        """Draw these values in the table."""
        key = attrgetter(self.KEY)
        self._values = {str(key(value)): value for value in values}
        self._shown = fitting(self.columns, self.table.scrollable_content_region.width)
        self.table.show(self.order.heading(self._shown), list(self._values), self.line)

    def line(self, key: str) -> Line:
        """Return the row of a value."""
        value = self._values[key]
        line = [self._before(value), *row(self._shown, value)[1:]]
        return faded(line) if self.is_old(value) else line

    def _before(self, value: T) -> Part:
        return (MARK, "accent") if self.key(value) in self.marked else self.sign(value)

    def _show_about(self) -> None:
        """Show the details of the value under the cursor: next to the table, else below it."""
        width, height = self.size
        if (wide := width >= WIDE) != self.has_class("wide"):
            self.set_class(wide, "wide")
            self.call_after_refresh(self.screen_app.redraw)  # the table has another width then
        free = height - HEADING - len(self._values)
        most = max(free, height // 2)
        lines: list[Line] = []
        if self.current is not None and height >= LOW:
            room = (ABOUT_WIDTH - ASIDE, height) if wide else (max(20, width - 4), most - 1)
            lines = self.about(self.current, *room)
        below = max(free, min(len(lines) + 1, most)) if lines and not wide else 0
        self._about.display = bool(lines)
        self.table.styles.height = max(LEAST_ROWS, height - below) if below else "1fr"
        self._text.put_whole(lines)

    def on_table_moved(self, event: Table.Moved) -> None:
        """Show the details of the value under the cursor."""
        event.stop()
        self.moved()

    def moved(self) -> None:
        """Show the details of the value that the cursor came to."""
        self._show_about()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Open the value that was chosen."""
        event.stop()
        if (value := self._values.get(event.key)) is not None:
            self.open(value)

    @property
    def current(self) -> T | None:
        """The value under the cursor."""
        return self._values.get(self.table.cursor or next(iter(self._values), ""))

    def crumbs(self) -> Line:
        """Describe the number of rows, the filter and the order."""
        shown = len(self._values)
        count = f"{shown}" if shown == self._total else f"{shown} of {self._total}"
        noun = self.NAME.removesuffix("s") if self._total == 1 else self.NAME
        return [(f"{count} {noun}" if self._total else self.NOTHING, "dim"), *self.narrowed()]

    def narrowed(self) -> list[Part]:
        """Return the filter, the order and the marks, where there are any."""
        parts: list[Part] = []
        if self.filter_text:
            parts.append((f"  /{self.filter_text}", "accent"))
        if self.order.chosen:
            parts.append((f"  by {self.order.key}", "dim"))
        if self.marked:
            parts.append((f"  {len(self.marked)} marked", "accent"))
        return parts

    def cells(self) -> list[list[str]]:
        """Return the columns' titles, then a row for each value."""
        return saved(self.columns, self._values.values())

    @property
    def names(self) -> Iterable[str]:
        """The keys of its rows."""
        return self._values

    @property
    def cursor(self) -> str | None:
        """The key of the value under the cursor."""
        return self.table.cursor

    def targets(self) -> tuple[str, ...]:
        """Return the marked values, else the one under the cursor."""
        return tuple(sorted(self.marked)) or ((self.cursor,) if self.cursor else ())

    def mark(self) -> None:
        """Mark the value under the cursor, or unmark it, and go on to the next."""
        if self.cursor is not None:
            self.marked ^= {self.cursor}
            self.table.action_move(1)
            self.screen_app.draw()

    def back(self) -> bool:
        """Clear the marks, then the filter."""
        if not self.marked:
            return super().back()
        self.marked.clear()
        self.screen_app.draw()
        return True

    def go_to(self, key: str) -> None:
        """Put the cursor on the value of this key."""
        self.table.select(key)

    def narrow(self, text: str) -> None:
        """Show only what matches; raises UsageError."""
        self._matches = parse(text, self.FILTER) if text else None

    def focus_body(self) -> None:
        """Put the focus on the table."""
        self.take_focus(self.table)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that it can be sorted by, as far as they are shown."""
        shown = {column.key for column, _ in self._shown}
        return tuple(name for name in self.order.names if name in shown) or self.order.names

    def sort(self, name: str) -> None:
        """Sort by the column of this name, and go to the first row.

        Without a name it is the next column, and none after the last.
        """
        self.order.sort(name, self.column_names)
        self.screen_app.draw()
        self.table.action_end(False)

    def next_span(self) -> None:
        """Show the graphs over the next span."""
        self.span = self.span.next
        self.screen_app.draw()

    def sort_backwards(self) -> None:
        """Turn the order around."""
        self.order.reverse()
        self.screen_app.redraw()


def suggest_columns(app: Any, _words: list[str]) -> Sequence[str]:
    """Suggest the columns of the view in sight."""
    return getattr(app.view, "column_names", ())


def order_commands(view: str) -> tuple[Command, ...]:
    """Return the commands for the order of a listing."""
    sort, turn = f"Sort the {view} by a column", f"Reverse the order of the {view}"
    return (
        Command(
            f"sort-{view}", sort, Listing.sort, "s", "[COLUMN]", "sort", suggest=suggest_columns
        ),
        Command(f"reverse-{view}", turn, Listing.sort_backwards, "v"),
    )
