"""A cluster that runs and does not answer is listed as that, and never taken for one that ended."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Command

HEAD = """
import socket, sys
from gputui.folders import runtime_folder
from gputui.protocol.connection_file import ConnectionFile, NameLock
import os
lock = NameLock("lab", "f00d")
path = str(runtime_folder() / "f00d.sock")
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
lock.publish(ConnectionFile("lab", "f00d", os.getpid(), path, 0.0, "1", address="tls://h:1"))
print("ready", flush=True)
kept = []
while True:
    frontend, _ = listener.accept()
    kept.append(frontend)
    if sys.argv[1] == "hangs up":
        frontend.recv(1)
        frontend.close()
"""


@contextlib.contextmanager
def head(gputui: Command, how: str) -> Iterator[None]:
    """Play a head that takes frontends and says nothing."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD, how],
        stdout=subprocess.PIPE,
        env={**os.environ, **gputui.env},
        cwd=Path(__file__).parent.parent.parent,
    )
    try:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hangs up", "is silent"])
def test_a_cluster_that_does_not_answer_is_listed_as_that(gputui: Command, how: str) -> None:
    with head(gputui, how):
        listed = gputui("ls")
        assert "(does not answer)" in listed.stdout
        assert "runs all the same" in listed.stderr
        (row,) = json.loads(gputui("ls", "--json").stdout)
        assert (row["name"], row["workers"], row["problem"]) == ("lab", None, "does not answer")
    assert "no cluster runs" in gputui("ls").stderr
