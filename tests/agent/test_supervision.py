"""Whatever fails in an agent is told, tried again, or ends it with a reason."""

import asyncio
import atexit
import gzip
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.agent.worker_process import (
    BACKOFF_S,
    CRASH_LOOP_AFTER,
    WorkerOutput,
    WorkerProcess,
)
from gputui.process.procfs import process_stat
from gputui.protocol.agent import (
    AgentEnding,
    FromAgent,
    Ping,
    Pong,
    StartWorkers,
    StopWorkers,
    Telemetry,
    Trouble,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.channel import LINE_BYTES
from gputui.protocol.codec import encode
from gputui.protocol.shared import LogLines
from gputui.worker.cuda import take_turn
from tests.agent.driving import BOUND_S, Driver, client_of, order_worker, spec, start_worker
from tests.processes import lives

FAILING_TELEMETRY = """
from gputui.agent.gpu.telemetry import TelemetryReader
read, failures = TelemetryReader.read, iter(range(2))
def fails(self, pids):
    if next(failures, None) is not None:
        raise OSError(24, "Too many open files")
    return read(self, pids)
TelemetryReader.read = fails
"""

READINGS = 1_000

FLOOD_BYTES = 2_000_000
FLOOD = f"""
from gputui.agent.gpu.telemetry import TelemetryReader
import os
read = TelemetryReader.read
def complains(self, pids):
    os.write(2, b"x" * {FLOOD_BYTES})
    return read(self, pids)
TelemetryReader.read = complains
"""

FAILING_LEASE = """
from gputui.agent.supervisor import Supervisor
import asyncio
async def fails(self):
    await asyncio.sleep(2)
    raise ZeroDivisionError("of ours")
Supervisor._end_with_lease = fails
"""


def inject(driver: Driver, folder: Path, fault: str) -> None:
    """Have every Python that the driver starts run this first."""
    (folder / "faults").mkdir()
    (folder / "faults" / "sitecustomize.py").write_text(fault)
    driver.env["PYTHONPATH"] = str(folder / "faults")


async def seen(driver: Driver, kind: type, fits: Callable[[Any], bool]) -> Any:
    found = [message for message in driver.seen if isinstance(message, kind) and fits(message)]
    return found[0] if found else await driver.wait_for(kind, fits)


@pytest.mark.slow
async def test_an_error_in_telemetry_is_told_and_telemetry_goes_on(
    driver: Driver, tmp_path: Path
) -> None:
    inject(driver, tmp_path, FAILING_TELEMETRY)
    await driver.connect()
    trouble = await seen(driver, Trouble, lambda each: "telemetry" in each.text)
    assert "OSError: [Errno 24] Too many open files" in trouble.text
    await driver.wait_for(Telemetry)
    assert [each.text for each in driver.seen if isinstance(each, Trouble)] == [trouble.text]


async def test_an_agent_that_cannot_go_on_says_why_with_the_end_of_its_log(
    driver: Driver, tmp_path: Path
) -> None:
    inject(driver, tmp_path, FAILING_LEASE)
    await driver.connect()
    ending = await seen(driver, AgentEnding, lambda _: True)
    assert ending.reason == "the lease failed: ZeroDivisionError: of ours"
    assert "ZeroDivisionError: of ours" in ending.log_tail[-1]
    await driver.end_of_stream()
    await driver.nothing_left()


@pytest.mark.slow
async def test_the_log_of_an_agent_that_never_stops_complaining_stays_small(
    driver: Driver, tmp_path: Path
) -> None:
    inject(driver, tmp_path, FLOOD)
    await driver.connect()
    (log,) = tmp_path.glob("gputui-*/agent.log")
    sizes: list[int] = []
    while not sizes or sizes[-1] >= len(sizes) * FLOOD_BYTES:
        assert len(sizes) < BOUND_S, "it is never emptied"
        await driver.wait_for(Telemetry)
        sizes.append(log.stat().st_size)
    assert max(sizes) < 4 * FLOOD_BYTES
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_an_agent_is_as_large_after_thousands_of_readings_as_after_some(
    driver: Driver,
) -> None:
    driver.interval_s = 0.001
    pid = (await driver.connect()).agent_pid
    sizes = []
    for _ in range(6):
        for _ in range(READINGS):
            await driver.wait_for(Telemetry)
        driver.seen.clear()
        stat = process_stat(pid)
        sizes.append(stat.rss_bytes)
    assert sizes[5] - sizes[2] < 2**19, sizes  # it grows once, before that


async def test_a_scratch_folder_that_is_gone_is_made_again(
    up: Driver, scheduler: Any, tmp_path: Path
) -> None:
    (scratch,) = tmp_path.glob("gputui-*/host-cpu0")
    shutil.rmtree(scratch.parent)
    order_worker(up, scheduler, spec("host:cpu1"))
    await up.wait_for(WorkerStarted, lambda started: started.name == "host:cpu1")


async def test_a_worker_without_a_scratch_folder_fails_by_itself_and_says_why(
    up: Driver, scheduler: Any, tmp_path: Path
) -> None:
    (scratch,) = tmp_path.glob("gputui-*/host-cpu0")
    (scratch.parent / "host-cpu1").touch()
    order_worker(up, scheduler, spec("host:cpu1"))
    exited = await up.wait_for(WorkerExited)
    assert exited.name == "host:cpu1"
    assert exited.reason == f"it could not be started: {scratch.parent}/host-cpu1: File exists"
    assert exited.restart_in_s is not None
    up.send(Ping(7))
    await up.wait_for(Pong, lambda pong: pong.number == 7)


@pytest.mark.slow
async def test_an_agent_that_was_frozen_keeps_its_workers_where_its_head_pinged_on(
    driver: Driver, scheduler: Any
) -> None:
    driver.lease_s = 2.0
    facts = await driver.connect()
    await start_worker(driver, scheduler)
    os.kill(facts.agent_pid, signal.SIGSTOP)
    for number in range(100, 130):
        driver.send(Ping(number))
        await asyncio.sleep(0.1)  # the time that it is frozen for
    os.kill(facts.agent_pid, signal.SIGCONT)
    await driver.wait_for(Pong, lambda pong: pong.number == 129)
    assert lives(driver.started().pid)


def prints(output: WorkerOutput, *texts: bytes) -> None:
    """Have one process after the other print, and end."""
    for text in texts:
        reads, writes = os.pipe()
        output.open(reads)
        os.write(writes, text)
        os.close(writes)
        output.drain()


def lines_of(sent: list[FromAgent]) -> list[str]:
    return [line for each in sent if isinstance(each, LogLines) for line in each.lines]


async def test_a_line_without_an_end_is_not_glued_to_the_next_workers_first() -> None:
    sent: list[FromAgent] = []
    output = WorkerOutput("w", sent.append)
    prints(output, b"first\npartial", b"next\n")
    output.follow(True)
    assert lines_of(sent) == ["first", "partial", "next"]


async def test_the_last_lines_are_those_of_that_process() -> None:
    output = WorkerOutput("w", lambda message: None)
    prints(output, b"ModuleNotFoundError: No module named 'foo'\n", b"")
    assert output.tail(20) == ()


async def test_who_follows_again_gets_no_line_twice() -> None:
    sent: list[FromAgent] = []
    output = WorkerOutput("w", sent.append)
    output.follow(True)
    for printed in (b"one\n", b"two\n"):
        prints(output, printed)
        output.follow(True)
    await asyncio.sleep(1.0)
    output.close()
    assert lines_of(sent) == ["one", "two"]


async def test_however_long_its_lines_are_a_history_fits_into_the_channel() -> None:
    sent: list[FromAgent] = []
    output = WorkerOutput("w", sent.append)
    prints(output, *[b"\x01" * 2000 + b"\n"] * 200)
    output.follow(True)
    output.close()
    assert len(lines_of(sent)) == 200
    assert max(len(encode(each)) for each in sent) < LINE_BYTES


def test_a_worker_does_not_wait_without_end_for_one_that_hangs_in_the_driver(
    tmp_path: Path,
) -> None:
    hanging, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert take_turn(hanging, 1.0)
    assert not take_turn(other, 0.05)
    os.close(hanging)
    assert take_turn(other, 1.0)
    os.close(other)


async def test_threads_of_a_library_where_workers_are_forked_from_are_told(
    driver: Driver, tmp_path: Path
) -> None:
    inject(driver, tmp_path, "")
    driver.env["OPENBLAS_NUM_THREADS"] = "2"
    await driver.connect()
    trouble = await seen(driver, Trouble, lambda each: "of a library" in each.text)
    assert "leave OMP_NUM_THREADS and its like out" in trouble.text


@pytest.mark.parametrize("device", [None, "GPU-1"])
def test_a_worker_that_its_tasks_end_is_started_again_however_often(device: str | None) -> None:
    worker = WorkerProcess(
        replace(spec(), device_uuid=device),
        StartWorkers((spec(),), "tls://127.0.0.1:1", "127.0.0.1"),
        WorkerOutput("host:cpu0", print),
    )
    waits = []
    for _ in range(2 * CRASH_LOOP_AFTER):
        worker.begin(0, 0)
        worker.ready = WorkerReady("host:cpu0", "tls://127.0.0.1:2", device)
        waits.append(worker.next_start("crashed"))
    assert waits == [BACKOFF_S[0]] * 2 * CRASH_LOOP_AFTER
    for wait_s in BACKOFF_S[1:]:
        worker.begin(0, 0)
        worker.ready = WorkerReady("host:cpu0", "tls://127.0.0.1:2", None) if device else None
        assert worker.next_start("crashed") == wait_s, "a start that failed is tried again"
    worker.begin(0, 0)
    assert worker.next_start("crashed") is None and worker.crash_loop


@pytest.mark.slow
async def test_what_tasks_wrote_is_in_their_files_whatever_else_holds_their_worker_up(
    up: Driver, scheduler: Any, tmp_path: Path
) -> None:
    def leave_open() -> None:
        import builtins
        import gzip
        import threading

        text, late = (tmp_path / "text").open("w"), (tmp_path / "late").open("w")
        compressed = gzip.open(tmp_path / "gz", "wt")  # noqa: SIM115 - left open
        builtins.left_open = [compressed, text, late]  # type: ignore[attr-defined]
        for file in (text, compressed):
            file.write("written")
        write_late = lambda: (time.sleep(0.3), late.write("written"))  # noqa: E731
        threading.Thread(target=write_late, daemon=False).start()
        threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
        atexit.register(time.sleep, 600)
        atexit.register((tmp_path / "ended").mkdir)

    async with client_of(scheduler) as client:
        await client.submit(leave_open)
    up.send(StopWorkers((spec().name,), 10 * BOUND_S))
    assert (await up.wait_for(WorkerExited)).kind == "stopped"
    assert (tmp_path / "text").read_text() == "written"
    assert gzip.decompress((tmp_path / "gz").read_bytes()) == b"written"
    assert (tmp_path / "late").read_text() == "written"
    assert (tmp_path / "ended").exists()
