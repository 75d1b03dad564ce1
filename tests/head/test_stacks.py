"""The stacks of `why` against root's `py-spy dump` of the same workers, thread by thread."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest

from gputui.model.examination import ExaminedWorker, ThreadStack, short_frame
from gputui.protocol.frontend import Examine, Examined
from tests.clusters import Clusters, LiveCluster
from tests.head.test_head import client_of
from tests.head.test_more_faults import ONE

PY_SPY = shutil.which("py-spy")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PY_SPY or os.geteuid() != 0, reason="needs root and py-spy"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # another interpreter has no tests
REFUSAL = """#!/bin/sh
echo 'Permission Denied: Try running again with elevated permissions by going "sudo env ..."' >&2
exit 1
"""
"""What py-spy 0.4 does where ptrace_scope does not let it."""


def deep(depth: int, last: Callable[[], None]) -> None:
    if depth:
        deep(depth - 1, last)
    else:
        last()


def sleep() -> None:
    time.sleep(60)


def sleep_with_the_gil() -> None:
    ctypes.PyDLL(None).usleep(60_000_000)


def refused(folder: Path) -> Path:
    """Return an interpreter of an environment like this one's, whose py-spy is refused."""
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(Path(sys.prefix, "pyvenv.cfg").read_text())
    (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    (folder / "bin" / "py-spy").write_text(REFUSAL)
    (folder / "bin" / "py-spy").chmod(0o755)
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    return python


async def examined(cluster: LiveCluster) -> ExaminedWorker:
    found = await cluster.request(Examine(0))
    assert isinstance(found, Examined)
    return found.hosts[0].workers[0]


def by_root(pid: int) -> dict[str, tuple[str, ...]]:
    """Return the frames of each thread, by its name."""
    assert PY_SPY
    command = [PY_SPY, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, check=True)
    return {
        thread["thread_name"]: tuple(
            short_frame(each["filename"], each["line"], each["name"].rpartition(".")[2])
            for each in thread["frames"]
        )
        for thread in json.loads(done.stdout)
    }


def at_work(threads: tuple[ThreadStack, ...]) -> ThreadStack:
    return next(each for each in threads if any(frame.endswith(" deep") for frame in each.frames))


@pytest.mark.parametrize("way", ["asked", "py-spy", "faulthandler"])
async def test_each_way_gives_the_stack_that_root_sees(
    way: str, clusters: Clusters, tmp_path: Path
) -> None:
    hosts = f"{ONE} python={refused(tmp_path)}" if way == "faulthandler" else ONE
    cluster = await clusters.start(hosts, up=1)
    async with client_of(cluster) as client:
        last = sleep if way == "asked" else sleep_with_the_gil
        task = client.submit(lambda: deep(5, last))
        found = await examined(cluster)
        end = time.monotonic() + 20
        while not any(f.endswith(" deep") for t in found.threads for f in t.frames):
            assert time.monotonic() < end, found
            assert task.status == "pending", await task.exception()
            found = await examined(cluster)
        roots = by_root(found.pid)
        ours = at_work(found.threads)
        assert found.answered is (way == "asked")
        assert ours.has_gil is (way == "py-spy")
        theirs = next(each for each in roots.values() if any(f.endswith(" deep") for f in each))
        assert ours.frames == theirs
        assert {each.name for each in found.threads} <= roots.keys() or way == "faulthandler"
        cluster.head.terminate()
        del task
