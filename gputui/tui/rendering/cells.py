"""A terminal's cells: takes in whole frames, and returns only what is not shown yet.

Textual sends a changed row from its left edge on, with every colour of it said again; most of its
cells are as they were. What is sent here goes by style, so that each colour is said once a frame.
The terminal is taken to understand cursor positions, SGR and nothing else; where its idea of a
character's width may differ, the cursor is placed again.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, get_character_cell_size

OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "8": "28", "9": "29"}
"""Attribute → what takes it away; 22 takes bold and dim away alike."""
COLOUR_CODES = {"2": 5, "5": 3}
"""After 38 or 48: how many numbers a colour is, as red, green and blue or from 256."""


@dataclass(frozen=True, slots=True)
class Pen:
    """A style in its parts."""

    ink: str = ""
    """The codes of the foreground, "" for the terminal's own."""
    paper: str = ""
    attributes: frozenset[str] = frozenset()

    @classmethod
    def read(cls, style: str) -> "Pen":
        """Return a style's parts.

        >>> Pen.read("31;48;5;7")
        Pen(ink='31', paper='48;5;7', attributes=frozenset())
        """
        ink = paper = ""
        attributes = set()
        for code in codes(style):
            number = int(code.partition(";")[0] or 0)
            if number == 38 or 30 <= number <= 37 or 90 <= number <= 97:
                ink = code
            elif number == 48 or 40 <= number <= 47 or 100 <= number <= 107:
                paper = code
            else:
                attributes.add(code)
        return cls(ink, paper, frozenset(attributes))


def codes(style: str) -> Iterator[str]:
    """Give the codes of a style, a colour as one.

    >>> list(codes("1;38;2;9;9;9;4"))
    ['1', '38;2;9;9;9', '4']
    """
    numbers = style.split(";") if style else []
    while numbers:
        size = 1
        if numbers[0] in ("38", "48") and len(numbers) > 1:
            size = COLOUR_CODES.get(numbers[1], 1)
        yield ";".join(numbers[:size])
        del numbers[:size]


@lru_cache(maxsize=4096)
def change(before: str, after: str) -> str:
    r"""Return the escape sequence that takes a terminal from one style to another.

    >>> change("1;38;5;3;48;5;7", "38;5;3;48;5;7"), change("31", ""), change("2", "2;7")
    ('\x1b[22m', '\x1b[m', '\x1b[7m')
    """
    if before == after:
        return ""
    old, new = Pen.read(before), Pen.read(after)
    ways = [f"0;{after}" if after else ""]
    if all(code in OFF for code in old.attributes - new.attributes):
        ways.append(";".join(_steps(old, new)))
    return f"\x1b[{min(ways, key=len)}m"


def _steps(old: Pen, new: Pen) -> Iterator[str]:
    gone = {OFF[code] for code in old.attributes - new.attributes}
    yield from sorted(gone)
    kept = {code for code in old.attributes & new.attributes if OFF.get(code) not in gone}
    yield from sorted(new.attributes - kept)
    if new.ink != old.ink:
        yield new.ink or "39"
    if new.paper != old.paper:
        yield new.paper or "49"


FRAME = re.compile(r"\x1b\[\d+;\d+H(?:[^\x00-\x09\x0b-\x1f\x7f-\x9f]+|\x1b\[[\d;]*[Hm])*")
"""Text, styles and cursor positions, beginning with one of these."""
PIECES = re.compile(r"\x1b\[([\d;]*)([Hm])([^\x1b\n]*)")
UNKNOWN = "\x00"
"""In place of a cell of which nothing is known; no frame holds it."""
SHORT_GAP = 3
"""Cells that are sent again rather than jumped over, which takes as many bytes."""
JOINING = "\u200d\ufe0f"
"""The joiner and the selector of emoji: what they do to the width is Rich's to say."""

Place = tuple[int, int]
"""A column and a line, from 0."""
Run = tuple[int, int, list[str]]
"""A line, the column it begins in, and the texts of its cells."""


class _Row:
    """A line of cells: the text of each and the style it is in."""

    __slots__ = ("styles", "texts")

    def __init__(self, width: int) -> None:
        self.texts = [UNKNOWN] * width
        self.styles = [""] * width

    def put(self, x: int, texts: Sequence[str], style: str) -> int:
        """Write cells from `x` on, as far as there is room; return where they end."""
        after, row = x + len(texts), self.texts
        end = min(after, len(row))
        if x < end:
            if x and not row[x]:
                self._part(x)
            if end < len(row) and not row[end]:
                self._part(end)
            row[x:end] = texts if end == after else texts[: end - x]
            self.styles[x:end] = (style,) * (end - x)
        return after

    def _part(self, x: int) -> None:
        """Blank a wide character that reaches over the left edge of a cell."""
        self.texts[x - 1 : x + 1] = "  "

    def same(self, other: "_Row") -> bool:
        return self.texts == other.texts and self.styles == other.styles

    def copy(self, other: "_Row") -> None:
        self.texts[:], self.styles[:] = other.texts, other.styles

    def differing(self, other: "_Row") -> list[tuple[str, int, list[str]]]:
        """Return the runs of cells of one style that differ: style, first column, texts.

        A run ends with a cell whose width is the terminal's to say.
        """
        runs: list[tuple[str, int, list[str]]] = []
        goes_on = False
        cells = zip(self.texts, self.styles, other.texts, other.styles, strict=True)
        for x, (text, style, text_before, style_before) in enumerate(cells):
            if (text == text_before and style == style_before) or text in ("", UNKNOWN):
                goes_on = False
                continue
            if goes_on and runs[-1][0] == style:
                runs[-1][2].append(text)
            else:
                runs.append((style, x, [text]))
            goes_on = _sure(text)
        return runs


class Cells:
    """The cells of a terminal: those that are wanted, and those that it shows."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self._wanted = [_Row(width) for _ in range(height)]
        self._shown = [_Row(width) for _ in range(height)]
        self._drawn: set[int] = set()
        """Lines that may have changed."""
        self._parked: Place = 0, 0
        """Where the frame left the cursor."""

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
        self._parked = min(x, width - 1), min(y, height - 1)
        return True

    def changes(self) -> str:
        """Return the output that brings the terminal up to date, and take it as shown.

        The terminal writes in its own style before and after.
        """
        by_style: dict[str, list[Run]] = defaultdict(list)
        for y in sorted(self._drawn):
            wanted, shown = self._wanted[y], self._shown[y]
            if not wanted.same(shown):
                for style, x, texts in wanted.differing(shown):
                    by_style[style].append((y, x, texts))
                shown.copy(wanted)
        self._drawn.clear()
        if not by_style:
            return ""
        sent = "".join(self._written(by_style))
        if self._parked != (0, 0):
            sent += shortest_move(None, self._parked)
        return sent

    def _written(self, by_style: dict[str, list[Run]]) -> Iterator[str]:
        at: Place | None = None
        before = ""
        for style in sorted(by_style):
            yield change(before, style)
            before = style
            for y, x, texts in by_style[style]:
                yield self._gap(at, (x, y), style) or shortest_move(at, (x, y))
                yield "".join(texts)
                end = x + len(texts)
                at = (end, y) if _sure(texts[-1]) and end < self.size[0] else None
        yield change(before, "")

    def _gap(self, at: Place | None, to: Place, style: str) -> str:
        """Return the cells up to a place, where writing them again is shorter than a move."""
        if at is None or at[1] != to[1] or not 0 < to[0] - at[0] <= SHORT_GAP:
            return ""
        row, span = self._wanted[at[1]], slice(at[0], to[0])
        texts = "".join(row.texts[span])
        fits = row.styles[span].count(style) == len(texts) and texts.isascii()
        return texts if fits and UNKNOWN not in texts else ""

    def forget(self) -> None:
        """Take nothing as shown, as after somebody else wrote on the terminal."""
        width, height = self.size
        self._shown = [_Row(width) for _ in range(height)]
        self._drawn = set(range(height))


def shortest_move(at: Place | None, to: Place) -> str:
    r"""Return the escape sequence that moves the cursor; `at` is None if its place is not known.

    >>> shortest_move(None, (4, 1)), shortest_move((4, 1), (6, 1)), shortest_move((9, 1), (8, 2))
    ('\x1b[2;5H', '\x1b[2C', '\x1b[B\x08')
    """
    straight = f"\x1b[{to[1] + 1};{to[0] + 1}H"
    if at is None or to[1] < at[1]:
        return straight
    steps = _repeated(to[1] - at[1], "B") + _sideways(to[0] - at[0])
    return min(steps, straight, key=len)


def _sideways(columns: int) -> str:
    return "\b" * -columns if -4 <= columns <= 0 else _repeated(abs(columns), "DC"[columns > 0])


def _repeated(number: int, kind: str) -> str:
    return f"\x1b[{number if number > 1 else ''}{kind}" if number else ""


@lru_cache(maxsize=4096)
def _sure(text: str) -> bool:
    """Return whether every terminal gives a cell's text one column: no wide or joined ones."""
    return len(text) == 1 and (
        text < "\u0300" or "\u2500" <= text <= "\u25ff" or "\u2800" <= text <= "\u28ff"
    )


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
