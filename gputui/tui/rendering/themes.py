"""The screen's themes: dark, light, one for every colour vision, and the terminal's own colours.

`okabe-ito` uses Okabe and Ito's colours throughout. Source: https://jfly.uni-koeln.de/color/
Without colour (`NO_COLOR`) the terminal's own are used: Textual would send grey ones otherwise
(seen in Textual 8.2).
"""

import os
from collections.abc import Mapping

from textual.theme import BUILTIN_THEMES, Theme

from gputui.errors import UsageError

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
        raise UsageError(f"--theme {name}: is none of {', '.join(THEMES)}, or another of Textual's")


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
    utf_8 = "utf" in locale.lower()
    return environ.get("TERM") == "linux" or bool(locale and not utf_8)
