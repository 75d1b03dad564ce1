"""An hour of readings in 16 bits each, and graphs whose steps are whole before they are shown."""

import json
import re
from dataclasses import replace

import pytest

from gputui.errors import ProtocolError
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.series import (
    MEAN_OF,
    HistoryTaken,
    Metric,
    Span,
    of_device,
    of_host,
)
from gputui.model.snapshot import RunState, RunStatus
from gputui.protocol.frontend import ToFrontend
from gputui.protocol.typed_codec import decode, encode
from gputui.tui.rendering.format import NO_DOTS
from gputui.tui.rendering.work import RunRow, fleet_lines
from gputui.tui.watched import FINE_KEPT, Watched
from gputui.tui.widgets.bars import totals_line
from tests.series import ScreensHistory, packed
from tests.tui.build import EPOCH, device, host, snapshot, texts, worker

UTIL = Metric.UTILIZATION


def gpu(uuid: str, util: float | None) -> DeviceReading:
    return DeviceReading(uuid, "0", "A100", 80, 40, utilization_percent=util)


def filled(*percents: float | None) -> ScreensHistory:
    history = ScreensHistory()
    for percent in percents:
        history.read([gpu("a", percent)])
    return history


def known(drawn: list[float | None]) -> list[float]:
    return [value for value in drawn if value is not None]


def test_a_minutes_mean_is_of_what_was_read_of_each_gpu_also_where_there_is_none() -> None:
    assert filled(*[None, 20.0] * 30).minute(UTIL) == {"a": 20.0}
    history = ScreensHistory()
    for _ in range(MEAN_OF):
        history.read([])
        assert history.minute(UTIL) == {}


@pytest.mark.parametrize("dots", [28, 60, 84, 118, 120, 200])
def test_a_graph_spans_what_it_says_whatever_room_it_has(dots: int) -> None:
    history = filled(*[0.0] * 120, *[50.0] * 60, *[100.0] * 60)
    drawn = history.steps("a", UTIL, Span.MINUTES_2, dots)
    assert len(drawn) == dots
    assert (drawn[0], drawn[dots // 2 - 2], drawn[dots // 2 + 1], drawn[-1]) == (50, 50, 100, 100)


def test_a_reading_that_is_missing_is_not_zero() -> None:
    assert filled(10, None).steps("a", UTIL, Span.MINUTES_2, 120)[-2:] == [10, None]


def test_a_step_is_the_mean_of_what_was_read_in_it_and_whole_before_it_is_shown() -> None:
    history = filled(10, None, 20, 30, 90)
    assert known(history.steps("a", UTIL, Span.MINUTES_2, 60)) == [10, 25]


def kept_by_a_head(*fine: float) -> HistoryTaken:
    """Return what a head kept of a GPU: its utilisation each second, and 40 % for ten before."""
    rows = [of_host(HostReading()) + of_device(gpu("a", util)) for util in (*fine, 40.0)]
    values = packed(rows)
    return HistoryTaken("h", ("h", "a"), 0.0, len(fine), 0.0, 1, values)


def test_a_screen_that_attaches_shows_what_the_head_kept_before_it() -> None:
    history = ScreensHistory()
    history.read([gpu("a", 90), gpu("b", 5)])
    history.begin(kept_by_a_head(10, 20, 30))
    history.read([gpu("a", 90), gpu("b", 5)])
    assert known(history.steps("a", UTIL, Span.MINUTES_2, 120)) == [10, 20, 30, 90, 90]
    assert known(history.steps("b", UTIL, Span.MINUTES_2, 120)) == [5, 5]
    assert known(history.steps("a", UTIL, Span.HOUR, 360)) == [40]


@pytest.mark.parametrize(("late_s", "kept"), [(-0.4, 3), (0.0, 3), (0.2, 2), (1.2, 1), (9, 0)])
def test_what_a_head_kept_since_the_first_snapshot_is_not_shown_twice(
    late_s: float, kept: int
) -> None:
    history = ScreensHistory()
    history.read([gpu("a", 90)], at=100.0)
    history.begin(replace(kept_by_a_head(10, 20, 30), fine_at=100 + late_s))
    history.read([gpu("a", 90)], at=101.0)
    shown = known(history.steps("a", UTIL, Span.MINUTES_2, 120))
    assert shown == [*(10, 20, 30)[:kept], 90, 90]
    assert known(history.steps("a", UTIL, Span.HOUR, 360)) == [40]


@pytest.mark.parametrize(("late_s", "kept"), [(-3, 3), (2, 3), (10, 2), (13, 2), (30, 0), (90, 0)])
def test_what_a_head_kept_of_the_hour_since_the_first_snapshot_is_not_shown_twice(
    late_s: float, kept: int
) -> None:
    rows = [of_device(gpu("a", util)) for util in (10.0, 20.0, 30.0)]
    values = packed(rows)
    history = ScreensHistory()
    for _ in range(MEAN_OF):
        history.read([gpu("a", 90)], at=100.0)
    history.begin(HistoryTaken("h", ("a",), 0.0, 0, 100.0 + late_s, 3, values))
    shown = known(history.steps("a", UTIL, Span.HOUR, 360))
    assert shown == [*(10, 20, 30)[:kept], 90]


def test_a_clock_that_is_set_back_stops_no_graph() -> None:
    watched = Watched()
    for sequence, at in enumerate((100, 101, -3500, -3499, -3498, -3497)):
        util = 10.0 * sequence
        seen = snapshot(host("h", device(utilization_percent=util)), at=EPOCH + at)
        assert watched.take(replace(seen, sequence=sequence + 1))
    shown = watched.history.steps(device().uuid, UTIL, Span.MINUTES_2, 120)
    assert known(shown) == [0, 10, 20, 30, 40, 50]


def test_the_mean_of_all_gpus_leaves_the_hosts_own_cpus_out() -> None:
    rows = [of_host(HostReading(cpu_percent=100.0)) + of_device(gpu("a", 10))] * 3
    values = packed(rows)
    history = ScreensHistory()
    history.read([gpu("a", 10)])
    history.begin(HistoryTaken("h", ("h", "a"), 0.0, 2, 0.0, 1, values))
    assert set(history.together(UTIL, 3, 0)) <= {None, 10.0}


@pytest.mark.parametrize(
    ("fine", "coarse", "values"),
    [(7, 1, None), (4, -1, None), (2, 1, ""), (2, 1, "no base64!"), (2, 1, "AAA=")],
)
def test_a_history_of_another_shape_is_no_message(
    fine: int, coarse: int, values: str | None
) -> None:
    name, said = json.loads(encode(kept_by_a_head(10, 20)))
    said |= {"fine_rows": fine, "coarse_rows": coarse}
    said |= {} if values is None else {"values": values}
    with pytest.raises(ProtocolError, match=name):
        decode(json.dumps([name, said], separators=(",", ":")).encode(), ToFrontend)


def graphs(seconds: int) -> list[tuple[str, str]]:
    """Return the dots of each short graph of the fleet after so long, and what stands after it."""
    watched = Watched()
    for second in range(seconds):
        busy = device(utilization_percent=50.0)
        taken = snapshot(host("h", busy), workers=(worker(),), at=EPOCH + second)
        watched.take(replace(taken, sequence=second + 1))
    text = "".join(part for part, _ in totals_line(watched, 160))
    return re.findall(r"([\u2800-\u28ff]+)(.*?)(?=[A-Z]{3}|$)", text)


def test_a_young_graph_of_the_fleet_begins_at_the_left_and_none_touches_the_next_label() -> None:
    for cells, after in graphs(20)[:3]:
        assert cells[0] != NO_DOTS and cells[-1] == NO_DOTS and after == "  "
    for cells, after in graphs(200)[:3]:
        assert NO_DOTS not in cells and after == "  "


def of_a_run(history: ScreensHistory, began_s: float, ended_s: float) -> list[str]:
    """Return what is shown of the GPUs during a run that began and ended so many seconds ago."""
    watched = Watched(snapshot())
    watched.history = history
    run = RunStatus("r", "svd", (), RunState.DONE, EPOCH - began_s, EPOCH - ended_s)
    return texts(fleet_lines(watched, RunRow.at(run, EPOCH), 60))


def test_a_run_is_shown_with_what_the_gpus_did_meanwhile() -> None:
    history = filled(90, 90, 20, 40, 60, 90, 90)
    assert history.together(UTIL, 5, 2) == [20, 40, 60]
    title, *lines = of_a_run(history, 5, 2)
    assert "UTIL 40 % on average" in title + "".join(lines)
    assert {*map(len, lines)} == {60}


def test_what_was_not_read_of_a_run_is_missing_not_zero() -> None:
    assert filled(40, 40).together(UTIL, 4, 0) == [None, None, 40, 40]
    assert of_a_run(filled(40, 40, 40, 40), 9000, 8000) == []


def test_a_long_run_is_shown_by_ten_seconds() -> None:
    values = filled(*([50.0] * (FINE_KEPT + 60))).together(UTIL, FINE_KEPT + 60, 0)
    assert values == [50] * ((FINE_KEPT + 60) // MEAN_OF)
