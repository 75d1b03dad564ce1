"""A figure → text for the terminal (plotext) or a file (matplotlib)."""

import importlib.util
from collections.abc import Mapping, Sequence
from math import ceil, log10
from pathlib import Path
from typing import Any

from gputui.errors import UsageError
from gputui.presets import Figure
from gputui.run.files import open_over

FIGURE_SUFFIXES = (".png", ".pdf", ".svg")

FEW_POINTS = 30
"""Each of so many is marked."""
MOST_NUMBERED = 16
"""Rows and columns of a matrix whose numbers fit into its cells."""

NOTHING = "nothing to draw, no number is finite"


def has_plotext() -> bool:
    """Whether a figure can be drawn in the terminal."""
    return importlib.util.find_spec("plotext") is not None


def has_matplotlib() -> bool:
    """Whether a figure can be drawn to a file."""
    return importlib.util.find_spec("matplotlib") is not None


def shown(made: Figure | Mapping[str, Any]) -> str:
    """Return the figure, or that of a record, as text; or why it cannot be drawn."""
    try:
        return draw(made if isinstance(made, Figure) else Figure.from_json(made))
    except Exception as error:  # of a library, or of a record that others wrote
        return f"its figure cannot be drawn ({type(error).__name__}: {error})"


def draw(figure: Figure, width: int = 80, height: int = 20) -> str:
    """Return the figure as text without colours, at most so many cells wide and high.

    Raises:
        UsageError: plotext is not installed.
    """
    try:
        import plotext
    except ImportError:
        raise UsageError("a figure in the terminal: pip install 'gputui[plot]'") from None
    drawable = figure.finite()
    if drawable is None:
        return f"{figure.title}: {NOTHING}"
    return _text(plotext, drawable, width, height)


def _text(plotext: Any, figure: Figure, width: int, height: int) -> str:
    if figure.kind == "heat":
        return _heat_lines(figure)
    plotext.clear_figure()
    plotext.plotsize(width, height)
    plotext.title(figure.title)
    if figure.kind == "bar":
        _draw_bars(plotext, figure)
    else:
        _draw_line(plotext, figure)
    lines = str(plotext.uncolorize(plotext.build())).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _draw_line(plotext: Any, figure: Figure) -> None:
    plotext.xlabel(figure.x_label)
    plotext.ylabel(figure.y_label)
    draw = plotext.scatter if len(figure.x) == 1 else plotext.plot
    draw(list(figure.x), list(figure.y), marker="braille" if len(figure.x) > 1 else "dot")
    if _whole(figure.x):
        plotext.xticks(_ticks(figure.x))
    if figure.logarithmic:
        plotext.yscale("log")


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


def _draw_bars(plotext: Any, figure: Figure) -> None:
    """Draw bars; plotext has no logarithmic scale for them, so that their lengths are powers."""
    base = power_below(figure.y) if figure.logarithmic else 0
    lengths = [log10(value) - base if figure.logarithmic else value for value in figure.y]
    plotext.xlabel(figure.y_label)
    plotext.bar(list(figure.labels), lengths, orientation="horizontal", width=0.5)
    if figure.logarithmic:
        powers = range(ceil(max(lengths, default=0)) + 1)
        plotext.xticks(list(powers), [f"1e{base + power}" for power in powers])


def power_below(values: Sequence[float]) -> int:
    """Return the power of ten that bars on a logarithmic scale begin at: every one has a length.

    >>> power_below((0.002, 50.0)), power_below((1.0, 10.0))
    (-3, -1)
    """
    return ceil(log10(min(values))) - 1


def _heat_lines(figure: Figure) -> str:
    """Return a matrix as numbers: a terminal's shades are too few to compare."""
    rows = [["–" if value is None else f"{value:.3g}" for value in row] for row in figure.matrix]
    names = list(figure.labels) or [str(i) for i in range(len(rows))]
    first = max(map(len, names), default=0)
    width = max([len(cell) for row in rows for cell in row] + [len(name) for name in names])
    head = " " * first + "".join(f"  {name:>{width}}" for name in names)
    lines = [
        f"{name:<{first}}" + "".join(f"  {cell:>{width}}" for cell in row)
        for name, row in zip(names, rows, strict=True)
    ]
    return "\n".join([figure.title, head, *lines])


def draw_file(figure: Figure, path: Path) -> None:
    """Write the figure to a file, in the format that one of `FIGURE_SUFFIXES` names.

    Raises:
        UsageError: matplotlib is not installed, or the file cannot be written.
    """
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
        axes.set_title(f"{figure.title}: {NOTHING}")
    try:
        file = open_over(path)
    except OSError as error:
        raise UsageError(f"--figure {path}: {error.strerror or error}") from error
    try:
        with file:
            canvas.savefig(file, dpi=150, format=path.suffix[1:])
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UsageError(f"--figure {path}: {error.strerror or error}") from error


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
