"""Lines of parts, as everything on the screen is drawn: cut, filled, wrapped, bars, graphs. Pure.

A part is a text and the name of a role (`dim`, `good`, `warn`, `bad`, `accent`, `title`, …), which
the palette gives a style. A bar is some cells of one line: a line runs under those that are filled,
in the ramp's colour for the value; the figure stands in it. A graph is braille, two values to a
cell, its rows along the same ramp.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from gputui.model.plain_text import safe
from gputui.tui.rendering import format as fmt

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


FILLS = 4
"""Steps of the ramp, from `fill0` to `fill3`."""
LIMIT = "╌"


def gauge(fraction: float | None, figure: str, width: int, role: str = "") -> list[Part]:
    """Return a bar with a figure at its right end; `role` is that of the figure where it matters.

    >>> gauge(0.5, "50%", 8)
    [('    ', 'fill2'), (' 50%', '')]
    >>> gauge(None, "–", 4)
    [('   –', 'dim')]
    """
    text = figure[:width].rjust(width)
    if fraction is None:
        return [(text, role or "dim")]
    share = min(1.0, max(0.0, fraction))
    filled, step = round(share * width), min(FILLS - 1, int(share * FILLS))
    line = min(filled, len(text) - len(text.lstrip()))
    parts = (
        (text[:line], f"{role}fill" if role else f"fill{step}"),
        (text[line:filled], f"{role}fill"),
        (text[filled:], role),
    )
    return [part for part in parts if part[0]]


def spark(values: Sequence[float | None], width: int, top: float) -> Part:
    """Return a graph of one row.

    >>> spark([0, 50, 100, None], 3, 100)
    ('⠀⣠⡇', 'graph2')
    """
    ((text, _),) = graph(values, width, 1, top)[0]
    return (text, "graph2")


def graph(
    values: Sequence[float | None], width: int, rows: int, top: float, limit: float | None = None
) -> list[Line]:
    """Return a graph of some rows, the newest value at the right, with a limit drawn in.

    A value of 0 is a dot high, so that nothing looks like missing.

    >>> for line in graph([0.0, 0.5, 1.0, None], 3, 2, top=1.0, limit=1.0):
    ...     print("".join(text for text, _ in line))
    ╌╌⡇
    ⠀⣸⡇
    """
    seen = [*[None] * (2 * width - len(values)), *values[-2 * width :]]
    highs = [
        0 if value is None else max(1, round(min(1.0, max(0.0, value / top)) * rows * 4))
        for value in seen
    ]
    limit_row = None if limit is None else min(rows - 1, int(limit / top * rows - 1e-9))
    return [
        _graph_row(highs, 4 * row, f"graph{row * FILLS // rows}", row == limit_row)
        for row in reversed(range(rows))
    ]


def _graph_row(highs: Sequence[int], below: int, role: str, limit: bool) -> Line:
    levels = [min(4, max(0, high - below)) for high in highs]
    pairs = zip(levels[::2], levels[1::2], strict=True)
    text = "".join(fmt.DOTS[left][right] for left, right in pairs)
    if not limit:
        return [(text, role)]
    runs = ((blank, "".join(run)) for blank, run in groupby(text, fmt.NO_DOTS.__eq__))
    return [(LIMIT * len(run), "dim") if blank else (run, role) for blank, run in runs]


def axis(seconds: float, width: int) -> str:
    """Return the line at a graph that says when its left end was, and its middle.

    >>> axis(120, 40)
    '2:00 ago          1:00               now'
    """
    text, middle = f"{fmt.elapsed(seconds)} ago", fmt.elapsed(seconds / 2)
    if width >= 30:
        text = text.ljust((width - len(middle)) // 2) + middle
    return text + "now".rjust(max(0, width - len(text)))
