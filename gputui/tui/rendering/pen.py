r"""How a terminal writes: the shortest way from one SGR style to another. Pure.

A style is what stands between `ESC [` and `m` when it is set from nothing, `1;38;2;0;128;255`;
"" is the terminal's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

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
    r"""Return what a terminal that writes in one style is sent to write in another.

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
