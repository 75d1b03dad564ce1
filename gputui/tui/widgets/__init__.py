"""Widgets drawn by line: a pane of lines, and a table of rows known by key.

Views hand them lines of parts, and the palette gives each part's role a style. Lines that changed
are drawn again, and of these the driver sends the terminal the cells that changed. (A `DataTable`
takes five times the CPU at 1,000 rows.)
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gputui.tui.rendering import Line
from gputui.tui.rendering.format import safe, to_ascii
from gputui.tui.rendering.palette import Palette


class Drawing(Widget):
    """A widget that draws lines of parts."""

    _in_sight: Sequence[Line] = ()
    """Lines as they were shown last."""

    def put(self, lines: Sequence[Line]) -> None:
        """Show these lines, and draw again those that are not as they were."""
        before, self._in_sight = self._in_sight, lines
        for y, (old, new) in enumerate(zip_longest(before, lines)):
            if old != new:
                self.refresh(Region(0, y, self.size.width, 1))

    @property
    def lines(self) -> Sequence[Line]:
        """All its lines, also those out of sight."""
        return self._in_sight

    @property
    def palette(self) -> Palette:
        """The styles of the roles in the present theme."""
        return Palette.of(self.app)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw some lines, all in the present theme's styles."""
        self._styles_now = self.palette, self.rich_style
        return super().render_lines(crop)

    def strip(self, line: Line, width: int, *, cursor: bool = False) -> Strip:
        """Return a line cut or filled to exactly `width` cells, and harmless, by any writer."""
        palette, plain = self._styles_now
        shown = (lambda text: to_ascii(safe(text))) if palette.ascii_only else safe

        def style(role: str) -> Style:
            on_page = plain + palette.style(role)
            return palette.under_cursor(on_page) if cursor else on_page

        segments = [Segment(shown(text), style(role)) for text, role in line]
        return Strip(segments).adjust_cell_length(width, style(""))


class Pane(Drawing):
    """Lines of styled parts."""

    def put_whole(self, lines: Sequence[Line]) -> None:
        """Show these lines, and be as high as they are many."""
        self.styles.height = len(lines)
        self.put(lines)

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it."""
        line = self._in_sight[y] if y < len(self._in_sight) else ()
        return self.strip(line, self.size.width)


WHEEL_LINES = 3
MOVES: list[BindingType] = [
    Binding("down,j", "move(1)", show=False),
    Binding("up,k", "move(-1)", show=False),
    Binding("pagedown,ctrl+f", "page(1)", show=False),
    Binding("pageup,ctrl+b", "page(-1)", show=False),
    Binding("home,g", "end(False)", show=False),
    Binding("end,G", "end(True)", show=False),
]


class Moving(Drawing):
    """A drawing that is moved through by `MOVES` and the wheel."""

    @property
    @abstractmethod
    def rows_seen(self) -> int:
        """The number of rows in sight."""

    @abstractmethod
    def action_move(self, rows: int) -> None:
        """Move by so many rows."""

    def action_page(self, pages: int) -> None:
        """Move by a page."""
        self.action_move(pages * max(1, self.rows_seen - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move with the wheel."""
        event.stop()
        self.action_move(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move with the wheel."""
        event.stop()
        self.action_move(-WHEEL_LINES)


HEADING = 1
"""Lines above the rows of a table that do not scroll."""


class Table(ScrollView, Moving, can_focus=True):
    """Rows under a heading, drawn as they come into sight.

    `show(heading, keys, draw)` replaces everything shown. The top stays in sight until a person
    moves away from it; from then on the cursor stays on its row when the order changes. Posts
    `Moved` and `Chosen` with the row's key.
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

    def __init__(self) -> None:
        super().__init__()
        self._heading: Line = ()
        self._keys: Sequence[str] = ()
        self._draw: Callable[[str], Line] = lambda key: ((key, ""),)
        self._index = 0
        self._shown_from = 0
        """The first row in sight, as the rows were shown last."""
        self._wanted = ""
        """The key of the row to go to as soon as it is there."""
        self._keeps_row = False
        """Whether a person moved the cursor away from the top."""

    @property
    def cursor(self) -> str | None:
        """The key of the row under the cursor, None where there is no row."""
        return self._keys[self._index] if self._index < len(self._keys) else None

    @property
    def rows_seen(self) -> int:
        """The number of rows that fit."""
        return max(0, self.scrollable_content_region.height - HEADING)

    @property
    def keys_seen(self) -> Sequence[str]:
        """The keys of the rows in sight."""
        top = self.scroll_offset.y
        return self._keys[top : top + self.rows_seen]

    @property
    def lines(self) -> Sequence[Line]:
        """The heading and every row."""
        return [self._heading, *map(self._draw, self._keys)]

    def show(self, heading: Line, keys: Sequence[str], draw: Callable[[str], Line]) -> None:
        """Show these rows; where the cursor's row is gone, it stays near its place."""
        before, key = self._keys, self.cursor
        self._heading, self._keys, self._draw = heading, keys, draw
        if self._wanted in keys:
            self._index, self._keeps_row, self._wanted = keys.index(self._wanted), True, ""
        elif not self._keeps_row:
            self._index = 0
        elif key in keys:
            self._index = keys.index(key)
        else:
            self._index = max(0, min(self._index, len(keys) - 1))
        if keys != before:
            self._measure()
            self.refresh()
        self._shown_from = self.scroll_offset.y
        self.put([heading, *map(draw, self.keys_seen)])

    @on(events.Resize)
    def _measure(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._keys) + HEADING)
        self.call_after_refresh(self._into_sight)

    def select(self, key: str) -> None:
        """Put the cursor on a row, which may not be there yet."""
        if key in self._keys:
            self._go_to(self._keys.index(key))
        else:
            self._wanted = key

    def _go_to(self, index: int) -> None:
        index = max(0, min(index, len(self._keys) - 1))
        self._keeps_row, self._wanted = index > 0, ""
        if index != self._index and self._keys:
            for row in (self._index, index):
                y = row - self.scroll_offset.y + HEADING
                self.refresh(Region(0, y, self.size.width, 1))
            self._index = index
            self._into_sight()
            self.post_message(self.Moved(self._keys[index]))

    def _into_sight(self) -> None:
        lowest = max(0, self._index - max(1, self.rows_seen) + 1)
        top = min(self._index, max(self.scroll_offset.y, lowest))
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

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
        if event.y >= HEADING and index == self._index:
            self.action_choose()
        elif event.y >= HEADING and index < len(self._keys):
            self._go_to(index)

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it."""
        width, top = self.scrollable_content_region.width, self.scroll_offset.y
        index = y - HEADING + top
        if y < HEADING:
            return self.strip(self._heading, width)
        if index >= len(self._keys):
            return self.strip((), width)
        as_shown = top == self._shown_from and y < len(self._in_sight)
        line = self._in_sight[y] if as_shown else self._draw(self._keys[index])
        return self.strip(line, width, cursor=index == self._index)
