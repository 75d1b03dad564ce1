"""The task stream draws each task where and as long as it ran."""

from gputui.snapshot import TaskSpan
from gputui.tui.stream import EMPTY, ERRED, Stream


def test_a_task_fills_the_columns_of_its_time() -> None:
    stream = Stream(columns=10)
    stream.add([TaskSpan("w", "qr", 2.0, 3.0)], at=6.0)
    assert stream.lane("w") == [EMPTY, EMPTY, "qr", "qr", "qr", "qr", *[EMPTY] * 4]


def test_the_task_that_fills_most_of_a_column_is_shown() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "short", 1.0, 0.2), TaskSpan("w", "long", 1.2, 0.7)], at=2.0)
    assert stream.lane("w")[1] == "long"


def test_time_begins_again_at_the_left_and_wipes_as_it_goes() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "a", 0.0, 3.9)], at=3.9)
    stream.add([TaskSpan("w", "b", 4.0, 0.9)], at=5.0)
    assert stream.lane("w") == ["b", EMPTY, "a", "a"]


def test_only_the_columns_that_time_came_to_change() -> None:
    stream = Stream(columns=60)
    stream.add([TaskSpan("w", "a", 0.0, 59.0)], at=59.0)
    before = list(stream.lane("w"))
    stream.add([], at=61.0)
    changed = [i for i, (x, y) in enumerate(zip(before, stream.lane("w"), strict=True)) if x != y]
    assert set(changed) <= {0, 1}


def test_a_failed_task_stands_out() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "a", 1.0, 0.1, erred=True), TaskSpan("w", "a", 1.1, 0.9)], at=2.0)
    assert stream.lane("w")[1] == ERRED


def test_a_task_from_before_the_screen_is_let_be() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "a", 1.0, 0.5)], at=100.0)
    assert set(stream.lane("w")) == {EMPTY}


def test_a_clock_that_jumps_wipes_all() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "a", 0.0, 3.9)], at=3.9)
    stream.add([], at=1e9)
    assert set(stream.lane("w")) == {EMPTY}


def test_prefixes_keep_their_place_in_the_legend() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "b", 0.0, 1.0), TaskSpan("w", "a", 1.0, 1.0)], at=2.0)
    stream.add([TaskSpan("w", "b", 2.0, 1.0)], at=3.0)
    assert stream.prefixes == {"b": 0, "a": 1}


def test_lanes_of_workers_that_are_gone_are_forgotten() -> None:
    stream = Stream(columns=4)
    stream.add([TaskSpan("w", "a", 0.0, 1.0), TaskSpan("v", "a", 0.0, 1.0)], at=1.0)
    stream.keep(["v"])
    assert list(stream.lanes) == ["v"]
