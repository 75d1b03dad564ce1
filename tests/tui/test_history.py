"""An hour of readings in a byte each, and graphs whose steps are whole before they are shown."""

from gputui.tui.history import History


def filled(*percents: float | None, kept: int = 60) -> History:
    history = History(kept)
    for percent in percents:
        history.add([("a", percent)])
    return history


def test_the_newest_reading_is_the_last() -> None:
    assert filled(10, 20.9, 30).last("a", 2) == [20, 30]


def test_a_missing_reading_is_none() -> None:
    assert filled(10, None).last("a", 5) == [10, None]


def test_no_more_is_kept_than_there_is_room_for() -> None:
    assert filled(*range(10), kept=4).last("a", 100) == [6, 7, 8, 9]


def test_a_step_is_whole_before_it_is_shown() -> None:
    history = filled(10, 20, 30)
    assert history.steps("a", 2, 10) == [15]
    history.add([("a", 50)])
    assert history.steps("a", 2, 10) == [15, 40]


def test_a_step_is_the_mean_of_what_was_read_in_it() -> None:
    assert filled(10, None, None, None).steps("a", 2, 10) == [10, None]


def test_steps_stay_whole_when_old_readings_are_let_go() -> None:
    history = filled(*range(11), kept=8)
    assert history.steps("a", 2, 10) == [4.5, 6.5, 8.5]


def test_a_gpu_that_comes_later_was_not_read_before() -> None:
    history = filled(10)
    history.add([("a", 20), ("b", 90)])
    assert history.last("b", 5) == [None, 90]


def test_a_gpu_that_is_gone_is_forgotten() -> None:
    history = filled(10)
    history.add([])
    history.add([("a", 30)])
    assert history.last("a", 5) == [None, None, 30]
