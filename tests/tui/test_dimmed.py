"""The page below a dialog is dimmed as Textual dims it."""

from dataclasses import replace

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip

from gputui.protocol.frontend import SnapshotTaken
from gputui.tui.dialogs import modal
from gputui.tui.rendering.dimmed import Filters, dimmed
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still, seen, sees, until

STYLES = (
    None,
    Style(color="#ff8800"),
    Style(color="#ff8800", bgcolor="#002244", bold=True),
    Style(bgcolor="#002244", link="https://example.org"),
    Style(color="red", meta={"@click": "app.quit"}),
)


async def test_what_changes_below_a_dialog_is_seen_and_a_page_that_is_still_is_drawn_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Strip] = []

    def noted(line: Strip, color: Color, filters: Filters = ()) -> Strip:
        drawn.append(line)
        return dimmed(line, color, filters)

    monkeypatch.setattr(modal, "dimmed", noted)
    before = snapshot(host("h", device(0)), workers=(worker(0),))
    on = Still(before)
    async with on.app.run_test(size=(120, 40)) as pilot:
        await sees(pilot, "gpu0", "hosts 1/1")
        await pilot.press("c")
        await sees(pilot, "copy command")
        first = len(drawn)
        await pilot.press("j", "tab", "9")
        assert len(drawn) == first
        later = host("node-17", device(0, "node-17"))
        on.link.put(SnapshotTaken(replace(before, sequence=2, hosts=(*before.hosts, later))))
        await sees(pilot, "hosts 2/2", "copy command")
        await pilot.resize_terminal(100, 44)
        await until(pilot, lambda: len(seen(pilot).splitlines()) == 44)
        await sees(pilot, "copy command", "q quit")


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_every_segment_is_tinted_as_textual_does(alpha: float) -> None:
    page = [Segment(f"{number}", style) for number, style in enumerate((*STYLES, *STYLES))]
    colour = Color(10, 20, 30, alpha)
    ours = [*dimmed(Strip(page), colour)]
    assert ours == [*BackgroundScreen.process_segments(page, colour)]
    assert not any(each.style and (each.style.meta or each.style.link) for each in ours)
