"""Simulated computations: stages of tasks that workers take, one at a time, until all are done.

A stage's tasks become available as the stage before it finishes, as in a Dask graph of chunks;
a worker is given the deepest one that can run. The counts are those that a scheduler reports.
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
    """Size of a result, held on the device until the next stage used it."""
    device_share: float = 0.05
    """Share of the device's memory that a running task takes."""


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
    compute_s: float = 0.0
    before: "StageCount | None" = None
    after: "StageCount | None" = None

    @property
    def available(self) -> int:
        """How many of its tasks could be started now."""
        done, of = (self.before.finished, self.before.tasks) if self.before else (1, 1)
        return self.tasks * done // of - self.started

    @property
    def used(self) -> int:
        """Results that the next stage has used up."""
        return self.tasks * self.after.finished // self.after.tasks if self.after else 0

    def group(self, run: str) -> TaskGroupStatus:
        """Return it as a scheduler would count it."""
        ready, in_memory = max(0, self.available), max(0, self.finished - self.used)
        return TaskGroupStatus(
            name=f"{self.stage.prefix}-{run}",
            prefix=self.stage.prefix,
            waiting=self.tasks - self.started - ready,
            queued=ready,
            processing=self.started - self.finished,
            memory=in_memory,
            released=self.finished - in_memory,
            erred=self.erred,
            compute_s=self.compute_s,
            transfer_s=self.compute_s * 0.03 if self.before else 0.0,
            nbytes=in_memory * self.stage.result_bytes,
        )


class SimulatedRun:
    """A run under way, with as many tasks as keep its workers busy for about `SECONDS`."""

    def __init__(
        self,
        id: str,
        preset: str,
        parameters: tuple[tuple[str, str], ...],
        started_at: float,
        workers: int,
    ) -> None:
        self.id, self.preset, self.parameters = id, preset, parameters
        self.started_at = started_at
        self.fails = False
        """Whether it is to fail on the way."""
        self.counts: list[StageCount] = []
        before = None
        for stage in RECIPES.get(preset, GENERIC):
            tasks = max(1, round(max(1, workers) * SECONDS * stage.share / stage.task_s))
            count = StageCount(stage, tasks, before=before)
            if before is not None:
                before.after = count
            self.counts.append(count)
            before = count

    def take(self) -> StageCount | None:
        """Count a task as started, of the deepest stage that has one to run."""
        for count in reversed(self.counts):
            if count.available > 0:
                count.started += 1
                return count
        return None

    @property
    def done(self) -> int:
        """Finished tasks of all stages."""
        return sum(count.finished for count in self.counts)

    @property
    def total(self) -> int:
        """Tasks of all stages."""
        return sum(count.tasks for count in self.counts)

    @property
    def stage(self) -> str:
        """The present stage."""
        left = (count.stage.prefix for count in self.counts if count.finished < count.tasks)
        return next(left, "gathering")

    def groups(self) -> tuple[TaskGroupStatus, ...]:
        """Return its stages as a scheduler would count them."""
        return tuple(count.group(self.id) for count in self.counts)

    def result(self, at: float, workers: int) -> tuple[str, str]:
        """Return its one-line summary and its `--json` object, once it is done."""
        elapsed_s = max(0.1, round(at - self.started_at, 1))
        match self.preset:
            case "svd":
                values = [5000.26, *(round(91.005 - 0.31 * index, 3) for index in range(1, 10))]
                result: dict[str, object] = {"singular_values": values}
                summary = f"10 singular values, largest {values[0]:,}"
            case "random-sum":
                rate = 250_000_000_000 / elapsed_s
                result = {"sum": 6.875e11 + 123456.789, "expected": 6.875e11}
                result |= {"standard_errors": 0.25, "numbers": 250_000_000_000}
                result |= {"numbers_per_s": rate}
                summary = f"sum 6.8750e11, 0.25 standard errors off, {rate:.2e} numbers/s"
            case _:
                rate = self.total / elapsed_s
                result = {"tasks": self.total, "tasks_per_s": rate}
                summary = f"{self.total:,} tasks, {rate:.0f}/s"
        whole = {
            "preset": self.preset,
            "parameters": dict(self.parameters),
            "backend": "cupy",
            "workers": workers,
            "failed_hosts": [],
            "elapsed_s": elapsed_s,
            "result": result,
            "restarts": 0,
            "version": "demo",
        }
        return summary, json.dumps(whole)
