"""Running, looking at what came of it, and running again, on the screen."""

import contextlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.events import AppBlur, AppFocus

from gputui import presets
from gputui.errors import RunError
from gputui.model.readings import DeviceProcess, HostReading, Owner
from gputui.model.snapshot import Event, RunState, RunStatus, Severity, Snapshot, TaskGroupStatus
from gputui.model.usage import Failure, Usage
from gputui.presets import Machine
from gputui.protocol.frontend import Done, EventHappened, SnapshotTaken, StartRun
from gputui.runs import Recording, new_record, recorded
from gputui.runs.records import log_tail
from gputui.runs.text import differences, text
from gputui.tui.app import recorded_runs
from gputui.tui.dialogs.run import Form, fits, machine_of, memory_text
from gputui.tui.rendering.work import RunRow, result_lines, run_lines
from gputui.tui.views import runs_view
from tests.tui.build import EPOCH, GIB, device, host, snapshot, texts, worker
from tests.tui.still import Still

WHY = "svd failed: ValueError: " + "a reason that no line of a terminal holds, " * 3 + "the end"
SVD = (("rows", "20000"), ("cols", "10"))
HERE = str(Path.cwd())


def run(number: int = 1, state: RunState = RunState.DONE, **values: object) -> RunStatus:
    values = {"ended_at": EPOCH + 9, "done": 100, "total": 100, **values}
    return RunStatus(f"svd-{number}", "svd", SVD, state, EPOCH, **values)  # type: ignore[arg-type]


FAILED = run(
    1, RunState.FAILED, failure=Failure("RunError", WHY, "use fewer rows"), stage="computing"
)


def cluster(*runs: RunStatus, sequence: int = 1) -> Snapshot:
    here = host("h", device(0), device(1))
    return snapshot(here, workers=(worker(0), worker(1)), runs=runs, sequence=sequence)


@contextlib.asynccontextmanager
async def on_runs(on: Still, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Still]:
    """Show the runs."""
    async with on.showing("h:gpu0", size=size):
        await on.press("6", "svd-1")
        yield on


async def test_a_long_page_next_to_the_list_is_not_cut_by_its_scrollbar() -> None:
    why = "".join(f"{number:04}" for number in range(1000))
    async with on_runs(
        Still(cluster(run(1, RunState.FAILED, failure=Failure("RunError", why)))), size=(200, 40)
    ) as on:
        await on.sees(why[:60])
        page = [line.rpartition("│")[2] for line in on.text.splitlines()]
        assert why[:1000] in "".join(re.findall(r"\d{40,}", "\n".join(page)))


async def test_one_key_repeats_a_run_and_the_new_one_is_selected_and_shown() -> None:
    on = Still(cluster(run()))
    on.link.reply = Done(0, "svd-2")
    async with on_runs(on):
        await on.press("r", then=lambda: on.link.asked == [StartRun(0, "svd", SVD, cwd=HERE)])
        newer = run(2, RunState.RUNNING, ended_at=None, done=3)
        on.link.put(SnapshotTaken(cluster(run(), newer, sequence=2)))
        await on.sees("● running  svd", "3/100")
        assert on.app.view and on.app.view.current.run.id == "svd-2"


async def test_a_run_is_repeated_edited_and_copied_with_its_backend() -> None:
    on = Still(cluster(run(backend="numpy")))
    asked = StartRun(0, "svd", SVD, "numpy", HERE)
    command = "--run svd -p rows=20000 -p cols=10 --backend numpy"
    async with on_runs(on):
        await on.press("y", command)
        await on.press("r", then=lambda: on.link.asked == [asked])
        await on.press("e", command)
        await on.pilot.press(*"70000", "ctrl+r")
        edited = replace(asked, parameters=(("rows", "70000"), SVD[1]))
        await on.until(lambda: on.link.asked == [asked, edited])


async def test_a_program_is_run_again_in_its_folder_and_edited_with_all_its_options() -> None:
    typed = (("gpus", "2"), ("per", "gpu"), ("arguments", "python 'my train.py'"))
    on = Still(cluster(replace(run(), preset="exec:python", parameters=typed, cwd="/data")))
    asked = StartRun(0, "exec:python", typed, cwd="/data")
    async with on_runs(on):
        await on.press("r", then=lambda: on.link.asked == [asked])
        await on.press("e", "exec --cwd=/data --gpus=2 --per=gpu -- python 'my train.py'")
        await on.pilot.press("enter")
        edited = replace(asked, parameters=(("cwd", "/data"), *typed), cwd=HERE)
        await on.until(lambda: on.link.asked == [asked, edited])


SCRIPT = replace(run(0), preset="/home/me/train.py", parameters=(("arguments", "20 --fast"),))


async def test_a_scripts_run_is_copied_as_it_can_be_run_and_says_why_it_cannot_be_repeated() -> (
    None
):
    async with Still(cluster(SCRIPT)).showing("h:gpu0", size=(160, 40)) as on:
        await on.press("6", "train.py")
        for key in "re":
            await on.press([key], "a script runs in a terminal of its own: y copies its command")
        await on.press("y", "gputui --attach lab --run /home/me/train.py -- 20 --fast")
    assert not on.link.asked


async def test_a_runs_page_shows_its_parameters_and_defaults_and_its_name_whole() -> None:
    async with on_runs(Still(cluster(SCRIPT, run())), size=(100, 30)) as on:
        await on.sees("PARAMETERS", " train.py ", "rows=20000 cols=10")
        await on.press("g", "by default: chunk_rows=auto", "seed=0")


async def test_a_form_remembers_what_its_preset_was_run_with_over_sessions(tmp_path: Path) -> None:
    file = tmp_path / "screen.json"
    async with Still(cluster(), choices=file).showing("h:gpu0", size=(120, 40)) as on:
        await on.press(["colon", *"run svd cols=10", "enter"], then=lambda: on.link.asked)
    async with Still(cluster(), choices=file).showing("h:gpu0", size=(120, 40)) as on:
        await on.press(["colon", *"run svd", "enter"], "--run svd -p cols=10")


async def test_a_failed_runs_page_has_its_error_whole_and_y_copies_how_to_run_it_again() -> None:
    async with on_runs(Still(cluster(FAILED)), size=(80, 40)) as on:
        await on.sees("svd failed: ValueError: ", "the end")
        await on.press("y", "gputui --attach lab --run svd -p rows=20000 -p cols=10")
        assert "100%" not in on.text and "in computing" in on.text


def test_a_lost_runs_page_says_why() -> None:
    lost = run(state=RunState.LOST, summary="its command was killed")
    assert "its command was killed" in texts(run_lines(RunRow.at(lost, EPOCH), 80))


async def test_a_page_that_is_cut_is_scrolled_as_the_help_says() -> None:
    failure = Failure("RunError", "a reason", traceback=tuple(f"line {n}" for n in range(40)))
    async with on_runs(Still(cluster(run(1, RunState.FAILED, failure=failure))), (80, 24)) as on:
        await on.press(["question_mark"], "tab ", "pgdn scrolls")
        await on.pilot.press("escape", "tab", *["pagedown"] * 9)
        await on.sees("line 39")


async def test_enter_goes_from_event_to_run_to_worker_to_log_in_four_keys() -> None:
    failure = Failure("RunError", "lost its worker h:gpu1", worker="h:gpu1")
    failed = run(1, RunState.FAILED, failure=failure)
    on = Still(cluster(failed))
    event = Event(1, EPOCH, Severity.ERROR, "run svd-1", "failed", "svd: lost its worker")
    on.link.put(EventHappened(event))
    async with on.showing("h:gpu0", size=(120, 40)):
        await on.press("5", "run svd-1")
        await on.press(["enter"], then=lambda: on.app.current == "runs")
        await on.sees("lost its worker h:gpu1")
        await on.press(["enter"], then=lambda: on.app.current == "device")
        await on.sees("h:gpu1")


def test_a_log_has_the_traceback_and_whose_worker_said_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    recording = Recording(
        new_record("svd", {"rows": 5}, backend="numpy", hosts="", version="1"), print
    )
    recording.stage("computing")
    recording.note("h:gpu1 | no memory left", "h:gpu0 | all is well")
    try:
        try:
            raise ValueError("inside a task")
        except ValueError as inner:
            raise RunError("svd failed on h:gpu1") from inner
    except RunError as error:
        failure = error.failure("h:gpu1", ("no memory left",))
        recording.end(RunState.FAILED, failure=failure)
    (status,) = recorded_runs()
    assert status.failure == failure
    assert (status.parameters, status.state) == ((("rows", "5"),), RunState.FAILED)
    assert failure.traceback[-1] == "ValueError: inside a task"
    assert any("test_runs_view.py" in line for line in failure.traceback)
    assert any("traceback | ValueError" in line for line in log_tail(status.id))
    text = "\n".join(texts(run_lines(RunRow.at(status, time.time()), 60)))
    assert "computing 0.0 s" in text and "last log lines of h:gpu1" in text
    assert all(len(line) <= 60 for line in text.splitlines()[1:])
    assert recorded()[0].elapsed_s == pytest.approx(RunRow.at(status, 0.0).took_s)


async def test_another_clusters_run_shows_none_of_this_ones_tasks_and_workers() -> None:
    there = run(1, RunState.RUNNING, ended_at=None, done=3, stage="lost h:gpu1 once")
    groups = (TaskGroupStatus("gram-1", "gram", processing=2),)
    on = Still(replace(cluster(run(2)), groups=groups))
    on.app.earlier_runs = lambda: (run(2), there)
    async with on.showing("h:gpu0", size=(120, 40)):
        await on.press("6", "2 runs")
        await on.press("j", "● running  svd", "3/100")
        await on.sees_not("gram")
        await on.press(["enter"], "it ran on another cluster")
        assert on.app.current == "runs"
        await on.press(["k"], then=lambda: on.app.view.cursor == "svd-2")
        await on.press([*":runs svd-1", "enter"], then=lambda: on.app.view.cursor == "svd-1")


async def test_another_clusters_run_comes_counts_its_time_and_ends_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(runs_view, "LOOK_BACK_S", 0.05)
    on = Still(cluster(run(2)), earlier_runs=recorded_runs)
    on.app.head.clock = lambda: time.time() + 75
    async with on.showing("h:gpu0", size=(120, 40)):
        await on.press("6", "1 run ")
        record = new_record("mean", {"axis": 0}, backend="numpy", hosts="", version="1")
        recording = Recording(record, print)
        await on.sees("2 runs", "● running   mean", "1:15")
        recording.end(RunState.DONE)
        await on.sees("✔ done      mean         ", "100%")
        await on.sees_not("1:15")


def test_a_result_is_shown_as_the_command_prints_it() -> None:
    result = {"sum": 1.1e9, "numbers_per_s": 90112099.3, "sigma": [3164.61, 133.138]}
    units = {"numbers_per_s": "/s"}
    lines = result_lines(json.dumps({"result": result, "units": units}), 80)
    assert "\n".join(texts(lines)) == text(result, units)


@pytest.mark.parametrize("given", ["", "no JSON", "[]", '{"result": 3}', '{"result": {}}', "{}"])
def test_a_result_that_is_none_is_no_lines(given: str) -> None:
    assert result_lines(given, 60) == []


def test_no_line_of_a_result_is_wider_than_the_page_or_harms_the_terminal() -> None:
    rows = [{"worker": "gpu-a:gpu0", "uuid": "GPU-" + "0" * 60, "note\x1b[31m": "\x07"}]
    lines = result_lines(json.dumps({"result": {"rows": rows, "long": "x " * 90}}), 40)
    assert max(map(len, texts(lines))) <= 40
    assert not {"\x1b", "\x07"} & set("".join(texts(lines)))


async def test_a_look_at_earlier_runs_does_not_end_the_reading_of_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = threading.Event()

    def tail(id: str) -> tuple[str, ...]:
        assert waits.wait(30)
        return (f"the log of {id}",)

    monkeypatch.setattr(runs_view, "log_tail", tail)
    async with on_runs(Still(cluster(FAILED))) as on:
        on.app.visited["runs"]._look_back()
        await on.pilot.pause()
        waits.set()
        await on.sees("the log of svd-1")


@pytest.mark.parametrize("away", [True, False])
async def test_a_run_that_ends_is_told_to_a_person_who_looks_elsewhere(
    away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "write", lambda self, data: written.append(data))
    monkeypatch.setenv("TERM", "xterm-kitty")
    async with on_runs(Still(cluster(run(state=RunState.RUNNING, ended_at=None)))) as on:
        on.app.post_message(AppBlur() if away else AppFocus())
        await on.until(lambda: on.app.app_focus is not away)
        on.link.put(SnapshotTaken(cluster(run(summary="0.3 s"), sequence=2)))
        await on.sees("0.3 s")
    told = [data for data in written if data.startswith("\x1b]9;")]
    assert told == ["\x1b]9;gputui: svd: done: 0.3 s\x07"] * away


async def test_two_marked_runs_are_compared_side_by_side() -> None:
    slow = run(1, ended_at=EPOCH + 30, result_json='{"result": {"residual": 1e-9}}')
    fast = replace(run(2, ended_at=EPOCH + 20), started_at=EPOCH + 5, parameters=(("rows", "7"),))
    async with Still(cluster(slow, fast)).showing("h:gpu0", size=(120, 40)) as on:
        await on.press("6", "svd-2")
        await on.pilot.press("space", "space")
        await on.sees("svd-1", "0:30 then, 50 % faster now", "residual", "1e-09")
        assert re.search(r"rows +20000 +7\n?", on.text)
        found = differences(slow, fast)
        alike = [each[1] == each[2] for each in found[3:]]
        assert alike == sorted(alike)
        lines = [line.lstrip(" │") for line in on.text.splitlines()]
        places = [
            next(n for n, line in enumerate(lines) if line.startswith(f"{each[0]} "))
            for each in found
        ]
        assert places == sorted(places), "as `runs diff` has them"
        await on.pilot.press("escape")
        await on.sees_not("50 % faster")


async def test_a_runs_page_says_what_it_took() -> None:
    used = Usage(60.0, 2, 0.03, energy_wh=12.5, device_memory_peak_bytes=130 * 2**30)
    async with on_runs(Still(cluster(run(usage=used)))) as on:
        await on.sees("130 GiB at most on one GPU", "12.5 Wh", "2, for 0.03 GPU hours")


async def test_a_finished_run_says_how_it_compares_with_the_last_of_its_kind() -> None:
    later = replace(run(2, ended_at=EPOCH + 28.0), started_at=EPOCH + 10)
    async with Still(cluster(run(1, ended_at=EPOCH + 9.0), later)).showing(
        "h:gpu0", size=(120, 40)
    ) as on:
        await on.press("6", "svd-2")
        await on.sees("took 0:18 (9.0 s then, 100 % slower now)")


MACHINE = Machine("cupy", workers=8, threads=8, smallest_bytes=10 * 2**30)


def form(**texts: str) -> Form:
    """Return the form of svd with these texts typed."""
    made = Form(presets.get("svd"), MACHINE)
    for name, typed in texts.items():
        made = made.typed(name, typed)
    return made


def test_the_form_and_the_run_see_the_same_room() -> None:
    on_cpus = [
        worker(0, device_uuid=None, memory_limit_bytes=4 * GIB),
        worker(1, device_uuid=None),
        worker(2, device_uuid=None, nthreads=2),
    ]
    reading = HostReading(memory_total_bytes=80 * GIB, memory_used_bytes=20 * GIB)
    for cpu, room in zip(on_cpus, (2, 30, 15), strict=True):
        made = machine_of(snapshot(host(reading=reading), workers=(cpu,)))
        assert made and made.smallest_bytes == room * GIB
    processes = tuple(
        DeviceProcess(pid, owner, "bob", "x", 20 * GIB)
        for pid, owner in enumerate((Owner.OURS, Owner.OTHER))
    )
    gpu = device(processes=processes, memory_used_bytes=40 * GIB)
    pair = (worker(0, device_managed_bytes=10 * GIB), worker(0))
    made = machine_of(snapshot(host("h", gpu), workers=pair))
    assert made and made.smallest_bytes == int(25 * GIB * 0.85)


def test_only_what_differs_from_the_default_is_sent() -> None:
    assert form(rows="20000", cols="1000").parameters() == (("rows", "20000"),)
    assert form(cols="5").typed("cols", "1000").parameters() == ()


def test_an_estimate_says_whether_it_fits_and_what_to_change() -> None:
    assert fits(form(rows="1e5", cols="10").memory(), MACHINE)
    large = form(rows="1e9", chunk_rows="1e9").memory()
    assert not fits(large, MACHINE)
    assert "too large; use chunk_rows" in memory_text(large, MACHINE)


def test_without_workers_or_with_mistakes_nothing_is_estimated() -> None:
    assert Form(presets.get("svd"), None).memory() is None
    assert form(rows="-1").memory() is None
