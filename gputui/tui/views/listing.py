"""A view that is one table of values: what workers, events and runs have in common.

A subclass says what its values are, how each is keyed, shown, sorted and filtered; order,
filter, cursor and the commands for them are here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from textual.app import ComposeResult

from gputui.errors import HeadError
from gputui.tui.commands.registry import Command
from gputui.tui.commands.suggest import columns
from gputui.tui.filter import Fields, FilterError, Matches, no_such, parse
from gputui.tui.rendering.rows import Field, column_at, fitting, heading, ordered, row
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Line, Part
from gputui.tui.widgets.table import Table

T = TypeVar("T")


class Listing(View, Generic[T]):
    """A table of values under a filter and an order."""

    FIELDS: ClassVar[Sequence[Field[Any]]]
    FILTER: ClassVar[Fields[Any]]
    NOTHING: ClassVar[str] = "nothing yet"

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self._values: dict[str, T] = {}
        self._total = 0
        self._filter_text = ""
        self._matches: Matches[T] | None = None
        self._sorted_by = ""
        self._backwards = False
        self._shown: Sequence[Field[T]] = ()

    def values(self, watched: Watched) -> Iterable[T]:
        """Return all values, in the order in which they are shown unsorted."""
        raise NotImplementedError

    def key(self, value: T) -> str:
        """Return what a value is known by."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Be one table."""
        yield self.table

    def show(self, watched: Watched) -> None:
        """Draw the values that match, in their order."""
        values = list(self.values(watched))
        self._total = len(values)
        if self._matches is not None:
            values = [value for value in values if self._matches(value)]
        values = ordered(values, self._sort_field(), self._backwards)
        self._values = {self.key(value): value for value in values}
        width = self.table.scrollable_content_region.width
        self._shown = fields = fitting(self.FIELDS, width - 1, last_grows=True)
        titles = heading(fields, self._sorted_by, self._backwards)
        self.table.show(
            [(" ", ""), *titles],
            list(self._values),
            lambda key: [(" ", ""), *row(fields, self._values[key])],
        )

    def _sort_field(self) -> Field[Any] | None:
        return next((field for field in self.FIELDS if field.title == self._sorted_by), None)

    @property
    def current(self) -> T | None:
        """The value under the cursor."""
        return self._values.get(self.table.cursor or "")

    def crumbs(self) -> Line:
        """Say how many there are, under what filter, in what order."""
        shown = len(self._values)
        count = f"{shown}" if shown == self._total else f"{shown} of {self._total}"
        noun = self.NAME.removesuffix("s") if self._total == 1 else self.NAME
        parts: list[Part] = [(f"{count} {noun}" if self._total else self.NOTHING, "dim")]
        if self._filter_text:
            parts.append((f"  /{self._filter_text}", "accent"))
        if self._sorted_by:
            parts.append((f"  by {self._sorted_by.lower()}", "dim"))
        return parts

    def go_to(self, key: str) -> None:
        """Put the cursor on the value of this key."""
        self.table.select(key)

    def filter(self, text: str) -> str:
        """Show only what matches; return what is wrong with the filter, or ""."""
        try:
            self._matches = parse(text, self.FILTER) if text.strip() else None
        except FilterError as error:
            return str(error)
        self._filter_text = text.strip()
        self.screen_app.redraw()
        return ""

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self._filter_text

    def back(self) -> bool:
        """Let go of the filter."""
        if not self._filter_text:
            return False
        self.filter("")
        return True

    def focus_body(self) -> None:
        """Put the focus on the table."""
        self.take_focus(self.table)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that it can be sorted by."""
        return tuple(field.title.lower() for field in self.FIELDS if field.sort is not None)

    def sort(self, name: str) -> None:
        """Sort by the column of this name, and go to the first row.

        Without a name it is the next column, and none after the last.
        """
        titles = ["", *(field.title for field in self.FIELDS if field.sort is not None)]
        meant = [title for title in titles if name and title.lower().startswith(name.lower())]
        if name and not meant:
            raise HeadError(no_such("column", name, self.column_names))
        following = titles[(titles.index(self._sorted_by) + 1) % len(titles)]
        self._sorted_by = meant[0] if meant else following
        self._backwards = False
        self.screen_app.draw()
        self.table.action_end(False)

    def on_table_headed(self, event: Table.Headed) -> None:
        """Sort by the column whose heading was clicked; the other way around when it is already."""
        event.stop()
        index = column_at((field.width for field in self._shown), event.x)
        if index is None or self._shown[index].sort is None:
            return
        if (title := self._shown[index].title) == self._sorted_by:
            self.sort_backwards()
        else:
            self.sort(title)

    def sort_backwards(self) -> None:
        """Turn the order around."""
        self._backwards = not self._backwards
        self.screen_app.redraw()


def order_commands(view: str, reverse: tuple[str, ...] = ("r",)) -> tuple[Command, ...]:
    """Return the commands for the order of a listing; `reverse` are the keys that turn it."""
    return (
        Command(
            f"sort-{view}",
            f"Sort the {view} by a column",
            lambda listing, name: listing.sort(name),
            ("s",),
            view,
            usage="[COLUMN]",
            suggest=columns,
            hint="sort",
        ),
        Command(
            f"reverse-{view}",
            f"Turn the order of the {view} around",
            lambda listing, _argument: listing.sort_backwards(),
            reverse,
            view,
        ),
    )
