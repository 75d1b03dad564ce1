"""How far work is and what came of it: task groups, what tasks wait for, and runs in lines. Pure.

The time left is estimated in one way: of a run, from what it has done so far; of work that is no
run, from the present rate of all groups.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from gputui.model.frozen import frozen
from gputui.model.series import Metric
from gputui.model.snapshot import (
    RunState,
    RunStatus,
    SchedulerState,
    Snapshot,
    TaskGroupStatus,
    WorkerState,
)
from gputui.model.usage import Failure
from gputui.runs.text import differences, usage_facts
from gputui.runs.text import text as result_text
from gputui.tui.rendering import Line, Part, fitted, gauge, wrapped
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.detail import GAP, ROWS, Graph, side_by_side
from gputui.tui.rendering.metrics import silence
from gputui.tui.watched import Throughput, Watched
from gputui.tui.widgets.logbook import message_of

NAME_CELLS, COUNT_CELLS, RATE_CELLS = 16, 29, 9
SHORTEST_BAR, LONGEST_BAR = 8, 72
RATE_FROM = 60
"""Columns from which there is room for the rate."""
PAUSED = "paused, its memory is full"
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
        took_s, then_s = snapshot.taken_at - run.started_at, last_took_s(run, snapshot.runs)
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
    if not snapshot.any_up:
        yield f"{fmt.many(tasks, 'task')}: no worker is up"
    elif all(worker.state is WorkerState.PAUSED for worker in snapshot.workers):
        yield f"{fmt.many(tasks, 'task')}: every worker is paused, its memory is full"
        return
    for group in unfinished:
        if group.no_worker and group.needs:
            number, needs = fmt.many(group.no_worker, "task"), ", ".join(group.needs)
            yield f"{number} of {group.prefix}: no worker offers {needs}"
    for state, why in ((WorkerState.SILENT, silence), (WorkerState.PAUSED, lambda _: PAUSED)):
        held = [worker for worker in snapshot.workers if worker.state is state and worker.tasks]
        if held:
            number = fmt.many(sum(worker.tasks or 0 for worker in held), "task")
            more = f" (+{len(held) - 1} more)" if len(held) > 1 else ""
            yield f"{number}: {held[0].name} is {why(held[0])}{more}"


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
    return f"{fmt.took(then_s)} then, {how if abs(change) > SAME else 'as fast'} now"


def last_took_s(run: RunStatus, runs: Iterable[RunStatus]) -> float | None:
    """Return how long the last run before this one took that did the same, and was done."""
    before = [
        (other.started_at, other.ended_at)
        for other in runs
        if other.state is RunState.DONE and other.ended_at is not None
        and (other.preset, other.parameters) == (run.preset, run.parameters)
        and other.started_at < run.started_at
    ]  # fmt: skip
    began_at, ended_at = max(before, default=(0.0, None))
    return None if ended_at is None else ended_at - began_at


MARKS = {
    RunState.STARTING: ("◔", "accent"),
    RunState.RUNNING: ("●", "accent"),
    RunState.DONE: ("✔", "good"),
    RunState.FAILED: ("✖", "bad"),
    RunState.CANCELLED: ("■", "dim"),
    RunState.LOST: ("✖", "bad"),
}
"""How a run's state is shown: by shape and role."""


TRACEBACK_LINES = 14


@frozen
class RunRow:
    """A run as it is at one moment."""

    run: RunStatus
    took_s: float | None
    """None where it is not known when it ended."""
    began: str

    @classmethod
    def at(cls, run: RunStatus, now: float) -> "RunRow":
        """Return the run with the time that it has taken until `now`."""
        ended_at = run.ended_at if run.state.ended else now
        took_s = None if ended_at is None else ended_at - run.started_at
        return cls(run, took_s, fmt.moment(run.started_at, now))

    @property
    def role(self) -> str:
        """The role that its state is written in."""
        return MARKS[self.run.state][1]

    @property
    def name(self) -> str:
        """Its preset or script, without the folder."""
        return fmt.safe(self.run.preset.rpartition("/")[2])

    @property
    def parameters(self) -> str:
        """Its parameters in a line."""
        return fmt.safe(" ".join(f"{name}={value}" for name, value in self.run.parameters))


def run_lines(
    row: RunRow,
    width: int,
    log: tuple[str, ...] = (),
    defaults: str = "",
    then_s: float | None = None,
) -> list[Line]:
    """Describe a run, in lines that are no wider.

    `defaults` are the parameters that were not given; `then_s` is how long the last run of the same
    kind took.
    """
    run, took = row.run, fmt.took(row.took_s)
    if run.state is RunState.DONE and row.took_s is not None and then_s:
        took += f" ({compared(row.took_s, then_s)})"
    stages = ", ".join(f"{stage} {elapsed_s:.1f} s" for stage, elapsed_s in run.timings)
    title = [
        (f"{MARKS[run.state][0]} {run.state.value}", row.role),
        (f"  {fmt.safe(run.preset)}", "title"),
        (f"  began {row.began}", ""),
        (f", took {took}" if run.state.ended else f", {took} so far", ""),
    ]
    id: Line = [(f"  {fmt.safe(run.id)}", "dim")]
    fits = sum(len(text) for text, _ in (*title, *id)) <= width
    lines: list[Line] = [
        *([[*title, *id]] if fits else [title, id]),
        *wrapped(row.parameters, width),
        *wrapped(f"by default: {defaults}" if defaults else "", width, "dim"),
        *wrapped(stages, width, "dim"),
        *run_progress(run, row.took_s, then_s, width),
    ]
    if run.restarts:
        text = f"workers ended and restarted during it, {fmt.many(run.restarts, 'time')} in all"
        lines.append([(text, "warn")])
    if failure := run.failure:
        lines += [(), *wrapped(failure.message, width, "bad")]
        lines += wrapped(f"try: {failure.hint}", width, "accent") if failure.hint else []
        lines += _evidence(failure, log, width)
    elif run.state is RunState.LOST:
        lines += [(), *wrapped(run.summary, width, "bad")]
    if usage := usage_facts(run.usage):
        lines += [(), *_texts(result_text(usage, most=width), width)]
    numbers = result_lines(run.result_json, width)
    return [*lines, (), *numbers] if numbers else lines


def compare_lines(first: RunRow, second: RunRow, width: int) -> list[Line]:
    """Return two runs side by side; what differs comes first, and stands out."""
    each = max(8, (width - NAME_CELLS - 2) // 2)
    lines: list[Line] = []
    for name, *texts in differences(first.run, second.run):
        role = "dim" if texts[0] == texts[1] else "title"
        cells: list[Part] = [(f" {fitted(fmt.safe(text), each)}", role) for text in texts]
        lines.append([(fitted(fmt.safe(name), NAME_CELLS), "dim"), *cells])
    if first.took_s and second.took_s:
        lines += [(), [(compared(second.took_s, first.took_s), "accent")]]
    return lines


def _evidence(failure: Failure, log: tuple[str, ...], width: int) -> list[Line]:
    """Return how a run came to fail."""
    lines: list[Line] = []
    shown = tuple(map(message_of, failure.worker_log))
    for title, texts, role in (
        ("traceback", failure.traceback[-TRACEBACK_LINES:], ""),
        (f"last log lines of {fmt.safe(failure.worker)}", shown, "dim"),
        ("last log lines of the run", log, "dim"),
    ):
        if texts:
            lines += [(), [(title, "heading")]]
            lines += [line for text in texts for line in wrapped(text, width, role, "  ")]
    return lines


def result_lines(result_json: str, width: int) -> list[Line]:
    """Return an ended run's result as `--run` prints it, no wider; nothing without a result."""
    try:
        ended = json.loads(result_json or "{}")
        said = result_text(ended["result"], ended.get("units"), width)
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    return _texts(said, width)


def _texts(said: str, width: int) -> list[Line]:
    """Return a text of keys and values in lines that are no wider."""
    lines: list[Line] = []
    for line in map(fmt.safe, said.splitlines()):
        key, space, value = line.partition("  ")
        if len(line) > width or key.startswith(" ") or not value:
            lines += wrapped(line, width) or [()]
        else:
            lines.append([(key + space, "dim"), (value, "")])
    return lines


LEAST_READINGS = 3
LINES = ROWS + 3
"""Lines of the graphs of all GPUs, with their titles and the times below."""


def fleet_lines(watched: Watched, row: RunRow, width: int) -> list[Line]:
    """Return graphs of all GPUs, or CPU workers, during a run, next to each other.

    They go from its start to its end; nothing where that was not read.
    """
    run, cells, now = row.run, (width - GAP) // 2, watched.snapshot.taken_at
    begun_s, ended_s = now - run.started_at, now - (run.ended_at or now)
    blocks: list[list[Line]] = []
    gpus, busy = ("GPUS", "UTIL") if watched.on_gpus else ("WORKERS", "CPU")
    for title, metric in ((busy, Metric.UTILIZATION), ("MEM", Metric.MEMORY)):
        values = watched.history.together(metric, begun_s, ended_s)
        known = [value for value in values if value is not None]
        if len(known) < LEAST_READINGS:
            return []
        drawn = Graph(title, "", metric, f"{fmean(known):.0f} % on average", "")
        blocks.append(drawn.lines(_stretched(values, 2 * cells), cells))
    times: Line = [("0:00" + fmt.took(row.took_s).rjust(cells - 4), "dim")]
    lines = [side_by_side(parts) for parts in zip(*blocks, strict=True)]
    return [[(gpus, "heading")], *lines, side_by_side([times, times])]


def _stretched(values: Sequence[float | None], number: int) -> list[float | None]:
    """Return `number` values, each the nearest one.

    >>> _stretched([1, 2], 4), _stretched([1, 2, 3, 4], 2)
    ([1, 1, 2, 2], [1, 3])
    """
    return [values[place * len(values) // number] for place in range(number)]
