"""A table drawn by line: rows known by key, drawn only where they are seen and have changed.

A view gives the keys of all rows in their order and a function that draws one; the table calls
it for the visible rows only, and redraws those lines that are not as they were. The top stays in
sight until a person moves away from it; from then on the cursor stays on its row when the order
changes. (A `DataTable` takes ten times the CPU at 512 rows.)
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gputui.tui.rendering.lines import Line
from gputui.tui.widgets.pane import MOVES, Drawing, Moving

Draw = Callable[[str], Line]

HEADING = 1
"""Lines above the rows that do not scroll."""


class Table(Moving, ScrollView, Drawing, can_focus=True):
    """Rows of styled parts under a heading.

    `show(heading, keys, draw)` replaces everything shown. `cursor` is the key of the row under
    the cursor, None where there is no row. Posts `Moved` and `Chosen` with that key, and
    `Headed` for a click above the rows.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, Binding("enter", "choose", show=False)]
    DEFAULT_CSS = """
    Table { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; scrollbar-gutter: stable; }
    """

    class Moved(Message):
        """The cursor came to another row."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Chosen(Moved):
        """A row was chosen with enter or a click on the row under the cursor."""

    class Headed(Message):
        """The heading was clicked, at this cell."""

        def __init__(self, x: int) -> None:
            super().__init__()
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heading: Line = ()
        self._keys: Sequence[str] = ()
        self._draw: Draw = lambda key: ((key, ""),)
        self._drawn: dict[str, Line] = {}
        self._index = 0
        self._keeps_row = False
        """Whether a person moved the cursor away from the top."""

    @property
    def cursor(self) -> str | None:
        """The key of the row under the cursor."""
        return self._keys[self._index] if self._index < len(self._keys) else None

    @property
    def rows_seen(self) -> int:
        """The number of rows that fit."""
        return max(0, self.scrollable_content_region.height - HEADING)

    @property
    def lines(self) -> Iterable[Line]:
        """The heading and every row."""
        return [self._heading, *map(self._draw, self._keys)]

    def show(self, heading: Line, keys: Sequence[str], draw: Draw) -> None:
        """Show these rows, and redraw those in sight that are not as they were."""
        place = self.cursor
        order_changed = list(keys) != list(self._keys)
        heading_changed = heading != self._heading
        self._heading, self._keys, self._draw = heading, keys, draw
        if order_changed:
            self._find(place)
            self._measure()
        if order_changed or heading_changed:
            self._drawn.clear()
            self._strips.clear()
            self.refresh()
            return
        self._redraw_changed()

    def _redraw_changed(self) -> None:
        width = self.size.width
        for y, key in enumerate(self.keys_seen, HEADING):
            line = self._draw(key)
            if line != self._drawn.get(key):
                self._drawn[key] = line
                self._strips.pop((key, False), None)
                self._strips.pop((key, True), None)
                self.refresh(Region(0, y, width, 1))

    @property
    def keys_seen(self) -> Sequence[str]:
        """The keys of the rows in sight."""
        top = self.scroll_offset.y
        return self._keys[top : top + self.rows_seen]

    def _find(self, key: str | None) -> None:
        """Keep the cursor on its row, or at the top; where its row is gone, near its place."""
        try:
            self._index = self._keys.index(key) if key is not None and self._keeps_row else 0
        except ValueError:
            self._index = max(0, min(self._index, len(self._keys) - 1))

    def _measure(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._keys) + HEADING)
        self.call_after_refresh(self._into_sight)

    def select(self, key: str) -> bool:
        """Put the cursor on a row; return whether there is such a row."""
        if key not in self._keys:
            return False
        self._go_to(self._keys.index(key))
        return True

    def _go_to(self, index: int) -> None:
        index = max(0, min(index, len(self._keys) - 1))
        self._keeps_row = index > 0
        if index != self._index and self._keys:
            before, self._index = self._index, index
            self._refresh_row(before)
            self._refresh_row(index)
            self._into_sight()
            self.post_message(self.Moved(self._keys[index]))

    def _refresh_row(self, index: int) -> None:
        y = index - self.scroll_offset.y + HEADING
        if HEADING <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def _into_sight(self) -> None:
        top, rows = self.scroll_offset.y, self.rows_seen
        if self._index < top:
            self.scroll_to(y=self._index, animate=False, force=True)
        elif rows and self._index >= top + rows:
            self.scroll_to(y=self._index - rows + 1, animate=False, force=True)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._go_to(self._index + rows)

    def action_end(self, last: bool) -> None:
        """Move the cursor to the first or the last row."""
        self._go_to(len(self._keys) - 1 if last else 0)

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self.cursor is not None:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move to the row that was clicked; choose it where the cursor was there already."""
        index = self.scroll_offset.y + event.y - HEADING
        if event.y < HEADING:
            self.post_message(self.Headed(event.x))
        if event.y < HEADING or index >= len(self._keys):
            return
        if index == self._index:
            self.action_choose()
        self._go_to(index)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._strips.clear()
        self._measure()

    def forget_drawing(self) -> None:
        """Draw every row again, as after a change of theme."""
        self._drawn.clear()
        super().forget_drawing()

    def on_focus(self) -> None:
        """Show the cursor."""
        self._refresh_row(self._index)

    def on_blur(self) -> None:
        """Show the cursor less."""
        self._refresh_row(self._index)

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it."""
        width = self.scrollable_content_region.width
        if y < HEADING:
            return self.brush.strip(self._heading, width)
        index = y - HEADING + self.scroll_offset.y
        if index >= len(self._keys):
            return Strip.blank(width, self.rich_style)
        key, current = self._keys[index], index == self._index
        strip = self._strips.get((key, current))
        if strip is None:
            line = self._drawn.get(key)
            if line is None:
                line = self._drawn[key] = self._draw(key)
            strip = self.brush.strip(line, width)
            self._strips[key, current] = strip = self._under_cursor(strip) if current else strip
        return strip

    def _under_cursor(self, strip: Strip) -> Strip:
        under = self.palette.under_cursor
        return Strip([Segment(text, under(style)) for text, style, _ in strip], strip.cell_length)
