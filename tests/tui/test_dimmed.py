"""The page below a dialog is dimmed as Textual dims it."""

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip

from gputui.tui.rendering.dimmed import dimmed

STYLES = (
    None,
    Style(color="#ff8800"),
    Style(color="#ff8800", bgcolor="#002244", bold=True),
    Style(bgcolor="#002244", link="https://example.org"),
    Style(color="red", meta={"@click": "app.quit"}),
)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_every_segment_is_tinted_as_textual_does(alpha: float) -> None:
    page = [Segment(f"{number}", style) for number, style in enumerate((*STYLES, *STYLES))]
    colour = Color(10, 20, 30, alpha)
    ours = [*dimmed(Strip(page), colour)]
    assert ours == [*BackgroundScreen.process_segments(page, colour)]
    assert not any(each.style and (each.style.meta or each.style.link) for each in ours)
