"""Whose a process on a GPU is."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputui.agent.gpu.processes import Processes, mps_warnings, unseen
from gputui.model.readings import Owner

WAIT_FOR_END_OF_INPUT = "import sys; print('up', flush=True); sys.stdin.read()"
WITH_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAIT_FOR_END_OF_INPUT!r}], stdin=0, env={{}})
print(child.pid, flush=True)
child.wait()
"""

Start = Callable[..., tuple[int, str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts Python on a program that ends with its stdin.

    It returns its pid, and what it prints first, which is when it is up.
    """
    started = []

    def begin(program: str = WAIT_FOR_END_OF_INPUT, **env: str) -> tuple[int, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        started.append(process)
        return process.pid, process.stdout.readline().strip()

    yield begin
    for process in started:
        process.communicate("", timeout=60)


def test_a_process_with_the_clusters_id_is_ours(start):
    pid, _ = start(GPUTUI_CLUSTER="abc")
    assert Processes("abc").identify(pid).owner is Owner.OURS
    assert Processes("ab").identify(pid).owner is Owner.OTHER


def test_a_process_is_told_with_its_user_and_command(start):
    pid, _ = start()
    identity = Processes("abc").identify(pid)
    assert identity.user == pwd.getpwuid(os.getuid()).pw_name
    assert identity.command.startswith(f"{sys.executable} -c import sys")


def test_a_workers_child_without_the_id_is_ours(start):
    worker, child = map(int, start(WITH_A_CHILD))
    processes = Processes("abc")
    assert processes.identify(child).owner is Owner.OTHER
    processes.workers = [worker]
    assert processes.identify(child).owner is Owner.OURS
    assert processes.identify(worker).owner is Owner.OURS


def test_a_frontend_and_what_it_starts_are_ours_while_it_is_attached(start):
    script, child = map(int, start(WITH_A_CHILD))
    processes = Processes("abc")
    processes.frontends = [script]
    assert {processes.identify(each).owner for each in (script, child)} == {Owner.OURS}
    processes.frontends = []
    assert processes.identify(script).owner is Owner.OTHER


def test_a_process_that_cannot_be_seen_is_of_an_unknown_owner():
    assert Processes("abc").identify(2**22 + 1) == unseen(2**22 + 1)


@pytest.fixture
def mps_daemon(tmp_path: Path) -> Iterator[int]:
    """The pid of a process that is named as NVIDIA's daemon."""
    named = tmp_path / "nvidia-cuda-mps-control"
    shutil.copy(str(shutil.which("sleep")), named)
    with subprocess.Popen([named, "600"]) as process:
        yield process.pid
        process.kill()


def test_the_mps_daemon_of_another_user_is_named_and_ones_own_is_not(mps_daemon: int) -> None:
    own, theirs = f"(pid {mps_daemon})", os.getuid() + 1
    assert any(own in warning for warning in mps_warnings(theirs))
    assert not any(own in warning for warning in mps_warnings(os.getuid()))
