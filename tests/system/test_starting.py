"""A cluster that was started and is not finished leaves nothing, whatever ends its starter."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import command_of, lives
from tests.system.conftest import GONE_S, Command, a_command, found, wait_until
from tests.system.parts import PARTS, cluster_of, parts_of

HOST = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL


def part(name: str) -> Callable[[Command], object]:
    """Return whether a cluster has a part of this name by now."""
    return lambda gputui: parts_of(cluster_of(gputui.pids()) or "none")[name]


def listens(pid: int) -> bool:
    """Return whether a process handles SIGTERM: before that no code of ours can hear a signal."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << TERM - 1)
    return False


MOMENTS: dict[str, Callable[[Command], object]] = {
    "at once": lambda gputui: True,
    "listens": lambda gputui: any(map(listens, gputui.pids())),
    **{name: part(name) for name in PARTS if name != "relay"},
    "named": lambda gputui: [*gputui.runtime.glob("gputui/*.json")],
    "open": lambda gputui: [*gputui.runtime.glob("gputui/*.sock")],
    "told": lambda gputui: gputui.started[0].stdout.read(1),
}
EVERY_TIME = [("at once", TERM), ("listens", INT), ("agent", HUP), ("open", TERM), ("told", INT)]
LONG = [
    *(("scheduler", HUP), ("head", TERM), ("forkserver", INT), ("named", INT)),
    *(("worker", number) for number in (TERM, INT, HUP)),
    *(("told", number) for number in (TERM, HUP)),
]
MATRIX = [*EVERY_TIME, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)]
Case = tuple[str, signal.Signals]


def played(case: Case, folder: Path) -> int:
    """Interrupt `up` at a moment; its exit status, which says whether there is a cluster."""
    moment, number = case
    with a_command(folder) as gputui:
        process = gputui.start("up", HOST, "--name", "lab")
        found(lambda: MOMENTS[moment](gputui) or process.poll() is not None)
        process.send_signal(number)
        _, err = process.communicate(timeout=90)
        assert "Traceback" not in err
        if process.returncode == 0:
            assert [each["name"] for each in json.loads(gputui("ls", "--json").stdout)] == ["lab"]
        else:
            gputui.assert_nothing_left()
    return process.returncode


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: "-".join(map(str, case)))
def test_up_leaves_a_cluster_only_where_it_says_so(
    ended: Callable[[Case], int], case: Case
) -> None:
    moment, number = case
    assert ended(case) in ({0} if moment == "told" else {0, 130, -number})


@pytest.mark.slow
def test_up_that_is_killed_leaves_nothing(gputui: Command) -> None:
    process = gputui.start("up", HOST)
    found(lambda: part("agent")(gputui))
    process.kill()
    gputui.assert_nothing_left()


def test_up_without_a_worker_says_why_and_leaves_nothing(gputui: Command) -> None:
    done = gputui("up", "nowhere.invalid gpus=none")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nowhere.invalid does not resolve" in done.stderr
    gputui.assert_nothing_left()


FORKS = """
import os, signal, sys, time
from gputui import GPUCluster
cluster = GPUCluster({host!r})
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
print(cluster.cluster_id, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_forked_child_of_a_killed_starter_keeps_no_cluster_alive(gputui: Command) -> None:
    starter = gputui.start_other(sys.executable, "-c", FORKS.format(host=HOST))
    cluster_id = starter.stdout.readline().strip()
    (child,) = [pid for pid in gputui.pids() if pid != starter.pid and _forked(pid)]
    try:
        starter.kill()
        starter.wait()
        wait_until(lambda: not any(parts_of(cluster_id).values()), GONE_S)
        assert lives(child)
    finally:
        os.kill(child, KILL)
        starter.stdout.close()


def _forked(pid: int) -> bool:
    return command_of(pid)[:2] == [sys.executable, "-c"]


def test_a_python_that_cannot_start_is_told_by_its_fatal_error(gputui: Command) -> None:
    done = gputui("up", f"{HOST} env.PYTHONHOME=/none", "--name", "lab")
    assert done.returncode == 3 and "<no Python frame>" not in done.stderr
    assert "the process that starts workers ended: Fatal Python error: " in done.stderr
