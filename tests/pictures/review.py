"""Every view at every size and theme on one sheet: `python -m tests.pictures.review [WORD…]`.

Words choose the pictures whose names hold them all: `fleet`, `80x24`, `32gpus`, `textual-light`.
The cluster is built (`lab`), not simulated, so that two sheets differ by the screen alone. The
sheet is written to `review.png`; with `--text`, what is seen is printed instead.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from PIL import Image, ImageDraw
from rich.terminal_theme import TerminalTheme
from textual.strip import Strip

from gputui.tui.app import ScreenApp
from tests.pictures.lab import START, Lab, LabConnection
from tests.pictures.raster import Raster
from tests.pictures.scenes import still, utc

SIZES = ((60, 15), (80, 24), (100, 30), (120, 40), (160, 45), (200, 60))
COUNTS = (1, 4, 8, 32, 256, 1000, 4096)
THEMES = ("textual-dark", "textual-light", "okabe-ito", "ansi-dark", "ascii", "no-color")
VIEWS = {
    "start": "0", "workers": "2", "tasks": "3", "logs": "4", "events": "5", "runs": "6",
    "device": "1 j j enter", "hosts": "1 Z", "heat": "1 Z Z",
}  # fmt: skip
SECONDS = {256: 90, 1000: 70, 4096: 64}
"""How long a large cluster is watched; a smaller one 130 s."""
SHEET_WIDTH = 3600
MARGIN = 12


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture of the sheet."""

    view: str
    size: tuple[int, int]
    gpus: int = 32
    theme: str = "textual-dark"

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return f"{self.view} {self.size[0]}x{self.size[1]} {self.gpus}gpus {self.theme}"


def shots() -> Iterator[Shot]:
    """Give every picture: the fleet at every count, every view at every size, the themes."""
    for size in SIZES:
        yield from (Shot("fleet", size, gpus) for gpus in COUNTS)
        yield from (Shot(view, size) for view in VIEWS)
    for theme in THEMES[1:]:
        yield from (
            Shot(view, (120, 40), 32, theme) for view in ("fleet", "heat", "tasks", "device")
        )


async def strips(shot: Shot) -> tuple[Sequence[Strip], TerminalTheme]:
    """Return what is seen, and the terminal's colours."""
    seconds = SECONDS.get(shot.gpus, 130)
    link = LabConnection(Lab(shot.gpus, starting=shot.view == "start"), seconds)
    now = START + seconds

    async def open_connection() -> LabConnection:
        return link

    ascii_only, plain = shot.theme == "ascii", shot.theme == "no-color"
    theme = "ansi-dark" if ascii_only or plain else shot.theme
    with patch.dict(os.environ, {"NO_COLOR": "1"} if plain else {}):
        app = ScreenApp(open_connection, theme=theme, ascii_only=ascii_only, clock=lambda: now)
    async with app.run_test(size=shot.size) as pilot:
        await asyncio.wait_for(link.said.wait(), 120)
        await still(pilot)
        for key in VIEWS.get(shot.view, "1").split():
            await pilot.press(key)
            await still(pilot)
        return app.screen._compositor.render_strips(), app.ansi_theme


def sheet(pictures: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Return pictures in rows, each under its name."""
    places, x, y, high = [], MARGIN, MARGIN, 0
    for name, picture in pictures:
        if x + picture.width > SHEET_WIDTH and x > MARGIN:
            x, y, high = MARGIN, y + high + 3 * MARGIN, 0
        places.append((name, picture, x, y))
        x, high = x + picture.width + MARGIN, max(high, picture.height)
    width = max((x + picture.width for _, picture, x, _ in places), default=0) + MARGIN
    whole = Image.new("RGB", (width, y + high + 3 * MARGIN), "#555555")
    pencil = ImageDraw.Draw(whole)
    for name, picture, left, top in places:
        pencil.text((left, top), name, "#ffffff")
        whole.paste(picture, (left, top + 2 * MARGIN))
    return whole


def main(words: Sequence[str]) -> None:
    """Draw the pictures that are asked for."""
    utc()
    as_text, wanted = "--text" in words, [word for word in words if not word.startswith("--")]
    raster, pictures = Raster(), []
    for shot in shots():
        if not all(word in shot.name.split() for word in wanted):
            continue
        begun = time.monotonic()
        lines, theme = asyncio.run(strips(shot))
        if as_text:
            print(f"── {shot.name}", *(strip.text for strip in lines), sep="\n")
        else:
            pictures.append((shot.name, raster.image(lines, theme)))
            print(f"{shot.name}: {time.monotonic() - begun:.1f} s", flush=True)
    if pictures:
        sheet(pictures).save("review.png")


if __name__ == "__main__":
    main(sys.argv[1:])
