"""A figure on the screen: with textual-plotext where it is installed, in characters otherwise."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from textual.color import Color
from textual.containers import Container
from textual.widget import Widget

from gputui.presets import Figure
from gputui.tui.rendering.figures import as_text
from gputui.tui.rendering.palette import Palette
from gputui.tui.widgets.pane import Pane

MOST_TICKS = 8
"""Numbers below a figure."""
PLOTTED = ("line", "bar")
"""Kinds of figures that plotext draws well; the others are drawn in characters."""


class TextFigure(Pane):
    """A figure in characters."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        self.can_focus = False
        self._figure = figure

    def on_mount(self) -> None:
        """Draw it."""
        self._draw()

    def on_resize(self) -> None:
        """Draw it for the new size."""
        super().on_resize()
        self._draw()

    def _draw(self) -> None:
        title, *rest = as_text(self._figure, *self.size) or [""]
        self.put([[(title, "title")], *([(line, "accent")] for line in rest)])


class Plot(Container):
    """The figure of one run; drawn once, because a result does not change."""

    DEFAULT_CSS = "Plot { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.figure: Figure | None = None

    def show(self, figure: Figure | None) -> None:
        """Show this figure, or nothing."""
        if figure == self.figure:
            return
        self.figure = figure
        self.remove_children()
        if figure is not None:
            self.mount(self._drawing(figure))

    def _drawing(self, figure: Figure) -> Widget:
        palette, colour = Palette.of(self.app), self.app.theme_variables.get("text-primary", "")
        plain = palette.ascii_only or not colour.startswith("#")
        if plain or figure.kind not in PLOTTED or find_spec("textual_plotext") is None:
            return TextFigure(figure)
        return plotted(figure, colour)


def plotted(figure: Figure, colour: str) -> Widget:
    """Return a figure drawn by plotext in a colour, which knows none of the terminal's own."""
    from textual_plotext import PlotextPlot

    widget: Widget = PlotextPlot()
    plt: Any = widget.plt  # type: ignore[attr-defined]
    plt.title(figure.title)
    plt.xlabel(figure.x_label)
    plt.ylabel(figure.y_label)
    if figure.kind == "bar":
        plt.bar(list(figure.labels), list(figure.y), orientation="horizontal", width=0.5)
    else:
        x = list(figure.x) or list(range(1, len(figure.y) + 1))
        plt.xticks(ticks(x))
        if figure.logarithmic:
            plt.yscale("log")
        plt.plot(x, list(figure.y), marker="braille", color=Color.parse(colour).rgb)
    return widget


def ticks(x: Sequence[float]) -> list[float]:
    """Return those of the places that get a number below them: all, or some evenly apart.

    >>> ticks([1, 2, 3]), ticks(range(50))
    ([1, 2, 3], [0, 7, 14, 21, 28, 35, 42, 49])
    """
    step = -(-len(x) // MOST_TICKS)
    return list(x)[::step]
