"""What a terminal shows, strip by strip → an image: every character in its cell.

Block elements and braille are drawn as the shapes that they are, so that a picture has neither
the gaps nor the fallbacks of a font. Needs Pillow, which comes with the extra `figure`.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from rich.cells import get_character_cell_size
from rich.color import Color
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.strip import Strip

RGB = tuple[int, int, int]
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
PNG_SIZE = 22
"""Pixels of the type of a picture that is kept."""
DIM = 0.55
"""Of a dim text, how much is the text's own colour."""
EIGHTHS_BELOW = "▁▂▃▄▅▆▇█"
EIGHTHS_LEFT = "▏▎▍▌▋▊▉█"
BRAILLE = range(0x2800, 0x2900)
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each bit of a braille character."""


class Raster:
    """Draws characters of one size."""

    def __init__(self, size: int = 14) -> None:
        self.cell = round(size * 0.6), round(size * 1.25)
        self._fonts = {
            bold: ImageFont.truetype(str(FONTS / name), size)
            for bold, name in ((False, "DejaVuSansMono.ttf"), (True, "DejaVuSansMono-Bold.ttf"))
        }
        self._base = round(size * 0.98)

    def image(self, strips: Sequence[Strip], theme: TerminalTheme) -> Image.Image:
        """Return what these lines look like in a terminal of these colours."""
        width = max((strip.cell_length for strip in strips), default=1)
        paper: RGB = tuple(theme.background_color)  # type: ignore[assignment]
        image = Image.new("RGB", (width * self.cell[0], len(strips) * self.cell[1]), paper)
        pencil = ImageDraw.Draw(image)
        for y, strip in enumerate(strips):
            x = 0
            for text, style, _ in strip:
                ink, behind = colours(style or Style.null(), theme)
                bold = bool(style and style.bold)
                wide = sum(get_character_cell_size(char) for char in text)
                if wide:
                    self._fill(pencil, x, y, wide, behind)
                if style and style.underline:
                    bottom = (y + 1) * self.cell[1] - 2
                    ends = (x * self.cell[0], bottom, (x + wide) * self.cell[0] - 1, bottom)
                    pencil.line(ends, ink, width=2)
                for char in text:
                    self._put(pencil, x, y, char, ink, bold)
                    x += get_character_cell_size(char)
        return image

    def _fill(self, pencil: ImageDraw.ImageDraw, x: int, y: int, cells: int, colour: RGB) -> None:
        width, height = self.cell
        pencil.rectangle(
            (x * width, y * height, (x + cells) * width - 1, (y + 1) * height - 1), colour
        )

    def _put(
        self, pencil: ImageDraw.ImageDraw, x: int, y: int, char: str, ink: RGB, bold: bool
    ) -> None:
        if char.isspace():
            return
        width, height = self.cell
        left, top = x * width, y * height
        if char in EIGHTHS_BELOW:
            high = round(height * (EIGHTHS_BELOW.index(char) + 1) / 8)
            pencil.rectangle((left, top + height - high, left + width - 1, top + height - 1), ink)
        elif char in EIGHTHS_LEFT:
            wide = max(1, round(width * (EIGHTHS_LEFT.index(char) + 1) / 8))
            pencil.rectangle((left, top, left + wide - 1, top + height - 1), ink)
        elif ord(char) in BRAILLE:
            self._dots(pencil, left, top, ord(char) - BRAILLE.start, ink)
        elif char == "─":
            middle = top + height // 2
            pencil.line((left, middle, left + width - 1, middle), ink)
        elif char == "│":
            pencil.line((left + width // 2, top, left + width // 2, top + height - 1), ink)
        else:
            pencil.text((left, top + self._base), char, ink, self._fonts[bold], anchor="ls")

    def _dots(self, pencil: ImageDraw.ImageDraw, left: int, top: int, bits: int, ink: RGB) -> None:
        width, height = self.cell
        across, down = width / 2, height / 4
        side = max(1, round(min(across, down) * 0.6))
        for bit, (column, row) in enumerate(DOTS):
            if bits >> bit & 1:
                x = left + round(column * across + (across - side) / 2)
                y = top + round(row * down + (down - side) / 2)
                pencil.rectangle((x, y, x + side - 1, y + side - 1), ink)


def write_png(strips: Sequence[Strip], theme: TerminalTheme, path: Path) -> None:
    """Write a picture in large type, with a margin, in few colours so that it is small."""
    picture = Raster(PNG_SIZE).image(strips, theme)
    framed = Image.new("RGB", (picture.width + 24, picture.height + 24), picture.getpixel((0, 0)))
    framed.paste(picture, (12, 12))
    framed.quantize(colors=128, dither=Image.Dither.NONE).save(path, optimize=True)


@lru_cache(maxsize=4096)
def colours(style: Style, theme: TerminalTheme) -> tuple[RGB, RGB]:
    """Return what a terminal writes a style with, and on."""
    ink = _rgb(style.color, theme, foreground=True)
    paper = _rgb(style.bgcolor, theme, foreground=False)
    if style.reverse:
        ink, paper = paper, ink
    if style.dim:
        ink = tuple(round(DIM * a + (1 - DIM) * b) for a, b in zip(ink, paper, strict=True))  # type: ignore[assignment]
    return ink, paper


def _rgb(colour: Color | None, theme: TerminalTheme, *, foreground: bool) -> RGB:
    if colour is None:
        return tuple(theme.foreground_color if foreground else theme.background_color)  # type: ignore[return-value]
    return tuple(colour.get_truecolor(theme, foreground=foreground))  # type: ignore[return-value]
