"""The page below a dialog, dimmed: each style is tinted once, not each of thousands of cells."""

from collections.abc import Iterable
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.renderables.background_screen import BackgroundScreen

STYLES = 4096
"""How many are remembered: a large heat map has some hundreds."""


class Dimmed(BackgroundScreen):
    """Textual's own, which tints each segment; a dialog draws the page three times as it opens."""

    @classmethod
    def process_segments(cls, segments: Iterable[Segment], color: Color) -> Iterable[Segment]:
        """Yield the segments tinted, without their links and actions."""
        for segment in segments:
            text, style, control = segment
            yield segment if control else Segment(text, _tinted(style or Style.null(), color))


@lru_cache(STYLES)
def _tinted(style: Style, color: Color) -> Style | None:
    (segment,) = BackgroundScreen.process_segments([Segment(" ", style)], color)
    return segment.style
