"""Lines are exactly as wide as their room, and what does not fit is left out whole."""

import pytest

from gputui.model.slots import slots_of
from gputui.tui.rendering import Line, metrics, whole_fields
from gputui.tui.rendering.fleet import HOST_COLUMNS, Look, Row
from gputui.tui.rendering.palette import Palette
from gputui.tui.views.tasks_view import legend
from tests.tui.build import device, host, snapshot


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
