"""Simulated computations: stages of tasks that workers take, one at a time, until all are done.

A stage's tasks become available as the stage before it finishes, as in a Dask graph of chunks;
a worker is given the deepest one that can run, so that results are used up soon. The counts
are those that a scheduler would report.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gputui.model.snapshot import TaskGroupStatus

SECONDS = 75.0
"""How long a simulated run is meant to take, on however many workers there are."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of task in a run."""

    prefix: str
    share: float
    """Of the run's time that is spent in it."""
    task_s: float
    """Seconds that a task takes, on average."""
    utilization_percent: float
    result_bytes: int
    """What a finished task holds on the device until the next stage used it."""
    device_share: float = 0.05
    """Of the device's memory, what a task takes while it runs."""


RECIPES: Mapping[str, tuple[Stage, ...]] = {
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
"""For a preset that has no recipe of its own."""


@dataclass(slots=True)
class StageCount:
    """A stage of one run, counted."""

    stage: Stage
    tasks: int
    started: int = 0
    finished: int = 0
    erred: int = 0
    used: int = 0
    """Results that the next stage has used up."""
    compute_s: float = 0.0


@dataclass(slots=True)
class SimulatedRun:
    """A run under way, counted by its tasks."""

    id: str
    preset: str
    parameters: tuple[tuple[str, str], ...]
    started_at: float
    counts: list[StageCount]
    fails_at: float | None = None
    """The share done at which it fails, for the one that is to."""
    over: bool = False
    """Whether its tasks are forgotten."""

    def take(self) -> int | None:
        """Return the deepest stage that has a task to run, and count one as started."""
        for index in range(len(self.counts) - 1, -1, -1):
            count = self.counts[index]
            if count.started < self._available(index):
                count.started += 1
                return index
        return None

    def _available(self, index: int) -> int:
        """Return how many tasks of a stage could have been started by now."""
        count = self.counts[index]
        if index == 0:
            return count.tasks
        before = self.counts[index - 1]
        if count.tasks == 1:
            return int(before.finished == before.tasks)
        return count.tasks * before.finished // before.tasks

    def finish(self, index: int, seconds: float, erred: bool = False) -> None:
        """Count a task of this stage as ended; one that erred is tried again."""
        count = self.counts[index]
        count.compute_s += seconds
        if erred:
            count.erred += 1
            count.started -= 1
            return
        count.finished += 1
        if index:
            before = self.counts[index - 1]
            before.used = before.tasks * count.finished // count.tasks

    def put_back(self, index: int) -> None:
        """Count a task that was lost with its worker as not yet started."""
        self.counts[index].started -= 1

    @property
    def done(self) -> int:
        """Finished tasks of all stages."""
        return sum(count.finished for count in self.counts)

    @property
    def total(self) -> int:
        """Tasks of all stages."""
        return sum(count.tasks for count in self.counts)

    @property
    def queued(self) -> int:
        """Tasks that could run if there were a free worker."""
        return sum(max(0, self._available(i) - c.started) for i, c in enumerate(self.counts))

    def groups(self) -> tuple[TaskGroupStatus, ...]:
        """Return its stages as a scheduler would count them."""
        return tuple(self._group(index, count) for index, count in enumerate(self.counts))

    def _group(self, index: int, count: StageCount) -> TaskGroupStatus:
        running = count.started - count.finished
        ready = max(0, self._available(index) - count.started)
        in_memory = count.finished - count.used
        return TaskGroupStatus(
            name=f"{count.stage.prefix}-{self.id}",
            prefix=count.stage.prefix,
            waiting=count.tasks - count.started - ready,
            queued=ready,
            processing=running,
            executing=running,
            memory=in_memory,
            released=count.used,
            erred=count.erred,
            compute_s=count.compute_s,
            transfer_s=count.compute_s * 0.03 if index else 0.0,
            nbytes=in_memory * count.stage.result_bytes,
        )

    @property
    def stage(self) -> str:
        """The present stage."""
        for count in self.counts:
            if count.finished < count.tasks:
                return count.stage.prefix
        return "gathering"


def build_run(
    run_id: str,
    preset: str,
    parameters: tuple[tuple[str, str], ...],
    started_at: float,
    workers: int,
) -> SimulatedRun:
    """Return a run with as many tasks as keep `workers` workers busy for about `SECONDS`."""
    counts = [
        StageCount(stage, max(1, round(max(1, workers) * SECONDS * stage.share / stage.task_s)))
        for stage in RECIPES.get(preset, GENERIC)
    ]
    return SimulatedRun(run_id, preset, parameters, started_at, counts)


def result_of(run: SimulatedRun, at: float, workers: int) -> tuple[str, str]:
    """Return a finished run's one-line summary and its `--json` object."""
    elapsed_s = max(0.1, round(at - run.started_at, 1))
    result, summary = _result(run, elapsed_s)
    whole = {
        "preset": run.preset,
        "parameters": dict(run.parameters),
        "backend": "cupy",
        "workers": workers,
        "failed_hosts": [],
        "elapsed_s": elapsed_s,
        "result": result,
        "restarts": 0,
        "version": "demo",
    }
    return summary, json.dumps(whole)


def _result(run: SimulatedRun, elapsed_s: float) -> tuple[dict[str, object], str]:
    if run.preset == "svd":
        values = [round(5000.26 * 0.0182 if i else 5000.26, 3) for i in range(10)]
        values = [values[0], *(round(v - 0.31 * i, 3) for i, v in enumerate(values[1:]))]
        return {"singular_values": values}, f"10 singular values, largest {values[0]:,}"
    if run.preset == "random-sum":
        numbers = 250_000_000_000
        return {
            "sum": 6.875e11 + 123456.789,
            "expected": 6.875e11,
            "standard_errors": 0.25,
            "numbers": numbers,
            "numbers_per_s": numbers / elapsed_s,
        }, f"sum 6.8750e11, 0.25 standard errors off, {numbers / elapsed_s:.2e} numbers/s"
    rate = run.total / elapsed_s
    return {"tasks": run.total, "tasks_per_s": rate}, f"{run.total:,} tasks, {rate:.0f}/s"
