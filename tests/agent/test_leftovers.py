"""What is left of an agent, its workers, and what their tasks started, after any of them ended."""

import asyncio
import os
import re
import signal
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gputui.agent.agent_socket import AgentSocket
from gputui.agent.facts import NVML_TIMEOUT_S
from gputui.protocol.agent import (
    AgentEnding,
    KeepLease,
    Ping,
    Pong,
    Shutdown,
    StopWorkers,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.programs import (
    EndPrograms,
    Launch,
    ProgramExited,
    ProgramStarted,
    StartProgram,
)
from tests.agent.driving import BOUND_S, Driver, client_of, order_worker, spec, start_worker
from tests.processes import ended, lives, parent_of, processes_of


def hold_the_gil() -> None:
    re.match(r"(a|a)*$", "a" * 40 + "b")


def start_a_sleeper() -> int:
    return subprocess.Popen(["sleep", "600"]).pid


def start_a_session_of_its_own() -> int:
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


def grandchildren() -> int:
    return subprocess.Popen(["sh", "-c", "setsid sleep 600 & wait"], start_new_session=True).pid


NO_FIRST_FORK = """
import errno, os, sys
real = os.fork

def refuse():
    os.fork = real
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

if "forkserver" in sys.orig_argv:
    os.fork = refuse
"""
"""A start-up file of Python's with which the forkserver can fork from its second try on."""


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_host_that_is_looked_at_once_runs_no_agent(
    nvml: Any, driver: Driver, tmp_path: Path, hangs_up: bool
) -> None:
    driver.once = True
    facts = await driver.connect()
    assert [device.label for device in facts.devices] == ["0", "1"]
    driver.send(KeepLease())
    assert processes_of(driver.cluster_id) == [driver.relay.pid]
    assert not list(tmp_path.glob("gputui-*"))
    if hangs_up:
        driver.relay.stdin.close()
    else:
        driver.send(Shutdown(0.0))
    async with asyncio.timeout(BOUND_S):
        assert await driver.relay.wait() == 0


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_look_at_a_driver_that_hangs_ends_with_its_head(
    nvml: Any, driver: Driver, hangs_up: bool
) -> None:
    nvml.set(gpus=2, hang=["nvmlInit"])
    driver.once = True
    await driver.begin()
    if hangs_up:
        driver.relay.stdin.close()
    else:
        driver.send(Shutdown(0.0))
    async with asyncio.timeout(NVML_TIMEOUT_S / 2):
        assert await driver.relay.wait() == 0


async def test_a_look_ends_when_its_head_says_nothing_for_the_lease(driver: Driver) -> None:
    driver.once, driver.lease_s = True, 1.0
    await driver.connect()
    async with asyncio.timeout(BOUND_S):
        assert await driver.relay.wait() == 0


async def test_a_look_that_fails_says_why(driver: Driver, tmp_path: Path) -> None:
    broken = "import shutil\ndef fail(path):\n    raise OSError(5, 'no disk', path)\n"
    (tmp_path / "sitecustomize.py").write_text(f"{broken}shutil.disk_usage = fail\n")
    driver.env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{driver.env.get('PYTHONPATH', '')}"
    driver.once = True
    await driver.begin()
    ending = await driver.wait_for(AgentEnding)
    assert re.fullmatch("describing this host failed: .*: no disk", ending.reason)
    async with asyncio.timeout(BOUND_S):
        assert await driver.relay.wait() == 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["agent", "forkserver", "worker"])
async def test_whatever_is_killed_a_busy_worker_and_all_that_its_tasks_started_end_with_it(
    driver: Driver, scheduler: Any, victim: str
) -> None:
    facts = await driver.connect()
    await start_worker(driver, scheduler)
    worker = driver.started().pid
    async with client_of(scheduler) as client:
        works = (start_a_sleeper, start_a_session_of_its_own, grandchildren)
        pids = [await client.submit(work) for work in works]
        busy = client.submit(hold_the_gil)
        forkserver = parent_of(worker)
        os.kill({"agent": facts.agent_pid, "forkserver": forkserver, "worker": worker}[victim], 9)
        for pid in (worker, *pids):
            await ended(pid, BOUND_S)
        busy.release()
    if victim != "agent":
        driver.send(Shutdown(2.0))
    await driver.nothing_left()


@pytest.mark.slow
async def test_a_program_goes_on_when_the_forkserver_is_killed(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    driver.send(StartProgram("run/0", Launch(("sleep", "600"), cwd="/")))
    program = (await driver.wait_for(ProgramStarted)).pid
    os.kill(parent_of(driver.started().pid), signal.SIGKILL)
    await driver.wait_for(WorkerReady)
    os.kill(program, 0)
    driver.send(EndPrograms(("run/0",), 0.0))
    assert (await driver.wait_for(ProgramExited)).status == -signal.SIGKILL
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_a_worker_that_cannot_be_forked_is_reported_and_forked_later(
    driver: Driver, scheduler: Any, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_FIRST_FORK)
    driver.env["PYTHONPATH"] = str(tmp_path)
    await driver.connect()
    order_worker(driver, scheduler)
    exited = await driver.wait_for(WorkerExited)
    assert "this user may run no more processes" in exited.reason and not exited.crash_loop
    await driver.wait_for(WorkerReady)


async def test_what_a_task_started_lives_as_long_as_its_worker_when_another_ends(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler, spec("host:cpu0"), spec("host:cpu1"))
    async with client_of(scheduler) as client:
        workers = {each["name"]: address for address, each in (await workers_of(client)).items()}
        pid = await client.submit(start_a_session_of_its_own, workers=[workers["host:cpu1"]])
        driver.send(StopWorkers(("host:cpu0",), 2.0))
        await driver.wait_for(WorkerExited)
        assert lives(pid)
    await driver.shut_down()
    assert not lives(pid)


async def workers_of(client: Any) -> dict[str, Any]:
    return dict((await client.scheduler.identity(n_workers=-1))["workers"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
async def test_an_agent_killed_before_it_had_workers_leaves_nothing_on_disk(
    driver: Driver, tmp_path: Path, number: signal.Signals
) -> None:
    facts = await driver.connect()
    os.kill(facts.agent_pid, number)
    await driver.nothing_left()
    assert not list(tmp_path.glob("gputui-*/*"))


async def test_a_second_head_takes_over_and_the_first_is_hung_up_on(up: Driver) -> None:
    first = up.relay
    facts = await up.connect()
    assert [each.name for each in facts.running] == ["host:cpu0"]
    async with asyncio.timeout(BOUND_S):
        await first.wait()
    up.send(Ping(3))
    await up.wait_for(Pong, lambda pong: pong.number == 3)


def test_one_agent_at_a_time_holds_a_lock_that_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = AgentSocket.of("cluster", "host")
    first = place.hold()
    assert first is not None
    assert place.hold() is None
    place.remove()
    second = place.hold()
    assert second is not None
    os.close(first)
    assert place.hold() is None
    os.close(second)


async def test_a_start_that_is_sent_twice_starts_one_process(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    order_worker(driver, scheduler)
    order_worker(driver, scheduler)
    await driver.wait_for(WorkerReady)
    order_worker(driver, scheduler)
    again = await driver.wait_for(WorkerStarted)
    assert {each.pid for each in driver.seen if isinstance(each, WorkerStarted)} == {again.pid}


async def test_a_forkserver_that_cannot_import_dask_is_given_up_with_what_it_said(
    driver: Driver, scheduler: Any, tmp_path: Path
) -> None:
    broken = tmp_path / "path" / "distributed"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no such dask')")
    driver.env["PYTHONPATH"] = str(broken.parent)
    await driver.connect()
    order_worker(driver, scheduler)
    exited = await driver.wait_for(WorkerExited)
    assert (exited.kind, exited.crash_loop) == ("import-error", True)
    assert "no such dask" in exited.reason


@pytest.mark.slow
async def test_workers_of_one_forkserver_draw_numbers_of_their_own(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler, spec("host:cpu0"), spec("host:cpu1"))
    async with client_of(scheduler) as client:
        for module in ("numpy.random", "random"):
            drawn = await client.run(lambda name: import_module(name).random(), module)
            assert len(set(drawn.values())) == 2
