"""A run's recording on the screen: the views as they were then, and nothing that changes."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui import runs
from gputui.errors import UsageError
from gputui.model.snapshot import ClusterState, RunState, RunStatus, TaskSpan
from gputui.protocol.frontend import SnapshotTaken
from gputui.runs.playback import RecordedRun, read_recorded_run
from gputui.runs.recorder import FlightRecorder
from gputui.runs.records import Recording, status_of
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker
from tests.tui.still import Still

BUSY_FROM, SECONDS = 60, 200
TASKS = tuple(
    TaskSpan(f"h:gpu{n % 2}", "work", EPOCH + BUSY_FROM + n, 3.0, erred=n == 9) for n in range(20)
)


def telemetry(**changed: Any) -> Any:
    """Return that of two GPUs, busy for some seconds after a minute, and idle until the end."""
    recorder = FlightRecorder()
    for second in range(SECONDS + 1):
        busy = BUSY_FROM <= second < BUSY_FROM + 20
        used = device(
            memory_used_bytes=50 * GIB, utilization_percent=90.0 * busy, power_w=70.0 + 300 * busy
        )
        spans = tuple(each for each in TASKS if each.started_at + 3 == EPOCH + second)
        here, workers = host("h", used, device(1)), (worker(0), worker(1))
        recorder.look(snapshot(here, workers=workers, spans=spans, at=EPOCH + second))
    return replace(recorder.telemetry, **changed)


RUN = RunStatus(
    "svd-1", "svd", (("rows", "9"),), RunState.DONE, EPOCH - 2, ended_at=EPOCH + SECONDS,
    timings=(("starting", 10.0), ("computing", 100.0)),
)  # fmt: skip
WORKERS = ("h:gpu0", "h:gpu1")


@pytest.fixture(scope="module")
def played() -> RecordedRun:
    return RecordedRun(RUN, WORKERS, telemetry())


def test_a_moment_has_the_readings_tasks_and_stage_of_then(played: RecordedRun) -> None:
    then = played.snapshot(BUSY_FROM + 5)
    (here,) = then.hosts
    assert [each.utilization_percent for each in here.devices] == [90, 0]
    assert (here.devices[0].power_w, here.devices[0].memory_used_bytes) == (370, 50 * GIB)
    assert (here.devices[0].name, here.devices[0].memory_total_bytes) == ("A100", 80 * GIB)
    assert [(each.name, each.executing) for each in then.workers] == [("h:gpu0", 1), ("h:gpu1", 2)]
    assert then.workers[0].current_task == "work"
    (group,) = then.groups
    assert (group.memory, group.executing, group.waiting, group.total) == (3, 3, 14, 20)
    (run,) = then.runs
    assert (run.state, run.stage, run.done, run.total) == (RunState.RUNNING, "computing", 3, 20)
    assert then.taken_at == EPOCH + BUSY_FROM + 5


def test_tasks_end_once_and_failed_ones_are_counted_as_such(played: RecordedRun) -> None:
    ended = [span for second in range(SECONDS + 1) for span in played.snapshot(second).spans]
    assert ended == list(TASKS)
    (group,) = played.snapshot(SECONDS).groups
    assert (group.memory, group.erred, group.waiting, group.executing) == (19, 1, 0, 0)
    assert played.snapshot(5).runs[0].stage == "starting"


def test_a_worker_of_a_thinned_recording_is_not_said_to_do_nothing() -> None:
    thinned = RecordedRun(RUN, WORKERS, telemetry(one_span_of=4))
    assert [each.executing for each in thinned.snapshot(1).workers] == [None, None]


def test_workers_are_placed_on_their_gpus_and_mig_instances() -> None:
    parts = telemetry()
    mig = replace(parts.devices[1], name="h:mig1.0")
    names = ("h:gpu0", "h:gpu0.1", "h:mig1.0", "h:mig1.0.1", "h:cpu0", "far:cpu0")
    then = RecordedRun(RUN, names, replace(parts, devices=(parts.devices[0], mig), spans=()))
    shown = then.snapshot(0)
    assert [each.device_uuid for each in shown.workers] == [
        "GPU-h-0", "GPU-h-0", "GPU-h-1", "GPU-h-1", None, None,
    ]  # fmt: skip
    assert [each.short_name for each in shown.hosts[0].devices] == ["gpu0", "mig1.0"]
    assert [each.name for each in shown.hosts] == ["h", "far"]


def test_a_clock_that_was_put_back_leaves_a_recording_in_the_order_of_time() -> None:
    recorder = FlightRecorder({"GPU-h-0"})
    for second in (100, 101, 40, 41):
        busy = device(utilization_percent=float(second))
        recorder.look(snapshot(host("h", busy), at=EPOCH + second))
    then = RecordedRun(RUN, (), recorder.telemetry)
    assert (then.began_at, then.seconds) == (EPOCH + 40, 61)
    found = [then.snapshot(at).hosts[0].devices[0].utilization_percent for at in (0, 1, 30, 61)]
    assert found == [40, 41, 41, 101]


def test_a_run_that_ended_before_anything_was_read_says_so() -> None:
    with pytest.raises(UsageError, match="svd-1: it ended before"):
        RecordedRun(RUN, (), FlightRecorder().telemetry)


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Still]:
    """A screen on another cluster, with the recording in its runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = replace(
        runs.new_record("svd", {}, backend="auto", hosts="h", version="1", id="svd-1"),
        started_at=EPOCH - 2,
        workers=WORKERS,
    )
    recording = Recording(record, pytest.fail)
    recording.took(None, telemetry())
    recording.note("h:gpu0 | made ready", at=EPOCH - 1)
    recording.note("h:gpu1 | loss 0.5", at=EPOCH + 61)
    recording.end(RunState.DONE)
    ended = replace(status_of(recording.record), ended_at=EPOCH + SECONDS)
    now = snapshot(host("now", device(0, "now")), workers=(worker(0, "now"),), runs=(ended,))
    yield Still(now)


async def playing(on: Still) -> None:
    """Play the run back from its page."""
    await on.sees("▾now")
    await on.press("6", "svd-1")
    await on.press("P", "PAST", "gpu1 ○")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_recording_is_played_back_and_left_for_now(
    on: Still, size: tuple[int, int]
) -> None:
    async with on.showing(size=size):
        await playing(on)
        await on.sees("0:00 of 3:20", "[ ] step", "{ } minute", "esc now")
        assert "▾now" not in on.text
        await on.pilot.press("right_curly_bracket", *["right_square_bracket"] * 5)
        await on.sees("1:05 of 3:20", "90%")
        await on.press(["left_curly_bracket"], "0:05 of 3:20")
        await on.sees_not("90%")
        await on.pilot.press("3")
        await on.press(["right_curly_bracket", "right_curly_bracket"], "2:05 of 3:20", "20/20")
        await on.pilot.press("escape")
        await on.sees_not("PAST")
        await on.sees("svd-1", "done")
        await on.press("1", "▾now")


async def test_the_logs_are_those_that_workers_had_printed_by_then(on: Still) -> None:
    async with on.showing("▾now", size=(100, 30)):
        on.log("now:gpu0", "of now")
        await playing(on)
        await on.press("4", "made ready")
        await on.press(["right_curly_bracket", "right_square_bracket"], "made ready", "loss 0.5")
        assert "of now" not in on.text
        await on.pilot.press("left_square_bracket")
        await on.sees_not("loss 0.5")
        await on.press(["escape", "4"], "of now")


def test_what_was_printed_after_midnight_is_of_the_next_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    night = time.mktime((2026, 11, 23, 23, 59, 58, 0, 0, -1))
    record = runs.new_record("svd", {}, backend="auto", hosts="h", version="1", id="svd-2")
    recording = Recording(replace(record, started_at=night), pytest.fail)
    recorder = FlightRecorder()
    recorder.look(snapshot(host("h", device()), workers=(worker(),), at=night))
    recorder.look(snapshot(host("h", device()), workers=(worker(),), at=night + 9))
    recording.took(None, recorder.telemetry)
    for after_s in (0.5, 4.25):
        recording.note(f"h:gpu0 | {after_s}", at=night + after_s)
    recording.end(RunState.DONE)
    printed = read_recorded_run("svd-2").printed(0, 9)
    assert [(each.at - night, each.lines) for each in printed] == [
        (0.5, ("0.5",)), (4.25, ("4.25",)),
    ]  # fmt: skip


def test_a_worker_that_was_lost_or_crashed_is_shown_so_until_it_registers_again(
    on: Still,
) -> None:
    recording = Recording(runs.find("svd-1"), pytest.fail)
    for second, line in (
        (10, "h reconnecting the connection to its agent was cut"),
        (20, "h:gpu0 lost its host has not been reached"),
        (30, "h ready 127.0.0.1"),
        (31, "h:gpu0 registered tls://127.0.0.1:1"),
        (40, "h:gpu1 crashed signal 9"),
        (41, "h:gpu1 alarm crashed"),
        (42, "h:gpu1 restarted"),
        (50, "h:gpu1 registered tls://127.0.0.1:2"),
    ):
        recording.note(line, at=EPOCH + second)
    played = read_recorded_run("svd-1")

    def seen(second: int) -> tuple[str, ...]:
        then = played.snapshot(second)
        return (then.hosts[0].state, *(f"{each.state} {each.restarts}" for each in then.workers))

    assert seen(9) == ("ready", "idle 0", "idle 0")
    assert seen(15) == ("reconnecting", "idle 0", "idle 0")
    assert seen(25) == ("reconnecting", "crashed 0", "idle 0")
    assert seen(45) == ("ready", "idle 0", "crashed 1")
    assert seen(55) == ("ready", "idle 0", "idle 1")
    assert "not been reached" in played.snapshot(25).workers[0].reason


def test_a_worker_that_was_retired_is_gone_until_it_registers_again(on: Still) -> None:
    recording = Recording(runs.find("svd-1"), pytest.fail)
    for second, line in (
        (BUSY_FROM + 1, "h:gpu0 retired"),
        (100, "h:gpu1 retired"),
        (120, "h:gpu0 registered tls://127.0.0.1:1"),
    ):
        recording.note(line, at=EPOCH + second)
    played = read_recorded_run("svd-1")

    def seen(second: int) -> list[str]:
        return [f"{each.name} {each.state}" for each in played.snapshot(second).workers]

    assert seen(BUSY_FROM + 1) == ["h:gpu0 busy", "h:gpu1 busy"]
    assert seen(99) == ["h:gpu1 idle"]
    assert seen(110) == []
    assert seen(121) == ["h:gpu0 idle"]
    assert played.snapshot(110).state is ClusterState.RUNNING


async def test_nothing_can_be_changed_in_the_past(on: Still) -> None:
    async with on.showing(size=(100, 30)):
        await playing(on)
        for key in ("c", "R", "plus", "W"):
            await on.press([key], "this is the past; esc goes back to now")
        await on.press("q", "leave it running")
        assert "stop it" not in on.text
        assert on.link.asked == []


async def test_the_cluster_goes_on_meanwhile_and_is_there_when_the_past_is_left(on: Still) -> None:
    async with on.showing(size=(100, 30)):
        await playing(on)
        here = host("now", device(0, "now"), device(1, "now"))
        new = replace(on.snapshot, sequence=2, hosts=(here,))
        on.link.put(SnapshotTaken(new))
        await on.until(lambda: on.app.live.snapshot == new)
        assert "▾now" not in on.text
        await on.press(["escape", "1"], "gpu1 ")


async def test_the_cursor_stays_within_the_recording(on: Still) -> None:
    async with on.showing(size=(100, 30)):
        await playing(on)
        await on.press(["left_square_bracket", *["right_curly_bracket"] * 5], "3:20 of 3:20")
        await on.press(["right_square_bracket", "left_square_bracket"], "3:19 of 3:20")


async def test_a_run_without_a_recording_says_why_it_is_not_played(on: Still) -> None:
    (runs.find("svd-1").folder / "telemetry.json").unlink()
    async with on.showing("▾now", size=(100, 30)):
        await on.press(["left_square_bracket"], "P in runs plays a recording back")
        await on.press("6", "svd-1")
        await on.press("P", "no telemetry was recorded")
        assert on.app.playback is None


async def test_the_command_line_plays_back_and_moves(on: Still) -> None:
    async with on.showing("▾now", size=(100, 30)):
        await on.press("6", "svd-1")
        await on.press(["colon", *"playback", "enter"], "0:00 of 3:20")
        await on.press(["colon", *"minute", "enter"], "1:00 of 3:20")
