"""Lines of parts, as everything on the screen is drawn: cut, filled, wrapped. Pure.

A part is a text and the name of a role (`dim`, `good`, `warn`, `bad`, `accent`, `title`, …), which
the palette gives a style.
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from gputui.model.plain_text import safe

Part = tuple[str, str]
"""A text and the role it is written in; "" is plain text."""
Line = Sequence[Part]
FILLER = "\0"
"""Stands behind a wide character while text is wrapped, which counts characters."""
KEEPS_ROLE = ("warn", "bad", "accent")
"""Roles that a row of old readings keeps; the rest of it is dim."""


def merged(parts: Iterable[Part]) -> list[Part]:
    """Return parts with neighbours of one role made one.

    >>> merged([("a", "dim"), ("b", "dim"), ("c", "")])
    [('ab', 'dim'), ('c', '')]
    """
    result: list[Part] = []
    for text, role in parts:
        if result and result[-1][1] == role:
            result[-1] = (result[-1][0] + text, role)
        else:
            result.append((text, role))
    return result


def faded(line: Line) -> list[Part]:
    """Return a row of readings that are old ones: dim, and without the edges of its bars.

    >>> faded([("97 ", ""), ("silent 1m", "warn")])
    [('97 ', 'dim'), ('silent 1m', 'warn')]
    """
    return [(text, role if role in KEEPS_ROLE else "dim") for text, role in line]


def whole_fields(line: Iterable[Part], width: int) -> list[Part]:
    """Return a line without the fields that do not fit; each begins with two spaces.

    >>> whole_fields([("up", ""), ("  tasks ", "dim"), ("12", "")], 11)
    [('up', '')]
    """
    parts, kept, used = list(line), 0, 0
    for index, (text, _) in enumerate(parts):
        if text.startswith("  "):
            kept = index
        used += cell_len(text)
        if used > width:
            return parts[:kept]
    return parts


def fitted(text: str, width: int, right: bool = False) -> str:
    """Return a text of exactly `width` cells, cut with an ellipsis where it is longer.

    >>> fitted("node-01:gpu3", 8), fitted("7", 3, right=True)
    ('node-01…', '  7')
    """
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    padding = " " * (width - size)
    return padding + text if right else text + padding


def filled(line: Line, width: int) -> list[Part]:
    """Return a line of exactly so many cells.

    >>> filled([("node-01", ""), (":gpu3", "dim")], 9), filled([], 2)
    ([('node-01', ''), (':…', 'dim')], [('  ', '')])
    """
    parts: list[Part] = []
    for text, role in line:
        if (size := cell_len(text)) > width:
            text = fitted(text, width)
        parts.append((text, role))
        width = max(0, width - size)
    return parts if not width else [*parts, (" " * width, "")]


def wrapped(text: str, width: int, role: str = "", indent: str = "") -> list[Line]:
    """Return a text whole, in as many lines as it takes, its own indents kept.

    >>> wrapped("名前" * 10, 20)
    [[('名前名前名前名前名前', '')], [('名前名前名前名前名前', '')]]
    """
    lines: list[Line] = []
    for line in text.splitlines():
        inner = indent + line[: len(line) - len(line.lstrip())]
        made = wrap(
            "".join(c + FILLER * (cell_len(c) - 1) for c in safe(line.strip())),
            max(20, width),
            initial_indent=inner,
            subsequent_indent=inner,
            break_on_hyphens=False,
        )
        lines += [[(each.replace(FILLER, ""), role)] for each in made or [""]]
    return lines
