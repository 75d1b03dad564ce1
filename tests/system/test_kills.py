"""Whatever is killed, whenever, whatever the tasks do: the command says so, and nothing is left."""

import json
import os
import signal
import subprocess

import pytest

from tests.clusters import processes_of
from tests.system import hang
from tests.system.conftest import GONE_S, Command, found, wait_until
from tests.system.parts import cluster_of, parts_of

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
    ("run", "sleep", "command", HUP, 130, "interrupted"),
    ("run", "gil", "command", KILL, -9, ""),
    ("run", "child", "head", TERM, 3, "the head was sent SIGTERM"),
    ("run", "gil", "head", KILL, 3, "head is gone"),
    ("run", "gil", "scheduler", KILL, 3, "scheduler was killed by SIGKILL"),
    ("run", "sleep", "scheduler", TERM, 3, "scheduler"),
    ("run", "child", "agent", KILL, 0, ""),
    ("run", "child", "agent", TERM, 0, ""),
    ("run", "gil", "nursery", KILL, 0, ""),
    ("run", "gil", "worker", KILL, 0, ""),
    ("run", "sleep", "worker", TERM, 0, ""),
    ("run", "child", "worker", HUP, 0, ""),
    ("stop", "gil", "command", INT, 130, "interrupted"),
    ("stop", "gil", "command", KILL, -9, ""),
    ("stop", "gil", "head", KILL, 130, "interrupted"),
    ("stop", "gil", "agent", KILL, 130, "interrupted"),
]


class Run:
    """`gputui --run` of one task, on a cluster whose processes can be told apart."""

    def __init__(self, gputui: Command, task: str) -> None:
        self._hangs = gputui.folder / "hangs"
        self._gputui = gputui
        self.process: subprocess.Popen[str] = gputui.start(
            *(HOST, "--run", f"{hang.__file__}:PRESET", "-p", f"task={task}"),
            *("-p", f"folder={gputui.folder}", "--json", "--quiet"),
        )
        self.cluster_id = found(lambda: cluster_of(gputui.pids()))

    def reach(self, moment: str, victim: str) -> int:
        """Wait for the moment, and return the victim's pid."""
        if moment != "start":
            worker = int(found(lambda: self._hangs.exists() and self._hangs.read_text()))
            if victim == "worker":
                return worker
        if moment == "stop":
            self.process.send_signal(INT)
            wait_until(lambda: not self._part("scheduler"), GONE_S)
        pid = found(lambda: self._part("agent" if victim == "command" else victim))
        return self.process.pid if victim == "command" else pid

    def _part(self, name: str) -> int | None:
        return next(iter(parts_of(self.cluster_id)[name]), None)


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
    run = Run(gputui, task)
    os.kill(run.reach(moment, victim), number)
    out, err = run.process.communicate(timeout=GONE_S)
    assert (run.process.returncode, says in err) == (exit_code, True), err
    assert "Traceback" not in err
    if exit_code == 0:
        assert json.loads(out)["result"] == {"value": hang.VALUE}
    wait_until(lambda: not processes_of(run.cluster_id), GONE_S)
    gputui.assert_nothing_left()
