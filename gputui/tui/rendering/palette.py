"""The screen's themes, and the role of a text → its style in the present one. Pure.

Views name roles, never colours. Amber (`warn`) means look, red (`bad`) means broken, and neither
means anything else; red is the louder for every eye. What is busy is plain, what is 0 is dim.
Bars, graphs and heat lie on one ramp of Okabe and Ito's blues, whose steps differ in brightness.
Series colours are Okabe–Ito's, which people with any colour vision tell apart; without colours each
has a mark of its own. Without colour (`NO_COLOR`) the terminal's own are used: Textual would send
grey ones otherwise (seen in Textual 8.2). Source: https://jfly.uni-koeln.de/color/
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from gputui.errors import UsageError
from gputui.tui.rendering.format import HEATS

OKABE_ITO = Theme(
    name="okabe-ito",
    primary="#56b4e9",
    secondary="#0072b2",
    warning="#f0e442",
    error="#d55e00",
    success="#009e73",
    accent="#cc79a7",
    background="#101010",
    surface="#1c1c1c",
    panel="#262626",
    dark=True,
)
THEMES = ("textual-dark", "textual-light", "okabe-ito", "ansi-dark", "ansi-light")
WITHOUT_COLOUR = "ansi-dark"
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def check_theme(name: str) -> None:
    """Raise UsageError for a theme that is not there."""
    if name not in (*THEMES, *BUILTIN_THEMES):
        raise UsageError(
            f"--theme {name}: no such theme; known: {', '.join(THEMES)}, and Textual's own"
        )


def colourless() -> bool:
    """Return whether the person wants no colour. Source: https://no-color.org"""
    return bool(os.environ.get("NO_COLOR"))


def ascii_alone(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal shows nothing but ASCII, as far as its variables say.

    Python makes LC_CTYPE C.UTF-8 where the locale is C (PEP 538), so that alone says nothing; nor
    does a container without any locale, whose terminal is mostly UTF-8.

    >>> ascii_alone({"TERM": "linux"}), ascii_alone({"LANG": "de_DE.ISO-8859-1"})
    (True, True)
    >>> ascii_alone({"TERM": "xterm", "LANG": "en_GB.UTF-8"}), ascii_alone({"TERM": "xterm"})
    (False, False)
    """
    ctype = environ.get("LC_CTYPE", "")
    chosen = "" if ctype in COERCED else ctype
    locale = environ.get("LC_ALL") or chosen or environ.get("LANG", "")
    return environ.get("TERM") == "linux" or bool(locale and "utf" not in locale.lower())


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
SERIES_MARK = "▇"
SERIES_MARKS = "▇▅▃▬═≡∷┄"
"""Lower than a line, so that lanes stand apart."""
ASCII_MARKS = "#=+:%*o."

DARK_GRAPH = ("#1f6d9c", "#2f8bc1", "#56b4e9", "#9fd5f3")
LIGHT_GRAPH = ("#3d9bd0", "#1a84c0", "#0072b2", "#004f7c")
DARK_HEAT = ("#1d3140", "#1b4660", "#125a88", "#0b6ca6", "#2482bd", "#3d9bd0", "#56b4e9", "#8fcdf0")
LIGHT_HEAT = (
    "#dcecf6",
    "#bcdef1",
    "#8fcaeb",
    "#56b4e9",
    "#2f93cf",
    "#0072b2",
    "#00568a",
    "#003352",
)
ANSI_DARK_HEAT = ("cyan",) * 5 + ("bright_cyan",) * 3
ANSI_LIGHT_HEAT = ("bright_blue",) * 5 + ("blue",) * 3
"""A step is known by its character; none is dark blue on black, nor cyan on white."""
DARK_SIGNALS = {"text-error": "#ff8c5a", "text-warning": "#b07d00"}
LIGHT_SIGNALS = {"text-error": "#7a1500", "text-warning": "#8a6000"}
"""Red and amber of two brightnesses, red the further from the page: distinct without red or
green, and with little blue, so that neither turns grey."""
ANSI_DARK_SIGNALS = {
    "text-error": "ansi_bright_red",
    "text-warning": "ansi_yellow",
    "text-primary": "ansi_cyan",
    "primary": "ansi_cyan",
}
ANSI_LIGHT_SIGNALS = {
    "text-error": "ansi_red",
    "text-warning": "ansi_magenta",
    "text-accent": "ansi_blue",
}
"""Yellow cannot be read on white."""
ANSI_BAD = Style(color="bright_white", bgcolor="red", bold=True)
"""Of a terminal's own colours yellow may be the brightest and red the darkest: red is a patch."""


def signals(theme: Theme) -> Mapping[str, str]:
    """Return the theme's variables that are the same in all themes of its kind."""
    if theme.background and theme.background.startswith("ansi"):
        return ANSI_DARK_SIGNALS if theme.dark else ANSI_LIGHT_SIGNALS
    return DARK_SIGNALS if theme.dark else LIGHT_SIGNALS


CURSOR_SHARE = 0.3
"""Of the theme's first colour behind the line under the cursor."""
VARIABLES: Mapping[str, tuple[str, bool]] = {
    "good": ("text-success", False),
    "warn": ("text-warning", False),
    "bad": ("text-error", True),
    "accent": ("text-primary", False),
    "key": ("text-primary", True),
}
"""Role → the theme's variable, and whether it is bold."""
IN_EVERY_THEME = {
    "title": Style(bold=True),
    "heading": Style(bold=True, dim=True),
    "found": Style(reverse=True),
    **dict.fromkeys(("dim", "off", "rule"), Style(dim=True)),
}
"""Role → its style, of those that have no colour."""


@dataclass(frozen=True)
class Palette:
    """The styles of all roles."""

    styles: Mapping[str, Style]
    ascii_only: bool = False
    cursor: Color | None = None
    """Behind the line under the cursor; None where the terminal's own colours are used."""
    flat: bool = False
    """Whether the ramp's steps may look alike: without colour, or with the terminal's own."""

    @classmethod
    def of(cls, app: App[Any]) -> "Palette":
        """Return the palette of an app's present theme."""
        variables = tuple(app.theme_variables.items())
        return palette(variables, app.current_theme.dark, app.has_class("-ascii"))

    def style(self, role: str) -> Style:
        """Return a role's style; an unknown role has that of plain text."""
        return self.styles.get(role, Style.null())

    def under_cursor(self, style: Style) -> Style:
        """Return a style as it is on the line under the cursor: one colour behind it all."""
        if self.cursor is None:
            return Style(reverse=True, bold=style.bold, underline=style.underline)
        return style + Style(bgcolor=self.cursor.rich_color)

    def series(self, number: int) -> str:
        """Return the role of a series."""
        return f"series{number % len(SERIES_COLOURS)}"

    def mark(self, number: int) -> str:
        """Return the character that a series is drawn with: one of its own without colours."""
        if not (self.flat or self.ascii_only):
            return SERIES_MARK
        marks = ASCII_MARKS if self.ascii_only else SERIES_MARKS
        return marks[number % len(marks)]


@lru_cache(maxsize=8)
def palette(variables: tuple[tuple[str, str], ...], dark: bool, ascii_only: bool) -> Palette:
    """Return the palette of a theme with these variables."""
    colours = {name: _parsed(text) for name, text in variables}
    styles = IN_EVERY_THEME | {
        role: Style(color=colour.rich_color if (colour := colours.get(name)) else None, bold=bold)
        for role, (name, bold) in VARIABLES.items()
    }
    page, primary = colours.get("background"), colours.get("primary")
    flat = page is None or page.ansi is not None
    if flat:
        styles["bad"] = ANSI_BAD if not colourless() else Style(bold=True, reverse=True)
    styles["lost"] = styles["bad"] if flat else styles["bad"] + Style(reverse=True)
    heat: Sequence[str | None] = DARK_HEAT if dark else LIGHT_HEAT
    graph: Sequence[str | None] = DARK_GRAPH if dark else LIGHT_GRAPH
    if flat:
        heat = (None,) * HEATS if colourless() else ANSI_DARK_HEAT if dark else ANSI_LIGHT_HEAT
        graph = (heat[0],) * len(graph)
    for kind, ramp in (("series", SERIES_COLOURS), ("heat", heat), ("graph", graph)):
        styles |= {f"{kind}{n}": Style(color=colour) for n, colour in enumerate(ramp)}
    thin = Style(underline=True)
    styles |= {f"fill{n}": styles[f"graph{n}"] + thin for n in range(len(graph))}
    styles |= {
        f"{role}fill": styles.get(role, Style()) + thin for role in ("", "warn", "bad", "accent")
    }
    cursor = None
    if page is not None and primary is not None and page.ansi is primary.ansi is None:
        cursor = page.blend(primary, CURSOR_SHARE, 1.0)
    return Palette(styles, ascii_only, cursor, flat)


def _parsed(text: str) -> Color | None:
    """Return a colour of the theme; None for a variable that is none."""
    try:
        return Color.parse(text)
    except ColorParseError:
        return None
