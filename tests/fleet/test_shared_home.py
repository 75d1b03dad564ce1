"""A home that several hosts share, over NFS perhaps: nothing in it needs a lock that NFS lacks."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gputui
from gputui.process.procfs import process_stat

LOCKING = {
    "agent/claims.py",
    "agent/agent_socket.py",
    "protocol/connection_file.py",
    "client/there.py",
    "folders.py",
    "process/procfs.py",
    "worker/cuda.py",
}
"""Modules that lock files: in the runtime folder, which is this machine's own."""
ALONE = """
import sys
from pathlib import Path
from gputui.fleet.deploy import preparing
with preparing.alone(Path(sys.argv[1])):
    preparing.say(line="alone")
    input()
"""
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts what makes an environment on one more host."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", ALONE, str(tmp_path / "env")]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    return str(json.loads(process.stdout.readline())["line"])


def test_the_locks_are_in_folders_of_this_machine_alone() -> None:
    root = Path(gputui.__file__).parent
    locking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\b(fcntl\.flock|locked_file)\(", path.read_text())
    }
    assert locking == LOCKING


def test_hosts_that_make_one_environment_wait_for_each_other(start: Start) -> None:
    first = start()
    assert said(first) == "alone"
    second = start()
    assert said(second).startswith("waiting for another host")
    first.communicate("\n", timeout=30)
    assert said(second) == "alone"


def test_the_lock_of_a_host_that_was_asked_to_end_is_free_at_once(
    start: Start, tmp_path: Path
) -> None:
    first = start()
    assert said(first) == "alone"
    first.terminate()
    first.communicate(timeout=30)
    assert not (tmp_path / "env.making").exists()


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Return a function that begins to prepare an environment, by a `uv` of these shell lines."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    minor = "{}.{}".format(*sys.version_info)
    order = {"environment": str(tmp_path / "env"), "version": minor, "lock": "", "gpus": False}
    order |= {"builds": False, "wheels": [], "index": "", "host_settings": False}
    started: list[subprocess.Popen[str]] = []

    def prepare(*packages: str, uv: str = "") -> "subprocess.Popen[str]":
        (tmp_path / "uv").write_text(f"#!/bin/sh\n{uv}\n")
        (tmp_path / "uv").chmod(0o700)
        command = [sys.executable, "-m", "gputui.fleet.deploy.preparing"]
        environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environ, text=True))
        stdin = started[-1].stdin
        assert stdin
        stdin.write(json.dumps(order | {"packages": packages}) + "\n")
        stdin.flush()
        return started[-1]

    yield prepare
    for process in started:
        with process:
            process.kill()


def test_an_environment_is_asked_for_one_version_of_each_package_it_ever_had(
    preparing: Callable[..., "subprocess.Popen[str]"],
) -> None:
    def prepared(*packages: str) -> str:
        process = preparing(*packages)
        assert process.stdout and process.wait(60) == 0
        return process.stdout.read()

    prepared("dask==2026.7.1", "cupy-cuda12x[ctk]==14.0")
    said = prepared("dask==2026.8.0")
    assert "installing dask==2026.8.0 cupy-cuda12x[ctk]==14.0" in said
    assert "is ready" in prepared("dask==2026.8.0")


def test_what_installs_ends_with_the_connection_and_frees_the_lock(
    preparing: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    process = preparing("dask", uv="echo $$; exec sleep 600")
    assert said(process) == "installing dask"
    installing = int(said(process))
    assert process.stdin
    process.stdin.close()
    process.wait(30)
    assert not process_stat(installing)
    assert not (tmp_path / "env.making").exists()
