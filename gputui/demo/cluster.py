"""A simulated cluster in this process: a real head on simulated hosts and a simulated scheduler."""

import asyncio
import logging
import random
from dataclasses import replace
from functools import partial
from uuid import UUID

from gputui.client.head_connection import HeadConnection
from gputui.demo.devices import A100, H200, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts
from gputui.demo.simulated_runs import DemoRuns
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.demo.troubles import happen, spread
from gputui.head.head import Head
from gputui.process.background import Background
from gputui.protocol import VERSION
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.streams import memory_streams

logging.getLogger("gputui.head").addHandler(logging.NullHandler())  # its events are on the screen


class DemoConnection(HeadConnection):
    """A frontend's connection to a simulated cluster, which ends with the screen's."""

    demo: "Demo"

    async def close(self) -> None:
        """Close it, and with the screen's the cluster."""
        await super().close()
        if self.demo.screen is self:
            await self.demo.close()


class Demo:
    """One simulated cluster."""

    def __init__(
        self,
        hosts: int,
        gpus_per_host: int,
        seed: int,
        *,
        troubles: bool,
        questions: bool,
        pace: float,
    ) -> None:
        width = max(2, len(str(hosts)))
        names = [f"node-{number:0{width}d}" for number in range(1, hosts + 1)]
        labels = [str(label) for label in range(gpus_per_host)]

        def new_agent(host: str, number: int) -> SimulatedAgent:
            rng, model = random.Random(f"{seed}:{host}:gpus"), H200 if number % 12 else A100
            gpus = []
            for label in labels:
                others = tuple(each for each in labels if each != label)
                links = replace(model.links, nvlink_peers=others)
                gpus.append(
                    SimulatedGpu(label, f"GPU-{UUID(int=rng.getrandbits(128))}", model, links)
                )
            return SimulatedAgent(host, number, gpus, seed=seed, pace=pace)

        self._tasks = Background(
            lambda what, error: self.head.stop(f"{what} failed: {error}", failed=True)
        )
        self.hosts = SimulatedHosts(new_agent)
        if troubles:
            spread(self.hosts, names, random.Random(seed), questions=questions)
        self.scheduler = SimulatedScheduler(self.hosts.agents, seed)
        self.runs = DemoRuns(
            self.scheduler.runs,
            self.scheduler.workers,
            self.attach,
            self._tasks,
            failures=troubles,
        )
        self._troubles = partial(happen, self.scheduler, hosts, seed) if troubles else None
        self.head = Head(
            ConfigureHead(VERSION, "demo", "\n".join(names), cluster_id="demo", interactive=True),
            opener=self.hosts,
            scheduler=lambda _cluster_id: self.scheduler,
            run=self.runs.start,
            simulated=True,
        )
        self.screen: DemoConnection | None = None
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> DemoConnection:
        """Start the head, and return a screen's connection to it."""
        opened = asyncio.Event()
        self._running = self._tasks.start(self.head.run(lambda _socket: opened.set()), "the head")
        await opened.wait()
        self.screen = await self.attach("screen", snapshots=True)
        self._tasks.start(self.runs.go_on(self.screen), "runs")
        if self._troubles is not None:
            self._tasks.start(self._troubles(), "troubles")
        return self.screen

    async def attach(self, frontend: str, *, snapshots: bool = False) -> DemoConnection:
        """Attach a frontend."""
        own, heads = memory_streams()
        self.head.server.accept(heads)
        connection = await DemoConnection.over(own, frontend=frontend, snapshots=snapshots)
        connection.demo = self
        return connection

    async def close(self) -> None:
        """End the cluster, where it has not ended by itself."""
        self.head.stop("the demo was closed")
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._tasks.close()
