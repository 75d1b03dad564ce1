"""A terminal's cells: takes whole frames, and returns only the changes.

Textual sends a changed row from its left edge on, with every colour of it said again; most of its
cells are as they were. What is sent here goes by style, so that each is said once a frame. The
terminal is taken to understand cursor positions, SGR and nothing else; where its idea of a
character's width may differ, the cursor is placed again.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, get_character_cell_size

FRAME = re.compile(r"\x1b\[\d+;\d+H(?:[^\x00-\x09\x0b-\x1f\x7f-\x9f]+|\x1b\[[\d;]*[Hm])*")
"""Text, styles and cursor positions, beginning with one of these."""
PIECES = re.compile(r"\x1b\[([\d;]*)([Hm])([^\x1b\n]*)")
UNKNOWN = "\x00"
"""An unknown cell; no frame holds it."""
JOINING = "\u200d\ufe0f"
"""The joiner and the selector of emoji: Rich decides their width."""

Run = tuple[str, int, int, str]
"""Cells of one style: the style, their line, their first column, their text."""


class _Row:
    """A line of cells: the text of each and the style it is in."""

    def __init__(self, width: int) -> None:
        self.texts = [UNKNOWN] * width
        self.styles = [""] * width

    def put(self, x: int, texts: Sequence[str], style: str) -> int:
        """Write cells from `x` on, as far as there is room; return where they end."""
        after, row = x + len(texts), self.texts
        end = min(after, len(row))
        if x < end:
            for edge in (x, end):
                if edge and edge < len(row) and not row[edge]:
                    row[edge - 1 : edge + 1] = "  "  # a wide character over this edge
            row[x:end] = texts[: end - x]
            self.styles[x:end] = (style,) * (end - x)
        return after

    def differing(self, other: "_Row", y: int) -> Iterator[Run]:
        """Yield the runs of cells of one style that differ.

        A run ends with a cell whose width is the terminal's to say.
        """
        begin, run, style = 0, "", ""
        cells = zip(self.texts, self.styles, other.texts, other.styles, strict=True)
        for x, (text, new, text_before, style_before) in enumerate(cells):
            same = (text == text_before and new == style_before) or text in ("", UNKNOWN)
            if run and (same or new != style or not _sure(run[-1])):
                yield style, y, begin, run
                run = ""
            if not same:
                begin, style = (begin, style) if run else (x, new)
                run += text
        if run:
            yield style, y, begin, run


class Cells:
    """The cells of a terminal: those of the frame, and those that it shows."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self._wanted = [_Row(width) for _ in range(height)]
        self._drawn: set[int] = set()
        """Lines that may have changed."""
        self._parked = "\x1b[1;1H"
        """Places the cursor where the frame left it."""
        self.forget()

    def take(self, frame: str) -> bool:
        """Take in a frame as Textual writes it; return False for anything else."""
        if not FRAME.fullmatch(frame):
            return False
        width, height = self.size
        x, y, style = 0, 0, ""
        for codes, kind, text in PIECES.findall(frame):
            if kind == "m":
                style = "" if codes == "0" else codes
            else:
                line, _, column = codes.partition(";")
                x, y = int(column or 1) - 1, int(line or 1) - 1
            if text and y < height:
                x = self._wanted[y].put(x, text if text.isascii() else _parted(text), style)
                self._drawn.add(y)
        self._parked = _place(min(y, height - 1), min(x, width - 1))
        return True

    def changes(self) -> str:
        """Return the output that brings the terminal up to date, and take it as shown.

        The terminal writes in its own style before and after.
        """
        runs: list[Run] = []
        for y in sorted(self._drawn):
            wanted, shown = self._wanted[y], self._shown[y]
            runs += wanted.differing(shown, y)
            shown.texts[:], shown.styles[:] = wanted.texts, wanted.styles
        self._drawn.clear()
        if not runs:
            return ""
        sent, before = [], ""
        for style, y, x, text in sorted(runs):
            if style != before:
                sent.append(f"\x1b[0;{style}m")
                before = style
            sent.append(_place(y, x) + text)
        return "".join([*sent, "\x1b[m" if before else "", self._parked])

    def forget(self) -> None:
        """Take nothing as shown, as after somebody else wrote on the terminal."""
        width, height = self.size
        self._shown = [_Row(width) for _ in range(height)]
        self._drawn = set(range(height))


def _place(y: int, x: int) -> str:
    """Return the escape sequence that moves the cursor."""
    return f"\x1b[{y + 1};{x + 1}H"


@lru_cache(maxsize=4096)
def _sure(text: str) -> bool:
    """Return whether every terminal gives a character one column: no wide or joined ones."""
    return text < "\u0300" or "\u2500" <= text <= "\u25ff" or "\u2800" <= text <= "\u28ff"


@lru_cache(maxsize=8192)
def _parted(text: str) -> Sequence[str]:
    """Return the cells of a text: "" follows a wide character, what takes none joins the last.

    >>> _parted("a名b"), _parted("\u2665\ufe0f!")
    (['a', '名', '', 'b'], ['♥️', '', '!'])
    """
    cells: list[str] = []
    for char, width in zip(text, _widths(text), strict=True):
        if width and char not in JOINING:
            cells += [char] + [""] * (width - 1)
        elif cells:
            last = max(place for place, cell in enumerate(cells) if cell)
            cells[last] += char
            cells += [""] * width
    return cells


def _widths(text: str) -> list[int]:
    """Return by how many columns each character widens the text."""
    if not any(char in text for char in JOINING):
        return [get_character_cell_size(char) for char in text]
    ends = [cell_len(text[:end]) for end in range(len(text) + 1)]
    return [after - before for before, after in pairwise(ends)]
