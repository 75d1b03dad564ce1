"""Thin bars with their figure inside, and graphs of several rows: values → parts. Pure.

A bar is `width` cells of one line: a line runs under those that are filled, in the ramp's colour
for the value; the figure stands in it. A graph is braille, two values to a cell, its rows along
the same ramp.
"""

from collections.abc import Sequence
from itertools import groupby

from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.lines import Line, Part

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


def spark(fractions: Sequence[float | None], width: int) -> Part:
    """Return a graph of one row."""
    return (fmt.braille(fractions, width), "graph2")


def graph(
    fractions: Sequence[float | None], width: int, rows: int, limit: float | None = None
) -> list[Line]:
    """Return a graph of some rows, the newest value at the right, with a limit drawn in.

    >>> for line in graph([0.0, 0.5, 1.0, None], 3, 2, limit=1.0):
    ...     print("".join(text for text, _ in line))
    ╌╌⡇
    ⠀⣸⡇
    """
    values = list(fractions)[-2 * width :]
    values[:0] = [None] * (2 * width - len(values))
    heights = [0 if value is None else _height(value, rows) for value in values]
    limit_row = None if limit is None else rows - 1 - min(rows - 1, int(limit * rows - 1e-9))
    return [
        _graph_row(heights, (rows - 1 - row) * 4, _ramp(row, rows), row == limit_row)
        for row in range(rows)
    ]


def _ramp(row: int, rows: int) -> str:
    return f"graph{(rows - 1 - row) * FILLS // rows}"


def _height(value: float, rows: int) -> int:
    """Return how many dots high a value is: at least one, so that nothing looks like missing."""
    return max(1, round(min(1.0, max(0.0, value)) * rows * 4))


def _graph_row(heights: Sequence[int], below: int, role: str, limit: bool) -> Line:
    levels = [0 if high < below else high - below if high < below + 4 else 4 for high in heights]
    text = "".join(map(fmt.dots, levels[::2], levels[1::2]))
    if not limit:
        return [(text, role)]
    runs = (
        (empty, "".join(cells)) for empty, cells in groupby(text, lambda cell: cell == fmt.NO_DOTS)
    )
    return [(LIMIT * len(run), "dim") if empty else (run, role) for empty, run in runs]


def axis(seconds: float, width: int) -> str:
    """Return the line at a graph that says when its left end was, and its middle.

    >>> axis(120, 40)
    '2:00 ago          1:00               now'
    """
    text, middle = f"{fmt.elapsed(seconds)} ago", fmt.elapsed(seconds / 2)
    if width >= 30:
        text = text.ljust((width - len(middle)) // 2) + middle
    return text + "now".rjust(max(0, width - len(text)))
