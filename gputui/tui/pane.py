"""A widget drawn by line: views hand it lines of styled parts, it redraws those that changed.

A part is a text and the name of a role (`dim`, `good`, `warn`, `bad`, `accent`, `title`, …);
the palette gives each role its style, so that no view knows a colour. Nothing is laid out by
Textual, and a refresh in which nothing changed sends nothing.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.tui.format import to_ascii
from gputui.tui.palette import Palette

Part = tuple[str, str]
"""A text and the role it is written in; "" is plain text."""
Line = Sequence[Part]


class Pane(Widget, can_focus=True):
    """Lines of styled parts."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}

    @property
    def palette(self) -> Palette:
        """The styles of the roles in the present theme."""
        return Palette.of(self.app)

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

    def forget_drawing(self) -> None:
        """Draw every line anew, as after a change of size or theme."""
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Draw every line anew in another theme's styles."""
        super().notify_style_update()
        self._strips.clear()

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.forget_drawing()

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it; made once for as long as it stays the same."""
        strip = self._strips.get(y)
        if strip is None:
            line, palette = self._lines[y] if y < len(self._lines) else (), self.palette
            if palette.ascii_only:
                line = [(to_ascii(text), role) for text, role in line]
            strip = self._strips[y] = drawn(line, self.size.width, palette, self.rich_style)
        return strip


def drawn(line: Line, width: int, palette: Palette, base: Style) -> Strip:
    """Return a line cut or filled to exactly `width` cells."""
    segments: list[Segment] = []
    room = width
    for text, role in line:
        size = cell_len(text)
        if size > room:
            text, size = set_cell_size(text, room), room
        if text:
            segments.append(Segment(text, base + palette.style(role) if role else base))
        room -= size
        if room <= 0:
            break
    if room > 0:
        segments.append(Segment(" " * room, base))
    return Strip(segments, width).simplify()


def fitted(text: str, width: int, right: bool = False) -> str:
    """Return a text of exactly `width` cells, cut with an ellipsis where it is longer.

    >>> fitted("node-01:gpu3", 8), fitted("7", 3, right=True)
    ('node-01…', '  7')
    """
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    padding = " " * (width - size)
    return padding + text if right else text + padding
