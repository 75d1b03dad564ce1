"""Text that a host, a user or a program wrote, made safe for a terminal, a log or a prompt. Pure.

Control characters and direction marks become visible characters. Sizes, spans and numbers in words.
"""

import math
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import starmap

MISSING = "–"
UNITS = "BKMGTPE"


def safe(text: str) -> str:
    r"""Return a text that no terminal obeys: control and direction characters made visible.

    >>> safe("a\x1b[2Jb"), safe("x\u202ey"), safe("naïve 名")
    ('a␛[2Jb', 'x�y', 'naïve 名')
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _harmless(char) for char in text)


def safe_lines(text: str) -> str:
    r"""Return a text of several lines, each as `safe` makes it.

    >>> safe_lines("a\x1b[2Jb\n\u202ec")
    'a␛[2Jb\n�c'
    """
    return "\n".join(map(safe, text.split("\n")))


def cut(text: str, most: int) -> str:
    """Return a text of so many characters at most.

    >>> cut("abc", 3), cut("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines, each as `safe` makes it, their columns aligned to the left.

    Those whose numbers are in `right` are aligned to the right; the last one may be of any width.

    >>> aligned([["host", "GPUs", "claim"], ["gpu-a", "8", "–"], ["机器", "8", "–"]], right=[1])
    ['host   GPUs  claim', 'gpu-a     8  –', '机器      8  –']
    """
    widths = [*[max(map(_cells, column)) for column in zip(*rows, strict=True)][:-1], 0]

    def padded(number: int, text: str) -> str:
        blanks = " " * (widths[number] - _cells(text))
        return blanks + text if number in right else text + blanks

    return [safe("  ".join(starmap(padded, enumerate(row))).rstrip()) for row in rows]


def _cells(text: str) -> int:
    """Return how many cells of a terminal a text takes. Source: Unicode Standard Annex 11."""
    wide = (unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + sum(wide) - sum(map(bool, map(unicodedata.combining, text)))


@lru_cache(4_096)
def _harmless(char: str) -> str:
    code = ord(char)
    if char == "\t" or unicodedata.category(char) == "Zs":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


def span(seconds: float, *, fine: bool = False) -> str:
    """Return a span of time in its largest unit; if `fine`, in hours and minutes or days and hours.

    >>> span(0.4), span(59), span(61), span(7300), span(200000)
    ('0s', '59s', '1m', '2h', '2d')
    >>> span(7140, fine=True), span(61, fine=True), span(2 * 86400, fine=True)
    ('1h59m', '1m', '2d')
    """
    whole = max(0, int(seconds))
    for unit, length, below in (("d", 86400, "h"), ("h", 3600, "m"), ("m", 60, "")):
        if whole >= length:
            rest = span(whole % length) if fine and below else ""
            return f"{whole // length}{unit}" + (rest if rest.endswith(below) else "")
    return f"{whole}s"


def size(value_bytes: float | None) -> str:
    """Return bytes in at most five characters, in binary units.

    >>> size(None), size(512), size(1536), size(61 * 2**30), size(143771 * 2**20)
    ('–', '512B', '1.5K', '61G', '140G')
    """
    if value_bytes is None:
        return MISSING
    value, unit = float(value_bytes), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 1 if unit and value < 9.95 and not math.isclose(value, round(value)) else 0
    return f"{value:.{digits}f}{UNITS[unit]}"


def many(number: int, noun: str) -> str:
    """Return how many of something there are.

    >>> many(1, "host"), many(1250, "GPU")
    ('1 host', '1,250 GPUs')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
