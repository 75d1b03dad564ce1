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

from gputui.demo import Shape
from gputui.protocol.frontend import (
    Answer,
    FromFrontend,
    Reply,
    Request,
    SubscribeLogs,
    ToFrontend,
)
from gputui.tui.app import ScreenApp
from tests.timelapse import START, Timelapse

FOLDER = Path(__file__).parents[2] / "screenshots"
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


class Recorded:
    """A screen's link to a cluster that was lived through up to a moment, and stands still then."""

    where = ""

    def __init__(self, lived: Timelapse) -> None:
        self.attached = lived.link.attached
        self._lived = lived
        self.told = asyncio.Event()

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what the head told by then."""
        for message in self._lived.messages:
            yield message
        self.told.set()
        await asyncio.Event().wait()

    async def request(self, message: Request) -> Reply:
        """Have the head carry a request out, in its own time."""
        return await asyncio.to_thread(self._lived.run, self._lived.link.request(message))

    async def send(self, message: FromFrontend) -> None:
        """Send nothing: what was told stays as it is."""

    async def close(self) -> None:
        """Leave the cluster as it is."""


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


def live(scene: Scene) -> Timelapse:
    """Live through a scene's cluster up to its moment; a question is answered on the way."""
    lived = Timelapse(Shape.parse(scene.shape), seed=1)
    lived.run(lived.link.send(SubscribeLogs(True)))
    if scene.seconds > 30:
        for asked in lived.to(12).questions:
            lived.run(lived.link.send(Answer(asked.question, "yes")))
    return lived.to(scene.seconds)


async def draw(scene: Scene) -> Picture:
    """Return a scene as it is seen once nothing moves any more."""
    utc()
    lived = await asyncio.to_thread(live, scene)
    link = Recorded(lived)

    async def open_link() -> Recorded:
        return link

    app = ScreenApp(open_link, theme=scene.theme, clock=lambda: START + scene.seconds)
    async with app.run_test(size=scene.size) as pilot:
        await asyncio.wait_for(link.told.wait(), 60)
        await still(pilot)
        for key in scene.keys:
            await pilot.press(key)
            await still(pilot)
        picture = Picture.of(app)
    await asyncio.to_thread(lived.close)
    return picture


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
