"""The scenes that pictures are made of, and how one is drawn, the same each time."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.terminal_theme import TerminalTheme
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Button, Input

from gputui.demo import DemoLink, Shape, Simulator
from gputui.demo.requests import answer
from gputui.protocol.frontend import Answer, SnapshotTaken, SubscribeLogs, ToFrontend
from gputui.tui.app import ScreenApp

FOLDER = Path(__file__).parents[2] / "screenshots"
START = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""
SIZES = ((80, 24), (120, 40), (200, 60))
THEMES = ("textual-dark", "textual-light", "okabe-ito", "ansi-dark")
STILL = 4
"""Looks in a row in which nothing moved."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be seen, when, and what was pressed to see it."""

    name: str
    shape: str = "4x8"
    seconds: int = 100
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)
    theme: str = "textual-dark"

    @property
    def path(self) -> Path:
        """Where its picture is kept."""
        return FOLDER / f"{self.name}.svg"


README = (
    Scene("launch", "16x8", 5, ("0",)),
    Scene("fleet"),
    Scene("heat", "125x8", keys=("Z", "Z")),
    Scene("workers", keys=("2",)),
    Scene("tasks", "16x8", keys=("3",)),
    Scene("logs", "16x8", keys=("4",)),
    Scene("events", "16x8", 200, keys=("5",)),
    Scene("runs", "16x8", 220, keys=("6", "j", "j")),
    Scene("device", keys=("2", "enter")),
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


class Recorded(DemoLink):
    """A link that tells of each second up to a moment, and then of nothing more."""

    def __init__(self, simulator: Simulator, seconds: int) -> None:
        super().__init__(simulator, lambda: START + seconds)
        self._seconds = seconds
        self.told = asyncio.Event()

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what the simulator tells of each second."""
        await self.send(SubscribeLogs(True))
        for second in range(self._seconds + 1):
            snapshot = self.simulator.step(START + second)
            if second == 12 and self._seconds > 30:
                answer(self.simulator, Answer(1, "yes"))
            for message in (SnapshotTaken(snapshot), *self._fresh()):
                yield message
        self.told.set()
        await asyncio.Event().wait()


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
    simulator = Simulator(Shape.parse(scene.shape), seed=1, started_at=START)
    link = Recorded(simulator, scene.seconds)

    async def open_link() -> Recorded:
        return link

    app = ScreenApp(open_link, theme=scene.theme, clock=lambda: START + scene.seconds)
    async with app.run_test(size=scene.size) as pilot:
        await asyncio.wait_for(link.told.wait(), 60)
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
    while same < STILL or not all(button.visible for button in app.screen.query(Button)):
        for field in app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause(0.03)
        now = app.screen._compositor.render_strips()
        same, before = (same + 1 if now == before else 0), now
