"""A run's result → the figure to show, and the figure → lines of text where nothing else draws.

The record of a run holds its figure where its preset made one; else the first thing in the
result that can be drawn is: singular values and other rows of numbers, tables, matrices.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from gputui.presets import Figure

BARS = " ▁▂▃▄▅▆▇█"
ASCII_BARS = " .:-=+*%#"
SHADES = " ░▒▓█"
ASCII_SHADES = " .+%#"
FEWEST_POINTS = 3


def figure_of(result_json: str) -> Figure | None:
    """Return the figure of an ended run's `--json` object, None where there is none to draw."""
    try:
        whole = json.loads(result_json)
        if isinstance(whole.get("figure"), dict):
            return Figure.from_json(whole["figure"]).finite()
        result = whole.get("result")
    except (ValueError, AttributeError, TypeError):
        return None
    if not isinstance(result, dict):
        return None
    for key, value in result.items():
        figure = _drawn(key.replace("_", " "), value)
        if figure is not None:
            return figure
    return None


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def _drawn(title: str, value: Any) -> Figure | None:
    if isinstance(value, dict) and _is_row(list(value.values())):
        return Figure("bar", title, labels=tuple(value), y=tuple(map(float, value.values())))
    if not isinstance(value, list):
        return None
    if value and all(isinstance(row, list) and _is_row(row, 1) for row in value):
        return Figure("heat", title, matrix=_as_tuples(value))
    if not _is_row(value):
        return None
    numbers = tuple(map(float, value))
    falling = min(numbers) > 0 and max(numbers) / min(numbers) > 100
    x = tuple(float(index) for index in range(1, len(numbers) + 1))
    return Figure("line", title, x=x, y=numbers, logarithmic=falling)


def _is_row(values: Sequence[Any], fewest: int = FEWEST_POINTS) -> bool:
    return len(values) >= fewest and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        for value in values
    )


def as_text(figure: Figure, width: int, height: int, ascii_only: bool = False) -> list[str]:
    """Return a figure as at most `height` lines of at most `width` characters.

    >>> for line in as_text(Figure("bar", "speed", labels=("a", "bb"), y=(1.0, 2.0)), 20, 5):
    ...     print(line)
    speed
     a ████████ 1
    bb ███████████████ 2
    """
    if width < 8 or height < 2:
        return []
    draw = {"bar": _bars, "heat": _heat}.get(figure.kind, _line)
    return [figure.title[:width], *draw(figure, width, height - 1, ascii_only)]


def _bars(figure: Figure, width: int, height: int, ascii_only: bool) -> list[str]:
    margin = max((len(label) for label in figure.labels), default=0)
    numbers = [f"{value:,.3g}" for value in figure.y]
    room = width - margin - max((len(number) for number in numbers), default=0) - 2
    longest = max(figure.y, default=0.0) or 1.0
    cell = "#" if ascii_only else "█"
    return [
        f"{label:>{margin}} {cell * max(0, round(room * value / longest))} {number}"[:width]
        for label, value, number in zip(figure.labels, figure.y, numbers, strict=False)
    ][:height]


def _line(figure: Figure, width: int, height: int, ascii_only: bool) -> list[str]:
    logarithmic = figure.logarithmic and min(figure.y, default=0) > 0
    values = [math.log10(value) for value in figure.y] if logarithmic else list(figure.y)
    if not values:
        return []
    top, bottom = f"{max(figure.y):.3g}", f"{min(figure.y):.3g}"
    margin = max(len(top), len(bottom))
    columns = _sampled(values, width - margin - 2)
    low, high = min(values), max(values)
    steps = BARS if not ascii_only else ASCII_BARS
    levels = [(value - low) / ((high - low) or 1.0) * (height * 8 - 1) + 1 for value in columns]
    lines = []
    for row in range(height):
        below = (height - 1 - row) * 8
        cells = "".join(steps[max(0, min(8, round(level - below)))] for level in levels)
        label = top if row == 0 else bottom if row == height - 1 else ""
        lines.append(f"{label:>{margin}} │{cells}".replace("│", "|" if ascii_only else "│"))
    return lines


def _sampled(values: Sequence[float], columns: int) -> list[float]:
    """Return values for each column: repeated where there are few, picked where there are many."""
    columns = max(1, columns)
    count = len(values)
    if count > columns:
        return [values[index * count // columns] for index in range(columns)]
    each = columns // count
    return [value for value in values for _ in range(each)]


def _heat(figure: Figure, width: int, height: int, ascii_only: bool) -> list[str]:
    known = [value for row in figure.matrix for value in row if value is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    shades = ASCII_SHADES if ascii_only else SHADES
    lines = []
    for row in figure.matrix[: height - 1]:
        cells = [
            "·" if value is None else shades[_shade(value, low, high, len(shades))]
            for value in row[: width // 2]
        ]
        lines.append("".join(cell * 2 for cell in cells))
    return [*lines, f"{low:.3g} {shades} {high:.3g}"]


def _shade(value: float, low: float, high: float, shades: int) -> int:
    return min(shades - 1, int((value - low) / ((high - low) or 1.0) * shades))
