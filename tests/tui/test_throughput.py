"""How fast a group goes on is told from its counts."""

from gputui.model.snapshot import TaskGroupStatus
from gputui.tui.totals import Throughput


def group(finished: int) -> TaskGroupStatus:
    return TaskGroupStatus("g-1", "g", waiting=100 - finished, released=finished)


def test_a_pace_is_told_after_some_seconds() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    assert throughput.pace(group(10)).tasks_per_s is None
    throughput.look([group(30)], 4.0)
    pace = throughput.pace(group(30))
    assert (pace.tasks_per_s, pace.left_s) == (5.0, 14.0)


def test_only_the_last_seconds_count() -> None:
    throughput = Throughput()
    for second in range(100):
        throughput.look([group(0 if second < 50 else second - 50)], float(second))
    assert throughput.pace(group(49)).tasks_per_s == 1.0


def test_a_group_that_stands_still_has_no_time_left() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    throughput.look([group(10)], 5.0)
    pace = throughput.pace(group(10))
    assert (pace.tasks_per_s, pace.left_s) == (0.0, None)


def test_a_finished_group_needs_no_time() -> None:
    throughput = Throughput()
    throughput.look([group(90)], 0.0)
    throughput.look([group(100)], 5.0)
    assert throughput.pace(group(100)).left_s == 0.0


def test_groups_that_are_gone_are_forgotten() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    throughput.look([], 2.0)
    throughput.look([group(20)], 4.0)
    assert throughput.pace(group(20)).tasks_per_s is None
