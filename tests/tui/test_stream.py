"""The task stream draws each task where and as long as it ran, the present at the right."""

from gputui.model.snapshot import TaskSpan
from gputui.tui.watched import ERRED, FIRST_PREFIX, IDLE, KEPT, TaskStream

A, B = FIRST_PREFIX, FIRST_PREFIX + 1


def test_a_task_fills_the_columns_of_its_time() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "qr", 2.0, 3.0)], at=6.0)
    assert list(stream.row("w", 10)) == [IDLE] * 5 + [A] * 4 + [IDLE]


def test_the_last_task_of_a_second_is_shown() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "first", 1.0, 0.2), TaskSpan("w", "last", 1.2, 0.7)], at=2.0)
    assert stream.row("w", 8)[6] == B


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


def test_a_failed_task_stands_out() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 1.0, 0.1, erred=True), TaskSpan("w", "a", 1.1, 0.9)], at=2.0)
    assert stream.row("w", 8)[6] == ERRED


def test_a_task_from_before_the_screen_is_let_be() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 1.0, 0.5)], at=1000.0)
    assert set(stream.row("w", 60)) == {IDLE}


def test_a_clock_that_jumps_either_way_is_survived() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 3.9)], at=3.9)
    stream.add([], at=1e9)
    assert set(stream.row("w", 60)) == {IDLE}
    stream.add([TaskSpan("w", "a", 3.0, 3.9)], at=7.0)


def test_prefixes_keep_their_place_in_the_legend() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "b", 0.0, 1.0), TaskSpan("w", "a", 1.0, 1.0)], at=2.0)
    stream.add([TaskSpan("w", "b", 2.0, 1.0)], at=3.0)
    assert stream.prefixes == ["b", "a"]


def test_lanes_of_workers_that_are_gone_are_forgotten() -> None:
    stream = TaskStream()
    stream.add([TaskSpan("w", "a", 0.0, 1.0), TaskSpan("v", "a", 0.0, 1.0)], at=1.0)
    stream.keep(["v"])
    assert set(stream.row("w", 4)) == {IDLE}
    assert stream.row("v", 4)[2] == A
