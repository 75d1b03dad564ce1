"""The scenes that pictures are made of, and how one is drawn, the same each time."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from rich.terminal_theme import TerminalTheme
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input

from gputui.tui.app import ScreenApp
from tests.pictures.lab import START, Lab, LabConnection, leave_records

FOLDER = Path(__file__).parents[2] / "screenshots"
SIZES = ((80, 24), (120, 40), (200, 60))
THEMES = ("textual-dark", "textual-light", "okabe-ito", "ansi-dark")
STILL = 4
"""Looks in a row in which nothing moved."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be seen, when, and what was pressed to see it."""

    name: str
    lab: Lab = field(default_factory=lambda: Lab(32))
    seconds: int = 130
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)
    theme: str = "textual-dark"

    @property
    def path(self) -> Path:
        """Where its picture is kept."""
        return FOLDER / f"{self.name}.svg"


README = (
    Scene("fleet"),
    Scene("cpus", Lab(4, on_cpus=True), keys=("j",)),
    Scene("hosts", Lab(128, starting=True), 5, ("0",)),
    Scene("heat", Lab(1000), 64, ("Z", "Z")),
    Scene("workers", keys=("2",)),
    Scene("tasks", keys=("3",)),
    Scene("logs", keys=("4",)),
    Scene("events", keys=("5", "j", "j")),
    Scene("runs", keys=("6", "j", "j", "j")),
    Scene("failed", keys=("6", "j", "j")),
    Scene("device", keys=("j", "j", "enter")),
    Scene("form", keys=("c", "down", "enter")),
    Scene("scale", keys=("minus",)),
    Scene("help", keys=("question_mark",)),
)
MATRIX = tuple(
    Scene(f"fleet-{width}x{height}-{theme}", size=(width, height), theme=theme)
    for width, height in SIZES
    for theme in THEMES
)
SCENES = (*README, *MATRIX)


@dataclass(frozen=True, slots=True)
class Picture:
    """A scene as it was drawn."""

    svg: str
    lines: Sequence[Strip]
    colours: TerminalTheme

    @classmethod
    def of(cls, app: ScreenApp, title: str = "gputui") -> "Picture":
        """Return what an app shows now."""
        lines = app.screen._compositor.render_strips()
        return cls(app.export_screenshot(title=title), lines, app.ansi_theme)


async def draw(scene: Scene) -> Picture:
    """Return a scene as it is seen once nothing moves any more."""
    utc()
    with TemporaryDirectory() as state, patch.dict(os.environ, XDG_STATE_HOME=state):
        leave_records(Path(state))
        return await _drawn(scene)


async def _drawn(scene: Scene) -> Picture:
    link = LabConnection(scene.lab, scene.seconds)

    async def open_connection() -> LabConnection:
        return link

    app = ScreenApp(open_connection, theme=scene.theme, clock=lambda: START + scene.seconds)
    async with app.run_test(size=scene.size) as pilot:
        await asyncio.wait_for(link.said.wait(), 60)
        await still(pilot)
        for key in scene.keys:
            await pilot.press(key)
            await still(pilot)
        return Picture.of(app)


def utc() -> None:
    """Let this process tell the time as in Greenwich, wherever it runs."""
    os.environ["TZ"] = "UTC"
    time.tzset()


async def still(pilot: "Pilot[int]") -> None:
    """Wait until nothing moves any more, and a question shows its answers."""
    app = pilot.app
    same, before = 0, [Strip([])]
    while (
        same < STILL
        or getattr(app, "_draw_waits", False)  # what came last is still to be drawn
        or not all(choices.visible for choices in app.screen.query(".choices"))
    ):
        for line in app.screen.query(Input):
            line.cursor_blink = False
        await pilot.pause(0.03)
        now = app.screen._compositor.render_strips()
        same, before = (same + 1 if now == before else 0), now
