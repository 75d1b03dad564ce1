"""Records of runs, and what becomes of a result."""

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gputui import runs
from gputui.cli.headless import remove_old_runs
from gputui.cli.listing import list_runs, show_run
from gputui.errors import RunError, UsageError
from gputui.model.snapshot import RunState
from gputui.model.usage import Failure
from gputui.presets import Figure
from gputui.presets.definition import json_text
from gputui.process.procfs import own_place
from gputui.runs import records
from gputui.runs.records import status_of, write
from gputui.tui.rendering.figures import figure_text


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gputui" / "runs"


def recording(preset: str = "svd", warned: Any = pytest.fail, id: str = "") -> runs.Recording:
    record = runs.new_record(
        preset, {"rows": 10}, backend="auto", hosts="hosts.txt", version="0.1.0", id=id
    )
    return runs.Recording(record, warned)


def fetch(block: Any) -> Any:
    return block.compute(scheduler="synchronous")


def begun(preset: str = "svd") -> runs.RunRecord:
    return recording(preset).record


def test_a_run_is_recorded_when_it_starts_and_again_when_it_ends() -> None:
    run = recording()
    assert records.find(run.record.id).state is RunState.RUNNING
    run.end(RunState.DONE, result={"result": {"sum": 3}}, restarts=2)
    found = records.find(run.record.id)
    assert (found.state, found.result, found.restarts) == (
        RunState.DONE, {"result": {"sum": 3}}, 2,
    )  # fmt: skip
    assert json.loads(json.dumps(asdict(found)))["preset"] == "svd"


@pytest.mark.parametrize(
    "part",
    [
        {"figure": {"kind": "line", "x": [1, 2]}, "units": {"elapsed_s": "s"}},
        {"figure": None, "backend": "numpy"},
        {"failed_hosts": [{"host": "gpu-a", "reason": "no route"}], "versions": {"dask": "2026.8"}},
    ],
    ids=lambda part: ", ".join(part),
)
def test_a_run_is_read_again_with_every_part_of_its_result(part: dict[str, Any]) -> None:
    run = recording()
    run.end(RunState.DONE, result=part)
    assert records.find(run.record.id).result == part


def test_nobody_else_can_read_a_record(state: Path) -> None:
    folder = begun().folder
    assert folder.parent == state
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "run.json").stat().st_mode) == 0o600


def test_an_error_is_recorded_with_its_type() -> None:
    recording().end(RunState.FAILED, failure=RunError("too large", hint="use less").failure())
    (found,) = records.recorded()
    assert found.failure == Failure("RunError", "too large", "use less")


def test_a_run_whose_process_is_gone_is_lost_which_is_said_as_its_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = (
        "from gputui import runs;"
        "record = runs.new_record('svd', {}, backend='auto', hosts='', version='1');"
        "print(runs.Recording(record, print).record.id)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert records.find(shown.stdout.strip()).state is RunState.LOST
    capsys.readouterr()
    list_runs(as_json=False)
    show_run("last", as_json=False)
    assert capsys.readouterr().out.count("its process is gone: it was killed, or") == 2
    assert status_of(records.recorded()[0]).words.startswith("its process is gone")


def test_a_run_whose_process_number_was_given_to_a_later_one_is_lost() -> None:
    record = begun()
    assert records.find(record.id).state is RunState.RUNNING
    write(replace(record, started_at=record.started_at - 86_400))
    assert records.find(record.id).state is RunState.LOST


def on_another_machine(record: runs.RunRecord, **place: Any) -> runs.RunRecord:
    """Have the record say that another machine with this home runs it, by a pid that is free."""
    there = {"machine": "node-2", "boot": "its-boot", "pids": "pid:[1]", "pid": 2**22 + 1}
    moved = replace(record, **there | place)
    write(moved)
    return moved


def test_a_run_of_another_machine_with_this_home_goes_on_as_far_as_its_files_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moved = on_another_machine(begun())
    assert records.find(moved.id).state is RunState.RUNNING
    list_runs(as_json=False)
    words = capsys.readouterr().out.splitlines()[1].split()[1:]
    assert words == ["running", "–", "–", "on", "node-2"]
    show_run(moved.id, as_json=False)
    assert "node-2" in capsys.readouterr().out
    write(replace(moved, state=RunState.DONE, ended_at=1.0))
    assert records.find(moved.id).state is RunState.DONE


def test_a_run_of_another_machine_that_wrote_nothing_for_a_week_is_lost_and_pruned() -> None:
    record = on_another_machine(begun())
    past = time.time() - records.SILENT_ELSEWHERE_S - 60
    os.utime(record.folder / "run.json", (past, past))
    assert records.find(record.id).state is RunState.LOST
    record.log.write_text("12:00:00.0  still here\n")
    assert records.find(record.id).state is RunState.RUNNING
    os.utime(record.log, (past, past))
    records.prune(0)
    assert not record.folder.exists()


HERE = own_place()


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ({"machine": HERE.machine, "boot": HERE.boot}, RunState.RUNNING),
        ({"machine": HERE.machine}, RunState.LOST),
        ({"machine": "", "boot": "", "pids": "", "pid": os.getpid()}, RunState.RUNNING),
    ],
    ids=["in a container here", "before this machine was started", "of an earlier release"],
)
def test_a_run_is_judged_by_its_pid_where_that_means_something(
    place: dict[str, Any], state: RunState
) -> None:
    record = on_another_machine(begun(), **place)
    assert records.find(record.id).state is state


def test_the_newest_run_is_listed_first_and_found_as_last() -> None:
    first, second = begun(), begun("mean")
    assert [each.id for each in records.recorded()] == [second.id, first.id]
    assert records.find("last").id == second.id
    assert records.find(first.id[-8:]).id == first.id


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ("nothing", "'nothing' is no run"),
        ("", "'' is no run"),
        ("2", "names 12 runs; `gputui runs` lists"),
    ],
)
def test_an_id_that_names_no_run_or_several_is_refused(id: str, says: str) -> None:
    for _ in range(12):
        begun()
    with pytest.raises(UsageError, match=says):
        records.find(id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"error": "\ud800"},
        {"id": "../../elsewhere"},
        {"timings": {"computing": "long"}},
        {"saved": [3]},
        {"started_at": 1e300},
        {"result": {"a": float("inf")}},
        {},
    ],
    ids=str,
)
def test_a_record_that_no_run_wrote_is_passed_over(state: Path, wrong: dict[str, Any]) -> None:
    good, bad = begun(), begun()
    text = json.dumps(asdict(bad) | wrong) if wrong else "{"
    (bad.folder / "run.json").write_text(text)
    assert [each.id for each in records.recorded()] == [good.id]
    list_runs(as_json=False)


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(state: Path) -> None:
    kept, pipe = begun(), begun("matmul").folder / records.FILE
    pipe.unlink()
    os.mkfifo(pipe)
    assert [run.id for run in records.recorded()] == [kept.id]


def test_arrays_are_saved_block_by_block(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(4, 3)
    u = da.from_array(x, chunks=(3, 2))
    paths = runs.save_arrays(tmp_path / "out", {"u": u, "s": x[0]}, fetch)
    assert [path.name for path in paths] == ["u.npy", "s.npy"]
    np.testing.assert_array_equal(np.load(paths[0]), x)
    np.testing.assert_array_equal(np.load(paths[1]), x[0])


@pytest.mark.parametrize("there", ["a file", "a link", "a link to nothing"])
def test_what_is_at_the_place_of_an_array_is_neither_followed_nor_replaced(
    tmp_path: Path, there: str
) -> None:
    precious = tmp_path / "precious"
    if there != "a link to nothing":
        precious.write_text("kept")
    path = tmp_path / "s.npy"
    path.hardlink_to(precious) if there == "a file" else path.symlink_to(precious)
    with pytest.raises(RunError, match=r"s\.npy: File exists"):
        runs.save_arrays(tmp_path, {"s": np.zeros(100)}, fetch)
    assert os.path.lexists(path)
    assert precious.exists() == (there != "a link to nothing")
    assert not precious.exists() or precious.read_text() == "kept"


def test_a_figure_takes_the_place_of_a_link_and_leaves_what_that_leads_to(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    (tmp_path / "precious").write_text("kept")
    path.symlink_to(tmp_path / "precious")
    runs.draw_file(LINE, path)
    assert path.read_bytes().startswith(b"\x89PNG") and not path.is_symlink()
    assert (tmp_path / "precious").read_text() == "kept"


def test_an_array_of_unknown_shape_is_refused_with_what_to_call(tmp_path: Path) -> None:
    x = da.arange(10, chunks=5)
    with pytest.raises(RunError, match=r"the shape of 'x' is not known(.|\n)*compute_chunk_sizes"):
        runs.save_arrays(tmp_path / "out", {"x": x[x > 3]}, fetch)


LINE = Figure("line", "a line", x=(0.0, 1.0, 2.0), y=(9.0, 3.0, 1.0), logarithmic=True)


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_a_file_of_a_figure_is_what_its_name_says(
    suffix: str, begins: bytes, tmp_path: Path
) -> None:
    runs.draw_file(LINE, tmp_path / f"figure{suffix}")
    assert (tmp_path / f"figure{suffix}").read_bytes().startswith(begins)


def test_a_figure_that_cannot_be_written_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"--figure .*: No such file"):
        runs.draw_file(LINE, tmp_path / "none" / "figure.png")


ROWS = [{"name": "one", "elapsed_s": 1.5}, {"name": "three", "elapsed_s": 20.0}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([[None, 1.1e9], [246e6, None]], "–         1.1 GB/s\n   246 MB/s  –"),
        (ROWS, "name   elapsed s\none    1.5\nthree  20"),
        (0.1 + 0.2, "0.3"),
        (250_000_000_000, "250,000,000,000"),
        (1.5e-14, "1.5e-14"),
        (float("nan"), "nan"),
        (None, "–"),
        (True, "yes"),
        (list(range(20)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … and 8 more"),
    ],
)
def test_values_are_printed_for_people(value: Any, shown: str) -> None:
    units = {"x": "B/s"} if "B/s" in shown else {}
    assert runs.text({"x": value}, units) == (shown if value is ROWS else f"x  {shown}")


@pytest.mark.parametrize(
    "result",
    [
        {"rows": [{"name": "", "a key of many words " * 6: 1}]},
        {"rows": [{"name": "a"}, 3]},
        {"a_key_longer_than_a_line_" * 5: "some words"},
    ],
    ids=["an empty column", "a row that is none", "a long key"],
)
def test_whatever_a_preset_returns_is_printed(result: dict[str, Any]) -> None:
    assert runs.text(result)


ODD = (float("nan"), float("inf"), -float("inf"))
ODD_FIGURES = [
    Figure("line", "a line", x=(0.0, 1.0, 2.0, 3.0), y=(*ODD, 2.0), logarithmic=True),
    Figure("line", "a line", x=(0.0, 1.0, 2.0), y=ODD),
    Figure("bar", "bars", labels=("nan", "two", "three"), y=(ODD[0], 2.0, -1.0)),
    Figure("heat", "a map", labels=("nan", "b"), matrix=((ODD[1], 1.5), (None, ODD[0]))),
    Figure("heat", "a map", matrix=((ODD[1], ODD[0]),)),
    Figure("line", "nothing at all"),
]


@pytest.mark.parametrize("figure", ODD_FIGURES)
def test_numbers_that_are_not_finite_stand_in_the_way_of_no_figure(
    figure: Figure, tmp_path: Path
) -> None:
    kept = json.loads(json_text(asdict(figure)), parse_constant=pytest.fail)
    for made in (figure, kept):
        assert figure_text(made).startswith(figure.title) or figure.title in figure_text(made)
        assert "cannot be drawn" not in figure_text(made)
    runs.draw_file(figure, tmp_path / "figure.png")


def test_what_is_not_finite_stays_valid_json_in_a_record() -> None:
    run = recording()
    run.keep({"result": {"worst": ODD[0]}, "figure": asdict(ODD_FIGURES[0])})
    run.end(RunState.DONE, result={"parameters": {"least": ODD[1]}})
    text = (run.record.folder / "run.json").read_text()
    kept = json.loads(text, parse_constant=pytest.fail)
    assert kept["result"]["parameters"]["least"] == "inf"
    numpys = {"worst": np.float64("nan"), "count": np.int64(3), "s": np.ones(2, np.float32)}
    assert json.loads(json_text(numpys)) == {"worst": "nan", "count": 3, "s": [1.0, 1.0]}


def test_a_folder_whose_name_is_no_unicode_leaves_its_runs_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)
    begun()
    assert [each.cwd for each in records.recorded()] == [f"{tmp_path}/caf?"]


def test_a_result_is_recorded_before_anything_is_made_of_it() -> None:
    run = recording()
    run.keep({"result": {"sum": 3}})
    run.end(RunState.FAILED, failure=RunError("the disk is full").failure())
    assert records.find(run.record.id).result == {"result": {"sum": 3}}


def test_the_oldest_records_are_removed_and_a_run_that_goes_on_stays() -> None:
    oldest, first, second = (recording(id=f"2026010{day}-120000-svd-0a1b") for day in (1, 2, 3))
    for one in (first, second):
        one.end(RunState.DONE)
    records.prune(1)
    assert {each.id for each in records.recorded()} == {oldest.record.id, second.record.id}
    assert not first.record.folder.exists()


def test_after_a_run_as_many_records_are_kept_as_is_set_and_a_wrong_setting_removes_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for day in (1, 2, 3):
        recording(id=f"2026010{day}-120000-svd-0a1b").end(RunState.DONE)
    with dask.config.set({"gputui": {"runs": {"kept": -1}}}):
        remove_old_runs()
    assert "gputui.runs.kept" in capsys.readouterr().err
    assert len(records.recorded()) == 3
    with dask.config.set({"gputui": {"runs": {"kept": 0}}}):
        remove_old_runs()
    assert [each.id[:8] for each in records.recorded()] == ["20260103"]


def test_the_run_that_ended_last_is_the_newest_whenever_it_began() -> None:
    long_one, short_one = (recording(id=f"2026010{day}-120000-svd-0a1b") for day in (1, 2))
    for one in (short_one, long_one):
        one.end(RunState.DONE)
    records.prune(1)
    assert [each.id for each in records.recorded()] == [long_one.record.id]


def test_records_that_cannot_be_removed_change_nothing_of_how_a_run_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stale(kept: int) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr("gputui.runs.prune", stale)
    remove_old_runs()
    assert "Stale file handle" in capsys.readouterr().err


def test_a_record_of_an_earlier_release_shows_its_error_and_its_hint() -> None:
    record = runs.new_record("svd", {}, backend="auto", hosts="", version="0.2.0")
    write(replace(record, state=RunState.FAILED, ended_at=1.0))
    path = record.folder / "run.json"
    fields = json.loads(path.read_text())
    del fields["failure"]
    path.write_text(json.dumps(fields | {"error_type": "RunError", "error": "large\n  use less"}))
    (found,) = runs.recorded()
    assert found.failure == Failure("RunError", "large\n  use less")
    assert status_of(found).words == "large\n  use less"
