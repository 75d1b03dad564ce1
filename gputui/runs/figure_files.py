"""A figure → a file (matplotlib). In terminals `gputui.tui.rendering.figures` draws it."""

import importlib.util
import io
from collections.abc import Sequence
from math import ceil, log10
from typing import Any

from gputui.errors import UsageError
from gputui.presets.outcome import NO_NUMBER, Figure

FIGURE_SUFFIXES = (".png", ".pdf", ".svg")

FEW_POINTS = 30
"""Each of so many is marked."""
MOST_NUMBERED = 16
"""Rows and columns of a matrix whose numbers fit into its cells."""


def has_matplotlib() -> bool:
    """Whether a figure can be drawn to a file."""
    return importlib.util.find_spec("matplotlib") is not None


def _whole(values: Sequence[float]) -> bool:
    """Whether all are integers, so that only integers belong below them."""
    return all(value == int(value) for value in values)


def _ticks(x: Sequence[float], most: int = 8) -> list[int]:
    """Return integers from the least to the greatest, evenly apart.

    >>> _ticks((1.0, 2.0, 3.0)), _ticks((0.0, 500.0))
    ([1, 2, 3], [0, 72, 144, 216, 288, 360, 432])
    """
    least, greatest = int(min(x)), int(max(x))
    return list(range(least, greatest + 1, -(-(greatest - least) // (most - 1)) or 1))


def power_below(values: Sequence[float]) -> int:
    """Return the power of ten that bars on a logarithmic scale begin at: every one has a length.

    >>> power_below((0.002, 50.0)), power_below((1.0, 10.0))
    (-3, -1)
    """
    return ceil(log10(min(values))) - 1


def drawn(figure: Figure, format: str) -> bytes:
    """Return the figure as png, pdf or svg; raises UsageError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UsageError("--figure: pip install 'gputui[figure]'") from None
    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    if drawable := figure.finite():
        axes.set_title(drawable.title)
        _fill(axes, drawable)
    else:
        axes.set_title(f"{figure.title}: {NO_NUMBER}")
    data = io.BytesIO()
    canvas.savefig(data, dpi=150, format=format)
    return data.getvalue()


def _fill(axes: Any, figure: Figure) -> None:
    if figure.kind == "heat":
        _fill_map(axes, figure)
    elif figure.kind == "bar":
        axes.barh(figure.labels, figure.y)
        axes.invert_yaxis()
        axes.set(xlabel=figure.y_label, ylabel="")
        if figure.logarithmic:
            axes.set(xscale="log", xlim=(10.0 ** power_below(figure.y), None))
    else:
        axes.plot(figure.x, figure.y, marker="o" if len(figure.x) <= FEW_POINTS else None)
        if _whole(figure.x):
            axes.set_xticks(_ticks(figure.x))
        if figure.logarithmic:
            axes.set_yscale("log")


def _fill_map(axes: Any, figure: Figure) -> None:
    """Draw a matrix with its scale, and with its numbers where they fit."""
    matrix = [[float("nan") if v is None else v for v in row] for row in figure.matrix]
    image = axes.imshow(matrix, cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label=figure.y_label)
    axes.set(xlabel="", ylabel=figure.x_label)
    axes.set_xticks(range(len(figure.labels)), figure.labels, rotation=45, ha="right")
    axes.set_yticks(range(len(figure.labels)), figure.labels)
    if max(len(matrix), len(matrix[0])) > MOST_NUMBERED:
        return
    for row, values in enumerate(figure.matrix):
        for column, value in enumerate(values):
            dark = value is not None and image.norm(value) < 0.5
            text = "–" if value is None else f"{value:.3g}"
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else "k")
