"""Stacks from py-spy, as it answers where it is installed, refused, or of another kind."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.agent import examining
from gputui.agent.examining import by_py_spy, examine
from gputui.agent.worker_process import WorkerProcess
from gputui.model.examination import ExaminedHost
from gputui.process import procfs
from gputui.process.cgroups import Cgroups
from gputui.process.handle import Handle
from gputui.protocol.agent import Examine, HostExamined, StartWorkers
from tests.agent.driving import (
    Driver,
    Printed,
    client_of,
    control_group,
    joining,
    spec,
    start_worker,
)

DUMP = """[{"thread_id": 9, "thread_name": null, "owns_gil": true, "frames": [
{"name": "Kind.f", "filename": "/home/ann/mine.py", "line": 3}]}]"""


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (f"cat <<'E'\n{DUMP}\nE", ["thread 9"]),
        (
            "echo 'Error: Permission Denied: Try running again with elevated permissions'; exit 1",
            [],
        ),
        ("echo \"error: unexpected argument '--json' found\" >&2; exit 2", []),
        ("echo '[{\"other\": 1}]'", []),
        ("sleep 60", []),
        (None, []),
    ],
)
async def test_py_spy_gives_stacks_or_nothing(
    script: str | None, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    found = await by_py_spy(1)
    assert [thread.name for thread in found] == names
    assert all(thread.has_gil and thread.frames == ("~/mine.py:3 f",) for thread in found)


@pytest.fixture
def few_tasks() -> Iterator[Path]:
    """A control group of few processes and threads."""
    with control_group("pids", {"pids.max": "200"}, {"pids.max": "200"}) as made:
        yield made


def start_threads() -> None:
    import threading

    with contextlib.suppress(RuntimeError):
        while True:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)


async def test_a_worker_that_ends_as_it_is_asked_is_one_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen(["sleep", "60"])

    def end(pid: int, number: int) -> bool:
        child.kill()
        child.wait()
        return True

    monkeypatch.setattr(procfs, "catches", end)
    monkeypatch.setattr(examining, "ANSWER_S", 0.1)
    order = StartWorkers((), "tls://127.0.0.1:1", "127.0.0.1")
    worker = WorkerProcess(spec(), order, Printed(), process=Handle.of(child.pid))
    found = await examine([worker], tmp_path, Cgroups())
    assert [each.answered for each in found.workers] == [False]


@pytest.mark.slow
async def test_a_host_on_which_no_thread_can_start_is_examined_and_says_so(
    driver: Driver, scheduler: Any, few_tasks: Path
) -> None:
    driver.before = joining(few_tasks)
    await driver.connect()
    await start_worker(driver, scheduler)
    async with client_of(scheduler) as client:
        task = client.submit(start_threads, pure=False)
        found = ExaminedHost("")
        async with asyncio.timeout(30):
            while not found.tasks_full:
                driver.send(Examine(1))
                found = (await driver.wait_for(HostExamined)).host
        assert found.tasks_full.endswith(" of 200")
        assert found.workers[0].answered
        del task
    await driver.shut_down()
