"""A terminal's cells: takes whole frames, and returns only the changes.

Textual sends a changed row from its left edge on, with every colour of it said again; most of its
cells are as they were. What is sent here goes by style, so that each is said once a frame. The
terminal is taken to understand cursor positions, SGR and nothing else; where its idea of a
character's width may differ, the cursor is placed again.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.cells import split_graphemes

FRAME = re.compile(r"\x1b\[\d+;\d+H(?:[^\x00-\x09\x0b-\x1f\x7f-\x9f]+|\x1b\[[\d;]*[Hm])*")
"""Text, styles and cursor positions, beginning with one of these."""
PIECES = re.compile(r"\x1b\[([\d;]*)([Hm])([^\x1b\n]*)")
Cell = tuple[str, str]
"""A text and its style."""
UNKNOWN: Cell = ("\x00", "")
"""An unknown cell; no frame holds it."""

Run = tuple[str, int, int, str]
"""Cells of one style: the style, their line, their first column, their text."""


SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame: a terminal that knows them shows it at once.
Source: https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036"""
SHOWS_NOTHING = re.compile(
    r"(?:\x1b\[[?<>=][\d;]*\$?[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x07)*"
)
"""Private modes and questions, operating system commands, the bell."""


class Cells:
    """The cells of a terminal: those of the frame, and those that it shows."""

    def __init__(self, width: int = 0, height: int = 0) -> None:
        self._parked = "\x1b[1;1H"
        """Places the cursor where the frame left it."""
        self._begin(width, height)

    def _begin(self, width: int, height: int) -> None:
        self._size = width, height
        self._frame: list[list[Cell]] = [[UNKNOWN] * width for _ in range(height)]
        self.forget()

    def forget(self) -> None:
        """Take nothing as shown, as after somebody else wrote on the terminal."""
        width, height = self._size
        self._shown: list[list[Cell]] = [[UNKNOWN] * width for _ in range(height)]

    def let_through(self, data: str, size: tuple[int, int]) -> str:
        """Reduce an output for a terminal of so many columns and lines to its changed cells."""
        if data in (SYNC_START, SYNC_END):
            return ""
        if size != self._size:
            self._begin(*size)
        if self.take(data):
            changes = self.changes()
            return f"{SYNC_START}{changes}{SYNC_END}" if changes else ""
        if not SHOWS_NOTHING.fullmatch(data):
            self.forget()
        return data

    def take(self, frame: str) -> bool:
        """Take in a frame as Textual writes it; return False for anything else."""
        if not FRAME.fullmatch(frame):
            return False
        width, height = self._size
        x, y, style = 0, 0, ""
        for codes, kind, text in PIECES.findall(frame):
            if kind == "m":
                style = "" if codes == "0" else codes
            else:
                line, _, column = codes.partition(";")
                x, y = int(column or 1) - 1, int(line or 1) - 1
            if text and y < height:
                x = _put(self._frame[y], x, text if text.isascii() else _parted(text), style)
        self._parked = _place(min(y, height - 1), min(x, width - 1))
        return True

    def changes(self) -> str:
        """Return the output that brings the terminal up to date, and take it as shown.

        The terminal writes in its own style before and after.
        """
        runs: list[Run] = []
        for y, (row, shown) in enumerate(zip(self._frame, self._shown, strict=True)):
            if row != shown:
                runs += _differing(y, row, shown)
                shown[:] = row
        sent, before = [], ""
        for style, y, x, text in sorted(runs):
            if style != before:
                sent.append(f"\x1b[0;{style}m")
                before = style
            sent.append(_place(y, x) + text)
        return "".join([*sent, "\x1b[m" if before else "", self._parked]) if runs else ""


def _put(row: list[Cell], x: int, texts: Sequence[str], style: str) -> int:
    """Write cells from `x` on, as far as there is room; return where they end."""
    after = x + len(texts)
    end = min(after, len(row))
    if x < end:
        for edge in (x, end):
            if 0 < edge < len(row) and not row[edge][0]:  # a wide character over this edge
                row[edge - 1 : edge + 1] = ((" ", style) for _, style in row[edge - 1 : edge + 1])
        row[x:end] = [(text, style) for text in texts[: end - x]]
    return after


def _differing(y: int, row: Sequence[Cell], shown: Sequence[Cell]) -> Iterator[Run]:
    """Yield the runs of cells of one style that differ.

    A run ends with a cell whose width is the terminal's to say.
    """
    begin, run, style = 0, "", ""
    for x, (cell, before) in enumerate(zip(row, shown, strict=True)):
        same = cell == before or cell[0] in ("", UNKNOWN[0])
        if run and (same or cell[1] != style or not _sure(run[-1])):
            yield style, y, begin, run
            run = ""
        if not same:
            begin, style = (begin, style) if run else (x, cell[1])
            run += cell[0]
    if run:
        yield style, y, begin, run


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
    for start, end, width in split_graphemes(text)[0]:
        if width:
            cells += [text[start:end]] + [""] * (width - 1)
    return cells
