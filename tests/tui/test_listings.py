"""The workers, events and runs views, one GPU in full, and how runs are started."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.model.readings import DeviceProcess, Owner
from gputui.model.snapshot import HostState, RunState, RunStatus, Snapshot, WorkerState
from gputui.protocol.frontend import SnapshotTaken, StartRun
from gputui.tui.dialogs.run import RunDialog
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker
from tests.tui.still import Step, Still

DONE = RunStatus(
    "r1",
    "svd",
    (("rows", "20000"),),
    RunState.DONE,
    EPOCH - 60,
    EPOCH - 35,
    done=10,
    total=10,
    summary="10 singular values",
    result_json=json.dumps(
        {
            "result": {"singular_values": [900.0, 40.0, 3.0, 1.0], "residual": 1.25e-15},
            "figure": {"kind": "line", "title": "σ", "x": [1, 2, 3, 4], "y": [900, 40, 3, 1]},
        }
    ),
    restarts=2,
)
RUNNING = RunStatus("r2", "mean", (), RunState.RUNNING, EPOCH - 5, done=3, total=12)
PROCESSES = (
    DeviceProcess(41, Owner.OURS, "me", "gputui worker h:gpu0", 2 * GIB),
    DeviceProcess(77, Owner.OTHER, "mira", "python train.py", 6 * GIB),
)


def cluster() -> Snapshot:
    """Return a host with a shared GPU, a crashed worker and two runs."""
    return snapshot(
        host("h", device(0, processes=PROCESSES), device(1), device(2)),
        workers=(
            worker(0, state=WorkerState.BUSY, pid=41, rss_bytes=GIB, memory_limit_bytes=4 * GIB),
            worker(1, state=WorkerState.CRASHED, reason="killed (signal 9)", restarts=3),
            worker(2, seen_device_uuid="GPU-h-0"),
        ),
        runs=(DONE, RUNNING),
    )


LONG = "its host key changed: " + "no column and no line holds this, " * 6 + "the end"
WALKS: dict[str, tuple[Step, ...]] = {
    "workers show process, pinning and why they died": (
        ("2", "4.0G", "✖ crashed", "killed (signal 9)", "✖ elsewhere", "3 workers"),
    ),
    "room that workers leave goes to what the GPU of one does": (
        ("2", "RSS/LIMIT", "UTIL", "POWER", "worker h:gpu0", "pid 41"),
        ("j", "worker h:gpu1", "killed (signal 9)"),
        (200, 50),
        ("k", "RSS/LIMIT", "UTIL", "POWER", "worker h:gpu0", "pid 41"),
    ),
    "an event leads to what it is about": (("5", "restarted"), ("enter", "fleet › h › h:gpu0")),
    "an event is told whole below the others": ((80, 24), ("5 G", "the end", "enter fleet")),
    "an event is told whole next to the others": ((160, 45), ("5 G", "… │", "the end")),
    "a GPU in full shows readings, processes, worker and log": (
        ("2 enter", "h:gpu0", "POWER 70 W", "400 W", "mira", "python train.py", "its own line"),
        ("", "~a line of another"),
    ),
    "our process leads to its log and back": (
        ("2 enter", "python train.py"),
        ("enter", "h:gpu0 · 1 line"),
        ("escape", "python train.py"),
        ("escape", "RSS/LIMIT"),
    ),
    "another person's process has no log": (
        ("2 enter", "python train.py"),
        ("j enter", "not one of ours"),
    ),
    "runs show progress, result and its plot": (
        ("6", "25%", "✔ done", "● running"),
        ("j", "rows=20000", "900, 40, 3, 1", "restarted during it, 2 times in all", "┤"),
        ("", "1.25e-15"),
    ),
    "a run that ended cannot be cancelled": (("6 j x", "cancel: the run is done", "~[n] no"),),
    "every preset has a form": (
        ("c", "--run smoke"),
        *(("down", f"--run {name}") for name in ("svd", "random-sum", "mean", "matmul", "convert")),
    ),
    "a wide terminal shows the GPU under the cursor next to the rows": (
        (200, 60),
        ("", "mira", "── h:gpu1"),
        ("j", "── h:gpu0"),
        ("j", "── h:gpu1", "killed (signal 9)", "~── h:gpu0"),
    ),
    "the line of keys names no key that does nothing here": (
        (200, 45),
        ("", "/ filter", "c run"),
        ("j enter", "enter: log", "t time", "c run", "~/ filter"),
    ),
}
"""Steps on one cluster."""


@pytest.mark.parametrize("steps", WALKS.values(), ids=WALKS)
async def test_a_walk_sees(steps: tuple[Step, ...]) -> None:
    screen = Still(cluster())
    screen.log("h:gpu0", "its own line")
    screen.log("h:gpu1", "a line of another")
    screen.happen(1, "h", LONG)
    screen.happen(2, "h:gpu0", "restarted", "error")
    await screen.walk(("", "gpu0"), *steps)


async def test_events_are_shown_the_newest_first() -> None:
    screen = Still(cluster())
    screen.happen(1, "h", "ready: 3 GPUs")
    screen.happen(2, "h:gpu1", "killed (signal 9)", "error")
    async with screen.showing("ready: 3 GPUs", "2 events", keys="5", size=(100, 24)):
        text = screen.text
        assert text.index("killed (signal 9)") < text.index("ready: 3 GPUs")
        assert "✖ h:gpu1" in text


async def test_ascii_screens_are_ascii() -> None:
    keys = ("2", "pinned"), ("3", "TASK"), ("5", "TIME"), ("6", "svd")
    steps = ((key, text, "~●", "~█", "~✖", "~░") for key, text in keys)
    await Still(cluster(), ascii_only=True).walk(*steps)


async def test_of_a_worker_on_a_silent_host_the_title_and_its_row_say_silent_and_not_busy() -> None:
    away = host("h", device(0), state=HostState.SILENT, read_at=EPOCH - 7)
    workers = (worker(0, state=WorkerState.SILENT, silent_for_s=7.0),)
    async with Still(snapshot(away, workers=workers)).showing(
        "host silent", size=(100, 30)
    ) as screen:
        screen.app.go_to("device", "h:gpu0")
        await screen.until(lambda: screen.app.current == "device")
        await screen.sees("◌ silent 7s", "worker h:gpu0  ◌ silent 7s")
        assert screen.text.count("silent 7s") >= 2 and "busy" not in screen.text


async def test_what_is_known_of_a_silent_worker_is_dim() -> None:
    workers = (
        worker(0, state=WorkerState.BUSY, cpu_percent=91.0),
        worker(1, state=WorkerState.SILENT, cpu_percent=92.0, silent_for_s=70.0),
    )
    on = Still(snapshot(host("h", device(0), device(1)), workers=workers))
    async with on.showing("● busy", "◌ silent 1m", keys="2", size=(120, 24)):
        roles = {
            key: dict(on.app.visited["workers"].table._draw(key)) for key in ("h:gpu0", "h:gpu1")
        }
        assert roles["h:gpu0"]["   91"] == ""
        assert roles["h:gpu1"]["   92"] == "dim"


async def test_workers_are_filtered_sorted_and_turned_around() -> None:
    async with Still(cluster()).showing("h:gpu1", keys="2", size=(120, 24)) as screen:
        assert screen.app.view is not None
        screen.app.view.filter("state:crashed")
        await screen.sees("1 of 3 workers")
        assert "h:gpu0" not in screen.text
        await screen.press(["escape", "s"], "WORKER▲", "3 workers  by worker")
        await screen.press("v", "WORKER▼")
        rows = [line.split()[0] for line in screen.text.splitlines() if line.startswith(" h:gpu")]
        assert rows == ["h:gpu2", "h:gpu1", "h:gpu0"]
        await screen.press([*":sort rss", "enter"], "RSS/LIMIT▼", "by rss/limit")
        await screen.press([*":sort warmth", "enter"], "no column warmth; known: worker, state,")


async def test_a_gpu_that_goes_takes_its_processes_and_log_along() -> None:
    screen = Still(cluster())
    screen.log("h:gpu0", "its own line")
    async with screen.showing("gpu0", keys="2", size=(100, 40)):
        await screen.press(["enter"], "python train.py", "its own line")
        screen.link.put(SnapshotTaken(replace(cluster(), hosts=(), workers=(), sequence=99)))
        await screen.sees("h:gpu0 is gone")
        await screen.sees_not("python train.py", "its own line")
        screen.link.put(SnapshotTaken(replace(cluster(), sequence=100)))
        await screen.sees("python train.py", "its own line")


async def test_a_second_worker_on_a_gpu_has_its_own_log_and_time() -> None:
    gpu = device()
    since = {"current_task": "fit", "state": WorkerState.BUSY}
    second = replace(worker(**since), name="h:gpu0.1")
    screen = Still(snapshot(host("h", gpu), workers=(worker(), second)))
    screen.log("h:gpu0", "of the first")
    screen.log("h:gpu0.1", "of the second")
    async with screen.showing("h:gpu0.1", keys="2", size=(120, 50)):
        await screen.press("G", "of the second")
        await screen.sees_not("of the first")


async def test_a_form_with_a_mistake_starts_nothing_and_says_what_is_wrong() -> None:
    async with Still(cluster()).showing("gpu0", size=(100, 30)) as screen:
        await screen.press(["colon", *"run svd", "enter"], "--run svd")
        await screen.press(["enter", "x", "ctrl+r"], "must be an integer")
        assert isinstance(screen.app.screen, RunDialog)
        await screen.press(["escape"], then=lambda: not isinstance(screen.app.screen, RunDialog))
        assert screen.link.asked == []


async def test_a_run_is_started_with_all_it_takes_typed() -> None:
    async with Still(cluster()).showing("gpu0", size=(100, 30)) as screen:
        await screen.press(["colon", *"run svd cols=10", "enter"], then=lambda: screen.link.asked)
        assert screen.link.asked == [StartRun(0, "svd", (("cols", "10"),), cwd=str(Path.cwd()))]


async def test_a_low_terminal_full_of_rows_shows_them_alone() -> None:
    devices = [device(number) for number in range(20)]
    async with Still(snapshot(host("h", *devices))).showing("gpu0", "gpu16") as on:
        assert "──" not in on.text


async def test_a_key_right_behind_escape_is_for_the_view_that_is_gone_back_to() -> None:
    async with Still(cluster()).showing("gpu0") as screen:
        await screen.press("6", "2 runs")
        screen.app.simulate_key("escape")
        screen.app.simulate_key("4")
        await screen.until(lambda: screen.app.current == "logs")
        await screen.sees("no lines yet")
