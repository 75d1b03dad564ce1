"""A widget drawn by line: views hand it lines of styled parts, it redraws those that changed.

A part is a text and the name of a role (`dim`, `good`, `warn`, `bad`, `accent`, `title`, …);
the palette gives each role its style, so that no view knows a colour. Nothing is laid out by
Textual, and a refresh in which nothing changed sends nothing.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.tui.rendering.format import safe, to_ascii
from gputui.tui.rendering.lines import Line, Part, merged
from gputui.tui.rendering.palette import Palette

MOST_DRAWN = 2048


class Brush:
    """Draws lines in a palette's styles on a background."""

    def __init__(self, palette: Palette, background: Style) -> None:
        self.palette = palette
        self._background = background
        self._styles = {"": background}
        self._drawn: dict[Part, tuple[Segment, int]] = {}
        """Most parts are as they were a second ago, or as in another row."""

    def strip(self, line: Line, width: int) -> Strip:
        """Return a line cut or filled to exactly `width` cells, and harmless, by any writer."""
        segments: list[Segment] = []
        room = width
        for part in merged(line):
            segment, size = self._drawn.get(part) or self._draw(part)
            if size > room:
                segment = Segment(set_cell_size(segment.text, room), segment.style)
            if segment.text:
                segments.append(segment)
            room -= size
            if room <= 0:
                break
        if room > 0:
            segments.append(Segment(" " * room, self._background))
        return Strip(segments, width)

    def _draw(self, part: Part) -> tuple[Segment, int]:
        """Return a part as it is drawn, and its cells."""
        text, role = part
        text = safe(text)
        text = to_ascii(text) if self.palette.ascii_only else text
        if len(self._drawn) >= MOST_DRAWN:
            self._drawn.clear()
        drawn = self._drawn[part] = Segment(text, self._style(role)), cell_len(text)
        return drawn

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = self._background + self.palette.style(role)
        return style


class Drawing(Widget):
    """A widget that draws its lines itself, and each again only when it is another."""

    def __init__(self, *children: Widget, **options: Any) -> None:
        super().__init__(*children, **options)
        self._strips: dict[Hashable, Strip] = {}
        """Lines as they were drawn last."""
        self._brush: Brush | None = None

    @property
    def lines(self) -> Iterable[Line]:
        """All its lines, also those out of sight."""
        return ()

    @property
    def palette(self) -> Palette:
        """The styles of the roles in the present theme."""
        return self.brush.palette

    @property
    def brush(self) -> Brush:
        """The brush of this pane's lines, for as long as the widget's style stays."""
        if self._brush is None:
            self._brush = Brush(Palette.of(self.app), self.rich_style)
        return self._brush

    def forget_drawing(self) -> None:
        """Draw every line again, as after a change of size or theme."""
        self._brush = None
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Draw every line again in another theme's styles."""
        super().notify_style_update()
        self._brush = None
        self._strips.clear()


class Pane(Drawing):
    """Lines of styled parts."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> Iterable[Line]:
        """The lines that were put."""
        return self._lines

    def put(self, lines: Iterable[Line]) -> None:
        """Show these lines, and redraw those that are not as they were."""
        before, self._lines = self._lines, tuple(lines)
        width, height = self.size
        for y in range(min(height, max(len(before), len(self._lines)))):
            old = before[y] if y < len(before) else None
            new = self._lines[y] if y < len(self._lines) else None
            if old != new:
                self._strips.pop(y, None)
                self.refresh(Region(0, y, width, 1))

    def put_whole(self, lines: Sequence[Line]) -> None:
        """Show these lines, and be as high as they are many."""
        self.styles.height = len(lines)
        self.put(lines)

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.forget_drawing()

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it; made once for as long as it stays the same."""
        strip = self._strips.get(y)
        if strip is None:
            line = self._lines[y] if y < len(self._lines) else ()
            strip = self._strips[y] = self.brush.strip(line, self.size.width)
        return strip


WHEEL_LINES = 3
MOVES: list[BindingType] = [
    Binding("down,j", "move(1)", show=False),
    Binding("up,k", "move(-1)", show=False),
    Binding("pagedown,ctrl+f", "page(1)", show=False),
    Binding("pageup,ctrl+b", "page(-1)", show=False),
    Binding("home,g", "end(False)", show=False),
    Binding("end,G", "end(True)", show=False),
]


class Moving:
    """The actions of a widget whose `BINDINGS` are `MOVES`."""

    @property
    def rows_seen(self) -> int:
        """The number of rows in sight."""
        raise NotImplementedError

    def action_move(self, rows: int) -> None:
        """Move by so many rows."""
        raise NotImplementedError

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
