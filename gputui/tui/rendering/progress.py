"""How far work is: a line for each task group, what tasks wait for, a run's time left. Pure.

The time left is estimated in one way: of a run, from what it has done so far; of work that is no
run, from the present rate of all groups.
"""

from collections.abc import Iterable, Iterator, Sequence

from gputui.model.snapshot import (
    RunState,
    RunStatus,
    SchedulerState,
    Snapshot,
    TaskGroupStatus,
    WorkerState,
    WorkerStatus,
)
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.gauges import gauge
from gputui.tui.rendering.lines import Line, fitted, wrapped
from gputui.tui.rendering.marks import silence
from gputui.tui.totals import Throughput

NAME_CELLS, COUNT_CELLS, RATE_CELLS = 16, 29, 9
SHORTEST_BAR, LONGEST_BAR = 8, 72
RATE_FROM = 60
"""Columns from which there is room for the rate."""
SAME = 0.03
"""The share by which two runs may differ and still be as fast."""


def progress_lines(
    groups: Sequence[TaskGroupStatus], throughput: Throughput, width: int, height: int
) -> list[Line]:
    """Return a line for each group, the newest first, in at most `height` lines."""
    if not groups:
        return [[("no tasks", "dim")]]
    rate = RATE_CELLS if width >= RATE_FROM else 0
    name = max(5, min(NAME_CELLS, width - SHORTEST_BAR - COUNT_CELLS - rate))
    bar = min(LONGEST_BAR, max(SHORTEST_BAR, width - name - COUNT_CELLS - rate))
    titles = f"{'DONE':>13} {'RUN':>5}{'RATE'.rjust(rate) if rate else ''} {'FAILED':>6}"
    lines: list[Line] = [[(fitted("TASKS", name) + " " * (bar + 2) + titles, "heading")]]
    for group in list(reversed(groups))[: height - 1]:
        share = group.finished / group.total if group.total else 0.0
        pace = throughput.rate(group)
        pace_text = fmt.MISSING if pace is None else f"{pace:,.1f}/s"
        done = f"{fmt.count(group.finished)}/{fmt.count(group.total)}"
        counts = f" {done:>13} {fmt.count(group.executing):>5}"
        lines.append(
            [
                (fitted(fmt.safe(group.prefix), name) + " ", ""),
                *gauge(share, f"{share:.0%}", bar),
                (counts + (pace_text.rjust(rate) if rate else ""), ""),
                (f" {fmt.count(group.erred):>6}", "bad" if group.erred else "dim"),
            ]
        )
    if len(groups) > height - 1:
        lines[-1] = [(f"and {len(groups) - height + 2} more groups", "dim")]
    return lines


def work_lines(snapshot: Snapshot, throughput: Throughput, width: int) -> list[Line]:
    """Return how far the runs are that go on, and what unfinished tasks wait for."""
    unfinished = [group for group in snapshot.groups if group.finished < group.total]
    runs = [run for run in snapshot.runs if not run.state.ended]
    lines: list[Line] = []
    for run in runs:
        took_s, then = snapshot.taken_at - run.started_at, last_alike(run, snapshot.runs)
        then_s = then.ended_at - then.started_at if then and then.ended_at else None
        title: Line = [(f"{fmt.safe(run.preset)}  {fmt.elapsed(took_s)} so far", "title")]
        lines += [title, *run_progress(run, took_s, then_s, width), queue_line(run, snapshot)]
    if unfinished and not runs:
        left = throughput.left_s(unfinished)
        text = "" if left is None else f", {fmt.elapsed(left)} left"
        lines.append([(f"{_counted(snapshot)}{text}", "dim")])
    return [*lines, *waiting_lines(snapshot, width)]


def _counted(snapshot: Snapshot) -> str:
    """Return how many tasks are ready, and how many run."""
    running = sum(worker.executing or 0 for worker in snapshot.workers)
    ready = sum(worker.ready or 0 for worker in snapshot.workers) + snapshot.scheduler.queued
    return f"{fmt.count(ready)} ready, {fmt.count(running)} run"


def waiting_lines(snapshot: Snapshot, width: int) -> list[Line]:
    """Return the reasons why tasks wait, a sentence each."""
    return [line for text in _causes(snapshot) for line in wrapped(text, width, "warn")]


def _causes(snapshot: Snapshot) -> Iterator[str]:
    unfinished = [group for group in snapshot.groups if group.finished < group.total]
    if not unfinished:
        return
    scheduler = snapshot.scheduler
    if scheduler.state is SchedulerState.BUSY:
        yield f"the scheduler has not answered for {scheduler.busy_s:.0f} s"
    tasks = sum(group.total - group.finished for group in unfinished)
    if not snapshot.workers_up:
        yield f"{fmt.many(tasks, 'task')}: no worker is up"
    elif all(worker.state is WorkerState.PAUSED for worker in snapshot.workers):
        yield f"{fmt.many(tasks, 'task')}: every worker is paused, its memory is full"
        return
    for group in unfinished:
        if group.no_worker and group.needs:
            number, needs = fmt.many(group.no_worker, "task"), ", ".join(group.needs)
            yield f"{number} of {group.prefix}: no worker offers {needs}"
    for state, why in ((WorkerState.SILENT, silence), (WorkerState.PAUSED, _paused)):
        held = [worker for worker in snapshot.workers if worker.state is state and worker.tasks]
        if held:
            number = fmt.many(sum(worker.tasks or 0 for worker in held), "task")
            more = f" (+{len(held) - 1} more)" if len(held) > 1 else ""
            yield f"{number}: {held[0].name} is {why(held[0])}{more}"


def _paused(_worker: WorkerStatus) -> str:
    return "paused, its memory is full"


def queue_line(run: RunStatus, snapshot: Snapshot) -> Line:
    """Return the ready and running tasks, or whose run is ahead in the queue."""
    before = [
        other
        for other in snapshot.runs
        if not other.state.ended and other.started_at < run.started_at and other.done < other.total
    ]
    if before and run.total and not run.done:
        first = before[0]
        whose = f"{first.preset} of {first.user or 'another'} ({first.id})"
        more = f" (+{len(before) - 1} more)" if len(before) > 1 else ""
        return [(fmt.safe(f"queued behind {whose}{more}, whose tasks came first"), "warn")]
    return [(_counted(snapshot), "dim")]


def run_progress(
    run: RunStatus, took_s: float | None, then_s: float | None, width: int
) -> list[Line]:
    """Return how far a run is, the time left, and how it compares with the last one of its kind."""
    if run.state.ended or not run.total:
        return []
    share, took = run.done / run.total, took_s or 0.0
    left = f"  {fmt.elapsed(took * (1 - share) / share)} left" if share else ""
    then = f"  {compared(took / share, then_s)}" if share and then_s else ""
    after = f" {fmt.count(run.done)}/{fmt.count(run.total)}  {fmt.safe(run.stage)}{left}{then}"
    return [[*gauge(share, f"{share:.0%}", max(8, min(60, width - len(after)))), (after, "")]]


def compared(took_s: float, then_s: float) -> str:
    """Compare how long a run takes with how long another took.

    >>> compared(23.0, 25.0), compared(25.1, 25.0), compared(40.0, 25.0)
    ('0:25 then, 8 % faster now', '0:25 then, as fast now', '0:25 then, 60 % slower now')
    """
    change = took_s / then_s - 1 if then_s else 0.0
    how = f"{abs(change):.0%} {'slower' if change > 0 else 'faster'}".replace("%", " %")
    return f"{fmt.elapsed(then_s)} then, {how if abs(change) > SAME else 'as fast'} now"


def last_alike(run: RunStatus, runs: Iterable[RunStatus]) -> RunStatus | None:
    """Return the last run before this one that did the same, and was done."""
    before = [
        other
        for other in runs
        if other.state is RunState.DONE and other.ended_at is not None
        and (other.preset, other.parameters) == (run.preset, run.parameters)
        and other.started_at < run.started_at
    ]  # fmt: skip
    return max(before, key=lambda other: other.started_at, default=None)
