"""What the head imports in threads: one at a time, and all of it before it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from gputui.head.head import Head
from gputui.protocol.starter import ConfigureHead

WATCHED = """
import asyncio, contextlib, sys
from concurrent.futures import ThreadPoolExecutor
from gputui.fleet.deploy import start_agent
from gputui.fleet.stages import FleetSettings
from gputui.head.scheduler_process import make_certificate
from gputui.model.hosts import Host

class Watch:
    def find_spec(self, name, path=None, target=None):
        locked = start_agent.IMPORTING.locked()
        if name.split(".")[0] in ("cryptography", "asyncssh") and not locked:
            print(name)

sys.meta_path.insert(0, Watch())
with ThreadPoolExecutor(1) as alone:  # in turn: any import without the lock is seen
    alone.submit(make_certificate).result()
opener = start_agent.AgentOpener(FleetSettings("test"))
with contextlib.suppress(AttributeError):  # once it has imported
    asyncio.run(opener.connect(Host("gpu-a"), None))
assert "asyncssh" in sys.modules
"""


def test_whatever_threads_of_the_head_import_they_import_one_at_a_time() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


async def test_a_head_whose_fleet_cannot_be_ended_leaves_no_socket_and_no_name(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(ConfigureHead("test", "localhost gpus=none workers=1"))

    stop = head.fleet.stop

    async def broken() -> tuple[str, ...]:
        await stop()
        raise RuntimeError("out of order")

    monkeypatch.setattr(head.fleet, "stop", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        await head.run(lambda socket: head.stop("enough"))
    assert not list(runtime.rglob("*.sock")) + list(runtime.rglob("*.json"))
