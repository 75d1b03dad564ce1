"""What `presets`, `runs` and `help` print, as a newcomer reads it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gputui import presets, runs
from gputui.cli import run_command
from gputui.cli.clusters import table as cluster_table
from gputui.cli.listing import FOLDER, run_table, show_help, topics
from gputui.errors import RunError, UsageError
from gputui.model.snapshot import RunState
from gputui.runs.records import write
from tests.terminals import Emulated

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def record(preset: str = "svd", id: str = "") -> runs.RunRecord:
    return runs.new_record(
        preset, {"rows": 10}, backend="auto", hosts="lab.txt", version="0.1.0", id=id
    )


def test_every_preset_is_listed_within_80_columns(capsys: Capture) -> None:
    assert run_command(["presets"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    assert [
        name for name in presets.names() if not any(line.startswith(name) for line in printed)
    ] == []


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_is_shown_with_each_parameter_as_it_is_typed(name: str, capsys: Capture) -> None:
    assert run_command(["presets", "show", name]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for parameter in presets.get(name).parameters:
        assert f"  -p {parameter.name}=" in printed
    assert printed.endswith(f"gputui --run {name}\n")


def test_a_default_that_is_printed_is_one_that_may_be_typed(capsys: Capture) -> None:
    run_command(["presets", "dataframe"])
    words = dict(word.split("=") for word in capsys.readouterr().out.split() if "=" in word)
    preset = presets.get("dataframe")
    defaults = {each.name: each.default for each in preset.parameters}
    assert presets.parse(preset, words).values == defaults


def test_a_preset_is_shown_with_what_comes_of_it(capsys: Capture) -> None:
    run_command(["presets", "svd"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "a figure (--figure), the arrays u, s, v (--save)" in printed
    run_command(["presets", "svd", "--json"])
    (svd,) = json.loads(capsys.readouterr().out)
    assert (svd["arrays"], svd["draws"]) == (["u", "s", "v"], True)


def test_a_preset_of_a_file_is_shown_as_it_is_run(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.py").write_text(
        "from gputui.presets import Preset\nPRESET = Preset('mine', 'nothing', (), print)\n"
    )
    run_command(["presets", f"{tmp_path}/mine.py"])
    assert capsys.readouterr().out.endswith(f"gputui --run {tmp_path}/mine.py:PRESET\n")


def test_an_unknown_preset_is_exit_2_with_the_nearest_names(capsys: Capture) -> None:
    assert run_command(["presets", "sdv"]) == 2
    assert "did you mean 'svd'" in capsys.readouterr().err


def test_a_package_whose_preset_does_not_import_is_named_and_the_rest_are_listed(
    tmp_path: Path,
) -> None:
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[gputui.presets]\ntheirs = nowhere:PRESET\n")
    for words in (["presets"], ["presets", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "gputui", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "svd" in done.stdout
        assert "preset 'theirs' does not import: ModuleNotFoundError: No module" in done.stderr


def test_clusters_are_a_table_within_80_columns() -> None:
    row = {
        "workers": 1000,
        "hosts": 125,
        "started": 0.0,
        "problem": "",
        "runs": [],
        "state": "running",
        "address": "tls://10.0.0.12:45347",
    }
    head, first, second = cluster_table([{"name": "lab", **row}, {"name": "a-longer-name", **row}])
    assert head == "name           workers  hosts  since             address"
    assert first.split() == [
        "lab", "1,000", "125", *first.split()[3:5], "tls://10.0.0.12:45347",
    ]  # fmt: skip
    assert len(second) <= 80


def test_without_any_run_it_is_said_how_to_make_one(capsys: Capture) -> None:
    assert run_command(["runs"]) == 0
    assert "no run yet" in capsys.readouterr().err
    assert run_command(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_runs_are_a_table_with_how_each_ended() -> None:
    begun = record(id="20260101-120000-svd-aaaa")
    over = {"ended_at": begun.started_at + 2}
    good = replace(begun, state=RunState.DONE, summary="condition 3", **over)
    bad = replace(begun, id="20260101-120000-mean-bbbb", state=RunState.FAILED, **over)
    assert run_table((good, replace(bad, failure=RunError("full\nx").failure()))) == [
        "run                        state           took     memory  result",
        "20260101-120000-svd-aaaa   done           2.0 s          –  condition 3",
        "20260101-120000-mean-bbbb  failed         2.0 s          –  full",
    ]


def test_a_run_is_shown_by_the_beginning_of_its_id_with_result_and_log(capsys: Capture) -> None:
    begun = record(id="20260101-120000-svd-aaaa")
    recording = runs.Recording(begun, pytest.fail)
    recording.stage("adding")
    kept = {"result": {"sum": 2.5}, "units": {"sum": "m"}, "versions": {"numpy": "2"}}
    recording.end(RunState.DONE, result=kept, workers=("a:gpu0",), restarts=1)
    assert run_command(["runs", "show", "20260101"]) == 0
    printed = capsys.readouterr().out
    for words in ("rows=10", "lab.txt", "a:gpu0", "adding 0.", "numpy 2", "sum  2.5 m", "log.txt"):
        assert words in printed
    assert begun.log.read_text().endswith("done\n")


def test_the_word_show_may_be_left_out(capsys: Capture) -> None:
    write(record(id="20260101-120000-svd-aaaa"))
    assert run_command(["runs", "last"]) == 0
    assert "20260101-120000-svd-aaaa" in capsys.readouterr().out
    for arguments in (["runs", "--json", "last"], ["runs", "last", "--json"]):
        assert run_command(arguments) == 0
        assert json.loads(capsys.readouterr().out)["id"] == "20260101-120000-svd-aaaa"


def test_a_log_of_a_task_that_prints_for_ever_is_cut() -> None:
    recording = runs.Recording(record(), pytest.fail)
    for _ in range(12):
        recording.note("x" * 2**20)
    log = recording.record.log
    assert log.stat().st_size < 11 * 2**20
    assert log.read_text().endswith("this log is full: only its last lines follow\n")


def test_a_run_goes_on_where_it_cannot_be_recorded(state: Path) -> None:
    state.touch()
    warned: list[str] = []
    recording = runs.Recording(record(), warned.append)
    recording.stage("adding")
    recording.end(RunState.DONE)
    assert len(warned) == 1
    assert "this run is not recorded" in warned[0]
    assert recording.record.timings.keys() == {"adding"}


def test_without_a_topic_all_are_listed(capsys: Capture) -> None:
    show_help(None)
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*topics()]
    assert {"hosts", "ssh", "python", "security", "contributing", "settings"} <= {*listed}


def test_in_a_pipe_a_topic_is_its_markdown(capsys: Capture) -> None:
    show_help("hosts")
    assert capsys.readouterr().out == (FOLDER / "hosts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("Secu", "did you mean security"),
        ("notebook", "did you mean python"),
        ("mac", "did you mean ssh"),
        ("zzzz", "topics are arrays, changes, contributing"),
    ],
)
def test_a_topic_that_does_not_exist_is_refused_with_the_nearest(typed: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"no help topic '{typed}'; {hint}"):
        show_help(typed)


def test_on_a_terminal_a_topic_is_drawn_and_no_markdown_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gputui", "help", "settings"]
    screen = Emulated.start(*command, env={"HOME": str(tmp_path), "LESS": ""}, cells=(100, 50))
    try:
        screen.sees("Settings", "stage-timeout")
        assert "```" not in screen.text
    finally:
        screen.kill()
