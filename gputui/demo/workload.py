"""The runs of a simulated cluster: begun, worked on task by task by its workers, and ended."""

import random

from gputui.demo import chatter
from gputui.demo.devices import Worker
from gputui.demo.event_log import EventLog
from gputui.demo.work import SimulatedRun, build_run, result_of
from gputui.snapshot import RunState, RunStatus, Severity, TaskGroupStatus, TaskSpan, WorkerState

SPANS_KEPT = 2_000
"""Of the tasks that ended in a second, how many the snapshot tells of."""
GROUPS_LINGER_S = 6.0
"""How long the groups of an ended run are still shown."""
BETWEEN_RUNS_S = 7.0
OWN_RUNS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("random-sum", (("size", "500000"), ("seed", "1"))),
    ("svd", (("rows", "16000000"), ("cols", "1000"))),
    ("matmul", (("size", "131072"), ("dtype", "float32"))),
    ("torch", (("steps", "2000"),)),
)
"""What runs by itself, over and over, so that there is something to see."""
TASK_FAILURE_RATE = 1 / 40_000


class Workload:
    """Runs under way, runs that ended, and the tasks that ended since the last snapshot."""

    def __init__(self, rng: random.Random, event_log: EventLog, *, failures: bool) -> None:
        self.runs: list[SimulatedRun] = []
        """The latest first: the order in which a free worker looks for a task."""
        self._ended: list[RunStatus] = []
        self._rng = rng
        self._event_log = event_log
        self._failures = failures
        self._next_run_at: float | None = None
        self._own_runs = 0
        self._spans: list[TaskSpan] = []
        self._old_groups: tuple[TaskGroupStatus, ...] = ()
        self._old_groups_until = 0.0

    @property
    def tasks(self) -> int:
        """Tasks of all runs under way."""
        return sum(run.total for run in self.runs)

    @property
    def queued(self) -> int:
        """Tasks that could run if there were a free worker."""
        return sum(run.queued for run in self.runs)

    def groups(self, at: float) -> tuple[TaskGroupStatus, ...]:
        """Return the groups of the runs under way, and for a while those of the last one."""
        old = self._old_groups if at < self._old_groups_until else ()
        return (*old, *(group for run in reversed(self.runs) for group in run.groups()))

    def statuses(self) -> tuple[RunStatus, ...]:
        """Return all runs, the first one first."""
        return (*self._ended, *(run.status() for run in reversed(self.runs)))

    def take_spans(self) -> tuple[TaskSpan, ...]:
        """Return the tasks that ended since the last call."""
        spans, self._spans = self._spans, []
        return tuple(spans)

    def go_on(self, worker: Worker, at: float) -> bool:
        """End a worker's tasks that are over and give it new ones; return whether any ended."""
        ended = False
        while worker.run is None or worker.task_ends_at <= at:
            begin = at - self._rng.random() * 0.3
            if worker.run is not None:
                begin = worker.task_ends_at
                ended = True
                self._end_task(worker, worker.run)
            if not self._take_task(worker, begin):
                break
        return ended

    def _end_task(self, worker: Worker, run: SimulatedRun) -> None:
        index = worker.stage
        stage = run.counts[index].stage
        seconds = worker.task_ends_at - worker.task_started_at
        erred = self._failures and self._rng.random() < TASK_FAILURE_RATE
        if not run.state.ended:
            run.finish(index, seconds, erred)
        if erred:
            self._event_log.log(
                worker.task_ends_at, worker.name, chatter.task_failure(stage.prefix)
            )
        elif index + 1 < len(run.counts):
            worker.keep_result(stage.result_bytes)
        if index:
            worker.use_results(max(1, run.counts[index - 1].tasks // run.counts[index].tasks))
        if len(self._spans) < SPANS_KEPT:
            self._spans.append(
                TaskSpan(worker.name, stage.prefix, worker.task_started_at, seconds, erred)
            )

    def _take_task(self, worker: Worker, begin: float) -> bool:
        for run in self.runs:
            index = run.take()
            if index is not None:
                seconds = run.counts[index].stage.task_s * self._rng.uniform(0.7, 1.3)
                worker.run, worker.stage = run, index
                worker.task_started_at, worker.task_ends_at = begin, begin + seconds
                worker.ready = 2 if self._rng.random() < 0.3 else 1
                worker.state = WorkerState.BUSY
                return True
        worker.run, worker.ready, worker.state = None, 0, WorkerState.IDLE
        return False

    def begin(
        self, preset: str, parameters: tuple[tuple[str, str], ...], at: float, workers: int
    ) -> SimulatedRun:
        """Begin a run beside those that are under way."""
        run_id = f"{len(self._ended) + len(self.runs) + 1:02d}{self._rng.getrandbits(24):06x}"
        run = build_run(run_id, preset, parameters, at, workers)
        self.runs.insert(0, run)
        text = f"{preset} on {workers} workers"
        self._event_log.tell(at, Severity.INFO, run_id, "started", text)
        return run

    def turn(self, at: float, workers: int) -> list[SimulatedRun]:
        """End runs that are done or fail, begin the next of our own; return those that ended."""
        ended = []
        for run in list(self.runs):
            if run.fails_at is not None and run.done >= run.fails_at * run.total:
                text = "11.2 GiB would not fit in 9.8 GiB: use chunk_rows ≤ 40,000"
                self.end(run, RunState.FAILED, at, text, "OutOfMemoryError")
                ended.append(run)
            elif run.done == run.total:
                summary, run.result_json = result_of(run, at, workers)
                self.end(run, RunState.DONE, at, summary)
                ended.append(run)
        self._begin_own(at, workers)
        return ended

    def _begin_own(self, at: float, workers: int) -> None:
        if self.runs or not workers:
            self._next_run_at = None
        elif self._next_run_at is None:
            self._next_run_at = at + (BETWEEN_RUNS_S if self._own_runs else 2.0)
        elif at >= self._next_run_at:
            preset, parameters = OWN_RUNS[self._own_runs % len(OWN_RUNS)]
            run = self.begin(preset, parameters, at, workers)
            if self._failures and self._own_runs == 2:
                run.fails_at = 0.4
            self._own_runs += 1

    def end(
        self, run: SimulatedRun, state: RunState, at: float, summary: str, error_type: str = ""
    ) -> None:
        """End a run; the tasks that it still has are forgotten."""
        run.end(state, at, summary, error_type)
        self.runs.remove(run)
        self._ended.append(run.status())
        self._old_groups, self._old_groups_until = run.groups(), at + GROUPS_LINGER_S
        severity = Severity.ERROR if state is RunState.FAILED else Severity.INFO
        self._event_log.tell(at, severity, run.id, state.value, f"{run.preset}: {summary}")
