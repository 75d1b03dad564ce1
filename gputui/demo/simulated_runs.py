"""The runs of a simulated cluster, in place of the headless commands that a head starts.

A run is stages of tasks that workers take, one at a time, until all are done: those of a stage as
soon as all of the stage before it were taken.
"""

import asyncio
import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from gputui.model.snapshot import RunState, RunStatus, TaskGroupStatus
from gputui.model.usage import Failure
from gputui.protocol.frontend import StartRun

SECONDS = 75.0
"""How long a simulated run is meant to take, on however many workers there are."""
FAILS_AT = 0.4
"""The share of its tasks that is done when one fails."""
FAILURE = Failure(
    "OutOfMemoryError", "11.2 GiB would not fit in 9.8 GiB", "use chunk_rows ≤ 40,000"
)


@dataclass(slots=True)
class Stage:
    """One kind of task in a run, and how far a run is with it."""

    prefix: str
    share: float
    """Of the run's time that is spent in it."""
    task_s: float
    """Seconds that a task takes, on average."""
    utilization_percent: float
    result_bytes: int
    """Size of a result, held on the device until the next stage used it."""
    device_share: float = 0.05
    """Share of the device's memory that a running task takes."""
    tasks: int = 0
    started: int = 0
    finished: int = 0
    compute_s: float = 0.0


STAGES: Mapping[str, tuple[Stage, ...]] = {
    "random-sum": (
        Stage("draw-and-sum", 0.94, 2.2, 98, 2**20, 0.12),
        Stage("sum-aggregate", 0.06, 0.4, 22, 2**10),
    ),
    "svd": (
        Stage("random_sample", 0.25, 1.3, 96, 900 * 2**20, 0.35),
        Stage("qr", 0.45, 2.4, 91, 450 * 2**20, 0.58),
        Stage("stack-qr", 0.05, 0.6, 18, 120 * 2**20),
        Stage("dot", 0.25, 1.6, 95, 2**20, 0.5),
    ),
    "matmul": (
        Stage("random_sample", 0.15, 1.2, 97, 700 * 2**20),
        Stage("tensordot", 0.75, 2.8, 99, 300 * 2**20, 0.72),
        Stage("sum", 0.10, 0.5, 35, 2**20),
    ),
    "torch": (Stage("train_step", 1.0, 3.1, 93, 2**22, 0.44),),
}
GENERIC = (
    Stage("from-array", 0.3, 1.4, 45, 400 * 2**20),
    Stage("map-blocks", 0.6, 2.0, 84, 100 * 2**20, 0.3),
    Stage("aggregate", 0.1, 0.5, 25, 2**18),
)
"""For a preset that has none of its own."""
SINGULAR_VALUES = [5000.26, *(round(91.005 - 0.31 * index, 3) for index in range(1, 10))]
FIGURES = {
    "svd": {
        "kind": "line",
        "title": "singular values",
        "x": [*range(1, 11)],
        "y": SINGULAR_VALUES,
        "logarithmic": True,
    }
}
RESULTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "svd": ("10 singular values, largest 5,000.26", {"singular_values": SINGULAR_VALUES}),
    "random-sum": (
        "sum 6.8750e11, 0.25 standard errors off",
        {"sum": 6.875e11 + 123456.789, "expected": 6.875e11, "standard_errors": 0.25},
    ),
}
"""A line and the whole of it."""


class SimulatedRun:
    """A run from its start to its end; it has what a head uses of a run's `Child`."""

    reason = ""
    last_log_lines: tuple[str, ...] = ()

    def __init__(self, id: str, request: StartRun, workers: int, *, fails: bool) -> None:
        self.id, self._request, self._fails = id, request, fails
        self._started_at = time.time()
        self.cancelled, self.ended = asyncio.Event(), asyncio.Event()
        self.stages = [
            replace(each, tasks=max(1, round(max(1, workers) * SECONDS * each.share / each.task_s)))
            for each in STAGES.get(request.preset, GENERIC)
        ]
        """As many tasks as keep so many workers busy for about `SECONDS`."""

    def send_signal(self, _number: signal.Signals) -> None:
        """Cancel it."""
        self.cancelled.set()

    async def wait(self) -> int | None:
        """Return 0 once it has ended."""
        await self.ended.wait()
        return 0

    async def end(self, grace_s: float, ask: signal.Signals | None) -> int | None:
        """Cancel it."""
        self.cancelled.set()
        return await self.wait()

    def groups(self) -> tuple[TaskGroupStatus, ...]:
        """Return its stages as a scheduler would count them."""
        found, before_started = [], True
        for stage, after in zip_longest(self.stages, self.stages[1:]):
            left = stage.tasks - stage.started
            used = stage.tasks * after.finished // after.tasks if after else 0
            in_memory = max(0, stage.finished - used)
            found.append(
                TaskGroupStatus(
                    name=f"{stage.prefix}-{self.id}",
                    prefix=stage.prefix,
                    waiting=0 if before_started else left,
                    queued=left if before_started else 0,
                    processing=stage.started - stage.finished,
                    executing=stage.started - stage.finished,
                    memory=in_memory,
                    released=stage.finished - in_memory,
                    compute_s=stage.compute_s,
                    transfer_s=stage.compute_s * 0.03,
                    nbytes=in_memory * stage.result_bytes,
                )
            )
            before_started = left == 0
        return tuple(found)

    def status(self) -> RunStatus:
        """Return how it is now."""
        done = sum(stage.finished for stage in self.stages)
        total = sum(stage.tasks for stage in self.stages)
        left = [each.prefix for each in self.stages if each.finished < each.tasks]
        status = RunStatus(
            id=self.id,
            preset=self._request.preset,
            parameters=self._request.parameters,
            backend=self._request.backend,
            state=RunState.RUNNING,
            started_at=self._started_at,
            stage=left[0] if left else "gathering",
            done=done,
            total=total,
        )
        if self.cancelled.is_set():
            return replace(status, state=RunState.CANCELLED, stage="", summary="cancelled")
        if self._fails and done >= FAILS_AT * total:
            return replace(status, state=RunState.FAILED, stage="", failure=FAILURE)
        return status if left else self._done(status)

    def _done(self, status: RunStatus) -> RunStatus:
        elapsed_s = max(0.1, round(time.time() - self._started_at, 1))
        rate = status.total / elapsed_s
        usual = f"{status.total:,} tasks, {rate:.0f}/s", {"tasks_per_s": rate}
        summary, result = RESULTS.get(status.preset, usual)
        whole = {
            "preset": status.preset,
            "parameters": dict(status.parameters),
            "backend": "cupy",
            "elapsed_s": elapsed_s,
            "result": result,
            "figure": FIGURES.get(status.preset),
            "version": "demo",
        }
        return replace(
            status,
            state=RunState.DONE,
            stage="",
            summary=summary,
            result_json=json.dumps(whole),
        )
