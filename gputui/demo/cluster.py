"""A simulated cluster in this process: a real head on simulated hosts and a simulated scheduler."""

import asyncio
import contextlib
import logging
import random
import time
from dataclasses import replace
from functools import partial
from uuid import UUID

from gputui import presets
from gputui.client.head_connection import HeadConnection
from gputui.demo import Shape
from gputui.demo.devices import A100, H200, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts
from gputui.demo.simulated_runs import SimulatedRun
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.demo.troubles import happen, share, spread
from gputui.errors import HeadError
from gputui.head.head import Head
from gputui.process.background import Background
from gputui.protocol import VERSION
from gputui.protocol.frontend import ReportRun, StartRun
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.streams import memory_streams

logging.getLogger("gputui.head").addHandler(logging.NullHandler())  # its events are on the screen


SHARED = 2
"""Which host is other people's, too."""
REPORT_S = 1.0
FIRST_RUN_S, BETWEEN_RUNS_S = 2.0, 7.0
OWN_RUNS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("random-sum", (("size", "500000"), ("seed", "1"))),
    ("svd", (("rows", "16000000"), ("cols", "1000"))),
    ("matmul", (("size", "131072"), ("dtype", "float32"))),
    ("torch", (("steps", "2000"),)),
)
"""What runs by itself, over and over, so that there is something to see."""
FAILING = 2
"""Which of them fails, once, where there are troubles."""


class Demo:
    """One simulated cluster."""

    def __init__(
        self,
        shape: Shape,
        *,
        seed: int = 0,
        troubles: bool = True,
        questions: bool = True,
        pace: float = 1.0,
    ) -> None:
        """With `troubles`, some hosts are refused, one asks about its key unless there are to be no
        `questions`, and now and then a worker crashes, a host falls silent, a GPU is throttled.
        Hosts and workers take `pace` times the usual time to come up; 0 is at once.
        """
        hosts = shape.hosts
        width = max(2, len(str(hosts)))
        names = [f"node-{number:0{width}d}" for number in range(1, hosts + 1)]
        labels = [str(label) for label in range(shape.gpus_per_host)]

        def new_agent(host: str, number: int) -> SimulatedAgent:
            rng, model = random.Random(f"{seed}:{host}:gpus"), H200 if number % 12 else A100
            gpus = []
            for label in labels:
                others = tuple(each for each in labels if each != label)
                links = replace(model.links, nvlink_peers=others)
                gpus.append(
                    SimulatedGpu(label, f"GPU-{UUID(int=rng.getrandbits(128))}", model, links)
                )
            if troubles and number == SHARED and len(gpus) > 2:
                share(gpus[1:], time.time())
            return SimulatedAgent(host, number, gpus, seed=seed, pace=pace)

        self._tasks = Background(
            lambda what, error: self.head.stop(f"{what} failed: {error}", failed=True)
        )
        self.hosts = SimulatedHosts(new_agent)
        if troubles:
            spread(self.hosts, names, random.Random(seed), questions=questions)
        self.scheduler = SimulatedScheduler(self.hosts.agents, seed)
        self._failures, self._own_runs = troubles, 0
        self._troubles = partial(happen, self.scheduler, hosts, seed) if troubles else None
        self.head = Head(
            ConfigureHead(
                VERSION, "demo", "\n".join(names), cluster_id="demo", interactive=True, busy="skip"
            ),
            opener=self.hosts,
            scheduler=lambda _cluster_id: self.scheduler,
            run=self._start_run,
            simulated=True,
        )
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> HeadConnection:
        """Start the head, and return a screen's connection to it, with which the cluster ends."""
        opened = asyncio.Event()
        self._running = self._tasks.start(self.head.run(lambda _socket: opened.set()), "the head")
        await opened.wait()
        screen = await self.attach("screen", snapshots=True)
        screen.at_close = self.close
        self._tasks.start(self._begin_runs(screen), "runs")
        if self._troubles is not None:
            self._tasks.start(self._troubles(), "troubles")
        return screen

    async def attach(self, frontend: str, *, snapshots: bool = False) -> HeadConnection:
        """Attach a frontend."""
        own, heads = memory_streams()
        self.head.server.accept(heads)
        return await HeadConnection.over(own, frontend=frontend, snapshots=snapshots)

    async def close(self) -> None:
        """End the cluster, where it has not ended by itself."""
        self.head.stop("the demo was closed")
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._tasks.close()

    def _start_run(self, _name: str, _cluster_id: str, request: StartRun, id: str) -> SimulatedRun:
        """Start a run; raises PresetError where the request is wrong."""
        presets.parse(presets.get(request.preset), dict(request.parameters)).refuse_mistakes()
        fails = self._failures and self._own_runs == FAILING + 1
        self._failures = self._failures and not fails
        run = SimulatedRun(id, request, len(self.scheduler.workers), fails=fails)
        self.scheduler.runs.insert(0, run)
        self._tasks.start(self._report(run), f"run {id}")
        return run

    async def _report(self, run: SimulatedRun) -> None:
        """Report a run until it has ended, as the frontend that its command would be."""
        connection = await self.attach("run")
        while not (status := run.status()).state.ended:
            connection.send(ReportRun(status))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(run.cancelled.wait(), REPORT_S)
        connection.send(ReportRun(status))
        await connection.close()
        self.scheduler.runs.remove(run)
        run.ended.set()

    async def _begin_runs(self, connection: HeadConnection) -> None:
        """Begin a run of our own whenever none has run for a while, until cancelled."""
        idle_s, workers = 0.0, 0
        while True:
            await asyncio.sleep(1.0)
            before, workers = workers, len(self.scheduler.workers)
            idle = workers and workers == before and not self.scheduler.runs
            idle_s = idle_s + 1.0 if idle else 0.0
            if idle_s >= (BETWEEN_RUNS_S if self._own_runs else FIRST_RUN_S):
                preset, parameters = OWN_RUNS[self._own_runs % len(OWN_RUNS)]
                self._own_runs += 1
                with contextlib.suppress(HeadError):
                    await connection.request(StartRun(0, preset, parameters))
