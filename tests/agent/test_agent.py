"""The agent as a head drives it: a real relay, nursery and workers, and a scheduler over TLS."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import distributed
import pytest

from gputui.agent.worker import security
from gputui.head.certificate import make_certificate
from gputui.plan import WorkerSpec
from gputui.protocol import (
    MARKER,
    VERSION,
    Configure,
    Credentials,
    Facts,
    FollowLogs,
    LogLines,
    Message,
    Ping,
    Pong,
    Reach,
    Reached,
    RestartWorkers,
    Shutdown,
    StartWorkers,
    StopWorkers,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
    decode,
    encode,
)

BOUND_S = 30


class Driver:
    """Plays the head of one agent."""

    def __init__(self, folder: Path, lease_s: float = 10.0) -> None:
        self.cluster_id = f"test-{folder.name}-{os.getpid()}"
        self.lease_s = lease_s
        self.env = {
            **os.environ,
            "XDG_RUNTIME_DIR": "",
            "TMPDIR": str(folder),
            "GPUTUI_CLUSTER": self.cluster_id,
        }
        self.seen: list[Message] = []
        self.relay: asyncio.subprocess.Process

    async def connect(self) -> Facts:
        """Start a relay and return the agent's facts."""
        self.relay = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gputui.agent", "relay"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self.env,
            limit=2**24,
        )
        assert self.relay.stdout
        assert await self.relay.stdout.readline() == MARKER + b"\n"
        self.send(Configure(VERSION, self.cluster_id, "host", self.lease_s, 1.0, ()))
        return await self.wait_for(Facts)

    def send(self, message: Message) -> None:
        assert self.relay.stdin
        self.relay.stdin.write(encode(message))

    async def wait_for(self, kind: type, fits: Callable[[Any], bool] = lambda message: True) -> Any:
        """Return the next message of a kind that fits."""
        assert self.relay.stdout
        async with asyncio.timeout(BOUND_S):
            while line := await self.relay.stdout.readline():
                message = decode(line)
                self.seen.append(message)
                if isinstance(message, kind) and fits(message):
                    return message
        raise AssertionError(f"the stream ended before {kind.__name__}; seen {self.seen[-5:]}")

    async def end_of_stream(self) -> None:
        assert self.relay.stdout
        async with asyncio.timeout(BOUND_S):
            while await self.relay.stdout.readline():
                continue

    def processes(self) -> list[int]:
        """Return the pids of this cluster's processes."""
        mark = f"GPUTUI_CLUSTER={self.cluster_id}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    async def nothing_left(self, bound_s: float = BOUND_S) -> None:
        async with asyncio.timeout(bound_s):
            while self.processes():
                await asyncio.sleep(0.05)


class Scheduler(distributed.Scheduler):
    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        pass


@pytest.fixture
async def scheduler() -> AsyncIterator[tuple[distributed.Scheduler, Credentials]]:
    """A scheduler over TLS, and what a worker needs to join it."""
    made = make_certificate()
    certificate, key = made.certificate_pem, made.key_pem
    own = security(certificate, key)
    async with Scheduler(host="127.0.0.1", port=0, protocol="tls", security=own) as one:
        yield one, Credentials(certificate, key, json.dumps({}))


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """An agent's head; whatever it left is ended."""
    one = Driver(tmp_path)
    yield one
    for pid in one.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await one.relay.wait()


def spec(name: str = "host:cpu0", memory_limit_bytes: int = 2**31) -> WorkerSpec:
    return WorkerSpec(name, "host", None, None, 1, memory_limit_bytes)


async def start_worker(driver: Driver, scheduler: Any, *specs: WorkerSpec) -> None:
    """Start workers and wait until they have registered."""
    one, credentials = scheduler
    driver.send(credentials)
    driver.send(StartWorkers(specs or (spec(),), one.address, "127.0.0.1"))
    for _ in specs or (spec(),):
        await driver.wait_for(WorkerReady)


def client_of(scheduler: Any) -> Any:
    one, credentials = scheduler
    own = security(credentials.certificate_pem, credentials.key_pem)
    return distributed.Client(one.address, security=own, asynchronous=True)


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
    await driver.nothing_left(5)
    assert not list(tmp_path.glob("gputui-*/*"))


async def test_a_head_that_comes_back_within_the_lease_finds_its_workers(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    driver.relay.kill()
    await driver.relay.wait()
    facts = await driver.connect()
    assert [worker.name for worker in facts.running] == ["host:cpu0"]
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_without_a_head_everything_ends_with_the_lease(
    tmp_path: Path, driver: Driver, scheduler: Any
) -> None:
    driver.lease_s = 1.0
    await driver.connect()
    await start_worker(driver, scheduler)
    driver.relay.kill()
    await driver.nothing_left(10)
    assert not list(tmp_path.glob("gputui-*/*"))


def hold_the_gil() -> None:
    import re

    re.match(r"(a|a)*$", "a" * 40 + "b")


def start_a_sleeper() -> int:
    import subprocess

    return subprocess.Popen(["sleep", "600"]).pid


@pytest.mark.parametrize("victim", ["agent", "nursery", "worker"])
async def test_killing_any_process_leaves_nothing_of_its_tasks(
    driver: Driver, scheduler: Any, victim: str
) -> None:
    driver.lease_s = 2.0
    facts = await driver.connect()
    await start_worker(driver, scheduler)
    async with client_of(scheduler) as client:
        sleeper = await client.submit(start_a_sleeper, pure=False)
        busy = client.submit(hold_the_gil)
        started = next(each for each in driver.seen if isinstance(each, WorkerStarted))
        parents = {"agent": facts.agent_pid, "worker": started.pid}
        parents["nursery"] = int(Path(f"/proc/{started.pid}/stat").read_text().split()[3])
        os.kill(parents[victim], signal.SIGKILL)
        async with asyncio.timeout(5):
            while Path(f"/proc/{started.pid}").exists() or _lives(sleeper):
                await asyncio.sleep(0.02)
        busy.release()
    with contextlib.suppress(ProcessLookupError):
        driver.relay.kill()
    await driver.nothing_left()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


async def test_a_crashed_worker_comes_back_and_says_why_it_went(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    started = next(each for each in driver.seen if isinstance(each, WorkerStarted))
    os.kill(started.pid, signal.SIGSEGV)
    exited = await driver.wait_for(WorkerExited)
    assert (exited.kind, exited.signal) == ("signal", signal.SIGSEGV)
    assert exited.restart_in_s is not None
    again = await driver.wait_for(WorkerStarted)
    assert again.restarts == 1
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_a_worker_over_its_memory_limit_is_ended_with_that_reason(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler, spec(memory_limit_bytes=400 * 2**20))
    async with client_of(scheduler) as client:
        hoard = client.submit(lambda: len(b"x" * 2**30), pure=False)
        exited = await driver.wait_for(WorkerExited)
        hoard.release()
    assert exited.kind == "memory-limit"
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_client_restart_brings_the_worker_back(driver: Driver, scheduler: Any) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    async with client_of(scheduler) as client:
        restarting = asyncio.create_task(client.restart(timeout=BOUND_S))
        await driver.wait_for(WorkerReady)
        await restarting
        assert await client.submit(sum, [1, 2]) == 3
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_a_stopped_worker_stays_away_until_it_is_started(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    driver.send(StopWorkers(("host:cpu0",), 3.0))
    exited = await driver.wait_for(WorkerExited)
    assert (exited.kind, exited.restart_in_s) == ("stopped", None)
    await start_worker(driver, scheduler)
    driver.send(RestartWorkers(("host:cpu0",)))
    await driver.wait_for(WorkerReady)
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


def print_much() -> None:
    import sys

    for _ in range(1000):
        sys.stdout.write(("x" * 99 + "\n") * 1000)
    print('["Pong", 99]', flush=True)


async def test_a_task_that_prints_100_mb_reaches_neither_the_protocol_nor_the_memory(
    driver: Driver, scheduler: Any
) -> None:
    await driver.connect()
    await start_worker(driver, scheduler)
    driver.send(FollowLogs(True))
    async with client_of(scheduler) as client:
        await client.submit(print_much)
    last = await driver.wait_for(LogLines, lambda message: '["Pong", 99]' in message.lines)
    assert len(last.lines) <= 200
    driver.send(Ping(1))
    assert (await driver.wait_for(Pong)).number == 1
    driver.send(Shutdown(2.0))
    await driver.nothing_left()


async def test_reaching_says_why_a_port_cannot_be_reached(driver: Driver) -> None:
    await driver.connect()
    driver.send(Reach("127.0.0.1", 1, 2.0))
    reached = await driver.wait_for(Reached)
    assert "refused" in reached.error.lower()
    driver.send(Shutdown(0.0))
    await driver.end_of_stream()
    await driver.nothing_left()
