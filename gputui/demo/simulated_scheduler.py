"""The scheduler of a simulated cluster: it gives workers tasks, and counts them once a second.

It speaks with the head as the real one does, over a channel in memory. Before each of its counts
every worker goes on: it works on one task at a time, of the latest run that has any.
"""

import asyncio
import os
import random
import time
from collections.abc import Mapping

from gputui.demo.devices import CONTEXT_BYTES, USER
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedWorker
from gputui.demo.simulated_runs import SimulatedRun, Stage
from gputui.model.readings import DeviceProcess, Owner
from gputui.model.snapshot import TaskSpan
from gputui.process.background import Background
from gputui.protocol.scheduler import (
    ConfigureScheduler,
    Counts,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    SchedulerStarted,
    StopScheduler,
    ToScheduler,
    WorkerCounts,
)
from gputui.protocol.streams import MemoryStream, memory_streams
from gputui.protocol.typed_codec import TypedChannel

PORT = 40_123
SPANS_KEPT = 2_000
"""Of the tasks that ended in a second, how many are counted one by one."""
MEMORY_SHARE = 0.7
"""Of a GPU's memory, what results may take before some are spilled."""
LINES_A_SECOND = 12
"""At most, from all workers together."""


def counts_of(worker: SimulatedWorker, results: int, held_bytes: int) -> WorkerCounts:
    """Load a worker's GPU; return its counts where it holds so many results of so many bytes."""
    gpu, stage = worker.gpu, worker.stage
    total_bytes = gpu.model.memory_bytes if gpu else 0
    kept_bytes = min(held_bytes, int(total_bytes * MEMORY_SHARE)) if gpu else held_bytes
    worker.spilled_bytes = held_bytes - kept_bytes
    taken_bytes = int(stage.device_share * total_bytes) if stage else 0
    used_bytes = CONTEXT_BYTES + min(kept_bytes + taken_bytes, total_bytes * 9 // 10)
    command = f"gputui worker {worker.name}"
    worker.process = DeviceProcess(worker.pid, Owner.OURS, USER, command, used_bytes)
    worker.percent = stage.utilization_percent if stage else 0.0
    return WorkerCounts(
        name=worker.name,
        status="running",
        executing=int(stage is not None),
        ready=int(stage is not None),
        in_memory=results,
        managed_bytes=kept_bytes,
        spilled_bytes=worker.spilled_bytes,
        device_managed_bytes=kept_bytes,
        current_task=stage.prefix if stage else None,
        task_since=worker.began_at if stage else None,
    )


class SimulatedScheduler:
    """A scheduler with which the workers of some agents register.

    It has what a head uses of its `Child`.
    """

    def __init__(self, agents: Mapping[str, SimulatedAgent], seed: int) -> None:
        self.pid = os.getpid()
        self.status: int | None = None
        self.reason = ""
        self.last_log_lines: tuple[str, ...] = ()
        self.workers: dict[str, SimulatedWorker] = {}
        self.runs: list[SimulatedRun] = []
        """The latest first: the order in which a free worker looks for a task."""
        self.busy = False
        """Whether its loop does not answer."""
        self._agents = agents
        self._rng = random.Random(f"{seed}:scheduler")
        self._spans: list[TaskSpan] = []
        self._channel: TypedChannel[FromScheduler, ToScheduler]
        self._tasks = Background(self._failed)

    async def stream(self) -> MemoryStream:
        """Return the head's end of the connection, and serve the other one."""
        heads, own = memory_streams()
        self._channel = TypedChannel(own, ToScheduler)
        self._tasks.start(self._serve(), "scheduler")
        return heads

    async def end(self, grace_s: float) -> int | None:
        """End at once."""
        self.status = 0 if self.status is None else self.status
        await self._tasks.close()
        await self._channel.close()
        return self.status

    async def _serve(self) -> None:
        async for message in self._channel:
            match message:
                case ConfigureScheduler(report_interval_s=interval_s):
                    self._channel.send(SchedulerStarted(PORT))
                    self._tasks.start(self._count(interval_s), "counting")
                case Retire() | Remove():
                    for name in message.names:
                        if name in self.workers:
                            self.workers[name].address = ""
                    if isinstance(message, Retire):
                        self._channel.send(Retired(message.request, message.names))
                case StopScheduler():
                    break
        self.status = 0
        await self._channel.close()

    async def _count(self, interval_s: float) -> None:
        while True:
            at = time.time()
            self._register()
            for worker in self.workers.values():
                if not worker.agent.silent:
                    self._go_on(worker, at)
            if not self.busy:
                self._channel.send(self._counts())
            await asyncio.sleep(interval_s)

    def _failed(self, what: str, error: Exception) -> None:
        """End, as a scheduler that failed."""
        self.status, self.reason = 1, f"failed: {what}: {error}"
        self._channel.abort()

    def _register(self) -> None:
        """Know the workers that the agents have now; tasks of others are given back."""
        workers = [worker for agent in self._agents.values() for worker in agent.workers.values()]
        there = {worker.name: worker for worker in workers if worker.address}
        for name, worker in self.workers.items():
            if there.get(name) is not worker:
                if worker.stage is not None:
                    worker.stage.started -= 1
                worker.process, worker.percent, worker.stage = None, 0.0, None
        for name, worker in there.items():
            if self.workers.get(name) is not worker:
                line = f"distributed.worker - INFO - Start worker at: {worker.address}"
                worker.agent.print(name, (line,))
        self.workers = there

    def _go_on(self, worker: SimulatedWorker, at: float) -> None:
        """End a worker's tasks that are over, and give it new ones; let it print now and then."""
        while worker.stage is None or worker.ends_at <= at:
            begin = at - self._rng.random() * 0.3
            if worker.stage is not None:
                begin = max(worker.ends_at, at - 1.0)
                self._end_task(worker, worker.stage)
            stages = (stage for run in self.runs for stage in run.stages)
            worker.stage = next((each for each in stages if each.started < each.tasks), None)
            if worker.stage is None:
                return
            worker.stage.started += 1
            worker.began_at = begin
            worker.ends_at = begin + worker.stage.task_s * self._rng.uniform(0.7, 1.3)
        if self._rng.random() < LINES_A_SECOND / max(LINES_A_SECOND, 2 * len(self.workers)):
            prefix, seconds = worker.stage.prefix, worker.ends_at - worker.began_at
            line = f"\x1b[32m[{prefix}]\x1b[0m block {worker.stage.finished} in {seconds:.2f} s"
            worker.agent.print(worker.name, (line,))

    def _end_task(self, worker: SimulatedWorker, stage: Stage) -> None:
        seconds = worker.ends_at - worker.began_at
        stage.compute_s += seconds
        stage.finished += 1
        if len(self._spans) < SPANS_KEPT:
            self._spans.append(TaskSpan(worker.name, stage.prefix, worker.began_at, seconds))

    def _counts(self) -> Counts:
        groups = tuple(group for run in reversed(self.runs) for group in run.groups())
        queued = sum(group.queued for group in groups)
        spans, self._spans = self._spans, []
        each = max(1, len(self.workers))
        results = sum(group.memory for group in groups) // each
        held_bytes = sum(group.nbytes or 0 for group in groups) // each
        return Counts(
            workers=tuple(counts_of(w, results, held_bytes) for w in self.workers.values()),
            groups=groups,
            tasks=sum(group.total for group in groups),
            queued=queued,
            clients=1 + len(self.runs),
            spans=tuple(spans),
        )
