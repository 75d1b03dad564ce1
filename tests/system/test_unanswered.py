"""A cluster that runs and does not answer is listed as that, and never taken for one that ended."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputui.cli import clusters
from gputui.client import start
from gputui.protocol.connection_file import ConnectionFile, NameLock


@pytest.fixture
def head(runtime: Path) -> Iterator[tuple[NameLock, socket.socket]]:
    """The name of a head that says nothing, and its socket."""
    with socket.socket(socket.AF_UNIX) as own:
        path = str(runtime / "f00d.sock")
        own.bind(path)
        own.listen()
        lock = NameLock("lab", "f00d")
        lock.publish(
            ConnectionFile("lab", "f00d", os.getpid(), 0.0, path, "1", address="tls://h:1")
        )
        yield lock, own


@pytest.mark.parametrize(
    "hangs_up", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["hangs up", "is silent"]
)
def test_a_cluster_that_does_not_answer_is_listed_as_that(
    in_process: Callable[..., "subprocess.CompletedProcess[str]"],
    head: tuple[NameLock, socket.socket],
    hangs_up: bool,
) -> None:
    lock, own = head

    def hang_up() -> None:
        for _ in range(2):
            frontend, _ = own.accept()
            frontend.recv(1)
            frontend.close()

    if hangs_up:
        threading.Thread(target=hang_up).start()
    listed = in_process("ls")
    assert "(does not answer)" in listed.stdout
    assert "runs all the same" in listed.stderr
    (row,) = json.loads(in_process("ls", "--json").stdout)
    assert (row["name"], row["workers"], row["problem"]) == ("lab", None, "does not answer")
    lock.release()
    assert "no cluster runs" in in_process("ls").stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("metrics",), "its head does not answer; gputui why lab"),
        (("--attach", "lab", "--run", "smoke"), "its head does not answer; gputui why lab"),
        (("down",), "did not stop within 0.2 s; see gputui why lab"),
    ],
)
def test_a_command_that_needs_a_head_waits_for_its_answer_no_longer_than_its_bound(
    in_process: Callable[..., "subprocess.CompletedProcess[str]"],
    head: object,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    says: str,
) -> None:
    for module, name in ((clusters, "ANSWER_S"), (clusters, "ATTACHED_S"), (start, "END_S")):
        monkeypatch.setattr(module, name, 0.2)
    done = in_process(*words)
    assert done.returncode == 3 and says in done.stderr


def test_a_name_that_runs_nowhere_here_is_taken_for_a_login(
    in_process: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = in_process("ls", "hosts.invalid")
    assert done.returncode == 3
    assert "no cluster is called 'hosts.invalid' here, and hosts.invalid: " in done.stderr
