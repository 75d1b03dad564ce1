"""`python -m tests.soak.day head --hours 24`: does a head stay as small as it was? Or an `agent`?

A real head with a screen on simulated agents, on a clock that jumps to whatever is due next. Or a
real agent which reads its host every 5 ms instead of every second, with a worker that is killed
each hour. Prints the resident memory after each simulated hour.
"""

import argparse
import asyncio
import gc
import os
import selectors
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from gputui.demo.cluster import Demo
from gputui.head.scheduler_process import make_certificate
from gputui.protocol.agent import (
    Telemetry,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import Credentials
from tests.processes import parent_of

HOUR_S = 3600.0
READ_EVERY_S = 0.005
BOUND_S = 300
"""How long the agent may take to answer on a machine that does much else."""


class Clock(selectors.EpollSelector):
    """Waits for nothing: where no file is ready, the time of the next timer comes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; move the clock by the time that a real loop would wait."""
        ready: list[Any] = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


async def agent_by_hour(hours: int) -> None:
    """Print the resident bytes of agent and forkserver after as many readings as an hour has."""
    from gputui.engine.tls import security  # a head has no Dask
    from tests.agent.driving import Driver, Scheduler, start_worker

    made = make_certificate()
    credentials = Credentials(made.certificate_pem, made.key_pem, "{}")
    own = security(made.certificate_pem, made.key_pem)
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        driver = Driver(Path(folder))
        driver.interval_s, driver.bound_s = READ_EVERY_S, BOUND_S
        agent = (await driver.connect()).agent_pid
        async with Scheduler(host="127.0.0.1", port=0, protocol="tls", security=own) as scheduler:
            await start_worker(driver, (scheduler, credentials))
            worker = driver.started().pid
            for hour in range(1, hours + 1):
                for _ in range(int(HOUR_S)):
                    await driver.wait_for(Telemetry)
                    driver.seen.clear()
                of_agent, of_forkserver = rss_mib(agent), rss_mib(parent_of(worker))
                print(f"{hour:3} h {of_agent:8.1f} {of_forkserver:8.1f} MiB", flush=True)
                os.kill(worker, signal.SIGKILL)
                worker = (await driver.wait_for(WorkerStarted)).pid
                await driver.wait_for(WorkerReady)
            await driver.shut_down()


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    return float(psutil.Process(pid).memory_info().rss / 2**20)


async def head_by_hour(hours: int, clock: Clock) -> None:
    """Print the resident bytes after each hour, with a screen that looks on."""
    demo = Demo((2, 4), seed=1, troubles=False, pace=1.0)
    link = await demo.open()
    passed, snapshots, due = 0, 0, clock.now + HOUR_S
    async for message in link.messages():
        snapshots += type(message).__name__ == "SnapshotTaken"
        if clock.now > due:
            due += HOUR_S
            gc.collect()
            passed += 1
            own = rss_mib(os.getpid())
            print(f"{passed:3} h {snapshots:8,} snapshots {own:8.1f} MiB", flush=True)
        if passed == hours:
            break
    await link.close()


def main() -> None:
    """Play so many hours."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.day")
    parser.add_argument("part", choices=["head", "agent"])
    parser.add_argument("--hours", type=int, default=24)
    options = parser.parse_args()
    if options.part == "agent":
        asyncio.run(agent_by_hour(options.hours))
        return
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    offset = time.time() - clock.now
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    time.monotonic = lambda: clock.now
    time.time = lambda: clock.now + offset
    loop.run_until_complete(head_by_hour(options.hours, clock))


if __name__ == "__main__":
    main()
