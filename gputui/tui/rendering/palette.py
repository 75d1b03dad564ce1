"""The role of a text on the screen → its style, in the present theme, without colour, in ASCII.

Views name roles, never colours. Series colours are Okabe–Ito's, which people with any colour
vision tell apart, and each has a mark of its own, so that they are told apart without colour.
Source: https://jfly.uni-koeln.de/color/
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError

SERIES_COLOURS = (
    "#56b4e9",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#0072b2",
    "#f0e442",
    "#999999",
)
SERIES_MARKS = "█▓▒░▚▞▤▥"
ASCII_MARKS = "#=+:%*o."

CURSOR_SHARE = 0.3
"""Of the theme's first colour behind the line under the cursor."""
VARIABLES: Mapping[str, tuple[str, bool]] = {
    "good": ("text-success", False),
    "warn": ("text-warning", True),
    "bad": ("text-error", True),
    "accent": ("text-accent", False),
    "busy": ("text-primary", False),
    "key": ("text-accent", True),
}
"""Role → the theme's variable, and whether it is bold."""


@dataclass(frozen=True)
class Palette:
    """The styles of all roles."""

    styles: Mapping[str, Style]
    ascii_only: bool = False
    cursor: Color | None = None
    """Behind the line under the cursor; None where the terminal's own colours are used."""

    @classmethod
    def of(cls, app: App[object]) -> "Palette":
        """Return the palette of an app's present theme."""
        return _palette(
            app.theme, tuple(app.theme_variables.items()), bool(getattr(app, "ascii_only", False))
        )

    def style(self, role: str) -> Style:
        """Return a role's style; that of plain text where there is none such."""
        return self.styles.get(role, Style.null())

    def under_cursor(self, style: Style | None) -> Style:
        """Return what a style becomes on the line under the cursor: one colour behind it all."""
        style = style or Style.null()
        if self.cursor is None:
            return Style(reverse=True, bold=style.bold)
        return style + Style(bgcolor=self.cursor.rich_color)

    def series(self, number: int) -> str:
        """Return the role of a series."""
        return f"series{number % len(SERIES_COLOURS)}"

    def mark(self, number: int) -> str:
        """Return the character that a series is drawn with."""
        marks = ASCII_MARKS if self.ascii_only else SERIES_MARKS
        return marks[number % len(marks)]


@lru_cache(maxsize=8)
def _palette(theme: str, variables: tuple[tuple[str, str], ...], ascii_only: bool) -> Palette:
    values = dict(variables)
    styles = {role: _coloured(values, name, bold=bold) for role, (name, bold) in VARIABLES.items()}
    styles["title"] = Style(bold=True)
    styles["found"] = Style(reverse=True)
    styles["dim"] = Style(dim=True)
    styles["lost"] = styles["bad"] + Style(reverse=True)
    for number, colour in enumerate(SERIES_COLOURS):
        styles[f"series{number}"] = Style(color=colour)
    return Palette(styles, ascii_only, _cursor(values))


def _cursor(values: Mapping[str, str]) -> Color | None:
    """Return a theme's background with something of its first colour."""
    try:
        background, primary = Color.parse(values["background"]), Color.parse(values["primary"])
    except (KeyError, ColorParseError):
        return None
    return None if background.ansi is not None else background.blend(primary, CURSOR_SHARE, 1.0)


def _coloured(values: Mapping[str, str], name: str, *, bold: bool) -> Style:
    try:
        colour = Color.parse(values[name])
    except (KeyError, ColorParseError):
        return Style(bold=bold)
    return Style(color=colour.rich_color, bold=bold)
