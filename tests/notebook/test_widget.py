"""The widget of a cluster: what it makes of snapshots, when it sends, what its buttons do."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("anywidget")

from gputui.client.notebook import UNHEARD_S, FleetColumns, FleetWidget
from gputui.errors import HeadError
from gputui.model.snapshot import HostState, RunState, RunStatus, Snapshot, WorkerState
from gputui.presets.definition import json_text
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker

EVIL = "<img src=x onerror=alert(1)>"
FIGURE = {"kind": "line", "title": "s", "x": [1, 2], "y": [3.5, 1]}


def fleet(at: float = EPOCH, busy: float = 60.4, **values: Any) -> Snapshot:
    """Return two GPUs, one of which has a worker."""
    devices = device(0, utilization_percent=busy), device(1, utilization_percent=None)
    busily = worker(0, state=WorkerState.BUSY, executing=1, ready=2)
    return snapshot(host("h", *devices), workers=(busily,), at=at, **values)


def test_each_gpu_has_a_place_in_every_column_and_nothing_where_nothing_was_read() -> None:
    shown = FleetColumns().look(fleet())
    assert shown["fleet"]["places"] == [["h", "gpu0", "A100", 80], ["h", "gpu1", "A100", 80]]
    assert (shown["busy"], shown["memory"]) == ([60, None], [1, 1])
    assert (shown["watts"], shown["degrees"]) == ([70, 70], [40, 40])
    assert shown["tasks"] == [3, None]
    named = [shown["fleet"]["states"][number] for number in shown["states"]]
    assert named == ["busy", "free"]
    assert (shown["about"]["up"], shown["about"]["running"]) == (1, 1)


def test_a_cluster_that_ended_before_it_was_seen_shows_nothing() -> None:
    columns = FleetColumns()
    columns.newest["about"] = {"ended": "closed"}
    assert columns.html() == ""


def test_a_host_that_is_silent_shows_no_old_readings() -> None:
    silent = host("h", device(0, utilization_percent=99.0), state=HostState.SILENT)
    columns = FleetColumns()
    shown = columns.look(snapshot(silent))
    assert shown["busy"] == shown["memory"] == shown["watts"] == [None]
    assert shown["alarms"] == [[False, "h: host silent"]]


def test_a_cpu_worker_is_a_place_with_its_threads_and_its_memory() -> None:
    values = {"cpu_percent": 150.0, "nthreads": 2, "rss_bytes": GIB, "memory_limit_bytes": 4 * GIB}
    one = replace(worker(0, device_uuid=None, seen_device_uuid=None, **values), name="h:cpu0")
    shown = FleetColumns().look(snapshot(host("h"), workers=(one,)))
    assert shown["fleet"]["places"] == [["h", "cpu0", "CPU worker", 4]]
    assert (shown["busy"], shown["memory"], shown["watts"]) == ([75], [25], [None])


def test_the_last_minute_has_a_character_for_each_place_and_second() -> None:
    columns = FleetColumns()
    for second in range(70):
        columns.look(fleet(at=EPOCH + second, busy=second))
    assert len(columns.past) == 60
    assert columns.past[-1] == chr(48 + 69 // 2) + "-"
    columns.look(snapshot(host("h", *map(device, range(3)))))
    assert {len(row) for row in columns.past} == {3}


def test_runs_are_shown_newest_first_with_the_figure_of_each_that_ended() -> None:
    result_json = json_text({"result": {}, "figure": FIGURE})
    ended = RunStatus("1", "/home/a/mine.py:PRESET", (), RunState.DONE, EPOCH, EPOCH + 2)
    ended = replace(ended, summary="sum 3", result_json=result_json)
    begun = RunStatus("2", "svd", (), RunState.RUNNING, EPOCH, stage="computing", done=1, total=9)
    columns = FleetColumns()
    shown = columns.look(fleet(runs=(ended, begun)))
    assert [run["preset"] for run in shown["runs"]] == ["svd", "mine.py:PRESET"]
    assert [run["text"] for run in shown["runs"]] == ["computing", "sum 3"]
    assert shown["figures"]["1"]["y"] == (3.5, 1.0)
    assert columns.look(fleet(runs=(begun,)))["figures"] == {}


@pytest.mark.parametrize("wrong", ["", "{", "[]", '{"figure": {"kind": "pie", "title": "x"}}'])
def test_a_result_without_a_figure_draws_none(wrong: str) -> None:
    run = RunStatus("1", "svd", (), RunState.DONE, EPOCH, EPOCH, result_json=wrong)
    assert FleetColumns().look(fleet(runs=(run,)))["figures"] == {}


def test_what_hosts_say_is_text_in_the_html_that_a_notebook_keeps() -> None:
    run = RunStatus("1", EVIL, (), RunState.FAILED, EPOCH, EPOCH, summary=EVIL)
    columns = FleetColumns()
    columns.look(snapshot(host(EVIL, device(0)), name=EVIL, reason=EVIL, runs=(run,)))
    assert EVIL not in columns.html() and columns.html().count("&lt;img") >= 4


def test_the_page_puts_text_in_as_text_only() -> None:
    source = FleetWidget._esm
    text = str(getattr(source, "contents", source))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text


async def test_nothing_is_sent_while_no_page_is_heard_of_and_all_once_it_is() -> None:
    widget = FleetWidget("lab", lambda: None)
    widget._end_cell()
    for second in range(UNHEARD_S + 20):
        widget._look(fleet(at=EPOCH + second))
    assert widget.at == EPOCH + UNHEARD_S
    widget._received(widget, {"seen": True, "past": True}, [])
    assert len(widget.past) == UNHEARD_S + 20
    widget._look(fleet(at=EPOCH + UNHEARD_S + 20))
    assert widget.at == EPOCH + UNHEARD_S + 20
    widget.close()


async def test_while_a_cell_runs_a_page_that_cannot_be_heard_is_sent_to() -> None:
    widget = FleetWidget("lab", lambda: None)
    for cell in range(3):  # one behind the other: what the page says waits for the last
        widget._begin_cell()
        for second in range(20):
            widget._look(fleet(at=EPOCH + 20 * cell + second))
        widget._end_cell()
    assert widget.at == EPOCH + 59
    widget.close()


async def test_its_buttons_scale_the_cluster_and_the_answer_is_shown() -> None:
    asked: list[object] = []

    def scale(workers: object) -> str:
        asked.append(workers)
        if workers == 9:
            raise HeadError("no head")
        return "1 start, 0 stop"

    widget = FleetWidget("lab", lambda: scale)
    widget._received(widget, {"scale": 3}, [])
    assert (asked, widget.said) == ([3], "1 start, 0 stop")
    widget._received(widget, {"scale": 9}, [])
    assert widget.said == "no head"
    widget.close()
