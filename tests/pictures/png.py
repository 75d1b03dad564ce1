"""SVG as Textual exports it → PNG, every character in its cell.

CairoSVG draws text with the advances of the font that it finds; here each character is given its
place, and braille, which the first font has not, is drawn with another.
"""

import html
import re
from pathlib import Path

from rich.cells import cell_len

FONT, FALLBACK = "DejaVu Sans Mono", "DejaVu Sans"
CELL = 12.2
"""Textual's width of a cell, at its font size of 20."""
SCALE = 1.25
_TEXT = re.compile(r'(<text [^>]*?)x="([\d.]+)"([^>]*?)textLength="[\d.]+"([^>]*)>([^<]*)</text>')
_BRAILLE = re.compile("[\u2800-\u28ff ]+")


def write_png(svg: str, path: Path) -> None:
    """Write a picture beside its SVG; needs the extra `pictures`."""
    import cairosvg

    placed = _TEXT.sub(_placed, svg).replace("Fira Code", FONT)
    cairosvg.svg2png(bytestring=placed.encode(), write_to=str(path), scale=SCALE)


def _placed(text: re.Match[str]) -> str:
    """Return a text element with a place for each of its characters."""
    before, x, middle, after, escaped = text.groups()
    content = html.unescape(escaped)
    places, place = [], float(x)
    for char in content:
        places.append(f"{place:.1f}")
        place += CELL * cell_len(char)
    family = (
        f' font-family="{FALLBACK}" font-size="16"'
        if _BRAILLE.fullmatch(content.replace(chr(160), chr(32)))
        else ""
    )
    xs = " ".join(places)
    return f'{before}x="{xs}"{middle}{after}{family}>{escaped}</text>'
