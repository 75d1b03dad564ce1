"""What the head imports in threads: one at a time, and all of it before it is used."""

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.head.head import Head
from gputui.protocol import VERSION
from gputui.protocol.starter import ConfigureHead

WATCHED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from gputui.fleet.deploy import start_agent
from gputui.head import certificate

class Watch:
    def find_spec(self, name, path=None, target=None):
        locked = start_agent.IMPORTING.locked()
        if name.split(".")[0] in ("cryptography", "asyncssh") and not locked:
            print(name)

sys.meta_path.insert(0, Watch())
with ThreadPoolExecutor(1) as alone:  # in turn: any import without the lock is seen
    alone.submit(certificate.make_certificate).result()
    alone.submit(start_agent._import_connector).result()
"""


def test_whatever_threads_of_the_head_import_they_import_one_at_a_time() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


async def test_a_head_whose_fleet_cannot_be_ended_leaves_no_socket_and_no_name(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(ConfigureHead(VERSION, "test", "localhost gpus=none workers=1"))

    stop = head.fleet.stop

    async def broken() -> tuple[str, ...]:
        await stop()
        raise RuntimeError("out of order")

    monkeypatch.setattr(head.fleet, "stop", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        await head.run(lambda socket: head.stop("enough"))
    assert not list(runtime.rglob("*.sock")) + list(runtime.rglob("*.json"))


FOUND = """
import ctypes.util
from gputui.fleet.deploy import start_agent
own = ctypes.util.find_library
start_agent._import_connector()
from asyncssh.mac import get_mac_algs
print(b"umac-128@openssh.com" in get_mac_algs(), own is ctypes.util.find_library)
"""


def test_asyncssh_is_imported_without_a_compiler_and_has_the_same_algorithms(
    tmp_path: Path,
) -> None:
    for name in ("gcc", "cc", "ld"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.check_output([sys.executable, "-c", FOUND], env=env, text=True)
    has_umac = ctypes.util.find_library("nettle") is not None
    assert said.split() == [str(has_umac), "True"]
    assert not (tmp_path / "asked").exists()
