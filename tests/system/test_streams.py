"""A full disk behind stdout, closed streams, folders that are gone: words, and no traceback."""

import json
import os
import subprocess
import sys

import pytest

from tests.system.conftest import Command
from tests.system.lab import last_run, running_lab

lab = running_lab

MEAN = ("--attach", "lab", "--run", "mean", "-p", "rows=1000", "--quiet")


def in_a_shell(lab: Command, line: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as `"$@"` of a line of shell."""
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "gputui", *arguments],
        capture_output=True,
        text=True,
        cwd=lab.folder,
        env={**os.environ, **lab.env},
        timeout=90,
    )


@pytest.mark.parametrize(
    "arguments", [MEAN, pytest.param((*MEAN, "--json"), marks=pytest.mark.slow), ("presets",)]
)
def test_a_full_standard_output_is_exit_1_in_words_and_in_the_record(
    lab: Command, arguments: tuple[str]
) -> None:
    done = in_a_shell(lab, '"$@" > /dev/full', *arguments)
    assert done.returncode == 1
    assert "gputui: standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    if "--run" in arguments:
        record = last_run(lab)
        failure = ("failed", "standard output: No space left on device")
        assert (record["state"], record["error"]) == failure


def test_what_a_preset_prints_is_not_in_its_json(lab: Command) -> None:
    (lab.folder / "mine.py").write_text(
        "from gputui.presets import Outcome, Preset\n"
        "def compute(job):\n    print('by the way')\n    return Outcome({'x': 3})\n"
        "PRESET = Preset('mine', 'prints', (), compute)\n"
    )
    done = lab("--attach", "lab", "--run", "./mine.py:PRESET", "--json")
    assert json.loads(done.stdout)["result"] == {"x": 3}
    assert "by the way" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(lab: Command, closed: str) -> None:
    done = in_a_shell(lab, f'"$@" {closed}', *MEAN)
    assert done.returncode == 0, done.stderr
    assert last_run(lab)["state"] == "done"


def test_a_reader_that_goes_away_has_the_run_end_well(lab: Command) -> None:
    assert in_a_shell(lab, '"$@" | true', *MEAN).stderr == ""
    assert last_run(lab)["state"] == "done"


def test_a_working_directory_that_is_gone_is_said_to_be_so(lab: Command) -> None:
    done = in_a_shell(lab, 'mkdir gone && cd gone && rmdir ../gone && "$@"', *MEAN)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "cd to another one" in done.stderr


@pytest.mark.slow
def test_a_state_folder_that_cannot_be_made_keeps_nothing_from_running(gputui: Command) -> None:
    gputui.env["XDG_STATE_HOME"] = "/proc/gputui"
    done = gputui("localhost gpus=none workers=1", "--run", "mean", "-p", "rows=1000", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "this run is not recorded: /proc/gputui" in done.stderr
