"""The agent as a head drives it: a real relay, forkserver and workers, and a scheduler over TLS."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed
import pytest

from gputui.agent.supervisor import WORKERS_EVERY_S
from gputui.protocol.agent import (
    Ping,
    Pong,
    Reach,
    Reached,
    Shutdown,
    StopWorkers,
    WorkerExited,
    WorkerReady,
)
from gputui.protocol.shared import FollowLogs, LogLines
from tests.agent.driving import (
    BOUND_S,
    Driver,
    client_of,
    control_group,
    joining,
    order_worker,
    spec,
    start_worker,
)
from tests.processes import parent_of


async def test_a_worker_joins_over_tls_computes_and_leaves_nothing(
    driver: Driver, scheduler: Any, tmp_path: Path
) -> None:
    facts = await driver.connect()
    assert facts.cpus >= 1
    assert dict(facts.packages)["distributed"] == distributed.__version__
    await start_worker(driver, scheduler)
    async with client_of(scheduler) as client:
        assert await client.submit(lambda: 6 * 7) == 42
    driver.send(Shutdown(2.0))
    await driver.end_of_stream()
    await driver.nothing_left()
    assert not list(tmp_path.glob("gputui-*/*"))


async def test_a_head_that_comes_back_is_told_of_workers_between_two_processes(up: Driver) -> None:
    pid = up.started().pid
    forkserver = parent_of(pid)
    os.kill(pid, signal.SIGKILL)
    await up.wait_for(WorkerExited)
    os.kill(forkserver, signal.SIGSTOP)
    up.cut()
    facts = await up.connect()
    assert [(each.name, each.pid) for each in facts.running] == [("host:cpu0", None)]
    seen = len(up.seen)
    up.send(StopWorkers(("host:cpu0",), 1.0))
    up.send(Ping(7))
    await up.wait_for(Pong, lambda pong: pong.number == 7)
    os.kill(forkserver, signal.SIGCONT)
    told = [each for each in up.seen[seen:] if isinstance(each, WorkerExited)]
    exited = told[0] if told else await up.wait_for(WorkerExited)
    assert (exited.name, exited.kind) == ("host:cpu0", "stopped")


def hoard() -> int:
    held = b"x" * 2**30
    time.sleep(600)
    return len(held)


async def test_a_worker_over_its_memory_limit_is_ended_with_that_reason(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler, spec(memory_limit_bytes=400 * 2**20))
    async with client_of(scheduler) as client:
        hoarded = client.submit(hoard, pure=False)
        exited = await driver.wait_for(WorkerExited)
        hoarded.release()
    assert exited.kind == "memory-limit"


@pytest.mark.slow
async def test_a_worker_over_its_limit_is_left_alone_where_dask_is_told_to(
    driver: Driver, scheduler: Any
) -> None:
    def pass_the_limit() -> int:
        held = b"x" * 2**30
        time.sleep(4 * WORKERS_EVERY_S)
        return len(held)

    one, credentials = scheduler
    off = dict.fromkeys(["target", "spill", "pause", "terminate"], False)
    given = replace(
        credentials, dask_config_json=json.dumps({"distributed": {"worker": {"memory": off}}})
    )
    await driver.connect()
    await start_worker(driver, (one, given), spec(memory_limit_bytes=400 * 2**20))
    async with client_of(scheduler) as client:
        assert await client.submit(pass_the_limit, pure=False) == 2**30
    assert not any(isinstance(each, WorkerExited) for each in driver.seen)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group of 600 MB."""
    size = "600000000"
    with control_group("memory", {"memory.max": size}, {"memory.limit_in_bytes": size}) as made:
        yield made


async def test_a_worker_that_the_kernel_ends_for_memory_is_told_from_one_that_is_killed(
    driver: Driver, scheduler: Any, small_group: Path
) -> None:
    driver.before = joining(small_group)
    await driver.connect()
    await start_worker(driver, scheduler)
    os.kill(driver.started().pid, signal.SIGKILL)
    killed = await driver.wait_for(WorkerExited)
    assert (killed.kind, killed.reason) == ("signal", "killed (SIGKILL) from outside gputui")
    await driver.wait_for(WorkerReady)
    async with client_of(scheduler) as client:
        hoarded = client.submit(hoard, pure=False)
        exited = await driver.wait_for(WorkerExited)
        hoarded.release()
    assert exited.kind == "oom-killer"
    assert "memory ran out (a control group's limit is reached)" in exited.reason
    await driver.shut_down()


async def test_client_restart_brings_the_worker_back(up: Driver, scheduler: Any) -> None:
    async with client_of(scheduler) as client:
        restarting = asyncio.create_task(client.restart(timeout=BOUND_S))
        await up.wait_for(WorkerReady)
        await restarting
        assert await client.submit(sum, [1, 2]) == 3


def print_much() -> None:

    for _ in range(1000):
        sys.stdout.write(("x" * 99 + "\n") * 1000)
    print('["Pong", 99]', flush=True)


async def test_a_task_that_prints_100_mb_reaches_neither_the_protocol_nor_the_memory(
    up: Driver, scheduler: Any
) -> None:
    up.send(FollowLogs(True))
    async with client_of(scheduler) as client:
        await client.submit(print_much)
    last = await up.wait_for(LogLines, lambda message: '["Pong", 99]' in message.lines)
    assert len(last.lines) <= 200
    up.send(Ping(1))
    await up.wait_for(Pong, lambda pong: pong.number == 1)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("127.0.0.1", "Connection refused"),
        ("head.invalid", "head.invalid does not resolve: "),
        ("x" * 64, f"{'x' * 64} does not resolve: not a name that DNS allows"),
    ],
    ids=["refused", "unknown", "no name"],
)
async def test_reaching_says_why_a_port_cannot_be_reached(
    driver: Driver, name: str, why: str
) -> None:
    await driver.connect()
    driver.send(Reach(1, name, 1, 5.0))
    reached = await driver.wait_for(Reached)
    assert reached.error.startswith(why)


async def test_a_worker_that_cannot_listen_says_on_what_and_is_not_tried_again(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    order_worker(driver, scheduler, listen="192.0.2.1")
    exited = await driver.wait_for(WorkerExited)
    assert exited.reason == "it cannot listen on 192.0.2.1: this host has no such address"
    assert exited.crash_loop and exited.restart_in_s is None
