"""The workers, events and runs views, one GPU in full, and how runs are started."""

import json
from dataclasses import replace
from pathlib import Path

from gputui.model.readings import DeviceProcess, Owner
from gputui.model.snapshot import HostState, RunState, RunStatus, Snapshot, WorkerState
from gputui.protocol.frontend import CancelRun, SnapshotTaken, StartRun
from gputui.tui.dialogs import Dialog
from gputui.tui.dialogs.run import RunDialog
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker
from tests.tui.still import Still, press, seen, sees, sees_not, showing, until

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


async def test_workers_show_process_pinning_and_why_they_died() -> None:
    async with Still(cluster()).app.run_test(size=(120, 24)) as pilot:
        await pilot.press("2")
        await sees(pilot, "4.0G", "✖ crashed", "killed (signal 9)", "✖ elsewhere", "3 workers")


async def test_of_a_worker_on_a_silent_host_the_title_and_its_row_say_silent_and_not_busy() -> None:
    away = host("h", device(0), state=HostState.SILENT, read_at=EPOCH - 7)
    workers = (worker(0, state=WorkerState.SILENT, silent_for_s=7.0),)
    screen = Still(snapshot(away, workers=workers))
    async with showing(screen, "host silent", size=(100, 30)) as pilot:
        screen.app.go_to("device", "h:gpu0")
        await until(pilot, lambda: screen.app.current == "device")
        await sees(pilot, "◌ silent 7s", "worker h:gpu0  ◌ silent 7s")
        assert seen(pilot).count("silent 7s") >= 2 and "busy" not in seen(pilot)


async def test_what_is_known_of_a_silent_worker_is_dim() -> None:
    workers = (
        worker(0, state=WorkerState.BUSY, cpu_percent=91.0),
        worker(1, state=WorkerState.SILENT, cpu_percent=92.0, silent_for_s=70.0),
    )
    on = Still(snapshot(host("h", device(0), device(1)), workers=workers))
    async with showing(on, "● busy", "◌ silent 1m", keys="2", size=(120, 24)):
        roles = {
            key: dict(on.app.visited["workers"].table._draw(key)) for key in ("h:gpu0", "h:gpu1")
        }
        assert roles["h:gpu0"]["   91"] == ""
        assert roles["h:gpu1"]["   92"] == "dim"


async def test_room_that_workers_leave_goes_to_what_the_gpu_of_one_does() -> None:
    for size in ((100, 40), (200, 50)):
        async with Still(cluster()).app.run_test(size=size) as pilot:
            await sees(pilot, "gpu0")
            await press(pilot, "2", "RSS/LIMIT", "UTIL", "POWER", "worker h:gpu0", "pid 41")
            await press(pilot, "j", "worker h:gpu1", "killed (signal 9)")


async def test_workers_are_filtered_sorted_and_turned_around() -> None:
    screen = Still(cluster())
    async with showing(screen, "h:gpu1", keys="2", size=(120, 24)) as pilot:
        assert screen.app.view is not None
        screen.app.view.filter("state:crashed")
        await sees(pilot, "1 of 3 workers")
        assert "h:gpu0" not in seen(pilot)
        await press(pilot, ["escape", "s"], "WORKER▲", "3 workers  by worker")
        await press(pilot, "v", "WORKER▼")
        rows = [line.split()[0] for line in seen(pilot).splitlines() if line.startswith(" h:gpu")]
        assert rows == ["h:gpu2", "h:gpu1", "h:gpu0"]
        await press(pilot, [*":sort rss", "enter"], "RSS/LIMIT▼", "by rss/limit")
        await press(pilot, [*":sort warmth", "enter"], "no column warmth; known: worker, state,")


async def test_events_are_shown_the_newest_first() -> None:
    screen = Still(cluster())
    screen.happen(1, "h", "ready: 3 GPUs")
    screen.happen(2, "h:gpu1", "killed (signal 9)", "error")
    async with showing(screen, "ready: 3 GPUs", "2 events", keys="5", size=(100, 24)) as pilot:
        text = seen(pilot)
        assert text.index("killed (signal 9)") < text.index("ready: 3 GPUs")
        assert "✖ h:gpu1" in text


async def test_an_event_leads_to_what_it_is_about() -> None:
    screen = Still(cluster())
    screen.happen(1, "h:gpu0", "restarted")
    async with showing(screen, "restarted", keys="5", size=(100, 30)) as pilot:
        await press(pilot, ["enter"], "fleet › h › h:gpu0")


async def test_a_gpu_in_full_shows_readings_processes_worker_and_log() -> None:
    screen = Still(cluster())
    screen.log("h:gpu0", "its own line")
    screen.log("h:gpu1", "a line of another")
    async with showing(screen, "gpu0", keys="2", size=(100, 40)) as pilot:
        await pilot.press("enter")
        await sees(
            pilot, "h:gpu0", "POWER 70 W", "400 W", "mira", "python train.py", "its own line"
        )
        assert "a line of another" not in seen(pilot)


async def test_our_process_leads_to_its_log_and_back() -> None:
    screen = Still(cluster())
    screen.log("h:gpu0", "its own line")
    async with showing(screen, "gpu0", keys="2", size=(100, 40)) as pilot:
        await press(pilot, ["enter"], "python train.py")
        await press(pilot, ["enter"], "h:gpu0 · 1 lines")
        await press(pilot, ["escape"], "python train.py")
        await press(pilot, ["escape"], "RSS/LIMIT")


async def test_another_person_s_process_has_no_log() -> None:
    async with showing(Still(cluster()), "gpu0", keys="2", size=(100, 40)) as pilot:
        await press(pilot, ["enter"], "python train.py")
        await press(pilot, ["j", "enter"], "not one of ours")


async def test_a_gpu_that_is_gone_is_said_to_be() -> None:
    screen = Still(cluster())
    async with showing(screen, "gpu0", size=(100, 40)) as pilot:
        screen.app.go_to("device", "nobody:gpu9")
        await sees(pilot, "nobody:gpu9 is gone")


async def test_a_gpu_that_goes_takes_its_processes_and_log_along() -> None:
    screen = Still(cluster())
    screen.log("h:gpu0", "its own line")
    async with showing(screen, "gpu0", keys="2", size=(100, 40)) as pilot:
        await press(pilot, ["enter"], "python train.py", "its own line")
        screen.link.put(SnapshotTaken(replace(cluster(), hosts=(), workers=(), sequence=99)))
        await sees(pilot, "h:gpu0 is gone")
        await sees_not(pilot, "python train.py", "its own line")
        screen.link.put(SnapshotTaken(replace(cluster(), sequence=100)))
        await sees(pilot, "python train.py", "its own line")


async def test_a_second_worker_on_a_gpu_has_its_own_log_and_time() -> None:
    gpu = device()
    since = {"current_task": "fit", "state": WorkerState.BUSY}
    second = replace(worker(**since), name="h:gpu0.1")
    screen = Still(snapshot(host("h", gpu), workers=(worker(), second)))
    screen.log("h:gpu0", "of the first")
    screen.log("h:gpu0.1", "of the second")
    async with showing(screen, "h:gpu0.1", keys="2", size=(120, 50)) as pilot:
        await press(pilot, "G", "of the second")
        await sees_not(pilot, "of the first")


async def test_runs_show_progress_result_and_its_plot() -> None:
    screen = Still(cluster())
    async with showing(screen, "25%", "✔ done", "● running", keys="6", size=(120, 40)) as pilot:
        await pilot.press("j")
        await sees(pilot, "rows=20000", "900, 40, 3, 1", "restarted during it, 2 times in all")
        await sees(pilot, "┤", "1.25e-15")


async def test_a_run_is_cancelled_after_asking() -> None:
    screen = Still(cluster())
    async with showing(screen, "● running", keys="6", size=(120, 40)) as pilot:
        await press(pilot, "x", "Cancel mean (r2)?")
        await press(pilot, "y", then=lambda: screen.link.asked == [CancelRun(0, "r2")])


async def test_a_run_that_ended_cannot_be_cancelled() -> None:
    screen = Still(cluster())
    async with showing(screen, "● running", keys="6", size=(120, 40)) as pilot:
        await press(pilot, ["j", "x"], "cancel: the run is done")
        assert not isinstance(screen.app.screen, Dialog)


async def test_a_form_with_a_mistake_starts_nothing_and_says_what_is_wrong() -> None:
    screen = Still(cluster())
    async with showing(screen, "gpu0", size=(100, 30)) as pilot:
        await press(pilot, ["colon", *"run svd", "enter"], "--run svd")
        await press(pilot, ["enter", "x", "ctrl+r"], "must be an integer")
        assert isinstance(screen.app.screen, RunDialog)
        await press(pilot, ["escape"], then=lambda: not isinstance(screen.app.screen, RunDialog))
        assert screen.link.asked == []


async def test_every_preset_has_a_form() -> None:
    async with showing(Still(cluster()), "gpu0", size=(100, 30)) as pilot:
        await press(pilot, "c", "--run smoke")
        for name in ("svd", "random-sum", "mean", "matmul", "convert"):
            await press(pilot, ["down"], f"--run {name}")


async def test_a_run_is_started_with_all_it_takes_typed() -> None:
    screen = Still(cluster())
    async with showing(screen, "gpu0", size=(100, 30)) as pilot:
        await press(pilot, ["colon", *"run svd cols=10", "enter"], then=lambda: screen.link.asked)
        assert screen.link.asked == [StartRun(0, "svd", (("cols", "10"),), cwd=str(Path.cwd()))]


async def test_ascii_screens_are_ascii() -> None:
    async with Still(cluster(), ascii_only=True).app.run_test(size=(120, 40)) as pilot:
        for key, text in (("2", "pinned"), ("3", "TASK"), ("5", "TIME"), ("6", "svd")):
            await press(pilot, [key], text)
            await sees_not(pilot, "●", "█", "✖", "░")


async def test_a_wide_terminal_shows_the_gpu_under_the_cursor_next_to_the_rows() -> None:
    async with showing(Still(cluster()), "mira", "── h:gpu1", size=(200, 60)) as pilot:
        await press(pilot, "j", "── h:gpu0")
        await press(pilot, "j", "── h:gpu1", "killed (signal 9)")
        assert "── h:gpu0" not in seen(pilot)


async def test_a_low_terminal_full_of_rows_shows_them_alone() -> None:
    devices = [device(number) for number in range(20)]
    async with showing(Still(snapshot(host("h", *devices))), "gpu0", "gpu16") as pilot:
        assert "──" not in seen(pilot)


async def test_an_event_is_told_whole_below_the_others() -> None:
    screen = Still(cluster())
    screen.happen(1, "h", "its host key changed: " + "no line holds this, " * 6 + "the end")
    async with screen.app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "5", "the end", "enter fleet")


async def test_a_wide_table_is_drawn_for_the_room_that_what_stands_next_to_it_leaves() -> None:
    screen = Still(cluster())
    screen.happen(1, "h", "no column holds this, " * 9 + "the end")
    async with screen.app.run_test(size=(160, 45)) as pilot:
        await press(pilot, "5", "… │", "the end")


async def test_the_line_of_keys_names_no_key_that_does_nothing_here() -> None:
    async with showing(Still(cluster()), "gpu0", "/ filter", "c run", size=(200, 45)) as pilot:
        await press(pilot, ["j", "enter"], "enter: log", "t time", "c run")
        assert "/ filter" not in seen(pilot)


async def test_a_key_right_behind_escape_is_for_the_view_that_is_gone_back_to() -> None:
    screen = Still(cluster())
    async with showing(screen, "gpu0") as pilot:
        await press(pilot, "6", "2 runs")
        screen.app.simulate_key("escape")
        screen.app.simulate_key("4")
        await until(pilot, lambda: screen.app.current == "logs")
        await sees(pilot, "no lines yet")
