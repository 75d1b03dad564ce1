"""Lines are exactly as wide as their room, and what does not fit is left out whole."""

import pytest

from gputui.model.series import MEAN_OF, Metric
from gputui.model.slots import slots_of
from gputui.model.snapshot import RunState, RunStatus
from gputui.tui.rendering import Line, metrics, whole_fields
from gputui.tui.rendering.fleet import HOST_COLUMNS, Look, Row
from gputui.tui.rendering.palette import Palette
from gputui.tui.rendering.work import RunRow, fleet_lines
from gputui.tui.views.tasks_view import legend
from gputui.tui.watched import FINE_KEPT, Watched
from tests.series import ScreensHistory
from tests.tui.build import EPOCH, device, host, snapshot


def cells(line: Line) -> int:
    return sum(len(text) for text, _ in line)


@pytest.mark.parametrize("gpus", [1, 4, 8, 16])
def test_a_cell_of_a_host_is_as_wide_as_its_column(gpus: int) -> None:
    found = host("h", *(device(number) for number in range(gpus)))
    row = Row(found, slots_of(snapshot(found)), Look())
    for width in (8, 12, 16):
        assert {cells(column.cell(row, width)) for column in HOST_COLUMNS} == {width}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("metric", metrics.HEAT)
def test_a_legend_names_its_marks_whole(metric: metrics.Metric, width: int) -> None:
    shown = whole_fields(Look(metric=metric).legend(), width)
    assert cells(shown) <= width
    assert "".join(text for text, _ in shown).endswith(
        (" idle", " alarm", " broken", " silent", " idle power", " no worker", " wrong GPU")
    )


@pytest.mark.parametrize("width", [30, 57, 80])
def test_the_legend_of_the_stream_names_its_marks_whole_and_failures_first(width: int) -> None:
    prefixes = ["normal", "getitem", "qr", "dot", "sum"]
    text = "".join(part for part, _ in legend(prefixes, range(7), Palette({}), width))
    assert len(text) <= width
    assert text.startswith("TASK STREAM  ✖ failed")
    assert text.split()[-1] in (*prefixes, "failed")


def history(*percents: float) -> ScreensHistory:
    found = ScreensHistory()
    for percent in percents:
        found.read([device(0, utilization_percent=percent), device(1, utilization_percent=0.0)])
    return found


def watched(kept: ScreensHistory) -> Watched:
    found = Watched(snapshot())
    found.history = kept
    return found


def test_a_run_is_shown_with_what_the_gpus_did_meanwhile() -> None:
    found = history(90, 90, 20, 40, 60, 90, 90)
    assert found.together(Metric.UTILIZATION, 5, 2) == [10, 20, 30]
    run = RunStatus("r", "svd", (), RunState.DONE, EPOCH - 5, EPOCH - 2)
    lines = fleet_lines(watched(found), RunRow.at(run, EPOCH), 60)
    assert "UTIL 20 % on average" in "".join(text for line in lines for text, _ in line)
    assert {cells(line) for line in lines[1:]} == {60}


def test_what_was_not_read_of_a_run_is_missing_not_zero() -> None:
    assert history(40, 40).together(Metric.UTILIZATION, 4, 0) == [None, None, 20, 20]
    run = RunStatus("r", "svd", (), RunState.DONE, EPOCH - 9000, EPOCH - 8000)
    kept = history(40, 40, 40, 40)
    assert fleet_lines(watched(kept), RunRow.at(run, EPOCH), 60) == []


def test_a_long_run_is_shown_by_ten_seconds() -> None:
    found = history(*([50.0] * (FINE_KEPT + 60)))
    values = found.together(Metric.UTILIZATION, FINE_KEPT + 60, 0)
    assert values == [25] * ((FINE_KEPT + 60) // MEAN_OF)
