"""Whatever is killed, whenever, whatever the tasks do: the command says so, and nothing is left."""

import json
import os
import signal

import pytest

from tests.system import hang
from tests.system.conftest import GONE_S, Command, wait_until
from tests.system.parts import Run

HOST = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL

# When, what the task is, what is sent to whom → exit status, and what is said.
MATRIX = [
    ("start", "easy", "command", INT, 130, "interrupted"),
    ("start", "easy", "command", KILL, -9, ""),
    ("start", "easy", "head", KILL, 3, "head"),
    ("start", "easy", "scheduler", KILL, 3, "scheduler was killed by SIGKILL"),
    ("start", "easy", "agent", KILL, 3, "its agent ended"),
    ("start", "easy", "nursery", KILL, 0, ""),
    ("start", "easy", "worker", KILL, 0, ""),
    ("run", "gil", "command", INT, 130, "interrupted"),
    ("run", "child", "command", TERM, 130, "interrupted"),
    ("run", "wait", "command", HUP, 130, "interrupted"),
    ("run", "gil", "command", KILL, -9, ""),
    ("run", "child", "head", TERM, 3, "the head was sent SIGTERM"),
    ("run", "gil", "head", KILL, 3, "head is gone"),
    ("run", "gil", "scheduler", KILL, 3, "scheduler was killed by SIGKILL"),
    ("run", "wait", "scheduler", TERM, 3, "scheduler"),
    ("run", "child", "agent", KILL, 0, ""),
    ("run", "child", "agent", TERM, 0, ""),
    ("run", "gil", "nursery", KILL, 0, ""),
    ("run", "gil", "worker", KILL, 0, ""),
    ("run", "wait", "worker", TERM, 0, ""),
    ("run", "child", "worker", HUP, 0, ""),
    ("stop", "gil", "command", INT, 130, "interrupted"),
    ("stop", "gil", "command", KILL, -9, ""),
    ("stop", "gil", "head", KILL, 130, "interrupted"),
    ("stop", "gil", "agent", KILL, 130, "interrupted"),
]


@pytest.mark.parametrize(("moment", "task", "victim", "number", "exit_code", "says"), MATRIX)
def test_a_kill_is_told_and_leaves_nothing(
    gputui: Command,
    moment: str,
    task: str,
    victim: str,
    number: signal.Signals,
    exit_code: int,
    says: str,
) -> None:
    gputui.env["DASK_GPUTUI__LEASE"] = "2"
    run = Run(gputui, HOST, task)
    os.kill(run.reach(moment, victim), number)
    status, out, err = run.end()
    assert (status, says in err) == (exit_code, True), err
    assert "Traceback" not in err
    if exit_code == 0:
        assert json.loads(out)["result"] == {"value": hang.VALUE}
    run.assert_nothing_left()
    gputui.assert_nothing_left()


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


def test_a_name_is_free_again_when_its_head_was_killed(gputui: Command) -> None:
    gputui.env["DASK_GPUTUI__LEASE"] = "2"
    for _ in range(2):
        done = gputui("up", HOST, "--name", "lab")
        assert done.returncode == 0, done.stderr
        (contact,) = json.loads(gputui("ls", "--json").stdout)
        os.kill(contact["pid"], KILL)
        wait_until(lambda: not gputui.left(), GONE_S, lambda: str(gputui.left()))
    assert json.loads(gputui("ls", "--json").stdout) == []
