"""Whatever is killed, whenever, whatever the tasks do: the command says so, and nothing is left."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system import hang
from tests.system.conftest import Command, a_command
from tests.system.parts import Run

HOST = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL

# When, what the task is, what is sent to whom → exit status, and what is said.
EVERY_TIME = [
    ("start", "wait", "command", INT, 130, "interrupted"),
    ("start", "wait", "scheduler", KILL, 3, "scheduler was killed by SIGKILL"),
    ("start", "wait", "forkserver", KILL, 0, ""),
    ("run", "child", "command", TERM, 130, "interrupted"),
    ("run", "gil", "command", KILL, -9, ""),
    ("run", "gil", "head", KILL, 3, "head is gone"),
    ("run", "gil", "scheduler", KILL, 3, "scheduler was killed by SIGKILL"),
    ("run", "child", "agent", KILL, 0, ""),
    ("run", "gil", "worker", KILL, 0, ""),
    ("stop", "gil", "agent", KILL, 130, "interrupted"),
]
LONG = [
    ("start", "wait", "command", KILL, -9, ""),
    ("start", "wait", "head", KILL, 3, "head"),
    ("start", "wait", "agent", KILL, 3, "its agent ended"),
    ("start", "wait", "worker", KILL, 0, ""),
    ("run", "gil", "command", INT, 130, "interrupted"),
    ("run", "wait", "command", HUP, 130, "interrupted"),
    ("run", "child", "head", TERM, 3, "the head was sent SIGTERM"),
    ("run", "wait", "scheduler", TERM, 3, "scheduler"),
    ("run", "child", "agent", TERM, 0, ""),
    ("run", "gil", "forkserver", KILL, 0, ""),
    ("run", "wait", "worker", TERM, 0, ""),
    ("run", "child", "worker", HUP, 0, ""),
    ("stop", "gil", "command", INT, 130, "interrupted"),
    ("stop", "gil", "command", KILL, -9, ""),
    ("stop", "gil", "head", KILL, 130, "interrupted"),
]
MATRIX = [*EVERY_TIME, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)]

Case = tuple[str, str, str, signal.Signals, int, str]


def played(case: Case, folder: Path) -> tuple[int, str, str]:
    """Run, kill, see that nothing is left, and return the exit status and what was said."""
    moment, task, victim, number, *_ = case
    with a_command(folder) as gputui:
        if victim in ("command", "head", "scheduler"):  # all others are to be replaced
            gputui.env["DASK_GPUTUI__LEASE"] = "2"
        run = Run(gputui, HOST, task)
        os.kill(run.reach(moment, victim), number)
        if moment == "start":
            (folder / "go").touch()
        end = run.end()
        run.assert_nothing_left()
        gputui.assert_nothing_left()
    return end


@pytest.mark.slow
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: "-".join(map(str, case[:4])))
def test_a_kill_is_told_and_leaves_nothing(
    ended: Callable[[Case], tuple[int, str, str]], case: Case
) -> None:
    *_, exit_code, says = case
    status, out, err = ended(case)
    assert (status, says in err) == (exit_code, True), err
    assert "Traceback" not in err
    if exit_code == 0:
        assert json.loads(out)["result"] == {"value": hang.VALUE}


@pytest.mark.slow
def test_a_hangup_that_is_ignored_as_by_nohup_ends_nothing(gputui: Command) -> None:
    before = signal.signal(HUP, signal.SIG_IGN)
    try:
        run = Run(gputui, HOST, "wait")
    finally:
        signal.signal(HUP, before)
    run.hanging_worker()
    run.process.send_signal(HUP)
    (gputui.folder / "go").touch()
    status, _, err = run.end()
    assert status == 0, err
