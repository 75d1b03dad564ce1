"""A screen on a cluster that stands still: what it shows is what the test tells it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Self

from textual._context import visible_screen_stack
from textual.pilot import Pilot

from gputui.errors import HeadError
from gputui.model.snapshot import Event, Severity, Snapshot
from gputui.protocol.frontend import (
    Attached,
    Done,
    EventHappened,
    FromFrontend,
    Reply,
    Request,
    SnapshotTaken,
    ToFrontend,
)
from gputui.protocol.shared import Credentials, LogLines, Refused
from gputui.tui.app import ScreenApp
from tests.tui.build import EPOCH, device, host, snapshot, worker

BOUND_S = 60.0
STEP_S = 0.01


class StillLink:
    """A link that tells what it is given, and remembers what it was asked."""

    def __init__(self) -> None:
        self.where = ""
        self.attached = Attached(
            "lab", "id", 1, EPOCH, Credentials("", "", "{}"), address="tls://h:1"
        )
        self.asked: list[Request] = []
        self.sent: list[FromFrontend] = []
        self.reply: Reply | Refused = Done(0, "done")
        self.answers = asyncio.Event()
        """Cleared: no request is answered."""
        self.answers.set()
        self._queue: asyncio.Queue[ToFrontend | None] = asyncio.Queue()

    async def request(self, message: Request) -> Reply:
        self.asked.append(message)
        await self.answers.wait()
        if isinstance(self.reply, Refused):
            raise HeadError(self.reply.reason)
        return self.reply

    def send(self, message: FromFrontend) -> None:
        self.sent.append(message)

    async def messages(self) -> AsyncIterator[ToFrontend]:
        while (message := await self._queue.get()) is not None:
            yield message

    def put(self, *messages: ToFrontend) -> None:
        for message in messages:
            self._queue.put_nowait(message)

    def cut(self) -> None:
        """End as the link to a head that dies does."""
        self._queue.put_nowait(None)

    async def close(self) -> None:
        """Let go of nothing."""


Step = tuple[str, ...] | tuple[int, int]
"""Keys (`j enter`), or a line (`:sort util`, `/gpu0`), and what is seen then; `~x`: x is not seen.

Or the columns and lines that the terminal has from then on.
"""


class Driven:
    """A screen in a terminal, and what a person does there."""

    app: ScreenApp
    pilot: Pilot[int]

    @contextlib.asynccontextmanager
    async def showing(
        self, *texts: str, keys: Iterable[str] = (), size: tuple[int, int] = (80, 24)
    ) -> AsyncIterator[Self]:
        """Run the app in a terminal of this size, from when these keys show these texts."""
        async with self.app.run_test(size=size) as self.pilot:
            await self.press(keys, *texts)
            yield self

    async def press(
        self, keys: Iterable[str], *texts: str, then: Callable[[], object] | None = None
    ) -> None:
        """Press keys, and wait until all texts are on the screen and `then` holds."""
        await self.pilot.press(*keys)
        await self.sees(*texts)
        if then:
            await self.until(then)

    async def walk(self, *steps: Step, size: tuple[int, int] = (120, 40)) -> None:
        """Take these steps in a terminal that has this size at first."""
        async with self.showing(size=size):
            await self.until(lambda: self.app.watched.snapshot.name and self.app.view)
            for first, *texts in steps:
                if isinstance(first, int):
                    await self.pilot.resize_terminal(first, *texts)
                    continue
                await self.press([*first, "enter"] if first[:1] in tuple(":/") else first.split())
                await self.sees(*(text for text in texts if text[0] != "~"))
                await self.sees_not(*(text[1:] for text in texts if text[0] == "~"))

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def sees_not(self, *texts: str) -> None:
        await self.until(lambda: not any(text in self.text for text in texts))

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, for a bound that a busy machine keeps."""
        end = time.monotonic() + BOUND_S
        while not condition():
            assert time.monotonic() < end, f"not within {BOUND_S:.0f} s; seen:\n{self.text}"
            await self.pilot.pause(STEP_S)
        await self.pilot.pause()

    @property
    def text(self) -> str:
        """What is on the screen.

        A dialog keeps how it drew what is behind it: without those screens it would keep a blank.
        """
        visible_screen_stack.set(self.app._background_screens)
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)


ONE_GPU = snapshot(host("h", device()), workers=(worker(),))


class Still(Driven):
    """A screen and what it is told."""

    def __init__(self, snapshot: Snapshot = ONE_GPU, **options: Any) -> None:
        """`options` are those of the screen: `ascii_only`, `readonly`, `choices`, …"""
        self.link = StillLink()
        self.snapshot = snapshot
        self.app = ScreenApp(self._open, clock=lambda: EPOCH, **options)
        self.copied: list[str] = []
        self.link.put(SnapshotTaken(snapshot))

    async def _open(self) -> StillLink:
        return self.link

    def log(self, worker: str, *lines: str) -> None:
        self.link.put(LogLines(worker, lines, EPOCH))

    def happen(self, number: int, subject: str, text: str, severity: str = "info") -> None:
        event = Event(number, EPOCH + number, Severity(severity), subject, "told", text)
        self.link.put(EventHappened(event))
