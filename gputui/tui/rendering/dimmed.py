"""The page below a dialog, dimmed: each style is tinted once, not each of thousands of cells."""

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip

STYLES = 4096
"""How many are remembered: a large heat map has some hundreds."""


Filters = tuple[LineFilter, ...]


def dimmed(line: Strip, color: Color, filters: Filters = ()) -> Strip:
    """Return a line tinted as Textual does it, without its links and actions."""
    return Strip(
        [Segment(text, _tinted(style or Style.null(), color, filters)) for text, style, _ in line],
        line.cell_length,
    )


@lru_cache(STYLES)
def _tinted(style: Style, color: Color, filters: Filters) -> Style | None:
    segments = [*BackgroundScreen.process_segments([Segment(" ", style)], color)]
    for each in filters:
        segments = each.apply(segments, color)
    return segments[0].style
