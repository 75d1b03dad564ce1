"""Red is louder than amber, and every role is readable, for every eye and in 16 colours too."""

from collections.abc import Sequence
from functools import partial

import pytest
from rich.color import ColorTriplet
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.color import Color, Lab, rgb_to_lab

from gputui.tui.rendering.palette import THEMES, Palette
from tests.tui.still import Still

Linear = Sequence[float]
EYES: dict[str, tuple[Linear, Linear, Linear]] = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What is seen without one kind of cones, of linear RGB. Source: Machado, Oliveira and Fernandes
2009, severity 1."""
PLAIN, BOLD = 0.2, 0.26
"""How much of a cell letters cover."""
XTERM = "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
XTERM_BRIGHT = "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff"
VGA = "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa"
VGA_BRIGHT = "555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff"
READABLE, CLEAR, TOLD_APART, COLOURED = 4.0, 2.0, 14.0, 20.0
"""Contrast of text that says something is wrong, and of hints; a difference in CIELAB that is seen
at a glance; the least chroma of what is no grey."""


def rgb(text: str) -> tuple[int, int, int]:
    red, green, blue = (int(text[at : at + 2], 16) for at in (0, 2, 4))
    return red, green, blue


def terminal(colours: str, bright: str, *, dark: bool) -> TerminalTheme:
    page, ink = ("000000", "aaaaaa") if dark else ("ffffff", "000000")
    normal, brighter = ([rgb(each) for each in row.split()] for row in (colours, bright))
    return TerminalTheme(rgb(page), rgb(ink), normal, brighter)


def linear(triplet: ColorTriplet, eye: str) -> Linear:
    parts = [value / 255 for value in triplet]
    light = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    rows = (sum(a * b for a, b in zip(row, light, strict=True)) for row in EYES[eye])
    return [min(1.0, max(0.0, value)) for value in rows]


def brightness(light: Linear) -> float:
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), light, strict=True))


def contrast(one: Linear, other: Linear) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def lab(light: Linear) -> Lab:
    """Return what is seen in CIELAB."""
    parts = [12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in light]
    return rgb_to_lab(Color(*(round(255 * part) for part in parts)))


def difference(one: Linear, other: Linear) -> float:
    pairs = ((getattr(lab(one), axis), getattr(lab(other), axis)) for axis in ("L", "a", "b"))
    return sum((a - b) ** 2 for a, b in pairs) ** 0.5


class Seen:
    """A palette as an eye sees it on a terminal."""

    def __init__(self, app: App[int], theme: TerminalTheme, eye: str) -> None:
        self._palette, self._theme, self._eye = Palette.of(app), theme, eye
        page = app.theme_variables["background"]
        own = Color.parse(page)
        triplet = theme.background_color if own.ansi is not None else own.rich_color.triplet
        assert triplet is not None
        self.page = linear(triplet, eye)
        self.ink = linear(theme.foreground_color, eye)

    def style(self, role: str) -> Style:
        return self._palette.style(role)

    def colour(self, role: str) -> Linear:
        colour = self.style(role).color
        if colour is None:
            return self.ink
        return linear(colour.get_truecolor(self._theme, foreground=True), self._eye)

    def contrast(self, role: str) -> float:
        return contrast(self.colour(role), self.page)

    def loudness(self, role: str) -> float:
        """How much light of a cell is other than the page's: letters, and what is behind them."""
        style, behind = self.style(role), self.page
        if style.bgcolor is not None:
            triplet = style.bgcolor.get_truecolor(self._theme, foreground=False)
            behind = linear(triplet, self._eye)
        letters = BOLD if style.bold else PLAIN
        patch = (1 - letters) * (contrast(behind, self.page) - 1)
        return letters * (self.contrast(role) - 1) + patch


TERMINALS = {
    f"{name} {'dark' if dark else 'light'}": partial(terminal, *colours, dark=dark)
    for name, colours in {"xterm": (XTERM, XTERM_BRIGHT), "vga": (VGA, VGA_BRIGHT)}.items()
    for dark in (True, False)
}
CASES = [
    (theme, name)
    for theme in THEMES
    for name in TERMINALS
    if theme.endswith("light") is name.endswith("light")
    if theme.startswith("ansi") or "xterm" in name
]
"""Themes that are the terminal's own look otherwise on each."""


ROLES = ("good", "accent", "key", "graph0", "heat7", "warn")


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(("theme", "name"), CASES)
async def test_broken_is_louder_than_look_and_no_role_is_plain_or_melts_into_the_page(
    theme: str, name: str, eye: str
) -> None:
    on = Still(theme=theme)
    async with on.showing("h:gpu0"):
        assert on.app.current_theme.name == theme
        seen = Seen(on.app, TERMINALS[name](), eye)
    assert seen.loudness("bad") > 1.3 * seen.loudness("warn") > 0
    assert seen.style("bad").bold and not seen.style("warn").bold
    if not theme.startswith("ansi"):
        assert min(seen.contrast("bad"), seen.contrast("warn")) > READABLE
        for role in ("bad", "warn"):
            assert difference(seen.colour(role), seen.ink) > TOLD_APART
            found = lab(seen.colour(role))
            assert (found.a**2 + found.b**2) ** 0.5 > COLOURED, f"{role} is grey {found.L}"
        assert difference(seen.colour("bad"), seen.colour("warn")) > TOLD_APART
    heats = [f"heat{n}" for n in range(8)] if theme.startswith("ansi") else []
    low = {role: round(seen.contrast(role), 1) for role in (*ROLES, *heats)}
    assert {role: c for role, c in low.items() if c < CLEAR} == {}
