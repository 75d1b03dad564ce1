"""A simulated cluster in this process: a real head, and what it believes to be hosts and Dask."""

import asyncio
import logging
import random
from typing import TypeVar

from gputui.client.head_connection import HeadConnection
from gputui.demo import Shape
from gputui.demo.connecting import DemoHosts
from gputui.demo.devices import A100, H200, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent
from gputui.demo.simulated_runs import DemoRuns
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.demo.troubles import Troubles
from gputui.head.head import Head
from gputui.process.background import Background
from gputui.protocol import VERSION
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.streams import memory_streams

logging.getLogger("gputui.head").addHandler(logging.NullHandler())  # its events are on the screen

Kind = TypeVar("Kind", bound=HeadConnection)


class DemoConnection(HeadConnection):
    """A frontend's connection to a simulated cluster, which ends with it."""

    demo: "Demo"

    async def close(self) -> None:
        """End the cluster."""
        await super().close()
        await self.demo.close()


class Demo:
    """One simulated cluster."""

    def __init__(
        self, shape: Shape, seed: int, *, troubles: bool, questions: bool, pace: float
    ) -> None:
        self._shape, self._seed, self._pace = shape, seed, pace
        width = max(2, len(str(shape.hosts)))
        names = [f"node-{number:0{width}d}" for number in range(1, shape.hosts + 1)]
        self.scheduler = SimulatedScheduler(seed, failures=troubles)
        self.hosts = DemoHosts(self._new_agent)
        if troubles:
            self.hosts.spread_troubles(names, random.Random(seed), questions=questions)
        self.runs = DemoRuns(self.scheduler, self.attach, failures=troubles)
        self._troubles = Troubles(self.scheduler, shape.hosts, seed) if troubles else None
        self.head = Head(
            ConfigureHead(VERSION, "demo", "\n".join(names), cluster_id="demo", interactive=True),
            opener=self.hosts,
            scheduler=self.scheduler.start,
            run=self.runs.start,
            simulated=True,
        )
        self._tasks = Background(self._failed)
        self._running: asyncio.Task[None] | None = None

    def _new_agent(self, host: str, number: int) -> SimulatedAgent:
        model = A100 if number % 12 == 0 else H200
        rng = random.Random(f"{self._seed}:{host}:gpus")
        labels = [str(label) for label in range(self._shape.gpus_per_host)]
        gpus = [
            SimulatedGpu(label, _uuid(rng), model, tuple(peer for peer in labels if peer != label))
            for label in labels
        ]
        return SimulatedAgent(
            host, number, gpus, seed=self._seed, pace=self._pace, registry=self.scheduler
        )

    async def open(self) -> DemoConnection:
        """Start the head, and return a screen's connection to it."""
        opened = asyncio.Event()
        self._running = self._tasks.start(self.head.run(lambda _socket: opened.set()), "the head")
        await opened.wait()
        connection = await self._attached(DemoConnection, "screen", snapshots=True)
        connection.demo = self
        self._tasks.start(self.runs.go_on(connection), "runs")
        if self._troubles is not None:
            self._tasks.start(self._troubles.happen(), "troubles")
        return connection

    async def attach(self, frontend: str) -> HeadConnection:
        """Attach another frontend."""
        return await self._attached(HeadConnection, frontend)

    async def _attached(self, kind: type[Kind], frontend: str, *, snapshots: bool = False) -> Kind:
        own, heads = memory_streams()
        self.head.server.accept(heads)
        return await kind.over(own, frontend=frontend, snapshots=snapshots)

    async def close(self) -> None:
        """End the cluster, where it has not ended by itself."""
        self.head.stop("the demo was closed")
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._tasks.close()

    def _failed(self, what: str, error: Exception) -> None:
        """End the cluster with the reason."""
        self.head.stop(f"{what} failed: {error}", failed=True)


def _uuid(rng: random.Random) -> str:
    bits = f"{rng.getrandbits(128):032x}"
    return f"GPU-{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"
