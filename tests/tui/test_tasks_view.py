"""The tasks view: progress and pace by group, and a stream of tasks in a lane per worker."""

import time
from dataclasses import replace

import pytest

from gputui.model.snapshot import (
    RunState,
    RunStatus,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerState,
    WorkerStatus,
)
from gputui.protocol.frontend import SnapshotTaken
from gputui.tui.frame import SHORTEST_FRAME_S
from gputui.tui.rendering.palette import Palette
from gputui.tui.rendering.work import progress_lines, queue_line, run_progress, waiting_lines
from gputui.tui.views.tasks_view import legend
from gputui.tui.watched import ERRED, FIRST_PREFIX, IDLE, KEPT, TaskStream, Throughput
from tests.tui.build import EPOCH, device, host, snapshot, texts, worker
from tests.tui.still import Still

GROUPS = (
    TaskGroupStatus("qr-1", "qr", waiting=50, processing=10, executing=2, memory=30, erred=10),
    TaskGroupStatus("dot-1", "dot", waiting=100),
)


def busy(workers: int = 2) -> Snapshot:
    """Return a cluster that works on two groups."""
    return snapshot(
        host("h", *(device(number) for number in range(workers))),
        workers=tuple(worker(number) for number in range(workers)),
        groups=GROUPS,
        spans=(TaskSpan("h:gpu1", "qr", EPOCH - 5, 5.0),),
    )


def test_progress_says_what_is_done_runs_and_failed() -> None:
    lines = texts(progress_lines(GROUPS[:1], Throughput(), 80, 10))
    assert lines[1].split()[-5:] == ["40%", "40/100", "2", "–", "10"]
    assert lines[1].rstrip().endswith("10")


def test_more_groups_than_there_is_room_for_are_counted() -> None:
    groups = tuple(replace(GROUPS[0], name=f"g{n}") for n in range(20))
    lines = texts(progress_lines(groups, Throughput(), 80, 6))
    assert len(lines) == 6
    assert lines[-1] == "and 16 more groups"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_bars_are_as_wide_as_each_other(width: int) -> None:
    lines = texts(progress_lines(GROUPS, Throughput(), width, 10))
    assert len({len(line) for line in lines}) == 1


async def test_groups_and_lanes_are_shown_with_a_legend() -> None:
    async with Still(busy()).showing() as on:
        await on.press("3", "TASK STREAM  ✖ failed  ▇ qr", "h:gpu0", "lanes 1–2 of 2")
        lane = next(line for line in on.text.splitlines() if line.startswith("h:gpu1"))
        assert "▇▇▇▇▇" in lane


async def test_the_lanes_in_sight_are_counted_once_they_have_room() -> None:
    async with Still(busy(31)).showing("gpu30", size=(120, 40)) as on:
        at_once = time.monotonic() + SHORTEST_FRAME_S  # from then on, what is asked for is drawn
        await on.until(lambda: time.monotonic() > at_once)
        await on.press("3", "lanes 1–29 of 31", "TASK STREAM  ✖ failed  ▇ qr")


async def test_a_pace_is_shown_once_it_is_known() -> None:
    async with Still(busy()).showing("TASK STREAM", keys="3", size=(100, 24)) as screen:
        later = replace(GROUPS[0], waiting=10, memory=70)
        screen.link.put(
            SnapshotTaken(replace(busy(), sequence=2, taken_at=EPOCH + 4, groups=(later,)))
        )
        await screen.sees("10.0/s", "0:02")


async def test_one_moves_through_the_lanes() -> None:
    async with Still(busy(60)).showing("lanes 1–13 of 60", keys="3") as on:
        await on.press("G", "lanes 48–60 of 60", "h:gpu59")
        await on.press(["g", *"jjjjjjjjjjjjjj"], "lanes 3–15 of 60")
        await on.press(["enter"], "h › h:gpu14")


async def test_without_tasks_it_says_so() -> None:
    async with Still().showing() as screen:
        await screen.press("3", "no tasks", "h:gpu0")


NEEDS = TaskGroupStatus("f-1", "f", no_worker=2, needs=("FOO",))
SILENT = worker(0, state=WorkerState.SILENT, silent_for_s=12.0, executing=1, ready=2)
ALSO = replace(SILENT, name="h:gpu2", executing=0, silent_for_s=9.0)
MEMORY = "worker is paused, its memory is full"
FULL = worker(0, state=WorkerState.PAUSED, executing=0, ready=3)


@pytest.mark.parametrize(
    ("group", "workers", "said"),
    [
        (NEEDS, (worker(0),), "2 tasks of f: no worker offers FOO"),
        (GROUPS[0], (SILENT, worker(1)), "3 tasks: h:gpu0 is silent 12s"),
        (GROUPS[0], (SILENT, ALSO, worker(1)), "5 tasks: h:gpu0 is silent 12s (+1 more)"),
        (GROUPS[0], (FULL, worker(1)), "3 tasks: h:gpu0 is paused, its memory is full"),
        # The scheduler gives no task to a worker that is paused: these wait with the scheduler.
        (
            GROUPS[0],
            (replace(FULL, ready=0),),
            "60 tasks: every worker is paused, its memory is full",
        ),
    ],
    ids=["a resource", "a silent worker", "silent workers", "memory", "all memory"],
)
def test_what_tasks_wait_for_is_said(
    group: TaskGroupStatus, workers: tuple[WorkerStatus, ...], said: str
) -> None:
    cluster = snapshot(host("h"), workers=workers, groups=(group,))
    assert texts(waiting_lines(cluster, 80)) == [said]


def test_a_run_says_its_time_left_once_and_how_it_compares_with_the_last_one() -> None:
    run = RunStatus("svd-2", "svd", (), RunState.RUNNING, EPOCH, done=50, total=100)
    (line,) = texts(run_progress(run, 10.0, 25.0, 100))
    assert line.endswith("50/100    0:10 left  0:25 then, 20 % faster now")


def test_a_run_behind_another_says_whose_and_why() -> None:
    ahead = RunStatus("svd-1", "svd", (), RunState.RUNNING, EPOCH, done=5, total=100, user="alice")
    waiting = RunStatus("mean-2", "mean", (), RunState.RUNNING, EPOCH + 1, total=12, user="bob")
    for others, run, said in (
        ([ahead], waiting, "queued behind svd of alice (svd-1), whose tasks came first"),
        (
            [ahead, replace(ahead, id="svd-0")],
            waiting,
            "queued behind svd of alice (svd-1) (+1 more), whose tasks came first",
        ),
        ([ahead], replace(waiting, done=1), "0 ready, 0 run"),
        ([ahead], replace(waiting, total=0), "0 ready, 0 run"),
        ([replace(ahead, done=100)], waiting, "0 ready, 0 run"),
        ([replace(ahead, state=RunState.DONE)], waiting, "0 ready, 0 run"),
    ):
        cluster = snapshot(host("h", device()), workers=(worker(),), runs=(*others, run))
        assert texts([queue_line(run, cluster)]) == [said]


async def test_a_run_that_waits_says_for_whose_on_its_page_and_in_the_tasks_view() -> None:
    ahead = RunStatus("svd-1", "svd", (), RunState.RUNNING, EPOCH, total=9, user="alice")
    waiting = RunStatus("mean-2", "mean", (), RunState.RUNNING, EPOCH + 1, total=12)
    async with Still(
        snapshot(host("h", device()), workers=(worker(),), runs=(ahead, waiting))
    ).showing("h:gpu0") as screen:
        for view in "3", "6":
            await screen.press([view], "queued behind svd of alice (svd-1)")


def group(finished: int) -> TaskGroupStatus:
    return TaskGroupStatus("g-1", "g", waiting=100 - finished, released=finished)


@pytest.mark.parametrize(
    ("looks", "rate", "left_s"),
    [
        ({0.0: [10]}, None, None),
        ({0.0: [10], 4.0: [30]}, 5.0, 14.0),
        ({float(at): [max(0, at - 50)] for at in range(100)}, 1.0, 51.0),
        ({0.0: [10], 5.0: [10]}, None, None),
        ({0.0: [10], 12.0: [10]}, 0.0, None),
        ({0.0: [10], 2.0: [], 4.0: [20]}, None, None),
    ],
    ids=["not at once", "after seconds", "of the last seconds", "not yet", "of nothing", "gone"],
)
def test_a_pace_is_that_of_the_last_seconds_once_it_is_known(
    looks: dict[float, list[int]], rate: float | None, left_s: float | None
) -> None:
    throughput = Throughput()
    for at, finished in looks.items():
        throughput.look([*map(group, finished)], at)
    now = group(*finished)
    assert (throughput.rate(now), throughput.left_s([now])) == (rate, left_s)


A, B = FIRST_PREFIX, FIRST_PREFIX + 1


@pytest.mark.parametrize(
    ("spans", "at", "row"),
    [
        ([TaskSpan("w", "qr", 2.0, 3.0)], 6.0, [IDLE] * 5 + [A] * 4 + [IDLE]),
        ([TaskSpan("w", "a", 1.0, 0.2), TaskSpan("w", "b", 1.2, 0.7)], 2.0, [IDLE] * 6 + [B, IDLE]),
        (
            [TaskSpan("w", "a", 1.0, 0.1, erred=True), TaskSpan("w", "a", 1.1, 0.9)],
            2.0,
            [IDLE] * 6 + [ERRED, A],
        ),
        ([TaskSpan("w", "a", 1.0, 0.5)], 1000.0, [IDLE] * 60),
    ],
    ids=["the columns of its time", "the last of a second", "a failed one", "before the screen"],
)
def test_a_task_fills(spans: list[TaskSpan], at: float, row: list[int]) -> None:
    stream = TaskStream()
    stream.add(spans, at=at)
    assert list(stream.row("w", len(row))) == row


def test_the_present_is_at_the_right_and_the_past_moves_to_the_left() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 5.9)], at=5.9)
    stream.add([TaskSpan("w", "b", 6.0, 0.9)], at=6.9)
    assert list(stream.row("w", 4)) == [A, A, A, B]
    stream.add([], at=7.0)
    assert list(stream.row("w", 4)) == [A, A, B, IDLE]


def test_a_lane_that_is_wider_than_what_is_kept_is_empty_at_the_left() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 299.5)], at=300.0)
    row = stream.row("w", 280)
    assert len(row) == 280
    assert set(row[: 280 - KEPT]) == {IDLE}
    assert row[280 - KEPT] == A


def test_a_clock_that_jumps_either_way_is_survived() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 3.9)], at=3.9)
    stream.add([], at=1e9)
    assert set(stream.row("w", 60)) == {IDLE}
    stream.add([TaskSpan("w", "a", 3.0, 3.9)], at=7.0)


def test_lanes_of_workers_that_are_gone_are_forgotten() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 1.0), TaskSpan("v", "a", 0.0, 1.0)], at=1.0)
    stream.keep(["v"])
    assert set(stream.row("w", 4)) == {IDLE}
    assert stream.row("v", 4)[2] == A


@pytest.mark.parametrize("width", [30, 57, 80])
def test_the_legend_of_the_stream_names_its_marks_whole_and_failures_first(width: int) -> None:
    prefixes = ["normal", "getitem", "qr", "dot", "sum"]
    (text,) = texts([legend(prefixes, range(7), Palette({}), width)])
    assert len(text) <= width
    assert text.startswith("TASK STREAM  ✖ failed")
    assert text.split()[-1] in (*prefixes, "failed")
