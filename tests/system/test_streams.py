"""A full disk behind stdout, closed streams, folders that are gone: words, and no traceback."""

import json
import subprocess

import pytest

from tests.system.conftest import Command
from tests.system.lab import last_run, log_of_last_run, preset, running_lab

lab = running_lab

MEAN = ("--attach", "lab", "--run", "mean", "-p", "rows=1000", "--quiet")


def in_a_shell(lab: Command, line: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as `"$@"` of a line of shell."""
    return lab.run_other("sh", "-c", line, "sh", *lab.words(*arguments))


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


PRINTS = """
def compute(job):
    print('by', 'the way', end='!')
    os.system('echo a process of it')
    job.client.submit(print, 'a task', file=sys.stdout).result()
    return Outcome({'x': 3})
"""


def test_what_a_preset_prints_is_in_the_log_of_its_run_and_not_in_its_json(lab: Command) -> None:
    done = lab("--attach", "lab", "--run", preset(lab, PRINTS), "--json")
    assert json.loads(done.stdout)["result"] == {"x": 3}
    assert "by the way!" in done.stderr and "a process of it" in done.stderr
    assert "  by the way!" in log_of_last_run(lab)


RAISED = {
    "BaseException": "BaseException('skipped')",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "CancelledError": "asyncio.CancelledError('its own')",
    "BaseExceptionGroup": "BaseExceptionGroup('two', [KeyboardInterrupt(), ValueError()])",
}


@pytest.mark.parametrize("name", RAISED)
def test_whatever_a_preset_raises_is_a_failure_of_its_run(lab: Command, name: str) -> None:
    raises = preset(lab, f"import asyncio\ndef compute(job):\n    raise {RAISED[name]}")
    done = lab("--attach", "lab", "--run", raises, "--json", "--quiet")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (1, "RunError"), done.stderr
    assert f"{name}: " in error["message"] and "mine.py:5" in error["message"]
    assert "Traceback" not in done.stderr
    assert last_run(lab)["state"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(lab: Command, closed: str) -> None:
    done = in_a_shell(lab, f'"$@" {closed}', *MEAN)
    assert done.returncode == 0, done.stderr
    assert last_run(lab)["state"] == "done"


def test_a_reader_that_goes_away_has_the_run_end_well(lab: Command) -> None:
    assert in_a_shell(lab, '"$@" | true', *MEAN).stderr == ""
    assert last_run(lab)["state"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize(("onto", "status"), [("| true", 0), ("> /dev/full", 1)])
def test_a_script_whose_json_nobody_takes_is_recorded(lab: Command, onto: str, status: int) -> None:
    (lab.folder / "s.py").write_text("print('hi')\n")
    run = ("--attach", "lab", "--run", "s.py", "--json", "--quiet")
    done = in_a_shell(lab, f'{{ "$@"; echo "exit $?" >&2; }} {onto}', *run)
    assert f"exit {status}" in done.stderr
    assert last_run(lab)["state"] == ("failed" if status else "done")


@pytest.mark.parametrize("onto", ["| true", "> /dev/full"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("presets",), (0, 1)), (("--run", "mean", "-p", "x=1", "--json"), (2, 2))],
)
def test_an_exit_code_is_that_of_the_command_whoever_reads(
    gputui: Command, onto: str, arguments: tuple[str, ...], status: tuple[int, int]
) -> None:
    done = in_a_shell(gputui, f'{{ "$@"; echo "exit $?" >&2; }} {onto}', *arguments)
    assert f"exit {status[onto != '| true']}" in done.stderr


def test_a_working_directory_that_is_gone_is_said_to_be_so(lab: Command) -> None:
    done = in_a_shell(lab, 'mkdir gone && cd gone && rmdir ../gone && "$@"', *MEAN)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "cd to another one" in done.stderr


@pytest.mark.slow
def test_a_state_folder_that_cannot_be_made_keeps_nothing_from_running(gputui: Command) -> None:
    gputui.env["XDG_STATE_HOME"] = "/proc/gputui"
    done = gputui.ok("localhost gpus=none workers=1", "--run", "mean", "-p", "rows=1000", "--quiet")
    assert "this run is not recorded: /proc/gputui" in done.stderr
