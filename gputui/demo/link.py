"""A frontend's hold on a simulated cluster, with the interface of `cluster.HeadLink`.

The simulator lives in the frontend's own process and is stepped once a second, more often while
hosts come up; a frontend cannot tell it from a head but by `Snapshot.simulated`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from gputui.demo import requests
from gputui.demo.simulator import Shape, Simulator
from gputui.errors import HeadError
from gputui.protocol import VERSION
from gputui.protocol.frontend import (
    Answer,
    Attached,
    Done,
    FromFrontend,
    Reply,
    Request,
    SnapshotTaken,
    Stop,
    Stopped,
    SubscribeLogs,
    ToFrontend,
)
from gputui.protocol.shared import LogLines, Refused
from gputui.snapshot import Session

INTERVAL_S = 1.0
LAUNCH_INTERVAL_S = 0.25


class DemoLink:
    """A link to a simulator; `attached` says whose cluster it is."""

    def __init__(self, simulator: Simulator, clock: Callable[[], float] = time.time) -> None:
        self.simulator = simulator
        self.where = ""
        self.attached = Attached(
            version=VERSION,
            name="demo",
            cluster_id="demo",
            pid=os.getpid(),
            address="tls://10.0.0.1:40123",
            certificate_pem="",
            key_pem="",
            hosts_source="",
            started_at=simulator.started_at,
        )
        self._clock = clock
        self._numbers = 0
        self._logs = False
        self._wake = asyncio.Event()
        simulator.event_log.take()
        self._queue: list[ToFrontend] = list(simulator.event_log.kept())
        self._closed = False

    @classmethod
    async def open(
        cls,
        shape: Shape,
        *,
        seed: int = 0,
        troubles: bool = True,
        questions: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> "DemoLink":
        """Return a link to a cluster of this shape, which begins to come up now.

        Without `questions` every host key is known.
        """
        simulator = Simulator(shape, seed=seed, started_at=clock(), troubles=troubles)
        if not questions:
            simulator.population.know_every_host()
        return cls(simulator, clock)

    async def request(self, message: Request) -> Reply:
        """Have a request carried out; raises HeadError with the reason when it is refused."""
        self._numbers += 1
        numbered = replace(message, request=self._numbers)
        if isinstance(message, Stop):
            self._queue.append(Stopped(f"stopped by {Session('screen')}"))
            self._wake.set()
            return Done(self._numbers, "stopping")
        self.simulator.step(self._clock())
        reply = requests.carry_out(self.simulator, numbered)
        self._wake.set()
        if isinstance(reply, Refused):
            raise HeadError(reply.reason)
        return reply

    async def send(self, message: FromFrontend) -> None:
        """Send a message that asks for no answer."""
        if isinstance(message, SubscribeLogs):
            if message.on and not self._logs:
                self._queue.extend(self.simulator.event_log.logs)
            self._logs = message.on
        elif isinstance(message, Answer):
            requests.answer(self.simulator, message)
        self._wake.set()

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what the head would send unasked, until the cluster stopped or `close`."""
        while not self._closed:
            self._wake.clear()
            self._queue.append(SnapshotTaken(self.simulator.step(self._clock())))
            self._queue.extend(self._fresh())
            queue, self._queue = self._queue, []
            for message in queue:
                yield message
                if isinstance(message, Stopped):
                    return
            await self._next_step()

    def _fresh(self) -> list[ToFrontend]:
        fresh = self.simulator.event_log.take()
        return [one for one in fresh if self._logs or not isinstance(one, LogLines)]

    async def _next_step(self) -> None:
        interval = LAUNCH_INTERVAL_S if self.simulator.unsettled else INTERVAL_S
        try:
            await asyncio.wait_for(self._wake.wait(), interval)
        except TimeoutError:
            return

    async def close(self) -> None:
        """Let go of the cluster; `messages` ends."""
        self._closed = True
        self._wake.set()
