"""A run's figure, where its preset made one → lines of a given width and height. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from gputui.presets.definition import NO_NUMBER, Figure
from gputui.tui.rendering import Line, Part, fitted, merged
from gputui.tui.rendering import format as fmt

LEAST_WIDTH, LEAST_HEIGHT = 40, 5
TICK_LINES, TICK_CELLS = 4, 8
"""Lines between two numbers at the left of a graph, and cells between two below it."""
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LABEL_MOST = 24
HEAT, HEAT_CELLS = "▇", 3
NUMBER_CELLS = 9
"""Cells of a matrix's column from which on its numbers stand next to its colours."""


def figure_text(made: Figure | Mapping[str, Any], width: int = 80) -> str:
    """Return a figure, or that of a record, as text; or why it cannot be drawn.

    It is without colours, at most so many cells wide and 20 lines high.

    >>> print(figure_text(Figure("heat", "GB/s", matrix=((None, 95.5), (94.1, None))), 40))
    GB/s
      1        2
    1 ·        ██ 95.5
    2 ▁▁ 94.1  ·
    <BLANKLINE>
      94.1 ▁▁▁▂▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇███ 95.5
    """
    try:
        figure = made if isinstance(made, Figure) else msgspec.convert(made, Figure, strict=False)
        drawable = figure.finite()
        if drawable is None:
            return f"{figure.title}: {NO_NUMBER}"
        lines = figure_lines(drawable, width, 20, flat=True)
    except Exception as error:  # of a record that others wrote
        return f"its figure cannot be drawn ({type(error).__name__}: {error})"
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


@lru_cache(maxsize=8)
def figure_lines(figure: Figure, width: int, height: int, flat: bool = False) -> Sequence[Line]:
    """Return a figure in at most so many lines; `flat` is without colours that tell apart.

    >>> bars = Figure("bar", "speed", "numbers/s", labels=("a", "bb"), y=(1.0, 2.0))
    >>> for line in figure_lines(bars, 40, 5):
    ...     print("".join(text for text, _ in line).rstrip())
    speed                          numbers/s
     a ██████████████████                  1
    bb ███████████████████████████████████ 2
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return ()
    draw = {"bar": _bars, "heat": _heat}.get(figure.kind, _graph)
    lines = draw(figure, width, height - 1, flat) if figure.y or figure.matrix else []
    unit = figure.y_label + ", log scale" * (figure.logarithmic and figure.kind == "line")
    unit = unit.removeprefix(", ")
    title = figure.title + (f" by {figure.x_label}" if figure.x_label else "")
    title = fitted(fmt.safe(title), max(1, width - len(unit)))
    return ((title, "heading"), (fmt.safe(unit), "dim")), *lines


def _bars(figure: Figure, width: int, height: int, _flat: bool) -> list[Line]:
    """Return a bar for each label, its number at the end; a negative one's is as long."""
    names = min(LABEL_MOST, max(len(label) for label in figure.labels))
    numbers = [f"{value:,.3g}" for value in figure.y]
    ends = max(map(len, numbers))
    room = max(4, width - names - ends - 2)
    longest = max(map(abs, figure.y)) or 1.0
    rows = zip(figure.labels, figure.y, numbers, strict=True)
    lines: list[Line] = [
        [
            (fitted(fmt.safe(label), names, right=True) + " ", ""),
            (("█" * round(abs(value) / longest * room)).ljust(room), "graph2"),
            (f" {number:>{ends}}", "title"),
        ]
        for label, value, number in rows
    ]
    return lines[:height]


def _graph(figure: Figure, width: int, height: int, _flat: bool) -> list[Line]:
    """Return points joined by lines, numbers at the left and below."""
    log = figure.logarithmic and min(figure.y) > 0
    y = [math.log10(value) for value in figure.y] if log else list(figure.y)
    x = list(figure.x) or [float(place) for place in range(1, len(y) + 1)]
    rows = max(2, height - 2)
    ticks = powers(min(y), max(y), rows) if log else round_numbers(min(y), max(y), rows)
    names = {tick: f"1e{tick:.0f}" if log else f"{tick:.6g}" for tick in ticks}
    low, high = min([*ticks, *y]), max([*ticks, *y])
    margin = max((len(name) for name in names.values()), default=1)
    columns = width - margin - 2
    across = [_place(value, min(x), max(x), 2 * columns) for value in x]
    dots = _dots(across, [_place(value, low, high, 4 * rows) for value in y], columns, rows)
    names_at = {rows - 1 - _place(tick, low, high, rows): name for tick, name in names.items()}
    lines: list[Line] = []
    for row in range(rows):
        name, cells = names_at.get(row, ""), dots[row]
        grid = ((text, "graph2") if text != fmt.NO_DOTS else ("╌" if name else " ", "rule")
                for text in cells)  # fmt: skip
        axis = "┤" if name else "│"
        lines.append([(name.rjust(margin), "dim"), (f" {axis}", "rule"), *merged(grid)])
    return [*lines, *_below(x, margin, columns)]


def _below(x: Sequence[float], margin: int, columns: int) -> list[Line]:
    """Return the axis below a graph, and its numbers."""
    low, high, whole = min(x), max(x), all(value == int(value) for value in x)
    axis, numbers = "─" * columns, ""
    for tick in round_numbers(low, high, columns * TICK_LINES // TICK_CELLS):
        place, name = _place(tick, low, high, columns), f"{tick:.6g}"
        begin = max(0, min(place - len(name) // 2, columns - len(name)))
        is_shown = low <= tick <= high and not (whole and tick != int(tick))
        if is_shown and (begin > len(numbers) or not numbers):
            axis = f"{axis[:place]}┴{axis[place + 1 :]}"
            numbers = numbers.ljust(begin) + name
    return [
        [(" " * margin, ""), (f" └{axis}", "rule")],
        [(" " * (margin + 2) + numbers.ljust(columns), "dim")],
    ]


def round_numbers(low: float, high: float, room: int) -> list[float]:
    """Return round numbers from at or below the lowest to the highest, for so many lines.

    >>> round_numbers(0.0, 93.0, 12), round_numbers(5.0, 5.0, 12)
    ([0.0, 50.0, 100.0], [5.0])
    """
    if low == high:
        return [low]
    raw = (high - low) / max(1, room // TICK_LINES - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in STEPS if each * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def powers(low: float, high: float, room: int) -> list[float]:
    """Return whole exponents from at or below the lowest to the highest, for so many lines.

    >>> powers(0.3, 3.7, 16), powers(-15.2, 2.0, 8)
    ([0.0, 1.0, 2.0, 3.0, 4.0], [-16.0, -7.0, 2.0])
    """
    first, last = math.floor(low), math.ceil(high)
    step = max(1, -(-(last - first) // max(1, room // (TICK_LINES - 1))))
    return [float(power) for power in range(first, last + 1, step)]


def _place(value: float, low: float, high: float, cells: int) -> int:
    share = (value - low) / (high - low) if high > low else 0.5
    return max(0, min(cells - 1, round(share * (cells - 1))))


def _dots(x: Sequence[int], y: Sequence[int], columns: int, rows: int) -> list[list[str]]:
    """Return cells of braille in which points are joined by lines; y grows upwards."""
    bits = [[0] * columns for _ in range(rows)]
    for across, up in _joined(list(zip(x, y, strict=True))):
        down = 4 * rows - 1 - up
        bits[down // 4][across // 2] |= fmt.DOT_BITS[across % 2][down % 4]
    lone = len(x) == 1  # a dot of braille is easily missed
    return [["•" if lone and cell else chr(0x2800 + cell) for cell in row] for row in bits]


def _joined(points: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give every dot on the way from point to point."""
    yield from points[:1]
    for (x0, y0), (x1, y1) in pairwise(points):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(1, steps + 1):
            yield round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)


def _heat(figure: Figure, width: int, height: int, flat: bool) -> list[Line]:
    """Return a coloured cell for each number, the number next to it where there is room."""
    known = [value for row in figure.matrix for value in row if value is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    labels = figure.labels or tuple(str(row + 1) for row in range(len(figure.matrix)))
    names = min(LABEL_MOST, max(map(len, labels)))
    most = max(map(len, figure.matrix))
    each = (width - names - 1) // most
    each = NUMBER_CELLS if each >= NUMBER_CELLS else max(1, min(HEAT_CELLS, each))
    most = min(most, (width - names - 1) // each)
    square = len(labels) == most and each > 1

    def cell(value: float | None) -> Part:
        if value is None:
            return "·".ljust(each), "dim"
        step = min(fmt.HEATS - 1, int((value - low) / ((high - low) or 1.0) * fmt.HEATS))
        text = (fmt.EIGHTHS[step + 1] if flat else HEAT) * min(2, each)
        return (text + (f" {value:.3g}" if each == NUMBER_CELLS else "")).ljust(each), f"heat{step}"

    head: list[Line] = []
    if square:
        titles = "".join(fitted(fmt.safe(label), each - 1) + " " for label in labels)
        head = [[(" " * (names + 1) + titles, "dim")]]
    rows: list[Line] = [
        [(fitted(fmt.safe(label), names, right=True) + " ", "dim"), *map(cell, row[:most])]
        for label, row in zip(labels, figure.matrix, strict=True)
    ]
    glyphs = fmt.EIGHTHS[1:] if flat else HEAT * fmt.HEATS
    ramp = [(glyph * HEAT_CELLS, f"heat{step}") for step, glyph in enumerate(glyphs)]
    scale: list[Part] = [(" " * (names + 1) + f"{low:.3g} ", "dim"), *ramp]
    return [*head, *rows[: height - len(head) - 2], (), [*scale, (f" {high:.3g}", "dim")]]
