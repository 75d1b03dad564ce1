"""How fast a group goes on is told from its counts."""

from gputui.model.snapshot import TaskGroupStatus
from gputui.tui.watched import Throughput


def group(finished: int) -> TaskGroupStatus:
    return TaskGroupStatus("g-1", "g", waiting=100 - finished, released=finished)


def test_a_pace_is_told_after_some_seconds() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    assert throughput.rate(group(10)) is None
    throughput.look([group(30)], 4.0)
    assert (throughput.rate(group(30)), throughput.left_s([group(30)])) == (5.0, 14.0)


def test_only_the_last_seconds_count() -> None:
    throughput = Throughput()
    for second in range(100):
        throughput.look([group(0 if second < 50 else second - 50)], float(second))
    assert throughput.rate(group(49)) == 1.0


def test_a_rate_of_nothing_is_known_only_after_a_while() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    throughput.look([group(10)], 5.0)
    assert throughput.rate(group(10)) is None
    throughput.look([group(10)], 12.0)
    assert (throughput.rate(group(10)), throughput.left_s([group(10)])) == (0.0, None)


def test_groups_that_are_gone_are_forgotten() -> None:
    throughput = Throughput()
    throughput.look([group(10)], 0.0)
    throughput.look([], 2.0)
    throughput.look([group(20)], 4.0)
    assert throughput.rate(group(20)) is None
