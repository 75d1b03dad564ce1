"""The scheduler of a simulated cluster: it gives workers tasks, and counts them once a second.

It speaks with the head as the real one does, over a channel in memory, and is stepped before each
of its counts. A worker works on one task at a time, of the deepest stage that has any.
"""

import asyncio
import os
import random
import time
from dataclasses import dataclass

from gputui.demo import chatter
from gputui.demo.devices import Load
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedWorker
from gputui.demo.work import SimulatedRun
from gputui.model.snapshot import TaskGroupStatus, TaskSpan
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
GROUPS_LINGER_S = 6.0
"""How long the groups of an ended run are still there."""
RETIRE_S = (1.2, 3.0)
"""The shortest and the longest time in which results move."""
TASK_FAILURE_RATE = 1 / 40_000
MEMORY_SHARE = 0.7
"""Of a GPU's memory, what results may take before some are spilled."""


@dataclass(slots=True)
class Working:
    """A worker, the task it has in hand, and what it holds."""

    agent: SimulatedAgent
    worker: SimulatedWorker
    run: SimulatedRun | None = None
    stage: int = 0
    task_started_at: float = 0.0
    task_ends_at: float = 0.0
    ready: int = 0
    in_memory: int = 0
    managed_bytes: int = 0
    spilled_bytes: int = 0

    def drop_task(self) -> None:
        """Give back the task in hand; another worker will run it."""
        if self.run is not None and not self.run.over:
            self.run.put_back(self.stage)
        self.run, self.ready = None, 0

    def hold(self, results: int, held_bytes: int, spilled_bytes: int = 0) -> None:
        """Hold so much from now on; what the GPU has no room for is spilled."""
        gpu = self.worker.gpu
        room = int(gpu.model.memory_bytes * MEMORY_SHARE) if gpu else held_bytes
        self.in_memory, self.managed_bytes = results, min(held_bytes, room)
        self.spilled_bytes = spilled_bytes + held_bytes - self.managed_bytes

    def use_results(self, number: int) -> None:
        """Let results go that a later stage has used."""
        if self.in_memory:
            kept, all_ = max(0, self.in_memory - number), self.in_memory
            spilled_bytes = self.spilled_bytes * kept // all_
            self.hold(kept, self.managed_bytes * kept // all_, spilled_bytes)

    def load(self) -> Load:
        """Return its load on its GPU."""
        worker, gpu, stage = self.worker, self.worker.gpu, None
        if self.run is not None:
            stage = self.run.counts[self.stage].stage
        taken = int(stage.device_share * gpu.model.memory_bytes) if stage and gpu else 0
        percent = stage.utilization_percent if stage else 0.0
        return Load(worker.pid, worker.name, percent, self.managed_bytes + taken)

    def counts(self) -> WorkerCounts:
        """Return its counts, as a scheduler reports them."""
        return WorkerCounts(
            name=self.worker.name,
            address=self.worker.address,
            status="running",
            nthreads=1,
            executing=int(self.run is not None),
            ready=self.ready,
            in_memory=self.in_memory,
            managed_bytes=self.managed_bytes,
            spilled_bytes=self.spilled_bytes,
            memory_limit_bytes=self.worker.memory_limit_bytes,
            device_managed_bytes=self.managed_bytes,
            current_task=self.run.counts[self.stage].stage.prefix if self.run else None,
            task_since=self.task_started_at if self.run else None,
        )


class SimulatedScheduler:
    """The process of a scheduler, and the registry of simulated workers."""

    def __init__(self, seed: int, *, failures: bool) -> None:
        self.pid = os.getpid()
        self.status: int | None = None
        self.reason = ""
        self.workers: dict[str, Working] = {}
        self.runs: list[SimulatedRun] = []
        """The latest first: the order in which a free worker looks for a task."""
        self.busy = False
        """Whether its loop does not answer."""
        self._rng = random.Random(f"{seed}:scheduler")
        self._failures = failures
        self._spans: list[TaskSpan] = []
        self._old_groups: tuple[TaskGroupStatus, ...] = ()
        self._old_groups_until = 0.0
        self._channel: TypedChannel[FromScheduler, ToScheduler]
        self._tasks = Background(self._failed)

    def start(self, _cluster_id: str) -> "SimulatedScheduler":
        """Be the process that the head starts."""
        return self

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

    def register(self, agent: SimulatedAgent, worker: SimulatedWorker) -> None:
        """Give a worker tasks from now on."""
        self.workers[worker.name] = working = Working(agent, worker)
        worker.load = working.load()
        agent.print(worker.name, chatter.greeting(worker))

    def forget(self, name: str) -> None:
        """Give a worker no more tasks; those it has are lost."""
        if (working := self.workers.pop(name, None)) is not None:
            working.drop_task()
            working.worker.load = None

    def finish(self, run: SimulatedRun) -> None:
        """Forget a run's tasks, and what workers hold of them."""
        if run.over:
            return
        run.over = True
        self.runs.remove(run)
        self._old_groups, self._old_groups_until = run.groups(), time.time() + GROUPS_LINGER_S
        for working in self.workers.values():
            working.hold(0, 0)
            if working.worker.gpu is not None:
                working.worker.gpu.pool_bytes = 0

    async def _serve(self) -> None:
        async for message in self._channel:
            match message:
                case ConfigureScheduler(report_interval_s=interval_s):
                    self._channel.send(SchedulerStarted(self.pid, PORT))
                    self._tasks.start(self._count(interval_s), "counting")
                case Retire(request, names):
                    self._tasks.start(self._retire(request, names), "retiring workers")
                case Remove(names):
                    for name in names:
                        self.forget(name)
                case StopScheduler():
                    break
        self.status = 0
        await self._channel.close()

    async def _retire(self, request: int, names: tuple[str, ...]) -> None:
        for name in names:
            if (working := self.workers.get(name)) is not None:
                working.drop_task()
        pace = max((w.agent.pace for name in names if (w := self.workers.get(name))), default=0.0)
        await asyncio.sleep(self._rng.uniform(*RETIRE_S) * pace)
        for name in names:
            self.forget(name)
        self._channel.send(Retired(request, names))

    async def _count(self, interval_s: float) -> None:
        while True:
            at = time.time()
            self._work(at)
            if not self.busy:
                self._channel.send(self._counts(at))
            await asyncio.sleep(interval_s)

    def _failed(self, what: str, error: Exception) -> None:
        """End, as a scheduler that failed."""
        self.status, self.reason = 1, f"failed: {what}: {error}"
        self._channel.abort()

    def _counts(self, at: float) -> Counts:
        queued = sum(run.queued for run in self.runs)
        old = self._old_groups if at < self._old_groups_until else ()
        spans, self._spans = self._spans, []
        return Counts(
            at=at,
            workers=tuple(working.counts() for working in self.workers.values()),
            groups=(*old, *(group for run in reversed(self.runs) for group in run.groups())),
            tasks=sum(run.total for run in self.runs),
            queued=queued,
            clients=1 + len(self.runs),
            adaptive_target=queued + sum(w.run is not None for w in self.workers.values()),
            spans=tuple(spans),
        )

    def _work(self, at: float) -> None:
        """Let every worker go on with its tasks until `at`."""
        for working in self.workers.values():
            if not working.agent.silent:
                self._go_on(working, at)
                working.worker.load = working.load()
                working.worker.spilled_bytes = working.spilled_bytes
        chatter.chat(self.workers.values(), self._rng)

    def _go_on(self, working: Working, at: float) -> None:
        """End a worker's tasks that are over, and give it new ones."""
        while working.run is None or working.task_ends_at <= at:
            begin = at - self._rng.random() * 0.3
            if working.run is not None:
                begin = working.task_ends_at
                self._end_task(working, working.run)
            if not self._take_task(working, max(begin, at - 1.0)):
                break

    def _end_task(self, working: Working, run: SimulatedRun) -> None:
        stage = run.counts[working.stage].stage
        seconds = working.task_ends_at - working.task_started_at
        erred = self._failures and self._rng.random() < TASK_FAILURE_RATE
        if not run.over:
            run.finish(working.stage, seconds, erred)
        if erred:
            working.agent.print(working.worker.name, chatter.task_failure(stage.prefix))
        elif working.stage + 1 < len(run.counts) and not run.over:
            held_bytes = working.managed_bytes + stage.result_bytes
            working.hold(working.in_memory + 1, held_bytes, working.spilled_bytes)
        if working.stage:
            before, here = run.counts[working.stage - 1], run.counts[working.stage]
            working.use_results(max(1, before.tasks // here.tasks))
        if len(self._spans) < SPANS_KEPT:
            name, began = working.worker.name, working.task_started_at
            self._spans.append(TaskSpan(name, stage.prefix, began, seconds, erred))

    def _take_task(self, working: Working, begin: float) -> bool:
        for run in self.runs:
            if (stage := run.take()) is not None:
                seconds = run.counts[stage].stage.task_s * self._rng.uniform(0.7, 1.3)
                working.run, working.stage = run, stage
                working.task_started_at, working.task_ends_at = begin, begin + seconds
                working.ready = 2 if self._rng.random() < 0.3 else 1
                return True
        working.run, working.ready = None, 0
        return False
